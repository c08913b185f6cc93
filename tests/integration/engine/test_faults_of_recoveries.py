"""Faults in the midst of a drain or of a fallback to a checkpoint: the next driver ends what has begun."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import JobStatus
from tests.integration.engine.counting_job import (
    RECORDS,
    build,
    expected,
    in_database,
    make_tables,
    windows_expected,
)
from tests.integration.engine.test_faults import (
    KILLED_DRAINS,
    KILLED_FALLBACKS,
    OF_DRAINS,
    OF_FALLBACKS,
    TIMEOUT_S,
    assert_killed,
    assert_right,
    drive,
)
from tests.support import faults
from tests.support.processes import wait_until


def assert_drained(folder: Path) -> None:
    """What was read before the stop, as if it had ended there; and it is at its end."""
    counts = in_database(folder)
    assert 0 < len(counts) < RECORDS
    assert counts == expected(len(counts))
    assert in_database(folder, "windows") == windows_expected(len(counts))
    assert (folder / "job" / "ended.json").exists()


def test_a_drain_that_fails_at_each_of_its_phases_is_ended_by_the_next_start(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    make_tables(tmp_path)
    first, *others = OF_DRAINS
    faults.plan_fault(fault_plan, first.phase, first.how)
    client = build(tmp_path, slow_s=0.5).execute_async("counting")
    wait_until(lambda: client.run.last_epoch is not None, TIMEOUT_S, "an epoch")
    with pytest.raises(Exception, match=f"injected at {first.phase.value}"):
        client.stop_with_savepoint(True, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    for case in others:
        faults.plan_fault(fault_plan, case.phase, case.how)
        with pytest.raises(Exception, match=f"injected at {case.phase.value}"):
            build(tmp_path).execute("counting")
    faults.no_fault(fault_plan)
    build(tmp_path).execute("counting")
    assert_drained(tmp_path)
    assert len(list((tmp_path / "savepoints").glob("*/manifest.json"))) == 1


@pytest.mark.slow
def test_drivers_that_are_killed_in_a_drain_leave_it_to_the_next_one(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    make_tables(tmp_path)
    for number, case in enumerate(KILLED_DRAINS):
        faults.plan_fault(fault_plan, case.phase, case.how)
        options: dict[str, Any] = (
            {"savepoint": str(tmp_path / "savepoints"), "drain": True, "slow_s": 1} if number == 0 else {}
        )
        assert_killed(drive(tmp_path, **options), fault_plan)
    faults.no_fault(fault_plan)
    build(tmp_path).execute("counting")
    assert_drained(tmp_path)


def damaged(folder: Path) -> None:
    """A job that was stopped half way with a checkpoint of its last epoch, and has then lost state."""
    folder.mkdir()
    make_tables(folder)
    client = build(folder, execution__checkpointing__interval="1 ms").execute_async("counting")
    wait_until(lambda: (client.run.last_epoch or 0) >= 1 or client.run.result.done(), TIMEOUT_S, "epochs")
    client.run.request_stop(JobStatus.SUSPENDED, "a signal")
    client.get_job_execution_result().result(TIMEOUT_S)
    partition = folder / "job" / "spark" / "state" / "0" / "0"
    max(partition.glob("*.delta"), key=lambda path: int(path.stem)).unlink()


@pytest.mark.slow
def test_a_fallback_that_fails_or_is_killed_at_each_of_its_phases_is_ended_by_the_next_start(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    damaged(tmp_path / "raised")
    shutil.copytree(tmp_path / "raised", tmp_path / "killed")
    for case in OF_FALLBACKS:
        faults.plan_fault(fault_plan, case.phase, case.how)
        with pytest.raises(Exception, match=f"injected at {case.phase.value}"):
            build(tmp_path / "raised").execute("counting")
    for case in KILLED_FALLBACKS:
        faults.plan_fault(fault_plan, case.phase, case.how)
        assert_killed(drive(tmp_path / "killed"), fault_plan)
    faults.no_fault(fault_plan)
    for folder in (tmp_path / "raised", tmp_path / "killed"):
        build(folder).execute("counting")
        assert_right(folder)
