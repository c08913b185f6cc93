"""The storage of the history is bounded: by age, by the number of files, and by how long deleted files are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkish.jobmanager import history_tables as delta_tables
from flinkish.jobmanager.history import TABLES, Rows
from flinkish.jobmanager.history_tables import DAY_MS, DeltaTables, history_path
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.runtime.phases import ManualClock

ROWS = Rows("ab" * 16, "clicks", "driver-1")


@pytest.mark.slow
def test_a_table_has_a_file_a_day_and_no_days_that_are_too_old(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_tables, "MAX_FILES", 1)
    monkeypatch.setattr(delta_tables, "LOOK_EVERY", 2)
    clock = ManualClock(1_000 * DAY_MS + DAY_MS // 4)
    tables = DeltaTables(spark, str(tmp_path), retention_ms=2 * DAY_MS, clock=clock)
    path = history_path(str(tmp_path), "jobs")

    def files() -> set[str]:
        return set(spark.read.format("delta").load(path).inputFiles())

    most, kept = 0, [set[str]()]
    for number in range(10):
        # two batches a day, each with a row of before it
        rows = [
            Event(clock.now_ms() - before, "job 'clicks'", "", "RUNNING", "", number) for before in (DAY_MS // 3, 0)
        ]
        tables.append("jobs", [ROWS.job(row, 0) for row in rows])
        clock.advance(DAY_MS // 2)
        most = max(most, len(files()))
        kept.append(files())
    assert most <= 3 + 1 + 2
    # a day that is over is written anew no more
    assert kept[-1] & kept[-3]
    days = [row.day for row in spark.sql(f"SELECT time_ms div {DAY_MS} AS day FROM delta.`{path}`").collect()]
    # the last look was on day 1004; two batches have a row of the day before them
    assert (len(days), min(days)) == (11, 1_002)
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
    assert counts == {"jobs": 2, "executions": 0, "exceptions": 0, "checkpoints": 0, "task_managers": 0}
    path = history_path(str(tmp_path), "exceptions")
    assert spark.sql(f"SELECT class, message FROM delta.`{path}`").collect() == []
    assert spark.sql(f"DESCRIBE HISTORY delta.`{path}`").count() == 1
