"""Grouping values by which Spark's partitioner places subtasks as Flink does; the executor that a worker belongs to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flinkish
from flinkish.runtime.job.deployment import REPORT_VERTEX, JobDescriptor, JobSettings, VertexDescriptor
from flinkish.runtime.task.task import sink_vertex
from flinkish.spark.place import AddressBook, murmur3, numbers_on, partition_of, partitions_of
from tests.support.profiles import examples


@pytest.mark.parametrize(("value", "hashed"), [(1, -559580957), (0, 933211791), (42, 29417773), (-1, -1604776387)])
def test_murmur3_is_that_of_spark(value: int, hashed: int) -> None:
    assert murmur3(np.array([value]).astype(np.uint32)) == hashed


vertices = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 6)),
    min_size=1,
    max_size=5,
)


def job_of(described: list[tuple[int, int]], partitions: int | None = None) -> JobDescriptor:
    source = VertexDescriptor(0, "source", 0, (), 2, 4)
    ranked = sorted(described, key=lambda d: d[0])
    made = [
        VertexDescriptor(number, "v", level, (), parallelism, 128)
        for number, (level, parallelism) in enumerate(ranked, 1)
    ]
    return JobDescriptor("id", "job", (source, *made), (), JobSettings(spark_partitions=partitions))


@settings(max_examples=examples(50), deadline=None)
@given(vertices, st.integers(0, 3))
def test_subtasks_land_on_the_partition_of_their_number_and_two_processes_find_the_same_addresses(
    described: list[tuple[int, int]], more: int
) -> None:
    job = job_of(described)
    partitions = partitions_of(job) + more
    book, of_another_process = (AddressBook(job, partitions) for _ in range(2))
    for level in range(1, job.levels + 1):
        seen: set[int] = set()
        for vertex in (v for v in job.vertices if v.level == level):
            for subtask in range(vertex.parallelism):
                address = book.address(level, vertex.id, subtask)
                assert of_another_process.address(level, vertex.id, subtask) == address
                assert address not in seen
                seen.add(address)
                assert 0 < address < 2**31
                assert partition_of(np.array([address], np.uint32), partitions) == subtask
                assert book.target(level, address) == (vertex.id, subtask)


@settings(max_examples=examples(50), deadline=None)
@given(vertices, st.integers(1, 8))
def test_with_fewer_partitions_each_subtask_has_an_address_of_its_own_on_its_number_modulo_theirs(
    described: list[tuple[int, int]], most: int
) -> None:
    job = job_of(described, most)
    partitions = partitions_of(job)
    assert partitions == min(most, max(parallelism for _, parallelism in described))
    book = AddressBook(job, partitions)
    for level in range(1, job.levels + 1):
        subtasks = {(v.id, subtask) for v in job.vertices if v.level == level for subtask in range(v.parallelism)}
        addresses = {book.address(level, *one): one for one in subtasks}
        assert len(addresses) == len(subtasks)
        for address, (vertex, subtask) in addresses.items():
            partition = subtask % partitions
            assert partition_of(np.array([address], np.uint32), partitions) == partition
            assert book.target(level, address) == (vertex, subtask)
            assert (vertex, subtask) in book.tasks(level, partition)
        assert sum(len(book.tasks(level, partition)) for partition in range(partitions)) == len(subtasks)


@settings(max_examples=examples(50), deadline=None)
@given(vertices)
def test_rows_for_later_levels_sinks_and_reports_pass_through_transit_groups(
    described: list[tuple[int, int]],
) -> None:
    job = job_of(described)
    partitions = partitions_of(job)
    book = AddressBook(job, partitions)
    for level in range(1, job.levels + 1):
        places = [(v.id, subtask) for v in job.vertices if v.level > level for subtask in range(v.parallelism)]
        for place in [*places, (sink_vertex(0), 1), (REPORT_VERTEX, 0)]:
            address = book.address(level, *place)
            assert book.target(level, address) is None
            if place[0] > 0:
                assert partition_of(np.array([address], np.uint32), partitions) == place[1]
    assert book.address(job.levels + 1, REPORT_VERTEX, 0) == 0


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 30), st.data())
def test_numbers_on_wanted_partitions_are_the_smallest_that_rise(partitions: int, data: Any) -> None:
    wanted = data.draw(st.lists(st.integers(0, partitions - 1), max_size=100))
    landed = partition_of(np.arange(50_000, dtype=np.uint32), partitions).tolist()
    expected, last = [], 0
    for partition in wanted:
        last = landed.index(partition, last + 1)
        expected.append(last)
    assert numbers_on(wanted, partitions) == expected


def test_addresses_stay_what_they_were() -> None:
    """The state of jobs that run is stored under them."""
    book = AddressBook(job_of([(1, 3), (1, 5)]), 5)
    addresses = [book.address(1, vertex, subtask) for vertex, count in ((1, 3), (2, 5)) for subtask in range(count)]
    assert addresses == [22, 29, 31, 32, 34, 43, 51, 52]
    assert [book.address(1, sink_vertex(0), subtask) for subtask in range(5)] == [53, 54, 55, 57, 63]


_ASK = """
import os
from flinkish.spark.place import executor_id
print(executor_id(os.getpid()))
os.environ["SPARK_EXECUTOR_ID"] = "4"
executor_id.cache_clear()
print(executor_id(os.getpid()))
"""
_PASS_ON = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_ASK!r}], check=True)"


@pytest.mark.parametrize(
    ("code", "arguments", "executor"),
    [(_ASK, [], "driver"), (_PASS_ON, ["--cores", "1", "--executor-id", "17", "--hostname", "h"], "17")],
    ids=["no executor", "the command line of the process above"],
)
def test_the_environment_names_the_executor_and_else_the_process_above(
    code: str, arguments: list[str], executor: str
) -> None:
    clean = {key: value for key, value in os.environ.items() if key != "SPARK_EXECUTOR_ID"}
    home = Path(flinkish.__file__).parent.parent
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=home, env=clean)
    assert done.stdout.split() == [executor, "4"]
