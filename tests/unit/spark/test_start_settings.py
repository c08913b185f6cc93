"""The settings of Spark that follow from ``taskmanager.*``, with the real options of a start and without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from flinkish.common.configuration import Configuration
from flinkish.errors import ConfigurationError
from flinkish.launch.options import SparkOptions
from flinkish.launch.spark_command import SparkCommand
from flinkish.spark.start_settings import refused_sizes, settings_of_start

CLUSTER, LOCAL = "spark://host:7077", "local[2]"
SIZE = "taskmanager.memory.process.size"
OF_1728M = {"spark.executor.memory": "511m", "spark.executor.memoryOverhead": "1217m"}


def settings(folder: Path, master: str, keys: Mapping[str, str], options: list[str]) -> dict[str, str]:
    """The settings with which Spark is started where the user gives it these options."""
    environment = {"HOME": str(folder), "FLINKISH_HOME": str(folder)}
    command = SparkCommand(environment, SparkOptions.parse(["--master", master, *options]))
    return settings_of_start(Configuration.from_dict(dict(keys)), command, command.master())


#: Master, keys and options -> settings.
TABLE: dict[str, tuple[str, dict[str, str], list[str], dict[str, str]]] = {
    "nothing is said": (CLUSTER, {}, [], {}),
    "only how much state is kept": (CLUSTER, {"taskmanager.memory.managed.size": "1g"}, [], {}),
    "a TaskManager on a cluster": (CLUSTER, {SIZE: "1728m"}, [], OF_1728M),
    "on Connect's local cluster": ("local-cluster[2,1,1024]", {SIZE: "1728m"}, [], OF_1728M),
    "a driver that is its own executor": (LOCAL, {SIZE: "1728m"}, [], {"spark.driver.memory": "511m"}),
    "Spark's own limit of Python is a part of the process": (
        CLUSTER,
        {SIZE: "1728m"},
        ["--conf", "spark.executor.pyspark.memory=512m"],
        {**OF_1728M, "spark.executor.memoryOverhead": "705m"},
    ),
    "so is its memory off the heap": (
        CLUSTER,
        {SIZE: "1728m"},
        ["--conf", "spark.memory.offHeap.enabled=true", "--conf", "spark.memory.offHeap.size=268435456"],
        {**OF_1728M, "spark.executor.memoryOverhead": "961m"},
    ),
    "Spark is told the same": (CLUSTER, {SIZE: "1728m"}, ["--executor-memory", "511m"], OF_1728M),
    "slots": (CLUSTER, {"taskmanager.numberOfTaskSlots": "4"}, [], {"spark.executor.cores": "4"}),
    "slots of two cores": (
        CLUSTER,
        {"taskmanager.numberOfTaskSlots": "4"},
        ["--conf", "spark.task.cpus=2"],
        {"spark.executor.cores": "8"},
    ),
    "slots beside Spark's own setting": (
        CLUSTER,
        {"taskmanager.numberOfTaskSlots": "4"},
        ["--executor-cores", "2"],
        {},
    ),
    "slots of a driver that is its own executor": (LOCAL, {"taskmanager.numberOfTaskSlots": "4"}, [], {}),
}


@pytest.mark.parametrize("case", TABLE)
def test_keys_of_task_managers_become_settings_of_spark(tmp_path: Path, case: str) -> None:
    master, keys, options, expected = TABLE[case]
    assert settings(tmp_path, master, keys, options) == expected


#: Master, keys and options -> what the error says.
REFUSED: dict[str, tuple[str, dict[str, str], list[str], list[str]]] = {
    "Spark is told something else": (
        CLUSTER,
        {SIZE: "1728m"},
        ["--executor-memory", "2g"],
        ["spark.executor.memory is 2g", "511m", f"'{SIZE}'"],
    ),
    "the same of the driver": (
        LOCAL,
        {SIZE: "1728m"},
        ["--conf", "spark.driver.memory=2g"],
        ["spark.driver.memory is 2g"],
    ),
    "a heap with which Spark does not start": (
        CLUSTER,
        {SIZE: "1300m"},
        [],
        ["at least 450 MiB", "'taskmanager.memory.task.heap.size'"],
    ),
    "more than the machine has": (LOCAL, {SIZE: "100 tb"}, [], ["100.000tb", "this machine has", f"'{SIZE}'"]),
    "a part that is larger than the whole": (
        CLUSTER,
        {SIZE: "1728m"},
        ["--conf", "spark.executor.pyspark.memory=2g"],
        ["spark.executor.pyspark.memory 2048 MiB", f"'{SIZE}'"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_its_key(tmp_path: Path, case: str) -> None:
    master, keys, options, said = REFUSED[case]
    with pytest.raises(ConfigurationError) as raised:
        settings(tmp_path, master, keys, options)
    for part in said:
        assert part in raised.value.message


#: What Spark 4 has said, with local-cluster[2,1,900], spark.executor.memory=400m and spark.driver.memory=300m.
SAID = {
    "SparkException: Asked to launch cluster with 900 MiB/worker but requested 1024 MiB/executor": True,
    "IllegalArgumentException: [INVALID_EXECUTOR_MEMORY] Executor memory 419430400 must be at least 471859200.": True,
    "IllegalArgumentException: [INVALID_DRIVER_MEMORY] System memory 304087040 must be at least 471859200.": True,
    "java.net.BindException: Address already in use": False,
}


@pytest.mark.parametrize("said", SAID)
def test_sizes_with_which_spark_does_not_start_are_told_in_one_line(said: str) -> None:
    found = refused_sizes(RuntimeError(f"An error occurred.\n: org.apache.spark.{said}\n\tat org.apache.spark.Main"))
    assert (found is not None) == SAID[said]
    if found is not None:
        assert said.partition("Exception: ")[2].rpartition("] ")[2] in found.message
        assert "\n" not in found.message and "spark.executor.memory" in found.message and not found.retryable


def test_a_cluster_may_have_more_memory_than_the_drivers_machine(tmp_path: Path) -> None:
    assert settings(tmp_path, CLUSTER, {SIZE: "100 tb"}, [])


def test_the_areas_are_logged_where_they_hold(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    settings(tmp_path, LOCAL, {SIZE: "1728m"}, [])
    assert "Final TaskExecutor Memory configuration:" in caplog.messages
    assert "        Task:                    384.000mb (402653174 bytes)" in caplog.messages


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "two"])
def test_a_number_of_slots_below_one_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"taskmanager\.numberOfTaskSlots"):
        Configuration.from_dict({"taskmanager.numberOfTaskSlots": text}).validate()
