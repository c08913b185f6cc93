"""One fault at a named phase, in whatever process: the hook that FLINKISH_FAULT names.

A plan is a JSON file whose path the environment holds: which phase, from which epoch on, and whether to raise or to
kill the process -9, or to wait there until the test, which may pause all processes of the job meanwhile, lets it go on.
A fault happens once; a file beside the plan remembers that it did.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from flinkish.runtime.phases import FAULT_VARIABLE, Phase

#: Environment variable with the path of the plan.
PLAN_VARIABLE = "FLINKISH_TEST_FAULT_PLAN"

HOOK = "tests.support.faults:hook"


class InjectedFault(Exception):
    """The fault of a test."""


def environment(plan: Path) -> dict[str, str]:
    """What processes need in order to find the plan, which may be made later."""
    return {FAULT_VARIABLE: HOOK, PLAN_VARIABLE: str(plan)}


def plan_fault(plan: Path, phase: Phase, how: str, epoch: int = 0, pid: int | None = None) -> None:
    """From now on the next process that passes the phase in this epoch or later fails. ``how``: raise, kill or
    wait; ``pid``:
    only that process."""
    happened(plan, forget=True)
    hidden = plan.with_suffix(".new")
    hidden.write_text(json.dumps({"phase": phase.name, "how": how, "epoch": epoch, "pid": pid}))
    hidden.rename(plan)


def no_fault(plan: Path) -> None:
    """Nothing fails from now on."""
    plan.unlink(missing_ok=True)
    happened(plan, forget=True)


def happened(plan: Path, forget: bool = False) -> bool:
    """Whether the fault has happened."""
    mark = plan.with_suffix(".happened")
    there = mark.exists()
    if forget:
        mark.unlink(missing_ok=True)
    return there


def go_on(plan: Path) -> None:
    """Who waits at a phase need not wait any more."""
    plan.with_suffix(".go_on").write_text("")


def _wait(path: Path) -> None:
    while not path.with_suffix(".go_on").exists():
        time.sleep(0.005)


def hook(phase: Phase, details: dict[str, Any]) -> None:
    """Called by every process at every phase."""
    path = os.environ.get(PLAN_VARIABLE)
    if path is None or not os.path.exists(path):
        return
    try:
        plan = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return
    if plan["phase"] != phase.name or details.get("epoch", plan["epoch"]) < plan["epoch"]:
        return
    if plan["pid"] not in (None, os.getpid()):
        return
    try:
        os.close(os.open(Path(path).with_suffix(".happened"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if plan["how"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if plan["how"] == "wait":
        _wait(Path(path))
        return
    raise InjectedFault(f"injected at {phase.value}")
