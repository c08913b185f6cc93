"""Programs of keyed windows and timers that flinkish and PyFlink run alike: what differs is the package they import.

Each takes the clicks as tuples (key, time, amount) or, of `connected` and `interval_join`, (user, time, amount, logged
in), and gives tuples (key, time of the result, count, amount). `CHECKED` says which figures of them do not depend on
when watermarks come: engines must agree on these.
"""

from __future__ import annotations

import importlib
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
#: The bound for records out of order, where it is part of the pipeline.
BOUND_MS = {"user_window": 5_000, "visits": 1_000, "connected": 1_000, "interval_join": 1_000}
#: Pipelines of which only the sums over all results are the same in every engine: how many visits there are depends on
#: whether the watermark or the next click comes first.
SUMS_ONLY = ("visits", "connected")
VISIT_GAP_MS = 600_000
SESSION_GAP_MS = WINDOW_MS
SLIDING_MS = 5 * WINDOW_MS
#: Clicks of a user so close to each other are joined.
JOIN_MS = 20


def checked(pipeline: str, check: dict[str, Any]) -> dict[str, Any]:
    """The figures that must agree between engines."""
    return {name: figure for name, figure in check.items() if name != "windows" or pipeline not in SUMS_ONLY}


def add(package: str, pipeline: str, clicks: Any, bound_ms: int) -> Any:
    """Declare a program behind a stream of clicks.

    Example: `add("pyflink", "session", clicks, 1_000).print()`.
    """
    # one program for both packages is the point: a port changes the imports alone
    common = importlib.import_module(f"{package}.common")
    datastream = importlib.import_module(f"{package}.datastream")
    functions = importlib.import_module(f"{package}.datastream.functions")
    state = importlib.import_module(f"{package}.datastream.state")
    window = importlib.import_module(f"{package}.datastream.window")
    assigner = importlib.import_module(f"{package}.common.watermark_strategy").TimestampAssigner
    types, ms = common.Types, common.Time.milliseconds
    result = types.TUPLE([types.STRING(), types.LONG(), types.LONG(), types.DOUBLE()])

    class ClickTime(assigner):  # type: ignore[misc, valid-type]
        """The event's own time."""

        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value[1])

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

    class Visits(datastream.KeyedProcessFunction):  # type: ignore[misc, name-defined]
        """The clicks of a user until there are none for ten minutes; a timer for every one of them."""

        def open(self, runtime_context: Any) -> None:
            kept = types.TUPLE([types.LONG(), types.LONG()])
            self.visit = runtime_context.get_state(state.ValueStateDescriptor("visit", kept))

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

    class TwoKinds(datastream.KeyedCoProcessFunction):  # type: ignore[misc, name-defined]
        """The same of two streams: clicks of the first one are counted, of the second one their amounts added up."""

        def open(self, runtime_context: Any) -> None:
            kept = types.TUPLE([types.LONG(), types.LONG(), types.DOUBLE()])
            self.visit = runtime_context.get_state(state.ValueStateDescriptor("visit", kept))

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

    strategy = common.WatermarkStrategy.for_bounded_out_of_orderness(common.Duration.of_millis(bound_ms))
    timed = clicks.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ClickTime()))

    def by_key(stream: Any) -> Any:
        return stream.key_by(lambda click: click[0], types.STRING())

    if pipeline == "visits":
        return by_key(timed).process(Visits(), result)
    if pipeline in ("connected", "interval_join"):
        first, second = timed.filter(lambda click: click[3]), timed.filter(lambda click: not click[3])
        if pipeline == "connected":
            return by_key(first).connect(by_key(second)).process(TwoKinds(), result)

        class Pairs(functions.ProcessJoinFunction):  # type: ignore[misc, name-defined]
            """The amounts of each pair. A pair has no name of its own, so they are added up per user."""

            def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
                yield left[0], 0, 1, left[2] + right[2]

        pairs = by_key(first).interval_join(by_key(second)).between(ms(-JOIN_MS), ms(JOIN_MS)).process(Pairs(), result)
        return by_key(pairs).reduce(lambda a, b: (a[0], 0, a[2] + b[2], a[3] + b[3]))
    assigners = {
        "user_window": lambda: window.TumblingEventTimeWindows.of(ms(WINDOW_MS)),
        "sliding": lambda: window.SlidingEventTimeWindows.of(ms(SLIDING_MS), ms(WINDOW_MS)),
        "session": lambda: window.EventTimeSessionWindows.with_gap(ms(SESSION_GAP_MS)),
    }
    accumulator = types.TUPLE([types.LONG(), types.DOUBLE()])
    windows = by_key(timed).window(assigners[pipeline]())
    return windows.aggregate(CountAndAmount(), WithWindow(), accumulator, result)
