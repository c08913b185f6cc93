"""The driver's jobs: the running ones, and the most recently ended ones.

Rule: ``describe()`` is the one source for everything that shows a job. Once a job has ended, only its last description
is kept; what must outlive the driver is in the history's tables.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import ClassVar

from flinkish import __version__
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import FinalOperationError
from flinkish.jobmanager.client import RunClient
from flinkish.jobmanager.job.description import JobDescription, JobManagerDescription, JobObserver
from flinkish.jobmanager.job_record import this_driver
from flinkish.jobmanager.job_run import JobRun


class JobManager:
    """The registry of all jobs of this process. Any thread may use it."""

    #: The most ended jobs whose descriptions are kept.
    MAX_ENDED = 50

    _instance: ClassVar[JobManager | None] = None
    _instance_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
        """Add a job before it starts; returns its client."""
        client = RunClient(run)
        job_id = run.job_id.to_hex_string()
        with self._lock:
            self._at_work[job_id] = client
            self._ended.pop(job_id, None)
        run.observers.append(_End(self, client))
        return client

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

    def jobs(self) -> tuple[RunClient, ...]:
        """The running jobs, in the order of their submission."""
        with self._lock:
            return tuple(self._at_work.values())

    def job(self, job_id: JobID | str) -> RunClient | None:
        """The running job with that id; None when there is none, or when it has ended."""
        with self._lock:
            return self._at_work.get(_text(job_id))

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
