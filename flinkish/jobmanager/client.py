"""The handle that ``execute_async`` returns."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from flinkish.jobmanager.savepoints.stop_request import StopWithSavepoint
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
        return _in_background(self.run.wait)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Write a savepoint of the last committed epoch; its path. One that fails changes nothing."""
        run = self._spark_run()
        try:
            return CompletableFuture.completed(take_savepoint(run, savepoint_directory))
        except FlinkishError as error:
            return CompletableFuture.failed(error)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """End the job after the running epoch and write a savepoint of it; its path.

        Done when the job has ended, as in Flink: its status is FINISHED and its directory is free for the next job.
        Fails when no savepoint can be written, and then the job goes on: nothing is stopped if that is seen before, and
        else the query is started again. Only a drain that has begun cannot be undone: what fails after that fails the
        job, and whoever starts it next ends the drain.

        Args:
            advance_to_end_of_event_time: drain: before the savepoint all event-time timers and windows fire in an epoch
                of their own. To end a job for good; the savepoint holds no open window any more.
            savepoint_directory: where the savepoint is made; None: where the job's savepoints go.
        """
        return self._stop(savepoint_directory, drain=advance_to_end_of_event_time)

    def stop_from_outside(self, drain: bool, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """`stop_with_savepoint`, asked for by somebody outside of the program: it then exits with 143."""
        return self._stop(savepoint_directory, drain=drain, from_outside=True)

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Cancel the job after the running epoch and write a savepoint of it; its path. As Flink's (deprecated)
        cancelWithSavepoint: the job ends as CANCELED, and goes on if there is no savepoint."""
        return self._stop(savepoint_directory, end=JobStatus.CANCELED)

    def _stop(self, directory: str | None, **how: Any) -> CompletableFuture[str]:
        run = self._spark_run()
        try:
            stop = StopWithSavepoint(directory or run.savepoint_directory(), **how)
            run.stop_with_savepoint(stop)
        except FlinkishError as error:
            return CompletableFuture.failed(error)

        def wait() -> str:
            try:
                return stop.outcome.result()
            finally:
                if not stop.job_goes_on:
                    run.wait()

        return _in_background(wait)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed(self.run.accumulator_results())

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Done when the job has ended; fails as the job failed."""
        return self.run.result

    def _spark_run(self) -> SparkRun:
        if not isinstance(self.run, SparkRun):
            raise OperationError(
                "the minicluster has no savepoints", where=f"job '{self.run.name}'", hint="run the job on Spark"
            )
        return self.run


def _in_background(work: Callable[[], Any]) -> CompletableFuture[Any]:
    executor = ThreadPoolExecutor(1)
    future = executor.submit(work)
    executor.shutdown(wait=False)
    return CompletableFuture(future)
