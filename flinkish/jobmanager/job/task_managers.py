"""What a job knows of its task managers: Spark's executors, or the process of the driver where tasks run in it.

Rule: None, or an empty text, stands for what is not known. Times are milliseconds since 1970 by the driver's clock:
what an executor says has no time of its own, since its clock may be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: The states of a task manager. One that Spark has ended itself is RELEASED, as by dynamic allocation.
REGISTERED, LOST, RELEASED = "REGISTERED", "LOST", "RELEASED"


def task_manager_id(host: str, executor: str, driver_host: str, driver_pid: int) -> str:
    """The id of a task manager: free text, as in Flink, without a slash. It is the only one over all applications: on a
    host there may be an executor of the same number of each driver.

    >>> task_manager_id("node7", "3", "node7", 42), task_manager_id("node7", "3", "node1", 42)
    ('node7-3-42', 'node7-3-node1-42')
    """
    application = str(driver_pid) if host == driver_host else f"{driver_host}-{driver_pid}"
    return f"{host}-{executor}-{application}".replace("/", "_")


@dataclass(frozen=True)
class GarbageCollector:
    """What a garbage collector of a JVM has done since the JVM has begun."""

    name: str
    count: int
    time_ms: int


@dataclass(frozen=True, kw_only=True)
class MemoryFigures:
    """The memory of a task manager, in bytes."""

    #: the heap of its JVM: in use, got from the system, its limit, and the most that it has held; of an executor what
    #: is in use is as of its last report, and as its garbage collector has counted it last
    heap_used: int | None = None
    heap_committed: int | None = None
    heap_max: int | None = None
    heap_peak: int | None = None
    metaspace_used: int | None = None
    metaspace_committed: int | None = None
    #: the most that the JVM has held outside of its heap (metaspace, code), and in buffers
    non_heap_peak: int | None = None
    direct_peak: int | None = None
    mapped_peak: int | None = None
    #: the resident set of the JVM
    jvm_rss: int | None = None
    #: of the machine or container
    physical: int | None = None


@dataclass(frozen=True)
class WorkerDescription:
    """A Python process of a task manager that runs subtasks."""

    pid: int
    #: when a subtask that ran in it was reported last
    reported_ms: int
    #: its resident set then
    rss_bytes: int | None = None
    #: names of the subtasks that have run in it last, and for which nothing newer is known; the number is bounded
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeldTask:
    """A subtask that a task manager has run before it ran on another one."""

    task: str
    #: the last epoch in which it ran there
    last_epoch: int


@dataclass(frozen=True, kw_only=True)
class TaskManagerDescription:
    """A task manager."""

    id: str
    #: Spark's id of the executor; ``driver``: tasks run in the driver, or below it
    executor: str
    host: str
    #: whether its tasks run in the process of the driver, or below it
    in_driver: bool = False
    #: where its block manager is reached, if Spark says it
    address: str = ""
    #: REGISTERED, LOST, RELEASED
    status: str = REGISTERED
    #: since when it is registered, and when it was lost or released
    registered_ms: int
    ended_ms: int | None = None
    #: why it was lost or released, in Spark's words and ours
    reason: str = ""
    #: when it was heard of last
    heartbeat_ms: int
    cores: int | None = None
    #: how many tasks it can run at a time, and how many it runs
    slots: int | None = None
    running_tasks: int | None = None
    memory: MemoryFigures = MemoryFigures()
    #: of its JVM
    garbage_collectors: tuple[GarbageCollector, ...] = ()
    workers: tuple[WorkerDescription, ...] = ()
    #: how many subtasks it holds: those that have run on it last
    holds: int = 0
    #: those that it held and holds no longer, the newest last; the number that is kept is bounded
    held: tuple[HeldTask, ...] = ()

    @property
    def free_slots(self) -> int | None:
        """How many more tasks it can run now; None: it is not known."""
        if self.slots is None or self.running_tasks is None:
            return None
        return max(self.slots - self.running_tasks, 0) if self.status == REGISTERED else 0


@dataclass(frozen=True)
class TaskManagerEvent:
    """A task manager has come or gone."""

    manager: TaskManagerDescription
    time_ms: int
    before: str
    cause: str = ""


class ReachableTaskManager(Protocol):
    """A task manager that can be asked for more than it reports. All methods take their time, and raise OperationError
    with a sentence if it does not answer, and FinalOperationError if it never will."""

    def threads(self) -> list[tuple[str, str]]:
        """The threads of its JVM: name, and state and stack as text."""

    def files(self) -> list[tuple[str, int, int]]:
        """The files into which it prints: name, size in bytes, time of the last change in ms since 1970."""

    def tail(self, name: str) -> str:
        """The end of such a file, at most 1 MiB."""
