"""The parallelism that follows from slots, and what is said of slots and of memory that is about to run out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.common.configuration import Configuration
from flinkish.common.job_id import JobID
from flinkish.common.memory import MemoryConfiguration, areas_of
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobmanager.job.resources import describe_slots, near_limits, unlike_configured
from flinkish.jobmanager.job.settings import job_settings, managed_memory_of_slot
from flinkish.jobmanager.job.task_managers import (
    LOST,
    REGISTERED,
    MemoryFigures,
    TaskManagerDescription,
    WorkerDescription,
)
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.resources import ResourceWatch
from flinkish.jobmanager.task_managers import TaskManagers
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.report import TaskPlace, TaskReport
from flinkish.runtime.phases import ManualClock
from flinkish.spark.executor_status import ExecutorStatus
from tests.support.job_descriptors import job_of_levels

MIB = 1 << 20
AREAS = areas_of(Configuration.from_dict({"taskmanager.memory.process.size": "1728m"}))
assert AREAS is not None
FLINKS = AREAS.configured()
SPARKS = MemoryConfiguration(task_heap=1024 * MIB, process=1408 * MIB, origin="Spark's settings")
NUMBERS = DataGeneratorSource(lambda n: n, 10)


def generator_of(settings: dict[str, str], sources: int = 1, parallelism: int | None = None) -> JobGraphGenerator:
    """The generator of a program of sources, and sums of their records by key."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    streams = [env.from_source(NUMBERS, WatermarkStrategy.no_watermarks(), f"{i}") for i in range(sources)]
    for stream in streams[1:]:
        streams[0] = streams[0].union(stream)
    sums = streams[0].key_by(lambda n: n).reduce(lambda a, b: a + b)
    if parallelism is not None:
        sums.set_parallelism(parallelism)
    sums.print()
    graph = env.get_stream_graph()
    return JobGraphGenerator(graph, job_settings(Configuration.from_dict(settings)))


@pytest.mark.parametrize(
    ("settings", "sources", "slots", "expected"),
    [
        ({}, 1, 5, [5, 5]),
        ({"parallelism.default": "3"}, 1, 5, [3, 3]),
        ({}, 2, 4, [4, 4, 4]),
    ],
)
def test_operators_without_a_parallelism_get_the_slots_of_the_cluster(
    settings: dict[str, str], sources: int, slots: int, expected: list[int]
) -> None:
    generator = generator_of(settings, sources)
    generator.on_slots(slots)
    assert [vertex.parallelism for vertex in generator.generate("id", "job").vertices] == expected


def test_a_parallelism_that_the_program_sets_is_kept() -> None:
    generator = generator_of({}, parallelism=2)
    generator.on_slots(7)
    assert [vertex.parallelism for vertex in generator.generate("id", "job").vertices] == [7, 2, 7]


def test_operators_added_before_the_parallelism_is_set_get_that_of_the_submission() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    numbers = env.from_source(NUMBERS, WatermarkStrategy.no_watermarks(), "numbers")
    env.set_parallelism(3)
    numbers.print()
    graph = env.get_stream_graph()
    assert [graph.parallelism_of(node) for node in graph.nodes] == [3, 3]
    assert not graph.follows_slots


@pytest.mark.parametrize(
    ("settings", "sources", "required"),
    [
        ({"parallelism.default": "4"}, 1, 4),
        # each subtask of a source has a Spark task of its own
        ({"parallelism.default": "4"}, 2, 8),
        ({"parallelism.default": "4", "flinkish.spark.partitions": "2"}, 1, 2),
    ],
)
def test_the_widest_level_says_how_many_slots_are_required(
    settings: dict[str, str], sources: int, required: int
) -> None:
    generator = generator_of(settings, sources)
    assert generator.required_slots == generator.generate("id", "job").required_slots == required


def managers(*slots: int | None, status: str = REGISTERED) -> list[TaskManagerDescription]:
    """Task managers with so many slots each."""
    return [
        TaskManagerDescription(
            id=f"host-{number}",
            executor=str(number),
            host="host",
            status=status,
            registered_ms=0,
            heartbeat_ms=0,
            slots=count,
        )
        for number, count in enumerate(slots)
    ]


@pytest.mark.parametrize(
    ("slots", "waves", "said"),
    [
        ((1, 1), 2, ["2 slots, and the widest level has 4 Spark tasks", "2 waves", "parallelism.default"]),
        ((1,), 4, ["1 slot,", "4 waves", "flinkish.spark.partitions"]),
        ((4,), 1, []),
        ((16, 8), 1, []),
    ],
)
def test_slots_are_described_with_what_follows(slots: tuple[int, ...], waves: int, said: list[str]) -> None:
    found = describe_slots(4, managers(*slots))
    assert (found.required, found.present, found.per_task_manager) == (4, sum(slots), min(slots))
    assert found.waves == waves
    assert bool(found.note) == bool(said)
    assert all(part in found.note for part in said)


def test_a_job_whose_task_managers_are_all_lost_waits_for_slots() -> None:
    found = describe_slots(4, managers(2, 2, status=LOST))
    assert (found.present, found.waves, found.note) == (0, None, "waits for slots: needs 4, has 0")


@pytest.mark.parametrize("known", [[], managers(2, None)])
def test_slots_that_nobody_knows_are_left_out(known: list[TaskManagerDescription]) -> None:
    found = describe_slots(4, known)
    assert (found.required, found.present, found.waves, found.note) == (4, None, None, "")


@pytest.mark.parametrize(
    ("settings", "slots", "said"),
    [
        ({}, (4, 4), ""),
        ({"taskmanager.numberOfTaskSlots": "4"}, (4, 4), ""),
        ({"taskmanager.numberOfTaskSlots": "4"}, (), ""),
        ({"taskmanager.numberOfTaskSlots": "4"}, (2, 4), "taskmanager.numberOfTaskSlots is 4, and executors have 2"),
    ],
)
def test_executors_with_other_slots_than_configured_are_named(
    settings: dict[str, str], slots: tuple[int, ...], said: str
) -> None:
    text = unlike_configured(Configuration.from_dict(settings), managers(*slots))
    assert text.startswith(said)
    assert bool(text) == bool(said)


#: Sizes of a TaskManager, what its JVM and its workers hold, the machine's memory -> what is said.
NEAR: dict[str, tuple[MemoryConfiguration | None, int | None, list[int], int | None, list[str]]] = {
    "far from every limit": (FLINKS, 300 * MIB, [200 * MIB], 8000 * MIB, []),
    "the Python workers": (
        FLINKS,
        300 * MIB,
        [250 * MIB, 250 * MIB],
        8000 * MIB,
        ["its Python workers hold 500 MiB of 512 MiB", "taskmanager.memory.task.off-heap.size"],
    ),
    "the whole process": (
        FLINKS,
        1300 * MIB,
        [400 * MIB],
        8000 * MIB,
        ["its JVM and its Python workers hold 1.7 GiB of 1.7 GiB", "raise taskmanager.memory.process.size"],
    ),
    "the JVM is not known": (FLINKS, None, [400 * MIB], 8000 * MIB, []),
    "Spark's own settings": (
        SPARKS,
        900 * MIB,
        [400 * MIB],
        8000 * MIB,
        ["hold 1.3 GiB of 1.4 GiB", "spark.executor.memoryOverhead"],
    ),
    "the machine": (None, 300 * MIB, [3000 * MIB, 700 * MIB], 4000 * MIB, ["host host", "3.9 GiB of the 3.9 GiB"]),
    "nothing is known": (None, None, [3000 * MIB], None, []),
}


@pytest.mark.parametrize("case", NEAR)
def test_memory_that_is_about_to_run_out_is_told_with_the_key_to_raise(case: str) -> None:
    sizes, jvm, workers, physical, said = NEAR[case]
    (manager,) = managers(2)
    manager = replace(
        manager,
        memory=MemoryFigures(jvm_rss=jvm, physical=physical),
        workers=tuple(WorkerDescription(pid, 0, rss) for pid, rss in enumerate(workers)),
    )
    found = near_limits([manager], sizes)
    assert len(found) == bool(said)
    assert all(part in text for text in found.values() for part in said)


@pytest.mark.parametrize(
    ("settings", "slots", "size"),
    [
        ({}, 4, 512 * MIB),
        ({"taskmanager.memory.managed.size": "1g"}, 4, 256 * MIB),
        ({"taskmanager.memory.process.size": "1728m"}, 2, 536_870_920 // 2),
        ({"taskmanager.memory.process.size": "1728m", "taskmanager.memory.managed.size": "100m"}, 2, 50 * MIB),
    ],
)
def test_the_slots_of_a_task_manager_share_its_managed_memory(settings: dict[str, str], slots: int, size: int) -> None:
    assert managed_memory_of_slot(Configuration.from_dict(settings), slots) == size


class Store:
    """The executors that Spark knows, as the test sets them."""

    def __init__(self) -> None:
        self.executors: list[ExecutorStatus] = []

    def look(self, now_ms: int) -> list[ExecutorStatus]:
        return self.executors


def executor(name: str, slots: int = 1, *, active: bool = True) -> ExecutorStatus:
    return ExecutorStatus(executor=name, host="host", added_ms=1, heard_ms=1, slots=slots, active=active, reason="gone")


def test_a_run_is_warned_while_it_has_no_slots_and_while_memory_is_about_to_run_out() -> None:
    job, store, run = job_of_levels({0: (), 1: (0,)}), Store(), JobRun(JobID(), "shop")
    settings, clock = Configuration.from_dict({"taskmanager.numberOfTaskSlots": "2"}), ManualClock(0)
    run.task_managers = TaskManagers(job, run.task_manager_changed, store)
    run.observers += [run.task_managers, ResourceWatch(run, job, settings, (FLINKS, "sizes have no effect"), clock)]

    def seen(*executors: ExecutorStatus) -> set[str]:
        store.executors = list(executors)
        assert run.task_managers is not None
        run.task_managers.look()
        return set(run.warnings.values()) - {"sizes have no effect"}

    def reported(rss: int) -> set[str]:
        place = TaskPlace("host", "2", 1, 0, 0, 1, 7)
        clock.advance(1_000)
        run.epoch_done(
            EpochReport(3, 0, 0, 0, None, False, tasks=(TaskReport(0, 0, place=place, process={"rss": rss}),))
        )
        return set(run.warnings.values()) - {"sizes have no effect"}

    assert "sizes have no effect" in run.warnings.values()
    assert seen(executor("1", slots=2)) == set()
    (waits,) = seen(executor("1", active=False))
    assert waits.startswith("waits for slots: needs ")
    (unlike,) = seen(executor("2", slots=3))
    assert unlike.startswith("taskmanager.numberOfTaskSlots is 2, and executors have 3 slots")
    assert seen(executor("2", slots=2), executor("3", slots=2)) == set()
    assert reported(100 * MIB) == set()
    (near,) = reported(500 * MIB)
    assert "its Python workers hold 500 MiB of 512 MiB" in near
    assert reported(200 * MIB) == set()
