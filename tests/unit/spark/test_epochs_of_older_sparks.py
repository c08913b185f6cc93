"""Spark before 4.2 asks a reader for offsets without saying where the epoch begins, and has no available-now for it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.directory import QueryLocation
from flinkish.jobmanager.query_inputs import end_offsets
from flinkish.runtime.job.deployment import JobSettings
from flinkish.spark.split_source import SourceQuery, SourceStreamReader
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


@pytest.mark.parametrize("log", ["1", "none"])
def test_positions_that_pyspark_shows_as_python_does_are_read_from_the_log(tmp_path: Path, log: str) -> None:
    position = {"epoch": 1, "announce": False, "sources": {}}
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/0").write_text(f"v1\n{{}}\n{json.dumps(position)}\n-")
    location = QueryLocation(str(tmp_path), 0)
    sources = [{"endOffset": json.dumps(position) if log == "none" else str(position)}, {"endOffset": "null"}]
    progress = {"batchId": 0, "sources": sources}
    if log == "none":
        (tmp_path / "offsets/0").unlink()
    assert end_offsets(SimpleNamespace(lastProgress=progress), location, 0) == [json.dumps(position), None]
