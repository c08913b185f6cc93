"""Decides which operators may have ``on_error``: those whose function is called for one record, timer or window at a
time, so that a failed call can be undone before the next one."""

from __future__ import annotations

from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamNode
from flinkish.runtime.operators.async_wait import AsyncWaitFactory
from flinkish.runtime.operators.broadcast import BroadcastProcessFactory, KeyedBroadcastProcessFactory
from flinkish.runtime.operators.functions import (
    CoFlatMapFactory,
    CoMapFactory,
    CoProcessFactory,
    FilterFactory,
    FlatMapFactory,
    MapFactory,
    ProcessFactory,
)
from flinkish.runtime.operators.interval_join import IntervalJoinFactory
from flinkish.runtime.operators.keyed_process import KeyedCoProcessFactory, KeyedProcessFactory
from flinkish.runtime.operators.reduce import ReduceFactory, RollingAggregationFactory
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.operators.window.factory import WindowOperatorFactory

_GUARDABLE = (
    AsyncWaitFactory,
    BroadcastProcessFactory,
    CoFlatMapFactory,
    CoMapFactory,
    CoProcessFactory,
    FilterFactory,
    FlatMapFactory,
    IntervalJoinFactory,
    KeyedBroadcastProcessFactory,
    KeyedCoProcessFactory,
    KeyedProcessFactory,
    MapFactory,
    ProcessFactory,
    ReduceFactory,
    RollingAggregationFactory,
    WindowOperatorFactory,
)


def check_guardable(node: StreamNode) -> None:
    """Raises ProgramError for an operator that cannot have ``on_error``; the message says what to do instead."""
    if isinstance(node.factory, _GUARDABLE):
        return
    reason, hint = _why_not(node)
    raise ProgramError(
        f"on_error() on an operator that cannot have it: {reason}",
        where=f"operator '{node.name}' (uid {node.effective_uid})",
        expected="map, flat_map, filter, process, reduce, sum, min, max, a window, a join or an asynchronous call",
        hint=hint,
    )


def _why_not(node: StreamNode) -> tuple[str, str]:
    if node.source is not None:
        return "a source reads what it cannot read again", "let it give texts or bytes, and parse them in a map"
    if node.sink is not None:
        return (
            "a sink writes an epoch as a whole, so there is no one record that fails alone",
            "give the records their last form in a map before it, and let that have on_error()",
        )
    if isinstance(node.factory, TimestampsAndWatermarksFactory):
        return "a record without a timestamp has no place in time", "parse the records in a map before it"
    return (
        "it works on many records at once, and one call concerns all of them",
        "check the records in a map before it, or let it emit what it has and do the rest in a map behind it",
    )
