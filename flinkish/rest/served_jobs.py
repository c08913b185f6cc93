"""The jobs of a driver as requests see them: described once a second at most, whatever is asked, and with a list of the
operations whose results nobody has fetched yet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from flinkish.errors import FinalOperationError
from flinkish.jobmanager.job.description import JobDescription, JobManagerDescription
from flinkish.jobmanager.job.operations import Kind, Operation, Operations, Request
from flinkish.jobmanager.job.task_managers import ReachableTaskManager
from flinkish.rest.route import Jobs, NotFoundError
from flinkish.runtime.task.stack_samples import StackSamples


class ServedJobs:
    """Jobs whose description is shared by all requests of a second. Any thread may use them.

    Args:
        jobs: the jobs themselves.
        clock_s: gives a time in seconds that never goes back.
    """

    #: How long a description serves, in seconds.
    FRESH_S = 1.0

    def __init__(self, jobs: Jobs, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._described: JobManagerDescription | None = None
        self._described_s = 0.0
        self._operations = FetchedOperations(jobs.operations, clock_s)

    @property
    def operations(self) -> FetchedOperations:
        """What is asked of the jobs."""
        return self._operations

    def describe(self) -> JobManagerDescription:
        """All jobs, not older than a second."""
        with self._lock:
            now_s = self._clock_s()
            if self._described is None or now_s - self._described_s >= self.FRESH_S:
                self._described = self._jobs.describe()
                self._described_s = now_s
            return self._described

    def describe_job(self, job_id: str) -> JobDescription:
        """One job, not older than a second.

        Raises:
            NotFoundError: there is no such job.
        """
        for job in self.describe().jobs:
            if job.id == job_id:
                return job
        try:
            found = self._jobs.describe_job(job_id)
        except FinalOperationError as error:
            raise NotFoundError(error.message) from error
        # it has begun within this second
        self.forget()
        return found

    def stack_samples(self, job_id: str) -> StackSamples | None:
        """Stacks of the tasks of a job; see `Jobs.stack_samples`."""
        return self._jobs.stack_samples(job_id)

    def reach(self, task_manager: str) -> ReachableTaskManager:
        """See `Jobs.reach`."""
        return self._jobs.reach(task_manager)

    def forget(self) -> None:
        """Let the next request see what has changed just now."""
        with self._lock:
            self._described = None


class FetchedOperations(Operations):
    """Operations that know which results are still to be fetched: the asker polls until it has seen the end.

    Args:
        operations: the operations themselves.
        clock_s: gives a time in seconds that never goes back.
    """

    #: The most operations whose askers are waited for.
    MAX_ASKED = 1_000

    def __init__(self, operations: Operations, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._all = operations
        self._clock_s = clock_s
        self._asked_lock = threading.Lock()
        #: id of an operation whose end was not seen -> when it was asked for last, in seconds
        self._asked: dict[str, float] = {}

    def trigger(self, request: Request, operation_id: str | None = None) -> Operation:
        """Begin an operation; see `Operations.trigger`."""
        operation = self._all.trigger(request, operation_id)
        # a cancellation is accepted, and nobody asks for its end
        if request.kind is not Kind.CANCEL:
            with self._asked_lock:
                self._asked[operation.id] = self._clock_s()
                while len(self._asked) > self.MAX_ASKED:
                    del self._asked[next(iter(self._asked))]
        return operation

    def get(self, operation_id: str) -> Operation | None:
        """The operation as of now; see `Operations.get`. If it has ended, its result counts as fetched."""
        operation = self._all.get(operation_id)
        with self._asked_lock:
            if operation is None or operation.completed:
                self._asked.pop(operation_id, None)
            elif operation_id in self._asked:
                self._asked[operation_id] = self._clock_s()
        return operation

    def in_progress(self) -> tuple[Operation, ...]:
        return self._all.in_progress()

    def unfetched(self, within_s: float) -> tuple[str, ...]:
        """The ids of the operations whose end nobody has seen yet, though somebody has asked for it in the last
        seconds. Who has not asked for longer is gone, or wanted no answer."""
        since_s = self._clock_s() - within_s
        with self._asked_lock:
            return tuple(name for name, asked_s in self._asked.items() if asked_s >= since_s)
