"""What a job does without in a session that has no Delta Lake, and what it is refused for."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from flinkish.common import Configuration
from flinkish.errors import EnvironmentVersionError, FinalOperationError, SparkLostError
from flinkish.jobmanager.job.settings import driver_settings, without_delta
from flinkish.jobmanager.query_inputs import QueryRun, check_end
from flinkish.spark.failures import translate
from flinkish.spark.plan import PlanOptions

CLASS = "org.apache.spark.SparkClassNotFoundException"
WHY = "the Spark session has no Delta Lake (Delta Lake has no package for Spark 4.3 yet: use Spark 4.2)"


def configuration(**settings: str) -> Configuration:
    return Configuration.from_dict({"flinkish.job.dir": "/jobs/shop", **settings})


@pytest.mark.parametrize("settings", [{}, {"execution.checkpointing.interval": "0 s"}])
def test_a_job_with_a_directory_runs_without_checkpoints_and_history(settings: dict[str, str]) -> None:
    asked = configuration(**settings)
    found = without_delta(driver_settings(asked), asked, WHY)
    assert not found.checkpoints.enabled and not found.history_enabled and not found.needs_delta


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.checkpointing.interval", "10 s"),
        ("execution.state-recovery.path", "/savepoints/1"),
        ("flinkish.history.enabled", "true"),
    ],
)
def test_what_is_asked_for_and_needs_delta_is_refused_by_its_key(key: str, value: str) -> None:
    asked = configuration(**{key: value})
    with pytest.raises(EnvironmentVersionError) as caught:
        without_delta(driver_settings(asked), asked, WHY)
    assert WHY in str(caught.value) and f"configuration key '{key}'" in str(caught.value)


def test_a_program_that_needs_delta_is_told_what_its_session_lacks() -> None:
    text = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider name is correct"
    error = translate(AnalysisException(f"An error occurred while calling o5.load.\n: {CLASS}: {text}"), "job 'shop'")
    assert isinstance(error, EnvironmentVersionError) and "the Spark session has no Delta Lake" in str(error)


def session(stopped: bool) -> Any:
    context = SimpleNamespace(isStopped=lambda: stopped)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


@pytest.mark.parametrize(
    ("run", "stopped", "error"),
    [
        (QueryRun(PlanOptions(), available_now=True, reaches_end=True), False, FinalOperationError),
        (QueryRun(PlanOptions(), available_now=False), False, FinalOperationError),
        (QueryRun(PlanOptions(), available_now=True), False, None),
        (QueryRun(PlanOptions(), available_now=True), True, SparkLostError),
        (QueryRun(PlanOptions(), available_now=True, reaches_end=True), True, SparkLostError),
    ],
)
def test_a_query_ends_by_itself_only_where_a_run_may(
    run: QueryRun, stopped: bool, error: type[Exception] | None
) -> None:
    with pytest.raises(error, match=r"job 'shop'") if error else nullcontext():
        check_end(session(stopped), run, "job 'shop'")
