"""A running job: the thread that carries out, one after the other, the steps that `decide` gives; and what becomes of
its directory at its end."""

from __future__ import annotations

import atexit
import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, TypeVar

from flinkish.checkpoint.coordinator import Checkpoints, NoCheckpoints, SavepointLog
from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.common.memory import MemoryConfiguration
from flinkish.errors import FencedError, FlinkishError, InternalError, message_of
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import JobEnd, Program
from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager.decision import (
    AskForRestart,
    Attempt,
    BeginDrain,
    End,
    Facts,
    Failure,
    GoBack,
    Outcome,
    Prepare,
    RunQuery,
    Save,
    Step,
    TakeLastCheckpoint,
    Wait,
    decide,
)
from flinkish.jobmanager.job.description import RestoreDescription, SlotsDescription
from flinkish.jobmanager.job.lifecycle import StateMachine
from flinkish.jobmanager.observed_job import ObservedJob, describe
from flinkish.jobmanager.restart import Restarts
from flinkish.jobmanager.signals import stop_on_signals
from flinkish.jobmanager.wishes import Wishes
from flinkish.runtime.phases import Phase, passed
from flinkish.storage.stores import storage_error

if TYPE_CHECKING:
    from flinkish.jobmanager.job_record import JobRecord
    from flinkish.jobmanager.task_managers import TaskManagers


_LOG = logging.getLogger("flinkish.JobManager")

T = TypeVar("T")


def in_background(work: Callable[[], T], thread: str) -> Future[T]:
    """Do something in a thread that does not hold the process, and cannot be cancelled."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def carry_out() -> None:
        try:
            value = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)

    threading.Thread(target=carry_out, name=thread, daemon=True).start()
    return future


class JobResult(CompletableFuture[JobExecutionResult]):
    """The future result of a job. Signals that come while the main thread waits for it stop all jobs of the process."""

    def result(self, timeout: float | None = None) -> JobExecutionResult:
        """Wait for the job's end, for at most ``timeout`` seconds.

        Raises:
            SystemExit: the jobs have ended because of a signal.
            KeyboardInterrupt: at the second SIGINT.
        """
        with stop_on_signals(live_jobs.running):
            try:
                return super().result(timeout)
            except FutureTimeoutError:
                if not live_jobs.have_come():
                    raise
                return super().result()


class JobRun(ObservedJob):
    """A run of a job: its thread, its steps and its result. Base of runs on Spark and in the minicluster, and of what
    stands for a job until it has one of these."""

    def __init__(
        self,
        job_id: JobID,
        name: str,
        machine: StateMachine[JobStatus] | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        super().__init__(name, machine, restarts)
        self.job_id = job_id
        #: the job directory, claimed by this driver and given back when the job has ended; None: there is none yet
        self.directory: JobDirectory | None = None
        #: whether it is a temporary one, which is then deleted
        self._temporary = False
        #: path of the savepoint with which the job ends
        self._final_savepoint: str | None = None
        #: how long the job has to end after a SIGTERM
        self.shutdown_timeout_s = 60.0
        #: the step that is being carried out after the last epoch, in words; "": none
        self.doing = ""
        self.result: CompletableFuture[JobExecutionResult] = JobResult()
        #: set as soon as the status is final; the job's directory is given back and its history written after that
        self.over = threading.Event()
        #: the record from which the job is described; None until the job has been submitted
        self.record: JobRecord | None = None
        #: the registry of its task managers; None: it has none, or none yet
        self.task_managers: TaskManagers | None = None
        #: what the job was warned of and what still holds: a name of the matter -> the text
        self.warnings: dict[str, str] = {}
        #: the slots, if that is more than the task managers tell; and the memory of a task manager, if it is known
        self.slots: SlotsDescription | None = None
        self.memory: MemoryConfiguration | None = None
        self.checkpoints: Checkpoints = NoCheckpoints()
        #: what the job was restored from last; None: it has begun without state
        self.restored: RestoreDescription | None = None
        self.savepoints = SavepointLog(self.checkpoint_ended)
        #: in words, that earlier drivers have started the job; "": they have not
        self.taken_over = ""
        #: what was asked for that is about the end of the job
        self.wishes = Wishes()
        #: the step that is being carried out; None: the first one is still to be decided
        self._step: Step | None = None
        #: the failure of the last attempt, or of the savepoint of a stop, and what may be done about it
        self._failure: FlinkishError | None = None
        self._kind = Failure.NONE
        #: the delay before the restart that is awaited; None: none is
        self._delay_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"flinkish-job-{name}", daemon=True)
        self._lock = threading.Lock()
        #: set once the thread has been started
        self._begun = threading.Event()
        self._created()

    def _created(self) -> None:
        # not if it is being cancelled since its start
        self.machine.try_to(JobStatus.CREATED, "the job graph is made")

    #: The number of events of the story that the failure of a job shows.
    SHOWN_EVENTS = 10

    def start(self) -> None:
        """Start the thread that runs the job."""
        if self.taken_over:
            self.machine.try_to(JobStatus.RECONCILING, self.taken_over)
        self.attempt_started(self._attempts + 1)
        live_jobs.started(self)
        self._thread.start()
        self._begun.set()

    def request_stop(self, end: JobStatus = JobStatus.CANCELED, cause: str = "asked for") -> None:
        """End the job after the running epoch. Returns at once.

        Args:
            end: the status to end with: CANCELED; FINISHED (Flink's stop: the job stays RUNNING until then); SUSPENDED
                (another driver will go on with the job). A request to cancel prevails over all others, whichever comes
                first.
            cause: the reason that the story gives.
        """
        if end is JobStatus.CANCELED:
            self.machine.try_to(JobStatus.CANCELLING, cause)
        patience_s = 0 if end is JobStatus.CANCELED else self.shutdown_timeout_s / 2
        self.wishes.ask(end, time.monotonic() + patience_s)

    def stop_from_outside(self, cause: str) -> None:
        """End the job after the running epoch, because somebody outside of the program (a signal) asks for it.

        The job is SUSPENDED, not cancelled: when it is started again, it goes on.
        """
        live_jobs.asked_from_outside(self)
        self.request_stop(JobStatus.SUSPENDED, cause)

    @property
    def has_ended(self) -> bool:
        """Whether the job's status is final. Its history may still have to be written."""
        return self.machine.terminal

    def abandon(self) -> bool:
        """The process ends before the job has: if it is being cancelled, write down that it was, since the epoch that
        runs comes to nothing. Returns whether the job is over all the same, so that nobody is to start it again."""
        if self.status is not JobStatus.CANCELLING:
            return self.has_ended
        try:
            if self.directory is not None and self.directory.end() is None:
                self._write_end(JobStatus.CANCELED, done=False)
        except (FlinkishError, OSError):
            return False
        return True

    def unfinished(self) -> str | None:
        """What the job is still doing, in words, for a caller who cannot wait any longer; None when it has ended."""
        if self._begun.is_set() and not self._thread.is_alive():
            return None
        if self.has_ended:
            return "what is told of it (its history)"
        if self.doing:
            return self.doing
        return "its first epoch" if self.last_epoch is None else f"what follows epoch {self.last_epoch}"

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the job has ended, but at most for ``timeout_s`` seconds (None: without limit)."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        if self._begun.wait(timeout_s):
            self._thread.join(None if deadline_s is None else max(deadline_s - time.monotonic(), 0))

    def doing_now(self) -> str:
        """The step that is being carried out, in words; "": none."""
        return self.doing

    def _run(self, failure: FlinkishError | None = None) -> None:
        """Run the job to its end; one that has failed before it ran is only ended."""
        started = time.monotonic()
        try:
            failure = failure or self._run_to_its_end()
            if failure is not None:
                self._fail(failure)
        finally:
            self._end(failure, started)

    def _run_to_its_end(self) -> FlinkishError | None:
        """Carry out all steps; returns the failure with which the job ends."""
        try:
            end = self._carried_out()
            if end.failed:
                assert self._failure is not None
                raise self._failure
            self._conclude(end)
            self._settle(end.status)
        except BaseException as error:
            return self._typed(error)
        return None

    # ------------------------------------------------------------------ the loop

    def _carried_out(self) -> End:
        """Carry out one step after the other; returns the end that is decided at last."""
        steps, outcome = self._steps(), Outcome.BEGUN
        while not isinstance(step := self._next_step(outcome), End):
            try:
                outcome = steps[type(step)](step)
            except Exception as error:
                outcome = self._failed(step, error)
        return step

    def _steps(self) -> dict[type[Step], Callable[[Any], Outcome]]:
        """How each step is carried out that this run can come to. What fails is raised."""
        return {
            Prepare: self._prepare,
            RunQuery: self._run_query,
            AskForRestart: self._ask_for_restart,
            Wait: self._wait,
            TakeLastCheckpoint: lambda step: Outcome.CHECKPOINTED,
        }

    def _next_step(self, outcome: Outcome) -> Step:
        # whoever asks for a stop is in time, or learns that it is too late
        with self._lock:
            step = self._step = decide(self._facts(outcome))
        if not isinstance(step, RunQuery):
            self._leave()
        passed(Phase.STEP_DECIDED, step=str(step))
        return step

    def _facts(self, outcome: Outcome) -> Facts:
        more = outcome in (Outcome.PREPARED, Outcome.QUERY_ENDED) and self.has_more_queries()
        return Facts(outcome, self.wishes.wish, failure=self._kind, delay_ms=self._delay_ms, more_queries=more)

    def _failed(self, step: Step, error: Exception) -> Outcome:
        """A step has failed: keep the failure, and what may be done about it."""
        typed = error if isinstance(error, FlinkishError) else self._translated(step, error)
        known = typed is not None and isinstance(step, (Prepare, RunQuery, GoBack, Save, BeginDrain))
        self._failure = self._typed(error) if typed is None else typed
        if self._failure is not error:
            self._failure.__cause__ = error
        if isinstance(self._failure, FencedError):
            self._kind = Failure.FENCED
        else:
            self._kind = Failure.OTHER if known else Failure.UNEXPECTED
        if isinstance(step, (Save, BeginDrain)):
            return Outcome.NOT_SAVED
        return Outcome.NOT_GONE_BACK if isinstance(step, GoBack) else Outcome.FAILED

    def _prepare(self, step: Prepare) -> Outcome:
        self._failure, self._kind, self._delay_ms = None, Failure.NONE, None
        self.make_attempt(step.attempt)
        if step.attempt is Attempt.NEXT:
            self.attempt_started(self._attempts + 1)
        self.begin_attempt()
        return Outcome.PREPARED

    def _run_query(self, step: RunQuery) -> Outcome:
        self.run_query(step.again)
        return Outcome.QUERY_ENDED

    def _ask_for_restart(self, step: AskForRestart) -> Outcome:
        assert self._failure is not None
        self._delay_ms = self.restarts.delay_after(self._failure)
        return Outcome.ANSWERED

    def _wait(self, step: Wait) -> Outcome:
        assert self._failure is not None
        self.attempt_failed(self._failure, step.delay_ms)
        self._print_restart(self._failure, step.delay_ms)
        self.wishes.wait_for_end(step.delay_ms / 1000)
        return Outcome.WAITED

    # ------------------------------------------------------------------ what an engine provides

    def _translated(self, step: Step, error: Exception) -> FlinkishError | None:
        """What an error is that has no type of ours; None: an error of ours."""
        return None

    def make_attempt(self, which: Attempt) -> None:
        """Make the attempt, whose first query `begin_attempt` makes ready. By default there is nothing to make."""

    def begin_attempt(self) -> None:
        """Make the attempt ready for its first query."""

    def has_more_queries(self) -> bool:
        """Whether the attempt has a query to run, besides those that it has run. By default there is nothing to
        run."""
        return False

    def run_query(self, again: bool) -> None:
        """Run the next query of the attempt to its end, or (``again``) the last one once more. Its failure is raised as
        a FlinkishError; any other exception ends the job at once."""

    def _leave(self) -> None:
        """No more queries of the attempt are run; called before each step that runs none. Raises nothing."""

    def _conclude(self, end: End) -> None:
        """Do what precedes the end of a job that has not failed. By default there is nothing to do."""

    def _conclude_failed(self, failure: FlinkishError) -> None:
        """Do what precedes the end of a job that has failed. Raises nothing."""

    # ------------------------------------------------------------------ the end

    def _typed(self, error: BaseException) -> FlinkishError:
        if isinstance(error, FlinkishError):
            return error
        if isinstance(error, OSError):
            return storage_error(error, "go on with", f"job '{self.name}'")
        wrapped = InternalError(
            f"{type(error).__name__}: {message_of(error)}", where=f"job '{self.name}'", hint="please report this"
        )
        wrapped.__cause__ = error
        return wrapped

    def _fail(self, error: FlinkishError) -> None:
        """End a job that has failed as FAILED; if another driver has taken it over, it is only SUSPENDED here."""
        with self._lock:
            self._step = End(JobStatus.FAILED, failed=True)
        self._leave()
        if error is not self._notified_failure:
            self.attempt_failed(error, None)
        self._conclude_failed(error)
        cause = describe(error)
        if isinstance(error, FencedError):
            self.machine.try_to(JobStatus.SUSPENDED, cause)
        else:
            if self.status is not JobStatus.INITIALIZING:
                self.machine.try_to(JobStatus.FAILING, cause)
                cause = "the failure is final"
            self.machine.try_to(JobStatus.FAILED, cause)
        error.story = error.story or self.machine.story.tail(self.SHOWN_EVENTS)

    def _settle(self, end: JobStatus) -> None:
        """Take the legal transitions from the present status to ``end``, for a job that ends without a failure."""
        if end is JobStatus.FINISHED and self.status not in (JobStatus.RUNNING, JobStatus.RECONCILING):
            # the stop came while the job waited for its restart, or for its first query
            self.machine.try_to(JobStatus.RUNNING, "there is nothing more to run")
        if self.machine.try_to(end, "the job has come to its end" if not self.wishes.to_end else "stopped"):
            return
        self.machine.try_to(JobStatus.CANCELLING, "stopped")
        self.machine.to(JobStatus.CANCELED, "the running epoch has ended")

    def _end(self, error: FlinkishError | None, started: float) -> None:
        """Tell of the end, give back what the job has held, and complete the result, which nothing prevents."""
        try:
            self.over.set()
            self.job_done(self.status)
            self._in_any_case(self._give_back, "the job has ended")
            self._in_any_case(self.history.close, "the job has ended")
        finally:
            # a signal that comes before waits for what is given back
            live_jobs.ended(self, self.status)
            self._complete(error, int((time.monotonic() - started) * 1000))

    def _in_any_case(self, work: Callable[[], object], when: str) -> None:
        """Do what belongs to an end, which it must not prevent."""
        try:
            work()
        except Exception:
            _LOG.warning("job '%s': %s, but not without an error:", self.name, when, exc_info=True)

    def _give_back(self) -> None:
        """Give the directory back, after those who have asked for the end have been answered in it."""
        if self.directory is not None:
            self.directory.release(self.status.name, self.machine.story.events[-1].cause)
            atexit.unregister(self.directory.release)
            if self._temporary:
                shutil.rmtree(self.directory.path, ignore_errors=True)

    def _write_end(self, status: JobStatus, done: bool) -> None:
        """Write `JobEnd`, because the job is over."""
        assert self.directory is not None
        end = JobEnd(
            self.job_id.to_hex_string(),
            (JobStatus.CANCELED if status is JobStatus.CANCELED else JobStatus.FINISHED).name,
            self.directory.token,
            done,
            live_jobs.is_asked_from_outside(self),
            self._program(),
            self.last_epoch,
            self._final_savepoint,
        )
        self.directory.write(end)

    def _program(self) -> Program | None:
        """The program that the directory remembers with the end; by default none."""
        return None

    def _complete(self, error: FlinkishError | None, runtime_ms: int) -> None:
        if error is None:
            try:
                self.result.complete(JobExecutionResult(self.job_id, runtime_ms, self.accumulator_results()))
                return
            except Exception as failure:
                error = self._typed(failure)
        self.result.complete_exceptionally(error)

    def accumulator_results(self) -> dict[str, Any]:
        """Accumulator name -> its value so far."""
        return {} if self.record is None else self.record.accumulator_results()
