"""The run of a job that has a directory, on Spark and in the minicluster: how it begins and ends there, and how it is
stopped with a savepoint."""

from __future__ import annotations

import posixpath
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flinkish.checkpoint.coordinator import SavepointLog
from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import (
    CheckpointError,
    FinalOperationError,
    FlinkishError,
    OperationError,
    SavepointError,
)
from flinkish.jobdir.directory import JobDirectory, ends_at_once
from flinkish.jobdir.layout import JobEnd, Program
from flinkish.jobdir.structure import describe_program
from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager.decision import (
    Attempt,
    BeginDrain,
    Drain,
    End,
    Facts,
    FailStop,
    Outcome,
    Refusal,
    Remember,
    Save,
    Step,
    Stop,
    TakeLastCheckpoint,
    Wish,
    refusal,
)
from flinkish.jobmanager.job.lifecycle import StateMachine
from flinkish.jobmanager.job.settings import DriverSettings, checkpoints_path
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.restart import Restarts, one_line
from flinkish.jobmanager.savepoint import SavingNotes, check_target
from flinkish.jobmanager.savepoint_turns import SavepointTurns
from flinkish.jobmanager.wishes import StopWithSavepoint
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.task.stack_samples import SampleBoard
from flinkish.spark.failures import translate
from flinkish.storage.paths import absolute

#: Seconds between two looks at whether the first epoch is committed.
_LOOK_S = 0.1
#: Why savepoints are aborted.
_CANCELLED = "the job is being cancelled"


class KeptRun(JobRun):
    """Runs a job that has a directory: restarts it after failures, stops it with a savepoint, and remembers its end.

    Args:
        job: the job graph of the first attempt.
        settings: the driver's settings.
        directory: the job directory, claimed by this driver; it is released when the job has ended.
        temporary: whether the directory is a temporary one, which is deleted when the job has ended.
        restarts: decides whether a failed attempt is followed by another one.
        machine: the state machine of the job since its submission.
    """

    directory: JobDirectory

    def __init__(
        self,
        job: JobDescriptor,
        settings: DriverSettings,
        directory: JobDirectory,
        temporary: bool,
        restarts: Restarts | None = None,
        machine: StateMachine[JobStatus] | None = None,
    ) -> None:
        super().__init__(JobID.from_hex_string(job.job_id), job.name, machine, restarts)
        if job.attempt:
            times = f"{job.attempt} time{'s'[: job.attempt != 1]}"
            self.taken_over = f"earlier drivers have started it {times} in {directory.path}"
        self.shutdown_timeout_s = settings.shutdown_timeout_s
        self.directory = directory
        self.settings = settings
        self._temporary = temporary
        #: how the job has ended before, if it is not to be started again
        self._earlier_end: JobEnd | None = None
        #: the job's checkpoints, which are numbered together with its savepoints
        self.checkpoint_directory = CheckpointDirectory(checkpoints_path(settings, directory.path, job.job_id))
        self.savepoints = SavepointLog(self.checkpoint_ended, next_id=self._next_number)
        #: the savepoints that are in flight
        self.savepoint_turns = SavepointTurns(self, settings.checkpoints.timeout_ms / 1000)
        #: tell the next driver of the savepoints that are being written
        self.saving = SavingNotes(None if temporary else directory, self.savepoint_turns)

    # ------------------------------------------------------------------ what an engine provides

    @property
    @abstractmethod
    def job(self) -> JobDescriptor:
        """The job graph of the running attempt."""

    @property
    @abstractmethod
    def sample_board(self) -> SampleBoard:
        """Where the workers of the running attempt are asked for stacks of their tasks."""

    @abstractmethod
    def committed_epoch(self) -> int | None:
        """The last committed epoch; None: there is none yet."""

    @abstractmethod
    def take_savepoint(self, directory: str | None) -> str:
        """Write a savepoint of the last committed epoch into a directory of its own below this one (None: the job's
        savepoint directory); returns its path.
        Raises as `take_savepoint` does."""

    @abstractmethod
    def write_savepoint(self, epoch: int, path: str) -> Manifest:
        """Write all of a savepoint of the last committed epoch; returns its manifest."""

    @abstractmethod
    def _input_has_ended(self) -> bool:
        """Whether all input has ended and is committed."""

    @abstractmethod
    def _is_bounded(self) -> bool:
        """Whether all sources come to an end by themselves."""

    @abstractmethod
    def _wake(self) -> None:
        """Let the running attempt look at once at what was asked for."""

    def _drain(self) -> Drain:
        """How far a drain is."""
        return Drain.NONE

    # ------------------------------------------------------------------ the thread

    def _steps(self) -> dict[type[Step], Callable[[Any], Outcome]]:
        kept: dict[type[Step], Callable[[Any], Outcome]] = {
            Save: self._save,
            FailStop: self._fail_stop,
            TakeLastCheckpoint: self._take_last_checkpoint,
        }
        return super()._steps() | kept

    def _facts(self, outcome: Outcome) -> Facts:
        if outcome is Outcome.BEGUN:
            self._earlier_end = self._read_earlier_end()
        stop, end = self.wishes.stop, self._earlier_end
        canceled = end is not None and end.status == JobStatus.CANCELED.name
        return replace(
            super()._facts(outcome),
            stop=Stop.NONE if stop is None else stop.kind,
            stop_begun=self.wishes.to_end,
            drain=self._drain(),
            earlier_end=None if end is None else JobStatus.CANCELED if canceled else JobStatus.FINISHED,
            input_ended=self._input_has_ended(),
            bounded=self._is_bounded(),
        )

    def make_attempt(self, which: Attempt) -> None:
        if which is Attempt.FIRST:
            given = self.settings.job_dir
            if given is not None and absolute(self.directory.path) != absolute(given):
                self._print(f"this job of the program has the job directory {self.directory.path}")
            if self.settings.note_on_requests is not None:
                self._print(self.settings.note_on_requests)

    def _translated(self, step: Step, error: Exception) -> FlinkishError | None:
        return translate(error, f"job '{self.name}'") if isinstance(step, (Save, BeginDrain)) else None

    def _save(self, step: Save) -> Outcome:
        stop = self.wishes.stop
        self._final_savepoint = self._taken_finally(stop)
        if stop is not None and stop.from_outside:
            live_jobs.asked_from_outside(self)
        return Outcome.SAVED

    def _taken_finally(self, stop: StopWithSavepoint | None) -> str:
        """Write the savepoint with which the job ends; returns its path."""
        assert stop is not None, "a savepoint that nobody has asked for is that of a drain"
        return self.savepoint_turns.take(stop.directory, of_stop=True)

    def _fail_stop(self, step: FailStop) -> Outcome:
        with self._lock:
            stop, failure = self.wishes.drop_stop(), self._failure
        assert stop is not None
        self.saving.end_stop()
        stop.job_goes_on = step.goes_on
        stop.outcome.set_exception(failure or self.savepoint_turns.abortion(_CANCELLED))
        if step.goes_on and failure is not None:
            self._print(f"the job was not stopped and goes on: {failure.message}")
        return Outcome.STOP_FAILED

    def _take_last_checkpoint(self, step: TakeLastCheckpoint) -> Outcome:
        self.savepoint_turns.close(self._why_it_ends())
        self.doing = "the last checkpoint"
        path = self.checkpoints.take_last()
        if path is None and self.settings.checkpoints.enabled and self.committed_epoch() is not None:
            self._print(
                "no last checkpoint was taken (the log says why); the job goes on from its directory all the same"
            )
        return Outcome.CHECKPOINTED

    def _conclude(self, end: End) -> None:
        self.savepoint_turns.close(self._why_it_ends())
        if self._earlier_end is not None:
            self._print_earlier_end(self._earlier_end)
        elif end.remember is not Remember.NOTHING:
            self._write_end(end.status, end.remember is Remember.DONE)
        needs_no_checkpoints = self._needs_no_checkpoints()
        self._answer_stop(None)
        self.checkpoints.close(delete=needs_no_checkpoints)

    def _conclude_failed(self, failure: FlinkishError) -> None:
        self.savepoint_turns.close(f"the job has failed: {one_line(failure)}")
        self._answer_stop(failure)
        self._in_any_case(self.checkpoints.close, "the job has failed")

    def _why_it_ends(self) -> str:
        if not self.wishes.to_end:
            return "the job has come to its end"
        return "the job is being suspended" if self.wishes.wish is Wish.SUSPEND else "the job is being stopped"

    def _read_earlier_end(self) -> JobEnd | None:
        """How the job has ended before, if it is not to be started again."""
        end = self.directory.end()
        if end is not None and not ends_at_once(end, self.settings.restart):
            self.directory.delete(JobEnd)
            return None
        return end

    def _print_earlier_end(self, end: JobEnd) -> None:
        """Say how the job has ended before, which is how it ends again."""
        start = f"start it from there (-s {end.savepoint})" if end.savepoint else "to run it anew, start it"
        what_to_do = f"{start} in another directory (flinkish.job.dir)"
        if not end.done:
            what_to_do += ", or let it go on in this one (--restart, flinkish.job.restart: true)"
        self._print(
            f"nothing was run: this job was {end.described()} earlier, in its directory {self.directory.path}; "
            f"{what_to_do}"
        )
        if end.from_outside:
            live_jobs.asked_from_outside(self)

    def _needs_no_checkpoints(self) -> bool:
        """Whether the checkpoints can be deleted: the job is done, or it was cancelled and they are not to be retained
        on cancellation.

        A job that has failed, or that was stopped, can be started again in its directory and needs them.
        """
        end = self.directory.end()
        if end is None or end.done:
            return end is not None
        cancelled = end.status == JobStatus.CANCELED.name and end.run == self.directory.token
        return cancelled and not self.settings.checkpoints.retain_on_cancellation

    def _write_end(self, status: JobStatus, done: bool) -> None:
        super()._write_end(status, done)
        self.saving.end_stop()

    def _program(self) -> Program:
        return describe_program(self.job)

    def _answer_stop(self, failure: BaseException | None) -> None:
        """Complete the outcome of a stop with a savepoint; to be called before the directory is released."""
        stop, path = self.wishes.stop, self._final_savepoint
        self.wishes.stop = None
        if stop is None:
            return
        if failure is None and path is not None:
            stop.outcome.set_result(path)
        else:
            stop.outcome.set_exception(failure or self._too_late())

    def stop_with_savepoint(self, stop: StopWithSavepoint) -> None:
        """End the job after the running epoch, if a savepoint of that epoch can be written. Returns at once;
        ``stop.outcome`` is completed when it is known whether the savepoint was written. An epoch that takes longer
        than half of ``execution.checkpointing.timeout`` is given up; the savepoint is of the one before.

        Raises:
            FinalOperationError: the job has ended already.
            OperationError: the job is being stopped with a savepoint already, or waits for its restart.
            SavepointError: no savepoint can be written to the directory; nothing was stopped.
        """
        self._check_stoppable()
        check_target(stop.directory, f"job '{self.name}'")
        with self._lock:
            self._check_stoppable()
            patience_s = self.settings.checkpoints.timeout_ms / 2000
            stop.epoch_deadline_s = time.monotonic() + patience_s
            self.wishes.stop = stop
        if self.committed_epoch() is not None:
            self._begin_stop()
        else:
            # there is nothing to save before the first epoch: the stop begins with its end
            timer = threading.Timer(patience_s, self._begin_stop)
            timer.daemon = True
            timer.start()

    def _begin_stop(self) -> None:
        """End the job after the running epoch, if a stop with a savepoint was asked for and is not answered."""
        with self._lock:
            if self.wishes.stop is None:
                return
            self.wishes.stop.begun = True
        self.wishes.notify()
        self._wake()

    def epoch_committed(self, epoch: int) -> None:
        """Notify the observers; a stop with a savepoint that has waited for the first epoch begins."""
        super().epoch_committed(epoch)
        self.savepoint_turns.epoch_committed()
        if self.wishes.stop is not None and not self.wishes.to_end:
            self._begin_stop()

    def _refusal(self) -> Refusal | None:
        stop = self.wishes.stop
        return refusal(self._step, Stop.NONE if stop is None else stop.kind, self._drain(), self._delay_ms)

    def _check_stoppable(self) -> None:
        why = self._refusal()
        if why is Refusal.TOO_LATE:
            raise self._too_late()
        if why is Refusal.STOPPING:
            raise OperationError(
                "the job is being stopped with a savepoint already",
                where=f"job '{self.name}'",
                hint="wait for the end of that stop",
            )
        if why is Refusal.RESTARTING:
            # as in Flink; the wait for the restart goes on
            raise OperationError(
                "the job has failed and waits for its restart: there is no epoch after which it could be stopped",
                where=f"job '{self.name}'",
                expected="a job that is RUNNING",
                hint="ask again when it runs, or cancel it",
            )

    def savepoint(self, directory: str | None) -> str:
        """Write a savepoint that somebody has asked for, in its turn; returns its path. The job may go on meanwhile.

        Raises:
            FlinkishError: it cannot be written, or was aborted with the job.
        """
        if self._refusal() is Refusal.TOO_LATE:
            raise self._too_late("saved")
        target = directory or self.savepoint_directory()
        check_target(target, f"job '{self.name}'")
        return self.savepoint_turns.take(target)

    def checkpoint(self, full: bool) -> int:
        """Take a checkpoint that somebody has asked for, once an epoch is committed; returns its number. ``full``: of
        all state, not only of what has changed.

        Raises:
            FlinkishError: it cannot be taken.
        """
        deadline_s = time.monotonic() + self.settings.checkpoints.timeout_ms / 1000
        while self.committed_epoch() is None:
            if self._refusal() is Refusal.TOO_LATE or self.over.wait(_LOOK_S):
                break
            if time.monotonic() > deadline_s:
                raise CheckpointError("no epoch has been committed yet", where=f"job '{self.name}'")
        if self._refusal() is Refusal.TOO_LATE:
            raise self._too_late("checkpointed")
        return self.checkpoints.take_now(full)

    def _too_late(self, what: str = "stopped") -> FinalOperationError:
        return FinalOperationError(
            f"the job has ended ({self.status.name}): it cannot be {what}",
            where=f"job '{self.name}'",
            expected="a running job",
        )

    def warn_of_earlier_savepoints(self, left: list[str]) -> None:
        """Say what earlier drivers have left of savepoints, also where the job is described."""
        for number, text in enumerate(left):
            self._print(text)
            self.warnings[f"earlier savepoint {number}"] = text

    def _next_number(self) -> int:
        # checked first: the number is written to a file of the job, which another driver may have taken over
        self.directory.check_owner(self.name)
        return self.checkpoint_directory.next_id()

    def savepoint_directory(self) -> str:
        """The directory of savepoints for requests that name none: ``execution.checkpointing.savepoint-dir``, or one in
        the job directory.

        Raises:
            SavepointError: none is configured, and the job directory is a temporary one.
        """
        if self.settings.savepoint_directory is not None:
            return self.settings.savepoint_directory
        if self._temporary:
            raise SavepointError(
                "it is not known where to write the savepoint: the job's directory is a temporary one",
                where=f"job '{self.name}'",
                expected="a directory in the call, or execution.checkpointing.savepoint-dir",
                hint="name a directory",
            )
        return posixpath.join(self.directory.path, "savepoints")

    def request_stop(self, end: JobStatus = JobStatus.CANCELED, cause: str = "asked for") -> None:
        """End the job after the running epoch; see `JobRun.request_stop`. A request to cancel gives the running epoch
        up at once, and what is written of savepoints, any other one after half of ``flinkish.shutdown.timeout``."""
        super().request_stop(end, cause)
        if end is JobStatus.CANCELED:
            self.savepoint_turns.abort(_CANCELLED)
        self._wake()
