"""The views of metrics: those of the driver, of a job, of a vertex and of a subtask, single ones and aggregated ones.

Rule: without ``get``, a view lists names; with it, it gives the values of those that are there, as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from flinkish.jobmanager.job.description import (
    ExecutionDescription,
    JobDescription,
    JobManagerDescription,
    OperatorDescription,
    RatesDescription,
    VertexDescription,
)
from flinkish.rest.route import Asked, BadRequestError, Route
from flinkish.rest.views.checkpoints import state_size
from flinkish.rest.views.driver import process_metrics
from flinkish.rest.views.shapes import (
    ENDED,
    Json,
    back_pressure_level,
    job_of,
    subtask_of,
    sums_of,
    text_of,
    vertex_of,
)
from flinkish.rest.views.task_managers import metrics_of, task_manager_named, task_managers_of

Metrics = dict[str, Any]

#: Flink's watermark before the first one.
_NO_WATERMARK = -(2**63)

#: Characters that Flink replaces in the names of operators and metrics.
_REPLACED = str.maketrans(" .:,", "____")
#: The longest name of an operator in a metric's name (Flink's).
_LONGEST = 80


# ---------------------------------------------------------------------- values


def job_metrics(job: JobDescription, now_ms: int) -> Metrics:
    """Name -> value of the metrics of a job."""
    counts, last = job.checkpoints.counts, job.checkpoints.latest_completed
    running, restarting = (job.durations_ms.get(state, 0) for state in ("RUNNING", "RESTARTING"))
    is_up = job.status == "RUNNING"
    downtime = 0 if is_up or job.status in ENDED else now_ms - job.times_ms.get("FAILING", now_ms)
    found: Metrics = {
        "numRestarts": int(job.metrics.get("restarts", 0)),
        "fullRestarts": int(job.metrics.get("restarts", 0)),
        "numTaskFailures": int(job.metrics.get("task_failures", 0)),
        "uptime": now_ms - job.times_ms.get("RUNNING", now_ms) if is_up else 0 if job.status not in ENDED else -1,
        "downtime": max(downtime, 0),
        "runningTime": running,
        "restartingTime": restarting,
        "initializingTime": job.durations_ms.get("INITIALIZING", 0),
        "cancellingTime": job.durations_ms.get("CANCELLING", 0),
        "failingTime": job.durations_ms.get("FAILING", 0),
        "totalNumberOfCheckpoints": sum(counts.get(status, 0) for status in ("PENDING", "COMPLETED", "FAILED")),
        "numberOfCompletedCheckpoints": counts.get("COMPLETED", 0),
        "numberOfFailedCheckpoints": counts.get("FAILED", 0),
        "numberOfInProgressCheckpoints": counts.get("PENDING", 0),
        "lastCheckpointDuration": -1 if last is None else last.duration_ms or 0,
        "lastCheckpointSize": -1 if last is None else last.bytes_written,
        "lastCheckpointFullSize": -1 if last is None else state_size(last),
        "lastCheckpointExternalPath": "n/a" if last is None else last.path or "n/a",
        "lastCompletedCheckpointId": -1 if last is None else last.id,
        "lastCheckpointRestoreTimestamp": -1 if job.checkpoints.restored is None else job.checkpoints.restored.time_ms,
        "numEpochs": int(job.metrics.get("epochs", 0)),
        "numRecordsIn": int(job.metrics.get("records_in", 0)),
        "numRecordsOut": int(job.metrics.get("records_out", 0)),
    }
    if job.epochs:
        found["lastEpochDuration"] = job.epochs[-1].duration_ms
    return found


#: The rates of an execution of which none are known.
UNKNOWN_RATES = RatesDescription(*[math.nan] * 7)


def task_metrics(vertex: VertexDescription, execution: ExecutionDescription) -> Metrics:
    """Name -> value of the metrics of a task as a whole; NaN for what is not known."""
    rates, sums, held = execution.rates or UNKNOWN_RATES, sums_of(execution), execution.rates
    found: Metrics = {
        "numRecordsIn": sums.records_in,
        "numRecordsOut": sums.records_out,
        "numBytesIn": sums.bytes_in,
        "numBytesOut": sums.bytes_out,
        "numRecordsInPerSecond": rates.records_in,
        "numRecordsOutPerSecond": rates.records_out,
        "numBytesInPerSecond": rates.bytes_in,
        "numBytesOutPerSecond": rates.bytes_out,
        "busyTimeMsPerSecond": rates.busy_ms,
        "idleTimeMsPerSecond": rates.idle_ms,
        "backPressuredTimeMsPerSecond": rates.backpressured_ms,
        "accumulateBusyTimeMs": sums.busy_ms,
        "accumulateIdleTimeMs": sums.idle_ms,
        "accumulateBackPressuredTimeMs": sums.backpressured_ms,
        "isBackPressured": math.nan if held is None else back_pressure_level(held.backpressured_ms) != "ok",
        "stateSize": math.nan if execution.state_bytes is None else execution.state_bytes,
    }
    if vertex.level > 0:
        found["currentInputWatermark"] = watermark_of(execution)
    return found


def watermark_of(execution: ExecutionDescription) -> int:
    """The watermark of an execution; Flink's lowest one if it has none yet."""
    return _NO_WATERMARK if execution.watermark_ms is None else execution.watermark_ms


#: The metrics of operators that Flink has itself; one of a function that has such a name is not shown, as in Flink.
OF_OPERATORS = ("numRecordsIn", "numRecordsInPerSecond", "numRecordsOut", "numRecordsOutPerSecond")


class Operators:
    """The operators of a vertex, to whom the metrics of its executions belong."""

    def __init__(self, vertex: VertexDescription) -> None:
        self.first, self.last = vertex.operators[0], vertex.operators[-1]
        #: the longest uid first: a uid may have dots
        self._operators = sorted(vertex.operators, key=lambda one: -len(one.uid))
        #: name as the execution has it -> what is found for it
        self._found: dict[str, tuple[OperatorDescription, str] | None] = {}

    def metrics_of(self, execution: ExecutionDescription) -> Iterator[tuple[OperatorDescription, str, Any]]:
        """(operator, name of the metric, value): what comes into the chain, what leaves it, and what the functions
        have."""
        rates, sums = execution.rates or UNKNOWN_RATES, sums_of(execution)
        yield self.first, "numRecordsIn", sums.records_in
        yield self.first, "numRecordsInPerSecond", rates.records_in
        yield self.last, "numRecordsOut", sums.records_out
        yield self.last, "numRecordsOutPerSecond", rates.records_out
        yield from self.of_functions(execution)

    def of_functions(self, execution: ExecutionDescription) -> Iterator[tuple[OperatorDescription, str, Any]]:
        """(operator, name of the metric, value) of the metrics that functions and sources have."""
        for scoped, value in execution.metrics.items():
            found = self._found[scoped] if scoped in self._found else self._find(scoped)
            if found is not None:
                yield *found, value

    def _find(self, scoped: str) -> tuple[OperatorDescription, str] | None:
        for one in self._operators:
            if scoped.startswith(f"{one.uid}."):
                name = scoped[len(one.uid) + 1 :]
                found = None if name in OF_OPERATORS else (one, name)
                break
        else:
            found = None
        self._found[scoped] = found
        return found


def subtask_metrics(vertex: VertexDescription, execution: ExecutionDescription, operators: Operators) -> Metrics:
    """Name -> value of the metrics of a task and of its operators; the latter begin with the operator's name."""
    found = task_metrics(vertex, execution)
    for operator, name, value in operators.metrics_of(execution):
        found[f"{operator.name.translate(_REPLACED)[:_LONGEST]}.{name}"] = value
    return found


def cluster_metrics(jobs: JobManagerDescription) -> Metrics:
    """Name -> value of the metrics of the driver."""
    managers = task_managers_of(jobs).values()
    running = sum(job.status not in ENDED for job in jobs.jobs)
    return {
        "numRunningJobs": running,
        "numRegisteredTaskManagers": len(managers),
        "taskSlotsTotal": sum(one.slots for one in managers),
        "taskSlotsAvailable": sum(one.free_slots for one in managers),
        **process_metrics(),
    }


# ---------------------------------------------------------------------- single values


def _answer(asked: Asked, metrics: Mapping[str, Any]) -> list[Json]:
    wanted = asked.query.get("get")
    if wanted is None:
        return [{"id": name} for name in metrics]
    names = filter(metrics.__contains__, dict.fromkeys(wanted.split(",")))
    return [{"id": name, "value": text_of(metrics[name])} for name in names]


def of_driver(asked: Asked) -> list[Json]:
    """``/jobmanager/metrics``"""
    return _answer(asked, cluster_metrics(asked.jobs.describe()))


def of_task_manager(asked: Asked) -> list[Json]:
    """``/taskmanagers/:taskmanagerid/metrics``"""
    return _answer(asked, metrics_of(task_manager_named(asked)))


def of_job(asked: Asked) -> list[Json]:
    """``/jobs/:jobid/metrics``"""
    return _answer(asked, job_metrics(job_of(asked), asked.now_ms))


def of_subtask(asked: Asked) -> list[Json]:
    """``/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/metrics``"""
    _, vertex, one = subtask_of(asked)
    return _answer(asked, subtask_metrics(vertex, one.current, Operators(vertex)))


def of_vertex(asked: Asked) -> list[Json]:
    """``/jobs/:jobid/vertices/:vertexid/metrics``: those of all subtasks, with the number of the subtask before each
    name."""
    _, vertex = vertex_of(asked)
    operators = Operators(vertex)
    wanted = asked.query.get("get")
    if wanted is None:
        return [{"id": f"{number}.{name}"} for number, names in _names(vertex, operators) for name in names]
    numbers: dict[str, list[str]] = {}
    for scoped in dict.fromkeys(wanted.split(",")):
        number, _, name = scoped.partition(".")
        numbers.setdefault(number, []).append(name)
    found = []
    for one in vertex.subtasks:
        asked_for = numbers.get(str(one.subtask), ())
        metrics = subtask_metrics(vertex, one.current, operators) if asked_for else {}
        found += [
            {"id": f"{one.subtask}.{name}", "value": text_of(metrics[name])} for name in asked_for if name in metrics
        ]
    return found


def _names(vertex: VertexDescription, operators: Operators) -> Iterator[tuple[int, Iterable[str]]]:
    """The names of the metrics of each subtask, made once for all subtasks whose functions have the same metrics."""
    known: dict[tuple[str, ...], Metrics] = {}
    for one in vertex.subtasks:
        scoped = tuple(one.current.metrics)
        if scoped not in known:
            known[scoped] = subtask_metrics(vertex, one.current, operators)
        yield one.subtask, known[scoped]


def of_coordinators(asked: Asked) -> list[Json]:
    """``/jobs/:jobid/vertices/:vertexid/jm-operator-metrics``: there are none."""
    vertex_of(asked)
    return []


def watermarks(asked: Asked) -> list[Json]:
    """``/jobs/:jobid/vertices/:vertexid/watermarks``; none for a source."""
    _, vertex = vertex_of(asked)
    if vertex.level == 0:
        return []
    return [
        {"id": f"{one.subtask}.currentInputWatermark", "value": str(watermark_of(one.current))}
        for one in vertex.subtasks
    ]


# ---------------------------------------------------------------------- aggregated values


def _skew(values: Sequence[float]) -> float:
    """How far values are apart: their mean absolute deviation, in percent of their mean, and 100 at most."""
    mean = sum(values) / len(values)
    if len(values) < 2 or mean == 0:
        return 0.0
    return min(sum(abs(value - mean) for value in values) / len(values) / abs(mean) * 100, 100.0)


_AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
    "skew": _skew,
}


def _aggregated(asked: Asked, stores: Iterable[Mapping[str, Any]]) -> list[Json]:
    wanted = asked.query.get("get")
    if wanted is None:
        return [{"id": name} for name in dict.fromkeys(chain.from_iterable(stores))]
    how = [one.lower() for one in asked.query.get("agg", "").split(",") if one] or list(_AGGREGATIONS)
    unknown = [one for one in how if one not in _AGGREGATIONS]
    if unknown:
        raise BadRequestError(f"the aggregation '{unknown[0]}' is none of {', '.join(_AGGREGATIONS)}")
    kept, found = list(stores), []
    for name in dict.fromkeys(wanted.split(",")):
        values = [number for store in kept if name in store and (number := _number(store[name])) is not None]
        if values:
            found.append({"id": name, **{each: float(_AGGREGATIONS[each](values)) for each in how}})
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def of_all_jobs(asked: Asked) -> list[Json]:
    """``/jobs/metrics``"""
    wanted = set(filter(None, asked.query.get("jobs", "").split(",")))
    jobs = [job for job in asked.jobs.describe().jobs if not wanted or job.id in wanted]
    return _aggregated(asked, [job_metrics(job, asked.now_ms) for job in jobs])


def of_all_task_managers(asked: Asked) -> list[Json]:
    """``/taskmanagers/metrics``"""
    wanted = set(filter(None, asked.query.get("taskmanagers", "").split(",")))
    managers = task_managers_of(asked.jobs.describe())
    return _aggregated(asked, [metrics_of(one) for one in managers.values() if not wanted or one.id in wanted])


def of_all_subtasks(asked: Asked) -> list[Json]:
    """``/jobs/:jobid/vertices/:vertexid/subtasks/metrics``"""
    _, vertex = vertex_of(asked)
    wanted, operators = _subtasks_wanted(asked.query.get("subtasks", "")), Operators(vertex)
    executions = [one.current for one in vertex.subtasks if wanted is None or one.subtask in wanted]
    names = asked.query.get("get")
    if names is not None and "." not in names:
        # metrics of tasks alone
        return _aggregated(asked, [task_metrics(vertex, execution) for execution in executions])
    return _aggregated(asked, [subtask_metrics(vertex, execution, operators) for execution in executions])


#: The largest number of a subtask that is looked at.
_MOST_SUBTASKS = 2**15


def _subtasks_wanted(text: str) -> set[int] | None:
    """The numbers in a list such as ``1,3,5-9``; None: all."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        ends = [first, last] if dash else [first, first]
        if not all(end.isascii() and end.isdecimal() and len(end) < 10 for end in ends):
            raise BadRequestError(f"'{part}' is neither the number of a subtask nor a range of such numbers")
        begin, end = map(int, ends)
        found.update(range(begin, min(end, _MOST_SUBTASKS) + 1))
    return found if text else None


_VERTEX = "/jobs/{job}/vertices/{vertex}"

ROUTES = (
    Route("GET", "/jobmanager/metrics", of_driver),
    Route("GET", "/taskmanagers/metrics", of_all_task_managers),
    Route("GET", "/taskmanagers/{taskmanager}/metrics", of_task_manager),
    Route("GET", "/jobs/metrics", of_all_jobs),
    Route("GET", "/jobs/{job}/metrics", of_job),
    Route("GET", f"{_VERTEX}/metrics", of_vertex),
    Route("GET", f"{_VERTEX}/jm-operator-metrics", of_coordinators),
    Route("GET", f"{_VERTEX}/watermarks", watermarks),
    Route("GET", f"{_VERTEX}/subtasks/metrics", of_all_subtasks),
    Route("GET", f"{_VERTEX}/subtasks/{{subtask}}/metrics", of_subtask),
)
