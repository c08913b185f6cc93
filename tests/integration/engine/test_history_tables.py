"""The storage of the history is bounded: by age, by the number of files, and by how long deleted files are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkish.jobmanager import history_tables as delta_tables
from flinkish.jobmanager.history import TABLES, Rows
from flinkish.jobmanager.history_tables import DeltaTables, history_path
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.runtime.phases import ManualClock

ROWS = Rows("ab" * 16, "clicks", "driver-1")


@pytest.mark.slow
def test_a_table_has_few_files_and_no_rows_that_are_too_old(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_tables, "MAX_FILES", 1)
    monkeypatch.setattr(delta_tables, "LOOK_EVERY", 2)
    clock = ManualClock()
    tables = DeltaTables(spark, str(tmp_path), retention_ms=250, clock=clock)
    path, most = history_path(str(tmp_path), "jobs"), 0
    for number in range(5):
        clock.advance(100)
        tables.append("jobs", [ROWS.job(Event(clock.now_ms(), "job 'clicks'", "", "RUNNING", "", number), 0)])
        most = max(most, len(spark.read.format("delta").load(path).inputFiles()))
    assert most <= 1 + 2
    kept = spark.sql(f"SELECT number FROM delta.`{path}` ORDER BY number").collect()
    assert [row.number for row in kept] == [2, 3, 4]
    assert len(spark.read.format("delta").load(path).inputFiles()) == 1
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()
    properties = detail.properties
    assert properties["delta.deletedFileRetentionDuration"] == "interval 1 hours"
    assert properties["delta.logRetentionDuration"] == "interval 1 days"


@pytest.mark.nightly
def test_tables_without_rows_can_be_read_as_well(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        tables = DeltaTables(spark, str(tmp_path), retention_ms=0)
        tables.append("jobs", [ROWS.job(Event(number, "job 'clicks'", "", "RUNNING", "", number), 0)])
        tables.make_missing()
    counts = {name: spark.read.format("delta").load(history_path(str(tmp_path), name)).count() for name in TABLES}
    assert counts == {"jobs": 2, "executions": 0, "exceptions": 0, "checkpoints": 0}
    path = history_path(str(tmp_path), "exceptions")
    assert spark.sql(f"SELECT class, message FROM delta.`{path}`").collect() == []
    assert spark.sql(f"DESCRIBE HISTORY delta.`{path}`").count() == 1
