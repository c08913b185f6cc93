"""The driver's jobs: those at work, and the last ones that have ended.

Rule: ``describe()`` is the one source for everything that shows a job. Of an ended job nothing is kept but its last
description; what must outlive the driver is in the history's tables.
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
from flinkish.jobmanager.description import JobDescription, JobManagerDescription
from flinkish.jobmanager.job_record import this_driver
from flinkish.jobmanager.job_run import JobObserver, JobRun


class JobManager:
    """All jobs of this process."""

    #: Descriptions of so many ended jobs are kept.
    MAX_ENDED = 50

    _instance: ClassVar[JobManager | None] = None
    _instance_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: dict[str, RunClient] = {}
        self._ended: OrderedDict[str, JobDescription] = OrderedDict()

    @classmethod
    def get(cls) -> JobManager:
        """The one of this process."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def register(self, run: JobRun) -> RunClient:
        """Take a job in, before it starts."""
        client = RunClient(run)
        job_id = run.job_id.to_hex_string()
        with self._lock:
            self._at_work[job_id] = client
            self._ended.pop(job_id, None)
        run.observers.append(_End(self, client))
        return client

    def ended(self, client: RunClient) -> None:
        """A job has come to its end."""
        job_id = client.run.job_id.to_hex_string()
        description = client.describe()
        with self._lock:
            if self._at_work.get(job_id) is client:
                del self._at_work[job_id]
                self._ended[job_id] = description
            while len(self._ended) > self.MAX_ENDED:
                self._ended.popitem(last=False)

    def jobs(self) -> tuple[RunClient, ...]:
        """The jobs at work, in the order of their submission."""
        with self._lock:
            return tuple(self._at_work.values())

    def job(self, job_id: JobID | str) -> RunClient | None:
        """A job at work; None when there is none with that id (any more)."""
        with self._lock:
            return self._at_work.get(_text(job_id))

    def describe_job(self, job_id: JobID | str) -> JobDescription:
        """One job, at work or ended.

        Raises:
            FinalOperationError: there is none, or it has ended long ago.
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
        """All jobs: those at work first, then the ended ones, the newest last."""
        with self._lock:
            clients, ended = tuple(self._at_work.values()), tuple(self._ended.values())
        at_work = tuple(client.describe() for client in clients)
        return JobManagerDescription(this_driver(), __version__, at_work + ended)


class _End(JobObserver):
    """Tells the JobManager of a job's end."""

    def __init__(self, manager: JobManager, client: RunClient) -> None:
        self._manager = manager
        self._client = client

    def job_done(self, status: JobStatus) -> None:
        """The job has ended."""
        self._manager.ended(self._client)


def _text(job_id: JobID | str) -> str:
    return job_id.to_hex_string() if isinstance(job_id, JobID) else job_id
