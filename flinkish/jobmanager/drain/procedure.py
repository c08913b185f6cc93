"""The steps of a drain, which begins after the last ordinary epoch and ends with the final savepoint.

    stop -> last ordinary epoch E committed, query ended
         -> the savepoint's directory is checked: the job goes on if nothing can be written there
         -> drain.json                   from here on the job can only be drained
         -> drain-state/, the job's query is spark-drain      (`drain.attempt`)
         -> epoch E + 1: every source ends, windows and timers fire, sinks commit
         -> savepoint of E + 1, with the positions of E
         -> ended.json

When a driver dies, the next one goes on with the drain at the step that was reached.
"""

from __future__ import annotations

from flinkish.errors import SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.waiting_epoch import DrainMarker
from flinkish.jobmanager.attempt.query_attempt import QueryAttempt
from flinkish.runtime.phases import Phase, passed


def begin_drain(attempt: QueryAttempt, directory: JobDirectory, savepoint_directory: str | None) -> DrainMarker:
    """Write the marker of the drain of a job that has stopped; returns the marker.

    Raises:
        SavepointError: there is no committed epoch at whose end state and sinks agree.
    """
    epoch = attempt.committed_epoch()
    if epoch is None:
        raise SavepointError(
            "the job cannot be drained: no epoch has been committed yet",
            where=f"job '{attempt.job.name}'",
            hint="try again after its first epoch",
        )
    marker = DrainMarker(epoch, attempt.positions(epoch), savepoint_directory, attempt.job.levels)
    marker.write(directory)
    passed(Phase.DRAIN_BEGUN, epoch=epoch)
    return marker
