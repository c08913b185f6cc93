"""Applies ``execution.runtime-mode`` to a program (Flink's BATCH mode).

In BATCH mode all sources are bounded. Rolling reduces emit one final result per key instead of one per record, and the
only watermark is the last one, so no record is late. An operator on a broadcast stream consumes the broadcast side to
its end before the other side.

Semantics: Flink's broadcast operators of BATCH mode, which select their broadcast input until it has ended. Here the
sources of the other side are not read until those of the broadcast side have ended, so that no records have to be
buffered. In the epoch in which the broadcast side ends and the other side begins, the records of the broadcast side
come first (`InputDescriptor.comes_last`).

Sources cannot wait for each other if one source feeds both sides, if two operators need opposite orders, or if Spark
reads one of the sources. The broadcast side then comes first only within each epoch, and a warning says so when the job
is submitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flinkish.common.no_effect import warn_without_effect
from flinkish.core.source import SplitSource
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.broadcast import BROADCAST_INPUT, BroadcastProcessFactory, KeyedBroadcastProcessFactory
from flinkish.runtime.operators.reduce import FinalReduceFactory, ReduceFactory, RollingAggregationFactory
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory


def apply_runtime_mode(graph: StreamGraph, mode: str) -> None:
    """Replace the factories of the graph's operators by those of the runtime mode: STREAMING, BATCH, or AUTOMATIC,
    which means BATCH if all sources are bounded.

    Raises:
        ProgramError: the mode is BATCH and a source is unbounded.
    """
    unbounded = [node for node in graph.nodes if node.source is not None and not node.source.bounded]
    if mode == "STREAMING" or (mode == "AUTOMATIC" and unbounded):
        return
    if unbounded:
        raise _unbounded(unbounded[0])
    for node in graph.nodes:
        node.factory = _batch_form(node.factory)


def _batch_form(factory: OperatorFactory) -> OperatorFactory:
    if isinstance(factory, (ReduceFactory, RollingAggregationFactory)):
        return FinalReduceFactory(factory)
    if isinstance(factory, TimestampsAndWatermarksFactory):
        return replace(factory, out_of_orderness_ms=None, idle_timeout_ms=None, alignment=None, make_generator=None)
    if isinstance(factory, (BroadcastProcessFactory, KeyedBroadcastProcessFactory)):
        return replace(factory, broadcast_first=True)
    if getattr(factory, "final", None) is False:
        # the GROUP BY of tables, whose module knows numpy
        return replace(factory, final=True)  # type: ignore[type-var]
    return factory


def _unbounded(node: StreamNode) -> ProgramError:
    return ProgramError(
        "Detected an UNBOUNDED source with the 'execution.runtime-mode' set to 'BATCH'. "
        "This combination is not allowed",
        where=f"operator '{node.name}' (uid {node.effective_uid})",
        expected="sources that end",
        hint="set 'execution.runtime-mode' to STREAMING or AUTOMATIC",
    )


def consumes_broadcast_first(node: StreamNode) -> bool:
    """Whether an operator consumes its broadcast side to the end before the other side."""
    factory = node.factory
    return isinstance(factory, (BroadcastProcessFactory, KeyedBroadcastProcessFactory)) and factory.broadcast_first


def waiting_sources(nodes: Iterable[StreamNode], inputs: Mapping[int, list[StreamEdge]]) -> dict[int, set[int]]:
    """For each source that must wait, by node id, the ids of the sources that must end before it is read.

    Args:
        nodes: the operators of the program.
        inputs: the edges into each node, by node id.
    """
    waits: dict[int, set[int]] = {}
    for node in nodes:
        if not consumes_broadcast_first(node):
            continue
        sides = [_sources(edges, inputs) for edges in _by_side(inputs[node.id])]
        others, broadcast = sides
        ready = all(isinstance(one.source, SplitSource) for one in (*others.values(), *broadcast.values()))
        wanted = {source: waits.get(source, set()) | broadcast.keys() for source in others}
        if not ready or _circular({**waits, **wanted}):
            warn_without_effect(
                f"reading the broadcast side of '{node.name}' to its end before the other side",
                "one source feeds both sides, or another operator wants it the other way round, or Spark reads one of "
                "the sources (Delta, from_spark); the broadcast side comes first in each epoch",
            )
            continue
        waits.update(wanted)
    return waits


def _by_side(edges: list[StreamEdge]) -> tuple[list[StreamEdge], list[StreamEdge]]:
    return (
        [edge for edge in edges if edge.input_index != BROADCAST_INPUT],
        [edge for edge in edges if edge.input_index == BROADCAST_INPUT],
    )


def _sources(edges: list[StreamEdge], inputs: Mapping[int, list[StreamEdge]]) -> dict[int, StreamNode]:
    """The sources upstream of these edges, by node id."""
    found: dict[int, StreamNode] = {}
    seen: set[int] = set()
    stack = [edge.source for edge in edges]
    while stack:
        node = stack.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        if node.source is not None:
            found[node.id] = node
        stack.extend(edge.source for edge in inputs.get(node.id, ()))
    return found


def _circular(waits: Mapping[int, set[int]]) -> bool:
    """Whether a source would wait for itself, directly or through others."""
    for source in waits:
        seen: set[int] = set()
        stack = list(waits[source])
        while stack:
            one = stack.pop()
            if one == source:
                return True
            if one not in seen:
                seen.add(one)
                stack.extend(waits.get(one, ()))
    return False
