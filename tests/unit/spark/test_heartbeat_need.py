"""Epochs without data happen for processing-time timers that there are, wherever in the program they are registered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.core.functions import KeyedProcessFunction
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.epoch.planner import PendingTimers
from flinkish.runtime.operators.keyed_process import KeyedProcessFactory
from flinkish.runtime.phases import ManualClock
from flinkish.spark import split_source
from flinkish.spark.split_source import SourceQuery, SourceStreamReader
from flinkish.spark.worker import deploy
from flinkish.testing import TestingSink, TestingSource
from tests.unit.minicluster.programs import environment, job_of


class NoTimers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class EventTimers(NoTimers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(10**15)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


def in_half_a_second(ctx: Any) -> None:
    service = ctx.timer_service()
    service.register_processing_time_timer(service.current_processing_time() + 500)


class Timeout:
    """A helper that a function is given: it reaches the method by a text."""

    def arm(self, ctx: Any) -> None:
        service = ctx.timer_service()
        getattr(service, "_".join(["register", "processing", "time", "timer"]))(service.current_processing_time() + 500)


class Unseen(EventTimers):
    """Registers event-time timers in plain sight, and others by what it was given."""

    def __init__(self, arm: Any) -> None:
        self.arm = arm

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.arm(ctx)
        yield from super().process_element(value, ctx)


@pytest.mark.parametrize("arm", [in_half_a_second, Timeout().arm, lambda ctx: in_half_a_second(ctx)])
@pytest.mark.parametrize("restart_every_epoch", [False, True])
def test_a_processing_time_timer_fires_without_data_whoever_has_registered_it(
    arm: Any, restart_every_epoch: bool
) -> None:
    env, sink, clock, store = environment(2), TestingSink(), ManualClock(1_000), StateStore()
    records = env.from_source(TestingSource.of_splits([1]), WatermarkStrategy.no_watermarks(), "s")
    # the second function is called by the first one's task
    records.key_by(lambda v: v).process(Unseen(arm)).key_by(lambda v: v).process(Unseen(arm)).sink_to(sink)
    cluster, seen = MiniCluster(job_of(env), clock, store), []
    for _ in range(5):
        report = cluster.run_epoch()
        seen.append((list(sink.values), min((task.timer_ms for task in report.tasks if task.timer_ms), default=None)))
        clock.advance(300)
        if restart_every_epoch:
            cluster.dispose()
            cluster = MiniCluster(job_of(env), clock, store)
    cluster.dispose()
    values = [of for of, _ in seen]
    assert values[0] == values[1] == [1]
    assert values[-1] == [1, 1_500, 1_500, 2_100], "the record, its timers in both functions, and that of a result"
    assert seen[0][1] is not None
    assert seen[0][1] <= 1_500


@pytest.mark.parametrize(("function", "expected"), [(NoTimers(), False), (EventTimers(), True)])
def test_tasks_tell_of_timers_whose_function_does_something_when_one_fires(
    function: KeyedProcessFunction, expected: bool
) -> None:
    assert KeyedProcessFactory(function).has_timers is expected


def test_an_epoch_without_data_is_planned_at_first_and_when_a_timer_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(split_source.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(split_source, "SystemClock", lambda: ManualClock(int(now_s[0] * 1000)))
    files = EpochFiles(str(tmp_path / "prepared"), "")
    timers = PendingTimers(files.planner)
    env = environment(1)
    env.add_source(TestingSource()).sink_to(TestingSink())
    deployment = replace(deploy(job_of(env), 1), files=files)
    reader = SourceStreamReader(SourceQuery(deployment, str(tmp_path), timers_ms=1_000))
    offsets = [reader.initialOffset()]

    def due_after(seconds: float) -> bool:
        now_s[0] += seconds
        offsets.append(reader.latestOffset(offsets[-1]))
        return offsets[-1] != offsets[-2]

    assert due_after(0), "nothing is known yet"
    assert not due_after(2), "no file: no task has timers"
    timers.update({"1/0": None, "1/1": 105_000, "2/0": 150_000})
    assert not due_after(2)
    assert due_after(2)
    timers.update({"1/1": None})
    assert not due_after(2)
    assert PendingTimers(files.planner).earliest() == 150_000
    timers.update({"1/0": 90_000})
    assert due_after(1)
    assert not due_after(0.5), "there is one look in a second"
    assert due_after(0.5)
