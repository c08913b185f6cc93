"""The tables of the history: their columns, and how events and descriptions become rows.

Rule: every row names its job, driver and attempt, and the time of what happened (``time_ms``); a table may get new
columns at its end, but none is renamed or changes its type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.jobmanager.job.description import CheckpointDescription, ExceptionDescription, ExecutionDescription
from flinkish.jobmanager.job.lifecycle import Event

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
}


@dataclass(frozen=True)
class Rows:
    """Makes the history rows of one job in one driver."""

    job_id: str
    job_name: str
    driver: str

    def _all(self, attempt: int, time_ms: int) -> Row:
        return self.job_id, self.job_name, self.driver, attempt, time_ms

    def job(self, event: Event, attempt: int) -> Row:
        """A row of ``jobs``: a transition of the job."""
        return *self._all(attempt, event.time_ms), event.number, event.before or None, event.after, event.cause

    def execution(self, vertex: int, uid: str, task: str, subtask: int, end: ExecutionDescription) -> Row:
        """A row of ``executions``: an execution that has ended."""
        started = end.times_ms.get("SCHEDULED")
        return (
            *self._all(end.attempt, end.times_ms[end.state]),
            *(vertex, uid, task, subtask, end.state, started),
            *(end.host, end.executor, end.stage, end.partition, end.task_attempt, end.task_id, end.pid),
            *(list(end.splits), end.records_in, end.records_out, end.watermark_ms),
            *(end.state_bytes, end.first_epoch, end.last_epoch),
            *({name: _number(value) for name, value in end.metrics.items()}, end.failure),
        )

    def exception(self, error: ExceptionDescription) -> Row:
        """A row of ``exceptions``: a failure of the job."""
        return (
            *self._all(error.attempt, error.time_ms),
            *(error.error_class, error.who, error.retryable, error.message, error.what, error.place, error.task),
            *(error.epoch, error.traceback, error.restart_delay_ms, error.retried),
        )

    def checkpoint(self, one: CheckpointDescription, attempt: int) -> Row:
        """A row of ``checkpoints``: a checkpoint or savepoint that has completed or failed."""
        return (
            *self._all(attempt, one.trigger_time_ms + (one.duration_ms or 0)),
            *(one.id, one.epoch, one.status, one.trigger_time_ms, one.duration_ms, one.is_savepoint, one.incremental),
            *(one.path, one.rows_written, dict(one.state_bytes), dict(one.offsets), dict(one.watermarks)),
            one.failure_reason,
        )


def _number(value: Any) -> float | None:
    """The value of a metric; None if it is no number, or too large for a double: gauges give what the program likes."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
