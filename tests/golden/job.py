"""The job whose directory, checkpoints and savepoints are kept as golden files: state of every kind, timers, windows.

Names in stored state are those of this module and of `tests.golden.values`: they never change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flinkish.common import Time
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import AggregateFunction, KeyedProcessFunction, MapFunction, RuntimeContext
from flinkish.datastream.functions import CheckpointedFunction
from flinkish.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.datastream.window import TumblingEventTimeWindows
from tests.golden.values import Point
from tests.integration.engine.collecting import Collected, by_field, collecting, environment

RECORDS, PER_EPOCH, KEYS = 240, 10, 13
#: Event time from a record to the next, and how long no window and no timer is due.
STEP_MS, QUIET_MS = 100, 16_000
#: State that is larger than this, in bytes, lies in files: that of `Everything`, and not that of the other operators.
INLINE_BYTES = 1_000
#: No test lives as long as this time to live, in days.
_TTL_DAYS = 30_000


def event(index: int) -> tuple[str, int, int]:
    """(key, amount, time in ms)."""
    return f"u{index * 5 % KEYS}", index % 17, index * STEP_MS


class Mean(AggregateFunction):
    """The mean of the amounts."""

    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: int, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> float:
        return float(accumulator[0]) / float(accumulator[1])

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class Everything(KeyedProcessFunction):
    """Keyed state of all kinds, some with a time to live, and a timer of event time for each record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        seen = MapStateDescriptor("seen", Types.LONG(), Types.LONG())
        kept = ValueStateDescriptor("kept", Types.LONG())
        for descriptor in (seen, kept):
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(_TTL_DAYS)).build())
        self._sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self._point = runtime_context.get_state(ValueStateDescriptor("point", Types.PICKLED_BYTE_ARRAY()))
        self._kept = runtime_context.get_state(kept)
        self._last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self._seen = runtime_context.get_map_state(seen)
        self._most = runtime_context.get_reducing_state(ReducingStateDescriptor("most", max, Types.LONG()))
        self._mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        key, amount, time_ms = value
        self._sum.update((self._sum.value() or 0) + amount)
        self._kept.update((self._kept.value() or 0) + 1)
        before = self._point.value() or Point(0, 0)
        self._point.update(Point(before.x + 1, before.y + amount))
        self._last.update([*self._last, amount][-3:])
        self._seen.put(amount, (self._seen.get(amount) or 0) + 1)
        self._most.add(amount)
        self._mean.add(amount)
        ctx.timer_service().register_event_time_timer(time_ms + QUIET_MS)
        yield (
            key,
            self._sum.value(),
            self._kept.value(),
            tuple(self._point.value()),
            list(self._last),
            sorted(self._seen.items()),
            self._most.get(),
            self._mean.get(),
        )

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp


class Numbered(MapFunction, CheckpointedFunction):
    """Operator state: numbers the records of its subtask."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def initialize_state(self, context: Any) -> None:
        self._state = context.get_operator_state_store().get_list_state(ListStateDescriptor("count", Types.LONG()))
        self._count = sum(self._state.get())

    def snapshot_state(self, context: Any) -> None:
        self._state.update([self._count])

    def map(self, value: Any) -> Any:
        self._count += 1
        return self._subtask, self._count


def build(collected: Collected, job_dir: Path | None, per_epoch: int = RECORDS, **more: Any) -> Any:
    """The environment with the program."""
    env = environment(job_dir, **{"flinkish__state__inline_size": f"{INLINE_BYTES} b", **more})
    source = DataGeneratorSource(event, RECORDS, records_per_epoch=per_epoch, splits=2)
    events = env.from_source(source, by_field(2), "events").uid("events")
    keyed = events.key_by(lambda e: e[0])
    keyed.process(Everything()).uid("everything").sink_to(collected.sink("states")).uid("states")
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(QUIET_MS)))
    sums = windows.reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]))).uid("windows")
    sums.sink_to(collected.sink("windows")).uid("sums")
    events.map(Numbered()).uid("numbered").sink_to(collected.sink("numbers")).uid("numbers")
    return env


def plain() -> dict[str, list[Any]]:
    """The results of one run without interruption."""
    with collecting() as collected:
        build(collected, None, execution__target="minicluster").execute("golden")
        return collected.sorted()


def expected_after(records: int) -> dict[str, Counter[str]]:
    """What the job gives behind its first records, of which there are so few that no window and no timer is due."""
    assert records * STEP_MS < QUIET_MS
    found = plain()
    before = Counter(event(index)[0] for index in range(records))
    states = [row for row in found["states"] if row[1] == "timer" or row[2] > before[row[0]]]
    return {"states": Counter(map(repr, states)), "windows": Counter(map(repr, found["windows"]))}


def check_results(collected: Collected, records: int) -> None:
    """The job has given what follows its first records: nothing is lost, and nothing came twice."""
    found = {name: Counter(map(repr, collected.rows[name])) for name in ("states", "windows")}
    assert found == expected_after(records)
    last: dict[int, int] = {}
    for subtask, count in collected.rows["numbers"]:
        last[subtask] = max(count, last.get(subtask, 0))
    assert sum(last.values()) == RECORDS
