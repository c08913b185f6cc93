"""Whatever fails at whatever named phase: after a restart the results are those of a run without a fault."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.checkpoint import writer as incremental
from flinkish.common.job_status import JobStatus
from flinkish.errors import FlinkishError
from flinkish.runtime.phases import Phase
from tests.integration.engine import counting_job
from tests.integration.engine.checkpointed_job import (
    of_status,
    rows_of,
    start_changing,
    stop_with_both,
    wait_for_all_checkpoints,
    wait_for_checkpoints,
)
from tests.integration.engine.collecting import collecting
from tests.integration.engine.counting_job import (
    PER_EPOCH,
    RECORDS,
    build,
    expected,
    in_database,
    make_tables,
    windows_expected,
)
from tests.support import faults
from tests.support.processes import ProcessGroup, start_driver

TIMEOUT_S = 180
#: Records of a job that fails once: two epochs go before that one, and one comes after it.
FEW = 4 * PER_EPOCH


@dataclass(frozen=True)
class Case:
    """How a phase is tried: in the shared session (a worker, or the driver that raises), or in a driver of its own."""

    phase: Phase
    how: str
    apart: bool = False
    delta: bool = False

    def __str__(self) -> str:
        return f"{self.how} at {self.phase.value}" + (" of Delta" if self.delta else "")


#: A worker that is killed takes no driver with it.
IN_WORKERS = [
    Case(phase, how)
    for phase in (
        Phase.SOURCES_READ,
        Phase.LEVEL_PROCESSED,
        Phase.STATE_WRITTEN,
        Phase.COMMITTABLES_WRITTEN,
        Phase.COMMIT_BEGUN,
        Phase.SINK_COMMITTED,
    )
    for how in ("raise", "kill")
]
IN_DRIVER = [
    Case(Phase.PLANNED, "raise"),
    Case(Phase.METADATA_COMMITTED, "raise"),
    Case(Phase.CLEANED_UP, "raise"),
    Case(Phase.EPOCH_PREPARED, "raise"),
    Case(Phase.COMMIT_BEGUN, "raise", delta=True),
    Case(Phase.SINK_COMMITTED, "raise", delta=True),
]
#: Tried by `./run-tests.sh --slow` only.
SLOW = [case for case in IN_WORKERS if case.how == "raise"][1:]
SLOW += [
    Case(phase, "kill")
    for phase in (Phase.SOURCES_READ, Phase.LEVEL_PROCESSED, Phase.COMMITTABLES_WRITTEN, Phase.COMMIT_BEGUN)
]
SLOW += [Case(phase, "raise") for phase in (Phase.PLANNED, Phase.EPOCH_PREPARED, Phase.CLEANED_UP)]
SLOW += [Case(phase, "raise", delta=True) for phase in (Phase.COMMIT_BEGUN, Phase.SINK_COMMITTED)]
#: A worker that is killed behind it takes more harm.
NIGHTLY = [Case(Phase.SOURCES_READ, "raise")]
OF_SAVEPOINTS = [
    Case(phase, "raise") for phase in (Phase.SAVEPOINT_READ, Phase.SAVEPOINT_WRITTEN, Phase.SAVEPOINT_COMPLETED)
]
OF_RESTORES = [Case(phase, "raise") for phase in (Phase.RESTORE_PREPARED, Phase.RESTORE_APPLIED)]
OF_CHECKPOINTS = [
    Case(phase, "raise") for phase in (Phase.CHECKPOINT_READ, Phase.CHECKPOINT_WRITTEN, Phase.CHECKPOINT_COMPLETED)
]
OF_DRAINS = [Case(phase, "raise") for phase in (Phase.DRAIN_BEGUN, Phase.DRAIN_PREPARED, Phase.DRAIN_DONE)]
OF_FALLBACKS = [Case(phase, "raise") for phase in (Phase.FALLBACK_PREPARED, Phase.FALLBACK_DONE)]
OF_UPGRADES = [Case(phase, "raise") for phase in (Phase.UPGRADE_PREPARED, Phase.UPGRADE_WRITTEN, Phase.UPGRADE_DONE)]
#: One driver after the other, on the same job.
KILLED_DRIVERS = [
    Case(phase, "kill", True)
    for phase in (Phase.PLANNED, Phase.EPOCH_PREPARED, Phase.METADATA_COMMITTED, Phase.CLEANED_UP)
]
KILLED_SAVEPOINTS = [Case(case.phase, "kill", True) for case in OF_SAVEPOINTS]
KILLED_RESTORES = [Case(case.phase, "kill", True) for case in OF_RESTORES]
KILLED_CHECKPOINTS = [Case(case.phase, "kill", True) for case in OF_CHECKPOINTS]
KILLED_DRAINS = [Case(case.phase, "kill", True) for case in OF_DRAINS]
KILLED_FALLBACKS = [Case(case.phase, "kill", True) for case in OF_FALLBACKS]
KILLED_UPGRADES = [Case(case.phase, "kill", True) for case in OF_UPGRADES]


def test_every_phase_has_a_case_that_raises_and_one_that_kills() -> None:
    cases = [*IN_WORKERS, *IN_DRIVER, *OF_SAVEPOINTS, *OF_RESTORES]
    cases += [*KILLED_DRIVERS, *KILLED_SAVEPOINTS, *KILLED_RESTORES]
    # test_faults_of_recoveries.py
    cases += [*OF_DRAINS, *OF_FALLBACKS, *KILLED_DRAINS, *KILLED_FALLBACKS]
    # test_upgrades.py
    cases += [*OF_UPGRADES, *KILLED_UPGRADES]
    cases += [*OF_CHECKPOINTS, *KILLED_CHECKPOINTS]
    # tests/unit/jobmanager/test_killed_steps.py
    cases += [Case(Phase.STEP_DECIDED, "raise"), Case(Phase.STEP_DECIDED, "kill", True)]
    tried = {(case.phase, case.how) for case in cases}
    assert tried == {(phase, how) for phase in Phase for how in ("raise", "kill")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tables(tmp_path)
    return tmp_path


def assert_right(folder: Path, records: int = RECORDS) -> None:
    assert in_database(folder) == expected(records)
    assert in_database(folder, "windows") == windows_expected(records)


def drive(folder: Path, log: str = "driver.log", **options: Any) -> ProcessGroup:
    """A driver process of its own."""
    script = Path(counting_job.__file__)
    return start_driver(script, json.dumps({"folder": str(folder), **options}), log_file=folder / log)


def assert_killed(driver: ProcessGroup, plan: Path) -> None:
    """It runs until the planned fault kills it."""
    with driver:
        driver.end_with(-9, TIMEOUT_S)
    assert faults.happened(plan), driver.output()


#: In the ordinary run a worker is killed before the barrier and behind it, where it has written most, and the driver
#: fails behind it; what only raises there takes less harm.
ORDINARY = [case for case in (*IN_WORKERS, *IN_DRIVER) if case not in (*SLOW, *NIGHTLY)]


@pytest.mark.parametrize(
    "case",
    [
        *ORDINARY,
        *(pytest.param(case, marks=pytest.mark.nightly) for case in NIGHTLY),
        *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW),
    ],
    ids=str,
)
def test_after_a_fault_the_job_goes_on_and_its_results_are_right(
    spark: SparkSession, folder: Path, fault_plan: Path, case: Case
) -> None:
    # Delta's phases are passed in the driver after those of the other sinks, in the workers
    faults.plan_fault(fault_plan, case.phase, case.how, epoch=2, pid=os.getpid() if case.delta else None)
    with pytest.raises(FlinkishError) as caught:
        build(folder, delta=case.delta, records=FEW).execute("faulty")
    assert faults.happened(fault_plan)
    if case.how == "raise":
        assert f"injected at {case.phase.value}" in str(caught.value)
    faults.no_fault(fault_plan)
    build(folder, delta=case.delta, records=FEW).execute("faulty")
    assert_right(folder, FEW)
    if case.delta:
        table = spark.read.format("delta").load(str(folder / "table"))
        assert sorted(tuple(row) for row in table.collect()) == expected(FEW)


@pytest.mark.slow
def test_a_driver_that_is_killed_at_each_of_its_phases_in_turn_loses_and_doubles_nothing(
    spark: SparkSession, folder: Path, fault_plan: Path
) -> None:
    for case in KILLED_DRIVERS:
        faults.plan_fault(fault_plan, case.phase, "kill", epoch=1)
        assert_killed(drive(folder), fault_plan)
    faults.no_fault(fault_plan)
    build(folder).execute("counting")
    assert_right(folder)


@pytest.fixture
def half_done(spark: SparkSession, folder: Path) -> str:
    """A job that was stopped with a savepoint half way; the path of the savepoint."""
    client = build(folder, "first").execute_async("counting")
    while client.run.last_epoch is None:
        assert not client.get_job_execution_result().done()
    return str(client.stop_with_savepoint(False, str(folder / "savepoints")).result(TIMEOUT_S))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(OF_SAVEPOINTS[1], marks=pytest.mark.nightly),
        *(pytest.param(case, marks=pytest.mark.slow) for case in OF_SAVEPOINTS[::2]),
    ],
    ids=str,
)
def test_a_stop_whose_savepoint_fails_leaves_no_savepoint_and_a_job_that_goes_on(
    spark: SparkSession, folder: Path, fault_plan: Path, case: Case
) -> None:
    faults.plan_fault(fault_plan, case.phase, "raise")
    client = build(folder).execute_async("counting")
    while client.run.last_epoch is None:
        assert not client.get_job_execution_result().done()
    savepoint = client.stop_with_savepoint(False, str(folder / "savepoints"))
    with pytest.raises(Exception, match=f"injected at {case.phase.value}"):
        savepoint.result(TIMEOUT_S)
    client.get_job_execution_result().result(TIMEOUT_S)
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert_right(folder)
    left = list((folder / "savepoints").iterdir())
    assert len(left) == (case.phase is Phase.SAVEPOINT_COMPLETED)


def test_a_restore_that_fails_begins_again_whichever_of_its_phases_it_was(
    spark: SparkSession, folder: Path, half_done: str, fault_plan: Path
) -> None:
    def restored() -> Any:
        return build(folder, "second", execution__state_recovery__path=half_done)

    for case in OF_RESTORES:
        faults.plan_fault(fault_plan, case.phase, "raise")
        with pytest.raises(Exception, match=f"injected at {case.phase.value}"):
            restored().execute("counting")
    faults.no_fault(fault_plan)
    restored().execute("counting")
    assert_right(folder)


@pytest.mark.slow
def test_drivers_that_are_killed_while_they_write_and_restore_savepoints_leave_a_job_that_goes_on(
    spark: SparkSession, folder: Path, half_done: str, fault_plan: Path
) -> None:
    for case in KILLED_RESTORES:
        faults.plan_fault(fault_plan, case.phase, "kill")
        assert_killed(drive(folder, job="second", restore=half_done), fault_plan)
    for case in KILLED_SAVEPOINTS:
        faults.plan_fault(fault_plan, case.phase, "kill")
        options: dict[str, Any] = {"restore": half_done, "savepoint": str(folder / case.phase.name), "slow_s": 1}
        assert_killed(drive(folder, job="second", **options), fault_plan)
    faults.no_fault(fault_plan)
    build(folder, "second", execution__state_recovery__path=half_done).execute("counting")
    assert_right(folder)
    left = [
        path.name
        for path in (folder / "second").iterdir()
        if re.fullmatch(r"restore(-\d+)?|\..+\.[0-9a-f]{32}", path.name)
    ]
    assert len(left) == 1, "the rows that the job has begun with"
    saved = [list((folder / case.phase.name).glob("savepoint-*")) for case in KILLED_SAVEPOINTS]
    assert [len(paths) for paths in saved] == [0, 0, 1], "the next start has removed the part of the second one"
    assert all((path / "manifest.json").exists() for paths in saved for path in paths)


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(OF_CHECKPOINTS[1:2], marks=pytest.mark.nightly),
        pytest.param(OF_CHECKPOINTS, marks=pytest.mark.slow),
    ],
    ids=["written", "all"],
)
def test_a_checkpoint_that_fails_fails_the_job_which_is_restarted_and_mends_it(
    spark: SparkSession, tmp_path: Path, fault_plan: Path, monkeypatch: pytest.MonkeyPatch, cases: list[Case]
) -> None:
    monkeypatch.setattr(incremental, "SMALL_STATE_ROWS", 0)
    strategy = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__delay": "10 ms"}
    with collecting() as collected:
        client = start_changing(collected, tmp_path, restart_strategy__fixed_delay__attempts=9, **strategy)
        for number, case in enumerate(cases):
            wait_for_checkpoints(client, 1)
            faults.plan_fault(fault_plan, case.phase, "raise")
            failed = wait_for_all_checkpoints(client, number + 1, "FAILED")[number]
            assert f"injected at {case.phase.value}" in failed.failure_reason
        # not only what is left of the failed attempt: a request to stop would fail with that
        wait_for_checkpoints(client, 2)
        checkpoint, savepoint = stop_with_both(client)
    rows = rows_of(spark, checkpoint)
    assert rows == rows_of(spark, savepoint)
    kinds = {row[2] for row in rows}
    assert kinds == {"value", "list", "map", "reducing", "EVENT_TIME", "PROCESSING_TIME", "__watermark__"}
    assert len(of_status(client, "FAILED")) == len(cases) and of_status(client, "COMPLETED")[-1].incremental


@pytest.mark.slow
def test_drivers_that_are_killed_while_they_take_checkpoints_leave_a_job_that_goes_on(
    spark: SparkSession, folder: Path, fault_plan: Path
) -> None:
    for case in KILLED_CHECKPOINTS:
        faults.plan_fault(fault_plan, case.phase, "kill")
        settings = {"execution__checkpointing__interval": "50 ms"}
        assert_killed(drive(folder, settings=settings, slow_s=10), fault_plan)
    faults.no_fault(fault_plan)
    build(folder, execution__checkpointing__interval="50 ms").execute("counting")
    assert_right(folder)


@pytest.mark.slow
def test_a_task_that_fails_once_is_tried_again_by_spark(folder: Path, fault_plan: Path) -> None:
    for number, phase in enumerate((Phase.LEVEL_PROCESSED, Phase.SINK_COMMITTED)):
        faults.plan_fault(fault_plan, phase, "raise", epoch=2)
        with drive(folder, master="local[2,4]", job=f"job{number}") as driver:
            driver.succeed(TIMEOUT_S)
        assert faults.happened(fault_plan)
        assert_right(folder)
        (folder / "out.db").unlink()
        make_tables(folder)
