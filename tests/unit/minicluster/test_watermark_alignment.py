"""Watermark alignment: no split runs ahead of its group, all is read, and the results are those without it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Duration, Time, WatermarkStrategy
from flinkish.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from flinkish.connectors.file_system.source import FileSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.functions import ProcessWindowFunction
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.alignment import Reached
from flinkish.testing import TestingSink, TestingSource
from tests.support.functions import TimeOf
from tests.support.lettered_source import LetteredSource
from tests.support.profiles import examples

from .programs import LAST_FIELD, bounded, environment, job_of, list_source, run

BATCH = 3


def aligned(drift_ms: int, strategy: WatermarkStrategy | None = None) -> WatermarkStrategy:
    return (strategy or bounded()).with_watermark_alignment("group", Duration.of_millis(drift_ms))


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window().start, tuple(sorted(elements))


def evenly(name: str, count: int, step_ms: int) -> list[Any]:
    return [(name, n, n * step_ms) for n in range(count)]


def program(
    sources: Iterable[TestingSource], strategy: WatermarkStrategy, parallelism: int = 2
) -> tuple[JobDescriptor, TestingSink]:
    """Windows over the union of the sources."""
    env, sink = environment(parallelism), TestingSink()
    first, *others = [env.from_source(source, strategy, f"source {n}") for n, source in enumerate(sources)]
    united = first.union(*others) if others else first
    windows = united.key_by(lambda r: r[0][:1]).window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
    windows.process(Contents()).sink_to(sink)
    return job_of(env, source_batch_size=BATCH), sink


class Observed:
    """Runs a job and keeps, per epoch, which watermark each split had before and after, and who was read."""

    def __init__(self, job: JobDescriptor, per_epoch: int, *, restart: bool = False) -> None:
        self.store, self.clock = StateStore(), ManualClock()
        self.epochs: list[dict[tuple[int, str], tuple[int | None, int | None, int]]] = []
        cluster = MiniCluster(job, self.clock, self.store, per_epoch)
        reached: dict[tuple[int, str], int] = {}
        while not self.store.finished:
            if restart:
                cluster.dispose()
                cluster = MiniCluster(job, self.clock, self.store, per_epoch)
            before = dict(reached)
            offset = self.store.offset
            report = cluster.run_epoch()
            for task in report.tasks:
                for stream, watermark_ms in task.stream_watermarks.items():
                    place = (task.vertex, stream)
                    reached[place] = max(watermark_ms, reached.get(place, watermark_ms))
            self.epochs.append(self._moves(job, offset, self.store.offset, before, reached))
            assert len(self.epochs) < 5_000

    @staticmethod
    def _moves(
        job: JobDescriptor, start: Any, end: Any, before: dict[Any, int], after: dict[Any, int]
    ) -> dict[tuple[int, str], tuple[int | None, int | None, int]]:
        found = {}
        for vertex in job.vertices:
            if vertex.source is not None:
                for stream, (_, records, _, _) in end["watermarks"][vertex.head.uid].items():
                    place = (vertex.id, stream)
                    found[place] = (before.get(place), after.get(place), records)
        return found


steps = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=examples(30), deadline=None)
@given(steps, st.integers(0, 60), st.sampled_from([1, 2, 7, 100]), st.booleans(), st.integers(1, 3), st.data())
def test_splits_stay_within_the_drift_and_what_one_batch_brings(
    paces: list[list[int]], drift_ms: int, per_epoch: int, restart: bool, parallelism: int, data: st.DataObject
) -> None:
    parts = [
        [evenly(f"{n}{m}", data.draw(st.integers(0, 30)), step) for m, step in enumerate(of_source)]
        for n, of_source in enumerate(paces)
    ]
    expected_job, expected = program([list_source(*part) for part in parts], bounded(), parallelism)
    run(expected_job, 10_000)
    job, sink = program([list_source(*part) for part in parts], aligned(drift_ms), parallelism)
    observed = Observed(job, per_epoch, restart=restart)
    assert Counter(sink.values) == Counter(expected.values)
    step_of = {
        (vertex.id, str(m)): step
        for n, of_source in enumerate(paces)
        for m, step in enumerate(of_source)
        for vertex in job.vertices
        if vertex.name.startswith(f"Source: source {n} ")
    }
    assert len(step_of) == sum(map(len, paces))
    for splits in observed.epochs:
        lowest = min((-1 if before is None else before for before, _, _ in splits.values()), default=0)
        for place, (before, after, records) in splits.items():
            if records:
                assert before is None or before <= lowest + drift_ms
                assert after is None or after <= lowest + drift_ms + BATCH * step_of[place]


times = st.lists(st.integers(0, 400), max_size=25).map(sorted)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.lists(times, min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(0, 100),
    st.sampled_from([1, 4, 100]),
    st.integers(0, 2),
)
def test_a_split_that_is_ahead_by_more_than_the_drift_is_not_read_whatever_its_times(
    parts: list[list[list[int]]], drift_ms: int, per_epoch: int, pause: int
) -> None:
    sources = [
        list_source(
            *([(f"{n}", i, time) for i, time in enumerate(split)] for split in of_source),
            pauses=(pause, *(0 for _ in of_source[1:])),
        )
        for n, of_source in enumerate(parts)
    ]
    expected_job, expected = program(sources, bounded())
    run(expected_job, 10_000)
    job, sink = program(sources, aligned(drift_ms))
    observed = Observed(job, per_epoch)
    assert Counter(sink.values) == Counter(expected.values)
    for splits in observed.epochs:
        lowest = min((-1 if before is None else before for before, _, _ in splits.values()), default=0)
        read = [before for before, _, records in splits.values() if records]
        assert all(before is None or before <= lowest + drift_ms for before in read)
        # never all of them
        assert read or not splits


def test_an_epoch_that_is_tried_again_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [list_source(evenly("a", 40, 1), evenly("b", 40, 9)), list_source(evenly("c", 40, 3))]
    job, _ = program(sources, aligned(10))
    store, clock = StateStore(), ManualClock()
    while not store.finished:
        first = MiniCluster(job, clock, store, 50)
        planned = first.plan()
        first.dispose()
        # by then others have been read further: it does not matter any more
        store.reached = Reached({uid: {"0": 10**6} for uid in store.reached.watermarks})
        second = MiniCluster(job, clock, store, 50)
        assert second.plan() == planned
        second.run_epoch()
        second.dispose()


class Highest(WatermarkGenerator):
    """What ``for_bounded_out_of_orderness`` does, as a generator of the program's own."""

    def __init__(self) -> None:
        self.highest_ms = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.highest_ms = max(self.highest_ms, event_timestamp)
        output.emit_watermark(self.highest_ms - 1)


@pytest.mark.parametrize("restart", [False, True])
def test_sources_with_generators_of_the_programs_own_are_aligned_as_others_are(restart: bool) -> None:
    own = WatermarkStrategy.for_generator(Highest).with_timestamp_assigner(LAST_FIELD)
    parts = [[evenly("a", 40, 1), evenly("b", 40, 9)], [evenly("c", 40, 3)]]
    found = []
    for strategy in (aligned(10), aligned(10, own)):
        job, sink = program([list_source(*part) for part in parts], strategy)
        found.append((Observed(job, 7, restart=restart).epochs, Counter(sink.values)))
    assert found[0] == found[1]


def endless(seconds: int | None = None) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(LAST_FIELD)
    return aligned(10, strategy if seconds is None else strategy.with_idleness(Duration.of_seconds(seconds)))


def read_so_far(store: StateStore) -> list[int]:
    (uid,) = store.offset["sources"]
    return [position for _, _, position in store.offset["sources"][uid]["open"]]


def test_a_silent_split_holds_the_others_until_it_is_idle_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    records = evenly("a", 30, 10)
    env = environment(1)
    env.from_source(list_source(records, [], endless=True), endless(), "records").sink_to(TestingSink())
    store = StateStore()
    with caplog.at_level(logging.WARNING, "flinkish.JobManager"):
        MiniCluster(job_of(env, source_batch_size=BATCH), ManualClock(), store).run(10)
    # one batch, without which nobody knows that it is ahead
    assert read_so_far(store) == [BATCH, 0]
    assert caplog.text.count("wait for '1' of source") == 1

    env, clock, store = environment(1), ManualClock(), StateStore()
    env.from_source(list_source(records, [], endless=True), endless(5), "records").sink_to(TestingSink())
    cluster = MiniCluster(job_of(env, source_batch_size=BATCH), clock, store)
    cluster.run(3)
    assert read_so_far(store) == [BATCH, 0]
    clock.advance(5_000)
    cluster.run(12)
    assert read_so_far(store) == [30, 0]


def test_a_split_that_is_held_back_does_not_become_idle() -> None:
    """Else event time would pass it by, and what it reads when it goes on would be late."""
    slow, fast = evenly("slow", 60, 10), evenly("fast", 8, 200)
    env, sink, clock = environment(2), TestingSink(), ManualClock()
    strategy = aligned(50, bounded().with_idleness(Duration.of_seconds(1)))
    stream = env.from_source(list_source(slow, fast), strategy, "records")
    windows = stream.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
    windows.process(Contents()).sink_to(sink)
    run(
        job_of(env, source_batch_size=BATCH),
        10,
        clock=clock,
        on_epoch=lambda: clock.advance(2_000),
    )
    read = sorted(record for _, _, records in sink.values for record in records)
    assert read == sorted([*slow, *fast])


def test_what_is_there_now_is_read_to_its_end_by_a_run_that_waits_for_nothing_new() -> None:
    env, store = environment(1), StateStore()
    source = LetteredSource({"a": 30, "b": 0}, together=True, unbounded=True)
    env.from_source(source, endless(), "records").sink_to(TestingSink())
    cluster = MiniCluster(job_of(env, source_batch_size=BATCH), ManualClock(), store)
    cluster.run(10)
    assert read_so_far(store) == [BATCH, 0]
    cluster.freeze()
    cluster.run(10)
    assert read_so_far(store) == [30, 0]


def test_files_are_aligned_subtask_by_subtask(tmp_path: Path) -> None:
    """A subtask reads one file after the other: its watermark is that of all of them."""
    for name, step in (("a", 1), ("b", 50), ("c", 2), ("d", 70)):
        (tmp_path / name).write_text("".join(f"{n * step}\n" for n in range(200)))
    results: list[list[Any]] = []
    for drift_ms in (None, 100):
        env, sink = environment(3), TestingSink()
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(int))
        strategy = strategy if drift_ms is None else aligned(drift_ms, strategy)
        env.from_source(FileSource.text(str(tmp_path)), strategy, "files").sink_to(sink)
        job = job_of(env, source_batch_size=10)
        if drift_ms is None:
            run(job)
        else:
            observed = Observed(job, 300)
            assert len(observed.epochs) > 20
            for splits in observed.epochs:
                lowest = min(-1 if before is None else before for before, _, _ in splits.values()) if splits else 0
                for before, _, records in splits.values():
                    assert not records or before is None or before <= lowest + drift_ms
        results.append(sorted(sink.values))
    assert results[0] == results[1] and len(results[0]) == 800


def test_a_strategy_behind_a_shuffle_cannot_hold_a_source_back_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    env: StreamExecutionEnvironment = environment()
    stream = env.from_source(list_source(evenly("a", 3, 1)), WatermarkStrategy.no_watermarks(), "records").rebalance()
    stream.assign_timestamps_and_watermarks(aligned(10)).sink_to(TestingSink())
    with caplog.at_level(logging.WARNING, "flinkish.JobManager"):
        reports: list[EpochReport] = MiniCluster(job_of(env), ManualClock()).run()
    assert reports[-1].end_of_input
    assert "with_watermark_alignment has no effect" in caplog.text
