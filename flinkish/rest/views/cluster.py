"""The views of the cluster: the driver as JobManager, the task managers, and applications, one for each job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from flinkish.errors import FinalOperationError, OperationError
from flinkish.jobmanager.job.description import JobDescription
from flinkish.jobmanager.job.task_managers import ReachableTaskManager
from flinkish.rest.route import Asked, NotFoundError, Route, Text, UnavailableError, UnsupportedError
from flinkish.rest.views import jobs, task_managers
from flinkish.rest.views.driver import DriverLog, environment, threads
from flinkish.rest.views.shapes import ENDED, Json, job_of, job_times, pairs
from flinkish.rest.views.task_managers import task_manager_named, task_managers_of

#: How often the Web UI asks, in ms (Flink's default of web.refresh-interval).
_REFRESH_MS = 3_000

#: Stands where Flink names its commit.
_COMMIT = "flinkish"

_LOG_FILE = "flinkish.log"


def overview(asked: Asked) -> Json:
    """``/overview``"""
    described = asked.jobs.describe()
    states = [job.status for job in described.jobs]
    managers = task_managers_of(described).values()
    return {
        "taskmanagers": len(managers),
        "slots-total": sum(one.slots for one in managers),
        "slots-available": sum(one.free_slots for one in managers),
        "jobs-running": sum(state not in ENDED for state in states),
        "jobs-finished": states.count("FINISHED"),
        "jobs-cancelled": states.count("CANCELED"),
        "jobs-failed": states.count("FAILED"),
        "flink-version": described.version,
        "flink-commit": _COMMIT,
    }


def config(asked: Asked) -> Json:
    """``/config``, what the Web UI asks for first."""
    offset_s = time.localtime(asked.now_ms / 1000).tm_gmtoff
    return {
        "refresh-interval": _REFRESH_MS,
        "timezone-name": time.strftime("%Z", time.localtime(asked.now_ms / 1000)) or "UTC",
        "timezone-offset": offset_s * 1000,
        "flink-version": asked.jobs.describe().version,
        "flink-revision": _COMMIT,
        "features": {
            "web-submit": asked.features.web_submit,
            "web-cancel": asked.features.web_cancel,
            "web-rescale": False,
            "web-history": False,
        },
    }


# ---------------------------------------------------------------------- applications

#: Job status -> that of the application of the job, where they differ.
_STATUS = {
    "INITIALIZING": "CREATED",
    "RESTARTING": "RUNNING",
    "RECONCILING": "RUNNING",
    "CANCELLING": "CANCELING",
    "SUSPENDED": "CANCELED",
}
#: All of them.
APPLICATION_STATES = ("CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "CANCELED", "FINISHED")


def applications(asked: Asked) -> Json:
    """``/applications/overview``"""
    return {
        "applications": [
            {**_application(job, asked.now_ms), "jobs": {job.status: 1}} for job in asked.jobs.describe().jobs
        ]
    }


def application_status(status: str) -> str:
    """The status of the application of a job with this status."""
    return _STATUS.get(status, status)


def _application(job: JobDescription, now_ms: int) -> Json:
    status = application_status(job.status)
    return {"id": job.id, "name": job.name, **job_times(job, now_ms), "status": status}


def application(asked: Asked) -> Json:
    """``/applications/:applicationid``"""
    job = job_of(_of_job(asked))
    times = dict.fromkeys(APPLICATION_STATES, 0)
    for state, time_ms in job.times_ms.items():
        name = application_status(state)
        times[name] = max(times[name], time_ms)
    return {**_application(job, asked.now_ms), "timestamps": times, "jobs": [jobs.summary(job, asked.now_ms)]}


def application_config(asked: Asked) -> list[Json]:
    """``/applications/:applicationid/jobmanager/config``"""
    return jobs.configuration(_of_job(asked))


def _of_job(asked: Asked) -> Asked:
    """The same, asked of the job of the application, which has its id."""
    return Asked(asked.jobs, asked.now_ms, {"job": asked.path["application"]}, asked.query)


# ---------------------------------------------------------------------- the driver


def driver_config(asked: Asked) -> list[Json]:
    """``/jobmanager/config``: the configuration of the newest job, since each job has its own."""
    newest = max(asked.jobs.describe().jobs, key=lambda job: job.start_time_ms, default=None)
    return [] if newest is None else pairs(newest.configuration)


def driver_environment(asked: Asked) -> Json:
    """``/jobmanager/environment``"""
    return environment()


def logs(asked: Asked) -> Json:
    """``/jobmanager/logs``"""
    log = DriverLog.installed()
    return {"logs": [{"name": _LOG_FILE, "size": log.size, "mtime": log.modified_ms}]}


def log(asked: Asked) -> Text:
    """``/jobmanager/log``"""
    return Text(DriverLog.installed().text())


def named_log(asked: Asked) -> Text:
    """``/jobmanager/logs/:filename``"""
    if asked.path["file"] != _LOG_FILE:
        raise NotFoundError("This file does not exist in JobManager log dir.")
    return log(asked)


def stdout(asked: Asked) -> Text:
    """``/jobmanager/stdout``"""
    return Text("What the program prints goes where its process was started.\n")


def thread_dump(asked: Asked) -> Json:
    """``/jobmanager/thread-dump``"""
    return {"threadInfos": threads()}


# ---------------------------------------------------------------------- task managers


def all_task_managers(asked: Asked) -> Json:
    """``/taskmanagers``"""
    managers = task_managers_of(asked.jobs.describe()).values()
    return {"taskmanagers": [task_managers.summary(one) for one in managers]}


def task_manager(asked: Asked) -> Json:
    """``/taskmanagers/:taskmanagerid``"""
    return task_managers.details(task_manager_named(asked))


@contextmanager
def _elsewhere(asked: Asked) -> Iterator[ReachableTaskManager | None]:
    """The task manager that the path names, if it is not the driver itself, which is known without asking."""
    manager = task_manager_named(asked)
    if manager.in_driver:
        yield None
        return
    try:
        reachable = asked.jobs.reach(manager.id)
    except FinalOperationError as error:
        raise UnsupportedError(error.message) from error
    try:
        yield reachable
    except FinalOperationError as error:
        raise NotFoundError(error.message) from error
    except OperationError as error:
        raise UnavailableError(error.message) from error


def task_manager_logs(asked: Asked) -> Json:
    """``/taskmanagers/:taskmanagerid/logs``"""
    with _elsewhere(asked) as manager:
        if manager is None:
            return logs(asked)
        return {"logs": [{"name": name, "size": size, "mtime": ms} for name, size, ms in manager.files()]}


def task_manager_log(asked: Asked) -> Text:
    """``/taskmanagers/:taskmanagerid/log``"""
    with _elsewhere(asked) as manager:
        return log(asked) if manager is None else Text(manager.tail("stderr"))


def task_manager_named_log(asked: Asked) -> Text:
    """``/taskmanagers/:taskmanagerid/logs/:filename``"""
    with _elsewhere(asked) as manager:
        return named_log(asked) if manager is None else Text(manager.tail(asked.path["file"]))


def task_manager_stdout(asked: Asked) -> Text:
    """``/taskmanagers/:taskmanagerid/stdout``"""
    with _elsewhere(asked) as manager:
        return stdout(asked) if manager is None else Text(manager.tail("stdout"))


def task_manager_threads(asked: Asked) -> Json:
    """``/taskmanagers/:taskmanagerid/thread-dump``"""
    with _elsewhere(asked) as manager:
        if manager is None:
            return thread_dump(asked)
        threads_there = [{"threadName": name, "stringifiedThreadInfo": text} for name, text in manager.threads()]
        return {"threadInfos": threads_there}


_MANAGER = "/taskmanagers/{taskmanager}"

ROUTES = (
    Route("GET", "/overview", overview),
    Route("GET", "/config", config),
    Route("GET", "/applications/overview", applications),
    Route("GET", "/applications/{application}", application),
    Route("GET", "/applications/{application}/jobmanager/config", application_config),
    Route("GET", "/jobmanager/config", driver_config),
    Route("GET", "/jobmanager/environment", driver_environment),
    Route("GET", "/jobmanager/logs", logs),
    Route("GET", "/jobmanager/logs/{file}", named_log),
    Route("GET", "/jobmanager/log", log),
    Route("GET", "/jobmanager/stdout", stdout),
    Route("GET", "/jobmanager/thread-dump", thread_dump),
    Route("GET", "/taskmanagers", all_task_managers),
    Route("GET", _MANAGER, task_manager),
    Route("GET", f"{_MANAGER}/logs", task_manager_logs),
    Route("GET", f"{_MANAGER}/logs/{{file}}", task_manager_named_log),
    Route("GET", f"{_MANAGER}/log", task_manager_log),
    Route("GET", f"{_MANAGER}/stdout", task_manager_stdout),
    Route("GET", f"{_MANAGER}/thread-dump", task_manager_threads),
)
