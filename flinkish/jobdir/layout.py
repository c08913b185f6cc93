"""The files of a job directory: their names, versions and fields, who reads them, and what becomes of damaged ones. No
file name and no field of theirs stands anywhere else. `flinkish.jobdir.formats` has the list of them, with those of a
Spark server (connect_server.py) and those that tasks and the minicluster write and declare. Commands that find jobs
import this module, so it imports nothing that runs jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.storage.paths import FileKind, NameForm
from flinkish.storage.sealed import optional
from flinkish.storage.stored_file import StoredFile

#: The names of the directories of queries, and of what the minicluster has in their place; of restored rows.
QUERY_NAME = NameForm(r"(minicluster|spark(-drain|-[0-9]+)?)(-owner-[0-9]+)?")
ROWS_NAME = NameForm(r"restore(-[0-9]+|-epoch-[0-9]+)?")
#: The names of the directories of files of keyed state: the first one, and those of queries that began by an upgrade.
KEYED_STATE_NAME = NameForm(r"keyed-state(-[0-9]+)?")

#: The path of a savepoint as `files.absolute` gives it; that of one that is being written.
_ABSOLUTE = NameForm(r"(/|[A-Za-z][A-Za-z0-9+.-]*://)(?!.*/\.\.(/|$))[^\x00-\x1f]*")

_COUNTS_ONLY = "delete the file and start the job again: it only counts starts"


@dataclass(frozen=True)
class OwnersEnd:
    """How the job has ended in the driver that has given the directory back."""

    status: str
    cause: str
    time_ms: int


@dataclass(frozen=True, kw_only=True)
class Owner(StoredFile):
    """The driver that owns the directory, or has owned it last, and a sign that it is alive."""

    NAME = "owner.json"
    READER = "drivers; commands"
    REMEDY = "if no driver runs this job, delete the file and start the job again"

    token: str
    fencing_token: int = 0
    host: str
    #: the scope in which the process id is unique; None: not known
    machine: str | None = None
    pid: int
    #: when the process was started
    started: str | None = None
    renewals: int = 0
    #: whether its queries run in a Spark server, and outlive it
    remote: bool = False
    #: the container of YARN in which it runs
    container: str = ""
    renewed_s: float = 0.0
    #: where its REST API is reached
    rest: str | None = None
    released: bool = False
    #: how the job has ended in it; None: that is not known
    ended: OwnersEnd | None = None

    def content(self) -> dict[str, Any]:
        """The fields as they are written: those of the end once the directory was given back."""
        found = super().content()
        return found if self.released else {name: found[name] for name in found if name not in ("released", "ended")}


@dataclass(frozen=True)
class ChainedOperator:
    """An operator of a task but its head. ``stateful``: whether it is known to have state of its own, or an error
    budget; what else has, tasks report."""

    uid: str
    name: str
    uid_given: bool
    sink: bool
    stateful: bool


@dataclass(frozen=True)
class StoredVertex:
    """What must stay the same of a task behind a shuffle."""

    id: int
    uid: str
    level: int
    parallelism: int
    max_parallelism: int
    keyed: bool
    #: the operators of the task but its head
    operators: list[ChainedOperator] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What must stay the same of a program for Spark's state, and what sinks know of the job, to be found again."""

    sinks: list[str] = field(default_factory=list)
    #: the number of Spark's partitions; 0 in the minicluster
    partitions: int
    sources: list[str]
    vertices: list[StoredVertex]


@dataclass(frozen=True)
class UpgradedProgram:
    """The program of the query whose first epoch this is, once that has taken the place of the one before."""

    first_epoch: int
    name: str
    structure: Structure
    given_up: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Job(StoredFile):
    """The program that has written the directory."""

    NAME = "job.json"
    WHEN = "from the first epoch on"
    READER = "the driver; commands"

    job_id: str
    name: str
    state_format: int = 1
    structure: Structure = field(kw_only=True)
    #: the uids of the operators whose state was given up
    given_up: list[str] = field(default_factory=list)
    #: the upgrade that has begun; None: there was none since the structure was remembered
    upgrade: UpgradedProgram | None = optional(None)


@dataclass(frozen=True)
class QueryFile(StoredFile):
    """Where the checkpoint of the job's query is. ``moved_from``: the move of the query from there has begun."""

    NAME = "query-location.json"
    WHEN = "once the query was moved or replaced"

    name: Annotated[str, QUERY_NAME]
    first_epoch: int
    moved_from: Annotated[str | None, QUERY_NAME] = optional(None)
    #: directory of the files of keyed state; None: the first one
    keyed_state: Annotated[str | None, KEYED_STATE_NAME] = optional(None)


@dataclass(frozen=True)
class Query(StoredFile):
    """How the job's first query began."""

    NAME = "query.json"
    WHEN = "from the first epoch on, on Spark"

    packing: dict[str, str]
    restored: bool = False
    #: the first epoch of the query of which that is said
    query: int = optional(0)


@dataclass(frozen=True)
class Attempts(StoredFile):
    """How often the job was started in the directory."""

    NAME = "attempts.json"
    REMEDY = _COUNTS_ONLY

    attempts: int


@dataclass(frozen=True)
class States(StoredFile):
    """The states that tasks have reported."""

    NAME = "states.json"
    WHEN = "once a task has declared one"
    REMEDY = "delete the file and start the job again: the job's tasks write it anew"

    states: list[DeclaredState]


@dataclass(frozen=True)
class Sources(StoredFile):
    """What the sources read when the job was last started."""

    NAME = "sources.json"
    WHEN = "if a source has such ids"

    #: source uid -> name -> id
    sources: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Origin:
    """The state of a query of the job, as of the end of an epoch."""

    query: Annotated[str, QUERY_NAME]
    first_epoch: int
    epoch: int
    levels: int
    keyed_state: Annotated[str, KEYED_STATE_NAME]


#: (uid of a vertex' head operator, uid of a source, its parallelism, split or subtask, idle?, watermark): what a source
#: has told a vertex
SplitWatermark = tuple[str, str, int, str, bool, int]


class EventTimes(NamedTuple):
    """How far event time is in the rows of a savepoint."""

    #: uid of a vertex' head operator -> the lowest watermark of its subtasks, with which the vertex begins
    watermarks: dict[str, int]
    splits: tuple[SplitWatermark, ...] = ()


@dataclass(frozen=True)
class Restored(StoredFile):
    """The savepoint that the job has begun with."""

    NAME = "restored.json"
    WHEN = "of a job that began with a savepoint"

    savepoint: str | None = None
    path: Annotated[str | None, _ABSOLUTE] = None
    #: the name of the directory of the rows for the first epoch
    rows: Annotated[str, ROWS_NAME] = "restore"
    claim_mode: str | None = None
    sources: dict[str, str] = field(default_factory=dict)
    #: uid of a vertex' head operator -> the watermark that the vertex begins with
    watermarks: dict[str, int] = field(default_factory=dict)
    #: when the state was restored; None: by a release that did not note it
    time_ms: int | None = None
    #: whether the claimed savepoint was deleted
    subsumed: bool = optional(False)
    #: the checkpoint to which the job went back
    checkpoint: str = optional("")
    #: whether an upgrade has written it, and the query whose state that has taken over; None: it was none
    upgraded: bool = optional(False)
    upgraded_from: Origin | None = optional(None)
    #: whether there was state to begin with
    state: bool = optional(True)
    #: what the splits of the sources had told
    splits: tuple[SplitWatermark, ...] = optional(())


@dataclass(frozen=True)
class RestoredByFallback(Restored):
    """The same of the query of the epochs from a number on, which has taken the place of a damaged one. It is a file of
    its own, so that the query and its file are exchanged in one step: when the new query becomes the job's query."""

    NAME = "restored-{}.json"
    WHEN = "of a job that went back to a checkpoint"


@dataclass(frozen=True)
class DrainMarker(StoredFile):
    """A drain that has begun, with what is needed to complete it.

    Rule: once the file is there, the job has no ordinary epoch any more. Any driver that runs the job next completes
    the drain: epoch ``epoch + 1`` is the drain's, however often it is begun, so sinks accept it once.
    """

    NAME = "drain.json"
    WHEN = "from the beginning of a drain on"

    #: the last ordinary epoch
    epoch: int
    #: source uid -> its position after that epoch
    positions: dict[str, str]
    #: directory for the final savepoint; None: the directory of the job's savepoints
    savepoint_directory: str | None
    #: number of operator levels of the job
    levels: int

    @property
    def drain_epoch(self) -> int:
        """The epoch in which event time ends."""
        return self.epoch + 1


@dataclass(frozen=True)
class Program:
    """The properties by which a program is recognized once its job has finished: its name, the uids and names of its
    operators."""

    name: str
    operators: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class JobEnd(StoredFile):
    """How a job has ended for good: it has finished, was stopped with a savepoint, or was cancelled."""

    NAME = "ended.json"
    WHEN = "once the job has ended for good"
    READER = "the driver; commands"

    job_id: str = ""
    #: FINISHED or CANCELED
    status: str = "FINISHED"
    #: token of the driver that has ended it
    run: str = ""
    #: whether nothing is left to run: the job is at the end of its input, or was drained
    done: bool = True
    #: whether somebody outside of the program has asked for the end
    from_outside: bool = False
    program: Program | None = None
    last_epoch: int | None = None
    savepoint: str | None = None

    def described(self) -> str:
        """What became of the job, in words that follow "it was"."""
        if self.status == "CANCELED":
            return "cancelled" if self.savepoint is None else f"cancelled with the savepoint {self.savepoint}"
        if self.done:
            return "finished" if self.savepoint is None else f"finished with the savepoint {self.savepoint}"
        return f"stopped with the savepoint {self.savepoint}"


@dataclass(frozen=True)
class Finished(JobEnd):
    """The same of a job that an earlier version has brought to the end of its input."""

    NAME = "finished.json"
    WHEN = "never written any more"


@dataclass(frozen=True)
class EndOfInput(StoredFile):
    """The query whose run that announces the end of the sources has begun: its first epoch."""

    NAME = "end-of-input.json"
    WHEN = "during the last epochs of a bounded job with sources that Spark reads"

    announced: bool = True
    query: int | None = None


@dataclass(frozen=True)
class Changelog(StoredFile):
    """Which epochs the changelog covers without a gap, and why checkpoints may not use it."""

    NAME = "changelog.json"
    WHEN = "with incremental checkpoints"
    READER = "the thread that takes checkpoints"

    since: int | None
    #: name of the directory of the query
    location: str
    refused: str | None


@dataclass(frozen=True)
class TotalsDescription(StoredFile):
    """What a job has done since it began, over all drivers."""

    NAME = "totals.json"
    WHEN = "ten seconds after the start at the latest"
    REMEDY = "nothing need be done: they begin anew"

    #: the drivers that have run it, this one included
    drivers: int = 0
    #: the restarts after failures within these
    restarts: int = 0
    epochs: int = 0
    #: the last epoch that is counted; -1: none is
    last_epoch: int = -1
    #: the records that have entered the job, and those written to sinks
    records_in: int = 0
    records_out: int = 0
    #: status (COMPLETED, FAILED) -> number of checkpoints, of savepoints
    checkpoints: dict[str, int] = field(default_factory=dict)
    savepoints: dict[str, int] = field(default_factory=dict)
    #: uid of a vertex' head operator -> its ``records_in`` and ``records_out``
    vertices: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class SavingNote(StoredFile):
    """A savepoint that is being written. The note is there from before the first file of the savepoint until that is
    whole or removed; that of a stop until the end of the job is remembered."""

    NAME = "saving-{}.json"
    PART = ".+"
    WHEN = "while one is written"
    REMEDY = "delete the file, and what is there of a savepoint without a manifest"

    path: str
    of_stop: bool = False


# ------------------------------------------------------------------------------------------------ between two processes


@dataclass(frozen=True, kw_only=True)
class StoredRequest(StoredFile):
    """What another process asks of the driver: ``run`` and ``id`` in its name."""

    NAME = "request-{}-{}.json"
    PART = ".+?"
    WHEN = "while a command waits"
    STRICT = True
    REMEDY = "ask again"
    KIND = FileKind.REQUEST

    action: str
    directory: str | None = optional(None)
    drain: bool = optional(False)
    cancel_job: bool = optional(False)
    full: bool = optional(False)
    attempts: bool = optional(False)
    #: the id of an operation that is asked about
    operation: str = optional("")
    expires_ms: int


@dataclass(frozen=True)
class Answer(StoredFile):
    """The answer to a request of that run and id: a value, or the text of an error."""

    NAME = "answer-{}-{}.json"
    PART = ".+?"
    WHEN = "until the command has read it, for five minutes at most"
    READER = "the command"
    REMEDY = "ask again"

    value: Any = None
    error: str | None = None

    def content(self) -> dict[str, Any]:
        """The one or the other."""
        return {"value": self.value} if self.error is None else {"error": self.error}
