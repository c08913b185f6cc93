"""A stop with a savepoint, from the request until it is known whether the savepoint was written.

Rule: the job ends only if the savepoint was written. That no savepoint can be written is found out, as far as possible,
before the query is stopped; and a job whose savepoint fails after that starts its query again and goes on, as in Flink.
"""

from __future__ import annotations

import math
import posixpath
import uuid
from concurrent.futures import Future
from dataclasses import dataclass, field

from flinkish.checkpoint.manifest import MANIFEST
from flinkish.common.job_status import JobStatus
from flinkish.errors import OperationError, SavepointError
from flinkish.storage.files import child_names, delete_file, write_bytes
from flinkish.storage.paths import absolute
from flinkish.storage.stores import storage_error, storage_of


@dataclass
class StopWithSavepoint:
    """The request for a stop with a savepoint, and its outcome."""

    #: the directory in which the savepoint is made
    directory: str
    #: FINISHED or CANCELED: the job's status once the savepoint is written
    end: JobStatus = JobStatus.FINISHED
    #: whether event time is advanced to its end before the savepoint
    drain: bool = False
    #: whether the request came from outside of the program
    from_outside: bool = False
    #: the savepoint's path, or the error that the stop failed with
    outcome: Future[str] = field(default_factory=Future)
    #: the savepoint's path once it is written, when the job is about to end; not set by a drain
    path: str | None = None
    #: when the running epoch is given up, in seconds of the monotonic clock
    epoch_deadline_s: float = math.inf
    #: whether the stop has failed and the job goes on
    job_goes_on: bool = False


def check_target(directory: str, where: str) -> None:
    """Check that savepoints can be made in a directory: create it, and write and delete a file in it.

    Raises:
        SavepointError: no savepoint can be made there; the error says why.
    """
    hint = "name a directory that the driver and all executors can write to"
    try:
        storage_of(directory)
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
