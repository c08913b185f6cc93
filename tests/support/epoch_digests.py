"""What each subtask was given in each epoch, as digests that several runs of a job can be compared by.

Recorders in a program note each record with its timestamp and with the watermark that is in force when it comes. When a
task is through with an epoch, the hook of the phases writes one small file: who, which epoch, how many records, and the
hash over all that the recorder has noted, in order. The same hook makes an epoch fail, after its sources were read and
before it is prepared, so that its plan runs again. All processes of the job look at one plan file.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from flinkish.datastream import KeyedProcessFunction, ProcessFunction, RuntimeContext
from flinkish.runtime.phases import FAULT_VARIABLE, Phase

#: Environment variable with the path of the plan.
PLAN_VARIABLE = "FLINKISH_TEST_DIGEST_PLAN"

#: What recorders of this process have noted since the last file, by recorder and subtask.
_noted: dict[tuple[str, int], list[Any]] = {}


class EpochFails(Exception):
    """The epoch that was planned to fail."""


class Given(NamedTuple):
    """Who was given something: the recorder's name, the epoch, and the number of the subtask or of the key group."""

    recorder: str
    epoch: int
    number: int


class Digest(NamedTuple):
    """What it was."""

    records: int
    hash: str


class Recorder(ProcessFunction):
    """Passes records on and notes them. Named ``source`` when it is chained to a source, else ``subtask``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        _note(self.name, self.subtask, (value, ctx.timestamp(), ctx.timer_service().current_watermark()))
        yield value


class KeyedRecorder(KeyedProcessFunction):
    """The same on a keyed stream."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        watermark_ms = ctx.timer_service().current_watermark()
        _note("keyed", self.subtask, (ctx.get_current_key(), value, ctx.timestamp(), watermark_ms))
        yield value


def _note(name: str, subtask: int, what: Any) -> None:
    _noted.setdefault((name, subtask), []).append(what)


def environment(plan: Path) -> dict[str, str]:
    """What the processes of a job need in order to find the plan, which may be made later."""
    return {FAULT_VARIABLE: f"{__name__}:hook", PLAN_VARIABLE: str(plan)}


def plan_run(plan: Path, folder: Path, failing_epoch: int | None) -> None:
    """From now on digests go to this folder, and this epoch fails whenever it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = plan.with_suffix(".new")
    hidden.write_text(json.dumps({"folder": str(folder), "failing_epoch": failing_epoch}))
    hidden.rename(plan)


def hook(phase: Phase, details: dict[str, Any]) -> None:
    """Called by every process at every phase."""
    if phase is Phase.SOURCES_READ:
        _write("source", details["subtask"], details["subtask"], details["epoch"])
    elif phase is Phase.LEVEL_PROCESSED:
        # a worker has one task at a time in hands: what was noted last is that task's
        for name, subtask in [place for place in _noted if place[0] != "source"]:
            _write(name, subtask, details["subtask"], details["epoch"])
        if details["epoch"] == _plan()["failing_epoch"]:
            raise EpochFails(f"epoch {details['epoch']} fails as planned")


def _plan() -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(Path(os.environ[PLAN_VARIABLE]).read_text())
    return plan


def _write(name: str, subtask: int, number: int, epoch: int) -> None:
    noted = _noted.pop((name, subtask), [])
    if noted:
        text = "\n".join(map(repr, noted))
        found = [name, epoch, number, len(noted), hashlib.sha256(text.encode()).hexdigest()]
        folder = Path(_plan()["folder"])
        file = folder / f"{uuid.uuid4().hex}.json"
        file.with_suffix(".text").write_text(text)
        file.with_suffix(".new").write_text(json.dumps(found))
        file.with_suffix(".new").rename(file)


def digests(folder: Path) -> dict[Given, set[Digest]]:
    """What the runs whose files lie below the folder were given; one digest each if all were given the same."""
    found: dict[Given, set[Digest]] = defaultdict(set)
    for file in folder.rglob("*.json"):
        name, epoch, number, records, hashed = json.loads(file.read_text())
        found[Given(name, epoch, number)].add(Digest(records, hashed))
    return dict(found)
