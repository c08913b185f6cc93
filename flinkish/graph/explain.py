"""Shows the plan of a program as a table for people: the vertex (chain), level and subtasks of each operator."""

from __future__ import annotations

from collections.abc import Sequence

from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph
from flinkish.runtime.exchange.partitioners import EdgeDescriptor
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings, VertexDescriptor

_HEADER = ("Operator", "Uid", "Vertex", "Level", "Parallelism", "Max", "Subtasks", "Ships to")

#: Of a longer list of subtasks only the first two and the last one are shown.
_MAX_SUBTASKS = 4


def explain(graph: StreamGraph, chaining: bool = True) -> str:
    """The plan as a table with one line per operator, in the order of the levels. Raises what ``graph.check()`` raises.

    Example (three of its columns)::

        Operator                   Level  Subtasks
        Source: Collection Source  0      Source Task 0
        Reduce                     1      Task 1.0, Task 1.1
    """
    job = JobGraphGenerator(graph, JobSettings(), chaining).generate("explain", "explain")
    names = subtask_names(job)
    lines = [line for vertex in job.vertices for line in _vertex_lines(vertex, job, names[vertex.id])]
    return "\n".join([_table([_HEADER, *lines]), *_descriptions(graph), *_slot_sharing_groups(graph)])


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


def subtask_names(job: JobDescriptor) -> list[list[str]]:
    """The names of the subtasks of each vertex: ``Source Task 0``, ``Source Task 1``, ... counted over all sources, and
    ``Task 2.0`` for subtask 0 of vertex 2."""
    names, sources = [], 0
    for vertex in job.vertices:
        if vertex.level == 0:
            names.append([f"Source Task {sources + subtask}" for subtask in range(vertex.parallelism)])
            sources += vertex.parallelism
        else:
            names.append([f"Task {vertex.id}.{subtask}" for subtask in range(vertex.parallelism)])
    return names


def _vertex_lines(vertex: VertexDescriptor, job: JobDescriptor, subtasks: list[str]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for position, operator in enumerate(vertex.operators):
        indent = "  " * _depth(vertex, position)
        uid = operator.uid if operator.uid_given else f"({operator.uid})"
        ships = ", ".join(_shipping(edge, job) for edge in operator.edges) or "-"
        if position == 0:
            groups = str(vertex.max_parallelism) if vertex.keyed else "-"
            place = (str(vertex.id), str(vertex.level), str(vertex.parallelism), groups, _shortened(subtasks))
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


def _shortened(names: Sequence[str]) -> str:
    if len(names) <= _MAX_SUBTASKS:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, ..., {names[-1]}"


def _table(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    rows.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(rows)
