"""Requests for an epoch: where they are kept, which jobs look for them, and who keeps the interval then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.core.functions import KeyedProcessFunction, MapFunction, RuntimeContext
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.query_inputs import REQUEST_POLL_MS, QueryRun, plan_runs
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.epoch.planner import EpochRequest
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.operators.functions import MapFactory
from flinkish.runtime.operators.keyed_process import KeyedProcessFactory
from flinkish.spark import split_source
from flinkish.spark.plan import PlanOptions
from flinkish.spark.split_source import SourceQuery, SourceStreamReader
from flinkish.spark.worker import deploy
from tests.unit.minicluster.programs import environment, job_of


def test_the_newest_request_counts_and_none_is_minus_one(tmp_path: Path) -> None:
    request = EpochRequest(str(tmp_path))
    assert request.newest() == -1
    request.ask(7)
    assert EpochRequest(str(tmp_path)).newest() == 7
    (tmp_path / "epoch-requested").write_bytes(b"")
    assert request.newest() == -1, "it is just being written"


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
    EpochRequest(files.query).ask(3)
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
    EpochRequest(files.query).ask(5)
    assert is_due()
    assert not is_due(), "a request counts once"
