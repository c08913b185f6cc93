"""What the driver says of settings that work, but not as one would wish; what a job does without in a session that has
no Delta Lake, and what it is refused for. A start that fails keeps the same process from nothing."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError, EnvironmentVersionError, FinalOperationError, SparkLostError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Liveness
from flinkish.jobmanager.client import JobManager
from flinkish.jobmanager.job.settings import driver_settings, without_delta
from flinkish.jobmanager.preparation import prepare_directory
from flinkish.jobmanager.query_inputs import QueryRun, check_end
from flinkish.spark import session
from flinkish.spark.failures import translate
from flinkish.spark.plan import PlanOptions
from flinkish.spark.settings import note_on_results


def note(job_dir: str, interval: str, **settings: str) -> str | None:
    given = {"flinkish.job.dir": job_dir, "flinkish.epoch.interval": interval, **settings}
    return driver_settings(Configuration.from_dict(given)).note_on_requests


@pytest.fixture(autouse=True)
def _no_look_for_the_region_of_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("interval", "often"), [("0 ms", "without a pause"), ("1 s", "every 1 s"), ("4999 ms", "every 4.999 s")]
)
def test_frequent_epochs_on_an_object_store_are_noted_with_their_cost(interval: str, often: str) -> None:
    text = note("s3a://bucket/jobs/a", interval)
    assert text is not None and text.startswith(f"epochs begin {often} (flinkish.epoch.interval)")
    assert "s3a://bucket/jobs/a" in text and "\n" not in text


def test_there_is_nothing_to_say_of_long_intervals_of_disks_and_of_runs_that_end_with_what_is_there(
    tmp_path: Path,
) -> None:
    assert note("s3://bucket/jobs/a", "5 s") is note("s3://bucket/jobs/a", "10 s") is None
    assert note(str(tmp_path), "0 ms") is None
    assert note("s3://bucket/jobs/a", "0 ms", **{"execution.trigger": "available-now"}) is None


@pytest.mark.parametrize(
    ("partitions", "limit", "said"),
    [
        (1_499, None, None),
        (1_500, None, "about 393 MB of results of 1,500 tasks"),
        (4_000, "1g", "about 2,748 MB of results of 4,000 tasks"),
        (4_000, "0", None),
    ],
)
def test_results_of_many_subtasks_are_noted_where_spark_limits_them(
    partitions: int, limit: str | None, said: str | None
) -> None:
    text = note_on_results(partitions, limit)
    assert text is None if said is None else text is not None and said in text and "spark.driver.maxResultSize" in text


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


def session_that(stopped: bool) -> Any:
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
        check_end(session_that(stopped), run, "job 'shop'")


class SessionOf:
    """As much of a session as is asked for its master and takes settings. ``master`` None: it may not be asked."""

    version = "4.2.0"

    def __init__(self, master: str | None) -> None:
        self._master = master
        self.conf = self.sparkContext = self

    def getConf(self) -> dict[str, str]:
        return {}

    def getLocalProperty(self, key: str) -> None:
        return None

    def setLocalProperty(self, key: str, value: str | None) -> None:
        """Jobs of Spark belong to a group while a start may be broken off; there are none."""

    def get(self, key: str, default: str = "") -> str:
        if self._master is None:
            raise RuntimeError(f"[CONFIG_NOT_AVAILABLE] {key}")
        return self._master

    def set(self, key: str, value: str) -> None:
        pass


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443"])
def test_on_a_cluster_a_job_without_a_directory_is_refused(master: str) -> None:
    session: Any = SessionOf(master)
    with pytest.raises(ConfigurationError, match=f"{master}.*expected flinkish.job.dir, a directory that all machines"):
        prepare_directory(session, driver_settings(Configuration()), "shop")


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]", None])
def test_on_one_machine_a_job_without_a_directory_has_a_temporary_one(master: str | None) -> None:
    session: Any = SessionOf(master)
    directory, temporary = prepare_directory(session, driver_settings(Configuration()), "shop")
    assert temporary
    directory.release()
    shutil.rmtree(directory.path)


def test_a_job_that_cannot_be_set_up_gives_its_directory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINKISH_PROGRESS", "sometimes")
    manager = JobManager()
    monkeypatch.setattr(JobManager, "get", lambda: manager)
    configuration = Configuration.from_dict({"flinkish.job.dir": str(tmp_path / "job"), "flinkish.progress": "auto"})
    monkeypatch.setattr(session, "get_session", lambda configuration, name, short_lived: SessionOf("local[1]"))
    monkeypatch.setattr(session, "activate", lambda made: None)
    for _ in range(2):
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.from_collection([1, 2, 3]).print()
        with pytest.raises(ConfigurationError, match="FLINKISH_PROGRESS"):
            env.execute_async("clicks")
    assert JobDirectory(str(tmp_path / "job")).owner_liveness() is Liveness.GONE
