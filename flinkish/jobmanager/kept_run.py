"""The run of a job that has a directory, on Spark and in the minicluster: how it begins and ends there, and how it is
stopped with a savepoint."""

from __future__ import annotations

import atexit
import math
import posixpath
import shutil
import threading
import time
from abc import abstractmethod
from typing import Any

from flinkish.checkpoint.coordinator import SavepointLog
from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import (
    CheckpointError,
    FencedError,
    FinalOperationError,
    FlinkishError,
    OperationError,
    SavepointError,
)
from flinkish.jobdir.directory import ENDED_FILE, JobDirectory, describe_program
from flinkish.jobdir.fencing import was_here
from flinkish.jobdir.layout import JobEnd
from flinkish.jobmanager import shadow
from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager.decision import Drain, Facts, Outcome, Remember, Stop, Wish
from flinkish.jobmanager.job.lifecycle import StateMachine
from flinkish.jobmanager.job.settings import DriverSettings, checkpoints_path
from flinkish.jobmanager.job_run import JobRun, failed_end, kind_of_failure
from flinkish.jobmanager.restart import Restarts, one_line
from flinkish.jobmanager.savepoint import SavingNotes, StopWithSavepoint, check_target
from flinkish.jobmanager.savepoint_turns import SavepointTurns
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.failures import translate
from flinkish.storage.paths import absolute

#: Seconds between two looks at whether the first epoch is committed.
_LOOK_S = 0.1


def _kind_of_stop(stop: StopWithSavepoint) -> Stop:
    if stop.drain:
        return Stop.DRAIN
    return Stop.CANCEL if stop.end is JobStatus.CANCELED else Stop.SAVE


class KeptRun(JobRun):
    """Runs a job that has a directory: restarts it after failures, stops it with a savepoint, and remembers its end.

    Args:
        job: the job graph of the first attempt.
        settings: the driver's settings.
        directory: the job directory, claimed by this driver; it is released when the job has ended.
        temporary: whether the directory is a temporary one, which is deleted when the job has ended.
        restarts: decides whether a failed attempt is followed by another one.
        life: the state machine of the job since its submission.
    """

    def __init__(
        self,
        job: JobDescriptor,
        settings: DriverSettings,
        directory: JobDirectory,
        temporary: bool,
        restarts: Restarts | None = None,
        life: StateMachine[JobStatus] | None = None,
    ) -> None:
        super().__init__(JobID.from_hex_string(job.job_id), job.name, life, restarts)
        if job.attempt:
            times = f"{job.attempt} time{'s'[: job.attempt != 1]}"
            self.taken_over = f"earlier drivers have started it {times} in {directory.path}"
        self.shutdown_timeout_s = settings.shutdown_timeout_s
        self.directory = directory
        self.settings = settings
        self._temporary = temporary
        #: the failure of the last attempt; None: the last attempt has ended without one
        self._failure: FlinkishError | None = None
        #: the stop with a savepoint that was asked for and has neither failed nor been answered
        self._stopping: StopWithSavepoint | None = None
        #: whether it is too late to ask for a stop with a savepoint
        self._ends = False
        #: whether a cancellation or a suspension was asked for, which does not depend on a savepoint
        self._stopped_anyway = False
        #: when the running epoch is given up because of that, in seconds of the monotonic clock
        self._epoch_deadline_s = math.inf
        #: the job's checkpoints, which are numbered together with its savepoints
        self.checkpoint_directory = CheckpointDirectory(checkpoints_path(settings, directory.path, job.job_id))
        self.savepoints = SavepointLog(self.checkpoint_ended, next_id=self._next_number)
        #: the savepoints that are in flight
        self.savepoint_turns = SavepointTurns(self, settings.checkpoints.timeout_ms / 1000)
        #: tell the next driver of the savepoints that are being written
        self.saving = SavingNotes(None if temporary else directory, self.savepoint_turns)
        #: whether a cancellation or a suspension was asked for before the run began
        self._ends_before_it_runs = False
        #: path of the final savepoint of a drain
        self._drained_savepoint: str | None = None

    # ------------------------------------------------------------------ what an engine provides

    @property
    @abstractmethod
    def job(self) -> JobDescriptor:
        """The job graph of the running attempt."""

    @abstractmethod
    def _run_attempt(self, again: bool) -> None:
        """Run one attempt, for `_run_attempts`, and keep its failure."""

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

    def _is_draining(self) -> bool:
        """Whether the running attempt carries out a drain."""
        return False

    def _drain_has_begun(self) -> bool:
        """Whether a drain has begun that the current attempt does not carry out yet."""
        return False

    def _begin_to_drain(self) -> None:
        """Make the next attempt carry out the drain."""

    # ------------------------------------------------------------------ the thread

    def start(self) -> None:
        """Start the thread that runs the job, or only ends it if it was asked to end during its start."""
        self._ends_before_it_runs = self._stopped_anyway
        super().start()

    def _work(self) -> None:
        needs_no_checkpoints = False
        try:
            end = self._earlier_end()
            if end is not None:
                self._compare(Outcome.BEGUN, f"End {end.status}", earlier_end=JobStatus[end.status])
                self._end_again(end)
            else:
                if self.settings.job_dir is not None and absolute(self.directory.path) != absolute(
                    self.settings.job_dir
                ):
                    self._tell(f"this job of the program has the job directory {self.directory.path}")
                if self.settings.note_on_requests is not None:
                    self._tell(self.settings.note_on_requests)
                self._run_until_it_ends()
                self.savepoint_turns.close(self._why_it_ends())
                self._take_last_checkpoint()
                self._remember_end()
            needs_no_checkpoints = self._needs_no_checkpoints()
            self._answer_stop(None)
        except BaseException as error:
            self.savepoint_turns.close(f"the job has failed: {one_line(self._typed(error))}")
            self._answer_stop(error)
            raise
        finally:
            self.savepoint_turns.close(self._why_it_ends())
            self.checkpoints.close(delete=needs_no_checkpoints)

    def _why_it_ends(self) -> str:
        if not self._stop.is_set():
            return "the job has come to its end"
        suspended = self._end_as is JobStatus.SUSPENDED
        return "the job is being suspended" if suspended else "the job is being stopped"

    def _give_back(self) -> None:
        """Give the directory back, after those who have asked for the end have been answered in it."""
        self.directory.release(self.status.name, self.life.story.events[-1].cause)
        atexit.unregister(self.directory.release)
        if self._temporary:
            shutil.rmtree(self.directory.path, ignore_errors=True)

    def _earlier_end(self) -> JobEnd | None:
        """How the job has ended before, if it is not to be started again. A job that is not done is started again if
        that was asked for, or if this process has ended it itself: then it knows what it does."""
        end = self.directory.end()
        if end is None or end.done:
            return end
        if self.settings.restart or (was_here(end.run) and not end.from_outside):
            self.directory.delete(ENDED_FILE)
            return None
        return end

    def _end_again(self, end: JobEnd) -> None:
        """End as the job has ended before, and say so."""
        start = f"start it from there (-s {end.savepoint})" if end.savepoint else "to run it anew, start it"
        what_to_do = f"{start} in another directory (flinkish.job.dir)"
        if not end.done:
            what_to_do += ", or let it go on in this one (--restart, flinkish.job.restart: true)"
        self._tell(
            f"nothing was run: this job was {end.told()} earlier, in its directory {self.directory.path}; {what_to_do}"
        )
        if end.from_outside:
            live_jobs.asked_from_outside(self)
        if end.status == JobStatus.CANCELED.name:
            self.end_as(JobStatus.CANCELED)
            self._stop.set()

    def _run_until_it_ends(self) -> None:
        """Run attempts until the job ends or is stopped. If the savepoint of a stop cannot be written, the job goes
        on."""
        again = False
        while True:
            if not again:
                ends = self._ends_before_it_runs and not self._is_draining()
                # a wish that comes later is seen by the attempt only; the decision sees it at once
                wish = self._wish() if self._ends_before_it_runs else Wish.NONE
                self._compare(Outcome.BEGUN, self._end_words() if ends else "Prepare the first attempt", wish=wish)
            if self._ends_before_it_runs and not self._is_draining():
                self._ends = True
                return
            self._run_attempts(self._run_attempt, again)
            with self._lock:
                stop = self._stopping
                self._ends = stop is None
                self._compare(Outcome.QUERY_ENDED, self._end_of_attempt(stop))
            if stop is None:
                return
            try:
                self._write_savepoint_of(stop)
            except Exception as error:
                final = isinstance(error, FencedError) or self._drain_has_begun()
                typed = error if isinstance(error, FlinkishError) else translate(error, "")
                kind = kind_of_failure(typed)
                self._compare(Outcome.NOT_SAVED, failed_end(typed) if final else "FailStop", failure=kind)
                if final:
                    raise
                if not self._give_up_stop(stop, translate(error, f"job '{self.name}'"), self._input_has_ended()):
                    self._compare(Outcome.STOP_FAILED, self._end_in_order())
                    return
                self._compare(Outcome.STOP_FAILED, "Prepare the next attempt", wish=Wish.NONE)
                again = True
                continue
            if stop.from_outside:
                live_jobs.asked_from_outside(self)
            # the savepoint is written: unless the job is being cancelled, it ends as whoever asked for it believes
            self.end_as(stop.end)
            if self._drain_has_begun():
                self._compare(Outcome.DRAIN_BEGUN, "Prepare the drain attempt")
                self._begin_to_drain()
                self._run_attempts(self._run_attempt)
                self._compare(Outcome.QUERY_ENDED, "Save")
            return

    def _write_savepoint_of(self, stop: StopWithSavepoint) -> None:
        """Write the savepoint of a stop."""
        if self._failure is not None:
            # the stop came while the job waited for its restart: there is no consistent end of an epoch to save
            raise self._failure
        stop.path = self.savepoint_turns.take(stop.directory, of_stop=True)

    def _give_up_stop(self, stop: StopWithSavepoint, failure: FlinkishError, ended: bool = False) -> bool:
        """Fail a stop whose savepoint cannot be written. Returns whether the job goes on: it does unless another end
        was asked for as well, or its input has ended (``ended``)."""
        with self._lock:
            self._stopping = None
            self._stop.clear()
            if self._stopped_anyway:
                # this also covers a request that comes just now: it sets the flag first, and the event afterwards
                self._stop.set()
        self.saving.end_stop()
        goes_on = not ended and not self._stopped_anyway
        stop.job_goes_on = goes_on
        stop.outcome.set_exception(failure)
        self._ends = self._ends or not goes_on
        if goes_on:
            self._tell(f"the job was not stopped and goes on: {failure.message}")
        return goes_on

    def _delay_after(self, failure: FlinkishError) -> int | None:
        stop = self._stopping
        if stop is None or self._stopped_anyway or self._is_draining():
            if stop is not None and not self._stopped_anyway:
                # a drain: `_stop` is set without a wish
                done = failed_end(failure) if self._stop.is_set() else "AskForRestart"
                self._compare(Outcome.FAILED, done, failure=kind_of_failure(failure))
                return None if self._stop.is_set() else self.restarts.delay_after(failure)
            return super()._delay_after(failure)
        # as in Flink: the failure fails the stop, and whether the job is restarted is decided as without a stop
        kind = kind_of_failure(failure)
        self._compare(Outcome.FAILED, "AskForRestart", failure=kind)
        delay_ms = self.restarts.delay_after(failure)
        done = failed_end(failure) if delay_ms is None else "FailStop"
        self._compare(Outcome.ANSWERED, done, failure=kind, delay_ms=delay_ms)
        if delay_ms is None:
            return None
        goes_on = self._give_up_stop(stop, failure)
        done = "Wait" if goes_on else failed_end(failure)
        self._compare(Outcome.STOP_FAILED, done, failure=kind, delay_ms=delay_ms)
        return delay_ms if goes_on else None

    # ------------------------------------------------------------------ the shadow

    def _facts(self, outcome: Outcome, **more: Any) -> Facts:
        stop = self._stopping
        drain = Drain.RUNS if self._is_draining() else Drain.BEGUN if self._drain_has_begun() else Drain.NONE
        kept = {
            "wish": self._wish() if self._stopped_anyway else Wish.NONE,
            "stop": Stop.NONE if stop is None else _kind_of_stop(stop),
            "stop_begun": self._stop.is_set(),
            "drain": drain,
            "input_ended": self._input_has_ended(),
            "bounded": self._is_bounded(),
        }
        return super()._facts(outcome, **{**kept, **more})

    def _end_of_attempt(self, stop: StopWithSavepoint | None) -> str:
        if self._is_draining():
            return "Save"
        if stop is None:
            return self._end_in_order()
        if self._stopped_anyway and self._end_as is JobStatus.CANCELED:
            return "FailStop"
        return "BeginDrain" if stop.drain and not self._input_has_ended() else "Save"

    def _end_in_order(self) -> str:
        suspended = self._stop.is_set() and self._end_as is JobStatus.SUSPENDED
        up_to_date = not self._stop.is_set() and not self._input_has_ended()
        return "TakeLastCheckpoint" if suspended or up_to_date else self._end_words()

    def _end_words(self) -> str:
        status = self._end_as if self._stop.is_set() else JobStatus.FINISHED
        done = self._is_bounded() and (self._input_has_ended() or not self._stop.is_set())
        over = done or (self._stop.is_set() and self._end_as is not JobStatus.SUSPENDED)
        remember = Remember.DONE if done else Remember.OVER if over else None
        return f"End {status.name}" + (f", remembered as {remember.value}" if remember else "")

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

    def _take_last_checkpoint(self) -> None:
        """Take a last checkpoint if the job may be started again: it was suspended, or has read all available input."""
        suspended = self._stop.is_set() and self._end_as is JobStatus.SUSPENDED
        up_to_date = not self._stop.is_set() and not self._input_has_ended()
        if self._ends_before_it_runs or not (suspended or up_to_date):
            return
        self.doing = "the last checkpoint"
        path = self.checkpoints.take_last()
        if path is None and self.settings.checkpoints.enabled and self.committed_epoch() is not None:
            self._tell(
                "no last checkpoint was taken (the log says why); the job goes on from its directory all the same"
            )

    def _remember_end(self) -> None:
        """Write `ENDED_FILE` if the job is over: at the end of its input, stopped with a savepoint, or cancelled. A job
        that was suspended, or has read all that was available, goes on later."""
        path = None if self._stopping is None else self._stopping.path
        done = self._is_bounded() and (self._input_has_ended() or not self._stop.is_set())
        if shadow.hook is not None and not self._ends_before_it_runs:
            outcome = Outcome.CHECKPOINTED if path is None else Outcome.SAVED
            shadow.compare(self._facts(outcome), self._end_words())
        if done or (self._stop.is_set() and self._end_as is not JobStatus.SUSPENDED):
            self._write_end(path, done)

    def _write_end(self, savepoint: str | None, done: bool) -> None:
        canceled = self._stop.is_set() and self._end_as is JobStatus.CANCELED
        end: dict[str, Any] = {
            "job_id": self.job_id.to_hex_string(),
            "status": (JobStatus.CANCELED if canceled else JobStatus.FINISHED).name,
            "run": self.directory.token,
            "done": done,
            "from_outside": live_jobs.is_asked_from_outside(self),
            "program": describe_program(self.job),
            "last_epoch": self.last_epoch,
            "savepoint": savepoint,
        }
        self.directory.write(ENDED_FILE, end)
        self.saving.end_stop()

    def abandon(self) -> bool:
        """If the job is being cancelled, write down that it was: the epoch that runs comes to nothing."""
        if not super().abandon():
            return False
        try:
            if not self.has_ended and self.directory.end() is None:
                self._write_end(None, done=False)
        except (FlinkishError, OSError):
            return False
        return True

    def _answer_stop(self, failure: BaseException | None) -> None:
        """Complete the outcome of a stop with a savepoint; to be called before the directory is released."""
        with self._lock:
            stop, self._stopping, self._ends = self._stopping, None, True
        if stop is None:
            return
        path = stop.path or self._drained_savepoint
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
            self._stopping = stop
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
            if self._stopping is None:
                return
            self._stop.set()
        self._wake()

    def epoch_committed(self, epoch: int) -> None:
        """Notify the observers; a stop with a savepoint that has waited for the first epoch begins."""
        super().epoch_committed(epoch)
        self.savepoint_turns.epoch_committed()
        if self._stopping is not None and not self._stop.is_set():
            self._begin_stop()

    def _check_stoppable(self) -> None:
        if self._ends:
            raise self._too_late()
        if self._stopping is not None:
            raise OperationError(
                "the job is being stopped with a savepoint already",
                where=f"job '{self.name}'",
                hint="wait for the end of that stop",
            )
        if self._awaits_restart:
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
        if self._ends:
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
            if self._ends or self.over.wait(_LOOK_S):
                break
            if time.monotonic() > deadline_s:
                raise CheckpointError("no epoch has been committed yet", where=f"job '{self.name}'")
        if self._ends:
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
            self._tell(text)
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
        self._stopped_anyway = True
        patience_s = 0 if end is JobStatus.CANCELED else self.shutdown_timeout_s / 2
        self._epoch_deadline_s = min(self._epoch_deadline_s, time.monotonic() + patience_s)
        if end is JobStatus.CANCELED:
            self.savepoint_turns.abort("the job is being cancelled")
        super().request_stop(end, cause)
        self._wake()

    def epoch_deadline_s(self) -> float:
        """When the running epoch is given up, in seconds of the monotonic clock."""
        stop = self._stopping
        return min(self._epoch_deadline_s, math.inf if stop is None else stop.epoch_deadline_s)
