"""Watermark generators of the program's own, periodic and punctuated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Types, WatermarkStrategy
from flinkish.common.time import Time
from flinkish.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from flinkish.datastream import OutputTag
from flinkish.datastream.functions import KeyedProcessFunction, RuntimeContext
from flinkish.datastream.state import ListStateDescriptor
from flinkish.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from flinkish.errors import TypeMismatchError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.support.profiles import examples

from .programs import LAST_FIELD, bounded, environment, job_of, list_source, run


class Bounded(WatermarkGenerator):
    """What `for_bounded_out_of_orderness` does, written by a user."""

    def __init__(self, delay_ms: int = 3) -> None:
        self.delay_ms = delay_ms
        self.highest = -(10**12)

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.highest = max(self.highest, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.highest - self.delay_ms - 1)


class Markers(WatermarkGenerator):
    """Records of the key "mark" say how far time has come, "idle" that nothing may come for long."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event[0] == "mark":
            output.emit_watermark(event_timestamp)
        if event[0] == "idle":
            output.mark_idle()


def of(generator: Any) -> WatermarkStrategy:
    return WatermarkStrategy.for_generator(generator).with_timestamp_assigner(LAST_FIELD)


RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 40)), max_size=25)


@settings(max_examples=examples(60), deadline=None)
@given(RECORDS, RECORDS, st.integers(1, 60), st.booleans(), st.booleans())
def test_one_that_does_what_a_built_in_one_does_gives_the_same_windows_and_late_records(
    first: list[Any], second: list[Any], per_epoch: int, behind_a_map: bool, sessions: bool
) -> None:
    late = OutputTag("late")

    def results(strategy: WatermarkStrategy, epochs: int) -> list[list[Any]]:
        env, main, dropped = environment(2), TestingSink(), TestingSink()
        no_watermarks = WatermarkStrategy.no_watermarks()
        stream = env.from_source(list_source(first, second), no_watermarks if behind_a_map else strategy, "source")
        if behind_a_map:
            stream = stream.rebalance().map(lambda v: v).assign_timestamps_and_watermarks(strategy)
        windows: Any = EventTimeSessionWindows.with_gap(Time.milliseconds(4))
        if not sessions:
            windows = TumblingEventTimeWindows.of(Time.milliseconds(7))
        windowed = stream.key_by(lambda v: v[0]).window(windows).side_output_late_data(late)
        summed = windowed.reduce(lambda a, b: (a[0], a[1] + b[1], min(a[2], b[2])))
        summed.sink_to(main)
        summed.get_side_output(late).sink_to(dropped)
        run(job_of(env), epochs, restart_every=1)
        return [sorted(main.values), sorted(dropped.values)]

    assert results(of(Bounded), per_epoch) == results(bounded(3), per_epoch)


class Timers(KeyedProcessFunction):
    """Sees single watermarks: a timer per record, and at each record what the watermark is."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_list_state(ListStateDescriptor("held", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[0] not in ("mark", "idle"):
            self.held.add(value)
            ctx.timer_service().register_event_time_timer(value[-1])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp, self.held.get()


@pytest.mark.parametrize("per_epoch", [1, 2, 3, 100])
@pytest.mark.parametrize("restart_every", [None, 1])
def test_a_punctuated_watermark_takes_effect_right_behind_its_record(per_epoch: int, restart_every: int | None) -> None:
    records = [("a", 1), ("a", 5), ("mark", 3), ("a", 7), ("mark", 6), ("mark", 2), ("a", 9)]
    env, sink = environment(1), TestingSink()
    stream = env.from_source(list_source(records), of(Markers), "source")
    stream.key_by(lambda v: "all").process(Timers()).sink_to(sink)
    run(job_of(env, auto_watermark_interval_ms=1_000), per_epoch, restart_every=restart_every)
    assert sink.values == [
        (1, [("a", 1), ("a", 5)]),
        (5, [("a", 1), ("a", 5), ("a", 7)]),
        (7, [("a", 1), ("a", 5), ("a", 7), ("a", 9)]),
        (9, [("a", 1), ("a", 5), ("a", 7), ("a", 9)]),
    ]


@pytest.mark.parametrize("idle", [True, False])
def test_a_split_that_marks_itself_idle_holds_nothing_back_until_its_next_record(idle: bool) -> None:
    slow = [("idle" if idle else "x", 1)]
    env, sink = environment(1), TestingSink()
    fast: list[Any] = [("a", 5), ("mark", 8)]
    source = list_source(fast, slow, endless=True)
    env.from_source(source, of(Markers), "source").key_by(lambda v: "all").process(Timers()).sink_to(sink)
    cluster = MiniCluster(job_of(env), ManualClock(), StateStore(), 10)
    cluster.run_epoch()
    cluster.dispose()
    fired = [timestamp for timestamp, _ in sink.values]
    assert fired == ([5] if idle else [])


def test_a_generator_keeps_what_it_knows_from_epoch_to_epoch_behind_a_shuffle() -> None:
    def results(per_epoch: int) -> list[Any]:
        env, sink = environment(1), TestingSink()
        stream = env.from_source(list_source([("a", t) for t in range(8)]), WatermarkStrategy.no_watermarks(), "source")
        stream = stream.rebalance().map(lambda v: v).assign_timestamps_and_watermarks(of(EveryThird))
        stream.key_by(lambda v: "all").process(Timers()).sink_to(sink)
        run(job_of(env), per_epoch, restart_every=1)
        return sink.values

    assert results(1) == results(3) == results(100)
    assert results(100)[0] == (0, [("a", 0), ("a", 1), ("a", 2)])


class EveryThird(WatermarkGenerator):
    """Emits with every third record."""

    def __init__(self) -> None:
        self.seen = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.seen += 1
        if self.seen % 3 == 0:
            output.emit_watermark(event_timestamp)


def test_misuse_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match=r"supplier is an instance of int .*expected a class or function"):
        WatermarkStrategy.for_generator(3)  # type: ignore[arg-type]

    class Wrong(WatermarkGenerator):
        def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
            output.emit_watermark("late")  # type: ignore[arg-type]

    for generator, problem in ((lambda: 5, "the generator supplier returned 5"), (Wrong, "emitted 'late'")):
        env = environment(1)
        env.from_source(list_source([("a", 1)]), of(generator), "source").sink_to(TestingSink())
        with pytest.raises(TypeMismatchError, match=problem):
            run(job_of(env))
