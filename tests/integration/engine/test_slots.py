"""Slots and memory of real executors: those that come are used, and a job that finds none says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from psutil import Process  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from flinkish.common.configuration import Configuration
from flinkish.spark.resources import memory_of, slots_for_parallelism, slots_of
from tests.integration.engine import slots_job
from tests.support.local_cluster import executor_pids
from tests.support.processes import ProcessGroup, start_driver

TIMEOUT_S = 600


def started(folder: Path, settings: dict[str, str]) -> ProcessGroup:
    """The driver of the job."""
    options = json.dumps({"folder": str(folder), "settings": settings})
    return start_driver(Path(slots_job.__file__), options, log_file=folder / "driver.log")


def seen(driver: ProcessGroup, stage: str) -> dict[str, Any]:
    """What the job has described at this stage."""
    line = driver.wait_for_line(rf'^seen (\{{"stage": "{stage}".*)$', TIMEOUT_S)
    described: dict[str, Any] = json.loads(line[1])
    return described


@pytest.mark.nightly
def test_an_executor_that_comes_is_used_without_a_restart_and_has_the_memory_of_a_task_manager(tmp_path: Path) -> None:
    allocation = {"enabled": "true", "initialExecutors": "1", "minExecutors": "1", "maxExecutors": "2"}
    settings = {"spark.master": "local-cluster[2,1,1024]", "taskmanager.memory.process.size": "1728m"}
    settings |= {f"spark.dynamicAllocation.{key}": value for key, value in allocation.items()}
    with started(tmp_path, settings) as driver:
        one = seen(driver, "one")
        assert one["slots"][:3] == [2, 1, 2]
        assert "they run in 2 waves" in one["slots"][3]
        # nobody has set it: it is that of all executors that may come
        assert one["parallelism"] == [2, 2]
        heaps = {argument for pid in executor_pids(driver) for argument in Process(pid).cmdline() if "-Xmx" in argument}
        assert heaps == {"-Xmx511M"}
        two = seen(driver, "two")
        driver.succeed(TIMEOUT_S)
    assert two["slots"] == [2, 2, 1, ""]
    assert (two["attempts"], two["warnings"]) == (1, [])


@pytest.mark.nightly
def test_a_job_that_finds_no_slot_is_created_and_fails_in_time(tmp_path: Path) -> None:
    settings = {"spark.master": "local-cluster[1,1,1024]", "spark.executor.memory": "512m", "spark.executor.cores": "2"}
    settings |= {"slot.request.timeout": "3 s", "parallelism.default": "4"}
    with started(tmp_path, settings) as driver:
        # one that a supervisor is to start again
        assert driver.wait(TIMEOUT_S) == 75
        said = driver.output()
    assert "INITIALIZING -> CREATED (waits for slots: needs 4, has 0)" in said
    assert "NoResourceAvailableError: there are no task slots after 3 s: the job needs 4" in said


def test_a_session_that_runs_already_says_its_slots_and_its_memory(spark: SparkSession) -> None:
    slots = slots_of(spark)
    assert slots is not None
    assert (slots.present, slots.executors) == (2, {2: 1})
    assert slots_for_parallelism(spark, slots, lambda: False) == 2
    memory, said = memory_of(spark, Configuration())
    assert memory is not None
    # the heap is what its JVM says, and what nobody limits is not known
    assert memory.task_heap is not None
    assert memory.task_heap > 100 << 20
    assert (memory.process, memory.jvm_overhead, memory.origin, said) == (None, None, "Spark's settings", "")


def test_sizes_with_which_a_session_was_not_started_have_no_effect_and_that_is_said(spark: SparkSession) -> None:
    wanted = Configuration.from_dict({"taskmanager.memory.process.size": "100g"})
    memory, said = memory_of(spark, wanted)
    assert memory is not None
    assert memory.origin == "Spark's settings"
    assert "taskmanager.memory.* have no effect" in said
