"""Declares the origins of watermarks that each subtask must wait for, so that an origin that has not sent anything yet
holds the watermark back.

The origins of a source vertex are its splits: the source declares them, and all receivers wait for all of them. The
origins of any other vertex are its subtasks: all of them, or on a pointwise edge those that send to the receiver.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flinkish.runtime.exchange.gate import origin_name
from flinkish.runtime.exchange.partitioners import EdgeDescriptor, InputDescriptor, Sender, reachable
from flinkish.runtime.job.deployment import VertexDescriptor


def declare_origins(vertices: tuple[VertexDescriptor, ...]) -> tuple[VertexDescriptor, ...]:
    """The same vertices, with the origins of their inputs filled in."""
    return tuple(
        replace(vertex, inputs=tuple(_declared(vertex, described, vertices) for described in vertex.inputs))
        for vertex in vertices
    )


def _declared(
    vertex: VertexDescriptor, described: InputDescriptor, vertices: tuple[VertexDescriptor, ...]
) -> InputDescriptor:
    upstream = vertices[described.vertex]
    if upstream.source is not None:
        return described
    edge = _edge_between(upstream, vertex.id, described.edge)
    if not edge.partitioner.pointwise:
        return replace(described, declared_origins=_origins(upstream, range(upstream.parallelism)))
    senders: list[set[int]] = [set() for _ in range(vertex.parallelism)]
    for subtask in range(upstream.parallelism):
        sender = Sender(subtask, upstream.parallelism, edge.target_parallelism, "")
        for target in reachable(edge.partitioner, sender):
            senders[target].add(subtask)
    return replace(described, declared_by_subtask=tuple(_origins(upstream, subtasks) for subtasks in senders))


def _edge_between(upstream: VertexDescriptor, target: int, number: int) -> EdgeDescriptor:
    edges = (edge for operator in upstream.operators for edge in operator.edges)
    return next(edge for edge in edges if edge.target == target and edge.edge == number)


def _origins(upstream: VertexDescriptor, subtasks: Iterable[int]) -> tuple[str, ...]:
    return tuple(origin_name(upstream.id, subtask) for subtask in sorted(subtasks))
