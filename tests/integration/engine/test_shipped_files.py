"""Archives, requirements, cached files and modules of a program are in the workers, wherever these run."""

from __future__ import annotations

import importlib
import json
import os
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError
from flinkish.runtime.stored.classes import ProgramPlaces
from flinkish.spark.dependencies import ship
from tests.integration.engine import shipping_job
from tests.support.processes import start_driver
from tests.support.programs import configuration_of

TIMEOUT_S = 600


@pytest.mark.parametrize(
    "session",
    [
        "minicluster",
        pytest.param("local", marks=pytest.mark.nightly),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("local-cluster", "connect")),
    ],
)
def test_functions_find_the_files_of_their_job(tmp_path: Path, session: str) -> None:
    arguments = [str(tmp_path), session]
    with start_driver(Path(shipping_job.__file__), *arguments, log_file=tmp_path / "driver.log") as driver:
        driver.succeed(TIMEOUT_S)
        lines = driver.output().splitlines()
    found = [json.loads(line.removeprefix("found ")) for line in lines if line.startswith("found ")]
    assert found == [[everything("first")], [everything("second")]]
    assert "inside [False]" in lines


def everything(text: str) -> dict[str, str]:
    return {
        "module": text,
        "file": text,
        "package": text,
        "archive": text,
        "cached": text,
        "executable": f"{text} loud",
        "python path": "True",
    }


def test_what_spark_ships_as_python_files_is_the_programs_own(spark: SparkSession, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "shipped_by_spark.zip", "w") as packed:
        packed.writestr("packed_by_spark.py", "")
    (tmp_path / "single_by_spark.py").touch()
    (tmp_path / "data_for_spark.zip").write_bytes((tmp_path / "shipped_by_spark.zip").read_bytes())
    spark.sparkContext.addPyFile(str(tmp_path / "shipped_by_spark.zip"))
    spark.sparkContext.addPyFile(str(tmp_path / "single_by_spark.py"))
    spark.sparkContext.addFile(str(tmp_path / "data_for_spark.zip"))
    shipped = ship(spark, configuration_of(StreamExecutionEnvironment.get_execution_environment())).here
    places = ProgramPlaces.of_this_process(ModuleType("__main__"), shipped)
    for name in ("packed_by_spark", "single_by_spark"):
        assert places.has(os.path.realpath(str(importlib.import_module(name).__file__))), name
    folder = os.path.realpath(SparkFiles.getRootDirectory())
    assert not places.has(f"{folder}/data_for_spark.zip/packed_by_spark.py")
    assert not places.has(f"{folder}/flinkish-requirements/package.py")


def test_jars_are_added_to_the_session_of_the_job(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("given.jar", "by-url.jar"):
        with zipfile.ZipFile(tmp_path / name, "w") as jar:
            jar.writestr("resource.txt", name)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_jars(str(tmp_path / "given.jar"))
    env.add_classpaths((tmp_path / "by-url.jar").as_uri())
    env.add_jars("file:///nowhere/flink-sql-connector-kafka-3.1.0-1.18.jar")
    ship(spark, configuration_of(env))
    jars = "\n".join(row[0] for row in spark.sql("LIST JARS").collect())
    assert "given.jar" in jars
    assert "by-url.jar" in jars
    env.add_jars(str(tmp_path / "absent.jar"))
    with pytest.raises(ConfigurationError, match=r"the jar '.*absent.jar' is not there"):
        ship(spark, configuration_of(env))


def test_what_cannot_be_shipped_is_refused_before_the_job_starts(spark: SparkSession, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    (tmp_path / "requirements.txt").write_text("no-such-package==1.0\n")
    (tmp_path / "wheels").mkdir()
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))
    with pytest.raises(ConfigurationError, match=r"(?s)cannot be installed.*no-such-package.*add what is missing"):
        ship(spark, configuration_of(env))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_python_archive(str(tmp_path / "requirements.txt"))
    with pytest.raises(ConfigurationError, match="is no archive.*a zip or tar file"):
        ship(spark, configuration_of(env))


def test_the_interpreter_cannot_be_chosen_when_spark_runs(spark: SparkSession) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_executable("/opt/other/python")
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match="'/opt/other/python' cannot be chosen any more.*PYSPARK_PYTHON"):
        env.execute()


WITH_ANOTHER_INTERPRETER = """
import os, sys
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment

configuration = Configuration().set_string("spark.master", "local[2]")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_python_executable(sys.argv[1])
with env.from_collection([1]).map(lambda _: os.environ.get("CHOSEN")).execute_and_collect() as found:
    print("found", list(found), flush=True)
"""


@pytest.mark.slow
def test_the_interpreter_of_the_workers_is_chosen_before_spark_starts(tmp_path: Path) -> None:
    chosen, program = tmp_path / "python", tmp_path / "program.py"
    chosen.write_text(f'#!/bin/sh\nCHOSEN=yes exec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    program.write_text(WITH_ANOTHER_INTERPRETER)
    with start_driver(program, str(chosen), log_file=tmp_path / "driver.log") as driver:
        driver.succeed(TIMEOUT_S)
        assert "found ['yes']" in driver.output()
