"""What is said of the slots and of executors that were killed."""

from __future__ import annotations

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.common.configuration import Configuration
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobmanager.job.settings import job_settings, managed_memory_of_slot
from flinkish.jobmanager.resources import describe_slots
from flinkish.spark.resources import Slots, killed_for_memory, unlike_configured

MIB = 1 << 20
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


@pytest.mark.parametrize(
    ("executors", "waves", "said"),
    [
        ({}, None, ["waits for slots: needs 4, has 0"]),
        ({1: 2}, 2, ["2 slots, and the widest level has 4 Spark tasks", "2 waves", "parallelism.default"]),
        ({3: 1}, 2, ["2 waves", "flinkish.spark.partitions"]),
        ({1: 4}, 1, []),
        ({16: 2, 8: 1}, 1, []),
    ],
)
def test_slots_are_described_with_what_follows(executors: dict[int, int], waves: int | None, said: list[str]) -> None:
    job = generator_of({"parallelism.default": "4"}).generate("id", "job")
    present = sum(slots * count for slots, count in executors.items())
    found = describe_slots(job, Slots(present, executors))
    assert (found.required, found.present, found.task_managers, found.waves) == (
        4,
        present,
        sum(executors.values()),
        waves,
    )
    assert found.per_task_manager == min(executors, default=None)
    assert bool(found.note) == bool(said)
    assert all(part in found.note for part in said)


def test_slots_that_nobody_knows_are_left_out() -> None:
    job = generator_of({"parallelism.default": "4"}).generate("id", "job")
    found = describe_slots(job, None)
    assert (found.required, found.present, found.waves, found.note) == (4, None, None, "")


@pytest.mark.parametrize(
    ("settings", "executors", "said"),
    [
        ({}, {4: 2}, ""),
        ({"taskmanager.numberOfTaskSlots": "4"}, {4: 2}, ""),
        ({"taskmanager.numberOfTaskSlots": "4"}, {}, ""),
        (
            {"taskmanager.numberOfTaskSlots": "4"},
            {2: 1, 4: 1},
            "taskmanager.numberOfTaskSlots is 4, and executors have 2",
        ),
    ],
)
def test_executors_with_other_slots_than_configured_are_named(
    settings: dict[str, str], executors: dict[int, int], said: str
) -> None:
    text = unlike_configured(Configuration.from_dict(settings), Slots(0, executors))
    assert text.startswith(said)
    assert bool(text) == bool(said)


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


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        # of a standalone cluster, of YARN, of Kubernetes, of an executor whose heap is full
        (
            "Command exited with code 137",
            ["SIGKILL", "taskmanager.memory.process.size", "spark.executor.memoryOverhead"],
        ),
        (
            "Container killed by YARN for exceeding physical memory limits. 2.1 GB of 2 GB physical memory used. "
            "Consider boosting spark.executor.memoryOverhead.",
            ["for memory", "taskmanager.memory.process.size"],
        ),
        (
            "The executor with id 3 exited with exit code 137(SIGKILL, possible container OOM).",
            ["SIGKILL", "task.off-heap.size"],
        ),
        ("Container from a bad node: container_1. Exit status: 137.", ["SIGKILL"]),
        (
            "The executor with id 3 exited with exit code 52(JVM OOM).",
            ["for memory", "taskmanager.memory.task.heap.size"],
        ),
        ("Command exited with code 52", ["its heap", "spark.executor.memory"]),
        ("Command exited with code 1", []),
        ("Executor heartbeat timed out after 137000 ms", []),
        ("worker lost: 192.168.137.52:7078", []),
        ("Executor decommission.", []),
    ],
)
def test_an_executor_that_was_killed_for_memory_is_told_with_the_key_to_raise(reason: str, said: list[str]) -> None:
    text = killed_for_memory(reason)
    assert bool(text) == bool(said)
    assert all(part in text for part in said)
