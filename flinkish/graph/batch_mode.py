"""Applies ``execution.runtime-mode`` to a program (Flink's BATCH mode).

In BATCH mode all sources are bounded. Rolling reduces emit one final result per key instead of one per record, and the
only watermark is the last one, so no record is late. Broadcast sides are consumed first (`broadcast_first.py`).
"""

from __future__ import annotations

from dataclasses import replace

from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamGraph, StreamNode
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.broadcast import BroadcastProcessFactory, KeyedBroadcastProcessFactory
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
    return factory


def _unbounded(node: StreamNode) -> ProgramError:
    return ProgramError(
        "Detected an UNBOUNDED source with the 'execution.runtime-mode' set to 'BATCH'. "
        "This combination is not allowed",
        where=f"operator '{node.name}' (uid {node.effective_uid})",
        expected="sources that end",
        hint="set 'execution.runtime-mode' to STREAMING or AUTOMATIC",
    )
