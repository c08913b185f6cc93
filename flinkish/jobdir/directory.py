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
    <job dir>/restore-epoch-<number>/  rows of the checkpoint, or of the job's own state, that the query of the epochs
                                from this one on began with

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
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar, overload

from flinkish.core.sink import NO_FENCE, Fence, NoFence
from flinkish.errors import FencedError, FlinkishError, IncompatibleJobError, OperationError
from flinkish.graph.job_graph import lost_operators
from flinkish.jobdir.fencing import SILENCE_S, Life, entry, given_back, is_earlier_attempt, life_of, was_here, watch
from flinkish.jobdir.layout import JobEnd, content_of, damaged_file
from flinkish.jobdir.structure import describe_structure, differences_between
from flinkish.runtime.job.deployment import JobDescriptor
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

#: The entry of ``job.json`` with the program of an upgrade that has begun.
UPGRADE = "upgrade"

#: Version of the files in the directory. Since version 2 they carry a digest.
FORMAT_VERSION = 2


#: The names of the directories of queries, and of what the minicluster has in their place.
QUERY_NAME = NameForm(r"(minicluster|spark(-drain|-[0-9]+)?)(-owner-[0-9]+)?")

#: The names of the directories of files of keyed state: the first one, and those of queries that began by an upgrade.
KEYED_STATE_NAME = NameForm(r"keyed-state(-[0-9]+)?")

T = TypeVar("T")


@dataclass(frozen=True)
class QueryFile:
    """The content of `QUERY_FILE`. ``moved_from``: the move of the query from there has begun."""

    name: Annotated[str, QUERY_NAME]
    first_epoch: int
    moved_from: Annotated[str | None, QUERY_NAME] = None
    #: directory of the files of keyed state; None: the first one
    keyed_state: Annotated[str | None, KEYED_STATE_NAME] = None


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

    def move_query(self, name: str, first_epoch: int, keyed_state: str | None = None) -> None:
        """Replace the job's query by another one, below ``name``, whose epochs are numbered from ``first_epoch`` on.
        ``keyed_state``: name of the directory of its files of keyed state; None: that of the query before."""
        before = self.query_file()
        kept = None if before is None else before.keyed_state
        self.write_query(QueryFile(name, first_epoch, keyed_state=keyed_state or kept))

    def write_query(self, query: QueryFile) -> None:
        """Write the file that says where the query is."""
        self.write(QUERY_FILE, {name: value for name, value in asdict(query).items() if value is not None})

    @property
    def keyed_state(self) -> str:
        """Directory of the files of keyed state of the job's query, with a subdirectory per vertex and subtask."""
        kept = self.query_file()
        return self.path_of(KEYED_STATE_NAME, (kept and kept.keyed_state) or "keyed-state", QUERY_FILE)

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
        """Compare the program's stateful structure with the remembered one; True when none is remembered yet.

        Raises:
            IncompatibleJobError: they differ; it says what does.
        """
        differences = self.differences(job, partitions)
        if not differences:
            return differences is None
        lost = self._lost((self._program() or {})["structure"], describe_structure(job, partitions))[0]
        raise IncompatibleJobError(
            "the program differs from the one that wrote this job directory: " + "; ".join(differences),
            where=f"job '{job.name}', directory {self.path}",
            expected="the same stateful operators, levels, parallelism, max parallelism, uids of sinks as before",
            hint="take a savepoint with the old program and start the new one from it (-s) in a new directory, "
            "or undo the change" + (_GIVE_UP if lost else ""),
        )

    def differences(self, job: JobDescriptor, partitions: int) -> list[str] | None:
        """What differs in the program's stateful structure from the remembered one, in words; None when none is
        remembered yet. State of operators that are gone may be given up if the job's settings say so.

        Raises:
            IncompatibleJobError: the state in the directory is of another format, or of another engine.
        """
        now, before = describe_structure(job, partitions), self._program()
        if before is None:
            return None
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
        found = differences_between(before["structure"], now)
        lost, taken = self._lost(before["structure"], now)
        texts = list(lost.values())
        if job.settings.ignore_unclaimed_state and not found and not taken:
            if lost:
                _LOG.warning("job '%s': state is given up: %s", job.name, "; ".join(texts))
            return []
        return [*found, *texts, *taken]

    def structure(self) -> dict[str, Any] | None:
        """The remembered structure; None when none is remembered yet."""
        program = self._program()
        return None if program is None else dict(program["structure"])

    def _program(self) -> dict[str, Any] | None:
        """What is remembered of the program of the job's query."""
        job = self.read("job.json")
        upgrade = None if job is None else job.get(UPGRADE)
        # it is that of the query that the upgrade has made, if that one has taken the place of the one before
        if upgrade is not None and upgrade["first_epoch"] == self.query_location().first_epoch:
            return {**(job or {}), **upgrade}
        return job

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
        job = self._program()
        return () if job is None else tuple(job.get("given_up", ()))

    def end(self) -> JobEnd | None:
        """How the job has ended for good; None: it has not."""
        return self.read(ENDED_FILE, JobEnd) or self.read(_FINISHED_FILE, JobEnd)

    def ends_at_once(self, restart: bool) -> bool:
        """Whether a job that is started here ends at once, because it has ended before. One that is not done goes on if
        that was asked for (``restart``), or if this process has ended it itself: then it knows what it does."""
        end = self.end()
        if end is None or end.done:
            return end is not None
        return not (restart or was_here(end.run) and not end.from_outside)

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
        """Remember the program's structure: from now on only programs with the same one, or with more sinks, go on with
        the job's query."""
        before, structure = self._program(), describe_structure(job, partitions)
        if before is None or before["structure"] != structure or UPGRADE in before:
            gone = {} if before is None else self._lost(before["structure"], structure)[0]
            present = {operator.uid for vertex in job.vertices for operator in vertex.operators}
            self._write_program(job, structure, sorted({*self.given_up(), *gone} - present))

    def remember_upgrade(self, job: JobDescriptor, partitions: int, first_epoch: int) -> None:
        """Remember the program's structure as that of the query whose first epoch this is, which is about to take the
        place of the one before. Until it has, the structure of that one counts."""
        before, structure = self._program() or {}, describe_structure(job, partitions)
        upgrade = {"first_epoch": first_epoch, "name": job.name, "structure": structure, "given_up": []}
        kept = {name: value for name, value in before.items() if name not in ("version", "first_epoch")}
        self.write("job.json", {**kept, UPGRADE: upgrade})

    def _write_program(self, job: JobDescriptor, structure: dict[str, Any], given_up: list[str]) -> None:
        self.write(
            "job.json",
            {
                "job_id": job.job_id,
                "name": job.name,
                "state_format": STATE_FORMAT_VERSION,
                "structure": structure,
                "given_up": given_up,
            },
        )

    def job_id(self) -> str | None:
        """The id of the job that wrote the directory; None when none has yet."""
        job = self.read("job.json")
        return None if job is None else str(job["job_id"])


def describe_program(job: JobDescriptor) -> dict[str, Any]:
    """The properties by which a program is recognized once its job has finished: names and uids."""
    return {
        "name": job.name,
        "operators": sorted({op.uid: op.name for v in job.vertices for op in v.operators}.items()),
    }
