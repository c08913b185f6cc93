"""Writes the archive of a job at its end, a file named by the job's id, for a history server."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable

from flinkish.common.job_status import JobStatus
from flinkish.errors import message_of
from flinkish.jobmanager.job.description import JobDescription, JobObserver
from flinkish.rest.views.archive import archive_of
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.storage.stores import storage_of

_LOG = logging.getLogger("flinkish.HistoryServer")


class JobArchive(JobObserver):
    """Writes the archive of a job that has ended for good: of one that is suspended, which may go on, there is none.

    Args:
        directory: where archives lie (``jobmanager.archive.fs.dir``); it is made if it does not exist.
        describe: describes the job.
        clock: gives the time of the archive.
    """

    def __init__(self, directory: str, describe: Callable[[], JobDescription], clock: Clock | None = None) -> None:
        self._directory = directory
        self._describe = describe
        self._clock = clock or SystemClock()

    def job_done(self, status: JobStatus) -> None:
        """Write the archive. One that cannot be written is logged: the job has ended as it has."""
        if status is JobStatus.SUSPENDED:
            return
        job = self._describe()
        path = posixpath.join(self._directory, job.id)
        try:
            storage_of(path).replace(path, archive_of(job, self._clock.now_ms()).encode())
        except Exception as error:
            _LOG.warning("job '%s': its archive %s could not be written: %s", job.name, path, message_of(error))
