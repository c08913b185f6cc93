"""The task managers: Spark's executors, and the driver if tasks run in it, with what is known of each.

Rule: a figure of Flink's that is not known is 0; our own page and the descriptions of jobs leave it out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flinkish.common.memory import MemoryConfiguration
from flinkish.jobmanager.job.description import JobManagerDescription
from flinkish.jobmanager.job.task_managers import REGISTERED, MemoryFigures, TaskManagerDescription
from flinkish.rest.route import Asked, NotFoundError
from flinkish.rest.views.shapes import DRIVER, ENDED, UNASSIGNED, Json, host_of, task_manager_of


@dataclass
class TaskManager:
    """A process with tasks of running jobs, or with slots for them."""

    id: str
    host: str
    #: Spark's id of it
    executor: str
    #: what is known of it; None: nothing but its tasks
    described: TaskManagerDescription | None = None
    #: what it has of each area of memory, as it is configured
    areas: MemoryConfiguration = MemoryConfiguration()
    #: (job id, number of the subtask) -> its tasks: a slot holds a subtask of each vertex, as in Flink
    held: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: when its tasks were heard of last; 0: they were not yet
    told_ms: int = 0

    @property
    def assigned_tasks(self) -> int:
        """The number of tasks."""
        return sum(self.held.values())

    @property
    def slots(self) -> int:
        """How many tasks it can run at a time; as many as it holds, if that is not known."""
        known = None if self.described is None else self.described.slots
        return len(self.held) if known is None else known

    @property
    def free_slots(self) -> int:
        """How many of them hold nothing."""
        return max(self.slots - len(self.held), 0)

    @property
    def cores(self) -> int:
        """Its cores."""
        return (0 if self.described is None else self.described.cores) or 0

    @property
    def memory(self) -> MemoryFigures:
        """What is known of its memory."""
        return MemoryFigures() if self.described is None else self.described.memory

    @property
    def in_driver(self) -> bool:
        """Whether it is the process of the driver."""
        return self.executor == DRIVER if self.described is None else self.described.in_driver

    @property
    def heartbeat_ms(self) -> int:
        """When it was heard of last."""
        return self.told_ms if self.described is None else self.described.heartbeat_ms


def task_managers_of(jobs: JobManagerDescription) -> dict[str, TaskManager]:
    """Id -> task manager, of all that running jobs have, and of those that only their tasks tell of."""
    found: dict[str, TaskManager] = {}
    for job in jobs.jobs:
        if job.status in ENDED:
            continue
        there = {one.id: one for one in job.task_managers if one.status == REGISTERED}
        for name, one in there.items():
            known = found.setdefault(name, TaskManager(name, one.host, one.executor))
            if known.described is None or known.described.heartbeat_ms < one.heartbeat_ms:
                known.described = one
                known.areas = job.memory or known.areas
        for vertex in job.vertices:
            for subtask in vertex.subtasks:
                name = task_manager_of(job, subtask.current)
                if name == UNASSIGNED or (job.task_managers and name not in there):
                    # one that has gone holds nothing
                    continue
                if name not in found:
                    found[name] = TaskManager(name, host_of(job, subtask.current), subtask.current.executor or DRIVER)
                found[name].held[job.id, subtask.subtask] += 1
                found[name].told_ms = max(found[name].told_ms, subtask.current.told_ms or 0)
    return found


def task_manager_named(asked: Asked) -> TaskManager:
    """The task manager that the path names; raises `NotFoundError`."""
    name = asked.path["taskmanager"]
    found = task_managers_of(asked.jobs.describe()).get(name)
    if found is None:
        raise NotFoundError(f"No TaskExecutor registered under {name}")
    return found


#: Flink's name of an area of a slot -> that of `MemoryConfiguration`.
_AREAS = {
    "taskHeapMemory": "task_heap",
    "taskOffHeapMemory": "task_off_heap",
    "managedMemory": "managed",
    "networkMemory": "network",
}
#: Flink's name of an area -> that of `MemoryConfiguration`.
_MEMORY = {
    "frameworkHeap": "framework_heap",
    "taskHeap": "task_heap",
    "frameworkOffHeap": "framework_off_heap",
    "taskOffHeap": "task_off_heap",
    "networkMemory": "network",
    "managedMemory": "managed",
    "jvmMetaspace": "jvm_metaspace",
    "jvmOverhead": "jvm_overhead",
    "totalFlinkMemory": "flink",
    "totalProcessMemory": "process",
}
_FIGURES = (
    *("heapUsed", "heapCommitted", "heapMax", "nonHeapUsed", "nonHeapCommitted", "nonHeapMax"),
    *("directCount", "directUsed", "directMax", "mappedCount", "mappedUsed", "mappedMax"),
    *("nettyShuffleMemorySegmentsAvailable", "nettyShuffleMemorySegmentsUsed", "nettyShuffleMemorySegmentsTotal"),
    *("nettyShuffleMemoryAvailable", "nettyShuffleMemoryUsed", "nettyShuffleMemoryTotal"),
)


def _resource(manager: TaskManager, slots: int) -> Json:
    """What so many slots of a task manager have, the memory in MiB."""
    part = slots / max(manager.slots, 1)
    sizes = {name: int((getattr(manager.areas, of) or 0) * part) >> 20 for name, of in _AREAS.items()}
    return {"cpuCores": float(slots), **sizes, "extendedResources": {}}


def summary(manager: TaskManager) -> Json:
    """A task manager in the list of all."""
    memory = manager.memory
    return {
        "id": manager.id,
        "path": f"flinkish://{manager.host}/{manager.id}",
        "dataPort": 0,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": manager.heartbeat_ms,
        "slotsNumber": manager.slots,
        "freeSlots": manager.free_slots,
        "assignedTasks": manager.assigned_tasks,
        "totalResource": _resource(manager, manager.slots),
        "freeResource": _resource(manager, manager.free_slots),
        "hardware": {
            "cpuCores": manager.cores,
            "physicalMemory": memory.physical or 0,
            # Flink's name for the limit of the heap
            "freeMemory": memory.heap_max or 0,
            "managedMemory": manager.areas.managed or 0,
        },
        "memoryConfiguration": {name: getattr(manager.areas, of) or 0 for name, of in _MEMORY.items()},
    }


def details(manager: TaskManager) -> Json:
    """All of a task manager."""
    memory = manager.memory
    collectors = () if manager.described is None else manager.described.garbage_collectors
    return {
        **summary(manager),
        "allocatedSlots": [
            {"jobId": job_id, "resource": _resource(manager, 1), "assignedTasks": tasks}
            for (job_id, _), tasks in manager.held.items()
        ],
        "metrics": {
            **dict.fromkeys(_FIGURES, 0),
            "heapUsed": memory.heap_used or 0,
            "heapCommitted": memory.heap_committed or 0,
            "heapMax": memory.heap_max or 0,
            "garbageCollectors": [{"name": one.name, "count": one.count, "time": one.time_ms} for one in collectors],
        },
    }


#: Flink's name of a metric, or one of ours -> the figure of the memory.
_OF_MEMORY = {
    "Status.JVM.Memory.Heap.Used": "heap_used",
    "Status.JVM.Memory.Heap.Committed": "heap_committed",
    "Status.JVM.Memory.Heap.Max": "heap_max",
    "Status.JVM.Memory.Metaspace.Used": "metaspace_used",
    "Status.JVM.Memory.Metaspace.Committed": "metaspace_committed",
    "Status.JVM.Memory.Heap.Peak": "heap_peak",
    "Status.JVM.Memory.NonHeap.Peak": "non_heap_peak",
    "Status.JVM.Memory.Direct.Peak": "direct_peak",
    "Status.JVM.Memory.Mapped.Peak": "mapped_peak",
    "Status.JVM.Memory.Resident": "jvm_rss",
}


def metrics_of(manager: TaskManager) -> Json:
    """Name -> value of the metrics of a task manager; those that are not known are left out."""
    known = ((name, getattr(manager.memory, figure)) for name, figure in _OF_MEMORY.items())
    found: Json = {
        "numTasks": manager.assigned_tasks,
        "numSlots": manager.slots,
        "numSlotsAvailable": manager.free_slots,
        **{name: value for name, value in known if value is not None},
    }
    if manager.areas.managed is not None:
        found["Status.Flink.Memory.Managed.Total"] = manager.areas.managed
    if manager.described is not None:
        for one in manager.described.garbage_collectors:
            found[f"Status.JVM.GarbageCollector.{one.name}.Count"] = one.count
            found[f"Status.JVM.GarbageCollector.{one.name}.Time"] = one.time_ms
        workers = [one.rss_bytes for one in manager.described.workers if one.rss_bytes is not None]
        if workers:
            found["Status.Python.Workers.Count"] = len(workers)
            found["Status.Python.Workers.Resident"] = sum(workers)
    return found
