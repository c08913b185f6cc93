"""The views of a vertex, its subtasks and their attempts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkish.jobmanager.job.description import (
    ExecutionDescription,
    JobDescription,
    RatesDescription,
    SubtaskDescription,
    VertexDescription,
)
from flinkish.jobmanager.job.lifecycle import aggregated_state
from flinkish.rest.route import Asked, BadRequestError, NotFoundError, Route
from flinkish.rest.views.shapes import (
    ENDED,
    TASK_STATES,
    Json,
    aggregated,
    back_pressure_level,
    counted,
    host_of,
    io_metrics,
    status_duration,
    subtask_of,
    task_manager_of,
    times_of,
    user_accumulators,
    vertex_of,
)


def details(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid``"""
    job, vertex = vertex_of(asked)
    return {
        "id": vertex.job_vertex_id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": asked.now_ms,
        "subtasks": [_execution(job, one.subtask, one.current, asked.now_ms) for one in vertex.subtasks],
        "aggregated": aggregated([one.current for one in vertex.subtasks]),
    }


def _execution(job: JobDescription, subtask: int, execution: ExecutionDescription, now_ms: int) -> Json:
    times = times_of((execution,), now_ms)
    return {
        "subtask": subtask,
        "status": execution.state,
        "attempt": execution.attempt,
        "endpoint": host_of(job, execution),
        **times,
        "start_time": times["start-time"],
        "metrics": io_metrics((execution,)),
        "taskmanager-id": task_manager_of(job, execution),
        "status-duration": status_duration(execution),
    }


def task_managers(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/taskmanagers``"""
    job, vertex = vertex_of(asked)
    there: dict[str, list[ExecutionDescription]] = {}
    for subtask in vertex.subtasks:
        there.setdefault(task_manager_of(job, subtask.current), []).append(subtask.current)
    return {
        "id": vertex.job_vertex_id,
        "name": vertex.name,
        "now": asked.now_ms,
        "taskmanagers": [
            {
                "endpoint": host_of(job, executions[0]),
                "status": aggregated_state({execution.state for execution in executions}),
                **times_of(executions, asked.now_ms),
                "metrics": io_metrics(executions),
                "status-counts": counted((execution.state for execution in executions), TASK_STATES),
                "taskmanager-id": name,
                "aggregated": aggregated(executions),
            }
            for name, executions in there.items()
        ],
    }


def subtask_times(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/subtasktimes``"""
    job, vertex = vertex_of(asked)
    return {
        "id": vertex.job_vertex_id,
        "name": vertex.name,
        "now": asked.now_ms,
        "subtasks": [
            {
                "subtask": one.subtask,
                "endpoint": host_of(job, one.current),
                "duration": times_of((one.current,), asked.now_ms)["duration"],
                "timestamps": {state: one.current.times_ms.get(state, 0) for state in TASK_STATES},
            }
            for one in vertex.subtasks
        ],
    }


def subtask(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex``: its current attempt."""
    job, _, one = subtask_of(asked)
    return _execution(job, one.subtask, one.current, asked.now_ms)


def attempt(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt``"""
    job, _, one = subtask_of(asked)
    return _execution(job, one.subtask, _attempt_of(asked, one), asked.now_ms)


def _attempt_of(asked: Asked, one: SubtaskDescription) -> ExecutionDescription:
    number = int(asked.path["attempt"])
    for execution in (one.current, *reversed(one.earlier)):
        if execution.attempt == number:
            return execution
    raise NotFoundError(f"Could not find execution for subtask {one.subtask}, attempt {number}")


# ---------------------------------------------------------------------- back pressure and flame graph


def back_pressure(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/backpressure``: the shares of the last minute in which each subtask was busy,
    held back, or idle (``jobmanager/back_pressure.py``). Those of which that is not known are left out."""
    _, vertex = vertex_of(asked)
    known = [_pressure(one, one.current.rates) for one in vertex.subtasks if one.current.rates is not None]
    most = max((one["ratio"] for one in known), default=0.0)
    level = back_pressure_level(1000 * most) if known else None
    return {
        # Flink's word for figures that are not there yet
        "status": "ok" if known else "deprecated",
        "backpressureLevel": level,
        "backpressure-level": level,
        "end-timestamp": asked.now_ms if known else None,
        "subtasks": known or None,
    }


def _pressure(one: SubtaskDescription, rates: RatesDescription) -> Json:
    level = back_pressure_level(rates.backpressured_ms)
    return {
        "subtask": one.subtask,
        "attempt-number": one.current.attempt,
        "backpressureLevel": level,
        "backpressure-level": level,
        "ratio": rates.backpressured_ms / 1000,
        "idleRatio": rates.idle_ms / 1000,
        "busyRatio": rates.busy_ms / 1000,
    }


#: What Flink answers in the place of the time of a flame graph where there is none.
_ENDED, _SWITCHED_OFF, _WAITING = -1, -2, -3

#: Type of a flame graph -> the stacks that are in it: of threads that were on the CPU, or were not. Those of which that
#: is not known are in the full one alone.
_ON_CPU = {"full": (True, False, None), "on_cpu": (True,), "off_cpu": (False,)}


def flame_graph(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/flamegraph?type=&subtaskindex=``: the stacks of a vertex or of one of its
    subtasks, which are sampled because of this question."""
    _, vertex = vertex_of(asked)
    kind = asked.query.get("type", "full").lower()
    if kind not in _ON_CPU:
        raise BadRequestError(f"The type '{asked.query['type']}' of a flame graph is none of {', '.join(_ON_CPU)}.")
    subtask = asked.query.get("subtaskindex")
    if subtask is not None and subtask not in {str(one.subtask) for one in vertex.subtasks}:
        raise NotFoundError(f"Invalid subtask index {subtask} for vertex {vertex.job_vertex_id}")
    if vertex.state in ENDED:
        return {"endTimestamp": _ENDED}
    samples = asked.jobs.stack_samples(asked.path["job"])
    if samples is None:
        return {"endTimestamp": _SWITCHED_OFF}
    if not samples.stacks:
        return {"endTimestamp": _WAITING}
    root: Json = {"name": "root", "value": 0, "children": {}}
    for stack in samples.stacks:
        if stack.vertex != vertex.id or stack.on_cpu not in _ON_CPU[kind] or subtask not in (None, str(stack.subtask)):
            continue
        node = root
        node["value"] += stack.count
        for frame in stack.frames:
            node = node["children"].setdefault(frame, {"name": frame, "value": 0, "children": {}})
            node["value"] += stack.count
    return {"endTimestamp": samples.end_ms, "data": _with_lists(root)}


def _with_lists(node: Json) -> Json:
    """The node of a flame graph, with a list of those above it."""
    return {**node, "children": [_with_lists(child) for child in node["children"].values()]}


# ---------------------------------------------------------------------- accumulators


def accumulators(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/accumulators``: of all subtasks together, as far as they can be put
    together."""
    job, vertex = vertex_of(asked)
    totals = _together(job, (one.current for one in vertex.subtasks))
    return {"id": vertex.job_vertex_id, "user-accumulators": user_accumulators(totals, job.accumulator_types)}


def _together(job: JobDescription, executions: Iterable[ExecutionDescription]) -> dict[str, Any]:
    values: dict[str, list[Any]] = {}
    for execution in executions:
        for name, value in execution.accumulators.items():
            values.setdefault(name, []).append(value)
    found: dict[str, Any] = {}
    for name, each in values.items():
        if len(each) == 1:
            found[name] = each[0]
        elif job.accumulator_types.get(name, "").endswith("Counter") and not any(isinstance(one, str) for one in each):
            found[name] = sum(each)
    return found


def subtask_accumulators(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/subtasks/accumulators``"""
    job, vertex = vertex_of(asked)
    return {
        "id": vertex.job_vertex_id,
        "parallelism": vertex.parallelism,
        "subtasks": [
            {
                "subtask": one.subtask,
                "attempt": one.current.attempt,
                "endpoint": host_of(job, one.current),
                "user-accumulators": user_accumulators(one.current.accumulators, job.accumulator_types),
            }
            for one in vertex.subtasks
        ],
    }


def attempt_accumulators(asked: Asked) -> Json:
    """``/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt/accumulators``"""
    job, vertex, one = subtask_of(asked)
    execution = _attempt_of(asked, one)
    return {
        "subtask": one.subtask,
        "attempt": execution.attempt,
        "id": execution_id(job, vertex, one.subtask, execution.attempt),
        "user-accumulators": user_accumulators(execution.accumulators, job.accumulator_types),
    }


def execution_id(job: JobDescription, vertex: VertexDescription, number: int, attempt_number: int) -> str:
    """The id of an execution, in Flink's form."""
    return f"{job.id}_{vertex.job_vertex_id}_{number}_{attempt_number}"


_VERTEX = "/jobs/{job}/vertices/{vertex}"

ROUTES = (
    Route("GET", _VERTEX, details),
    Route("GET", f"{_VERTEX}/taskmanagers", task_managers),
    Route("GET", f"{_VERTEX}/subtasktimes", subtask_times),
    Route("GET", f"{_VERTEX}/backpressure", back_pressure),
    Route("GET", f"{_VERTEX}/flamegraph", flame_graph),
    Route("GET", f"{_VERTEX}/accumulators", accumulators),
    Route("GET", f"{_VERTEX}/subtasks/accumulators", subtask_accumulators),
    Route("GET", f"{_VERTEX}/subtasks/{{subtask}}", subtask),
    Route("GET", f"{_VERTEX}/subtasks/{{subtask}}/attempts/{{attempt}}", attempt),
    Route("GET", f"{_VERTEX}/subtasks/{{subtask}}/attempts/{{attempt}}/accumulators", attempt_accumulators),
)
