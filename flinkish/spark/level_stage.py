"""Runs a level behind the sources: one ``groupBy(address).applyInPandasWithState`` for all vertices of the level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import functions as F

from flinkish.runtime.exchange.buffer import Buffer, decode, place
from flinkish.runtime.job.report import Row
from flinkish.runtime.task.task import EpochStamp
from flinkish.runtime.task.task_manager import StoredTask
from flinkish.spark.moved_state import moved_in
from flinkish.spark.rows import ROW_SCHEMA, STATE_SCHEMA
from flinkish.spark.state_files import delete_state_of_failed_try
from flinkish.spark.task_place import current_place
from flinkish.spark.worker import Deployment, current_epoch, current_partition

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState


def level_rows(frame: Any, deployment: Deployment, level: int) -> Any:
    """Run a level over the rows addressed to it.

    Returns the rows that leave the level, addressed to the next one, as a DataFrame of `ROW_SCHEMA`.
    """
    # a real projection before the grouping: without it a second stateful operator in the query fails with
    # "ColumnarBatchRow cannot be cast to UnsafeRow"
    addressed = frame.withColumn("address", F.expr("address & 2147483647"))
    # the grouping needs an exchange and a sort in any case: this sort also puts the buffers of each task in order
    arrived = addressed.repartition(deployment.partitions, "address").sortWithinPartitions("address", "buffer")
    return arrived.groupBy("address").applyInPandasWithState(
        LevelFunction(deployment, level), ROW_SCHEMA, STATE_SCHEMA, "append", "NoTimeout"
    )


@dataclass(frozen=True)
class LevelFunction:
    """The function of ``applyInPandasWithState``: one call runs one task in one epoch, or passes on rows in transit."""

    deployment: Deployment
    level: int

    def __call__(self, key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        """Run the task, or let rows in transit pass."""
        with self.deployment.failures_marked():
            begins = self.deployment.begin_task()
            if begins:
                self._begin()
            target = self.deployment.book().target(self.level, key[0])
            if target is None:
                for frame in frames:
                    yield self._readdressed(frame)
                return
            rows = self._run(target, frames, state)
            if rows:
                yield self._frame(rows)
            if begins:
                self.deployment.task_manager().update_standby_tasks_aside(current_epoch(self.deployment))

    def _begin(self) -> None:
        """At the beginning of a Spark task, assign the tasks of its partition and its standby tasks to this worker."""
        epoch, manager = current_epoch(self.deployment), self.deployment.task_manager()
        if self.deployment.files is not None:
            # Spark numbers the stateful operators of a plan from its end
            operator = manager.job.levels - self.level
            delete_state_of_failed_try(self.deployment.files, operator, epoch - self.deployment.first_epoch, epoch)
        book, partition = self.deployment.book(), current_partition()
        replicas = manager.job.settings.standby_replicas
        standby = book.standby_tasks(self.level, partition, replicas) if replicas else set()
        manager.place(book.tasks(self.level, partition), standby, epoch)

    def _run(self, target: tuple[int, int], frames: Iterator[pd.DataFrame], state: GroupState) -> list[Row]:
        header, body = state.get if state.exists else (None, None)
        context = TaskContext.get()
        buffers = arriving(frames, 0 if context is None else context.attemptNumber())
        if header is None:
            header, body, buffers = moved_in(buffers)
        stored = StoredTask(header, lambda: body)
        stamp = EpochStamp(current_epoch(self.deployment), state.getCurrentProcessingTimeMs(), current_place())
        manager = self.deployment.task_manager()
        result, rows = manager.run_task(*target, stored, buffers, stamp)
        if result is not None:
            header = result.header.encode(manager.job.classes)
            state.update((header, result.body if result.body_written else body))
        elif not state.exists:
            # the task had finished in the query that its state was moved from
            state.update((header, body))
        return rows

    def _readdressed(self, frame: pd.DataFrame) -> pd.DataFrame:
        book, level = self.deployment.book(), self.level + 1
        frame["address"] = [book.address(level, *place) for place in zip(frame["vertex"], frame["subtask"])]
        columns: pd.DataFrame = frame[["address", "vertex", "subtask", "buffer"]]
        return columns

    def _frame(self, rows: list[Row]) -> pd.DataFrame:
        import pandas as pd

        book = self.deployment.book()
        addresses = [book.address(self.level + 1, vertex, subtask) for vertex, subtask, _ in rows]
        vertices, subtasks, buffers = zip(*rows)
        columns = {"address": addresses, "vertex": vertices, "subtask": subtasks, "buffer": buffers}
        made: pd.DataFrame = pd.DataFrame(columns)
        return made


def arriving(frames: Iterator[pd.DataFrame], attempt: int) -> Iterator[Buffer]:
    """The buffers of a task in their order. The first attempt takes them as they come from Spark, which has sorted
    them, and holds none of them; later attempts sort them here, since the reason of the failure may have been that the
    rows did not come sorted.

    Args:
        attempt: Spark's number of the attempt, from 0: how often the Spark task has failed before.
    """
    buffers = (decode(data) for frame in frames for data in frame["buffer"] if data is not None)
    return iter(sorted(buffers, key=lambda buffer: place(buffer.header))) if attempt else buffers
