"""Programs with keyed windows and timers that flinkish and PyFlink run alike, except for the package they import.

Each takes the clicks as tuples (key, time, amount) or, for `connected` and `interval_join`, (user, time, amount, logged
in), and emits tuples (key, time of the result, count, amount). `checked` selects the figures that do not depend on when
watermarks arrive: engines must agree on these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.contract import WINDOW_MS

#: Pipeline -> the columns that it reads.
COLUMNS = {
    "user_window": ("user_id", "ts", "amount"),
    "visits": ("user_id", "ts", "amount"),
    "sliding": ("page", "ts", "amount"),
    "session": ("user_id", "ts", "amount"),
    "connected": ("user_id", "ts", "amount", "logged_in"),
    "interval_join": ("user_id", "ts", "amount", "logged_in"),
}
#: The bound for out-of-order records, where it is part of the pipeline.
BOUND_MS = {"user_window": 5_000, "visits": 1_000, "connected": 1_000, "interval_join": 1_000}
#: Pipelines for which only the sums over all results are the same in every engine: the number of visits depends on
#: whether the watermark or the next click arrives first.
SUMS_ONLY = ("visits", "connected")
VISIT_GAP_MS = 600_000
SESSION_GAP_MS = WINDOW_MS
SLIDING_MS = 5 * WINDOW_MS
#: Clicks of a user that are at most this far apart are joined.
JOIN_MS = 20


def checked(pipeline: str, check: dict[str, Any]) -> dict[str, Any]:
    """The figures that must agree between engines."""
    return {name: figure for name, figure in check.items() if name != "windows" or pipeline not in SUMS_ONLY}


class Package:
    """The parts of flinkish or of PyFlink that the programs use, so that one program serves both: only imports differ.

    Example: `Package("pyflink").types.STRING()`.
    """

    def __init__(self, name: str) -> None:
        self.common = importlib.import_module(f"{name}.common")
        self.datastream = importlib.import_module(f"{name}.datastream")
        self.functions = importlib.import_module(f"{name}.datastream.functions")
        self.state = importlib.import_module(f"{name}.datastream.state")
        self.window = importlib.import_module(f"{name}.datastream.window")
        self.assigner = importlib.import_module(f"{name}.common.watermark_strategy").TimestampAssigner
        self.types = self.common.Types
        self.ms = self.common.Time.milliseconds
        self.result = self.result_type()

    def result_type(self) -> Any:
        """The type of the results of all programs: key, time of the result, count, amount. A new one for each call."""
        return self.types.TUPLE([self.types.STRING(), self.types.LONG(), self.types.LONG(), self.types.DOUBLE()])

    def by_key(self, stream: Any) -> Any:
        """Keyed by the first field."""
        return stream.key_by(lambda click: click[0], self.types.STRING())


def add(package: str, pipeline: str, clicks: Any, bound_ms: int) -> Any:
    """Append a program to a stream of clicks.

    Example: `add("pyflink", "session", clicks, 1_000).print()`.
    """
    api = Package(package)
    return PROGRAMS[pipeline](api, timed(api, clicks, bound_ms))


def timed(api: Package, clicks: Any, bound_ms: int) -> Any:
    """The clicks with event timestamps and watermarks."""

    class ClickTime(api.assigner):  # type: ignore[misc, name-defined]
        """Assigns the event time."""

        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value[1])

    strategy = api.common.WatermarkStrategy.for_bounded_out_of_orderness(api.common.Duration.of_millis(bound_ms))
    return clicks.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ClickTime()))


def user_window(api: Package, clicks: Any) -> Any:
    """Count and sum in windows of a minute."""
    return in_windows(api, clicks, api.window.TumblingEventTimeWindows.of(api.ms(WINDOW_MS)))


def sliding(api: Package, clicks: Any) -> Any:
    """Count and sum in windows of five minutes, one starting each minute."""
    return in_windows(api, clicks, api.window.SlidingEventTimeWindows.of(api.ms(SLIDING_MS), api.ms(WINDOW_MS)))


def session(api: Package, clicks: Any) -> Any:
    """Count and sum in sessions with a gap of a minute."""
    return in_windows(api, clicks, api.window.EventTimeSessionWindows.with_gap(api.ms(SESSION_GAP_MS)))


def in_windows(api: Package, clicks: Any, assigner: Any) -> Any:
    """Count and sum per key in the windows of an assigner."""
    functions = api.functions

    class CountAndAmount(functions.AggregateFunction):  # type: ignore[misc, name-defined]
        """(count, sum of amounts)."""

        def create_accumulator(self) -> Any:
            return 0, 0.0

        def add(self, value: Any, accumulator: Any) -> Any:
            return accumulator[0] + 1, accumulator[1] + value[2]

        def get_result(self, accumulator: Any) -> Any:
            return accumulator

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]

    class WithWindow(functions.ProcessWindowFunction):  # type: ignore[misc, name-defined]
        """Adds the key and the start of the window."""

        def process(self, key: str, context: Any, elements: Any) -> Any:
            for count, amount in elements:
                yield key, context.window().start, count, amount

    accumulator = api.types.TUPLE([api.types.LONG(), api.types.DOUBLE()])
    return api.by_key(clicks).window(assigner).aggregate(CountAndAmount(), WithWindow(), accumulator, api.result)


def visits(api: Package, clicks: Any) -> Any:
    """The clicks of a user until there are none for ten minutes, with a timer for every click."""
    types, descriptor = api.types, api.state.ValueStateDescriptor

    class Visits(api.datastream.KeyedProcessFunction):  # type: ignore[misc, name-defined]
        """(time of the last click, number of clicks) of the visit."""

        def open(self, runtime_context: Any) -> None:
            kept = types.TUPLE([types.LONG(), types.LONG()])
            self.visit = runtime_context.get_state(descriptor("visit", kept))

        def process_element(self, value: Any, ctx: Any) -> Any:
            visit = self.visit.value()
            at_ms = ctx.timestamp()
            self.visit.update((at_ms, 1) if visit is None else (max(at_ms, visit[0]), visit[1] + 1))
            ctx.timer_service().register_event_time_timer(at_ms + VISIT_GAP_MS)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            visit = self.visit.value()
            if visit is not None and timestamp == visit[0] + VISIT_GAP_MS:
                self.visit.clear()
                yield ctx.get_current_key(), timestamp, visit[1], 0.0

    return api.by_key(clicks).process(Visits(), api.result)


def connected(api: Package, clicks: Any) -> Any:
    """Visits over two streams: counts the clicks of the first one and adds up the amounts of the second one."""
    types, descriptor = api.types, api.state.ValueStateDescriptor

    class TwoKinds(api.datastream.KeyedCoProcessFunction):  # type: ignore[misc, name-defined]
        """(time of the last click, number of clicks, sum of amounts) of the visit."""

        def open(self, runtime_context: Any) -> None:
            kept = types.TUPLE([types.LONG(), types.LONG(), types.DOUBLE()])
            self.visit = runtime_context.get_state(descriptor("visit", kept))

        def process_element1(self, value: Any, ctx: Any) -> Any:
            self._take(ctx, 1, 0.0)
            return ()

        def process_element2(self, value: Any, ctx: Any) -> Any:
            self._take(ctx, 0, value[2])
            return ()

        def _take(self, ctx: Any, count: int, amount: float) -> None:
            at_ms = ctx.timestamp()
            last_ms, before, sum_before = self.visit.value() or (at_ms, 0, 0.0)
            self.visit.update((max(last_ms, at_ms), before + count, sum_before + amount))
            ctx.timer_service().register_event_time_timer(at_ms + VISIT_GAP_MS)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            visit = self.visit.value()
            if visit is not None and timestamp == visit[0] + VISIT_GAP_MS:
                self.visit.clear()
                yield ctx.get_current_key(), timestamp, visit[1], visit[2]

    first, second = logged_in_or_not(clicks)
    return api.by_key(first).connect(api.by_key(second)).process(TwoKinds(), api.result)


def interval_join(api: Package, clicks: Any) -> Any:
    """The pairs of a user's clicks close to each other, one logged in and one not, added up per user, because a pair
    has no name of its own."""
    return api.by_key(pairs(api, clicks)).reduce(lambda a, b: (a[0], 0, a[2] + b[2], a[3] + b[3]))


def pairs(api: Package, clicks: Any) -> Any:
    """The amounts of each pair."""

    class Pairs(api.functions.ProcessJoinFunction):  # type: ignore[misc, name-defined]
        """Emits the amounts of both."""

        def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
            yield left[0], 0, 1, left[2] + right[2]

    first, second = logged_in_or_not(clicks)
    joined = api.by_key(first).interval_join(api.by_key(second)).between(api.ms(-JOIN_MS), api.ms(JOIN_MS))
    return joined.process(Pairs(), api.result)


def logged_in_or_not(clicks: Any) -> tuple[Any, Any]:
    """The clicks of logged-in users, and the others."""
    return clicks.filter(lambda click: click[3]), clicks.filter(lambda click: not click[3])


PROGRAMS: dict[str, Callable[[Package, Any], Any]] = {
    "user_window": user_window,
    "visits": visits,
    "sliding": sliding,
    "session": session,
    "connected": connected,
    "interval_join": interval_join,
}
