"""The registry of task managers: who comes, goes, and holds what, and what is left out because it is not known."""

from __future__ import annotations

import socket
import subprocess
from typing import Any

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.errors import FinalOperationError, RetryableError
from flinkish.jobmanager.client import JobManager
from flinkish.jobmanager.job.task_managers import LOST, REGISTERED, RELEASED, TaskManagerDescription, TaskManagerEvent
from flinkish.jobmanager.task_managers import MAX_GONE, MAX_HELD, TaskManagers
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import TaskPlace, TaskReport
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.task.progress import EpochProgress, TaskProgress
from flinkish.spark.executor_status import ExecutorStatus, ReportedExecutors, meaning_of, was_released
from tests.support.job_descriptors import job_of_levels
from tests.support.processes import wait_until
from tests.support.programs import new_environment

MINUTE_MS = 60_000
JOB = job_of_levels({0: ()})


class Store:
    """Spark's status store, as a test fills it."""

    def __init__(self) -> None:
        self.executors: dict[str, ExecutorStatus] = {}
        self.away = False

    def add(self, name: str, **more: Any) -> None:
        given = {"executor": name, "host": f"host-{name}", "added_ms": 1_000, "heard_ms": 2_000, "slots": 2, **more}
        self.executors[name] = ExecutorStatus(**given)

    def lose(self, name: str, reason: str, at_ms: int = 5_000) -> None:
        self.add(name, active=False, removed_ms=at_ms, reason=reason)

    def look(self, now_ms: int) -> list[ExecutorStatus]:
        if self.away:
            raise ConnectionError("the JVM has gone")
        return list(self.executors.values())

    def reach(self, executor: str, host: str) -> None:
        return None


class Watched:
    """A registry with what it has told of."""

    def __init__(self, job: JobDescriptor, store: Store | None = None) -> None:
        self.clock, self.events = ManualClock(1_000_000), list[TaskManagerEvent]()
        self.registry = TaskManagers(job, self.events.append, store, clock=self.clock)

    def told(self) -> list[tuple[str, str, str]]:
        """(executor, status before, status) of the events since the last call."""
        found = [(one.manager.executor, one.before, one.manager.status) for one in self.events]
        self.events.clear()
        return found

    def look(self) -> list[tuple[str, str, str]]:
        self.registry.look()
        return self.told()

    def report(self, epoch: int, *tasks: TaskReport) -> None:
        self.registry.epoch_done(EpochReport(epoch, 0, 0, 0, None, False, tasks=tasks))

    def __getitem__(self, executor: str) -> TaskManagerDescription:
        (found,) = [one for one in self.registry.describe() if one.executor == executor]
        return found


@pytest.fixture
def job() -> JobDescriptor:
    return JOB


@pytest.fixture
def store() -> Store:
    found = Store()
    found.add("0")
    found.add("1")
    return found


@pytest.fixture
def watched(job: JobDescriptor, store: Store) -> Watched:
    return Watched(job, store)


def task(subtask: int, executor: str, pid: int = 7, host: str = "host", **figures: int) -> TaskReport:
    return TaskReport(0, subtask, place=TaskPlace(host, executor, 1, subtask, 0, 1, pid), process=figures)


# ---------------------------------------------------------------------- what comes and goes


def test_those_that_are_there_are_registered_once(watched: Watched) -> None:
    assert watched.look() == [("0", "", REGISTERED), ("1", "", REGISTERED)]
    assert watched.look() == []


def test_those_that_had_gone_before_the_job_has_begun_are_not_told_of(job: JobDescriptor, store: Store) -> None:
    store.lose("1", "Command exited with code 1")
    assert Watched(job, store).look() == [("0", "", REGISTERED)]


@pytest.mark.parametrize(
    ("reason", "status", "says"),
    [
        ("Command exited with code 137", LOST, "code 137: it was killed by SIGKILL"),
        ("Container killed by YARN for exceeding physical memory limits. 2.1 GB of 2 GB", LOST, "memoryOverhead"),
        ("The executor with id 4 exited with exit code 52", LOST, "or spark.executor.memory"),
        ("Executor heartbeat timed out after 124521 ms", LOST, "its heartbeats did not come"),
        ("Executor decommission: Executor 1 is decommissioned.", LOST, "Executor 1 is decommissioned"),
        ("Executor killed by driver.", RELEASED, "killed by driver"),
        ("", LOST, "Spark gives no reason"),
    ],
)
def test_one_that_has_gone_is_told_of_with_the_reason(
    watched: Watched, store: Store, reason: str, status: str, says: str
) -> None:
    watched.look()
    watched.told()
    store.lose("1", reason)
    watched.registry.look()
    (event,) = watched.events
    assert (event.before, event.manager.status, event.time_ms) == (REGISTERED, status, 5_000)
    assert says in event.cause
    assert says in watched["1"].reason


def test_one_that_spark_has_forgotten_is_lost_and_nobody_says_why(watched: Watched, store: Store) -> None:
    watched.look()
    del store.executors["1"]
    assert watched.look() == [("1", REGISTERED, LOST)]
    assert "does not say why" in watched["1"].reason
    assert watched.look() == []


def test_one_that_has_come_and_gone_between_two_looks_is_told_of_twice(watched: Watched, store: Store) -> None:
    watched.look()
    store.lose("2", "Command exited with code 1")
    assert watched.look() == [("2", "", REGISTERED), ("2", REGISTERED, LOST)]


def test_while_spark_cannot_be_asked_nobody_has_gone(watched: Watched, store: Store) -> None:
    watched.look()
    store.away = True
    assert watched.look() == []
    assert [one.status for one in watched.registry.describe()] == [REGISTERED, REGISTERED]


def test_of_those_that_have_gone_the_last_ones_are_described(watched: Watched, store: Store) -> None:
    watched.look()
    for number in range(2, 2 + MAX_GONE + 5):
        store.lose(str(number), "Command exited with code 1", at_ms=number)
    watched.look()
    described = [one.executor for one in watched.registry.describe()]
    assert described == ["0", "1", *(str(number) for number in range(7, 2 + MAX_GONE + 5))]


# ---------------------------------------------------------------------- what each of them holds


def test_a_subtask_that_has_moved_is_held_by_the_one_and_was_held_by_the_other(watched: Watched) -> None:
    watched.look()
    watched.report(1, task(0, "0"), task(1, "0"))
    watched.report(2, task(1, "1", pid=8))
    first, second = watched["0"], watched["1"]
    assert (first.holds, second.holds) == (1, 1)
    assert [(one.task, one.last_epoch) for one in first.held] == [(JOB.vertex(0).task_name(1), 1)]
    watched.report(3, task(1, "0"))
    assert watched["0"].held == ()
    assert len(watched["1"].held) == 1


def test_what_was_held_is_bounded(watched: Watched) -> None:
    watched.look()
    many = range(MAX_HELD + 10)
    watched.report(1, *(task(number, "0") for number in many))
    watched.report(2, *(task(number, "1") for number in many))
    assert (len(watched["0"].held), watched["1"].holds) == (MAX_HELD, len(many))


def test_python_processes_are_described_with_their_memory_and_their_subtasks(watched: Watched) -> None:
    watched.look()
    watched.report(1, task(0, "0", pid=7, rss=100, jvm_rss=1_000, jvm=3), task(1, "0", pid=8, rss=200))
    watched.report(2, task(0, "0", pid=7))
    workers = {one.pid: (one.rss_bytes, one.tasks) for one in watched["0"].workers}
    names = [JOB.vertex(0).task_name(subtask) for subtask in (0, 1)]
    assert workers == {7: (100, (names[0],)), 8: (200, (names[1],))}
    assert watched["0"].memory.jvm_rss == 1_000
    assert watched["1"].memory.jvm_rss is None


def processes(watched: Watched) -> dict[int, int | None]:
    """Python process of executor 0 -> its memory."""
    return {one.pid: one.rss_bytes for one in watched["0"].workers}


def progress(*tasks: TaskProgress) -> EpochProgress:
    return EpochProgress(3, 0, 0, 0, None, tasks)


def test_a_python_process_that_says_nothing_for_a_minute_is_not_known_to_be_there(watched: Watched) -> None:
    watched.look()
    watched.report(1, task(0, "0", pid=7, rss=100), task(1, "0", pid=8, rss=200))
    where = TaskPlace("host", "0", 1, 0, 0, 1, 8)
    for second in range(90):
        # one works in a long epoch, and another one tells the same again and again: it stands still
        still = TaskProgress(0, 0, 5, place=TaskPlace("host", "0", 1, 0, 0, 1, 7))
        watched.registry.epoch_running(progress(still, TaskProgress(0, 1, place=where, busy_ms=1_000.0 * second)))
        watched.clock.advance(1_000)
    assert processes(watched) == {8: 200}
    watched.clock.advance(10 * MINUTE_MS)
    assert processes(watched) == {}


@pytest.mark.parametrize("attempt", [True, False])
def test_after_the_death_of_a_process_those_are_there_that_report_again(watched: Watched, attempt: bool) -> None:
    watched.look()
    watched.report(1, task(0, "0", pid=7, rss=100), task(1, "0", pid=8, rss=200))
    failure = RetryableError("a Python worker was lost")
    if attempt:
        watched.registry.attempt_failed(failure, 0)
    else:
        watched.registry.task_failed(failure)
    assert processes(watched) == {}
    watched.report(2, task(0, "0", pid=9, rss=300), task(1, "0", pid=8, rss=200))
    assert processes(watched) == {8: 200, 9: 300}


def test_of_processes_of_this_machine_only_those_that_live_are_there(watched: Watched) -> None:
    watched.look()
    with subprocess.Popen(["sleep", "1000"]) as lives:
        here = socket.gethostname()
        watched.report(1, task(0, "0", pid=lives.pid, host=here, rss=100), task(1, "0", pid=8, rss=200))
        assert processes(watched) == {lives.pid: 100, 8: 200}
        lives.kill()
        wait_until(lambda: processes(watched) == {8: 200}, 30, "the end of the process")


def test_when_an_executor_was_heard_of_is_the_last_that_spark_or_its_tasks_have_heard(
    watched: Watched, store: Store
) -> None:
    watched.look()
    assert watched["0"].heartbeat_ms == 2_000, "by Spark"
    watched.report(1, task(0, "0"))
    assert (watched["0"].heartbeat_ms, watched["1"].heartbeat_ms) == (1_000_000, 2_000)
    watched.clock.advance(MINUTE_MS)
    assert watched["0"].heartbeat_ms == 1_000_000
    store.add("0", heard_ms=1_030_000)
    watched.look()
    assert watched["0"].heartbeat_ms == 1_030_000


# ---------------------------------------------------------------------- what nobody knows


def test_without_proc_no_figure_is_made_up(watched: Watched) -> None:
    # a worker that cannot see its executor says that it is the driver
    watched.look()
    watched.report(1, task(0, "driver"))
    assert [(one.executor, one.holds, one.workers) for one in watched.registry.describe()] == [
        ("0", 0, ()),
        ("1", 0, ()),
    ]


def test_a_clock_that_is_an_hour_off_changes_nothing(watched: Watched) -> None:
    watched.look()
    hour_ms = 60 * MINUTE_MS
    for number, off_ms in enumerate((hour_ms, -hour_ms)):
        place = TaskPlace("host", str(number), 1, 0, 0, 1, 7)
        report = TaskReport(
            0, number, place=place, process={"rss": 1}, processing_time_ms=watched.clock.now_ms() + off_ms
        )
        watched.report(number, report)
    reported = {one.reported_ms for manager in watched.registry.describe() for one in manager.workers}
    assert reported == {watched.clock.now_ms()}


def test_two_executors_of_one_name_have_no_cores_and_no_memory(job: JobDescriptor) -> None:
    watched = Watched(job)
    watched.report(1, task(0, "driver", pid=7, jvm=3, jvm_rss=1_000, cores=2, rss=5))
    watched.registry.look()
    assert (watched["driver"].slots, watched["driver"].memory.jvm_rss) == (2, 1_000)
    watched.report(2, task(1, "driver", pid=8, jvm=4, jvm_rss=2_000, cores=4, rss=6))
    watched.registry.look()
    manager = watched["driver"]
    assert (manager.slots, manager.cores, manager.memory.jvm_rss) == (None, None, None)
    assert {one.pid: one.rss_bytes for one in manager.workers} == {7: 5, 8: 6}


# ---------------------------------------------------------------------- where only tasks tell of executors


def test_an_executor_that_tasks_tell_of_is_registered_and_lost_if_it_alone_is_silent(job: JobDescriptor) -> None:
    watched = Watched(job)
    watched.report(1, task(0, "0"), task(1, "1"))
    assert watched.look() == [("0", "", REGISTERED), ("1", "", REGISTERED)]
    watched.clock.advance(10 * MINUTE_MS)
    assert watched.look() == []
    watched.report(2, task(0, "0"), task(1, "0"))
    assert watched.look() == [("1", REGISTERED, LOST)]
    assert "no task has reported from it for 600 s" in watched["1"].reason
    watched.report(3, task(1, "1"))
    assert watched.look() == [("1", "", REGISTERED)]


@pytest.mark.parametrize(("done", "lost"), [(True, []), (False, [("1", REGISTERED, LOST)])])
def test_in_a_long_epoch_one_whose_tasks_are_done_may_be_silent_and_one_at_work_may_not(
    job: JobDescriptor, done: bool, lost: list[tuple[str, str, str]]
) -> None:
    watched = Watched(job)
    watched.report(1, task(0, "0"), task(1, "1"))
    watched.look()
    for second in range(60):
        works, other = (TaskPlace("host", name, 1, 0, 0, 1, 7) for name in ("0", "1"))
        at_work = TaskProgress(0, 0, place=works, busy_ms=1_000.0 * second)
        watched.registry.epoch_running(progress(at_work, TaskProgress(0, 1, done=done, place=other)))
        watched.clock.advance(1_000)
    assert watched.look() == lost
    heard_ms = watched.clock.now_ms() - watched["1"].heartbeat_ms
    assert heard_ms >= 59_000, "whether or not it may be silent"


def test_an_executor_reports_its_cores_as_its_slots() -> None:
    reports = ReportedExecutors()
    reports.heard(TaskPlace("host", "4", 1, 0, 0, 1, 7), {"cores": 3, "jvm": 5, "physical": 9}, 1_000)
    (found,) = reports.look(2_000)
    assert (found.slots, found.host, dict(found.memory)) == (3, "host", {"physical": 9})


@pytest.mark.parametrize("reason", ["Worker lost", "it left", "Host node-3 lost"])
def test_other_reasons_are_left_as_spark_gives_them(reason: str) -> None:
    assert not was_released(reason)
    assert reason not in meaning_of(reason)


@pytest.fixture
def minicluster_job() -> Any:
    env = new_environment(2)
    source = DataGeneratorSource(lambda index: index, 20, records_per_epoch=10)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").print().uid("out")
    client: Any = env.execute_async("alone")
    client.get_job_execution_result().result(30)
    return client


def test_in_the_minicluster_the_one_task_manager_is_the_driver(minicluster_job: Any) -> None:
    job = JobManager.get().describe_job(minicluster_job.get_job_id())
    (manager,) = job.task_managers
    assert (manager.in_driver, manager.executor, manager.status) == (True, "driver", REGISTERED)
    assert manager.cores
    assert manager.holds == sum(vertex.parallelism for vertex in job.vertices)
    assert [event for event in job.story if event.subject.startswith("task manager")] == []
    with pytest.raises(FinalOperationError, match="cannot be asked"):
        JobManager.get().reach(manager.id)
