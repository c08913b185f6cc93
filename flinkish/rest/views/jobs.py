"""The views of a job as a whole."""

from __future__ import annotations

import html
from contextlib import suppress
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.options import core
from flinkish.errors import FlinkishError
from flinkish.jobmanager.job.description import ExceptionDescription, JobDescription, VertexDescription
from flinkish.rest.failures import failure_cause_of
from flinkish.rest.route import Asked, BadRequestError, Route
from flinkish.rest.views.shapes import (
    ENDED,
    JOB_STATES,
    TASK_STATES,
    Json,
    counted,
    duration_ms,
    io_metrics,
    job_of,
    job_times,
    pairs,
    times_of,
    user_accumulators,
)

#: The slot sharing group of all vertices: Spark's slots are shared by all levels of a job.
_SHARED_SLOTS = "0" * 31 + "1"

#: The exceptions that are listed if the client does not say how many it wants, and the most of them.
_EXCEPTIONS, _MOST_EXCEPTIONS = 20, 100


def ids(asked: Asked) -> Json:
    """``/jobs``"""
    return {"jobs": [{"id": job.id, "status": job.status} for job in asked.jobs.describe().jobs]}


def overview(asked: Asked) -> Json:
    """``/jobs/overview``"""
    return {"jobs": [summary(job, asked.now_ms) for job in asked.jobs.describe().jobs]}


def summary(job: JobDescription, now_ms: int) -> Json:
    """A job in lists of jobs."""
    states = [subtask.current.state for vertex in job.vertices for subtask in vertex.subtasks]
    tasks = {state.lower(): count for state, count in counted(states).items()}
    return {
        "jid": job.id,
        "name": job.name,
        "jobType": job_type(job),
        "schedulerType": "Default",
        **job_times(job, now_ms),
        "state": job.status,
        "last-modification": max(job.times_ms.values(), default=job.start_time_ms),
        "tasks": {**tasks, "total": sum(vertex.parallelism for vertex in job.vertices)},
        "pending-operators": 0,
    }


def job_type(job: JobDescription) -> str:
    """BATCH or STREAMING."""
    return "BATCH" if job.configuration.get("execution.runtime-mode", "").upper() == "BATCH" else "STREAMING"


def details(asked: Asked) -> Json:
    """``/jobs/:jobid``"""
    job = job_of(asked)
    return {
        "jid": job.id,
        "name": job.name,
        "application-id": job.id,
        "isStoppable": False,
        "state": job.status,
        "job-type": job_type(job),
        "schedulerType": "Default",
        **job_times(job, asked.now_ms),
        "maxParallelism": max((vertex.max_parallelism for vertex in job.vertices), default=-1),
        "now": asked.now_ms,
        "timestamps": {state: job.times_ms.get(state, 0) for state in JOB_STATES},
        "vertices": [_vertex(vertex, asked.now_ms) for vertex in job.vertices],
        "status-counts": counted(vertex.state for vertex in job.vertices),
        "plan": _plan(job),
        "pending-operators": 0,
    }


def _vertex(vertex: VertexDescription, now_ms: int) -> Json:
    executions = [subtask.current for subtask in vertex.subtasks]
    return {
        "id": vertex.job_vertex_id,
        "slotSharingGroupId": _SHARED_SLOTS,
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": vertex.state,
        **times_of(executions, now_ms),
        "tasks": counted((execution.state for execution in executions), TASK_STATES),
        "metrics": io_metrics(executions),
    }


def plan(asked: Asked) -> Json:
    """``/jobs/:jobid/plan``"""
    return {"plan": _plan(job_of(asked))}


def _plan(job: JobDescription) -> Json:
    vertex_ids = {vertex.id: vertex.job_vertex_id for vertex in job.vertices}
    return {
        "jid": job.id,
        "name": job.name,
        "type": job_type(job),
        "nodes": [_node(vertex, vertex_ids) for vertex in job.vertices],
    }


def _node(vertex: VertexDescription, vertex_ids: dict[int, str]) -> Json:
    shown = [html.escape(operator.description or operator.name) for operator in vertex.operators]
    first, *others = shown or [""]
    inputs = [
        {
            "num": number,
            "id": vertex_ids[edge.source],
            "ship_strategy": edge.ship_strategy,
            "exchange": "pipelined_bounded",
        }
        for number, edge in enumerate(vertex.edges)
    ]
    node: Json = {
        "id": vertex.job_vertex_id,
        "parallelism": vertex.parallelism,
        "operator": "",
        "operator_strategy": "",
        "description": "".join([f"{first}<br/>", *(f"+- {other}<br/>" for other in others)]),
        "optimizer_properties": {},
    }
    return {**node, "inputs": inputs} if inputs else node


def config(asked: Asked) -> Json:
    """``/jobs/:jobid/config``"""
    job = job_of(asked)
    given = Configuration.from_dict(dict(job.configuration))
    parameters: dict[str, str] = {}
    reuse, parallelism = False, None
    # a value that was hidden because it may be a secret cannot be read
    with suppress(FlinkishError):
        parameters = {name: str(value) for name, value in given.get(core.GLOBAL_JOB_PARAMETERS).items()}
    with suppress(FlinkishError):
        reuse, parallelism = given.get(core.OBJECT_REUSE), given.get(core.PARALLELISM)
    widest = max((vertex.parallelism for vertex in job.vertices), default=1)
    return {
        "jid": job.id,
        "name": job.name,
        "execution-config": {
            "restart-strategy": job.restart_strategy,
            "job-parallelism": parallelism or widest,
            "object-reuse-mode": reuse,
            "user-config": parameters,
        },
    }


def configuration(asked: Asked) -> list[Json]:
    """``/jobs/:jobid/jobmanager/config``"""
    return pairs(job_of(asked).configuration)


# ---------------------------------------------------------------------- exceptions


def exceptions(asked: Asked) -> Json:
    """``/jobs/:jobid/exceptions``, the newest first."""
    job = job_of(asked)
    labels = _labels_wanted(asked.query.get("failureLabelFilter", ""))
    entries = [_exception(job, one) for one in reversed(job.exceptions)]
    entries = [one for one in entries if labels.items() <= one["failureLabels"].items()]
    most = _count(asked, "maxExceptions", _EXCEPTIONS)
    return {"exceptionHistory": {"entries": entries[:most], "truncated": len(entries) > most}}


def _labels_wanted(text: str) -> dict[str, str]:
    wanted = {}
    for part in filter(None, text.split(",")):
        key, colon, value = part.partition(":")
        if not colon:
            raise BadRequestError(f"the failure label filter '{part}' is not of the form key:value")
        wanted[key] = value
    return wanted


def _count(asked: Asked, name: str, default: int) -> int:
    text = asked.query.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadRequestError(f"{name} must be a positive number")
    return min(int(text) if text else default, _MOST_EXCEPTIONS)


def _exception(job: JobDescription, failure: ExceptionDescription) -> Json:
    return {**_one(job, failure), "concurrentExceptions": [_one(job, other) for other in failure.concurrent]}


def _one(job: JobDescription, failure: ExceptionDescription) -> Json:
    name = error_name(failure)
    labels = {"who": failure.who, "retryable": str(failure.retryable).lower()}
    found: Json = {
        "exceptionName": name,
        "stacktrace": stack_trace(failure),
        "timestamp": failure.time_ms,
        "failureLabels": {**labels, "retried": "true"} if failure.retried else labels,
    }
    if failure.task is not None:
        found["taskName"] = f"{failure.task} - execution #{failure.attempt}"
    if failure.host is not None and failure.executor is not None:
        found["endpoint"] = failure.host
        found["taskManagerId"] = job.task_manager_id(failure.host, failure.executor)
    return found


def error_name(failure: ExceptionDescription) -> str:
    """The full name of an exception's class."""
    return f"flinkish.errors.{failure.error_class}"


def stack_trace(failure: ExceptionDescription) -> str:
    """What an exception says, with the traceback of the program, in place of a stack trace of Java."""
    lines = [f"{error_name(failure)}: {failure.message}"]
    if failure.place:
        lines.append(f"in {failure.place}")
    return "\n".join([*lines, *([failure.traceback] if failure.traceback else [])])


def application_exceptions(asked: Asked) -> Json:
    """``/applications/:applicationid/exceptions``: the failure with which the job has failed, if it has."""
    job = job_of(Asked(asked.jobs, asked.now_ms, {"job": asked.path["application"]}))
    last = [one for one in job.exceptions if not one.retried][-1:] if job.status == "FAILED" else []
    return {
        "exceptionHistory": {
            "entries": [
                {
                    "exceptionName": error_name(one),
                    "stacktrace": stack_trace(one),
                    "timestamp": one.time_ms,
                    "jobId": job.id,
                }
                for one in last
            ]
        }
    }


# ---------------------------------------------------------------------- accumulators, status and result


def accumulators(asked: Asked) -> Json:
    """``/jobs/:jobid/accumulators``. The serialized values, which are Java objects, are left out."""
    job = job_of(asked)
    return {
        "job-accumulators": [],
        "user-task-accumulators": user_accumulators(job.accumulators, job.accumulator_types),
        "serialized-user-task-accumulators": {},
    }


def status(asked: Asked) -> Json:
    """``/jobs/:jobid/status``"""
    return {"status": job_of(asked).status}


#: Status of a job that has ended -> how its result calls it.
APPLICATION_RESULTS = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "CANCELED": "CANCELED"}


def execution_result(asked: Asked) -> Json:
    """``/jobs/:jobid/execution-result``"""
    job = job_of(asked)
    if job.status not in ENDED:
        return {"status": {"id": "IN_PROGRESS"}, "job-execution-result": None}
    result: dict[str, Any] = {
        "id": job.id,
        "application-status": APPLICATION_RESULTS.get(job.status, "UNKNOWN"),
        "accumulator-results": {},
        "net-runtime": duration_ms(job, asked.now_ms),
        "name": job.name,
        "application-id": job.id,
        "start-time": job.start_time_ms,
        "end-time": -1 if job.end_time_ms is None else job.end_time_ms,
    }
    failures = [one for one in job.exceptions if not one.retried]
    if job.status == "FAILED" and failures:
        last = failures[-1]
        result["failure-cause"] = failure_cause_of(error_name(last), last.message, stack_trace(last))
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


ROUTES = (
    Route("GET", "/jobs", ids),
    Route("GET", "/jobs/overview", overview),
    Route("GET", "/jobs/{job}", details),
    Route("GET", "/jobs/{job}/plan", plan),
    Route("GET", "/jobs/{job}/config", config),
    Route("GET", "/jobs/{job}/jobmanager/config", configuration),
    Route("GET", "/jobs/{job}/exceptions", exceptions),
    Route("GET", "/jobs/{job}/accumulators", accumulators),
    Route("GET", "/jobs/{job}/status", status),
    Route("GET", "/jobs/{job}/execution-result", execution_result),
    Route("GET", "/applications/{application}/exceptions", application_exceptions),
)
