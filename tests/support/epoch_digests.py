"""What each subtask was given in each epoch, as digests that several runs of a job can be compared by.

Recorders in a program note each record with its timestamp and with the watermark that is in force when it comes. When a
task is through with an epoch, the hook of the phases writes one small file: who, which epoch, how many records, and the
hash over all that the recorder has noted, in order. The same hook makes an epoch fail, after its sources were read and
before it is prepared, so that it is planned again. All processes of the job look at one file to learn which one.
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


class _Place(NamedTuple):
    """A recorder, its subtask, and the folder of its run: tasks of a run that has failed may work beside the next."""

    folder: str
    recorder: str
    subtask: int


#: What the recorder of this process's task has noted since the last file: a worker has one task at a time in hands.
_noted: tuple[_Place, list[Any]] | None = None


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

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, str(folder)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.place = _Place(self.folder, self.name, runtime_context.get_index_of_this_subtask())

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        _note(self.place, (value, ctx.timestamp(), ctx.timer_service().current_watermark()))
        yield value


class KeyedRecorder(KeyedProcessFunction):
    """The same on a keyed stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.place = _Place(self.folder, "keyed", runtime_context.get_index_of_this_subtask())

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        watermark_ms = ctx.timer_service().current_watermark()
        _note(self.place, (ctx.get_current_key(), value, ctx.timestamp(), watermark_ms))
        yield value


def _note(place: _Place, what: Any) -> None:
    global _noted
    if _noted is None or _noted[0] != place:
        _noted = place, []
    _noted[1].append(what)


def environment(plan: Path) -> dict[str, str]:
    """What the processes of a job need in order to find the plan, which may be made later."""
    return {FAULT_VARIABLE: f"{__name__}:hook", PLAN_VARIABLE: str(plan)}


def plan_run(plan: Path, failing_epoch: int | None) -> None:
    """From now on this epoch fails whenever it runs."""
    hidden = plan.with_suffix(".new")
    hidden.write_text(json.dumps({"failing_epoch": failing_epoch}))
    hidden.rename(plan)


def hook(phase: Phase, details: dict[str, Any]) -> None:
    """Called by every process at every phase."""
    if phase in (Phase.SOURCES_READ, Phase.LEVEL_PROCESSED):
        _write(details["subtask"], details["epoch"])
    if phase is Phase.LEVEL_PROCESSED:
        plan = json.loads(Path(os.environ[PLAN_VARIABLE]).read_text())
        if details["epoch"] == plan["failing_epoch"]:
            raise EpochFails(f"epoch {details['epoch']} fails as planned")


def _write(subtask: int, epoch: int) -> None:
    global _noted
    (place, noted), _noted = _noted or (None, []), None
    if place is None or place.subtask != subtask:
        return
    text = "\n".join(map(repr, noted))
    found = [place.recorder, epoch, subtask, len(noted), hashlib.sha256(text.encode()).hexdigest()]
    file = Path(place.folder) / f"{uuid.uuid4().hex}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
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
