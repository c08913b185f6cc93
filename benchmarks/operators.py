"""The cost of each keyed operator, alone, in one process and without Spark.

``python -m benchmarks.operators [--users 1000 200000] [--records 200000] [--only NAME ...] [--profile]`` prints
microseconds of processor time per record: for processing, for firing (windows, timers and clean-up when the watermark
rises), and for the five barriers, at which state that is too large for the task goes to files. The users' functions are
included. ``--profile`` prints which functions of each operator took the time.

The records are clicks as in `benchmarks.data`: as many per second, users by Zipf's law, a second out of order. The
watermark lags by the time that one file of those clicks covers, as in a job whose two subtasks read a file each.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pickle
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import (
    EVENTS,
    EVENTS_PER_FILE,
    FIRST_MS,
    JITTER_MS,
    PAGES,
    PASS_SPAN_MS,
    SEED,
    ZIPF_EXPONENT,
)
from benchmarks.pipelines import keyed_programs
from flinkish.common import Configuration, Time, Types
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    WindowFunction,
)
from flinkish.datastream.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.datastream.window import (
    ContinuousEventTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    TumblingEventTimeWindows,
)
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.spark.worker import THRESHOLD
from flinkish.testing import (
    BroadcastOperatorTestHarness,
    OneInputStreamOperatorTestHarness,
    TwoInputStreamOperatorTestHarness,
    harness_of,
)

BATCH, BARRIERS = 1_250, 5
WATERMARK_LAG_MS = PASS_SPAN_MS * EVENTS_PER_FILE // EVENTS + JITTER_MS
#: One of this many records is an element of the broadcast stream.
BROADCAST_EVERY = 100
RULES = MapStateDescriptor("rules", Types.STRING(), Types.DOUBLE())

Harness = OneInputStreamOperatorTestHarness | TwoInputStreamOperatorTestHarness | BroadcastOperatorTestHarness


class Cost(NamedTuple):
    """Microseconds of processor time per record."""

    process: float
    fire: float
    barrier: float
    #: results per record
    results: float


def _user(click: Any) -> str:
    return click[0]  # type: ignore[no-any-return]


def _program(name: str) -> Callable[[Any], Any]:
    """A program of `keyed_programs`, up to its first keyed operator."""
    program = keyed_programs.pairs if name == "interval_join" else keyed_programs.PROGRAMS[name]
    return lambda clicks: program(keyed_programs.Package("flinkish"), clicks)


def _minute() -> TumblingEventTimeWindows:
    return TumblingEventTimeWindows.of(Time.milliseconds(keyed_programs.WINDOW_MS))


def _added(left: Any, right: Any) -> Any:
    return left[0], right[1], left[2] + right[2], right[3]


class Lengths(WindowFunction):  # type: ignore[type-arg]
    """Counts the elements of a window that keeps all of them."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Iterator[Any]:
        """One result per window."""
        yield key, len(list(inputs))


class CountOfBoth(CoGroupFunction):
    """Counts the clicks of each stream."""

    def co_group(self, first: Any, second: Any) -> Iterator[Any]:
        """One result per window."""
        yield len(list(first)), len(list(second))


class Totals(CoMapFunction, CoFlatMapFunction):
    """Sums both streams per user."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state of the sum."""
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))

    def map1(self, value: Any) -> Any:
        """A click of either stream."""
        total = (self.total.value() or 0.0) + value[2]
        self.total.update(total)
        return value[0], total

    map2 = map1

    def flat_map1(self, value: Any) -> Iterator[Any]:
        """A click of either stream."""
        yield self.map1(value)

    flat_map2 = flat_map1


class KeyedRules(KeyedBroadcastProcessFunction):
    """Sums per user the amounts above a bound that is broadcast."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state of the sum."""
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """A click."""
        if value[2] > (ctx.get_broadcast_state(RULES).get("bound") or 0.0):
            total = (self.total.value() or 0.0) + value[2]
            self.total.update(total)
            yield value[0], total

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """A bound."""
        ctx.get_broadcast_state(RULES).put("bound", value[2] / 100)
        return iter(())


class Rules(BroadcastProcessFunction):
    """Emits amounts above a bound that is broadcast."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """A click."""
        if value[2] > (ctx.get_broadcast_state(RULES).get("bound") or 0.0):
            yield value[0], value[2]

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """A bound."""
        ctx.get_broadcast_state(RULES).put("bound", value[2] / 100)
        return iter(())


def _connected(clicks: Any) -> Any:
    first, second = clicks.filter(bool), clicks.filter(bool)
    return first.key_by(_user, Types.STRING()).connect(second.key_by(_user, Types.STRING()))


#: Operator -> a function that appends it to a stream of clicks (user, time, amount, logged in).
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "tumbling": _program("user_window"),
    "sliding": _program("sliding"),
    "session": _program("session"),
    "connected": _program("connected"),
    "interval_join": _program("interval_join"),
    "timers": _program("visits"),
    # windows without an optimized implementation
    "session_lists": lambda clicks: (
        clicks.key_by(_user)
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(keyed_programs.SESSION_GAP_MS)))
        .apply(Lengths())
    ),
    "session_trigger": lambda clicks: (
        clicks.key_by(_user)
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(keyed_programs.SESSION_GAP_MS)))
        .trigger(ContinuousEventTimeTrigger.of(Time.seconds(10)))
        .reduce(_added)
    ),
    "tumbling_trigger": lambda clicks: (
        clicks.key_by(_user).window(_minute()).trigger(ContinuousEventTimeTrigger.of(Time.seconds(10))).reduce(_added)
    ),
    "count_window": lambda clicks: clicks.key_by(_user).count_window(10).reduce(_added),
    "count_sliding": lambda clicks: clicks.key_by(_user).window(CountSlidingWindowAssigner.of(10, 5)).reduce(_added),
    "count_evicting": lambda clicks: clicks.key_by(_user).count_window(10, 5).reduce(_added),
    "global_purging": lambda clicks: (
        clicks.key_by(_user)
        .window(GlobalWindows.create())
        .trigger(PurgingTrigger.of(CountTrigger.of(10)))
        .reduce(_added)
    ),
    "window_all": lambda clicks: clicks.window_all(_minute()).reduce(_added),
    "count_window_all": lambda clicks: clicks.count_window_all(10).reduce(_added),
    "window_join": lambda clicks: (
        clicks.filter(bool)
        .join(clicks.filter(bool))
        .where(_user)
        .equal_to(_user)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(keyed_programs.JOIN_MS)))
        .apply(lambda left, right: (left[0], left[2] + right[2]))
    ),
    "co_group": lambda clicks: (
        clicks.filter(bool)
        .co_group(clicks.filter(bool))
        .where(_user)
        .equal_to(_user)
        .window(_minute())
        .apply(CountOfBoth())
    ),
    "co_map": lambda clicks: _connected(clicks).map(Totals()),
    "co_flat_map": lambda clicks: _connected(clicks).flat_map(Totals()),
    "keyed_broadcast": lambda clicks: (
        clicks.key_by(_user).connect(clicks.filter(bool).broadcast(RULES)).process(KeyedRules())
    ),
    "broadcast": lambda clicks: clicks.connect(clicks.filter(bool).broadcast(RULES)).process(Rules()),
}
#: Operators whose records are (number of the stream, click): two streams in one.
TAGGED = ("interval_join", "window_join", "co_group")
#: Operators keyed by page instead of user.
BY_PAGE = ("sliding",)


def clicks_of(users: int, records: int) -> tuple[list[Any], list[int]]:
    """Clicks and their timestamps, in order of arrival."""
    rng = np.random.default_rng(SEED)
    cumulative = np.cumsum(1 / np.arange(1, users + 1) ** ZIPF_EXPONENT)
    numbers = np.searchsorted(cumulative, rng.random(records) * cumulative[-1]).tolist()
    begin = np.arange(records, dtype=np.int64) * PASS_SPAN_MS // EVENTS
    stamps = (FIRST_MS + begin + rng.integers(0, JITTER_MS, records)).tolist()
    amounts, logged_in = (rng.integers(1, 400, records) / 4.0).tolist(), (rng.random(records) < 0.7).tolist()
    names = [f"u{number}" for number in numbers]
    return list(zip(names, stamps, amounts, logged_in, strict=True)), stamps


def measure(name: str, users: int, records: int) -> Cost:
    """Run one operator over the clicks."""
    clicks, stamps = clicks_of(PAGES if name in BY_PAGE else users, records)
    starts = range(0, records, BATCH)
    # as in a task, each batch is unpickled before it is processed
    batches = [pickle.dumps(clicks[begin : begin + BATCH]) for begin in starts]
    del clicks
    process = fire = barrier = 0.0
    results = 0

    def count(values: list[Any], timestamps: list[int] | None) -> None:
        nonlocal results
        results += len(values)

    with tempfile.TemporaryDirectory() as folder:
        stream = OPERATORS[name](StreamExecutionEnvironment(Configuration()).from_collection([]))
        harness = harness_of(stream, directory=StateDirectory(folder), recording=False)
        harness.output.collect = count
        with harness:
            for number, (begin, data) in enumerate(zip(starts, batches, strict=True)):
                values, times = pickle.loads(data), stamps[begin : begin + BATCH]
                parts = _parts(name, harness, values, times)
                begun = time.process_time()
                for take, of_input, at in parts:
                    take(of_input, at)
                processed = time.process_time()
                _advance(harness, times[0] - WATERMARK_LAG_MS)
                fired = time.process_time()
                if (number + 1) % max(1, len(batches) // BARRIERS) == 0:
                    harness.snapshot()
                process, fire = process + processed - begun, fire + fired - processed
                barrier += time.process_time() - fired
            begun = time.process_time()
            _advance(harness, MAX_WATERMARK_MS)
            fire += time.process_time() - begun
    figures = (seconds / records * 1e6 for seconds in (process, fire, barrier))
    return Cost(*figures, results / records)


def _parts(name: str, harness: Any, values: list[Any], times: list[int]) -> list[tuple[Any, list[Any], list[int]]]:
    """Which methods of the harness to call with which records of a batch."""
    if name in TAGGED:
        return [(harness.process_elements, [(0 if value[3] else 1, value) for value in values], times)]
    if isinstance(harness, BroadcastOperatorTestHarness):
        rules = harness.process_broadcast_elements, values[::BROADCAST_EVERY], times[::BROADCAST_EVERY]
        return [rules, (harness.process_elements, values, times)]
    if not isinstance(harness, TwoInputStreamOperatorTestHarness):
        return [(harness.process_elements, values, times)]
    parts = []
    for take, logged_in in ((harness.process_elements1, True), (harness.process_elements2, False)):
        of_input = [(value, at) for value, at in zip(values, times, strict=True) if value[3] is logged_in]
        parts.append((take, *map(list, zip(*of_input, strict=True))))
    return parts  # type: ignore[return-value]


def _advance(harness: Harness, watermark_ms: int) -> None:
    if watermark_ms > harness.epoch.watermark_ms:
        if isinstance(harness, OneInputStreamOperatorTestHarness):
            harness.process_watermark(watermark_ms)
        else:
            harness.process_both_watermarks(watermark_ms)


def main() -> None:
    """Print a line per operator and number of users."""
    parser = argparse.ArgumentParser(description="Microseconds of processor time a record of each keyed operator.")
    parser.add_argument("--users", type=int, nargs="+", default=[1_000, 200_000], metavar="N")
    parser.add_argument("--records", type=int, default=200_000, metavar="N")
    parser.add_argument("--only", nargs="+", choices=list(OPERATORS), metavar="NAME", default=list(OPERATORS))
    parser.add_argument("--profile", action="store_true", help="print the functions that took longest")
    options = parser.parse_args()
    gc.set_threshold(THRESHOLD, 20, 20)
    print(f"{'operator':<18}{'users':>9}{'process':>9}{'fire':>9}{'barrier':>9}{'all':>9}{'results':>9}   us a record")
    measure("tumbling", 100, 10_000)  # imports at the first barrier must not count for any operator
    for name in options.only:
        for users in options.users[:1] if name in BY_PAGE else options.users:
            profile = cProfile.Profile()
            if options.profile:
                profile.enable()
            cost = measure(name, users, options.records)
            profile.disable()
            figures = "".join(f"{figure:9.2f}" for figure in (*cost[:3], sum(cost[:3]), cost.results))
            print(f"{name:<18}{PAGES if name in BY_PAGE else users:>9,}{figures}", flush=True)
            if options.profile:
                pstats.Stats(profile).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
