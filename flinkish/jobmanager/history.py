"""The history of a job, which outlives its driver as tables that SQL reads: what is recorded, the rows and columns of
the tables, and the thread that writes them to a store.

Rule: history never holds up a job. Each method of `History` but `close` returns at once, and none raises; what cannot
be written is logged as a warning.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from flinkish.jobmanager.job.description import CheckpointDescription, ExceptionDescription, ExecutionDescription
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.jobmanager.job.task_managers import TaskManagerEvent


class History:
    """Records what happens to a job; this one does nothing with it."""

    def status(self, event: Event, attempt: int) -> None:
        """Record that the job has changed its status."""

    def execution(self, vertex: int, uid: str, task: str, subtask: int, end: ExecutionDescription) -> None:
        """Record an execution that has ended."""

    def exception(self, description: ExceptionDescription) -> None:
        """Record a failure with which the job has ended or from which it recovers."""

    def checkpoint(self, description: CheckpointDescription) -> None:
        """Record a checkpoint or savepoint that has completed or failed."""

    def task_manager(self, event: TaskManagerEvent) -> None:
        """Record that a task manager has come or gone."""

    def close(self) -> None:
        """Write what is left, because the job has ended. The one method that takes its time."""


#: Records nothing: for jobs without a directory of their own, or with ``flinkish.history.enabled: false``.
NoHistory = History


Row = tuple[Any, ...]

_ALL = "job_id string, job_name string, driver string, attempt int, time_ms bigint"

#: Table -> its columns, in Spark's DDL.
TABLES: dict[str, str] = {
    "jobs": f"{_ALL}, number bigint, before string, status string, cause string",
    "executions": (
        f"{_ALL}, vertex int, uid string, task string, subtask int, state string, start_time_ms bigint, host string,"
        " executor string, stage int, partition int, task_attempt int, task_id bigint, pid int,"
        " splits array<string>, records_in bigint, records_out bigint, watermark_ms bigint, state_bytes bigint,"
        " first_epoch bigint, last_epoch bigint, metrics map<string, double>, failure string"
    ),
    "exceptions": (
        f"{_ALL}, class string, who string, retryable boolean, message string, what string, place string,"
        " task string, epoch bigint, traceback string, restart_delay_ms bigint, retried boolean"
    ),
    "checkpoints": (
        f"{_ALL}, id bigint, epoch bigint, status string, trigger_time_ms bigint, duration_ms bigint,"
        " is_savepoint boolean, incremental boolean, path string, rows_written bigint, state_bytes map<string, bigint>,"
        " offsets map<string, string>, watermarks map<string, bigint>, failure_reason string"
    ),
    "task_managers": (
        f"{_ALL}, id string, executor string, host string, before string, status string, cause string, cores int,"
        " slots int, holds int, heap_peak bigint, jvm_rss bigint"
    ),
}


@cache
def columns_of(table: str) -> dict[str, str]:
    """Name -> type, in Spark's DDL, of the columns of a table of the history."""
    columns: dict[str, str] = {}
    for part in TABLES[table].split(", "):
        name, _, kind = part.partition(" ")
        if kind:
            columns[name] = kind
        else:  # the second type of a map
            columns[[*columns][-1]] += f", {part}"
    return columns


@dataclass(frozen=True)
class Rows:
    """Makes the history rows of one job in one driver, of events and descriptions.

    Rule: every row names its job, driver and attempt, and the time of what happened (``time_ms``); a table may get new
    columns at its end, but none is renamed or changes its type.
    """

    job_id: str
    job_name: str
    driver: str

    def _row(self, table: str, attempt: int, time_ms: int, described: object, **given: Any) -> Row:
        """A row whose columns are named as what they have of ``described``, unless they are given."""
        names = vars(self) | given | {"attempt": attempt, "time_ms": time_ms}
        return tuple(names[name] if name in names else getattr(described, name) for name in columns_of(table))

    def job(self, event: Event, attempt: int) -> Row:
        """A row of ``jobs``: a transition of the job."""
        return self._row("jobs", attempt, event.time_ms, event, before=event.before or None, status=event.after)

    def execution(self, vertex: int, uid: str, task: str, subtask: int, end: ExecutionDescription) -> Row:
        """A row of ``executions``: an execution that has ended."""
        task_of = {"vertex": vertex, "uid": uid, "task": task, "subtask": subtask}
        started, metrics = end.times_ms.get("SCHEDULED"), {name: _number(value) for name, value in end.metrics.items()}
        more = {"start_time_ms": started, "splits": list(end.splits), "metrics": metrics}
        return self._row("executions", end.attempt, end.times_ms[end.state], end, **task_of, **more)

    def exception(self, error: ExceptionDescription) -> Row:
        """A row of ``exceptions``: a failure of the job."""
        return self._row("exceptions", error.attempt, error.time_ms, error, **{"class": error.error_class})

    def checkpoint(self, one: CheckpointDescription, attempt: int) -> Row:
        """A row of ``checkpoints``: a checkpoint or savepoint that has completed or failed."""
        return self._row("checkpoints", attempt, one.trigger_time_ms + (one.duration_ms or 0), one)

    def task_manager(self, event: TaskManagerEvent, attempt: int) -> Row:
        """A row of ``task_managers``: one that has come or gone."""
        manager = event.manager
        given = {name: getattr(manager.memory, name) for name in ("heap_peak", "jvm_rss")}
        given |= {"before": event.before or None, "cause": event.cause}
        return self._row("task_managers", attempt, event.time_ms, manager, **given)


def _number(value: Any) -> float | None:
    """The value of a metric; None if it is no number, or too large for a double: gauges give what the program likes."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


_LOG = logging.getLogger("flinkish.HistoryServer")


class HistoryStore(Protocol):
    """Stores the rows of the history."""

    def append(self, table: str, rows: list[Row]) -> None:
        """Write rows to a table; may take its time, and may raise any exception."""

    def make_missing(self) -> None:
        """Create the tables that have no rows yet; may raise any exception, too."""


class HistoryWriter(History):
    """A `History` that collects rows and writes them from a thread of its own: every ``interval_s`` seconds, if there
    are any, and at the end; the first time after ``first_s`` seconds, if that is less.

    Rule: memory is bounded and nobody waits. Rows that could not be written are tried again with the next ones; when
    there is no room for more, the oldest are dropped, and a warning says how many.
    """

    #: Largest number of rows that wait to be written.
    MAX_ROWS = 100_000
    #: Longest time in seconds that the end of a job waits for its history.
    CLOSE_TIMEOUT_S = 60.0

    def __init__(self, rows: Rows, store: HistoryStore, interval_s: float, first_s: float | None = None) -> None:
        self._rows = rows
        self._store = store
        self._interval_s = interval_s
        self._first_s = interval_s if first_s is None else min(first_s, interval_s)
        self._waiting: deque[tuple[str, Row]] = deque()
        self._dropped = 0
        #: number of rows that were recorded and are neither written nor dropped
        self._left = 0
        self._attempt = 0
        self._failing = False
        self._all_there = False
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ what is recorded

    def status(self, event: Event, attempt: int) -> None:
        self._attempt = attempt
        self._add("jobs", self._rows.job(event, attempt))

    def execution(self, vertex: int, uid: str, task: str, subtask: int, end: ExecutionDescription) -> None:
        self._add("executions", self._rows.execution(vertex, uid, task, subtask, end))

    def exception(self, description: ExceptionDescription) -> None:
        self._add("exceptions", self._rows.exception(description))

    def checkpoint(self, description: CheckpointDescription) -> None:
        self._add("checkpoints", self._rows.checkpoint(description, self._attempt))

    def task_manager(self, event: TaskManagerEvent) -> None:
        self._add("task_managers", self._rows.task_manager(event, self._attempt))

    def _add(self, table: str, row: Row) -> None:
        with self._lock:
            if len(self._waiting) >= self.MAX_ROWS:
                self._waiting.popleft()
                self._dropped += 1
                self._left -= 1
            self._waiting.append((table, row))
            self._left += 1
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._work, name="flinkish-history", daemon=True)
                self._thread.start()

    # ------------------------------------------------------------------ the thread

    def _work(self) -> None:
        wait_s = self._first_s
        while not self._closed.wait(wait_s):
            self.flush()
            wait_s = self._interval_s
        self.flush()

    def flush(self) -> None:
        """Write the waiting rows. Called by one thread at a time."""
        with self._lock:
            taken, self._waiting = self._waiting, deque()
            dropped, self._dropped = self._dropped, 0
        if dropped:
            _LOG.warning("history of %s: %d rows were dropped for want of room", self._rows.job_name, dropped)
        tables: dict[str, list[Row]] = defaultdict(list)
        for table, row in taken:
            tables[table].append(row)
        # in the order of TABLES: if time runs out, the end of the job is what should have been recorded
        for table in TABLES:
            if table in tables:
                self._write(table, tables[table])
        if tables and not self._all_there and not self._failing:
            # after the rows: a short job has rows for most tables when it ends
            self._make_missing()

    def _make_missing(self) -> None:
        try:
            self._store.make_missing()
            self._all_there = True
        except Exception as error:
            _LOG.info("history of %s: not all tables are there yet: %s", self._rows.job_name, error)

    def _write(self, table: str, rows: list[Row]) -> None:
        try:
            self._store.append(table, rows)
        except Exception as error:
            # warn once, not at every interval
            if not self._failing:
                text = f"{type(error).__name__}: {error}".strip().split("\n")[0]
                _LOG.warning("history of %s cannot be written, the job goes on: %s", self._rows.job_name, text)
            self._failing = True
            self._put_back(table, rows)
        else:
            self._failing = False
            with self._lock:
                self._left -= len(rows)

    def _put_back(self, table: str, rows: list[Row]) -> None:
        with self._lock:
            room = self.MAX_ROWS - len(self._waiting)
            kept = rows[max(len(rows) - room, 0) :]
            self._dropped += len(rows) - len(kept)
            self._left -= len(rows) - len(kept)
            self._waiting.extendleft((table, row) for row in reversed(kept))

    def close(self) -> None:
        """Write what is left and end the thread; waits for `CLOSE_TIMEOUT_S` seconds at most."""
        self._closed.set()
        thread = self._thread
        if thread is None:
            return
        thread.join(self.CLOSE_TIMEOUT_S)
        if self._left:
            _LOG.warning("history of %s: the last %d rows are not written", self._rows.job_name, self._left)
