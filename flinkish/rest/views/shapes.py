"""What the views share: finding what a path names, and the parts of answers that occur in several of them.

Rule: Flink's Java client fails at a missing or null number, so a figure that is not known is 0 there, or -1 where Flink
has that for a time that has not come; records and bytes are said to be complete when all tasks have told theirs. As in
Flink, they are those of the attempt, with the epoch that runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple

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


class Sums(NamedTuple):
    """What an execution has done so far, with the epoch that runs."""

    records_in: float
    records_out: float
    bytes_in: float
    bytes_out: float
    busy_ms: float
    backpressured_ms: float
    idle_ms: float


_NOT_TOLD = Sums(*[math.nan] * len(Sums._fields))


def sums_of(one: ExecutionDescription) -> Sums:
    """What an execution has done so far; NaN as long as nothing was told of it."""
    if one.told_ms is None:
        return _NOT_TOLD
    return Sums(
        one.records_in + one.running_records_in,
        one.records_out + one.running_records_out,
        one.bytes_in + one.running_bytes_in,
        one.bytes_out + one.running_bytes_out,
        one.busy_ms + one.running_busy_ms,
        one.backpressured_ms,
        one.idle_ms,
    )


def back_pressure_level(backpressured_ms: float) -> str:
    """Flink's level of back pressure, from the milliseconds per second in which a subtask was held back.

    >>> [back_pressure_level(ms) for ms in (100, 101, 500, 501)]
    ['ok', 'low', 'low', 'high']
    """
    return "ok" if backpressured_ms <= 100 else "low" if backpressured_ms <= 500 else "high"


def io_metrics(executions: Sequence[ExecutionDescription]) -> Json:
    """Flink's IOMetricsInfo of several executions together."""
    told = [sums_of(one) for one in executions if one.told_ms is not None]
    sums = Sums(*map(sum, zip(*told))) if told else Sums(*[0.0] * len(Sums._fields))
    found: Json = {name: int(getattr(sums, figure)) for name, figure in _FIGURES.items()}
    return found | {f"{name}-complete": len(told) == len(executions) for name in found if not name.endswith("-time")}


#: Flink's name -> that of `Sums`.
_FIGURES = {
    "read-bytes": "bytes_in",
    "write-bytes": "bytes_out",
    "read-records": "records_in",
    "write-records": "records_out",
    "accumulated-backpressured-time": "backpressured_ms",
    "accumulated-idle-time": "idle_ms",
    "accumulated-busy-time": "busy_ms",
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
    told = [sums_of(one) for one in executions if one.told_ms is not None]
    metrics = {name: [getattr(one, figure) for one in told] for name, figure in _FIGURES.items()}
    return {
        "metrics": {name: aggregate(values) for name, values in metrics.items()},
        "status-duration": {
            state: aggregate([one.durations_ms.get(state, -1) for one in executions]) for state in _LASTING
        },
    }


# ---------------------------------------------------------------------- where a task runs


def _has_run(execution: ExecutionDescription) -> bool:
    return execution.first_epoch is not None or execution.running_epoch is not None


def host_of(job: JobDescription, execution: ExecutionDescription) -> str:
    """The host on which an execution has run last."""
    if execution.host is not None:
        return execution.host
    return job.driver.host if _has_run(execution) else UNASSIGNED


def task_manager_of(job: JobDescription, execution: ExecutionDescription) -> str:
    """The id of the task manager, which is an executor of Spark or the driver, that an execution has run on last."""
    if execution.executor is None and not _has_run(execution):
        return UNASSIGNED
    if job.task_manager_ids:
        # an executor that nobody knows is that of a worker that cannot tell: without /proc, each is said to be 'driver'
        return job.task_manager_ids.get(execution.executor or DRIVER, UNASSIGNED)
    return job.task_manager_id(execution.host or job.driver.host, execution.executor or DRIVER)


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
