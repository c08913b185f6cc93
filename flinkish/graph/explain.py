"""Shows the plan of a program: as a table for people, with the vertex (chain), level and subtasks of each operator, and
as Flink's plan JSON.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from flinkish.common.text_table import aligned
from flinkish.errors import escaped, redact
from flinkish.graph.job_graph import JobGraphGenerator, partitioner_of, stateful_without_uid
from flinkish.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from flinkish.runtime.exchange.partitioners import EdgeDescriptor
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings, VertexDescriptor

_HEADER = ("Operator", "Uid", "Vertex", "Level", "Parallelism", "Max", "Subtasks", "Ships to")

#: Of a longer list of tasks only the first two and the last one are shown.
_MAX_SUBTASKS = 4


def explain(graph: StreamGraph, chaining: bool = True) -> str:
    """The plan as a table with one line per operator, in the order of the levels. Raises what ``graph.check()`` raises.

    Example (three of its columns)::

        Operator                   Level  Subtasks
        Source: Collection Source  0      Source: Collection Source (1/1)
        Sum                        1      Sum (1/2), (2/2)
    """
    job = JobGraphGenerator(graph, JobSettings(), chaining).generate("explain", "explain")
    lines = [line for vertex in job.vertices for line in _vertex_lines(vertex, job)]
    return "\n".join([aligned([_HEADER, *lines], ruled=True), *_descriptions(graph), *_slot_sharing_groups(graph)])


def state_of_plan(graph: StreamGraph, chaining: bool = True) -> str:
    """What keeps state, a line per operator, and which of these operators have no uid of their own."""
    job = JobGraphGenerator(graph, JobSettings(), chaining).generate("explain", "explain")
    lines = [
        f"{operator.name} ({operator.uid}): {kind}"
        for vertex in job.vertices
        for place, operator in enumerate(vertex.operators)
        if (kind := _state_of(vertex, place))
    ]
    without = stateful_without_uid(job)
    missing = f"Without a uid, so not restored from a savepoint: {', '.join(without)}; call uid(...)"
    return redact("\n".join(["State", *map(escaped, [*(lines or ["none"]), *([missing] if without else [])])]))


def _state_of(vertex: VertexDescriptor, place: int) -> str:
    """What an operator of a vertex keeps from epoch to epoch; "": nothing that is known before it runs."""
    parts = []
    if place == 0 and vertex.level == 0:
        parts.append("position in its input")
    if place == 0 and vertex.keyed:
        parts.append(f"by key{'' if vertex.key_type is None else f' ({vertex.key_type})'}")
    if vertex.operators[place].factory.has_operator_state:
        parts.append("operator state")
    return ", ".join(parts)


def _descriptions(graph: StreamGraph) -> list[str]:
    """The lines of the section of descriptions: one per operator that has one."""
    described = [f"{node.name} ({node.effective_uid}): {node.description}" for node in graph.nodes if node.description]
    return ["", "Descriptions", *described] if described else []


def _slot_sharing_groups(graph: StreamGraph) -> list[str]:
    """The lines of the section of slot sharing groups: one per group, if there are others than the default group."""
    groups: dict[str, list[str]] = {}
    for node in graph.nodes:
        groups.setdefault(node.slot_sharing_group or "default", []).append(node.effective_uid)
    lines = []
    for group, uids in groups.items():
        resources = graph.slot_sharing_groups.get(group)
        lines.append(f"{group}{f' ({resources})' if resources else ''}: {', '.join(uids)}")
    return [] if set(groups) == {"default"} else ["", "Slot sharing groups", *lines]


def _vertex_lines(vertex: VertexDescriptor, job: JobDescriptor) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for position, operator in enumerate(vertex.operators):
        indent = "  " * _depth(vertex, position)
        uid = operator.uid if operator.uid_given else f"({operator.uid})"
        ships = ", ".join(_shipping(edge, job) for edge in operator.edges) or "-"
        if position == 0:
            groups = str(vertex.max_parallelism) if vertex.keyed else "-"
            place = (str(vertex.id), str(vertex.level), str(vertex.parallelism), groups, _tasks(vertex))
        else:
            place = (str(vertex.id), "", "", "", "")
        lines.append((indent + operator.name, uid, *place, ships))
    return lines


def _depth(vertex: VertexDescriptor, position: int) -> int:
    """The number of operators upstream of this one within its chain."""
    depth = 0
    while vertex.operators[position].parent >= 0:
        position = vertex.operators[position].parent
        depth += 1
    return depth


def _shipping(edge: EdgeDescriptor, job: JobDescriptor) -> str:
    tag = f" [{edge.tag}]" if edge.tag is not None else ""
    return f"{edge.partitioner.ship_strategy} -> {edge.target}{tag}"


def _tasks(vertex: VertexDescriptor) -> str:
    """The names of the tasks of a vertex, as they are everywhere; of the later ones only what differs."""
    first, *later = map(vertex.task_name, range(vertex.parallelism))
    ends = [name.removeprefix(vertex.name).strip() for name in later]
    if vertex.parallelism > _MAX_SUBTASKS:
        ends = [ends[0], "...", ends[-1]]
    return ", ".join([first, *ends])


#: PyFlink's operators that make Row(key, value) of the records of a keyed stream, and values again.
KEY_BY, KEYED_VALUES = "_stream_key_by_map_operator", "_keyed_stream_values_operator"


def plan_json(graph: StreamGraph, of_pyflink: bool = False) -> str:
    """The plan as JSON: one node per operator, sinks last, each with its inputs and their ship strategies (FORWARD,
    HASH, ...). ``env.get_execution_plan()`` gives it, and Flink's plan visualizer draws it (JSONGenerator).

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
