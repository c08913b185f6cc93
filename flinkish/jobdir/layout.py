"""Damaged and missing files of the job directory, and a full disk: the errors name the file, and contents are never
guessed.

A file that is missing although other files show that it was there is detected, since without it a job would silently
begin anew.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from dataclasses import dataclass, field
from typing import Annotated, Any

from flinkish.errors import FinalOperationError, FlinkishError
from flinkish.runtime.epoch.steps import EpochFigures
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.storage.files import child_names
from flinkish.storage.paths import NameForm, local_path
from flinkish.storage.sealed import typed, unsealed

#: Files that are written before the first epoch.
_BEFORE_EPOCHS = ("job.json", "query.json")
_LOCATION = "query-location.json"

_FALLBACK = re.compile(r"spark-(\d+)(-owner-\d+)?")

_HINT = "restore the file from a copy, or start the job in a new directory from a checkpoint or savepoint"

#: File -> hint for a file with another remedy than `_HINT`.
_HINTS = {
    "owner.json": "if no driver runs this job, delete the file and start the job again",
    "attempts.json": "delete the file and start the job again: it only counts starts",
    "states.json": "delete the file and start the job again: the job's tasks write it anew",
}


#: The path of a savepoint as `files.absolute` gives it.
_ABSOLUTE = NameForm(r"(/|[A-Za-z][A-Za-z0-9+.-]*://)(?!.*/\.\.(/|$))[^\x00-\x1f]*")

# What the fields of each file may be. Fields with a default are missing in files of earlier versions, or in some files.


@dataclass(frozen=True)
class _End:
    status: str
    cause: str
    time_ms: int


@dataclass(frozen=True)
class _Owner:
    token: str
    host: str
    pid: int
    fencing_token: int = 0
    machine: str = ""
    started: str | None = None
    renewals: int = 0
    remote: bool = False
    renewed_s: float = 0.0
    rest: str | None = None
    released: bool = False
    ended: _End | None = None


@dataclass(frozen=True)
class _Vertex:
    id: int
    uid: str
    level: int
    parallelism: int
    max_parallelism: int
    keyed: bool


@dataclass(frozen=True)
class _Structure:
    partitions: int
    sources: list[str]
    vertices: list[_Vertex]
    sinks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Upgrade:
    first_epoch: int
    name: str
    structure: _Structure


@dataclass(frozen=True)
class _Job:
    job_id: str
    name: str
    structure: _Structure
    state_format: int = 1
    upgrade: _Upgrade | None = None


@dataclass(frozen=True)
class _Program:
    name: str
    operators: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class JobEnd:
    """How a job has ended for good: it has finished, was stopped with a savepoint, or was cancelled."""

    #: FINISHED or CANCELED
    status: str = "FINISHED"
    #: token of the driver that has ended it
    run: str = ""
    #: whether nothing is left to run: the job is at the end of its input, or was drained
    done: bool = True
    #: whether somebody outside of the program has asked for the end
    from_outside: bool = False
    program: _Program | None = None
    last_epoch: int | None = None
    savepoint: str | None = None

    def told(self) -> str:
        """What became of the job, in words that follow "it was"."""
        if self.status == "CANCELED":
            return "cancelled" if self.savepoint is None else f"cancelled with the savepoint {self.savepoint}"
        if self.done:
            return "finished" if self.savepoint is None else f"finished with the savepoint {self.savepoint}"
        return f"stopped with the savepoint {self.savepoint}"


@dataclass(frozen=True)
class _Attempts:
    attempts: int


@dataclass(frozen=True)
class _Query:
    packing: dict[str, str]
    restored: bool = False


@dataclass(frozen=True)
class _Origin:
    query: str
    first_epoch: int
    epoch: int
    levels: int
    keyed_state: str


@dataclass(frozen=True)
class _Restored:
    savepoint: str | None = None
    path: Annotated[str | None, _ABSOLUTE] = None
    claim_mode: str | None = None
    rows: str = "restore"
    sources: dict[str, str] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    checkpoint: str = ""
    subsumed: bool = False
    #: when the state was restored; None: by a version that did not note it
    time_ms: int | None = None
    #: the query whose state an upgrade has taken over; None: it was none
    upgraded_from: _Origin | None = None
    #: whether there was state to begin with
    state: bool = True


@dataclass(frozen=True)
class _States:
    states: list[DeclaredState]


@dataclass(frozen=True)
class _Sources:
    sources: dict[str, dict[str, str]]


@dataclass(frozen=True)
class _Changelog:
    location: str
    since: int | None
    refused: str | None


@dataclass(frozen=True)
class _EndOfInput:
    query: int | None = None


@dataclass(frozen=True)
class _FarEnd:
    token: str
    error: str | None = None


@dataclass(frozen=True)
class _ForDriver:
    sink: str
    subtask: int
    buffers: list[bytes]


@dataclass(frozen=True)
class _Report(EpochFigures):
    tasks: list[bytes] = field(kw_only=True)


@dataclass(frozen=True)
class _EpochReport:
    report: _Report
    for_driver: list[_ForDriver]


#: The names of files, as patterns -> what their fields may be. Files of other names may hold anything,
#: or their readers name a class of their own (`JobDirectory.read`).
_KINDS: dict[str, Any] = {
    r"owner\.json": _Owner,
    r"job\.json": _Job,
    r"(ended|finished)\.json": JobEnd,
    r"attempts\.json": _Attempts,
    r"query\.json": _Query,
    r"restored(-[0-9]+)?\.json": _Restored,
    r"states\.json": _States,
    r"sources\.json": _Sources,
    r"changelog\.json": _Changelog,
    r"end-of-input\.json": _EndOfInput,
    r"far-end\.json": _FarEnd,
    r"report-[0-9]+\.json": _EpochReport,
}


def content_of(name: str, data: bytes) -> dict[str, Any]:
    """The content of a file of the job directory, whose fields are of the types that the file's name stands for.

    Raises:
        ValueError: it is not what was written, or a field has another type; the message gives the reason.
    """
    content = unsealed(data)
    for pattern, kind in _KINDS.items():
        if re.fullmatch(pattern, name):
            typed(kind, content)
    return content


def damaged_file(directory: str, name: str, why: object) -> FinalOperationError:
    """The error for a file that is there and cannot be read. ``why``: what is wrong with it."""
    return FinalOperationError(
        f"the file {name} is damaged: {why}",
        where=posixpath.join(directory, name),
        expected="the file as flinkish wrote it",
        hint=_HINTS.get(name, _HINT),
    )


def missing_file(directory: str, name: str) -> FinalOperationError:
    """The error for a file that is missing, although other files show that it was there."""
    return FinalOperationError(
        f"the file {name} is missing",
        where=posixpath.join(directory, name),
        expected="a job directory with all its files, since epochs have been run in it",
        hint=_HINT,
    )


def check_nothing_missing(directory: str) -> None:
    """Check that a job directory has the files that its epochs need.

    Raises:
        FinalOperationError: epochs have been planned here, and a file that was there by then is missing.
    """
    names = child_names(directory)
    begun = [name for name in names if _is_query(name) and child_names(posixpath.join(directory, name, "offsets"))]
    needed = list(_BEFORE_EPOCHS) if begun else []
    if any(name != "spark" for name in begun):
        needed.append(_LOCATION)
    # a query that has taken the place of a damaged one was restored from a checkpoint
    needed += [f"restored-{found[1]}.json" for name in begun if (found := _FALLBACK.fullmatch(name))]
    for name in needed:
        if name not in names:
            raise missing_file(directory, name)


def _is_query(name: str) -> bool:
    return name == "spark" or name.startswith("spark-")


_FULL = re.compile(r"no space left|quota", re.IGNORECASE)


def with_free_space(error: FlinkishError, job_dir: str) -> FlinkishError:
    """The same error; one about missing space also says how many bytes are free at a local job directory. Spark says
    neither which file it was writing nor on which disk."""
    local = local_path(job_dir)
    if local is not None and _FULL.search(error.what):
        try:
            free = shutil.disk_usage(local).free
        except OSError:
            return error
        error.expected = f"space for the epoch's files; {free:,} bytes are free at {local}"
    return error
