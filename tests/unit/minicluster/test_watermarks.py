"""Watermarks over several vertices: idleness, late generators, side branches."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import JobStatus, Time, Types
from flinkish.common.time import Duration
from flinkish.common.watermark_strategy import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitRange, SplitReader, SplitRecords, SplitSource
from flinkish.datastream import KeyedProcessFunction, OutputTag, ProcessFunction, StreamExecutionEnvironment
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import UserCodeError
from flinkish.jobmanager.progress import EventTimeWatch, SilentSplits
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.phases import ManualClock
from flinkish.testing import End, Pause, StreamRecord, TestingSink, TestingSource, Watermark
from tests.random_programs.running import differences, expected, in_minicluster
from tests.support.functions import AtWatermark, PassOnKeyed
from tests.support.profiles import examples

from .programs import LAST_FIELD, bounded, environment, job_of, list_source, run


def sums(env: StreamExecutionEnvironment, stream: Any) -> TestingSink:
    sink = TestingSink()
    (
        stream.key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
        .sink_to(sink)
    )
    return sink


def steady(count: int) -> list[Any]:
    return [("a", 1, 10 * i) for i in range(count)]


@pytest.mark.parametrize("silent", [[], [("b", 1, 5)]])
def test_a_split_that_gives_nothing_holds_back_until_it_is_idle(silent: list[Any]) -> None:
    env = environment()
    strategy = bounded().with_idleness(Duration.of_millis(100))
    sink = sums(env, env.from_source(list_source(steady(50), silent, endless=True), strategy, "s"))
    clock = ManualClock(1000)
    cluster = MiniCluster(job_of(env), clock, StateStore(), 1)
    seen = []
    for _ in range(14):
        cluster.run_epoch()
        seen.append(len(sink.values))
        clock.advance(10)
    cluster.dispose()
    assert seen[9] == 0, "90 ms of silence are not enough"
    assert seen[-1] >= 12
    # the epoch of a split that spoke in the first one: its silence began then
    assert seen[10] >= 9


@pytest.mark.parametrize(
    ("silent", "idleness", "named"),
    [
        ([], None, ["1"]),
        ([("b", 1, 5)], None, ["1"]),
        ([("b", 1, 5)], Duration.of_seconds(20), []),
        (steady(50), None, []),
    ],
)
def test_a_silent_split_that_holds_the_watermark_back_is_reported_and_warned_of(
    silent: list[Any], idleness: Duration | None, named: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    env = environment()
    strategy = bounded() if idleness is None else bounded().with_idleness(idleness)
    sums(env, env.from_source(list_source(steady(50), silent, endless=True), strategy, "numbers").uid("numbers"))
    job, clock = job_of(env), ManualClock(1_000)
    cluster, warnings = MiniCluster(job, clock, StateStore(), 1), SilentSplits(job)
    found = []
    for _ in range(14):
        report = cluster.run_epoch()
        warnings.epoch_done(report)
        found.append([(one.source_name, one.split, one.silent_ms) for one in report.silent_splits(job)])
        clock.advance(10_000)
    cluster.dispose()
    assert found[:3] == [[]] * 3, "20 seconds are not enough"
    assert found[3:] == [[("Source: numbers", split, ms) for split in named] for ms in range(30_000, 140_000, 10_000)]
    assert [record.getMessage().split(" for ")[1].split(",")[0] for record in caplog.records] == [
        f"{seconds} s" for seconds in (30, 60, 120) if named
    ]
    if named:
        assert caplog.records[0].getMessage() == (
            "job 'a job': the watermark is held back since nothing has come from split '1' of 'Source: numbers' (uid "
            "numbers) for 30 s, while others go on: windows and event-time timers wait for it; if it may be silent, "
            "give the source a WatermarkStrategy with .with_idleness(Duration.of_seconds(...)), or a query "
            "'table.exec.source.idle-timeout'"
        )


class TimersOf(KeyedProcessFunction):
    """Registers an event-time timer for each record."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[-1])


class Never(WatermarkGenerator):
    """Emits no watermark."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None: ...


NO_STRATEGY = WatermarkStrategy.no_watermarks()
CAN_NEVER_FIRE = (
    "job 'a job': at least {count} windows or event-time timers of '{name}' (uid waits) wait and can never fire, since "
    "no watermark strategy gives watermarks behind 'Source: numbers' (uid numbers), as with "
    "WatermarkStrategy.no_watermarks(): give from_source(), or assign_timestamps_and_watermarks() before the keys, "
    "WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)), with a TimestampAssigner if the time is a "
    "field of the records"
)
NONE_EMITTED = (
    "job 'a job': at least 3 windows or event-time timers of 'Window' (uid waits) wait, and there was no watermark yet:"
    " one of their sources has given no record, or a WatermarkGenerator of the program has emitted none"
)


def windows(stream: Any) -> Any:
    keyed = stream.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    return keyed.reduce(lambda a, b: b).name("Window")


def timers(stream: Any) -> Any:
    return stream.key_by(lambda r: r[0]).process(TimersOf()).name("Timers")


def stamped(*times_ms: int, end: bool = False) -> TestingSource:
    return TestingSource(*(StreamRecord(("a", 1, ms), ms) for ms in times_ms), *([End()] * end))


def watched(source: TestingSource, strategy: WatermarkStrategy, build: Any, epochs: int = 1) -> tuple[Any, Any]:
    """The watch of the event time of a program that has run for so many epochs, and the job's warnings."""
    env = environment(parallelism=1)
    stream = env.from_source(source, strategy, "numbers").uid("numbers")
    build(stream).uid("waits").sink_to(TestingSink())
    job, warnings = job_of(env), dict[str, str]()
    cluster, watch = MiniCluster(job, ManualClock(1_000)), EventTimeWatch(job, warnings)
    for _ in range(epochs):
        watch.epoch_done(cluster.run_epoch())
    cluster.dispose()
    return watch, warnings


@pytest.mark.parametrize(
    ("source", "strategy", "build", "line"),
    [
        (stamped(5, 15, 25), NO_STRATEGY, windows, CAN_NEVER_FIRE.format(count=3, name="Window")),
        (stamped(5, 15), NO_STRATEGY, timers, CAN_NEVER_FIRE.format(count=2, name="Timers")),
        (stamped(5, 15), NO_STRATEGY, lambda s: timers(s.map(lambda r: r)), "'Timers' (uid waits) wait"),
        (stamped(5, 15), NO_STRATEGY, lambda s: timers(s.rebalance().map(lambda r: r)), "'Timers' (uid waits) wait"),
        # one of the two streams has no watermarks
        (stamped(5), NO_STRATEGY, lambda s: windows(s.union(s.assign_timestamps_and_watermarks(bounded()))), "numbers"),
        # watermarks come, if late or from the source itself
        (stamped(5, 15), NO_STRATEGY, lambda s: timers(s.assign_timestamps_and_watermarks(bounded())), None),
        (TestingSource(StreamRecord(("a", 1, 5), 5), Watermark(3)), NO_STRATEGY, windows, None),
        # they fire at the end
        (stamped(5, 15, end=True), NO_STRATEGY, windows, None),
        # nothing waits
        (stamped(5, 15), NO_STRATEGY, lambda s: s.key_by(lambda r: r[0]).reduce(lambda a, b: b), None),
    ],
)  # fmt: skip
def test_timers_that_can_never_fire_are_told_once_at_the_end_of_the_job(
    source: TestingSource,
    strategy: WatermarkStrategy,
    build: Any,
    line: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch, warnings = watched(source, strategy, build)
    assert not caplog.records
    watch.job_done(JobStatus.CANCELED)
    watch.job_done(JobStatus.CANCELED)
    assert [record.getMessage() for record in caplog.records if (line or "") in record.getMessage()] == [
        f"job 'a job': {text}" for text in warnings.values()
    ]
    assert len(warnings) == (line is not None)


@pytest.mark.parametrize(
    ("strategy", "line"),
    [
        (NO_STRATEGY, CAN_NEVER_FIRE.format(count=3, name="Window")),
        (WatermarkStrategy.for_generator(Never), NONE_EMITTED),
    ],
)
def test_timers_that_wait_in_vain_are_told_also_if_no_further_epoch_comes(
    strategy: WatermarkStrategy, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    env, told = environment(parallelism=1), threading.Event()
    windows(env.from_source(stamped(5, 15, 25), strategy, "numbers").uid("numbers")).uid("waits").sink_to(TestingSink())
    job, warnings = job_of(env), dict[str, str]()
    cluster, watch = MiniCluster(job, ManualClock(1_000)), EventTimeWatch(job, warnings, patience_s=0.01)
    caplog.handler.addFilter(lambda record: told.set() or True)
    watch.epoch_done(cluster.run_epoch())
    assert told.wait(30)
    cluster.dispose()
    watch.job_done(JobStatus.CANCELED)
    assert [record.getMessage() for record in caplog.records] == [line]


def test_the_warning_of_a_job_that_gets_its_watermark_after_all_is_withdrawn() -> None:
    source = TestingSource(StreamRecord(("a", 1, 5), 5), Pause(), StreamRecord(("a", 1, 6), 6), Watermark(7))
    env = environment(parallelism=1)
    timers(env.from_source(source, NO_STRATEGY, "numbers")).sink_to(TestingSink())
    job, warnings = job_of(env), dict[str, str]()
    cluster, watch = MiniCluster(job, ManualClock(1_000)), EventTimeWatch(job, warnings)
    watch.epoch_done(cluster.run_epoch())
    watch.job_done(JobStatus.CANCELED)
    assert len(warnings) == 1
    watch.epoch_done(cluster.run_epoch())
    cluster.dispose()
    assert not warnings


@pytest.mark.parametrize(
    ("scale", "end", "told"),
    [
        (1, False, "look like seconds: the watermark is 1760000003, as milliseconds 1970-01-21; multiply them by 1000"),
        (1, True, "look like seconds"),
        (10**3, False, None),
        (10**6, False, "look like microseconds: the watermark is 1760000003999999, as milliseconds a time after the"),
        (10**9, False, "look like nanoseconds"),
        (0, False, None),
    ],
)
def test_timestamps_in_another_unit_than_milliseconds_are_told_once(
    scale: int, end: bool, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    source = stamped(*(1_760_000_000 * scale + n * (scale or 1_000) for n in range(5)), end=end)
    watched(source, WatermarkStrategy.for_monotonous_timestamps(), windows, epochs=1 if end else 2)
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == (told is not None)
    assert not found or f"the timestamps of 'Source: numbers' (uid numbers) {told}" in found[0]


def test_a_split_whose_records_are_filtered_out_is_not_idle() -> None:
    """Idleness is measured where watermarks are made, before any filter."""
    env = environment()
    strategy = bounded().with_idleness(Duration.of_millis(5))
    slow = [("drop", 1, i) for i in range(15)] + [("b", 1, 15)]
    stream = env.from_source(list_source(steady(16), slow, endless=True), strategy, "s").filter(
        lambda r: r[0] != "drop"
    )
    sink = sums(env, stream)
    clock = ManualClock(1000)
    cluster = MiniCluster(job_of(env), clock, StateStore(), 2)
    for _ in range(16):
        cluster.run_epoch()
        assert all(latest < 15 for _, _, latest in sink.values), "the slow split is at 15 at most"
        clock.advance(10)
    for _ in range(3):
        cluster.run_epoch()
        clock.advance(10)
    assert ("b", 1, 15) in sink.values, "it was not late"
    cluster.dispose()


class Mark(ProcessFunction):
    """The watermark that each record sees."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value, ctx.timer_service().current_watermark()


class Late(ProcessFunction):
    """Whether each record is late, and the watermark that it sees."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        watermark = ctx.timer_service().current_watermark()
        yield value[:2], value[-1] <= watermark, watermark


class CountedGenerator(WatermarkGenerator):
    """Its watermark is the time of the record before every third one: it has state of its own."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.times.append(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(sorted(self.times)[len(self.times) // 3])


class Highest(WatermarkGenerator):
    """Its watermark is right behind its split's highest time."""

    def __init__(self) -> None:
        self.highest = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.highest = max(self.highest, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.highest - 1)


class HoldsALock(CountedGenerator):
    """A generator that cannot be stored."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class ReadInTurn(TestingSource):
    """Reads one split after the other, as a source of files does."""

    side_by_side = property(lambda self: False)  # type: ignore[assignment]


def counted(generator: type[WatermarkGenerator]) -> WatermarkStrategy:
    return WatermarkStrategy.for_generator(generator).with_timestamp_assigner(LAST_FIELD)


def chained_to_source(source: Any, env: StreamExecutionEnvironment, strategy: WatermarkStrategy) -> Any:
    return env.from_source(source, strategy, "s").process(Late())


def assigned_later(source: Any, env: StreamExecutionEnvironment, strategy: WatermarkStrategy) -> Any:
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "s").map(lambda r: r)
    return records.assign_timestamps_and_watermarks(strategy).filter(lambda r: True).process(Late())


def behind_another_function(source: Any, env: StreamExecutionEnvironment, strategy: WatermarkStrategy) -> Any:
    first = env.from_source(source, strategy, "s").process(Late())
    return first.map(lambda r: (*r[0], r[1], r[0][1])).assign_timestamps_and_watermarks(bounded(1)).process(Late())


@pytest.mark.parametrize("strategy", [bounded(), bounded(7), counted(CountedGenerator)])
@pytest.mark.parametrize("program", [chained_to_source, assigned_later, behind_another_function])
@pytest.mark.parametrize("side_by_side", [True, False])
@settings(max_examples=examples(8), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 60), max_size=12), min_size=1, max_size=3),
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.sampled_from([1, 10, 200]),
    st.integers(1, 2),
)
def test_what_functions_of_a_sources_chain_see_does_not_depend_on_where_epochs_end(
    program: Any,
    side_by_side: bool,
    strategy: WatermarkStrategy,
    splits: list[list[int]],
    cuts: list[int],
    interval_ms: int,
    parallelism: int,
) -> None:
    records = [[(f"{split}-{place}", 1, time) for place, time in enumerate(of)] for split, of in enumerate(splits)]

    def seen(sizes: list[int]) -> list[Any]:
        env, sink = environment(parallelism), TestingSink()
        source = list_source(*records)
        if not side_by_side:
            source.__class__ = ReadInTurn
        program(source, env, strategy).sink_to(sink)
        job, store, clock = job_of(env, auto_watermark_interval_ms=interval_ms), StateStore(), ManualClock()
        for size in itertools.cycle(sizes):
            # each epoch in another process
            cluster = MiniCluster(job, clock, store, size)
            cluster.run_epoch()
            cluster.dispose()
            if store.finished:
                return sorted(sink.values)
        raise AssertionError

    assert seen(cuts) == seen([1_000_000]) == seen([1])


class LateOfKey(KeyedProcessFunction):
    """Whether each record is late for its key's task, and when each record's timer fires."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(value[-1])
        yield value[:2], value[-1] <= ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp, timestamp <= ctx.timer_service().current_watermark()


def keyed(streams: list[Any]) -> Any:
    return streams[0].key_by(lambda r: r[1]).process(LateOfKey())


def rebalanced(streams: list[Any]) -> Any:
    return streams[0].rebalance().process(Late()).map(lambda r: r[:2])


def united(streams: list[Any]) -> Any:
    return streams[0].union(*streams[1:]).key_by(lambda r: r[1]).process(LateOfKey())


@pytest.mark.parametrize(("program", "in_order"), [(keyed, False), (rebalanced, False), (united, True)])
@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 60), max_size=12), min_size=2, max_size=3),
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.sampled_from([0, 5]),
)
def test_what_is_late_behind_a_shuffle_does_not_depend_on_where_epochs_end(
    program: Any, in_order: bool, times: list[list[int]], cuts: list[int], delay_ms: int
) -> None:
    """Where streams are united, each of them is in order: which of them is ahead when a late record comes is chance."""

    def seen(sizes: list[int]) -> list[Any]:
        env, sink = environment(1), TestingSink()
        streams = []
        for source, of_source in enumerate(times):
            ordered = sorted(of_source) if in_order else of_source
            records = [(f"{source}-{place}", place % 2, time) for place, time in enumerate(ordered)]
            streams.append(env.from_source(list_source(records), bounded(delay_ms), f"s{source}"))
        program(streams).sink_to(sink)
        return sorted(map(repr, sink_values(sizes, env, sink)))

    assert seen(cuts) == seen([1_000_000]) == seen([1])


def sink_values(sizes: list[int], env: StreamExecutionEnvironment, sink: TestingSink, **settings: Any) -> list[Any]:
    """What a program sends to a sink in epochs of these sizes, each of which runs in another process."""
    job, store, clock = job_of(env, **settings), StateStore(), ManualClock()
    for size in itertools.cycle(sizes):
        cluster = MiniCluster(job, clock, store, size)
        cluster.run_epoch()
        cluster.dispose()
        if store.finished:
            break
    return sink.values


@pytest.mark.parametrize("per_split", [1, 2, 5])
@pytest.mark.parametrize("strategy", [bounded(), counted(Highest)])
@pytest.mark.parametrize("program", [chained_to_source, assigned_later])
def test_functions_see_one_stream_where_one_subtask_reads_one_split_after_the_other(
    program: Any, strategy: WatermarkStrategy, per_split: int
) -> None:
    times = [1_000, 5_000, 2_000, 9_000, 3_000, 4_000, 20_050, 20_049, 21_000, 30_000, 6_000, 40_000]
    records = [(f"{place}", 1, time) for place, time in enumerate(times)]
    found = []
    for size in (1, 3, 100):
        env, sink = environment(1), TestingSink()
        source = list_source(*(records[at : at + per_split] for at in range(0, 12, per_split)))
        source.__class__ = ReadInTurn
        program(source, env, strategy).sink_to(sink)
        found.append(sink_values([size], env, sink, auto_watermark_interval_ms=200))
    assert found[0] == found[1] == found[2]
    assert sum(late for _, late, _ in found[0]) == 5


@pytest.mark.parametrize("per_epoch", [1, 2, 4, 12])
def test_the_usual_test_for_late_records_finds_all_of_them_in_epochs_of_every_size(per_epoch: int) -> None:
    times = [1_000, 5_000, 2_000, 9_000, 3_000, 4_000, 20_000, 1_500, 21_000, 30_000, 6_000, 40_000]
    env, sink = environment(1), TestingSink()
    records = env.from_source(list_source([("a", 1, time) for time in times]), bounded(), "s")
    records.process(Late()).filter(lambda r: r[1]).sink_to(sink)
    run(job_of(env, auto_watermark_interval_ms=200), per_epoch, restart_every=1)
    assert len(sink.values) == 5


def test_a_generator_that_cannot_be_stored_begins_anew_at_the_last_watermark_and_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env, sink = environment(1), TestingSink()
    source = list_source([("a", 1, time) for time in (5, 9, 30, 2, 3)])
    env.from_source(source, counted(HoldsALock), "s").process(Late()).map(lambda r: r[2]).sink_to(sink)
    run(job_of(env), 3)
    assert sink.values == [-(2**63), 5, 5, 9, 9]
    (warning,) = {record.getMessage() for record in caplog.records}
    assert "let its attributes hold plain data" in warning


def test_an_epoch_that_fails_or_is_planned_anew_begins_with_the_watermarks_that_it_had() -> None:
    class FailsOnce(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            if value[2] == 4 and not FAILED:
                FAILED.append(value)
                raise ValueError("once")
            yield value[2], ctx.timer_service().current_watermark()

    FAILED.clear()
    env, sink = environment(1), TestingSink()
    records = env.from_source(list_source([("a", 1, time) for time in (5, 3, 9, 4, 20)]), bounded(), "s")
    records.process(FailsOnce()).sink_to(sink)
    cluster = MiniCluster(job_of(env), ManualClock(), StateStore(), 2)
    cluster.run_epoch()
    with pytest.raises(UserCodeError, match="once"):
        cluster.run_epoch()
    cluster.run()
    assert sink.values == [(5, -(2**63)), (3, 4), (9, 4), (4, 8), (20, 8)]


FAILED: list[Any] = []


@pytest.mark.parametrize("per_epoch", [1, 2, 1000])
@pytest.mark.parametrize("restart_every", [None, 1])
def test_watermarks_made_behind_a_shuffle_go_on_from_epoch_to_epoch(per_epoch: int, restart_every: int | None) -> None:
    env, sink = environment(1), TestingSink()
    source = list_source([("a", 1, t) for t in (5, 3, 9, 4, 20)])
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "s").rebalance()
    marked = stream.assign_timestamps_and_watermarks(bounded(2)).map(lambda r: r).process(Mark())
    marked.map(lambda r: (r[0][2], r[1])).sink_to(sink)
    run(job_of(env), per_epoch, restart_every=restart_every)
    assert sink.values == [(5, -(2**63)), (3, 2), (9, 2), (4, 6), (20, 6)]


@pytest.mark.parametrize("restart_every_epoch", [False, True])
def test_a_strategy_behind_a_shuffle_ignores_that_its_input_is_idle(restart_every_epoch: bool) -> None:
    """It says itself when its stream is idle: the records of a stream that was silent are not late."""
    env = environment(1)
    idle = bounded().with_idleness(Duration.of_millis(50))
    silent = TestingSource.of_splits([("a", 1, 1), Pause(3), ("a", 1, 5)])
    steady_one = TestingSource.of_splits([("b", 1, time) for time in (0, 100, 200, 300, 400)])
    streams = [
        env.from_source(source, idle, "s").rebalance().map(lambda r: r).assign_timestamps_and_watermarks(bounded())
        for source in (silent, steady_one)
    ]
    marked, sink = streams[0].union(streams[1]).rebalance().process(Mark()), TestingSink()
    marked.sink_to(sink)
    job, clock, store = job_of(env), ManualClock(), StateStore()
    cluster = MiniCluster(job, clock, store, 1)
    for _ in range(5):
        cluster.run_epoch()
        clock.advance(100)
        if restart_every_epoch:
            cluster.dispose()
            cluster = MiniCluster(job, clock, store, 1)
    cluster.dispose()
    assert len(sink.values) == 7
    assert max(watermark for _, watermark in sink.values) <= 4, "the silent stream is at 0, and then at 4"


def test_a_task_upstream_that_has_had_no_record_yet_holds_back() -> None:
    """Its watermark generator has made nothing; what it will get may be old."""
    env = environment(2)
    times = [50, 0, 3, 60, 70, 9]  # rebalance begins with the next subtask in each epoch
    source = list_source([("a", 1, time) for time in times])
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "s").set_parallelism(1).rebalance()
    sink = sums(env, stream.map(lambda r: r).assign_timestamps_and_watermarks(bounded()))
    run(job_of(env), 2)
    assert ("a", 3, 9) in sink.values, "one subtask gets 50, 60, 70, the other 0, 3, 9: nothing is late"


@pytest.mark.parametrize("chaining", [True, False])
def test_one_ended_and_one_idle_source_do_not_end_the_job(chaining: bool) -> None:
    env = environment()
    strategy = bounded().with_idleness(Duration.of_millis(5))
    ended = env.from_source(list_source([("a", 1, 1)]), strategy, "ended")
    other = env.from_source(list_source([("b", 1, 2), ("b", 1, 100)], pauses=(0,), endless=True), strategy, "other")
    sink = sums(env, ended.union(other))
    clock = ManualClock(0)
    cluster = MiniCluster(job_of(env, chaining), clock, StateStore(), 1)
    cluster.run_epoch()
    clock.advance(100)
    cluster.run_epoch()
    clock.advance(100)
    for _ in range(3):
        cluster.run_epoch()
        clock.advance(100)
    assert not cluster.store.finished
    assert sorted(sink.values) == [("a", 1, 1), ("b", 1, 2)]
    cluster.dispose()


@pytest.mark.parametrize("batch_size", [1, 3, 1_000])
def test_windows_and_late_records_of_a_wide_job_are_those_of_a_narrow_one(batch_size: int) -> None:
    """With many subtasks watermarks come less often."""
    records = [(f"k{number % 3}", 1, 7 * number % 100 + number) for number in range(150)]
    found = {}
    for parallelism in (2, 70):
        env = environment(1, max_parallelism=256)
        stream = env.from_source(list_source(records), bounded(20), "s")
        late, sink, late_sink = OutputTag("late"), TestingSink(), TestingSink()
        windows = (
            stream.key_by(lambda r: r[0])
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .side_output_late_data(late)
            .reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
            .set_parallelism(parallelism)
        )
        windows.sink_to(sink)
        windows.get_side_output(late).sink_to(late_sink)
        job = job_of(env, source_batch_size=batch_size)
        (stamps,) = (
            operator.factory
            for vertex in job.vertices
            for operator in vertex.operators
            if isinstance(operator.factory, TimestampsAndWatermarksFactory)
        )
        assert stamps.every_records == (0 if parallelism == 2 else 16 * 70)
        run(job, 40, restart_every=2)
        found[parallelism] = sorted(sink.values), sorted(late_sink.values)
    assert found[2] == found[70]
    assert found[2][1]


def test_where_user_code_sees_watermarks_they_come_in_a_wide_job_as_often() -> None:
    env = environment(70)
    stream = env.from_source(list_source([("a", 1, 1)]), bounded(), "s")
    stream.key_by(lambda r: r[0]).process(PassOnKeyed()).print()
    factories = [operator.factory for vertex in job_of(env).vertices for operator in vertex.operators]
    assert [f.every_records for f in factories if isinstance(f, TimestampsAndWatermarksFactory)] == [0]


BEHIND_CALLS = """
class Same(AsyncFunction):
    async def async_invoke(self, r):
        return [r]

class Now(ProcessFunction):
    def process_element(self, r, ctx):
        yield r["k"], r["n"], max(ctx.timer_service().current_watermark(), -1)

def build(source, sink):
    numbers = source.marks("in0", [
        At(3, {"k": "a", "n": 1}), Mark(2), At(5, {"k": "a", "n": 2}), Mark(4), Pause(), At(8, {"k": "a", "n": 3}),
    ], Types.PICKLED_BYTE_ARRAY())
    told = AsyncDataStream.METHOD(numbers, Same(), Time.seconds(600)).process(Now())
    sink("told", told)  # order: TOTAL, key: r[0]
"""


@pytest.mark.parametrize("method", ["ordered_wait", "unordered_wait"])
def test_functions_behind_asynchronous_calls_see_the_watermarks_between_the_records(method: str) -> None:
    source = BEHIND_CALLS.replace("METHOD", method)
    found = in_minicluster(source)
    assert differences(source, found, expected(source)) == []
    assert found == {"told": [("a", 1, -1), ("a", 2, 2), ("a", 3, 4)]}


class Successors(SplitSource):
    """An endless source whose second split is found when the first one was read to its end."""

    bounded, side_by_side, produced_type = False, True, Types.PICKLED_BYTE_ARRAY()  # type: ignore[assignment]

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return OneAfterTheOther()

    def create_reader(self) -> SplitReader:
        return Numbers()


class OneAfterTheOther(SplitEnumerator):
    complete = False  # type: ignore[assignment]

    def __init__(self) -> None:
        self.ended = 0

    def splits_ended(self, count: int, epoch: int) -> None:
        self.ended = count

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        return [SourceSplit(str(len(known)), 10 * len(known), 10 * len(known) + 5)] if self.ended == len(known) else []

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        return split.end, True


class Numbers(SplitReader):
    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        assert wanted.stop is not None
        numbers = list(range(wanted.start, wanted.stop))
        yield SplitRecords(numbers, numbers)


def test_event_time_has_not_ended_when_all_splits_of_an_endless_source_have() -> None:
    env, sink = environment(1), TestingSink()
    stream = env.from_source(Successors(), WatermarkStrategy.for_monotonous_timestamps(), "s")
    stream.key_by(lambda n: n % 2).process(AtWatermark()).sink_to(sink)
    cluster = MiniCluster(job_of(env), ManualClock(), StateStore(), 1_000)
    for _ in range(5):
        cluster.run_epoch()
    cluster.dispose()
    seen = dict(sink.values)
    assert set(seen) >= {*range(5), *range(10, 15), *range(20, 25)}
    assert (seen[10], seen[20]) == (3, 13) and all(watermark < number for number, watermark in seen.items())
