"""The files that a job keeps in its directory, besides the Spark query's own checkpoint: which driver owns the
directory and which program wrote it.

    <job dir>/spark/            checkpoint of the streaming query, and in prepared/ what its epochs give to sinks
    <job dir>/query-location.json  where that checkpoint is instead, once the query has been replaced or moved
    <job dir>/minicluster/      in its place: the state of a job in the minicluster (minicluster/stored_epochs.py)
    <job dir>/job.json          the stateful structure of the program that wrote the directory
    <job dir>/owner.json        the driver that owns the directory, and a sign that it is alive
    <job dir>/fencing/          Delta: the claims of all drivers, which decide who may write (fencing.py)
    <job dir>/end-of-input.json the query whose run that announces the sources' end has begun
    <job dir>/ended.json        the job has ended for good: how, at whose request, and which program it was
    <job dir>/saving-<id>.json  a savepoint is being written, or a stop has written it and the job has not ended
    <job dir>/jobs/<name>/      the job directory of a further job of the same program (probe.py)
    <job dir>/accumulators/     totals of the last epochs that have added to accumulators (runtime/job/accumulators.py)
    <job dir>/restore/          rows of the savepoint that the job began with; restore-<fencing token>/ of later drivers
    <job dir>/restore-epoch-<number>/  rows of the checkpoint that the query of the epochs from this one on began with

Files are replaced as a whole, in the way of the storage (`flinkish.storage.stores`).
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, overload

from flinkish.common.options.flinkish import SPARK_PARTITIONS
from flinkish.connectors.generated import NumberedSplitSource
from flinkish.core.sink import NO_FENCE, Fence, NoFence
from flinkish.errors import FencedError, FlinkishError, IncompatibleJobError, OperationError
from flinkish.graph.job_graph import chained_operators, lost_operators
from flinkish.jobdir.fencing import SILENCE_S, Life, entry, given_back, is_earlier_attempt, life_of, watch
from flinkish.jobdir.layout import JobEnd, content_of, damaged_file
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.job.report import STATE_FORMAT_VERSION
from flinkish.storage.paths import FileKind, NameForm, absolute, check_private, is_local, make_private
from flinkish.storage.sealed import sealed, typed
from flinkish.storage.stores import job_directory_error, storage_error, storage_errors, storage_of

#: Name of the file that says where the query's checkpoint is; ownership.py adds the entry ``moved_from`` to it.
QUERY_FILE = "query-location.json"

#: Says that the job has ended for good (`JobEnd`). Earlier versions wrote the second one, at the end of the input only.
ENDED_FILE, _FINISHED_FILE = "ended.json", "finished.json"

#: The states that tasks have reported (checkpoint/compatibility.py).
STATES_FILE = "states.json"

_LOG = logging.getLogger("flinkish.JobManager")

_GIVE_UP = (
    "; or give up the state of the operators that are gone (-n / --allowNonRestoredState, "
    "execution.state-recovery.ignore-unclaimed-state: true)"
)

#: Version of the files in the directory. Since version 2 they carry a digest.
FORMAT_VERSION = 2


#: The names of the directories of queries, and of what the minicluster has in their place.
QUERY_NAME = NameForm(r"(minicluster|spark(-drain|-[0-9]+)?)(-owner-[0-9]+)?")

T = TypeVar("T")


@dataclass(frozen=True)
class QueryFile:
    """The content of `QUERY_FILE`. ``moved_from``: the move of the query from there has begun."""

    name: Annotated[str, QUERY_NAME]
    first_epoch: int
    moved_from: Annotated[str | None, QUERY_NAME] = None


@dataclass(frozen=True)
class QueryLocation:
    """The checkpoint directory of a streaming query. Spark numbers its batches from 0; the job's epochs go on from
    ``first_epoch``, so that a number stands for one epoch only, whichever query ran it: sinks know epochs by it."""

    path: str
    first_epoch: int


class JobDirectory:
    """The directory of one job: reads its files, and writes them on behalf of one owner until a newer driver claims the
    directory."""

    def __init__(self, path: str, token: str | None = None) -> None:
        """``token``: that of the owner on whose behalf another process works here; by default a new one."""
        self.path = absolute(path)
        self.is_local = is_local(path)
        self.storage = storage_of(self.path)
        try:
            if self.is_local:
                make_private(self.path)
            else:
                self.storage.make_directory(self.path)
        except OSError as error:
            if isinstance(error, FlinkishError):
                raise
            raise job_directory_error(error, "create the job directory", self.path) from error
        self._token = token or uuid.uuid4().hex
        #: the claim that keeps other drivers out; a temporary directory needs none, as nobody else knows it
        self.fence: Fence = NO_FENCE
        self._renewals = 0
        #: whether the job's queries run in a Spark server
        self.remote = False
        #: set once this driver has given the directory back
        self.released = threading.Event()
        self._owning = threading.Lock()
        #: whether this driver has found that no sink has an epoch which the directory does not know
        self.sinks_checked = False

    def query_location(self) -> QueryLocation:
        """The location of the query's own checkpoint, and the query's first epoch."""
        kept = self.query_file() or QueryFile("spark", 0)
        return QueryLocation(self.path_of(QUERY_NAME, kept.name, QUERY_FILE), kept.first_epoch)

    def query_file(self) -> QueryFile | None:
        """The content of the file that says where the query is; None: it is where it began. Raises as `read` does."""
        return self.read(QUERY_FILE, QueryFile)

    def path_of(self, form: NameForm, name: object, file: str) -> str:
        """The path of a directory that a file of the job directory (``file``) names.

        Raises:
            FinalOperationError: the name is none that flinkish gives; the error names the file.
        """
        try:
            return form.path(self.path, name)
        except ValueError as error:
            raise damaged_file(self.path, file, error) from error

    def check_private(self) -> None:
        """Check that nobody but this user can write to the directory, if it is on a local file system: whoever can is
        trusted like the program.

        Raises:
            FinalOperationError: somebody else can.
        """
        if self.is_local:
            check_private(self.path, "the job directory")

    def move_query(self, name: str, first_epoch: int) -> None:
        """Replace the job's query by another one, below ``name``, whose epochs are numbered from ``first_epoch`` on."""
        self.write(QUERY_FILE, {"name": name, "first_epoch": first_epoch})

    @property
    def keyed_state(self) -> str:
        """Directory of the files of keyed state, with a subdirectory per vertex and subtask."""
        return posixpath.join(self.path, "keyed-state")

    @property
    def restore_rows(self) -> str:
        """Directory for the rows of a savepoint that this driver restores; not one to which an earlier driver may still
        be writing."""
        return posixpath.join(self.path, f"restore-{self.fence.token}" if self.fence.token else "restore")

    def fallback_rows(self, first_epoch: int) -> str:
        """Directory for the rows of a checkpoint with which the query of the epochs from ``first_epoch`` on begins."""
        return posixpath.join(self.path, f"restore-epoch-{first_epoch}")

    # ------------------------------------------------------------------ files

    def _file(self, name: str) -> str:
        return posixpath.join(self.path, name)

    @overload
    def read(self, name: str, *, file: FileKind = FileKind.JOB_FILE) -> dict[str, Any] | None: ...

    @overload
    def read(self, name: str, kind: type[T], *, file: FileKind = FileKind.JOB_FILE) -> T | None: ...

    def read(self, name: str, kind: Any = dict[str, Any], *, file: FileKind = FileKind.JOB_FILE) -> Any:
        """The content of a JSON file as an instance of the dataclass ``kind``, which declares its fields, or as a dict;
        None when there is no such file.

        Raises:
            FinalOperationError: the file is damaged, none of the kind ``file``, or its fields are not those of the
                class; the error names it.
        """
        try:
            return typed(kind, content_of(name, self.storage.read(self._file(name), file)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, "read", self._file(name)) from error
        except ValueError as error:
            raise damaged_file(self.path, name, error) from error

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write a JSON file, whole or not at all. Raises FencedError when the directory is no longer this driver's."""
        data = sealed({"version": FORMAT_VERSION, **value})
        with storage_errors("write", self._file(name)):
            self.fence.check()
            try:
                self.storage.replace(self._file(name), data)
            except FileNotFoundError:
                # a newer driver deletes what others have not finished
                self.fence.check()
                raise

    def delete(self, name: str) -> None:
        """Delete a file if it is there. Raises FencedError when the directory is no longer this driver's."""
        self.fence.check()
        self.storage.delete(self._file(name))

    def names(self, prefix: str, suffix: str) -> list[str]:
        """The names of the files with this prefix and suffix, sorted. Directories, pipes and the like are left out."""
        found = (entry.name for entry in self.storage.list(self.path) if entry.is_file)
        return sorted(name for name in found if name.startswith(prefix) and name.endswith(suffix))

    # ------------------------------------------------------------------ ownership

    @property
    def token(self) -> str:
        """The token that tells this owner of the directory from all others."""
        return self._token

    def claim(self, job_name: str, silence_s: float = SILENCE_S) -> None:
        """Become the owner by the files alone, without the fencing table. Raises FencedError when another owner is
        alive."""
        self.refuse_if_owned(job_name, silence_s)
        self.write_owner()

    def refuse_if_owned(
        self, job_name: str, silence_s: float = SILENCE_S, waiting: Callable[[], None] = lambda: None
    ) -> Life:
        """Raise FencedError when the owner is alive; otherwise return what is known of it. An owner on another machine
        is watched until it has been silent for ``silence_s`` seconds, or ``waiting`` raises; an earlier attempt of this
        application of YARN is not."""
        owner = self.read("owner.json")
        life = life_of(owner)
        if life is Life.SILENT and not is_earlier_attempt(owner):
            life = watch(lambda: self.read("owner.json"), silence_s - self._silent_for_s(), waiting)
        if life is Life.ALIVE:
            owner = self.read("owner.json") or {}
            raise FencedError(
                f"another driver (process {owner.get('pid')} on {owner.get('host')}) runs a job in this directory",
                where=f"job '{job_name}', directory {self.path}",
                expected="one driver per job directory",
                hint="stop the other driver, or give this job a directory of its own (flinkish.job.dir)",
            )
        return life

    def _silent_for_s(self) -> float:
        """For how many seconds the owner has been silent by the clock of the storage; 0 if that is not known."""
        if self.is_local:
            # a network file system may take such times from the machines' own clocks
            return 0.0
        written = posixpath.join(self.path, f".owner.json.{uuid.uuid4().hex}")
        try:
            self.storage.write(written, b"{}")
            now_s, then_s = self.storage.modified_s(written), self.storage.modified_s(self._file("owner.json"))
        finally:
            self.storage.delete(written)
        return 0.0 if now_s is None or then_s is None else max(0.0, now_s - then_s)

    def owner_life(self) -> Life:
        """What can be known, without waiting, of whether the driver that owns the directory is alive."""
        return life_of(self.read("owner.json"))

    def has_living_owner(self) -> bool:
        """Whether a driver runs a job here, as far as this machine can tell: an owner on another machine
        counts as alive unless it has given the directory back."""
        return self.owner_life() is not Life.GONE

    def write_owner(self) -> None:
        """Write down that this driver owns the directory and is alive."""
        self._renewals += 1
        self.write("owner.json", entry(self._token, self.fence.token, self._renewals, self.remote))

    def check_owner(self, job_name: str) -> None:
        """Raise FencedError when another driver has claimed the directory since. Called before each commit."""
        if not isinstance(self.fence, NoFence):
            self.fence.check()
            return
        owner = self.read("owner.json")
        if owner is not None and owner["token"] != self._token:
            raise FencedError(
                f"the driver {owner['pid']} on {owner['host']} has taken over this job directory",
                where=f"job '{job_name}', directory {self.path}",
                hint="nothing to do if that was intended; this driver stops",
            )

    def renew(self, job_name: str) -> None:
        """Show other machines that this driver is alive, unless it has given the directory back. Raises FencedError
        when the directory is no longer its own."""
        if isinstance(self.fence, NoFence):
            # any other fence is checked by each write
            self.check_owner(job_name)
        with self._owning:
            if not self.released.is_set():
                self.write_owner()

    def release(self, status: str = "", cause: str = "") -> None:
        """Give the directory back. If that cannot be written, at least this process remembers it.

        Args:
            status: the status with which the job has ended; "": it is not known.
            cause: the reason, in words.
        """
        self.released.set()
        given_back(self._token)
        with self._owning, contextlib.suppress(OperationError):
            owner = self.read("owner.json")
            if owner is not None and owner["token"] == self._token:
                ended = {"status": status, "cause": cause, "time_ms": int(time.time() * 1000)} if status else None
                self.write("owner.json", {**owner, "released": True, "ended": ended})

    # ------------------------------------------------------------------ the program that wrote it

    def check_compatible(self, job: JobDescriptor, partitions: int) -> bool:
        """Compare the program's stateful structure with the remembered one; True when none is remembered yet. State of
        operators that are gone may be given up if the job's settings say so.

        Raises:
            IncompatibleJobError: it says what differs.
        """
        now = describe_structure(job, partitions)
        before = self.read("job.json")
        if before is None:
            return True
        state_format = before.get("state_format", 1)
        if state_format != STATE_FORMAT_VERSION:
            raise IncompatibleJobError(
                f"the state in this job directory has format version {state_format}"
                + (", which may hold code" if state_format == 1 else ""),
                where=f"job '{job.name}', directory {self.path}",
                expected=f"format version {STATE_FORMAT_VERSION}",
                hint="start in a new job directory: from the beginning, or from a savepoint with declared types",
            )
        self._check_engine(job, before["structure"]["partitions"], partitions)
        differences = _differences(before["structure"], now)
        lost, taken = self._lost(before["structure"], now)
        texts = list(lost.values())
        if job.settings.ignore_unclaimed_state and not differences and not taken:
            if lost:
                _LOG.warning("job '%s': state is given up: %s", job.name, "; ".join(texts))
            return False
        differences += [*texts, *taken]
        if differences:
            raise IncompatibleJobError(
                "the program differs from the one that wrote this job directory: " + "; ".join(differences),
                where=f"job '{job.name}', directory {self.path}",
                expected="the same stateful operators, levels, parallelism, max parallelism, uids of sinks as before",
                hint="take a savepoint with the old program and start the new one from it (-s) in a new directory, "
                "or undo the change" + (_GIVE_UP if lost else ""),
            )
        return False

    def _check_engine(self, job: JobDescriptor, before: int, now: int) -> None:
        """Check that the job does not change between Spark and the minicluster, which has 0 partitions: neither can
        read what the other one keeps between checkpoints."""
        if bool(before) != bool(now):
            theirs, ours = ("Spark", "the minicluster") if before else ("the minicluster", "Spark")
            raise IncompatibleJobError(
                f"the job in this directory has run {'on Spark' if before else 'in the minicluster'}, so {ours} cannot "
                "go on with it here",
                where=f"job '{job.name}', directory {self.path}",
                expected=f"{theirs}, or a directory of its own",
                hint=f"start it in a new directory (flinkish.job.dir) from a savepoint, or from the last checkpoint of "
                f"this one: -s {self.path}/checkpoints/chk-<number>",
            )

    def _lost(self, before: dict[str, Any], now: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
        """What `lost_operators` returns, given what tasks have reported."""
        states = (self.read(STATES_FILE) or {"states": []})["states"]
        return lost_operators(before["vertices"], now["vertices"], {str(state["uid"]) for state in states})

    def given_up(self) -> tuple[str, ...]:
        """The uids of the operators whose state was given up."""
        job = self.read("job.json")
        return () if job is None else tuple(job.get("given_up", ()))

    def end(self) -> JobEnd | None:
        """How the job has ended for good; None: it has not."""
        return self.read(ENDED_FILE, JobEnd) or self.read(_FINISHED_FILE, JobEnd)

    def check_finished_by(self, job: JobDescriptor) -> None:
        """If a job has come to its end here, compare the program with that of the job. Of one that an earlier version
        has finished, only the name is known.

        Raises:
            IncompatibleJobError: it is another program, which would never run here.
        """
        end = self.end()
        if end is None or not end.done:
            return
        now = describe_program(job)
        name = (self.read("job.json") or now)["name"] if end.program is None else end.program.name
        found = [] if name == now["name"] else [f"its job was '{name}' and is '{now['name']}'"]
        if end.program is not None and end.program.operators:
            old, new = dict(end.program.operators), dict(now["operators"])
            found.extend(f"operator '{uid}' ({old[uid]}) is gone" for uid in old if old[uid] != new.get(uid))
            found.extend(f"operator '{uid}' ({new[uid]}) is new" for uid in new if old.get(uid) != new[uid])
        if found:
            raise IncompatibleJobError(
                "another program has come to its end in this job directory, so this one would not run: "
                + "; ".join(found),
                where=f"job '{job.name}', directory {self.path}",
                expected="the program that has finished here",
                hint="give this program a directory of its own (flinkish.job.dir); if a program executes several jobs, "
                "give each a name of its own: execute(name)",
            )

    def remember_structure(self, job: JobDescriptor, partitions: int) -> None:
        """Remember the program's structure: from now on only programs with the same one, or with more sinks, may run
        here."""
        before, structure = self.read("job.json"), describe_structure(job, partitions)
        if before is None or before["structure"] != structure:
            gone = {} if before is None else self._lost(before["structure"], structure)[0]
            present = {operator.uid for vertex in job.vertices for operator in vertex.operators}
            self.write(
                "job.json",
                {
                    "job_id": job.job_id,
                    "name": job.name,
                    "state_format": STATE_FORMAT_VERSION,
                    "structure": structure,
                    "given_up": sorted({*self.given_up(), *gone} - present),
                },
            )

    def job_id(self) -> str | None:
        """The id of the job that wrote the directory; None when none has yet."""
        job = self.read("job.json")
        return None if job is None else str(job["job_id"])


def describe_structure(job: JobDescriptor, partitions: int) -> dict[str, Any]:
    """The properties of a program that must stay the same for Spark's state, and what sinks know of the job, to be
    found again. ``partitions``: of Spark; 0 in the minicluster."""
    return {
        "sinks": sorted(sink.uid for sink in job.sinks if sink.uid_given),
        "partitions": partitions,
        "sources": [_source_of(vertex) for vertex in job.vertices if vertex.level == 0],
        "vertices": [
            {
                "id": vertex.id,
                "uid": vertex.head.uid,
                "level": vertex.level,
                "parallelism": vertex.parallelism,
                "max_parallelism": vertex.max_parallelism,
                "keyed": vertex.keyed,
                "operators": chained_operators(vertex),
            }
            for vertex in job.vertices
            if vertex.level > 0
        ],
    }


def describe_program(job: JobDescriptor) -> dict[str, Any]:
    """The properties by which a program is recognized once its job has finished: names and uids."""
    return {
        "name": job.name,
        "operators": sorted({op.uid: op.name for v in job.vertices for op in v.operators}.items()),
    }


def _source_of(vertex: VertexDescriptor) -> str:
    """A source as text, with what the assignment of its splits to subtasks depends on: its parallelism and, for a
    generated source, the number of splits."""
    splits = f", {vertex.source.splits} splits" if isinstance(vertex.source, NumberedSplitSource) else ""
    return f"{vertex.head.uid} (parallelism {vertex.parallelism}{splits})"


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    found: list[str] = []
    old = {vertex["uid"]: vertex for vertex in before["vertices"]}
    new = {vertex["uid"]: vertex for vertex in now["vertices"]}
    found.extend(f"operator '{uid}' is gone" for uid in old if uid not in new)
    found.extend(f"operator '{uid}' is new" for uid in new if uid not in old)
    for uid in old:
        if uid in new:
            found.extend(
                f"{key} of '{uid}' was {old[uid][key]} and is {new[uid][key]}"
                for key in old[uid]
                if key != "operators" and old[uid][key] != new[uid][key]
            )
    # directories of earlier versions do not say which sinks there were
    gone = [uid for uid in before.get("sinks", ()) if uid not in now["sinks"]]
    found.extend(f"sink '{uid}' is gone" for uid in gone)
    found.extend(f"sink '{uid}' is new" for uid in now["sinks"] if gone and uid not in before["sinks"])
    if before["sources"] != now["sources"]:
        found.append(f"the sources were {before['sources']} and are {now['sources']}")
    if not found and before["partitions"] != now["partitions"]:
        # there are as many subtasks as before, so it is the setting that differs
        found.append(
            f"the number of Spark partitions ({SPARK_PARTITIONS.key}) was {before['partitions']} and is "
            f"{now['partitions']}"
        )
    return found
