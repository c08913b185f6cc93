"""Flink's plan JSON, as ``env.get_execution_plan()`` gives it and Flink's plan visualizer draws it (JSONGenerator)."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from flinkish.errors import redact
from flinkish.graph.job_graph import partitioner_of
from flinkish.graph.stream_graph import StreamEdge, StreamGraph, StreamNode


def plan_json(graph: StreamGraph) -> str:
    """The plan as JSON: one node per operator, sinks last, each with its inputs and their ship strategies (FORWARD,
    HASH, ...)."""
    inputs: dict[int, list[StreamEdge]] = defaultdict(list)
    for edge in graph.edges():
        inputs[edge.target.id].append(edge)
    nodes = sorted(graph.nodes, key=lambda node: (node.sink is not None, node.id))
    return json.dumps({"nodes": [_node(node, inputs[node.id], graph) for node in nodes]}, indent=2)


def _node(node: StreamNode, inputs: list[StreamEdge], graph: StreamGraph) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": node.id,
        "type": redact(node.name),
        "pact": "Data Source" if node.source is not None else "Data Sink" if node.sink is not None else "Operator",
        "contents": redact(node.description or node.name),
        "parallelism": graph.parallelism_of(node),
    }
    if inputs:
        described["predecessors"] = [
            # Flink's generator calls every side "second", since it looks at a list that it has just appended to
            {"id": edge.source.id, "ship_strategy": partitioner_of(edge, graph).ship_strategy, "side": "second"}
            for edge in inputs
        ]
    return described
