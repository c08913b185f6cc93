"""Which days of a history table are written anew: what it rewrites does not grow with the age of the job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flinkish.delta.actions import AddedFile, new_table
from flinkish.delta.log import DeltaLog
from flinkish.jobmanager.history import TABLES, Rows, columns_of
from flinkish.jobmanager.history_tables import (
    DAY_MS,
    MAX_FILES,
    DeltaTables,
    arrow_of,
    days_to_compact,
    first_days,
    history_path,
)
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.runtime.phases import ManualClock

MANY = MAX_FILES + 1
ROWS = Rows("ab" * 16, "clicks", "driver-1")
CHECKPOINT = CheckpointDescription(7, 70, "COMPLETED", 1, 2, state_bytes={"sum": 10})


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([], []),
        ([7] * MAX_FILES, []),
        ([7] * (MAX_FILES + 1), []),
        ([7] * (MANY + 1), [7]),
        (list(range(400)), []),
        ([*range(400), *[400] * MANY], []),
        ([*range(400), *[400] * (MANY + 1)], [400]),
        ([*range(400), *[400] * 12, *[401] * 12], [400, 401]),
        ([3, 4, 4, 5, *[6] * MANY], [4, 5, 6]),
    ],
    ids=[
        "no files",
        "a few files",
        "one file and as many as may be",
        "one more",
        "a file a day for more than a year",
        "and a few of today",
        "too many of today",
        "too many since yesterday",
        "a day behind one with two files, which may have rows of it",
    ],
)
def test_a_day_is_written_anew_when_there_are_too_many_files_more_than_days(
    days: list[int], expected: list[int]
) -> None:
    assert days_to_compact(days) == expected


def test_a_driver_of_a_year_rewrites_no_more_on_its_last_day_than_on_its_second() -> None:
    days: list[int] = []
    rewritten: dict[int, int] = {}
    for day in range(365):
        for batch in range(144):
            days.append(day)
            if batch % 10 == 0:
                due = days_to_compact(days)
                rewritten[day] = rewritten.get(day, 0) + sum(days.count(one) for one in due)
                days = sorted([one for one in days if one not in due] + due)
    assert len(set(rewritten.values()) - {rewritten[0]}) == 1
    assert len(days) <= 365 + MAX_FILES + 10


def test_rows_are_appended_to_a_local_table_without_spark(tmp_path: Path) -> None:
    for driver in range(2):
        # what would need Spark fails, as there is none
        tables = DeltaTables(None, str(tmp_path), 0, ManualClock(5 * DAY_MS))
        for number in range(3):
            event = Event(number * DAY_MS, "job 'clicks'", "", "RUNNING", "", number)
            tables.append("jobs", [ROWS.job(event, 0), ROWS.job(replace(event, number=number + 10), 0)])
        tables.append("checkpoints", [ROWS.checkpoint(CHECKPOINT, 1)])
        tables.make_missing()
        assert len(DeltaLog(history_path(str(tmp_path), "jobs")).data_files()) == 3 * (driver + 1)
    logs = {name: DeltaLog(history_path(str(tmp_path), name)) for name in TABLES}
    assert {name: len(log.commits()) for name, log in logs.items()} == {
        "jobs": 6,
        "checkpoints": 2,
        "executions": 1,
        "exceptions": 1,
        "task_managers": 1,
    }
    assert first_days(logs["jobs"].added().values()) == [0, 1, 2] * 2
    (row, _) = pq.read_table(logs["checkpoints"].data_files()).to_pylist()
    assert (row["id"], row["state_bytes"], row["failure_reason"]) == (7, [("sum", 10)], None)


def test_a_table_that_lacks_a_column_is_left_to_spark(tmp_path: Path) -> None:
    log = DeltaLog(history_path(str(tmp_path), "jobs"))
    assert log.publish(0, new_table({"job_id": "string"}, 0, {}))
    with pytest.raises(AttributeError):
        DeltaTables(None, str(tmp_path), 0).append("jobs", [ROWS.job(Event(0, "", "", "RUNNING", "", 1), 0)])
    assert log.commits() == [0]


@pytest.mark.parametrize("table", TABLES)
def test_each_column_has_a_type_in_the_words_of_delta(table: str) -> None:
    columns = columns_of(table)
    assert ", ".join(f"{name} {kind}" for name, kind in columns.items()) == TABLES[table]
    assert arrow_of(table, [(None,) * len(columns)]).column_names == list(columns)


def test_the_day_of_a_file_is_that_of_its_first_row_if_its_statistics_tell() -> None:
    stats = [{"minValues": {"time_ms": 3 * DAY_MS + 5}}, {"minValues": {"job_id": "a"}}, {"numRecords": 1}]
    files = [AddedFile("a", stats=json.dumps(one)) for one in stats]
    assert first_days([*files, AddedFile("b")]) == [3]
