"""The big job with checkpoints, a savepoint, a restore and a drain, killed -9 at each named phase of all of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.runtime.phases import Phase
from tests.integration.exactness.driving import (
    EPOCH_S,
    KILLED,
    TIMEOUT_S,
    drive,
    drive_to_end,
    drive_until_killed,
    wait_for_more_rows,
)
from tests.integration.exactness.model import golden, of_each
from tests.integration.exactness.outputs import all_outputs, consumed
from tests.integration.exactness.test_trials import RESTARTING
from tests.support import faults
from tests.support.exactness import assert_exact
from tests.support.processes import ProcessGroup

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

OF_SAVEPOINTS = [phase for phase in Phase if phase.name.startswith("SAVEPOINT_")]
OF_RESTORES = [phase for phase in Phase if phase.name.startswith("RESTORE_")]
OF_DRAINS = [phase for phase in Phase if phase.name.startswith("DRAIN_")]
#: Passed only where storage was damaged: see test_fallback.
OF_FALLBACKS = [phase for phase in Phase if phase.name.startswith("FALLBACK_")]
#: Every other one is passed again and again by a job with checkpoints that does its work.
#: tests/unit/jobmanager/test_killed_steps.py
OF_STEPS = [Phase.STEP_DECIDED]
OF_WORK = [
    phase for phase in Phase if phase not in (*OF_SAVEPOINTS, *OF_RESTORES, *OF_DRAINS, *OF_FALLBACKS, *OF_STEPS)
]

SETTINGS: dict[str, Any] = {**RESTARTING, "execution__checkpointing__interval": "500 ms"}
RECORDS, PER_EPOCH = 720, 20
PROGRAM = {"records": RECORDS, "per_epoch": PER_EPOCH, "slow_s": EPOCH_S}


def rows_after(epochs: int) -> int:
    return epochs * PER_EPOCH * 2


@pytest.mark.parametrize("incremental", [True, False], ids=["incremental checkpoints", "full checkpoints"])
def test_killed_at_each_phase_of_its_work_it_puts_out_the_golden_result(
    folder: Path, fault_plan: Path, incremental: bool
) -> None:
    settings = {**SETTINGS, "execution__checkpointing__incremental": incremental}
    left = list(OF_WORK)
    while left:
        with drive(folder, fault_plan, program=PROGRAM, settings=settings) as driver:
            while left and survives(driver, folder, fault_plan, left.pop(0)):
                pass  # a worker was killed: the driver has started the job again
            driver.kill()
        faults.no_fault(fault_plan)
    drive_to_end(folder, program={**PROGRAM, "slow_s": 0}, settings=settings)
    assert_exact(golden(of_each(RECORDS)), all_outputs(folder))


def survives(driver: ProcessGroup, folder: Path, plan: Path, phase: Phase) -> bool:
    """Kill whatever passes the phase next, while the job is at work; whether the driver is still there."""
    wait_for_more_rows(driver, folder)
    faults.plan_fault(plan, phase, "kill")
    driver.wait_for(lambda: faults.happened(plan) or not driver.running, TIMEOUT_S, f"a kill at {phase.value}")
    if in_driver(phase):
        assert driver.wait(TIMEOUT_S) == KILLED, driver.output()
        return False
    wait_for_more_rows(driver, folder)
    assert driver.running, driver.output()
    return True


def in_driver(phase: Phase) -> bool:
    """The driver's own phases; all others are passed by Spark's workers."""
    workers = (
        Phase.SOURCES_READ,
        Phase.LEVEL_PROCESSED,
        Phase.STATE_WRITTEN,
        Phase.COMMITTABLES_WRITTEN,
        Phase.COMMIT_BEGUN,
        Phase.SINK_COMMITTED,
    )
    return phase not in workers


def test_killed_at_each_phase_of_savepoint_restore_and_drain_it_puts_out_the_golden_result(
    folder: Path, fault_plan: Path
) -> None:
    first: dict[str, Any] = {"job": "first", "program": PROGRAM, "settings": SETTINGS, "stop_at": rows_after(5)}
    for phase in OF_SAVEPOINTS:
        faults.plan_fault(fault_plan, phase, "kill")
        drive_until_killed(folder, fault_plan, **first)
    faults.no_fault(fault_plan)
    savepoint = drive_to_end(folder, **first)
    assert savepoint

    settings = {**SETTINGS, "execution__state_recovery__path": savepoint}
    second: dict[str, Any] = {"job": "second", "program": PROGRAM, "settings": settings, "drain": True}
    second["stop_at"] = rows_after(14)
    for phase in (*OF_RESTORES, *OF_DRAINS):
        faults.plan_fault(fault_plan, phase, "kill")
        drive_until_killed(folder, fault_plan, **second)
    faults.no_fault(fault_plan)
    drive_to_end(folder, **second)
    used = consumed(folder)
    assert 0 < max(used.values()) < RECORDS, "the drain fell into running work"
    assert_exact(golden(used), all_outputs(folder, "first", "second"))
