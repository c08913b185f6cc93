"""Where tasks run: the grouping values for which Spark's own hash partitioner puts each subtask where Flink would, and
the executor of a running task.

Spark sends a group to partition ``murmur3(value, 42) mod P``. With the number of the subtask as the grouping value, 4
subtasks were spread over 2 partitions as 1 and 3. So each subtask gets a value that was searched for: one that lands on
the partition ``subtask mod P``.

Rows that only pass through a level (to a later level, to a sink, reports) go through *transit* groups, one per
partition.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flinkish.runtime.job.deployment import REPORT_VERTEX, JobDescriptor
from flinkish.runtime.job.report import TaskPlace
from flinkish.runtime.process import executor_of


def murmur3(values: NDArray[np.uint32], seed: int = 42) -> NDArray[np.int32]:
    """Spark's ``hash(int)`` of each number: Murmur3_x86_32, as a signed number of 32 bits.

    >>> murmur3(np.array([1], np.uint32))
    array([-559580957], dtype=int32)
    """
    k = _rotated(values * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    h = _rotated(k ^ np.uint32(seed), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)
    h = (h ^ h >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    h = (h ^ h >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    hashes: NDArray[np.int32] = (h ^ h >> np.uint32(16)).view(np.int32)
    return hashes


def _rotated(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    rotated: NDArray[np.uint32] = values << np.uint32(bits) | values >> np.uint32(32 - bits)
    return rotated


def partition_of(values: NDArray[np.uint32], partitions: int) -> NDArray[np.int32]:
    """The shuffle partition that Spark gives to each grouping value."""
    found: NDArray[np.int32] = murmur3(values) % np.int32(partitions)
    return found


def numbers_on(wanted: Sequence[int], partitions: int) -> list[int]:
    """Rising numbers from 1 on, each the smallest one that lies on the wanted partition. As these are looked for one
    after the other, about as many numbers are hashed as there are wanted partitions times partitions: many at a time,
    since one by one takes hundred times as long, and none of them is kept, since each process does this.

    >>> numbers_on([0, 1, 2, 0], 5)
    [22, 29, 31, 32]
    """
    found: list[int] = []
    last, begin, window = 0, 1, np.zeros(0, np.int32)
    for partition in wanted:
        while True:
            matches = np.flatnonzero(window[last + 1 - begin : last + 1 - begin + 2 * partitions] == partition)
            if matches.size:
                last += 1 + int(matches[0])
                break
            # none of the numbers that were looked at is wanted; a next window begins behind them
            last = min(last + 2 * partitions, begin + window.size - 1)
            if last + 1 - begin >= window.size:
                begin = last + 1
                window = partition_of(np.arange(begin, begin + 64 * partitions, dtype=np.uint32), partitions)
        found.append(last)
    return found


def partitions_of(job: JobDescriptor) -> int:
    """The number of shuffle partitions of a job: the greatest parallelism of its vertices behind a shuffle, or what
    ``flinkish.spark.partitions`` says if that is less."""
    widest = max((vertex.parallelism for vertex in job.vertices if vertex.level > 0), default=1)
    return min(widest, job.settings.spark_partitions or widest)


class AddressBook:
    """The grouping values of all subtasks of a job, level by level. They are the same in every process and run."""

    def __init__(self, job: JobDescriptor, partitions: int) -> None:
        self._job = job
        self._partitions = partitions
        self._addresses: dict[tuple[int, int], int] = {}
        self._targets: list[dict[int, tuple[int, int]]] = [{} for _ in range(job.levels + 1)]
        self._transit: list[list[int]] = [[] for _ in range(job.levels + 1)]
        self._tasks: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for level in range(1, job.levels + 1):
            self._allocate(level)

    def _allocate(self, level: int) -> None:
        subtasks = [
            (vertex.id, subtask)
            for vertex in self._job.vertices
            if vertex.level == level
            for subtask in range(vertex.parallelism)
        ]
        wanted = [subtask % self._partitions for _, subtask in subtasks]
        found = numbers_on([*wanted, *range(self._partitions)], self._partitions)
        for (vertex_id, subtask), address, partition in zip(subtasks, found, wanted):
            self._addresses[vertex_id, subtask] = address
            self._targets[level][address] = (vertex_id, subtask)
            self._tasks.setdefault((level, partition), set()).add((vertex_id, subtask))
        self._transit[level] = found[len(subtasks) :]

    def target(self, level: int, address: int) -> tuple[int, int] | None:
        """The (vertex, subtask) that a grouping value stands for; None for a transit group."""
        return self._targets[level].get(address)

    def tasks(self, level: int, partition: int) -> set[tuple[int, int]]:
        """The (vertex, subtask) pairs that run in a partition of a level."""
        return self._tasks.get((level, partition), set())

    def standby_tasks(self, level: int, partition: int, replicas: int) -> set[tuple[int, int]]:
        """The (vertex, subtask) pairs whose files of state are copied ahead to the executor that runs a partition of a
        level. Python cannot choose the executor, so the copies belong to partitions with distant numbers: neighbours
        often run on one executor."""
        distance = [place * self._partitions // (replicas + 1) for place in range(1, replicas + 1)]
        others = {(partition + far) % self._partitions for far in distance} - {partition}
        return set[tuple[int, int]]().union(*(self.tasks(level, other) for other in others))

    def address(self, level: int, vertex: int, subtask: int) -> int:
        """The grouping value at a level of a row for (vertex, subtask); 0 behind the last level, where nothing groups
        rows."""
        if level > self._job.levels:
            return 0
        if vertex >= 0 and self._job.vertex(vertex).level == level:
            return self._addresses[vertex, subtask]
        # rows in transit already go to the partition where they will be needed
        return self._transit[level][0 if vertex == REPORT_VERTEX else subtask % self._partitions]


#: Spark's id of the executor inside of the driver.
DRIVER = "driver"


def task_context() -> Any:
    """Spark's context of the running task; None outside of tasks."""
    # a task has imported PySpark; a program in the minicluster need not have it
    pyspark = sys.modules.get("pyspark")
    return None if pyspark is None else pyspark.TaskContext.get()


def current_place() -> TaskPlace | None:
    """The place of the running Spark task; None outside of tasks."""
    context = task_context()
    if context is None:
        return None
    return _place(
        os.getpid(), context.taskAttemptId(), context.stageId(), context.partitionId(), context.attemptNumber()
    )


# (pid, Spark task) -> its place, kept for the last one alone: a task asks for its place once per channel
_last: dict[tuple[int, int], TaskPlace] = {}


def _place(pid: int, task: int, stage: int, partition: int, attempt: int) -> TaskPlace:
    found = _last.get((pid, task))
    if found is None:
        _last.clear()
        found = _last[pid, task] = TaskPlace(
            host=socket.gethostname(),
            executor=executor_id(pid),
            stage=stage,
            partition=partition,
            attempt=attempt,
            task=task,
            pid=pid,
        )
    return found


@cache
def executor_id(pid: int) -> str:
    """Spark's id of the executor that a worker process belongs to; "driver" if none is found.

    Spark does not tell a Python worker which executor it belongs to. On Kubernetes the environment says so; elsewhere
    the executor is the JVM among the ancestors of the worker process that was started with ``--executor-id``. If there
    is none, the driver is the executor.
    """
    told = os.environ.get("SPARK_EXECUTOR_ID")
    if told:
        return told
    found = executor_of(pid)
    return DRIVER if found is None else found.id or DRIVER
