"""Takes savepoints of running jobs, and stops jobs with a savepoint. A savepoint is a manifest and a Delta table of all
state, as rows that SQL can read and edit.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flinkish.checkpoint.claim import delete_savepoint
from flinkish.checkpoint.compatibility import read_states
from flinkish.checkpoint.maintenance import gentle_tasks
from flinkish.checkpoint.manifest import (
    Manifest,
    Savepoint,
    TableContents,
    manifest_of,
    state_table,
    write_manifest,
)
from flinkish.checkpoint.rows import open_table, write_rows, written_contents
from flinkish.errors import FlinkishError, OperationError, SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Liveness, is_of_this_process, liveness_of
from flinkish.jobdir.layout import Owner, SavingNote
from flinkish.jobmanager.checkpoint_taker import CheckpointTaker, was_outrun
from flinkish.jobmanager.savepoint_turns import SavepointTurns
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.progress import shown_position
from flinkish.spark.data_files import FILE_SCHEMA, DataFile, RowsToFiles
from flinkish.spark.failures import translate
from flinkish.spark.settings import SparkWork, described_jobs
from flinkish.spark.state import SAVEPOINT_ARROW, read_state, write_state
from flinkish.spark.worker import DeployedClasses, secret_of
from flinkish.storage.files import (
    child_names,
    delete_directory,
    delete_file,
    directory_bytes,
    is_directory,
    write_bytes,
)
from flinkish.storage.paths import absolute
from flinkish.storage.stores import storage_error, storage_of

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")

#: Seconds after which it is looked again whether a task has written to a savepoint that was removed.
_REMOVALS_S = (0.05, 0.2, 1.0)

if TYPE_CHECKING:
    from flinkish.jobmanager.attempt import QueryAttempt
    from flinkish.jobmanager.kept_run import KeptRun
    from flinkish.jobmanager.spark_run import SparkRun


def take_savepoint(run: KeptRun, directory: str | None) -> str:
    """Write a savepoint of the last committed epoch of a run; returns its path. The job may go on meanwhile.

    Args:
        run: the run of the job.
        directory: the directory in which the savepoint is made; None: the job's savepoint directory.

    Raises:
        SavepointError: no epoch has been committed yet, or there is no directory for the savepoint.
        FlinkishError: the savepoint could not be written; the part that was written is deleted.
    """
    epoch = run.committed_epoch()
    if epoch is None:
        raise SavepointError(
            "no epoch has been committed yet", where=f"job '{run.name}'", hint="try again after the first epoch"
        )
    parent = directory or run.savepoint_directory()
    path = posixpath.join(absolute(parent), f"savepoint-{run.job.job_id[:6]}-{uuid.uuid4().hex[:12]}")
    with run.savepoints.taking(epoch, path) as learned:
        try:
            manifest = run.write_savepoint(epoch, path)
        except Exception as error:
            remove_part(path)
            secret = secret_of(run.job.job_id, run.job.attempt)
            raise translate(error, f"job '{run.name}', savepoint {path}", secret) from error
        rows = {} if manifest.contents is None else manifest.contents.rows_of_operators
        shown = {uid: shown_position(position) for uid, position in manifest.sources.items()}
        barrier = run.checkpoints.barrier(epoch if manifest.epoch is None else manifest.epoch)
        learned(
            epoch=barrier.epoch,
            offsets=shown,
            rows_written=sum(rows.values()),
            state_rows=rows,
            bytes_written=directory_bytes(state_table(path)),
            **barrier.figures(),
        )
    passed(Phase.SAVEPOINT_COMPLETED, epoch=epoch)
    return path


_PART = re.compile("savepoint-[0-9a-f]{6}-[0-9a-f]{12}")


class SavingNotes:
    """Writes a `SavingNote` for each savepoint of one run, so that the next driver knows of them if this one is killed.

    Args:
        directory: the job directory; None: a temporary one, which no other driver will know.
        turns: the savepoints of the run.
    """

    def __init__(self, directory: JobDirectory | None, turns: SavepointTurns) -> None:
        self._directory = directory
        self._turns = turns
        #: that of the savepoint of a stop
        self._of_stop: str | None = None

    @contextlib.contextmanager
    def noted(self, path: str) -> Iterator[None]:
        """Within the block a savepoint is written. Raises SavepointError if it is not to be."""
        self._turns.check()
        if self._directory is None:
            yield
            return
        name, of_stop = uuid.uuid4().hex, self._turns.of_stop()
        self._directory.write(SavingNote(path, of_stop), name)
        try:
            yield
        except BaseException:
            remove_part(path)
            self._directory.delete(SavingNote, name)
            raise
        if of_stop:
            self._of_stop = name
        else:
            self._directory.delete(SavingNote, name)

    def end_stop(self) -> None:
        """Whoever has asked for the savepoint of a stop is about to learn of it, or of the failure of the stop."""
        note, self._of_stop = self._of_stop, None
        if note is not None and self._directory is not None:
            with contextlib.suppress(FlinkishError, OSError):
                self._directory.delete(SavingNote, note)


def sweep_savepoints(directory: JobDirectory) -> list[str]:
    """Remove the parts of savepoints that a driver has left when it was killed; returns what is to be told of those of
    stops that are whole, although the job has not ended. To be called by the owner, before it runs anything.

    What cannot be removed is logged, and left to the next driver."""
    told = []
    for (name,) in directory.kept(SavingNote):
        try:
            note, end = directory.read(SavingNote, name), directory.end()
            if note is None or _PART.fullmatch(posixpath.basename(note.path)) is None:
                continue
            if Manifest.NAME not in child_names(note.path):
                delete_directory(state_table(note.path))
                if not child_names(note.path):
                    delete_directory(note.path)
            elif note.of_stop and (end is None or end.savepoint != note.path):
                told.append(
                    f"the driver before was to stop the job with the savepoint {note.path}, and has died when that was "
                    f"whole: the job goes on; to begin with the savepoint instead, start it in another directory (-s)"
                )
            directory.delete(SavingNote, name)
        except (FlinkishError, OSError) as error:
            _LOG.warning("what is left of a savepoint (%s) cannot be removed: %s", name, error)
    return told


def remove_part(path: str) -> None:
    """Delete the part of a savepoint that was written. A task of Spark that has been told to end may still write."""
    for pause_s in (0, *_REMOVALS_S):
        time.sleep(pause_s)
        with contextlib.suppress(Exception):
            if pause_s and not is_directory(path):
                return
            delete_directory(path)


def write_by_spark(run: SparkRun, epoch: int, path: str) -> Manifest:
    """Write a savepoint's table and, last, its manifest; returns the manifest.

    Of a job that goes on meanwhile it is a copy of a checkpoint that is taken now and held as long as it takes: Spark
    deletes the state of all but the last epochs. A job without checkpoints is read again from a newer epoch if it was
    faster, and that time epochs wait before they would delete what is read.
    """
    turns = run.savepoint_turns
    if turns.of_running_job() and isinstance(run.checkpoints, CheckpointTaker) and run.settings.checkpoints.enabled:
        with run.checkpoints.held(turns.check) as checkpoint:
            return _copied(run, checkpoint, path)
    try:
        return _written(run, epoch, path)
    except Exception as error:
        turns.check()
        newer = run.committed_epoch()
        if newer is None or not was_outrun(epoch, newer, error):
            raise
    remove_part(path)
    with run.readers.reading("a savepoint", newer):
        return _written(run, newer, path)


def _written(run: SparkRun, epoch: int, path: str) -> Manifest:
    """Write a savepoint of the state that the query has of an epoch."""
    attempt = run.attempt
    positions = attempt.positions(epoch)
    passed(Phase.SAVEPOINT_READ, epoch=epoch)
    with _interruptible(run, epoch):
        contents = _write_table(run, attempt, epoch, state_table(path))
    manifest = manifest_of(run.job, epoch, positions, contents=contents, states=read_states(run.directory))
    run.savepoint_turns.check()
    write_manifest(path, manifest)
    return manifest


def _copied(run: SparkRun, checkpoint: str, path: str) -> Manifest:
    """Write a savepoint that has what a checkpoint has."""
    opened = Savepoint.open(checkpoint)
    taken = opened.manifest
    assert taken.epoch is not None, "it was taken of an epoch"
    passed(Phase.SAVEPOINT_READ, epoch=taken.epoch)
    table = state_table(path)
    with _interruptible(run, taken.epoch):
        rows = open_table(run.spark, opened)
        write_rows(table, lambda local: _files_of(run, rows, local), lambda: rows)
        passed(Phase.SAVEPOINT_WRITTEN, epoch=taken.epoch)
        contents = written_contents(run.spark, table)
    manifest = manifest_of(run.job, taken.epoch, taken.sources, contents=contents, states=taken.states)
    run.savepoint_turns.check()
    write_manifest(path, manifest)
    return manifest


def _files_of(run: SparkRun, rows: Any, table: str) -> list[DataFile]:
    """Write rows to files in the directory of a table, which is a path without a scheme."""
    convert = RowsToFiles(iter, SAVEPOINT_ARROW, table, secret_of(run.job.job_id, run.job.attempt))
    copied = rows.coalesce(gentle_tasks(run.spark)).mapInArrow(convert, FILE_SCHEMA)
    return [DataFile(*file) for file in copied.collect()]


@contextlib.contextmanager
def _interruptible(run: SparkRun, epoch: int) -> Iterator[None]:
    """Within the block, the Spark jobs of this thread end with the savepoint."""
    with (
        SparkWork(run.spark, "savepoint") as work,
        described_jobs(run.spark, f"{run.name}: savepoint of epoch {epoch}"),
        run.savepoint_turns.interrupted_by(work.end),
    ):
        yield


def _write_table(run: SparkRun, attempt: QueryAttempt, epoch: int, table: str) -> TableContents:
    """Write the savepoint's table; returns what it contains."""
    job, location = attempt.job, attempt.location
    stored = (
        run.spark,
        location.path,
        epoch - location.first_epoch,
        job.levels,
        DeployedClasses.of_job(job),
        attempt.directory.keyed_state,
    )
    write_rows(table, lambda local: write_state(*stored, table=local), lambda: read_state(*stored))
    passed(Phase.SAVEPOINT_WRITTEN, epoch=epoch)
    return written_contents(run.spark, table)


#: How far above a savepoint its job directory is looked for: <job dir>/checkpoints/<job id>/chk-1.
_LEVELS = 3


def dispose_savepoint(directory: str, begun_from: Mapping[str, str]) -> None:
    """Delete a savepoint, or a checkpoint that has outlived its job: what its manifest names, and nothing else.

    Args:
        directory: the savepoint.
        begun_from: the savepoints that jobs at work in this driver have begun with -> the names of the jobs.

    Raises:
        SavepointError: there is no savepoint, or it is damaged.
        OperationError: it is still needed.
    """
    savepoint = Savepoint.open(directory, whole=False)
    path = savepoint.path
    if path in begun_from:
        raise OperationError(
            f"the job '{begun_from[path]}' was started from this savepoint and is at work",
            where=path,
            hint="dispose of it when the job has ended",
        )
    above = path
    for _ in range(_LEVELS):
        above = posixpath.dirname(above)
        owner = Owner.read(above)
        if owner is None:
            continue
        checkpoint = posixpath.basename(path).startswith("chk-")
        if liveness_of(owner) is not Liveness.GONE and (checkpoint or not is_of_this_process(owner)):
            raise OperationError(
                "it belongs to a job that a driver runs, and lies in the directory of that job",
                where=path,
                expected=f"no driver at work in {above}" if not checkpoint else f"a job that has ended in {above}",
                hint="dispose of it where that driver runs" if not checkpoint else "wait until the job has ended",
            )
    delete_savepoint(savepoint)


def check_target(directory: str, where: str) -> None:
    """Check that savepoints can be made in a directory: create it, and write and delete a file in it.

    Raises:
        SavepointError: no savepoint can be made there; the error says why.
    """
    hint = "name a directory that the driver and all executors can write to"
    try:
        storage_of(directory)
    except Exception as error:
        raise SavepointError(f"cannot write a savepoint to {directory}: {error}", where=where, hint=hint) from error
    parent = absolute(directory)
    probe = posixpath.join(parent, f".flinkish-{uuid.uuid4().hex}")
    try:
        write_bytes(probe, b"")
        delete_file(probe)
        names = child_names(parent)
    except (OperationError, OSError) as error:
        typed = storage_error(error, "write", probe) if isinstance(error, OSError) else error
        raise SavepointError(
            f"cannot write a savepoint to {parent}: {typed.what}", where=where, hint=typed.hint or hint
        ) from error
    if Manifest.NAME in names:
        raise SavepointError(
            f"cannot write a savepoint to {parent}: it is itself a savepoint or checkpoint",
            where=where,
            expected="the directory that savepoints are made in, each in a directory of its own",
            hint=f"name its parent, {posixpath.dirname(parent)}",
        )
