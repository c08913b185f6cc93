"""Which origins each channel must hear of, so that one that has not sent anything yet holds the watermark back.

The splits of a source are declared by the source and heard of by everybody. The origins of any other vertex are its
channels: all of them, or on a pointwise edge those of the subtasks that send to the receiver's.
"""

from __future__ import annotations

from dataclasses import replace

from flinkish.runtime.deployment import EdgeDescriptor, InputDescriptor, VertexDescriptor
from flinkish.runtime.input_gate import origin_name
from flinkish.runtime.operators.timestamps_and_watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.partitioners import Sender, reachable


def declare_origins(vertices: tuple[VertexDescriptor, ...]) -> tuple[VertexDescriptor, ...]:
    """The vertices with the origins of their inputs declared."""
    return tuple(
        replace(vertex, inputs=tuple(_declared(vertex, described, vertices) for described in vertex.inputs))
        for vertex in vertices
    )


def _declared(
    vertex: VertexDescriptor, described: InputDescriptor, vertices: tuple[VertexDescriptor, ...]
) -> InputDescriptor:
    upstream = vertices[described.vertex]
    if upstream.source is not None or _makes_watermarks_per_key_group(upstream):
        return described
    edge = _edge_between(upstream, vertex.id, described.edge)
    if not edge.partitioner.pointwise:
        return replace(described, declared_origins=_origins(upstream, set(range(upstream.parallelism))))
    senders: list[set[int]] = [set() for _ in range(vertex.parallelism)]
    for subtask in range(upstream.parallelism):
        sender = Sender(subtask, upstream.parallelism, len(edge.target_channels), edge.target_parallelism, "")
        for index in reachable(edge.partitioner, sender):
            senders[vertex.channel(edge.target_channels[index]).subtask].add(subtask)
    return replace(described, declared_by_subtask=tuple(_origins(upstream, subtasks) for subtasks in senders))


def _makes_watermarks_per_key_group(vertex: VertexDescriptor) -> bool:
    """A key group without a single key never makes a watermark; nobody may wait for it."""
    factories = (operator.factory for operator in vertex.operators)
    return vertex.keyed and any(isinstance(factory, TimestampsAndWatermarksFactory) for factory in factories)


def _edge_between(upstream: VertexDescriptor, target: int, number: int) -> EdgeDescriptor:
    edges = (edge for operator in upstream.operators for edge in operator.edges)
    return next(edge for edge in edges if edge.target == target and edge.edge == number)


def _origins(upstream: VertexDescriptor, subtasks: set[int]) -> tuple[str, ...]:
    return tuple(origin_name(upstream.id, c.number) for c in upstream.channels() if c.subtask in subtasks)
