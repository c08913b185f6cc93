"""Reads what a job directory retains of an epoch: the positions at which its sources began and ended, and the state
that it began with.

Rule: nothing is written and the directory is not claimed: the job may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from flinkish.checkpoint.restore import rows_of
from flinkish.errors import FinalOperationError
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobdir.layout import Restored
from flinkish.jobdir.query import QueryLog
from flinkish.jobdir.waiting_epoch import has_moved
from flinkish.minicluster import StateStore
from flinkish.minicluster.stored_epochs import StoredTasks
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import TaskHeader
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, offset_of
from flinkish.runtime.sources.progress import decode_position
from flinkish.storage.stores import file_system_of, storage_error


@dataclass(frozen=True)
class RetainedEpoch:
    """An epoch that was planned, and whose beginning is still known.

    Args:
        epoch: the number of the epoch in the job.
        committed: whether Spark has committed it.
        location: where the query is that the epoch belongs to.
        batch: the number of its micro-batch in that query.
        start, end: the positions of the sources before and after it.
        time_ms: the processing time of its operators; that of its sources is in ``end``.
    """

    epoch: int
    committed: bool
    location: QueryLocation
    batch: int
    start: dict[str, Any]
    end: dict[str, Any]
    time_ms: int


def retained_epoch(directory: JobDirectory, epoch: int) -> RetainedEpoch:
    """What is retained of an epoch of the job's current query.

    Raises:
        FinalOperationError: the epoch is not retained; the message says which epochs are.
    """
    location = directory.query_location()
    log = QueryLog(location.path)
    planned, committed = set(log.planned()), log.committed()
    # the first batch begins with nothing or a savepoint, every other one where the batch before it ended
    possible = [batch for batch in sorted(planned) if batch == 0 or batch - 1 in planned]
    batch = epoch - location.first_epoch
    if batch not in possible or has_moved(directory):
        raise _not_retained(directory, epoch, [] if has_moved(directory) else possible, location, committed)

    def position(number: int) -> dict[str, Any]:
        return offset_of(log.positions(number)[0], f"epoch {number + location.first_epoch} in {location.path}")

    start = position(batch - 1) if batch else NOTHING_READ
    return RetainedEpoch(epoch, batch in committed, location, batch, start, position(batch), log.time_ms(batch))


def _not_retained(
    directory: JobDirectory, epoch: int, possible: list[int], location: QueryLocation, committed: list[int]
) -> FinalOperationError:
    epochs = [batch + location.first_epoch for batch in possible]
    failed = [batch + location.first_epoch for batch in possible if batch not in committed]
    expected = f"one of the epochs {', '.join(map(str, epochs))}" if epochs else "a job whose query retains epochs"
    if failed:
        expected += f" (not committed: {', '.join(map(str, failed))})"
    return FinalOperationError(
        f"epoch {epoch} cannot be replayed: what it began with is not retained",
        where=directory.path,
        expected=expected,
        hint="Spark keeps the state of the last epochs only; that of a drain cannot be replayed",
    )


def state_before(spark: Any, job: JobDescriptor, retained: RetainedEpoch) -> StoredTasks:
    """The stored tasks that the epoch began with. ``spark`` is not used for the first epoch of the query."""
    from flinkish.spark.failures import translate
    from flinkish.spark.state import stored_tasks

    found: StoredTasks = {}
    for operator in range(job.levels) if retained.batch else ():
        try:
            rows = stored_tasks(spark, retained.location.path, retained.batch - 1, operator).collect()
        except Exception as error:
            raise translate(error, f"state of epoch {retained.epoch - 1}, {retained.location.path}") from error
        for data, body in rows:
            header = TaskHeader.decode(bytes(data), f"state of epoch {retained.epoch - 1}", job.classes)
            found[header.vertex, header.subtask] = bytes(data), None if body is None else bytes(body)
    return found


def put_restored(directory: JobDirectory, restored: Restored, sources: Collection[str], store: StateStore) -> None:
    """Put the savepoint or checkpoint that the query began with into the store of its first epoch.

    Args:
        directory: the job directory.
        restored: what the directory remembers of the restore (`read_restored`).
        sources: uids of the program's sources.
        store: the store that takes the rows and the positions.

    Raises:
        FlinkishError: the rows cannot be read.
    """
    from pyarrow import ArrowException, dataset

    filesystem, root = file_system_of(rows_of(directory, restored))
    try:
        rows = dataset.dataset(root, filesystem=filesystem, format="parquet").to_table(["vertex", "subtask", "buffer"])
    except ArrowException as error:
        raise Restored.damaged(root, error) from error
    except OSError as error:
        raise storage_error(error, "read", root) from error
    columns = (rows.column(name).to_pylist() for name in rows.column_names)
    # rows without a vertex describe the savepoint and are not meant for a task
    store.restored = [(vertex, subtask, data) for vertex, subtask, data in zip(*columns) if vertex >= 0]
    store.positions = {
        uid: decode_position(text, uid, store.segments) for uid, text in restored.sources.items() if uid in sources
    }
