"""A clock that is set back: what is done by processing time is done once and never early; records go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flinkish.common import Time
from flinkish.common.typeinfo import Types
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.core.functions import KeyedProcessFunction, RuntimeContext
from flinkish.core.state import StateTtlConfig, ValueStateDescriptor
from flinkish.datastream.window import TumblingProcessingTimeWindows
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.unit.minicluster.programs import environment, job_of, list_source

HOUR_MS = 3_600_000
START_MS = 10 * HOUR_MS


class Timed(KeyedProcessFunction):
    """(key, time) of each record, and (key, time of the timer) 10 s after each record."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        now_ms = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now_ms + 10_000)
        yield value, "record", now_ms - START_MS

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp - START_MS


class Remembering(KeyedProcessFunction):
    """Whether the key was seen in the last minute."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", Types.BOOLEAN())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.minutes(1)).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield bool(self.seen.value())
        self.seen.update(True)


def epochs(stream_of: Any, records: list[Any], times_s: list[int]) -> list[list[Any]]:
    """What comes out of each epoch; ``times_s``: of the epochs, from the start, one record each."""
    env, sink, clock = environment(1), TestingSink(), ManualClock()
    source = env.from_source(list_source(records, endless=True), WatermarkStrategy.no_watermarks(), "records")
    stream_of(source.key_by(lambda value: value)).sink_to(sink)
    store, job, found = StateStore(), job_of(env), []
    for time_s in times_s:
        clock.set(START_MS + time_s * 1000)
        # a new process each time: what is remembered is in the state
        cluster = MiniCluster(job, clock, store, 1)
        before = len(sink.values)
        cluster.run_epoch()
        cluster.dispose()
        found.append(sink.values[before:])
    return found


def test_processing_time_stands_still_and_timers_fire_once_in_their_order() -> None:
    found = epochs(lambda keyed: keyed.process(Timed()), ["a", "a"], [0, -3600, -3595, 5, 12])
    assert found == [[("a", "record", 0)], [("a", "record", 0)], [], [], [("a", "timer", 10_000)]]


def test_a_window_of_processing_time_gives_one_result() -> None:
    def counted(keyed: Any) -> Any:
        windows = keyed.window(TumblingProcessingTimeWindows.of(Time.seconds(10)))
        return windows.reduce(lambda a, b: a + b)

    assert epochs(counted, ["a", "a", "a"], [1, 11, -3589, -3580, 21]) == [[], ["a"], [], [], ["aa"]]


def test_state_with_a_time_to_live_does_not_live_longer() -> None:
    found = epochs(lambda keyed: keyed.process(Remembering()), ["a"] * 4, [0, 50, -3600, 115])
    assert found == [[False], [True], [True], [False]]
