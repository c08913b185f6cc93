"""An epoch that takes for ever is given up: the next start plans it anew, and nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from flinkish.common.job_client import JobClient
from flinkish.common.job_status import JobStatus
from flinkish.error_display import ExitCode
from flinkish.errors import EpochTimeoutError
from flinkish.jobmanager.requests import ask
from flinkish.runtime.phases import Phase
from tests.integration.engine import slow_job
from tests.integration.engine.counting_job import expected, in_database, make_tables
from tests.integration.engine.slow_job import FAST, RECORDS, build, write_file
from tests.support import faults
from tests.support.epoch_reports import execute_observed, reports_of
from tests.support.processes import ProcessGroup, start_driver, wait_until

TIMEOUT_S = 120


def working(folder: Path) -> list[int]:
    """The processes in which a slow record has begun."""
    return [int(path.name.split("-")[1]) for path in folder.glob("working-*")]


def drive(folder: Path, **options: Any) -> ProcessGroup:
    """A driver of its own, which will come to an epoch that takes for ever."""
    make_tables(folder)
    described = json.dumps({"folder": str(folder), "slow_s": 600, **options})
    return start_driver(Path(slow_job.__file__), described, log_file=folder / "driver.log")


def planned(folder: Path) -> list[int]:
    """The epochs in the log of the query, of which the last ten are kept."""
    return sorted(int(path.name) for path in (folder / "job/spark/offsets").iterdir() if path.name.isdigit())


def hung(folder: Path, **more: Any) -> JobClient:
    """A job in this process whose second epoch takes for ever, and has begun."""
    limit = {"flinkish__epoch__max_records_per_source": FAST}
    client = build(folder, 600, **limit, **more).execute_async("slow")
    wait_until(lambda: working(folder), TIMEOUT_S, "the slow epoch")
    assert in_database(folder) == expected(FAST)
    return client


def assert_workers_end(folder: Path) -> None:
    """The processes that sleep in user code do not stay behind and hold a core."""
    assert working(folder)
    wait_until(lambda: not any(map(psutil.pid_exists, working(folder))), 30, "the end of the workers")


def assert_goes_on(folder: Path, first_epoch: int = 1, **more: Any) -> None:
    """Started again with smaller limits, the job does what is left, and nothing else."""
    client = execute_observed(build(folder, 0.01, flinkish__epoch__max_records_per_source=14, **more), "slow")
    client.get_job_execution_result().result(TIMEOUT_S)
    assert in_database(folder) == expected(RECORDS)
    assert [report.epoch for report in reports_of(client.run)] == list(
        range(first_epoch, first_epoch + RECORDS // FAST - 1)
    )


def test_a_cancel_ends_an_epoch_that_takes_for_ever(spark: SparkSession, tmp_path: Path) -> None:
    client = hung(tmp_path)
    asked = time.monotonic()
    described = ask(str(tmp_path / "job"), "describe", TIMEOUT_S)
    assert described["status"] == "RUNNING"
    ask(str(tmp_path / "job"), "cancel", TIMEOUT_S)
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert time.monotonic() - asked < 60, "not the ten minutes of the epoch"
    client.get_job_execution_result().result(TIMEOUT_S)
    assert_workers_end(tmp_path)
    assert in_database(tmp_path) == expected(FAST)


def test_an_epoch_that_takes_too_long_fails_and_is_planned_anew_by_the_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    restarts = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__attempts": "99"}
    client = build(tmp_path, 600, flinkish__epoch__timeout="5 s", **restarts).execute_async("slow")
    wait_until(lambda: working(tmp_path), TIMEOUT_S, "the slow epoch")
    (tmp_path / "mended").touch()
    client.get_job_execution_result().result(TIMEOUT_S)
    assert_workers_end(tmp_path)
    assert in_database(tmp_path) == expected(RECORDS)
    told = [failure.message for failure in client.describe().exceptions]
    assert told and all("epoch 0 has not ended within 5 s (flinkish.epoch.timeout)" in text for text in told)


def in_a_commit(folder: Path, plan: Path, **more: Any) -> JobClient:
    """A job in this process that has begun to commit its second epoch, and does not get on with it."""
    faults.plan_fault(plan, Phase.COMMIT_BEGUN, "wait", epoch=1)
    client = build(folder, flinkish__epoch__max_records_per_source=FAST, **more).execute_async("slow")
    wait_until(lambda: faults.happened(plan), TIMEOUT_S, "the commit")
    return client


def test_a_cancel_waits_for_a_commit_that_has_begun(spark: SparkSession, tmp_path: Path, fault_plan: Path) -> None:
    client = in_a_commit(tmp_path, fault_plan)
    cancelled = client.cancel()
    time.sleep(1)
    assert not cancelled.done() and client.get_job_status().result() is JobStatus.CANCELLING
    faults.go_on(fault_plan)
    cancelled.result(TIMEOUT_S)
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert in_database(tmp_path) == expected(2 * FAST)


@pytest.mark.slow
def test_a_commit_that_hangs_is_broken_off_and_the_next_start_commits_it(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    short = {"flinkish__shutdown__timeout": "2 s", "task__cancellation__timeout": "2 s"}
    client = in_a_commit(tmp_path, fault_plan, **short)
    client.run.request_stop(JobStatus.SUSPENDED)
    client.get_job_execution_result().result(TIMEOUT_S)
    assert client.get_job_status().result() is JobStatus.SUSPENDED
    assert FAST <= len(in_database(tmp_path)) < 2 * FAST, "the other subtask has committed its part"
    faults.no_fault(fault_plan)
    build(tmp_path).execute("slow")
    assert in_database(tmp_path) == expected(RECORDS)


@pytest.mark.slow
def test_the_first_epoch_of_a_delta_table_is_planned_anew_from_the_table_as_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    spark.range(RECORDS - 1, RECORDS, 1, 1).toDF("n").write.format("delta").save(table)
    with pytest.raises(EpochTimeoutError):
        build(tmp_path, 600, delta=table, flinkish__epoch__timeout="5 s").execute("slow")
    assert working(tmp_path) and planned(tmp_path) == [0]
    spark.range(0, RECORDS - 1, 1, 5).toDF("n").write.format("delta").mode("append").save(table)
    build(tmp_path, 0, delta=table, flinkish__epoch__max_bytes_per_source=1).execute("slow")
    assert in_database(tmp_path) == expected(RECORDS)
    assert planned(tmp_path)[-1] > 3, "one file to an epoch"


@pytest.mark.slow
def test_a_stop_gives_a_long_epoch_up_and_saves_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    client = hung(tmp_path, execution__checkpointing__timeout="30 s")
    savepoint = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert_goes_on(tmp_path, 0, job="another", execution__state_recovery__path=savepoint)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGTERM", "cancel and SIGTERM"])
def test_a_driver_that_is_asked_to_end_in_a_long_epoch_exits_as_if_it_were_a_short_one(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    limit = {"flinkish__epoch__max_records_per_source": FAST, "flinkish__shutdown__timeout": "20 s"}
    with drive(tmp_path, settings=limit) as driver:
        driver.wait_for(lambda: working(tmp_path), TIMEOUT_S, "the slow epoch")
        if how != "SIGTERM":
            threading.Thread(target=ask, args=(str(tmp_path / "job"), "cancel", TIMEOUT_S)).start()
            time.sleep(0.3)
        os.kill(driver.pid, signal.SIGTERM)
        driver.end_with(ExitCode.STOPPED, 60)
    assert in_database(tmp_path) == expected(FAST)
    if how == "SIGTERM":
        assert_goes_on(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fast", [0, FAST], ids=["first epoch", "later epoch"])
def test_after_a_kill_a_start_with_smaller_limits_plans_the_epoch_anew(
    spark: SparkSession, tmp_path: Path, fast: int
) -> None:
    limit = {"flinkish__epoch__max_records_per_source": FAST} if fast else {}
    with drive(tmp_path, settings=limit) as driver:
        driver.wait_for(lambda: working(tmp_path), TIMEOUT_S, "the slow epoch")
        assert in_database(tmp_path) == expected(fast)
        assert planned(tmp_path) == list(range(1 + bool(fast)))
        driver.kill()
    build(tmp_path, 0.01, flinkish__epoch__max_records_per_source=7).execute("slow")
    assert in_database(tmp_path) == expected(RECORDS)
    assert planned(tmp_path)[-1] == bool(fast) + (RECORDS - fast) // 7 - 1


@pytest.mark.slow
def test_files_that_spark_has_listed_for_the_epoch_are_listed_anew(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path, 0, FAST)
    with drive(tmp_path, files=100) as driver:
        driver.wait_for(lambda: in_database(tmp_path) == expected(FAST), TIMEOUT_S, "the fast epoch")
        for first in range(FAST, RECORDS, 7):
            write_file(tmp_path, first, first + 7)
        driver.wait_for(lambda: working(tmp_path), TIMEOUT_S, "the slow epoch")
        driver.kill()
    client = execute_observed(build(tmp_path, 0.01, files=1), "slow")
    wait_until(lambda: len(in_database(tmp_path)) >= RECORDS, TIMEOUT_S, "all records")
    client.cancel().result(TIMEOUT_S)
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert in_database(tmp_path) == expected(RECORDS)
    read = [report.records_in for report in reports_of(client.run) if report.records_in]
    assert read == [7] * len(read)
