"""A stop with a savepoint, from when it is asked for until it is known whether the savepoint was written.

Rule: the job ends only if it was. Where a savepoint cannot be written is found out, as far as that is possible, before
the query is stopped; and a job whose savepoint fails after that starts its query again and goes on, as in Flink.
"""

from __future__ import annotations

import posixpath
import uuid
from concurrent.futures import Future
from dataclasses import dataclass, field

from flinkish.common.job_status import JobStatus
from flinkish.common.storage import place
from flinkish.common.storage_errors import storage_error
from flinkish.errors import OperationError, SavepointError
from flinkish.jobmanager.directory.files import absolute, child_names, delete_file, write_bytes
from flinkish.jobmanager.savepoints.manifest import MANIFEST


@dataclass
class StopWithSavepoint:
    """What is asked for, and what has become of it."""

    #: where the savepoint is made
    directory: str
    #: FINISHED or CANCELED: what the job is once the savepoint is written
    end: JobStatus = JobStatus.FINISHED
    #: event time first goes to its end
    drain: bool = False
    #: not the program itself asks
    from_outside: bool = False
    #: the savepoint's path, or what the stop failed with
    outcome: Future[str] = field(default_factory=Future)
    #: the savepoint is written, the job ends
    path: str | None = None
    #: the stop has failed, and the job is not ended by it
    job_goes_on: bool = False


def check_target(directory: str, where: str) -> None:
    """Whether savepoints can be made in a directory: creates it, and writes and deletes a file there.

    Raises:
        SavepointError: they cannot; says why.
    """
    hint = "name a directory that the driver and all executors can write to"
    try:
        place(directory)
    except Exception as error:
        raise SavepointError(f"cannot write a savepoint to {directory}: {error}", where=where, hint=hint) from error
    parent = absolute(directory)
    probe = posixpath.join(parent, f".flinkish-{uuid.uuid4().hex}")
    try:
        write_bytes(probe, b"")
        delete_file(probe)
        names = child_names(parent)
    except (OperationError, OSError) as error:
        typed = storage_error(error, "write", probe) if isinstance(error, OSError) else error
        raise SavepointError(
            f"cannot write a savepoint to {parent}: {typed.what}", where=where, hint=typed.hint or hint
        ) from error
    if MANIFEST in names:
        raise SavepointError(
            f"cannot write a savepoint to {parent}: it is itself a savepoint or checkpoint",
            where=where,
            expected="the directory that savepoints are made in, each in a directory of its own",
            hint=f"name its parent, {posixpath.dirname(parent)}",
        )
