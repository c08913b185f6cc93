"""The jars of packages: they are what flinkish knows them to be, and a job can run without any download. And what Spark
looks for in the packages of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.errors import FinalOperationError
from flinkish.launch.home import default_spark_settings
from flinkish.launch.options import SparkOptions
from flinkish.launch.packages import path_of, resolve
from flinkish.launch.spark_command import SparkCommand
from flinkish.spark.session import look_up_installed_sources
from tests.support.processes import python_path

JOB = """
import sys
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment

settings = Configuration().set_string("flinkish.job.dir", sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.from_collection([1]).map(lambda n: n + 1).print()
env.execute("job")
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def jars(cache: Path) -> list[str]:
    """The paths of Delta's jars, resolved by Spark."""
    resolved = SparkOptions((("--exclude-packages", "nobody:nothing"),))
    with redirect_stderr(StringIO()) as said:
        found = resolve(default_spark_settings()["spark.jars.packages"], resolved, cache)
    (cache / "said").write_text(said.getvalue())
    return [path_of(jar) for jar in found]


def test_delta_in_the_supported_version_is_known_to_the_last_jar(cache: Path, jars: list[str]) -> None:
    assert len(jars) > 1
    said = (cache / "said").read_text()
    assert "resolving" in said
    assert "no digest" not in said


def test_a_jar_that_is_not_what_was_published_is_refused_also_when_it_is_remembered(
    cache: Path, jars: list[str], tmp_path: Path
) -> None:
    resolve(default_spark_settings()["spark.jars.packages"], SparkOptions(()), cache)
    remembered = max(cache.glob("packages-*.json"), key=os.path.getmtime)
    before = remembered.read_text()
    changed = tmp_path / Path(jars[0]).name
    shutil.copy(jars[0], changed)
    with changed.open("ab") as file:
        file.write(b"more")
    try:
        remembered.write_text(before.replace(jars[0], str(changed)))
        with pytest.raises(FinalOperationError, match="is not the file that Delta Lake has published") as error:
            resolve(default_spark_settings()["spark.jars.packages"], SparkOptions(()), cache)
        assert str(changed) in str(error.value)
    finally:
        remembered.write_text(before)


def test_jars_that_an_earlier_resolution_has_left_are_found_without_a_session(
    jars: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``jars``: they are there."""
    found = resolve(default_spark_settings()["spark.jars.packages"], SparkOptions(()), tmp_path)
    assert sorted(map(path_of, found)) == sorted(jars)
    assert "resolving" not in capfd.readouterr().err


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_a_cluster_gets_deltas_jars_and_nothing_that_it_has_itself(
    jars: list[str], deploy_mode: str, tmp_path: Path
) -> None:
    """``jars``: they are there."""
    user = SparkOptions((("--master", "yarn"), ("--deploy-mode", deploy_mode), ("--jars", "mine.jar")))
    options = SparkOptions.parse(SparkCommand({"FLINKISH_HOME": str(tmp_path)}, user).arguments())
    *shipped, own = map(path_of, (options.value("--jars") or "").split(","))
    assert sorted(shipped) == sorted(jars) and own == "mine.jar"
    assert options.value("--packages") is None and options.conf("spark.jars.packages") == ""


@pytest.mark.slow
def test_a_job_runs_without_any_download_from_jars_that_are_given(jars: list[str], tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text("spark.jars.packages\n")
    program = tmp_path / "job.py"
    program.write_text(JOB)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment = {**inherited, "FLINKISH_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": python_path()}
    command = [sys.executable, "-m", "flinkish.cli", "run", str(program), str(tmp_path / "job")]
    options = ["--", "--master", "local[1]", "--jars", ",".join(jars)]
    result = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "resolving" not in result.stderr
    assert not list(tmp_path.glob(".ivy*"))


def test_spark_looks_for_installed_data_sources_only_where_there_may_be_some(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm: Any = spark.sparkContext._jvm
    name = "org.apache.spark.sql.execution.datasources.DataSourceManager$"
    manager = jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)

    def forget() -> None:
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.empty())

    before = manager.dataSourceBuilders()
    try:
        with monkeypatch.context() as patched:
            (tmp_path / "pyspark_orders.py").touch()
            patched.syspath_prepend(str(tmp_path))
            forget()
            look_up_installed_sources(spark)
            assert manager.dataSourceBuilders().isEmpty(), "Spark does it itself"
        look_up_installed_sources(spark)
        assert manager.dataSourceBuilders().get().size() == 0, "there is nothing left to do"
    finally:
        getattr(manager, "dataSourceBuilders_$eq")(before)
