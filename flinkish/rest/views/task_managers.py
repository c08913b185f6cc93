"""The task managers: Spark's executors, as far as tasks report them, and the driver if tasks run in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flinkish.jobmanager.job.description import JobManagerDescription
from flinkish.rest.route import Asked, NotFoundError
from flinkish.rest.views.shapes import ENDED, UNASSIGNED, Json, host_of, task_manager_of


@dataclass
class TaskManager:
    """A process with tasks of running jobs."""

    id: str
    host: str
    #: (job id, number of the subtask) -> its tasks: a slot holds a subtask of each vertex, as in Flink
    slots: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def assigned_tasks(self) -> int:
        """The number of tasks."""
        return sum(self.slots.values())


def task_managers_of(jobs: JobManagerDescription) -> dict[str, TaskManager]:
    """Id -> task manager, of all that have tasks of running jobs."""
    found: dict[str, TaskManager] = {}
    for job in jobs.jobs:
        if job.status in ENDED:
            continue
        for vertex in job.vertices:
            for subtask in vertex.subtasks:
                name = task_manager_of(job, subtask.current)
                if name == UNASSIGNED:
                    continue
                if name not in found:
                    found[name] = TaskManager(name, host_of(job, subtask.current))
                found[name].slots[job.id, subtask.subtask] += 1
    return found


def task_manager_named(asked: Asked) -> TaskManager:
    """The task manager that the path names; raises `NotFoundError`."""
    name = asked.path["taskmanager"]
    found = task_managers_of(asked.jobs.describe()).get(name)
    if found is None:
        raise NotFoundError(f"No TaskExecutor registered under {name}")
    return found


_AREAS = ("taskHeapMemory", "taskOffHeapMemory", "managedMemory", "networkMemory")
_MEMORY = (
    *("frameworkHeap", "taskHeap", "frameworkOffHeap", "taskOffHeap", "networkMemory", "managedMemory"),
    *("jvmMetaspace", "jvmOverhead", "totalFlinkMemory", "totalProcessMemory"),
)
_FIGURES = (
    *("heapUsed", "heapCommitted", "heapMax", "nonHeapUsed", "nonHeapCommitted", "nonHeapMax"),
    *("directCount", "directUsed", "directMax", "mappedCount", "mappedUsed", "mappedMax"),
    *("nettyShuffleMemorySegmentsAvailable", "nettyShuffleMemorySegmentsUsed", "nettyShuffleMemorySegmentsTotal"),
    *("nettyShuffleMemoryAvailable", "nettyShuffleMemoryUsed", "nettyShuffleMemoryTotal"),
)


def _resource(cores: float = 0.0) -> Json:
    return {"cpuCores": cores, **dict.fromkeys(_AREAS, 0), "extendedResources": {}}


def summary(manager: TaskManager, now_ms: int) -> Json:
    """A task manager in the list of all. Of its memory nothing is known."""
    return {
        "id": manager.id,
        "path": f"flinkish://{manager.host}/{manager.id}",
        "dataPort": 0,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": now_ms,
        "slotsNumber": len(manager.slots),
        "freeSlots": 0,
        "assignedTasks": manager.assigned_tasks,
        "totalResource": _resource(float(len(manager.slots))),
        "freeResource": _resource(),
        "hardware": {"cpuCores": len(manager.slots), "physicalMemory": 0, "freeMemory": 0, "managedMemory": 0},
        "memoryConfiguration": dict.fromkeys(_MEMORY, 0),
    }


def details(manager: TaskManager, now_ms: int) -> Json:
    """All of a task manager."""
    return {
        **summary(manager, now_ms),
        "allocatedSlots": [
            {"jobId": job_id, "resource": _resource(1.0), "assignedTasks": tasks}
            for (job_id, _), tasks in manager.slots.items()
        ],
        "metrics": {**dict.fromkeys(_FIGURES, 0), "garbageCollectors": []},
    }
