"""The Spark partitions in which the subtasks of sources are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.runtime.job.deployment import JobSettings
from flinkish.spark.split_source import ControlShare, SourceQuery, SourceStreamReader
from flinkish.spark.worker import deploy


def reader(tmp_path: Path, most: int | None, **options: Any) -> SourceStreamReader:
    """Of a job with one source of three subtasks and one of five."""
    env = StreamExecutionEnvironment.get_execution_environment()
    for parallelism in (3, 5):
        source = DataGeneratorSource(lambda i: i, 20, splits=parallelism)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        stream.set_parallelism(parallelism).map(lambda n: n).set_parallelism(parallelism).print()
    job = JobGraphGenerator(env.get_stream_graph(), JobSettings(spark_partitions=most)).generate("ab" * 16, "job")
    return SourceStreamReader(SourceQuery(deploy(job, 1), str(tmp_path), **options))


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (None, [[[0], [1], [2]], [[0], [1], [2], [3], [4]]]),
        (1, [[[0, 1, 2]], [[0, 1, 2, 3, 4]]]),
        (2, [[[0, 2], [1]], [[0, 2, 4], [1, 3]]]),
        (4, [[[0], [1], [2]], [[0, 4], [1], [2], [3]]]),
        (9, [[[0], [1], [2]], [[0], [1], [2], [3], [4]]]),
    ],
)
def test_a_subtask_of_a_source_is_read_in_the_partition_of_its_number_modulo_theirs(
    tmp_path: Path, most: int | None, expected: list[list[list[int]]]
) -> None:
    planner = reader(tmp_path, most)
    shares = [partition.value for partition in planner.partitions({}, planner.latestOffset({}, None))]
    assert all(len({share.vertex for share in partition}) == 1 for partition in shares)
    by_source: dict[int, list[list[int]]] = {}
    for partition in shares:
        by_source.setdefault(partition[0].vertex, []).append([share.subtask for share in partition])
    assert list(by_source.values()) == expected


def test_what_calls_the_tasks_that_wait_for_time_is_in_a_partition_of_its_own(tmp_path: Path) -> None:
    planner = reader(tmp_path, 1, heartbeat=True)
    found = [partition.value for partition in planner.partitions({}, planner.latestOffset({}, None))]
    assert [len(partition) for partition in found] == [3, 5, 1]
    assert isinstance(found[2][0], ControlShare)
