"""The Spark partitions in which the subtasks of sources are read; and Spark before 4.2, which asks a reader for offsets
without saying where the epoch begins, and has no available-now for it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.directory import QueryLocation
from flinkish.jobmanager.query_inputs import end_offsets
from flinkish.runtime.job.deployment import JobSettings
from flinkish.spark.split_source import ControlShare, SourceQuery, SourceStreamReader
from flinkish.spark.worker import deploy


def query(tmp_path: Path, **options: Any) -> SourceQuery:
    """That of a job that reads two records in each epoch, from files that may grow."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection(list(range(7))).print()
    settings = JobSettings(max_records_per_epoch=2)
    job = JobGraphGenerator(env.get_stream_graph(), settings).generate("ab" * 16, "job")
    return SourceQuery(deploy(job, 1), str(tmp_path), **options)


def without_times(offset: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in offset.items() if key != "time_ms"}


def test_without_a_start_an_epoch_begins_where_the_one_before_has_ended(tmp_path: Path) -> None:
    with_start, without = (SourceStreamReader(query(tmp_path / name)) for name in ("a", "b"))
    end: dict[str, Any] = with_start.initialOffset()
    epochs = 0
    while (following := with_start.latestOffset(end, None)) != end:
        end = following
        epochs += 1
        assert without_times(without.latestOffset()) == without_times(end)
    assert epochs >= 4
    assert without.latestOffset() == without.latestOffset(), "there is nothing more"


def test_a_query_that_goes_on_begins_where_the_driver_says(tmp_path: Path) -> None:
    first = SourceStreamReader(query(tmp_path))
    ends = [first.latestOffset() for _ in range(3)]
    # Spark pickles the reader; what it has returned is of its own process
    again = pickle.loads(pickle.dumps(SourceStreamReader(query(tmp_path, begins_at=ends[1]))))
    assert without_times(again.latestOffset()) == without_times(ends[2])


def test_positions_at_the_end_of_an_epoch_are_read_from_the_log(tmp_path: Path) -> None:
    position = {"epoch": 1, "announce": False, "sources": {}}
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/0").write_text(f"v1\n{{}}\n{json.dumps(position)}\n-\nnull")
    assert end_offsets(QueryLocation(str(tmp_path), 5), 5) == [json.dumps(position), None, None]


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
