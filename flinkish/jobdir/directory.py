"""The files that a job keeps in its directory, besides the Spark query's own checkpoint: which driver owns the
directory and which program wrote it.

    <job dir>/*.json            small files, of which layout.py has the list
    <job dir>/spark/            checkpoint of the streaming query, and in prepared/ what its epochs give to sinks
    <job dir>/minicluster/      in its place: the state of a job in the minicluster (minicluster/stored_epochs.py)
    <job dir>/fencing/          Delta: the claims of all drivers, which decide who may write (fencing.py)
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
import os
import posixpath
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from flinkish.core.sink import NO_FENCE, Fence, NoFence
from flinkish.errors import FencedError, FlinkishError, IncompatibleJobError, OperationError
from flinkish.jobdir.fencing import (
    SILENCE_S,
    Liveness,
    given_back,
    is_earlier_attempt,
    liveness_of,
    this_process,
    was_here,
    watch,
)
from flinkish.jobdir.layout import (
    KEYED_STATE_NAME,
    QUERY_NAME,
    Attempts,
    Finished,
    Job,
    JobEnd,
    Owner,
    OwnersEnd,
    QueryFile,
    States,
    Structure,
    UpgradedProgram,
)
from flinkish.jobdir.structure import describe_program, describe_structure, differences_between, lost_operators
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import OLDEST_STATE_FORMAT, STATE_FORMAT_VERSION
from flinkish.storage.paths import NameForm, absolute, check_private, is_local, make_private
from flinkish.storage.stored_file import StoredFile
from flinkish.storage.stores import job_directory_error, storage_of

_LOG = logging.getLogger("flinkish.JobManager")

_GIVE_UP = (
    "; or give up the state of the operators that are gone (-n / --allowNonRestoredState, "
    "execution.state-recovery.ignore-unclaimed-state: true)"
)

F = TypeVar("F", bound=StoredFile)


@dataclass(frozen=True)
class QueryLocation:
    """The checkpoint directory of a streaming query. Spark numbers its batches from 0; the job's epochs go on from
    ``first_epoch``, so that a number stands for one epoch only, whichever query ran it: sinks know epochs by it."""

    path: str
    first_epoch: int


def ends_at_once(end: JobEnd, restart: bool) -> bool:
    """Whether a job that is started again ends at once, because it has ended so before. One that is not done goes on if
    that was asked for (``restart``), or if this process has ended it itself: then it knows what it does."""
    return end.done or not (restart or was_here(end.run) and not end.from_outside)


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
        kept = self.read(QueryFile) or QueryFile("spark", 0)
        return QueryLocation(self.path_of(QUERY_NAME, kept.name, QueryFile), kept.first_epoch)

    def path_of(self, form: NameForm, name: object, kind: type[StoredFile]) -> str:
        """The path of a directory that a file of the job directory, of this kind, names.

        Raises:
            FinalOperationError: the name is none that flinkish gives; the error names the file.
        """
        try:
            return form.path(self.path, name)
        except ValueError as error:
            raise kind.damaged(kind.path_in(self.path), error) from error

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
        before = self.read(QueryFile)
        kept = None if before is None else before.keyed_state
        self.write(QueryFile(name, first_epoch, keyed_state=keyed_state or kept))

    @property
    def keyed_state(self) -> str:
        """Directory of the files of keyed state of the job's query, with a subdirectory per vertex and subtask."""
        kept = self.read(QueryFile)
        return self.path_of(KEYED_STATE_NAME, (kept and kept.keyed_state) or "keyed-state", QueryFile)

    @property
    def restore_rows(self) -> str:
        """Directory for the rows of a savepoint that this driver restores; not one to which an earlier driver may still
        be writing."""
        return posixpath.join(self.path, f"restore-{self.fence.token}" if self.fence.token else "restore")

    def fallback_rows(self, first_epoch: int) -> str:
        """Directory for the rows of a checkpoint with which the query of the epochs from ``first_epoch`` on begins."""
        return posixpath.join(self.path, f"restore-epoch-{first_epoch}")

    # ------------------------------------------------------------------ files

    def read(self, kind: type[F], *parts: object) -> F | None:
        """The content of the file of this kind; None when there is no such file. ``parts``: what stands in its name, of
        a kind of which there are several.

        Raises:
            FinalOperationError: the file is damaged, of another kind, or of a newer release; the error names it.
        """
        return kind.read(self.path, *parts)

    def write(self, value: StoredFile, *parts: object) -> None:
        """Write a file, whole or not at all. Raises FencedError when the directory is no longer this driver's."""
        self.fence.check()
        try:
            value.write(self.path, *parts)
        except OperationError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                # a newer driver deletes what others have not finished
                self.fence.check()
            raise

    def delete(self, kind: type[StoredFile], *parts: object) -> None:
        """Delete a file if it is there. Raises FencedError when the directory is no longer this driver's."""
        self.fence.check()
        self.storage.delete(kind.path_in(self.path, *parts))

    def kept(self, kind: type[StoredFile]) -> list[tuple[str, ...]]:
        """What stands in the names of the files of this kind, sorted. Directories, pipes and the like are left out."""
        found = (kind.parts_of(entry.name) for entry in self.storage.list(self.path) if entry.is_file)
        return sorted(parts for parts in found if parts is not None)

    def count_start(self) -> int:
        """Count a start of the job; returns how many there were before."""
        attempts = (self.read(Attempts) or Attempts(0)).attempts
        self.write(Attempts(attempts + 1))
        return attempts

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
    ) -> Liveness:
        """Raise FencedError when the owner is alive; otherwise return what is known of it. An owner on another machine
        is watched until it has been silent for ``silence_s`` seconds, or ``waiting`` raises; an earlier attempt of this
        application of YARN is not."""
        owner = self.read(Owner)
        liveness = liveness_of(owner)
        if liveness is Liveness.SILENT and not is_earlier_attempt(owner):
            liveness = watch(lambda: self.read(Owner), silence_s - self._silent_for_s(), waiting)
        if liveness is Liveness.ALIVE:
            owner = self.read(Owner) or owner
            assert owner is not None, "it is alive"
            raise FencedError(
                f"another driver (process {owner.pid} on {owner.host}) runs a job in this directory",
                where=f"job '{job_name}', directory {self.path}",
                expected="one driver per job directory",
                hint="stop the other driver, or give this job a directory of its own (flinkish.job.dir)",
            )
        return liveness

    def _silent_for_s(self) -> float:
        """For how many seconds the owner has been silent by the clock of the storage; 0 if that is not known."""
        if self.is_local:
            # a network file system may take such times from the machines' own clocks
            return 0.0
        written = posixpath.join(self.path, f".{Owner.NAME}.{uuid.uuid4().hex}")
        try:
            self.storage.write(written, b"{}")
            now_s, then_s = self.storage.modified_s(written), self.storage.modified_s(Owner.path_in(self.path))
        finally:
            self.storage.delete(written)
        return 0.0 if now_s is None or then_s is None else max(0.0, now_s - then_s)

    def owner_liveness(self) -> Liveness:
        """What can be known, without waiting, of whether the driver that owns the directory is alive."""
        return liveness_of(self.read(Owner))

    def write_owner(self) -> None:
        """Write down that this driver owns the directory and is alive."""
        self._renewals += 1
        self.write(this_process(self._token, self.fence.token, self._renewals, self.remote))

    def check_owner(self, job_name: str) -> None:
        """Raise FencedError when another driver has claimed the directory since. Called before each commit."""
        if not isinstance(self.fence, NoFence):
            self.fence.check()
            return
        owner = self.read(Owner)
        if owner is not None and owner.token != self._token:
            raise FencedError(
                f"the driver {owner.pid} on {owner.host} has taken over this job directory",
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
        """Give the directory back. If that cannot be written, at least this process remembers it; a process that the
        driver has forked cannot.

        Args:
            status: the status with which the job has ended; "": it is not known.
            cause: the reason, in words.
        """
        self.released.set()
        given_back(self._token)
        with self._owning, contextlib.suppress(OperationError):
            owner = self.read(Owner)
            if owner is not None and (owner.token, owner.pid) == (self._token, os.getpid()):
                ended = OwnersEnd(status, cause, int(time.time() * 1000)) if status else None
                self.write(replace(owner, released=True, ended=ended))

    # ------------------------------------------------------------------ the program that wrote it

    def check_compatible(self, job: JobDescriptor, partitions: int) -> bool:
        """Compare the program's stateful structure with the remembered one; True when none is remembered yet.

        Raises:
            IncompatibleJobError: they differ; it says what does.
        """
        differences = self.differences(job, partitions)
        if not differences:
            return differences is None
        before = self._program()
        lost = {} if before is None else self._lost(before.structure, describe_structure(job, partitions))[0]
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
        state_format = before.state_format
        if state_format not in range(OLDEST_STATE_FORMAT, STATE_FORMAT_VERSION + 1):
            raise IncompatibleJobError(
                f"the state in this job directory has format version {state_format}"
                + (", which may hold code" if state_format == 1 else ""),
                where=f"job '{job.name}', directory {self.path}",
                expected=f"format version {OLDEST_STATE_FORMAT} to {STATE_FORMAT_VERSION}",
                hint="start in a new job directory: from the beginning, or from a savepoint with declared types",
            )
        self._check_engine(job, before.structure.partitions, partitions)
        found = differences_between(before.structure, now)
        lost, taken = self._lost(before.structure, now)
        texts = list(lost.values())
        if job.settings.ignore_unclaimed_state and not found and not taken:
            if lost:
                _LOG.warning("job '%s': state is given up: %s", job.name, "; ".join(texts))
            return []
        return [*found, *texts, *taken]

    def structure(self) -> Structure | None:
        """The remembered structure; None when none is remembered yet."""
        program = self._program()
        return None if program is None else program.structure

    def _program(self) -> Job | None:
        """What is remembered of the program of the job's query."""
        job = self.read(Job)
        upgrade = None if job is None else job.upgrade
        # it is that of the query that the upgrade has made, if that one has taken the place of the one before
        if job is None or upgrade is None or upgrade.first_epoch != self.query_location().first_epoch:
            return job
        return replace(job, name=upgrade.name, structure=upgrade.structure, given_up=upgrade.given_up)

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

    def _lost(self, before: Structure, now: Structure) -> tuple[dict[str, str], list[str]]:
        """What `lost_operators` returns, given what tasks have reported."""
        reported = {state.uid for state in (self.read(States) or States([])).states}
        old, new = ({vertex.uid: vertex.operators for vertex in one.vertices} for one in (before, now))
        return lost_operators(old, new, reported)

    def given_up(self) -> tuple[str, ...]:
        """The uids of the operators whose state was given up."""
        job = self._program()
        return () if job is None else tuple(job.given_up)

    def end(self) -> JobEnd | None:
        """How the job has ended for good; None: it has not."""
        return self.read(JobEnd) or self.read(Finished)

    def check_finished_by(self, job: JobDescriptor) -> JobEnd | None:
        """If a job has come to its end here, compare the program with that of the job. Of one that an earlier version
        has finished, only the name is known. Returns how the job has ended for good; None: it has not.

        Raises:
            IncompatibleJobError: it is another program, which would never run here.
        """
        end = self.end()
        if end is None or not end.done:
            return end
        now = describe_program(job)
        name = (end.program or self.read(Job) or now).name
        found = [] if name == now.name else [f"its job was '{name}' and is '{now.name}'"]
        if end.program is not None and end.program.operators:
            old, new = dict(end.program.operators), dict(now.operators)
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
        return end

    def remember_structure(self, job: JobDescriptor, partitions: int) -> None:
        """Remember the program's structure: from now on only programs with the same one, or with more sinks, go on with
        the job's query."""
        before, structure = self._program(), describe_structure(job, partitions)
        if before is None or before.structure != structure or before.upgrade is not None:
            gone = {} if before is None else self._lost(before.structure, structure)[0]
            present = {operator.uid for vertex in job.vertices for operator in vertex.operators}
            given_up = sorted({*self.given_up(), *gone} - present)
            self.write(Job(job.job_id, job.name, STATE_FORMAT_VERSION, structure=structure, given_up=given_up))

    def remember_upgrade(self, job: JobDescriptor, partitions: int, first_epoch: int) -> None:
        """Remember the program's structure as that of the query whose first epoch this is, which is about to take the
        place of the one before. Until it has, the structure of that one counts."""
        before, structure = self._program(), describe_structure(job, partitions)
        assert before is not None, "it has differed from this one"
        self.write(replace(before, upgrade=UpgradedProgram(first_epoch, job.name, structure)))

    def job_id(self) -> str | None:
        """The id of the job that wrote the directory; None when none has yet."""
        job = self.read(Job)
        return None if job is None else job.job_id
