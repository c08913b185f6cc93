"""What the views share: finding what a path names, and the parts of answers that occur in several of them.

Rule: Flink's Java client fails at a missing or null number, so a figure that is not known is 0, or -1 where Flink has
that for a time that has not come; and figures of records and bytes are said to be complete.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from flinkish.common.job_status import JobStatus
from flinkish.errors import FinalOperationError
from flinkish.jobmanager.job.description import (
    ExecutionDescription,
    JobDescription,
    SubtaskDescription,
    VertexDescription,
)
from flinkish.jobmanager.job.lifecycle import ExecutionState
from flinkish.rest.route import Asked, NotFoundError

Json = dict[str, Any]

JOB_STATES = tuple(status.name for status in JobStatus)
TASK_STATES = tuple(state.name for state in ExecutionState)

#: The task states whose durations Flink tells.
_LASTING = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
#: The job states in which a job does not change any more.
ENDED = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
_ENDED_TASKS = frozenset({"FINISHED", "CANCELED", "FAILED"})

#: The executor of a job that runs in the driver, and where a task is that has not run yet.
DRIVER, UNASSIGNED = "driver", "(unassigned)"


# ---------------------------------------------------------------------- what a path names


def job_of(asked: Asked) -> JobDescription:
    """The job that the path names.

    Raises:
        NotFoundError: there is none.
    """
    job_id = asked.path["job"]
    try:
        return asked.jobs.describe_job(job_id)
    except FinalOperationError:
        raise NotFoundError(f"Job {job_id} not found") from None


def vertex_in(job: JobDescription, vertex_id: str) -> VertexDescription:
    """The vertex with this id of Flink's.

    Raises:
        NotFoundError: there is none.
    """
    for vertex in job.vertices:
        if vertex.job_vertex_id == vertex_id:
            return vertex
    raise NotFoundError(f"JobVertex {vertex_id} not found")


def vertex_of(asked: Asked) -> tuple[JobDescription, VertexDescription]:
    """The vertex that the path names, and its job; raises `NotFoundError`."""
    job = job_of(asked)
    return job, vertex_in(job, asked.path["vertex"])


def subtask_of(asked: Asked) -> tuple[JobDescription, VertexDescription, SubtaskDescription]:
    """The subtask that the path names, its vertex and its job; raises `NotFoundError`."""
    job, vertex = vertex_of(asked)
    number = int(asked.path["subtask"])
    for subtask in vertex.subtasks:
        if subtask.subtask == number:
            return job, vertex, subtask
    raise NotFoundError(f"Invalid subtask index {number} for vertex {vertex.job_vertex_id}")


# ---------------------------------------------------------------------- times


def duration_ms(job: JobDescription, now_ms: int) -> int:
    """How long a job has taken so far."""
    end_ms = now_ms if job.end_time_ms is None else job.end_time_ms
    return max(end_ms - job.start_time_ms, 0)


def job_times(job: JobDescription, now_ms: int) -> Json:
    """Begin, end and duration of a job."""
    end_ms = -1 if job.end_time_ms is None else job.end_time_ms
    return {"start-time": job.start_time_ms, "end-time": end_ms, "duration": duration_ms(job, now_ms)}


def times_of(executions: Iterable[ExecutionDescription], now_ms: int) -> Json:
    """Begin, end and duration of several executions together; -1 for what has not come."""
    starts, ends, all_over = [], [], True
    for execution in executions:
        start_ms = execution.times_ms.get("DEPLOYING")
        if start_ms is not None:
            starts.append(start_ms)
        if execution.state in _ENDED_TASKS:
            ends.append(execution.times_ms[execution.state])
        else:
            all_over = False
    start_ms = min(starts, default=-1)
    end_ms = max(ends, default=-1) if all_over else -1
    duration = -1 if start_ms < 0 else max((end_ms if end_ms >= 0 else now_ms) - start_ms, 0)
    return {"start-time": start_ms, "end-time": end_ms, "duration": duration}


def status_duration(execution: ExecutionDescription) -> dict[str, int]:
    """How long an execution was in each state that may last; -1 for those in which it never was."""
    durations = execution.durations_ms
    return {state: durations.get(state, -1) for state in _LASTING}


# ---------------------------------------------------------------------- counts and sums


def counted(states: Iterable[str], all_states: Iterable[str] = TASK_STATES) -> dict[str, int]:
    """How many there are of each state, also of those that there are none of."""
    counts = Counter(states)
    return {state: counts.get(state, 0) for state in all_states}


def idle_ms(execution: ExecutionDescription) -> int:
    """How long an execution was RUNNING and had nothing to do."""
    return max(execution.durations_ms.get("RUNNING", 0) - int(execution.busy_ms + execution.backpressured_ms), 0)


def back_pressure_level(backpressured_ms: float) -> str:
    """Flink's level of back pressure, from the milliseconds per second in which a subtask was held back.

    >>> [back_pressure_level(ms) for ms in (100, 101, 500, 501)]
    ['ok', 'low', 'low', 'high']
    """
    return "ok" if backpressured_ms <= 100 else "low" if backpressured_ms <= 500 else "high"


def io_metrics(executions: Sequence[ExecutionDescription]) -> Json:
    """Flink's IOMetricsInfo of several executions together."""
    return _io_metrics(
        sum([one.bytes_in for one in executions]),
        sum([one.bytes_out for one in executions]),
        sum([one.records_in for one in executions]),
        sum([one.records_out for one in executions]),
        sum([int(one.backpressured_ms) for one in executions]),
        sum(map(idle_ms, executions)),
        float(sum([one.busy_ms for one in executions])),
    )


def io_metrics_of(one: ExecutionDescription) -> Json:
    """Flink's IOMetricsInfo of one execution."""
    return io_metrics((one,))


def _io_metrics(
    bytes_in: int, bytes_out: int, records_in: int, records_out: int, held_back: int, idle: int, busy: float
) -> Json:
    return {
        "read-bytes": bytes_in,
        "read-bytes-complete": True,
        "write-bytes": bytes_out,
        "write-bytes-complete": True,
        "read-records": records_in,
        "read-records-complete": True,
        "write-records": records_out,
        "write-records-complete": True,
        "accumulated-backpressured-time": held_back,
        "accumulated-idle-time": idle,
        "accumulated-busy-time": busy,
    }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile of values in their order, by the estimation of Flink's statistics (Apache Commons Math, LEGACY).

    >>> percentile([1, 2, 3, 4], 50), percentile([1, 2, 3, 4], 99)
    (2.5, 4.0)
    """
    place = percent * (len(ordered) + 1) / 100
    if place < 1:
        return float(ordered[0])
    if place >= len(ordered):
        return float(ordered[-1])
    below = int(place)
    return ordered[below - 1] + (place - below) * (ordered[below] - ordered[below - 1])


def aggregate(values: Iterable[float]) -> dict[str, int]:
    """Minimum, maximum, sum and percentiles of values of subtasks, as whole numbers (Flink's MetricStatistics); 0 if
    there are none."""
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(("min", "max", "avg", "sum", "median", "p25", "p75", "p95"), 0)
    total = sum(ordered)
    return {
        "min": int(ordered[0]),
        "max": int(ordered[-1]),
        "avg": int(total / len(ordered)),
        "sum": int(total),
        "median": int(percentile(ordered, 50)),
        "p25": int(percentile(ordered, 25)),
        "p75": int(percentile(ordered, 75)),
        "p95": int(percentile(ordered, 95)),
    }


def statistics(values: Iterable[float]) -> Json:
    """The summary of values of checkpoints (Flink's StatsSummaryDto); the percentiles of no values are the text
    ``NaN``."""
    ordered = sorted(values)
    percents = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
    if not ordered:
        return {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(percents, "NaN")}
    bounds = {"min": int(ordered[0]), "max": int(ordered[-1]), "avg": int(sum(ordered) / len(ordered))}
    return {**bounds, **{name: percentile(ordered, percent) for name, percent in percents.items()}}


def aggregated(executions: Sequence[ExecutionDescription]) -> Json:
    """The figures of several executions, aggregated one by one."""
    metrics: dict[str, list[float]] = {
        "read-bytes": [one.bytes_in for one in executions],
        "write-bytes": [one.bytes_out for one in executions],
        "read-records": [one.records_in for one in executions],
        "write-records": [one.records_out for one in executions],
        "accumulated-backpressured-time": [one.backpressured_ms for one in executions],
        "accumulated-idle-time": [idle_ms(one) for one in executions],
        "accumulated-busy-time": [one.busy_ms for one in executions],
    }
    return {
        "metrics": {name: aggregate(values) for name, values in metrics.items()},
        "status-duration": {
            state: aggregate([one.durations_ms.get(state, -1) for one in executions]) for state in _LASTING
        },
    }


# ---------------------------------------------------------------------- where a task runs


def host_of(job: JobDescription, execution: ExecutionDescription) -> str:
    """The host on which an execution has run last."""
    if execution.host is not None:
        return execution.host
    return UNASSIGNED if execution.first_epoch is None else job.driver.host


def task_manager_of(job: JobDescription, execution: ExecutionDescription) -> str:
    """The id of the task manager, which is an executor of Spark or the driver, that an execution has run on last."""
    if execution.executor is None and execution.first_epoch is None:
        return UNASSIGNED
    if job.task_manager_ids:
        # an executor that nobody knows is that of a worker that cannot tell: without /proc, each is said to be 'driver'
        return job.task_manager_ids.get(execution.executor or DRIVER, UNASSIGNED)
    return task_manager_id(execution.host or job.driver.host, execution.executor or DRIVER)


def task_manager_id(host: str, executor: str) -> str:
    """The id of a task manager: free text, as in Flink, without a slash."""
    return f"{host}-{executor}".replace("/", "_")


# ---------------------------------------------------------------------- values


def user_accumulators(values: Mapping[str, Any], types: Mapping[str, str]) -> list[Json]:
    """Accumulators as Flink lists them, with their values as text."""
    return [
        {"name": name, "type": types.get(name, type(value).__name__), "value": text_of(value)}
        for name, value in sorted(values.items())
    ]


def text_of(value: Any) -> str:
    """A value as text, in Java's form where the two differ.

    >>> text_of(12), text_of(float("inf")), text_of(True)
    ('12', 'Infinity', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value)


def finite(value: Any) -> Any:
    """A value as JSON can have it: dataclasses as objects, and numbers that it does not have as texts, as Flink writes
    them."""
    if isinstance(value, str | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else text_of(value)
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    names = _fields_of(value.__class__)
    return value if names is None else {name: finite(getattr(value, name)) for name in names}


@cache
def _fields_of(kind: type) -> tuple[str, ...] | None:
    """The names of the fields of a dataclass; None: it is none."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def pairs(configuration: Mapping[str, str]) -> list[Json]:
    """A configuration as Flink lists it."""
    return [{"key": key, "value": str(value)} for key, value in sorted(configuration.items())]
