"""One fault at a named phase, in whatever process: the hook that FLINKISH_FAULT names.

A plan is a JSON file whose path the environment holds: which phase, from which epoch on, and whether to raise or to
kill the process -9, or to wait there until the test, which may pause all processes of the job meanwhile, lets it go on.
A fault happens once; a file beside the plan, of a name that only this plan has, remembers that it did: a process that
still acts by the plan before leaves no mark on the next one.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
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


def plan_fault(
    plan: Path, phase: Phase, how: str, epoch: int = 0, pid: int | None = None, step: str | None = None
) -> None:
    """From now on the next process that passes the phase in this epoch or later fails. ``how``: raise, kill or wait;
    ``pid``: only that process; ``step``: only where this step of the job was decided."""
    mark = plan.with_suffix(f".{uuid.uuid4().hex}.happened")
    planned = {"phase": phase.name, "how": how, "epoch": epoch, "pid": pid, "step": step, "mark": str(mark)}
    hidden = plan.with_suffix(".new")
    hidden.write_text(json.dumps(planned))
    hidden.rename(plan)


def no_fault(plan: Path) -> None:
    """Nothing fails from now on, and whoever is to wait at a phase waits again."""
    plan.unlink(missing_ok=True)
    plan.with_suffix(".go_on").unlink(missing_ok=True)
    for mark in plan.parent.glob(f"{plan.stem}.*.happened"):
        mark.unlink()


def happened(plan: Path) -> bool:
    """Whether the planned fault has happened."""
    return Path(json.loads(plan.read_text())["mark"]).exists()


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
    if plan["pid"] not in (None, os.getpid()) or plan["step"] not in (None, details.get("step")):
        return
    try:
        os.close(os.open(plan["mark"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if plan["how"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if plan["how"] == "wait":
        _wait(Path(path))
        return
    raise InjectedFault(f"injected at {phase.value}")
