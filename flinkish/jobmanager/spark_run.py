"""The run of a job on Spark: its attempts, one after the other, until the job ends, and the plan of each of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flinkish.checkpoint.claim import describe_restored, read_restored
from flinkish.checkpoint.manifest import Manifest
from flinkish.common.job_status import JobStatus
from flinkish.core.source import SplitSource
from flinkish.error_display import with_sources
from flinkish.errors import (
    CorruptStateError,
    FlinkishError,
    TypeMismatchError,
    UserCodeError,
    redact,
)
from flinkish.jobdir.connect_server import EpochsWait
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import DrainMarker
from flinkish.jobmanager.attempt import AttemptPlan, QueryAttempt
from flinkish.jobmanager.decision import (
    Attempt,
    BeginDrain,
    Drain,
    Facts,
    Failure,
    GoBack,
    Outcome,
    Prepare,
    RunQuery,
    Step,
    Wish,
)
from flinkish.jobmanager.drain import DrainAttempt, begin_drain
from flinkish.jobmanager.epoch_gate import StateReaders
from flinkish.jobmanager.job.lifecycle import StateMachine
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.jobmanager.kept_run import KeptRun
from flinkish.jobmanager.restart import Restarts
from flinkish.jobmanager.savepoint import check_target, take_savepoint, write_by_spark
from flinkish.jobmanager.wishes import StopWithSavepoint
from flinkish.launch.driver import replay_command
from flinkish.runtime.epoch.commit import COMMIT_HINT
from flinkish.runtime.job.accumulators import AccumulatorFiles, accumulators_directory
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.task.stack_samples import SampleBoard, SampleFiles
from flinkish.spark.failures import translate
from flinkish.spark.resources import await_slots
from flinkish.spark.session import is_remote
from flinkish.spark.settings import SparkWork

_LOG = logging.getLogger("flinkish.JobMaster")


class SparkRun(KeptRun):
    """Runs one job on Spark, and drains it.

    Args:
        spark: the Spark session.
        plan: the plan of the first attempt.
        next_plan: makes the plan of the attempt that follows a failed one.
        settings: the driver's settings.
        directory: the job directory, claimed by this driver; it is released when the job has ended.
        temporary: whether the directory is a temporary one, which is deleted when the job has ended.
        restarts: decides whether a failed attempt is followed by another one.
        machine: the state machine of the job since its submission.
    """

    def __init__(
        self,
        spark: Any,
        plan: AttemptPlan,
        next_plan: Callable[[], AttemptPlan],
        settings: DriverSettings,
        directory: JobDirectory,
        temporary: bool,
        restarts: Restarts | None = None,
        machine: StateMachine[JobStatus] | None = None,
    ) -> None:
        super().__init__(plan.job, settings, directory, temporary, restarts, machine)
        self.spark = spark
        self._next_plan = next_plan
        #: those for whom epochs wait
        self.readers = StateReaders(self._readers_changed)
        self.attempt = self._attempt_of(plan)
        #: whether the attempt that is prepared is made, so that what fails is of its query
        self._begins = False
        #: lets the next attempt begin with the last checkpoint in Delta, and returns a text that says so
        self.fall_back: Callable[[CorruptStateError], str] | None = None
        #: what Spark does for it, or did the last time
        self._goes_back: SparkWork | None = None

    def _attempt_of(self, plan: AttemptPlan) -> QueryAttempt:
        self._plan = plan
        marker = self.directory.read(DrainMarker)
        if marker is not None:
            return DrainAttempt(self.spark, plan, self.settings, self.directory, self, self.readers, marker)
        return QueryAttempt(self.spark, plan, self.settings, self.directory, self, self.wishes, self.readers)

    @property
    def job(self) -> JobDescriptor:
        return self._plan.job

    @property
    def sample_board(self) -> SampleBoard:
        return SampleFiles(self.attempt.location.path)

    def committed_epoch(self) -> int | None:
        return self.attempt.committed_epoch()

    def take_savepoint(self, directory: str | None) -> str:
        return take_savepoint(self, directory)

    def write_savepoint(self, epoch: int, path: str) -> Manifest:
        with self.saving.noted(path):
            return write_by_spark(self, epoch, path)

    def _input_has_ended(self) -> bool:
        return self.attempt.ended

    def _is_bounded(self) -> bool:
        return all(source.bounded for source in self.attempt.sources.values())

    def _wake(self) -> None:
        self._end_going_back()
        self.attempt.wake()

    def _readers_changed(self) -> None:
        wait = self.readers.described()
        if wait is None:
            self.warnings.pop("epochs wait", None)
        else:
            _LOG.warning("job '%s': %s", self.name, wait)
            self.warnings["epochs wait"] = wait
        if not is_remote(self.spark):
            return
        if wait is None:
            self.directory.delete(EpochsWait)
        else:
            self.directory.write(EpochsWait(self.directory.token, int(self.readers.last_epoch)))

    # ------------------------------------------------------------------ the thread

    def _steps(self) -> dict[type[Step], Callable[[Any], Outcome]]:
        return super()._steps() | {GoBack: self._go_back, BeginDrain: self._begin_drain}

    def make_attempt(self, which: Attempt) -> None:
        self._begins = False
        super().make_attempt(which)
        if which is not Attempt.FIRST:
            # a drain has the plan of the attempt before
            self.attempt = self._attempt_of(self._plan if which is Attempt.DRAIN else self._next_plan())

    def begin_attempt(self) -> None:
        self._begins = True
        self._await_slots()
        self.attempt.begin()

    def _await_slots(self) -> None:
        """Wait until there is a task slot, or the job is to end: all executors may have been lost."""

        def say(doing: str) -> None:
            self.doing = doing

        needed, timeout_s = self.job.required_slots, self.settings.slot_timeout_s
        try:
            await_slots(self.spark, needed, timeout_s, say, lambda: self.wishes.to_end)
        finally:
            self.doing = ""

    def has_more_queries(self) -> bool:
        return self.attempt.has_more_queries

    def run_query(self, again: bool) -> None:
        self.attempt.run_query(again)

    def _leave(self) -> None:
        self._in_any_case(self.attempt.close, "an attempt has ended")

    def _facts(self, outcome: Outcome) -> Facts:
        set_back = outcome is Outcome.QUERY_ENDED and self.attempt.set_back
        return replace(super()._facts(outcome), set_back=set_back)

    def _translated(self, step: Step, error: Exception) -> FlinkishError:
        return translate(error, f"job '{self.name}', directory {self.directory.path}")

    def _failed(self, step: Step, error: Exception) -> Outcome:
        outcome = super()._failed(step, error)
        if outcome is not Outcome.NOT_SAVED and self._failure is not None:
            self._with_replay(self._failure)
        of_query = isinstance(step, RunQuery) or (isinstance(step, Prepare) and self._begins)
        if of_query and isinstance(error, CorruptStateError) and self.fall_back is not None:
            self._kind = Failure.DAMAGED
        return outcome

    def _go_back(self, step: GoBack) -> Outcome:
        """The query's own checkpoint is damaged: let the next attempt begin with the last one in Delta."""
        error = self._failure
        assert self.fall_back is not None and isinstance(error, CorruptStateError)
        with SparkWork(self.spark, "fallback") as self._goes_back:
            # it may have been asked for right before
            self._end_going_back()
            # the hint shows in the exceptions of the job
            error.hint = self.fall_back(error)
        self.attempt_failed(error, 0)
        self._print(error.hint)
        self.read_totals()
        return Outcome.WENT_BACK

    def _end_going_back(self) -> None:
        """A job that is cancelled does not go back to a checkpoint to its end."""
        if self._goes_back is not None and self.wishes.wish is Wish.CANCEL:
            self._goes_back.end()

    def _with_replay(self, failure: FlinkishError) -> None:
        """Let an error of user code in a task also say how to run its epoch again, and have the lines of the program,
        of which the workers do not know those of a notebook's cells."""
        if isinstance(failure, UserCodeError):
            failure.user_traceback = redact(with_sources(failure.user_traceback))
        of_task = isinstance(failure, (UserCodeError, TypeMismatchError)) and failure.place
        planned = all(isinstance(source, SplitSource) for source in self.attempt.sources.values())
        kept = planned and not self._temporary and not is_remote(self.spark)
        if of_task and kept and failure.epoch is not None and COMMIT_HINT not in failure.hint:
            command = replay_command(self.directory.path, failure.epoch)
            if command:
                failure.hint += f"; to see the epoch again: {command}"

    def read_totals(self) -> None:
        """Read the totals of the accumulators from the job directory, and what the job was restored from: at the start,
        and after a fallback to a checkpoint."""
        self.restored = describe_restored(read_restored(self.directory))
        if self.record is not None:
            first_epoch = self.directory.query_location().first_epoch
            files = AccumulatorFiles(accumulators_directory(self.directory.path), first_epoch)
            self.record.accumulators = files.before(None)

    # ------------------------------------------------------------------ a drain

    def _drain(self) -> Drain:
        if isinstance(self.attempt, DrainAttempt):
            return Drain.RUNS
        began = isinstance(self._step, BeginDrain) and self.directory.read(DrainMarker) is not None
        return Drain.BEGUN if began else Drain.NONE

    def _begin_drain(self, step: BeginDrain) -> Outcome:
        """Write the marker after which the job can only be drained."""
        stop = self.wishes.stop
        assert stop is not None
        check_target(stop.directory, f"job '{self.name}'")
        begin_drain(self.attempt, self.directory, stop.directory)
        return Outcome.DRAIN_BEGUN

    def _taken_finally(self, stop: StopWithSavepoint | None) -> str:
        if not isinstance(self.attempt, DrainAttempt):
            return super()._taken_finally(stop)
        self.savepoint_turns.close(self._why_it_ends())
        return self.take_savepoint(self.attempt.savepoint_directory)
