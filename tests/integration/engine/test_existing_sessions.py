"""A session that a program finds, as in a notebook, is used by jobs of any thread and left as it was."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from flinkish.common import Types
from flinkish.errors import FinalOperationError
from flinkish.spark import session
from flinkish.spark.settings import epochs_that_do_not_run
from tests.integration.engine.collecting import collecting, environment
from tests.support.processes import start_driver

VALIDATION = "spark.sql.streaming.stateStore.commitValidation.enabled"


def sums(number: int) -> tuple[list[Any], bool]:
    """Runs a job from a thread in which no session is active; its sums, and whether none was active."""
    env = environment()
    with collecting() as collected:
        numbers = env.from_collection([number, 1, 2, 3], Types.LONG())
        numbers.key_by(lambda n: n % 2).reduce(lambda a, b: a + b).sink_to(collected.sink())
        foreign = SparkSession.getActiveSession() is None
        env.execute(f"sums-{number}")
        return sorted(collected.rows["out"]), foreign


def everything(spark: SparkSession) -> Mapping[str, Any]:
    """What jobs of others could notice of a job: settings, tables, functions, queries."""
    return {
        "settings": {row.key: row.value for row in spark.sql("SET").collect()},
        "tables": sorted(row.tableName for row in spark.sql("SHOW TABLES").collect()),
        "catalogs": [spark.catalog.currentCatalog(), spark.catalog.currentDatabase()],
        "queries": list(spark.streams.active),
    }


def test_jobs_of_other_threads_run_at_once_in_the_default_session_and_leave_it_as_it_was(spark: SparkSession) -> None:
    before = everything(spark)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(sums, (10, 20)))
    assert [rows[-1] for rows, _ in results] == [12, 22]
    assert all(foreign for _, foreign in results)
    assert everything(spark) == before


def test_a_setting_of_a_session_comes_back_when_the_last_query_that_needs_another_one_ends(spark: SparkSession) -> None:
    spark.conf.set(VALIDATION, "true")
    try:
        with epochs_that_do_not_run(spark):
            with epochs_that_do_not_run(spark):
                assert spark.conf.get(VALIDATION) == "false"
            assert spark.conf.get(VALIDATION) == "false"
        assert spark.conf.get(VALIDATION) == "true"
    finally:
        spark.conf.unset(VALIDATION)


class Serverless:
    """A session that lets nobody change its settings; the rest is the real one's."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.conf = self

    def get(self, key: str, default: Any = None) -> Any:
        return self._session.conf.get(key, default)

    def set(self, key: str, value: Any) -> None:
        raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {key} is not available. SQLSTATE: 42K0I")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("trigger", ["continuous", "available-now"])
def test_a_session_whose_settings_nobody_may_change_is_refused_in_one_line_before_anything_is_written(
    trigger: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "get_session", lambda configuration, name, short_lived: Serverless(spark))
    env = environment(tmp_path / "job", execution__trigger=trigger)
    env.from_collection([1, 2, 3], Types.LONG()).print()
    with pytest.raises(FinalOperationError) as refused:
        env.execute("clicks")
    (line,) = str(refused.value).splitlines()
    assert "CONFIG_NOT_AVAILABLE" in line and "job 'clicks'" in line and "classic compute" in line
    assert not (tmp_path / "job").exists()


def test_a_session_whose_spark_runs_tasks_twice_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    setting = "spark.speculation"
    in_force = spark.sparkContext._jsc.sc().conf()
    in_force.set(setting, "true")
    try:
        env = environment(tmp_path / "job")
        env.from_collection([1, 2, 3], Types.LONG()).print()
        with pytest.raises(FinalOperationError, match=rf"job 'clicks'.*{setting}=false.*start Spark with") as refused:
            env.execute("clicks")
    finally:
        in_force.remove(setting)
    assert len(str(refused.value).splitlines()) == 1
    assert not (tmp_path / "job").exists()


JOB = """
import sys
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment

settings = Configuration()
settings.set_string("spark.master", "local[1]")
if sys.argv[1:]:
    settings.set_string("spark.speculation", sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.from_collection([1, 2, 3]).map(lambda n: n * 100).print()
env.execute("clicks")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of_program", "code", "said"),
    [
        ((), 0, "switches speculative execution on, and it is switched off in this session"),
        (("true",), 1, "FinalOperationError: Spark's speculative execution is on"),
    ],
    ids=["by the platform", "by the program"],
)
def test_where_flinkish_makes_the_session_no_task_runs_twice(
    tmp_path: Path, of_program: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text("spark.jars.packages\nspark.speculation true\n")
    (tmp_path / "job.py").write_text(JOB)
    env = {"FLINKISH_HOME": str(tmp_path)}
    with start_driver(tmp_path / "job.py", *of_program, log_file=tmp_path / "log", env=env) as driver:
        output = driver.end_with(code, 300)
    assert said in output
    assert ("300" in output) is (code == 0)
