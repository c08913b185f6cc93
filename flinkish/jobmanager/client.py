"""The client of a running job, which ``execute_async`` returns, and the registry of the driver's jobs: the running
ones, and the most recently ended ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from flinkish import __version__
from flinkish.common import Configuration
from flinkish.common.completable_future import CompletableFuture
from flinkish.common.html_text import folded, paragraph
from flinkish.common.job_client import JobClient
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.common.options import execution
from flinkish.errors import FinalOperationError, FlinkishError, InternalError, OperationError, ProgramError
from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager.flame_graphs import FlameGraphs
from flinkish.jobmanager.job.description import JobDescription, JobManagerDescription, JobObserver
from flinkish.jobmanager.job.operations import Kind, Operations, Request
from flinkish.jobmanager.job.task_managers import ReachableTaskManager
from flinkish.jobmanager.job_record import this_driver
from flinkish.jobmanager.job_run import JobRun, in_background
from flinkish.jobmanager.job_start import JobStart
from flinkish.jobmanager.kept_run import KeptRun
from flinkish.jobmanager.notebook import job_html
from flinkish.jobmanager.savepoint import dispose_savepoint
from flinkish.jobmanager.wishes import StopWithSavepoint
from flinkish.runtime.task.stack_samples import StackSamples
from flinkish.storage.paths import absolute


class RunClient(JobClient):
    """The JobClient of a job that this process runs: tells its state, stops it, and takes its savepoints."""

    def __init__(self, run: JobRun, operations: Operations | None = None) -> None:
        """``operations``: those of the JobManager that the job is registered with; None: of this client alone."""
        self.run = run
        #: what somebody outside of the program asks for by an id
        self.operations = operations or Operations(self.carry_out)
        self._flame_graphs: FlameGraphs | None = None

    def __repr__(self) -> str:
        return f"<job '{self.run.name}' ({self.run.job_id}): {self.run.status.name}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the job's status, its graph with records, and its story."""
        shown = "" if self.run.record is None else job_html(self.describe())
        return paragraph(repr(self)) + shown + folded("story", self.story())

    def get_job_id(self) -> JobID:
        return self.run.job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self.run.status)

    def describe(self) -> JobDescription:
        """All that is known of the job as of now: status, vertices, attempts, checkpoints, metrics and exceptions."""
        if self.run.record is None:
            raise InternalError("a job without a record", where=f"job '{self.run.name}'", hint="please report this")
        return self.run.record.describe()

    def story(self) -> str:
        """The transitions of the job's status as text, one per line, the oldest first: ``print(client.story())``."""
        return str(self.run.machine.story)

    def cancel(self) -> CompletableFuture[None]:
        self.run.request_stop()
        return _in_background(self.run.wait)

    def cancel_from_outside(self) -> CompletableFuture[None]:
        """Cancel the job at the request of somebody outside of the program, which therefore exits with 143. The future
        is done when the job has ended, before its directory is free, and fails if the job has failed instead."""
        live_jobs.asked_from_outside(self.run)
        self.run.request_stop()

        def wait() -> None:
            self.run.over.wait()
            if self.run.status is JobStatus.FAILED:
                raise OperationError(
                    "the job has failed while it was being cancelled",
                    where=f"job '{self.run.name}'",
                    hint="look at the driver's output",
                )

        return _in_background(wait)

    def carry_out(self, request: Request) -> CompletableFuture[Any]:
        """Begin what somebody outside of the program asks for, without waiting; the future holds the path of the
        savepoint, the number of the checkpoint, or None. What cannot be begun fails as a future, too."""
        try:
            if request.kind is Kind.SAVEPOINT and not request.cancel_job:
                return self.trigger_savepoint(request.directory)
            if request.kind is Kind.SAVEPOINT:
                until_ended = self.run.over.wait
                return self._stop(request.directory, until_ended, end=JobStatus.CANCELED, from_outside=True)
            if request.kind is Kind.STOP:
                return self.stop_from_outside(request.drain, request.directory)
            if request.kind is Kind.CANCEL:
                return self.cancel_from_outside()
            if request.kind is Kind.CHECKPOINT:
                return self.trigger_checkpoint(request.full)
        except FlinkishError as error:
            return CompletableFuture.failed(error)
        return CompletableFuture.failed(
            OperationError(
                f"the job cannot be asked for a {request.kind.value}",
                where=f"job '{self.run.name}'",
                expected="a savepoint, a stop, a cancellation or a checkpoint",
            )
        )

    def stack_samples(self) -> StackSamples | None:
        """Stacks of the job's tasks, for flame graphs (`FlameGraphs.look`); None: they are switched off."""
        if not isinstance(self.run, KeptRun) or not self.run.job.settings.flame_graphs:
            return None
        if self._flame_graphs is None:
            self._flame_graphs = FlameGraphs(Configuration.from_dict(self.run.job.settings.configuration))
        return self._flame_graphs.look(self.run.sample_board)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Write a savepoint of the last committed epoch, after those that were asked for before; the future, which is
        there at once, holds its path. Before the first epoch is committed, its end is waited for.

        If the savepoint cannot be written, the future fails and the job goes on as before; if no savepoint can be made
        in the directory, nothing is read or written for it.
        """
        return _in_background(lambda: self._kept_run().savepoint(savepoint_directory))

    def trigger_checkpoint(self, full: bool = False) -> CompletableFuture[int]:
        """Take a checkpoint of the last committed epoch, also in a job without a checkpoint interval; the future holds
        its number. ``full``: of all state; without an interval, and in the minicluster, each is a full one.
        """
        return _in_background(lambda: self._kept_run().checkpoint(full))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """End the job after the running epoch and write a savepoint of that epoch; the future holds its path.

        The future is done when the job has ended, as in Flink: the job's status is FINISHED and its directory is free
        for the next job. The future fails when no savepoint can be written, and then the job goes on: if the problem is
        seen beforehand, nothing is stopped, otherwise the query is started again. Only a drain that has begun cannot be
        undone: a failure after that fails the job, and whoever starts the job next ends the drain.

        Args:
            advance_to_end_of_event_time: drain the job: before the savepoint, all event-time timers and windows fire in
                an epoch of their own. Meant for ending a job for good: the savepoint holds no open window any more.
            savepoint_directory: the directory in which the savepoint is made; None: the job's savepoint directory.
        """
        return self._stop(savepoint_directory, drain=advance_to_end_of_event_time)

    def stop_from_outside(self, drain: bool, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Do what `stop_with_savepoint` does, at the request of somebody outside of the program, which therefore exits
        with 143. The future is done when the job has ended, before its directory is free."""
        return self._stop(savepoint_directory, self.run.over.wait, drain=drain, from_outside=True)

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Cancel the job after the running epoch and write a savepoint of that epoch; the future holds its path.

        As with Flink's (deprecated) cancelWithSavepoint, the job ends as CANCELED, and goes on if the savepoint cannot
        be written.
        """
        return self._stop(savepoint_directory, end=JobStatus.CANCELED)

    def _stop(
        self, directory: str | None, until_ended: Callable[[], Any] | None = None, **how: Any
    ) -> CompletableFuture[str]:
        def begun() -> StopWithSavepoint:
            run = self._kept_run()
            stop = StopWithSavepoint(directory or run.savepoint_directory(), **how)
            run.stop_with_savepoint(stop)
            return stop

        def wait(stop: StopWithSavepoint) -> str:
            try:
                return stop.outcome.result()
            finally:
                if not stop.job_goes_on:
                    (until_ended or self.run.wait)()

        if isinstance(self.run, JobStart):
            # there is nothing to stop yet
            return _in_background(lambda: wait(begun()))
        try:
            stop = begun()
        except FlinkishError as error:
            return CompletableFuture.failed(error)
        return _in_background(lambda: wait(stop))

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed(self.run.accumulator_results())

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return self.run.result

    def _kept_run(self) -> KeptRun:
        """The run of the job; while the job is being submitted, it is waited for.

        Raises:
            OperationError: the job does not run.
            FinalOperationError: the job has ended before it ran.
        """
        run = self.run.run_of_job() if isinstance(self.run, JobStart) else self.run
        if not isinstance(run, KeptRun):
            raise OperationError("the job does not run: another epoch is replayed", where=f"job '{run.name}'")
        return run


def _in_background(work: Callable[[], Any]) -> CompletableFuture[Any]:
    return CompletableFuture(in_background(work, "flinkish-operation"))


class JobManager:
    """The registry of all jobs of this process. Any thread may use it.

    Rule: ``describe()`` is the one source for everything that shows a job. Once a job has ended, only its last
    description is kept; what must outlive the driver is in the history's tables.
    """

    #: The most ended jobs whose descriptions are kept.
    MAX_ENDED = 50

    _instance: ClassVar[JobManager | None] = None
    _instance_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations = Operations(self._carry_out)
        self._at_work: dict[str, RunClient] = {}
        self._ended: OrderedDict[str, JobDescription] = OrderedDict()

    @classmethod
    def get(cls) -> JobManager:
        """The JobManager of this process."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def register(self, run: JobRun) -> RunClient:
        """Add a job before it starts, or its start; returns its client."""
        client = RunClient(run, self._operations)
        self._add(client)
        return client

    def identify(self, client: RunClient, job_id: str | None) -> None:
        """A job that is being submitted turns out to have this id, or none yet."""
        start, found = client.run, None
        if job_id is not None:
            # otherwise the file is refused in a moment
            with suppress(ProgramError):
                found = JobID.from_hex_string(job_id)
        if isinstance(start, JobStart) and found is not None and found != start.job_id:
            with self._lock:
                del self._at_work[start.job_id.to_hex_string()]
            start.identify(found)
            self._add(client)

    def hand_over(self, client: RunClient, run: JobRun) -> None:
        """A job that was being submitted has a run now, which has not begun."""
        start = client.run
        assert isinstance(start, JobStart), "a job has one run"
        run.observers.append(_End(self, client))
        client.run = run
        start.hand_over(run)

    def _add(self, client: RunClient) -> None:
        job_id = client.run.job_id.to_hex_string()
        with self._lock:
            self._at_work[job_id] = client
            self._ended.pop(job_id, None)
        if not any(isinstance(one, _End) for one in client.run.observers):
            client.run.observers.append(_End(self, client))

    def ended(self, client: RunClient) -> None:
        """Keep only the last description of a job that has ended."""
        job_id = client.run.job_id.to_hex_string()
        description = client.describe()
        with self._lock:
            if self._at_work.get(job_id) is client:
                del self._at_work[job_id]
                self._ended[job_id] = description
            while len(self._ended) > self.MAX_ENDED:
                self._ended.popitem(last=False)

    @property
    def operations(self) -> Operations:
        """What is asked of the jobs from outside of the program; each request names its job."""
        return self._operations

    def _carry_out(self, request: Request) -> CompletableFuture[Any]:
        if request.kind is Kind.DISPOSE:
            return _in_background(lambda: dispose_savepoint(request.directory or "", self._begun_from()))
        client = self.job(request.job_id or "")
        if client is not None:
            self._check_only_stop(request)
            return client.carry_out(request)
        ended = self.describe_job(request.job_id or "")
        raise FinalOperationError(
            f"the job has ended ({ended.status}): there is nothing to {request.kind.value}",
            where=f"job '{ended.name}'",
            expected="a running job",
        )

    def _check_only_stop(self, request: Request) -> None:
        """Refuse a stop over a stop, with the id by which the first one is found."""

        def stops(one: Request) -> bool:
            return one.kind is Kind.STOP or (one.kind is Kind.SAVEPOINT and one.cancel_job)

        # the last one is the one that is just being begun
        first = [
            operation.id
            for operation in self._operations.in_progress()
            if stops(operation.request) and operation.request.job_id == request.job_id
        ][:-1]
        if stops(request) and first:
            raise OperationError(
                f"the job is being stopped with a savepoint already, by the operation {first[0]}",
                where=f"job {request.job_id}",
                hint="wait for the end of that operation",
            )

    def _begun_from(self) -> dict[str, str]:
        """The savepoint that a job at work has been started from -> the name of the job."""
        described = [client.describe() for client in self.jobs()]
        begun = {job.configuration.get(execution.STATE_RECOVERY_PATH.key): job.name for job in described}
        return {absolute(savepoint): name for savepoint, name in begun.items() if savepoint}

    def jobs(self) -> tuple[RunClient, ...]:
        """The running jobs, in the order of their submission."""
        with self._lock:
            return tuple(self._at_work.values())

    def job(self, job_id: JobID | str) -> RunClient | None:
        """The running job with that id; None when there is none, or when it has ended."""
        with self._lock:
            return self._at_work.get(_text(job_id))

    def reach(self, task_manager: str) -> ReachableTaskManager:
        """The task manager with this id, of a running job, to be asked for more than it reports.

        Raises:
            FinalOperationError: there is none that can be asked.
        """
        for client in self.jobs():
            if client.run.task_managers is not None:
                found = client.run.task_managers.reach(task_manager)
                if found is not None:
                    return found
        raise FinalOperationError(
            f"the task manager {task_manager} cannot be asked for threads and logs",
            expected="an executor of a Spark session in this driver",
            hint="Spark Connect reaches no certain executor: look where the executor runs",
        )

    def describe_job(self, job_id: JobID | str) -> JobDescription:
        """The description of one job, running or ended.

        Raises:
            FinalOperationError: there is no such job, or its description is no longer kept (`MAX_ENDED`).
        """
        text = _text(job_id)
        with self._lock:
            client, ended = self._at_work.get(text), self._ended.get(text)
        if client is not None:
            return client.describe()
        if ended is not None:
            return ended
        raise FinalOperationError(
            f"this driver knows no job {text}",
            expected=f"a job at work, or one of the last {self.MAX_ENDED} that have ended",
            hint="the history's tables in the job directory tell of jobs of earlier drivers",
        )

    def stack_samples(self, job_id: JobID | str) -> StackSamples | None:
        """Stacks of the tasks of a running job, for flame graphs; None: they are switched off, or it does not run."""
        client = self.job(job_id)
        return None if client is None else client.stack_samples()

    def describe(self) -> JobManagerDescription:
        """All jobs: the running ones first, then the ended ones, the most recently ended last."""
        with self._lock:
            clients, ended = tuple(self._at_work.values()), tuple(self._ended.values())
        at_work = tuple(client.describe() for client in clients)
        return JobManagerDescription(this_driver(), __version__, at_work + ended)


class _End(JobObserver):
    """Reports the end of a job to the JobManager."""

    def __init__(self, manager: JobManager, client: RunClient) -> None:
        self._manager = manager
        self._client = client

    def job_done(self, status: JobStatus) -> None:
        """Let the JobManager keep only the last description of the job."""
        self._manager.ended(self._client)


def _text(job_id: JobID | str) -> str:
    return job_id.to_hex_string() if isinstance(job_id, JobID) else job_id
