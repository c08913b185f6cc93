"""Which Python a JVM starts that a program has started."""

from __future__ import annotations

import sys

import pytest

from flinkish.launch.options import SparkOptions
from flinkish.launch.spark_command import SparkCommand

VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def pythons(environment: dict[str, str], *options: tuple[str, str]) -> list[str | None]:
    variables = SparkCommand(environment, SparkOptions(options)).jvm_environment([])
    return [variables.get(name) for name in VARIABLES]


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_a_local_jvm_starts_the_python_of_the_program(master: str) -> None:
    assert pythons({}, ("--master", master)) == [sys.executable, sys.executable]


def test_an_interpreter_that_the_environment_names_is_kept() -> None:
    assert pythons({"PYSPARK_PYTHON": "/opt/python"}) == ["/opt/python", sys.executable]


CLUSTER = ("--master", "spark://host:7077")


@pytest.mark.parametrize(
    ("environment", "options", "expected"),
    [
        ({}, [], [sys.executable, sys.executable]),
        ({"PYSPARK_PYTHON": "/opt/python"}, [], ["/opt/python", sys.executable]),
        ({}, [("--conf", "spark.pyspark.python=/opt/python")], ["/opt/python", sys.executable]),
        ({}, [("--deploy-mode", "cluster")], [None, None]),
    ],
)
def test_the_workers_of_a_cluster_run_the_python_of_the_program_unless_another_one_is_named(
    environment: dict[str, str], options: list[tuple[str, str]], expected: list[str | None]
) -> None:
    assert pythons(environment, CLUSTER, *options) == expected
