"""A driver that is killed -9 at any step of a job, or fails there, is followed by one that ends in the same state as if
it had not been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import FlinkishError
from flinkish.jobmanager.decision import Step
from flinkish.runtime.phases import Phase, hooked
from tests.unit.jobmanager.test_minicluster_jobs import PLAIN, Gate, kept, written

TIMEOUT_S = 60

#: The program of a driver that is killed: what it is asked for when it is held up.
DRIVER = """
import os, signal, sys
from pathlib import Path
from flinkish.common.job_status import JobStatus
from flinkish.runtime.phases import Phase, set_hook
from tests.unit.jobmanager import test_minicluster_jobs as program

def kill(phase, details):
    if details.get("step") == {step!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    if phase is Phase.SAVEPOINT_WRITTEN and {full}:
        raise OSError("the disk is full")

set_hook(kill)
job = program.kept(
    Path({folder!r}), restart_strategy__type="fixed-delay", restart_strategy__fixed_delay__delay="1 ms",
    execution__checkpointing__interval="1 h",
)
program.Gate.failures = []
client = program.at_gate(job, 25)
{asked}
program.Gate.go.set()
client.run.wait({timeout_s})
"""

FAILS = "program.Gate.failures = [25]"
STOPS = "client.stop_with_savepoint(False)"
SUSPENDS = "client.run.request_stop(JobStatus.SUSPENDED)"
CANCELS = "client.run.request_stop()"
#: The savepoint of the stop cannot be written.
STOPS_IN_VAIN = f"{STOPS}  # in vain"

ROWS: dict[str, str] = {
    "Prepare the first attempt": "",
    "RunQuery": "",
    "AskForRestart": FAILS,
    "Wait": FAILS,
    "Prepare the next attempt": FAILS,
    "Save": STOPS,
    "End FINISHED, remembered as over": STOPS,
    "FailStop and go on": STOPS_IN_VAIN,
    "FailStop": f"{STOPS}; {CANCELS}",
    "TakeLastCheckpoint": SUSPENDS,
    "End SUSPENDED": SUSPENDS,
    "End CANCELED, remembered as over": CANCELS,
    "End FINISHED, remembered as done": "",
}


#: The steps that only a job on Spark has: tests/integration/engine/test_faults_of_recoveries.py.
ON_SPARK = {"GoBack", "BeginDrain"}


def test_each_step_is_one_at_which_a_driver_is_killed() -> None:
    steps = {step.__name__ for step in Step.__subclasses__()}
    assert steps == {row.split()[0] for row in ROWS} | ON_SPARK


#: What happens there is much like what happens at another step.
SLOW = {"RunQuery", "AskForRestart", "Prepare the next attempt", "End SUSPENDED", "End FINISHED, remembered as done"}


@pytest.mark.parametrize(
    ("step", "asked"),
    [pytest.param(step, asked, id=step, marks=[pytest.mark.slow] * (step in SLOW)) for step, asked in ROWS.items()],
)
def test_the_next_driver_goes_on_where_one_was_killed(step: str, asked: str, tmp_path: Path) -> None:
    full = asked == STOPS_IN_VAIN
    code = DRIVER.format(step=step, folder=str(tmp_path), asked=asked, full=full, timeout_s=TIMEOUT_S)
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, "PYTHONPATH": root}
    killed = subprocess.run([sys.executable, "-c", code], cwd=root, env=environ, timeout=TIMEOUT_S, check=False)
    assert killed.returncode == -signal.SIGKILL
    kept(tmp_path).execute("totals")
    assert written(tmp_path) == PLAIN


@pytest.mark.parametrize("step", [step for step, asked in ROWS.items() if asked in ("", FAILS)])
def test_the_next_driver_goes_on_where_one_has_failed(step: str, tmp_path: Path) -> None:
    def fail(phase: Phase, details: dict[str, Any]) -> None:
        if details.get("step") == step:
            raise OSError(f"injected at {step}")

    Gate.failures = [25] if ROWS[step] == FAILS else []
    more = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__delay": "1 ms"}
    with hooked(fail), pytest.raises(FlinkishError, match=f"injected at {step}"):
        kept(tmp_path, **more).execute("totals")
    Gate.failures = []
    kept(tmp_path).execute("totals")
    assert written(tmp_path) == PLAIN
