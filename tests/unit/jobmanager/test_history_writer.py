"""The history holds nobody up, loses nothing that there is room for, and never fails a job."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from flinkish.jobmanager.history import TABLES, HistoryWriter, Row, Rows
from flinkish.jobmanager.job.description import CheckpointDescription, ExceptionDescription, ExecutionDescription
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.jobmanager.job.task_managers import TaskManagerDescription, TaskManagerEvent

ROWS = Rows("ab" * 16, "clicks", "driver-1")
TIMEOUT_S = 30


class Store:
    """Keeps rows; does not when it is broken, and only lets one through that it was opened for."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {}
        self.broken = False
        self.times_made_missing = 0
        self.open = threading.Event()
        self.open.set()

    def append(self, table: str, rows: list[Row]) -> None:
        assert self.open.wait(TIMEOUT_S)
        if self.broken:
            raise OSError("the disk is full\nand a long trace")
        self.tables.setdefault(table, []).extend(rows)

    def make_missing(self) -> None:
        self.times_made_missing += 1
        if self.times_made_missing == 1:
            raise OSError("the disk is full")

    def numbers(self) -> list[Any]:
        """The numbers of the events that are in the table of jobs."""
        return [row[5] for row in self.tables.get("jobs", [])]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def writer(store: Store) -> HistoryWriter:
    """One that writes when it is flushed or closed."""
    return HistoryWriter(ROWS, store, 3600)


def tell(writer: HistoryWriter, *numbers: int, flush: bool = False) -> None:
    for number in numbers:
        writer.status(event(number), 0)
        if flush:
            writer.flush()


def event(number: int) -> Event:
    return Event(1000 + number, "job 'clicks'", "CREATED", "RUNNING", "it runs", number)


def test_everything_is_written_at_the_end_at_the_latest(store: Store, writer: HistoryWriter) -> None:
    writer.status(event(0), 2)
    writer.execution(1, "count", "count (1/2)", 0, ExecutionDescription(2, "FINISHED", {"FINISHED": 5}))
    writer.exception(ExceptionDescription(7, 2, "OperationError", "the operator of the cluster", True, "no room"))
    writer.checkpoint(CheckpointDescription(17, 40, "COMPLETED", 1000, duration_ms=50, watermarks={"count": 3}))
    manager = TaskManagerDescription(id="h-3", executor="3", host="h", registered_ms=5, heartbeat_ms=5, slots=2)
    writer.task_manager(TaskManagerEvent(manager, 5, "", "it has come"))
    assert store.tables == {}
    writer.close()
    assert set(store.tables) == set(TABLES)
    for table, rows in store.tables.items():
        assert [row[:4] for row in rows] == [("ab" * 16, "clicks", "driver-1", 2)]
        assert len(rows[0]) == TABLES[table].count(", ") + 1 - TABLES[table].count("map<string, ")


def test_a_job_does_not_wait_for_a_slow_store() -> None:
    store = Store()
    store.open.clear()
    writer = HistoryWriter(ROWS, store, 0.001)
    tell(writer, *range(50))
    assert store.numbers() == []
    store.open.set()
    writer.close()
    assert store.numbers() == list(range(50))


def test_tables_without_rows_are_made_behind_the_first_rows_and_when_that_failed_behind_the_next(
    store: Store, writer: HistoryWriter
) -> None:
    made = []
    store.broken = True
    for number in range(4):
        tell(writer, number, flush=True)
        made.append(store.times_made_missing)
        store.broken = False
    assert made == [0, 1, 2, 2]
    writer.close()
    assert store.numbers() == list(range(4))


def test_what_could_not_be_written_is_written_later_in_order_and_told_once(
    caplog: pytest.LogCaptureFixture, store: Store, writer: HistoryWriter
) -> None:
    store.broken = True
    with caplog.at_level(logging.WARNING):
        tell(writer, 0, 1, 2, flush=True)
    assert [record.message for record in caplog.records] == [
        "history of clicks cannot be written, the job goes on: OSError: the disk is full"
    ]
    store.broken = False
    writer.status(event(3), 0)
    writer.close()
    assert store.numbers() == [0, 1, 2, 3]


def test_when_there_is_no_room_the_oldest_rows_go_and_the_warning_says_how_many(
    store: Store, writer: HistoryWriter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HistoryWriter, "MAX_ROWS", 5)
    store.broken = True
    tell(writer, *range(4))
    writer.flush()
    tell(writer, *range(4, 7))
    store.broken = False
    with caplog.at_level(logging.WARNING):
        writer.close()
    assert store.numbers() == [2, 3, 4, 5, 6]
    assert caplog.records[-1].message == "history of clicks: 2 rows were dropped for want of room"


def test_a_history_that_cannot_be_written_to_the_end_is_a_warning(
    store: Store, writer: HistoryWriter, caplog: pytest.LogCaptureFixture
) -> None:
    store.broken = True
    tell(writer, 0)
    with caplog.at_level(logging.WARNING):
        writer.close()
    assert caplog.records[-1].message == "history of clicks: the last 1 rows are not written"


def test_a_history_that_nobody_told_anything_starts_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    writer = HistoryWriter(ROWS, Store(), 0.01)
    assert threading.active_count() == before
    writer.close()


def test_the_end_of_a_job_does_not_wait_for_ever_and_its_status_is_written_first(
    store: Store, writer: HistoryWriter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HistoryWriter, "CLOSE_TIMEOUT_S", 0.01)
    writer.execution(1, "count", "count (1/2)", 0, ExecutionDescription(0, "FINISHED", {"FINISHED": 5}))
    writer.status(event(0), 0)
    store.open.clear()
    with caplog.at_level(logging.WARNING):
        writer.close()
    assert caplog.records[-1].message == "history of clicks: the last 2 rows are not written"
    store.open.set()
    monkeypatch.setattr(HistoryWriter, "CLOSE_TIMEOUT_S", TIMEOUT_S)
    writer.close()
    assert list(store.tables) == ["jobs", "executions"]


def test_a_gauge_that_gives_no_number_spoils_no_row() -> None:
    metrics: dict[str, Any] = {"last": None, "name": "x", "huge": 10**400, "n": 3}
    end = ExecutionDescription(2, "FINISHED", {"FINISHED": 5}, metrics=metrics)
    row = ROWS.execution(1, "count", "count (1/2)", 0, end)
    assert row[-2] == {"last": None, "name": None, "huge": None, "n": 3.0}
