"""Flink's plan JSON, as ``env.get_execution_plan()`` gives it and Flink's plan visualizer draws it (JSONGenerator)."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from flinkish.errors import redact
from flinkish.graph.job_graph import partitioner_of
from flinkish.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

#: PyFlink's operators that make Row(key, value) of the records of a keyed stream, and values again.
KEY_BY, KEYED_VALUES = "_stream_key_by_map_operator", "_keyed_stream_values_operator"


def plan_json(graph: StreamGraph, of_pyflink: bool = False) -> str:
    """The plan as JSON: one node per operator, sinks last, each with its inputs and their ship strategies (FORWARD,
    HASH, ...).

    Args:
        graph: the program.
        of_pyflink: whether the plan has PyFlink's operators behind ``key_by`` too, which flinkish does without. The
            nodes are then numbered anew.
    """
    inputs: dict[int, list[StreamEdge]] = defaultdict(list)
    for edge in graph.edges():
        inputs[edge.target.id].append(edge)
    nodes = sorted(graph.nodes, key=lambda node: (node.sink is not None, node.id))
    if of_pyflink:
        described = _PyFlinkPlan(graph).described(nodes, inputs)
    else:
        described = [_node(node, inputs[node.id], graph) for node in nodes]
    return json.dumps({"nodes": described}, indent=2)


class _PyFlinkPlan:
    """Describes the operators of a program and those that PyFlink adds, in the order of their inputs."""

    def __init__(self, graph: StreamGraph) -> None:
        self._graph = graph
        self._described: list[dict[str, Any]] = []
        #: id of an operator of the program -> its id in the plan
        self._ids: dict[int, int] = {}
        #: operator, side output and key selector -> the id of the operator that PyFlink's key_by adds
        self._keyed: dict[tuple[int, str | None, int], int] = {}

    def described(self, nodes: list[StreamNode], inputs: dict[int, list[StreamEdge]]) -> list[dict[str, Any]]:
        """The nodes of the plan; ``inputs`` are those of each operator, by its id."""
        for node in nodes:
            predecessors = [self._predecessor(edge) for edge in inputs[node.id]]
            self._ids[node.id] = self._add({**_node(node, [], self._graph), **_inputs(predecessors)})
        return self._described

    def _predecessor(self, edge: StreamEdge) -> tuple[int, str]:
        """The id of the node from which an operator of the program gets its records in PyFlink, and how."""
        source, strategy = self._ids[edge.source.id], partitioner_of(edge, self._graph).ship_strategy
        if edge.key_selector is None or edge.source.name == KEY_BY:
            return source, strategy
        place = edge.source.id, edge.tag, id(edge.key_selector)
        if place not in self._keyed:
            parallelism = self._graph.parallelism_of(edge.source)
            self._keyed[place] = self._add(_operator(KEY_BY, parallelism, [(source, "FORWARD")]))
        if edge.target.sink is None:
            return self._keyed[place], strategy
        parallelism = self._graph.parallelism_of(edge.target)
        return self._add(_operator(KEYED_VALUES, parallelism, [(self._keyed[place], strategy)])), "FORWARD"

    def _add(self, described: dict[str, Any]) -> int:
        self._described.append({**described, "id": len(self._described) + 1})
        return len(self._described)


def _operator(name: str, parallelism: int, predecessors: list[tuple[int, str]]) -> dict[str, Any]:
    described = {"id": 0, "type": name, "pact": "Operator", "contents": name, "parallelism": parallelism}
    return {**described, **_inputs(predecessors)}


def _inputs(predecessors: list[tuple[int, str]]) -> dict[str, Any]:
    if not predecessors:
        return {}
    # Flink's generator calls every side "second", since it looks at a list that it has just appended to
    return {
        "predecessors": [
            {"id": node_id, "ship_strategy": strategy, "side": "second"} for node_id, strategy in predecessors
        ]
    }


def _node(node: StreamNode, inputs: list[StreamEdge], graph: StreamGraph) -> dict[str, Any]:
    pact = "Data Source" if node.source is not None else "Data Sink" if node.sink is not None else "Operator"
    described = {
        "id": node.id,
        "type": redact(node.name),
        "pact": pact,
        "contents": redact(node.description or node.name),
        "parallelism": graph.parallelism_of(node),
    }
    strategies = [(edge.source.id, partitioner_of(edge, graph).ship_strategy) for edge in inputs]
    return {**described, **_inputs(strategies)}
