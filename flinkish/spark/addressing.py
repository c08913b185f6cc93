"""Grouping values for which Spark's own hash partitioner puts each subtask where Flink would.

Spark sends a group to partition ``murmur3(value, 42) mod P``. With the plain number, 4 subtasks over 2
partitions landed 1 and 3; so a value is searched for each subtask that lands on the partition of its number.

Rows that only pass through a level (to a later level, to a sink, reports) go through *transit* groups, one per
partition.
"""

from __future__ import annotations

from flinkish.runtime.deployment import REPORT_VERTEX, JobDescriptor

_MASK = 0xFFFFFFFF


def murmur3_int(value: int, seed: int = 42) -> int:
    """Spark's ``hash(int)``: Murmur3_x86_32 of one int, as a signed 32-bit number.

    >>> murmur3_int(1)
    -559580957
    """
    k = value * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    k = k * 0x1B873593 & _MASK
    h = (seed ^ k) & _MASK
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h


def partition_of(value: int, partitions: int) -> int:
    """The shuffle partition that Spark gives to a grouping value."""
    return murmur3_int(value) % partitions


def partitions_of(job: JobDescriptor) -> int:
    """How many shuffle partitions a job needs: one per subtask of its widest vertex behind a shuffle."""
    return max((vertex.parallelism for vertex in job.vertices if vertex.level > 0), default=1)


class AddressBook:
    """The grouping values of all subtasks of a job, level by level. The same in every process and run."""

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
        last = 0
        for vertex in self._job.vertices:
            if vertex.level != level:
                continue
            for subtask in range(vertex.parallelism):
                last = self._next(last, subtask % self._partitions)
                self._addresses[vertex.id, subtask] = last
                self._targets[level][last] = (vertex.id, subtask)
                self._tasks.setdefault((level, subtask % self._partitions), set()).add((vertex.id, subtask))
        for partition in range(self._partitions):
            last = self._next(last, partition)
            self._transit[level].append(last)

    def _next(self, last: int, partition: int) -> int:
        value = last + 1
        while partition_of(value, self._partitions) != partition:
            value += 1
        return value

    def target(self, level: int, address: int) -> tuple[int, int] | None:
        """(vertex, subtask) of a grouping value; None for a transit group."""
        return self._targets[level].get(address)

    def tasks(self, level: int, partition: int) -> set[tuple[int, int]]:
        """The (vertex, subtask) that have their place in a partition of a level."""
        return self._tasks.get((level, partition), set())

    def standby_tasks(self, level: int, partition: int, replicas: int) -> set[tuple[int, int]]:
        """The (vertex, subtask) whose files are copied ahead to where a partition of a level runs. Python cannot choose
        the executor: the partitions are far from each other, since neighbours are often on one executor."""
        distance = [place * self._partitions // (replicas + 1) for place in range(1, replicas + 1)]
        others = {(partition + far) % self._partitions for far in distance} - {partition}
        return set[tuple[int, int]]().union(*(self.tasks(level, other) for other in others))

    def address(self, level: int, vertex: int, subtask: int) -> int:
        """The grouping value, at that level, of a row for (vertex, subtask)."""
        if level > self._job.levels:
            return 0
        if vertex >= 0 and self._job.vertex(vertex).level == level:
            return self._addresses[vertex, subtask]
        # rows in transit already go to the partition where they will be needed
        return self._transit[level][0 if vertex == REPORT_VERTEX else subtask % self._partitions]
