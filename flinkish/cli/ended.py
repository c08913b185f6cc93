"""What a job directory tells of a job whose driver is gone: how the job has ended, when, with which savepoint, and what
starts it again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from flinkish.errors import FlinkishError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Liveness, liveness_of
from flinkish.jobdir.layout import Job, JobEnd, Owner
from flinkish.storage.files import is_directory
from flinkish.storage.stored_file import StoredFile


@dataclass(frozen=True)
class Ended:
    """A job that no driver runs."""

    id: str | None
    name: str
    directory: str
    #: FINISHED, CANCELED or FAILED; SUSPENDED: it goes on when it is started again
    status: str
    #: how it has ended, in words
    how: str
    ended_ms: int | None
    savepoint: str | None
    last_epoch: int | None
    #: the process that has run it last
    driver: str
    #: what starts it again, in words
    again: str


def ended(path: str) -> Ended | None:
    """The job in a directory, if no driver runs it; None: a driver does, or none ever has.

    Raises:
        OperationError: the directory cannot be read, or a file in it is damaged.
    """
    # a JobDirectory makes its directory
    directory = JobDirectory(path) if is_directory(path) else None
    owner = None if directory is None else directory.read(Owner)
    if directory is None or owner is None or liveness_of(owner) is not Liveness.GONE:
        return None
    job, end = directory.read(Job), directory.end()
    driver = f"process {owner.pid} on {owner.host}"
    program = job if job is not None or end is None else end.program
    if end is not None:
        status, how, ended_ms = end.status, end.described(), _modified_ms(directory, JobEnd)
    else:
        status, how, ended_ms = _last_status(directory, owner, driver)
    return Ended(
        None if job is None else job.job_id,
        "a job" if program is None else program.name,
        directory.path,
        status,
        how,
        ended_ms,
        None if end is None else end.savepoint,
        None if end is None else end.last_epoch,
        driver,
        how_to_go_on(directory.path, end),
    )


def how_to_go_on(directory: str, end: JobEnd | None) -> str:
    """What starts a job again that has ended in this directory; ``end``: None if it has not ended for good."""
    here = f"-D flinkish.job.dir={directory} PROGRAM.py"
    if end is None:
        return f"flinkish run {here}"
    if end.done and end.status != "CANCELED":
        return "nothing is left to run; for new input, start the program in another directory"
    again = f"flinkish run --restart {here}"
    if end.savepoint is None:
        return again
    return f"flinkish run -s {end.savepoint} -D flinkish.job.dir=ANOTHER PROGRAM.py, or in its own directory: {again}"


def _modified_ms(directory: JobDirectory, kind: type[StoredFile]) -> int | None:
    with suppress(OSError, FlinkishError):
        modified_s = directory.storage.modified_s(kind.path_in(directory.path))
        return None if modified_s is None else int(modified_s * 1000)
    return None


def _last_status(directory: JobDirectory, owner: Owner, driver: str) -> tuple[str, str, int | None]:
    """The status of a job that has not ended for good, with what is known of the cause, and the time."""
    told = owner.ended
    if told is not None:
        how = "it has failed" if told.status == "FAILED" else "it was suspended"
        return told.status, how + (f": {told.cause}" if told.cause else ""), told.time_ms
    how = f"its driver has died ({driver})"
    if owner.released:
        how = "it was suspended, or has failed: its driver's output says which"
    return "SUSPENDED", how, _modified_ms(directory, Owner)
