"""The views of task managers: what is known of each, and what one answers that is asked for more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flinkish.errors import FinalOperationError, OperationError
from flinkish.jobmanager.job.description import JobDescription
from flinkish.jobmanager.job.task_managers import (
    LOST,
    GarbageCollector,
    MemoryFigures,
    ReachableTaskManager,
    TaskManagerDescription,
    WorkerDescription,
)
from flinkish.rest.route import NotFoundError
from flinkish.rest.views import ROUTES
from tests.support.described_jobs import NOW_MS, AnsweringTaskManager, ask, wide_job
from tests.support.rest_jobs import KNOWN, FakeJobs, api_of

GIB = 1 << 30


def manager(executor: str, **more: Any) -> TaskManagerDescription:
    given = {"id": f"node-{executor}", "executor": executor, "host": "node", "registered_ms": 1, "heartbeat_ms": 77}
    return TaskManagerDescription(**{**given, **more})


FULL = manager(
    "0",
    cores=8,
    slots=4,
    running_tasks=2,
    memory=MemoryFigures(heap_used=GIB, heap_max=4 * GIB, heap_peak=2 * GIB, jvm_rss=5 * GIB, physical=16 * GIB),
    garbage_collectors=(GarbageCollector("young", 3, 40),),
    workers=(WorkerDescription(7, 5, GIB), WorkerDescription(8, 5, 2 * GIB), WorkerDescription(9, 5)),
)


@pytest.fixture
def job() -> JobDescription:
    """A job whose subtasks are on the executors 0 to 3, of which the last one was lost, and one nobody knows."""
    wide = wide_job(8, vertices=2)
    return replace(wide, task_managers=(FULL, manager("1"), manager("2", slots=1), manager("3", status=LOST, slots=4)))


def test_those_that_are_there_are_listed_with_their_slots_cores_and_memory(job: JobDescription) -> None:
    found = {one["id"]: one for one in ask((job,), "/taskmanagers")["taskmanagers"]}
    assert list(found) == ["node-0", "node-1", "node-2"]
    first = found["node-0"]
    # two vertices of four subtasks: one subtask of each is on each executor, in one slot
    assert (first["slotsNumber"], first["freeSlots"], first["assignedTasks"]) == (4, 3, 2)
    assert first["hardware"] == {
        "cpuCores": 8,
        "physicalMemory": 16 * GIB,
        "freeMemory": 4 * GIB,
        "managedMemory": 0,
    }
    assert first["timeSinceLastHeartbeat"] == 77
    # of the second nothing is known but what it holds
    assert (found["node-1"]["slotsNumber"], found["node-1"]["freeSlots"]) == (1, 0)


def test_the_cluster_has_the_slots_of_those_that_are_there(job: JobDescription) -> None:
    found = ask((job,), "/overview")
    assert (found["taskmanagers"], found["slots-total"], found["slots-available"]) == (3, 6, 3)


def test_details_have_the_heap_and_the_garbage_collectors(job: JobDescription) -> None:
    metrics = ask((job,), "/taskmanagers/node-0")["metrics"]
    assert (metrics["heapUsed"], metrics["heapMax"]) == (GIB, 4 * GIB)
    assert metrics["garbageCollectors"] == [{"name": "young", "count": 3, "time": 40}]
    assert len(ask((job,), "/taskmanagers/node-0")["allocatedSlots"]) == 1


def test_metrics_that_are_not_known_are_left_out(job: JobDescription) -> None:
    names = "Status.JVM.Memory.Heap.Used,Status.Python.Workers.Resident,Status.JVM.GarbageCollector.young.Time,numSlots"
    found = {one["id"]: one["value"] for one in ask((job,), "/taskmanagers/node-0/metrics", NOW_MS, get=names)}
    assert found == {
        "Status.JVM.Memory.Heap.Used": str(GIB),
        "Status.Python.Workers.Resident": str(3 * GIB),
        "Status.JVM.GarbageCollector.young.Time": "40",
        "numSlots": "4",
    }
    assert ask((job,), "/taskmanagers/node-1/metrics", NOW_MS, get=names) == [{"id": "numSlots", "value": "1"}]


def test_a_subtask_of_an_executor_that_nobody_knows_has_no_task_manager(job: JobDescription) -> None:
    known = replace(job, task_managers=job.task_managers[:2])
    vertex = known.vertices[0].job_vertex_id
    there = ask((known,), f"/jobs/{known.id}/vertices/{vertex}")["subtasks"]
    assert [one["taskmanager-id"] for one in there] == ["node-0", "node-1", "(unassigned)", "(unassigned)"]


def test_one_that_was_lost_is_not_found(job: JobDescription) -> None:
    with pytest.raises(NotFoundError, match="No TaskExecutor registered under node-3"):
        ask((job,), "/taskmanagers/node-3")


def test_two_jobs_share_a_task_manager(job: JobDescription) -> None:
    other = replace(job, id="ef" * 16)
    (first, *_) = ask((job, other), "/taskmanagers")["taskmanagers"]
    assert (first["slotsNumber"], first["freeSlots"], first["assignedTasks"]) == (4, 2, 4)


# ---------------------------------------------------------------------- what is asked of an executor


class Reached(FakeJobs):
    """Jobs with executors."""

    def __init__(self, job: JobDescription, executor: AnsweringTaskManager | None) -> None:
        super().__init__(job)
        self._executor = executor

    def reach(self, task_manager: str) -> ReachableTaskManager:
        if self._executor is None:
            raise FinalOperationError("Spark Connect reaches no certain executor")
        return self._executor


ANSWERS = {
    "thread-dump": '"threadName":"main"',
    "logs": '"logs":[{"name":"stderr","size":12,"mtime":34}]',
    "log": "the end of stderr",
    "stdout": "the end of stdout",
    "logs/stdout": "the end of stdout",
}


def asked(job: JobDescription, path: str, executor: AnsweringTaskManager | None) -> tuple[int, str]:
    answer = api_of(Reached(job, executor), ROUTES).answer("GET", f"/taskmanagers/node-1/{path}", "", KNOWN, b"")
    return answer.status, answer.body.decode()


@pytest.mark.parametrize("path", ANSWERS)
def test_an_executor_is_asked_for_its_threads_and_for_what_it_prints(job: JobDescription, path: str) -> None:
    status, body = asked(job, path, AnsweringTaskManager())
    assert status == 200
    assert ANSWERS[path] in body


@pytest.mark.parametrize("path", ANSWERS)
@pytest.mark.parametrize(
    ("executor", "status", "says"),
    [
        (
            AnsweringTaskManager(OperationError("all its slots are busy", hint="ask again")),
            503,
            "all its slots are busy",
        ),
        (AnsweringTaskManager(FinalOperationError("it has no such file")), 404, "it has no such file"),
        (None, 501, "Spark Connect reaches no certain executor"),
    ],
)
def test_one_that_does_not_answer_is_told_of_in_a_sentence(
    job: JobDescription, path: str, executor: AnsweringTaskManager | None, status: int, says: str
) -> None:
    code, body = asked(job, path, executor)
    assert code == status
    assert says in body


def test_the_driver_is_not_asked_by_spark(job: JobDescription) -> None:
    here = replace(job, task_managers=(manager("1", in_driver=True),))
    status, body = asked(here, "thread-dump", AnsweringTaskManager(AssertionError("nobody is asked")))
    assert status == 200
    assert "MainThread" in body
