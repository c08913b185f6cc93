"""The record of a running job, from which the job can be described at any time.

Rule: what the record keeps is bounded, and nothing here holds up an epoch. Status changes, executions that have ended
and exceptions are also given to the history.
"""

from __future__ import annotations

import heapq
import os
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from flinkish.common.configuration import Configuration, redacted
from flinkish.common.job_status import JobStatus
from flinkish.common.options import execution, flinkish, memory, state
from flinkish.errors import FlinkishError, OperationError, ProgramError, RetryableError, UserCodeError, escaped
from flinkish.jobdir.fencing import rest_url
from flinkish.jobdir.layout import TotalsDescription
from flinkish.jobmanager.execution_graph import Execution, ExecutionGraph, shown_accumulators
from flinkish.jobmanager.job.description import (
    AttemptDescription,
    CheckpointDescription,
    CheckpointsDescription,
    DriverDescription,
    EpochDescription,
    ExceptionDescription,
    JobDescription,
    JobObserver,
    RestoreDescription,
    RunningEpochDescription,
)
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.jobmanager.job.resources import describe_slots
from flinkish.jobmanager.job.settings import checkpoint_settings
from flinkish.jobmanager.job_run import JobRun
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.accumulators import counts_of, results_of, types_of
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from flinkish.runtime.job.report import LifecycleCall, TaskPlace
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.runtime.task.progress import EpochProgress


def this_driver(token: str = "") -> DriverDescription:
    """The description of this process as a driver. ``token``: its fencing token for the job directory."""
    return DriverDescription(socket.gethostname(), os.getpid(), token, rest_url())


def where_state_lies(settings: JobSettings, directory: str | None) -> str:
    """What holds the state of a job's tasks, in words; the same with both state backends but for small state.

    Args:
        settings: of the tasks.
        directory: the job directory; None: a temporary one.
    """
    configuration = Configuration.from_dict(settings.configuration)
    if configuration.get(execution.TARGET) == "minicluster":
        kept = "" if directory is None else f", and after each epoch files below {directory}/minicluster"
        return f"the memory of the driver's process{kept}"
    backend = configuration.get(state.BACKEND)
    store = "RocksDB" if backend == "rocksdb" else "the heap"
    return (
        f"the memory of the Python workers (about {settings.managed_memory_bytes:,} bytes each, "
        f"{memory.MANAGED_SIZE.key}) and files below {directory or 'the temporary job directory'}/keyed-state; "
        f"up to {settings.inline_state_bytes:,} bytes per subtask ({flinkish.STATE_INLINE_SIZE.key}) in Spark's state "
        f"store, in {store} of the executors ({state.BACKEND.key}: {backend})"
    )


def who_must_act(error: FlinkishError, goes_on: bool = True) -> str:
    """Who must act on an error, in words: follows from the base class of the error. ``goes_on``: whether the job
    does, so that advice is for the case that the error comes again."""
    if isinstance(error, ProgramError):
        return "the author of the job"
    if isinstance(error, OperationError):
        return "the operator of the cluster"
    if not isinstance(error, RetryableError):
        return "the makers of flinkish"
    by_itself = "nobody unless it comes again" if getattr(error, "hint", "") else "nobody"
    return by_itself if goes_on else "the operator of the cluster"


class JobRecord(JobObserver):
    """Records the attempts, exceptions, executions and figures of one run, and describes the job from them.

    Args:
        run: the run that is recorded; the record must be the first of its observers.
        job: the job graph.
        plan: Flink's plan JSON.
        directory: the job's directory; None: a temporary one.
        driver: the driver that runs the job.
        attempt_number: gives the number of the running attempt, counted over all drivers of the job.
        totals: gives what the job has done since it began.
        clock: the clock that gives the times of attempts and exceptions.
    """

    #: The most attempts, and the most exceptions, that are kept.
    MAX_ATTEMPTS = 100

    #: The most calls of the lifecycle of operators, and attempts that have some, that are kept.
    MAX_CALLS, MAX_TRACES = 1_000, 10

    #: The most epochs that are kept.
    MAX_EPOCHS = 300

    def __init__(
        self,
        run: JobRun,
        job: JobDescriptor,
        plan: dict[str, Any],
        directory: str | None,
        driver: DriverDescription,
        attempt_number: Callable[[], int] = lambda: 0,
        totals: Callable[[], TotalsDescription] = TotalsDescription,
        clock: Clock | None = None,
    ) -> None:
        self._run = run
        self._job = job
        self._plan = plan
        self._directory = directory
        self._driver = driver
        self._number = attempt_number
        self._totals = totals
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._configuration = Configuration.from_dict(dict(job.settings.configuration))
        self._attempts: deque[AttemptDescription] = deque(maxlen=self.MAX_ATTEMPTS)
        self._exceptions: deque[ExceptionDescription] = deque(maxlen=self.MAX_ATTEMPTS)
        #: when the last epoch of the attempt was done; None: none was
        self._done_ms: int | None = None
        #: the last epochs
        self._past: deque[EpochDescription] = deque(maxlen=self.MAX_EPOCHS)
        self._epochs = self._in = self._out = self._restarts = self._task_failures = 0
        #: the last epoch whose records are counted
        self._counted = -1
        self._watermark_ms: int | None = None
        self._running: EpochProgress | None = None
        #: attempt of this driver -> the calls of the lifecycle of operators in it
        self._traces: dict[int, list[LifecycleCall]] = {}
        #: encoded totals as of the last epoch that has changed them; at first, those that earlier drivers have left
        self.accumulators = b""
        self.graph = ExecutionGraph(job, self._clock, self._execution_ended)
        for event in run.machine.story.events:
            run.history.status(event, self._number())

    # ------------------------------------------------------------------ what happens

    def status_changed(self, event: Event) -> None:
        """Add a transition of the job's status to the history."""
        self._run.history.status(event, self._number())

    def attempt_started(self, attempt: int) -> None:
        number = self._number()
        self.graph.attempt_started(number)
        with self._lock:
            if self._attempts and self._attempts[-1].end_time_ms is None:
                why = "a stop with a savepoint has failed, and the job goes on"
                self._change(end_time_ms=self._clock.now_ms(), state="CANCELED", failure=why)
            self._done_ms = None
            self._attempts.append(AttemptDescription(number, self._clock.now_ms()))

    def query_started(self) -> None:
        self.graph.query_started()

    def epoch_begun(self) -> None:
        """From now on it is the tasks that say what they do."""
        self.graph.epoch_begun()

    def epoch_running(self, progress: EpochProgress) -> None:
        """Keep how far the epoch is that runs."""
        self.graph.epoch_running(progress)
        with self._lock:
            self._running = progress

    def lifecycle_traced(self, calls: Sequence[LifecycleCall]) -> None:
        with self._lock:
            self._traces[len(self._attempts)] = list(calls)
            while len(self._traces) > self.MAX_TRACES:
                self._traces.pop(min(self._traces))

    def epoch_done(self, report: EpochReport) -> None:
        """Add the figures of an epoch that the sinks have committed."""
        self.graph.epoch_done(report)
        with self._lock:
            self._running = None
            if report.epoch > self._counted:
                # one whose commit was interrupted is reported again by the attempt that completes it
                self._counted = report.epoch
                self._epochs += 1
                self._in += report.records_in
                self._out += report.records_out
                before_ms, self._done_ms = self._done_ms, self._clock.now_ms()
                self._past.append(describe_epoch(report, self._done_ms, before_ms))
            self._watermark_ms = report.watermark_ms
            self.accumulators = report.accumulators or self.accumulators
            first = self._attempts[-1].first_epoch
            self._change(first_epoch=report.epoch if first is None else first, last_epoch=report.epoch)

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """Close the attempt that has failed, and keep its failure as an exception of the job."""
        self.graph.attempt_failed(failure)
        described = describe_exception(failure, self._clock.now_ms(), self._number(), restart_delay_ms)
        with self._lock:
            self._running = None
            described = replace(described, concurrent=tuple(self._beside(described)))
            self._restarts += restart_delay_ms is not None
            if self._attempts and self._attempts[-1].end_time_ms is None:
                text = f"{described.error_class}: {described.message}"
                self._change(end_time_ms=described.time_ms, state="FAILED", failure=text)
            self._exceptions.append(described)
        self._run.history.exception(described)

    def _beside(self, failure: ExceptionDescription) -> Iterator[ExceptionDescription]:
        """The failures of other tasks in the epoch that has failed."""
        for other in self._exceptions:
            same_epoch = (other.attempt, other.epoch) == (failure.attempt, failure.epoch)
            if other.retried and same_epoch and other.task != failure.task:
                yield other

    def task_failed(self, failure: FlinkishError) -> None:
        """Keep the failure of a task that Spark runs again as an exception of the job."""
        described = describe_exception(failure, self._clock.now_ms(), self._number(), None, retried=True)
        with self._lock:
            self._task_failures += 1
            self._exceptions.append(described)
        self._run.history.exception(described)

    def job_done(self, status: JobStatus) -> None:
        """Close the last attempt: the job has ended with this status."""
        self.graph.job_done(status is JobStatus.FINISHED, f"the job is {status.name}")
        with self._lock:
            self._running = None
            if self._attempts and self._attempts[-1].end_time_ms is None:
                state = "FINISHED" if status is JobStatus.FINISHED else "CANCELED"
                self._change(end_time_ms=self._clock.now_ms(), state=state)

    def _change(self, **changes: Any) -> None:
        self._attempts[-1] = replace(self._attempts[-1], **changes)

    def _execution_ended(self, execution: Execution) -> None:
        vertex = execution.vertex
        end = execution.describe()
        self._run.history.execution(vertex.id, vertex.head.uid, execution.name, execution.subtask, end)

    # ------------------------------------------------------------------ what can be said

    def accumulator_results(self) -> dict[str, Any]:
        """Accumulator name -> its value so far.

        Raises:
            ProgramError: the value of an accumulator of the program's own cannot be computed.
        """
        return results_of(self.accumulators, self._job.classes)

    def describe(self) -> JobDescription:
        """The job as of now."""
        machine, totals = self._run.machine, self._totals()
        managers = () if self._run.task_managers is None else self._run.task_managers.describe()
        times = machine.times_ms
        end_ms = times[machine.state.name] if machine.terminal else None
        with self._lock:
            attempts, exceptions, epochs = tuple(self._attempts), tuple(self._exceptions), tuple(self._past)
            running, traces = self._running, list(self._traces.values())
            metrics = self._metrics((end_ms or self._clock.now_ms()) - times["INITIALIZING"])
        return JobDescription(
            id=self._job.job_id,
            name=self._job.name,
            status=machine.state.name,
            start_time_ms=times["INITIALIZING"],
            end_time_ms=end_ms,
            times_ms=times,
            plan=self._plan,
            vertices=self.graph.describe(counts_of(self.accumulators, self._job.classes)),
            attempts=attempts,
            checkpoints=describe_checkpoints(
                self._run.checkpoints.describe(), self._run.savepoints.describe(), totals, self._run.restored
            ),
            metrics=metrics,
            accumulators=shown_accumulators(self.accumulators, self._job.classes),
            exceptions=exceptions,
            configuration=redacted(dict(sorted(self._job.settings.configuration.items()))),
            state=where_state_lies(self._job.settings, self._directory),
            story=machine.story.events,
            directory=self._directory,
            driver=self._driver,
            warnings=tuple(self._run.warnings.values()),
            running_epoch=None if running is None else describe_running_epoch(running),
            epochs=epochs,
            durations_ms=machine.durations_ms,
            checkpoint_settings=checkpoint_settings(self._configuration),
            restart_strategy=self._run.restarts.describe(),
            accumulator_types=types_of(self.accumulators, self._job.classes),
            totals=totals,
            doing=self._run.doing_now(),
            slots=self._run.slots or describe_slots(self._job.required_slots, managers),
            memory=self._run.memory,
            task_managers=managers,
            lifecycle=tuple(call for trace in traces for call in trace)[-self.MAX_CALLS :],
        )

    def _metrics(self, duration_ms: int) -> dict[str, float]:
        found: dict[str, float] = {
            "epochs": self._epochs,
            "records_in": self._in,
            "records_out": self._out,
            "restarts": self._restarts,
            "task_failures": self._task_failures,
            "duration_ms": duration_ms,
        }
        last = self._run.last_epoch
        if last is not None:
            found["last_epoch"] = last
        if self._watermark_ms is not None:
            found["watermark_ms"] = self._watermark_ms
        return found


#: The end of a task's name: its number from 1, and the parallelism.
_NUMBERED = re.compile(r"\((\d+)/\d+\)$")


def describe_exception(
    failure: FlinkishError, time_ms: int, attempt: int, restart_delay_ms: int | None, retried: bool = False
) -> ExceptionDescription:
    """The description of a failure, with who must act on it."""
    place, numbered = TaskPlace.parsed(failure.place), _NUMBERED.search(failure.task)
    return ExceptionDescription(
        time_ms=time_ms,
        attempt=attempt,
        error_class=type(failure).__name__,
        who=who_must_act(failure, retried or restart_delay_ms is not None),
        retryable=failure.retryable,
        message=failure.message,
        what=failure.what,
        where=escaped(failure.where),
        expected=failure.expected,
        hint=failure.hint,
        task=failure.task or None,
        epoch=failure.epoch,
        place=failure.place or None,
        host=None if place is None else place.host,
        executor=None if place is None else place.executor,
        subtask=None if numbered is None else int(numbered[1]) - 1,
        traceback=failure.user_traceback if isinstance(failure, UserCodeError) else None,
        restart_delay_ms=restart_delay_ms,
        retried=retried,
    )


def describe_epoch(report: EpochReport, now_ms: int, before_ms: int | None = None) -> EpochDescription:
    """The description of an epoch that the sinks have committed. ``now_ms``: when they have; ``before_ms``: when they
    had committed the one before it."""
    known = before_ms is not None and report.duration_ms > 0
    return EpochDescription(
        epoch=report.epoch,
        time_ms=now_ms,
        duration_ms=report.duration_ms,
        run_ms=report.run_ms,
        prepare_ms=max(report.duration_ms - report.run_ms - report.commit_ms, 0),
        commit_ms=report.commit_ms,
        records_in=report.records_in,
        records_out=report.records_out,
        bytes=sum(task.bytes_out for task in report.tasks),
        watermark_ms=report.watermark_ms,
        plan_ms=max(now_ms - (before_ms or 0) - report.duration_ms, 0) if known else None,
    )


def describe_running_epoch(progress: EpochProgress) -> RunningEpochDescription:
    """The description of the epoch that runs; what its tasks do is in the descriptions of the executions."""
    records = progress.records_in, progress.records_out
    return RunningEpochDescription(progress.epoch, progress.running_ms, *records, progress.watermark_ms)


def describe_checkpoints(
    checkpoints: tuple[CheckpointDescription, ...],
    savepoints: tuple[CheckpointDescription, ...],
    totals: TotalsDescription,
    restored: RestoreDescription | None = None,
) -> CheckpointsDescription:
    """The checkpoints and savepoints, given oldest first, with their counts since the job began and the latest one of
    each kind."""
    all_of_them = tuple(heapq.merge(checkpoints, savepoints, key=lambda one: one.trigger_time_ms))
    pending = [one for one in all_of_them if one.status == "PENDING"]
    counts = Counter(totals.checkpoints) + Counter(totals.savepoints) + Counter(one.status for one in pending)
    counts["savepoints"] = sum(totals.savepoints.values()) + sum(one.is_savepoint for one in pending)

    def latest(status: str, is_savepoint: bool | None) -> CheckpointDescription | None:
        found = [
            checkpoint
            for checkpoint in all_of_them
            if checkpoint.status == status and is_savepoint in (None, checkpoint.is_savepoint)
        ]
        return found[-1] if found else None

    return CheckpointsDescription(
        counts=dict(counts),
        latest_completed=latest("COMPLETED", False),
        latest_savepoint=latest("COMPLETED", True),
        latest_failed=latest("FAILED", None),
        history=all_of_them,
        restored=restored,
    )
