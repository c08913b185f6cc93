"""Epochs without data happen on request, and for processing-time timers that there are, wherever in the program they
are registered: where requests are kept, which jobs look for them, and who keeps the interval then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.core.functions import KeyedProcessFunction, MapFunction, RuntimeContext
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.query_inputs import REQUEST_POLL_MS, QueryRun, plan_runs
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.epoch.planner import EpochRequested, PendingTimers
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.operators.functions import MapFactory
from flinkish.runtime.operators.keyed_process import KeyedProcessFactory
from flinkish.runtime.phases import ManualClock
from flinkish.spark import split_source
from flinkish.spark.plan import PlanOptions
from flinkish.spark.split_source import SourceQuery, SourceStreamReader
from flinkish.spark.worker import deploy
from flinkish.testing import TestingSink, TestingSource
from tests.unit.minicluster.programs import environment, job_of


def test_the_newest_request_counts_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    for epoch in (6, 7):
        EpochRequested(epoch).write(str(tmp_path))
        assert EpochRequested.read(str(tmp_path)) == EpochRequested(epoch)
    (tmp_path / "epoch-requested").write_bytes(b"")
    assert EpochRequested.read(str(tmp_path)) is None


class Asking(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.request_commit()
        yield value


class AskingOfItsContext(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = runtime_context

    def map(self, value: Any) -> Any:
        self._context.request_commit()
        return value


def run_with(function: Any, interval_ms: int) -> QueryRun:
    factory: Any = KeyedProcessFactory(function) if isinstance(function, Asking) else MapFactory(function)
    vertex = VertexDescriptor(0, "a", 0, (OperatorDescriptor("uid", "a", factory),), 1, 1)
    job = JobDescriptor("job", "job", (vertex,), ())
    settings = driver_settings(Configuration().set_string("flinkish.epoch.interval", f"{interval_ms} ms"))
    (run,) = plan_runs(job, {0: DataGeneratorSource(str)}, settings, PlanOptions(), False)
    return run


@pytest.mark.parametrize(
    ("function", "interval_ms", "spark_ms", "planner_ms"),
    [
        (Asking(), 60_000, REQUEST_POLL_MS, 60_000),
        (AskingOfItsContext(), 60_000, REQUEST_POLL_MS, 60_000),
        (abs, 60_000, 60_000, 0),
        (Asking(), REQUEST_POLL_MS, REQUEST_POLL_MS, 0),
        (Asking(), 0, 0, 0),
    ],
)
def test_who_plans_epochs_keeps_the_interval_of_jobs_that_may_ask_and_spark_all_others(
    function: Any, interval_ms: int, spark_ms: int, planner_ms: int
) -> None:
    run = run_with(function, interval_ms)
    assert (run.interval_ms, run.options.interval_ms) == (spark_ms, planner_ms)


def test_an_epoch_is_due_at_first_then_after_the_interval_or_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(split_source.time, "monotonic", lambda: now[0])
    files = EpochFiles(str(tmp_path / "prepared"), "")
    env = environment(1)
    env.from_collection([1]).print()
    deployment = replace(deploy(job_of(env), 1), files=files)
    query = SourceQuery(deployment, str(tmp_path), interval_ms=60_000, heartbeat=True)
    EpochRequested(3).write(files.query)
    reader = SourceStreamReader(query)
    offsets = [reader.initialOffset()]

    def is_due() -> bool:
        offsets.append(reader.latestOffset(offsets[-1]))
        return offsets[-1] != offsets[-2]

    assert is_due(), "whatever was asked before"
    assert not is_due()
    now[0] += 60
    assert is_due()
    assert not is_due()
    EpochRequested(5).write(files.query)
    assert is_due()
    assert not is_due(), "a request counts once"


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
