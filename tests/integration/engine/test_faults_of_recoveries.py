"""Faults in the midst of a drain or of a fallback to a checkpoint: the next driver ends what has begun."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import JobStatus
from flinkish.runtime.phases import Phase
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
    KILLED_SAVEPOINTS,
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


#: What each driver of a row is killed at. Behind a phase, the next one has a JVM in which no query has run.
OF_ENDS = {case.phase: case for case in (*KILLED_DRAINS, *KILLED_SAVEPOINTS)}
IN_EPOCHS = (Phase.SOURCES_READ, Phase.STATE_WRITTEN, Phase.EPOCH_PREPARED, Phase.SINK_COMMITTED, Phase.CLEANED_UP)


@dataclass(frozen=True)
class KilledEnd:
    """``how``: what the first driver was asked for; ``phases``: at which ones drivers are killed, one after the
    other; a text is a step of the job."""

    how: str
    phases: tuple[Phase | str, ...]

    def __str__(self) -> str:
        named = (phase if isinstance(phase, str) else phase.value for phase in self.phases)
        return f"{self.how}, killed at {' then '.join(named)}"

    @property
    def drains(self) -> bool:
        """Whether the drain had begun when the first driver was killed."""
        return self.how == "drain" and self.phases[0] != "BeginDrain"

    def options(self, folder: Path) -> dict[str, Any]:
        """Those of the first driver."""
        return {
            "savepoint": str(folder / "savepoints"),
            "slow_s": 1,
            **({} if self.how == "stop" else {self.how: True}),
        }


def killed_ends() -> list[Any]:
    """All phases of a savepoint, a stop and a drain; those of a drain at which a second driver can be killed as well
    twice."""
    nightly = KilledEnd("drain", (Phase.DRAIN_PREPARED,))
    rows = [KilledEnd("drain", ("BeginDrain",)), KilledEnd("drain", (Phase.DRAIN_PREPARED, Phase.DRAIN_DONE))]
    rows += [KilledEnd("drain", (Phase.DRAIN_BEGUN, Phase.DRAIN_PREPARED, Phase.DRAIN_PREPARED, Phase.DRAIN_DONE))]
    rows += [KilledEnd("drain", (Phase.DRAIN_PREPARED, phase, Phase.DRAIN_DONE)) for phase in IN_EPOCHS]
    savepoints = [case.phase for case in KILLED_SAVEPOINTS]
    rows += [KilledEnd("drain", (Phase.DRAIN_DONE, phase, phase)) for phase in savepoints]
    rows += [KilledEnd(how, (phase,)) for how in ("stop", "go_on") for phase in savepoints]
    return [
        pytest.param(nightly, marks=pytest.mark.nightly),
        *(pytest.param(row, marks=pytest.mark.slow) for row in rows),
    ]


def test_each_phase_of_savepoint_stop_and_drain_is_one_at_which_drivers_are_killed() -> None:
    rows = [row.values[0] for row in killed_ends()]
    assert {phase for row in rows for phase in row.phases} == {*OF_ENDS, *IN_EPOCHS, "BeginDrain"}


def kill_at(plan: Path, phase: Phase | str) -> None:
    """From now on the next process is killed that passes the phase, or in which a step of this name is decided."""
    if isinstance(phase, str):
        faults.plan_fault(plan, Phase.STEP_DECIDED, "kill", step=phase)
    else:
        faults.plan_fault(plan, phase, "kill")


@pytest.mark.parametrize("row", killed_ends(), ids=str)
def test_what_a_killed_driver_has_begun_is_ended_by_the_next_one_in_a_new_process(
    tmp_path: Path, fault_plan: Path, row: KilledEnd
) -> None:
    make_tables(tmp_path)
    for number, phase in enumerate(row.phases):
        kill_at(fault_plan, phase)
        options = row.options(tmp_path) if number == 0 else {}
        with drive(tmp_path, **options) as driver:
            # at a phase of a worker, the driver outlives it and fails
            driver.wait(TIMEOUT_S)
        assert faults.happened(fault_plan), driver.output()
    faults.no_fault(fault_plan)
    with drive(tmp_path) as driver:
        driver.succeed(TIMEOUT_S)
    if row.drains:
        assert_drained(tmp_path)
    else:
        assert_right(tmp_path)
    written = list((tmp_path / "savepoints").glob("*/manifest.json"))
    whole = row.phases.count(Phase.SAVEPOINT_COMPLETED) + row.drains
    assert len(written) == whole


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
    for phase in ("GoBack", *(case.phase for case in KILLED_FALLBACKS)):
        kill_at(fault_plan, phase)
        assert_killed(drive(tmp_path / "killed"), fault_plan)
    faults.no_fault(fault_plan)
    for folder in (tmp_path / "raised", tmp_path / "killed"):
        build(folder).execute("counting")
        assert_right(folder)
