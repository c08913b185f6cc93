"""The handle that ``execute_async`` returns."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_client import JobClient
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import FlinkishError, InternalError, OperationError
from flinkish.jobmanager.description import JobDescription
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.savepoints.savepoint import take_savepoint
from flinkish.jobmanager.spark_run import SparkRun


class RunClient(JobClient):
    """A client of one run."""

    def __init__(self, run: JobRun) -> None:
        self.run = run

    def get_job_id(self) -> JobID:
        """The job's id."""
        return self.run.job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """The status as of now."""
        return CompletableFuture.completed(self.run.status)

    def describe(self) -> JobDescription:
        """All there is to say of the job, as of now."""
        if self.run.record is None:
            raise InternalError("a job without a record", where=f"job '{self.run.name}'", hint="please report this")
        return self.run.record.describe()

    def story(self) -> str:
        """The transitions of the job's status, a line each: ``print(client.story())``."""
        return str(self.run.life.story)

    def cancel(self) -> CompletableFuture[None]:
        """End the job after the running epoch; done when it has ended."""
        self.run.request_stop()
        return self._when_ended(lambda: None)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Write a savepoint of the last committed epoch; its path."""
        return CompletableFuture.completed(take_savepoint(self._spark_run(), savepoint_directory))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """End the job after the running epoch and write a savepoint of it; its path.

        Done when the job has ended, as in Flink: its status is FINISHED and its directory is free for the next job.

        Args:
            advance_to_end_of_event_time: drain: before the savepoint all event-time timers and windows fire in an epoch
                of their own. To end a job for good; the savepoint holds no open window any more.
            savepoint_directory: where the savepoint is made; None: where the job's savepoints go.
        """
        drain_to = [savepoint_directory] if advance_to_end_of_event_time else None
        return self._end_with_savepoint(savepoint_directory, JobStatus.FINISHED, drain_to)

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Cancel the job after the running epoch and write a savepoint of it; its path. As Flink's (deprecated)
        cancelWithSavepoint; the job ends as CANCELED."""
        return self._end_with_savepoint(savepoint_directory, JobStatus.CANCELED, None)

    def _end_with_savepoint(
        self, directory: str | None, end: JobStatus, drain_to: list[str | None] | None
    ) -> CompletableFuture[str]:
        run = self._spark_run()
        outcome: Future[str] = Future()

        def take(failure: BaseException | None) -> None:
            try:
                if failure is not None:
                    raise failure
                outcome.set_result(run.drained_savepoint or take_savepoint(run, directory))
            except BaseException as error:
                # without its savepoint a stop is no more than a cancellation
                run.end_as(JobStatus.CANCELED)
                outcome.set_exception(error)

        try:
            # known before anything is stopped
            _ = directory or run.savepoint_directory()
            run.stop_and(take, end, drain_to)
        except FlinkishError as error:
            return CompletableFuture.failed(error)
        return self._when_ended(outcome.result)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Empty: Python functions have none, as in PyFlink."""
        return CompletableFuture.completed({})

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Done when the job has ended; fails as the job failed."""
        return self.run.result

    def _spark_run(self) -> SparkRun:
        if not isinstance(self.run, SparkRun):
            raise OperationError(
                "the minicluster has no savepoints", where=f"job '{self.run.name}'", hint="run the job on Spark"
            )
        return self.run

    def _when_ended(self, value: Callable[[], Any]) -> CompletableFuture[Any]:
        def wait() -> Any:
            self.run.wait()
            return value()

        executor = ThreadPoolExecutor(1)
        future = executor.submit(wait)
        executor.shutdown(wait=False)
        return CompletableFuture(future)
