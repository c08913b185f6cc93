"""Requests to a running job from another process (the command line), as files in the job directory.

    <job dir>/request-<id>.json    {"action": "stop", "drain": true, "directory": null}
    <job dir>/answer-<id>.json     {"value": "/data/savepoints/savepoint-..."} or {"error": "..."}

Rule: a request is carried out once, by the driver that owns the directory, and answered; the process that asked deletes
both files. A file that is no request is answered with what is wrong with it. The process that asked also withdraws a
request that nobody has taken because no driver runs.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import abbreviated
from flinkish.common.job_status import JobStatus
from flinkish.errors import ConfigurationError, FlinkishError, OperationError, message_of
from flinkish.jobmanager import live_jobs
from flinkish.jobmanager.directory.files import absolute, is_directory
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.job_run import JobObserver

if TYPE_CHECKING:
    from flinkish.jobmanager.client import RunClient

_REQUEST, _ANSWER, _SUFFIX = "request-", "answer-", ".json"
_LOG = logging.getLogger("flinkish.JobManager")

#: Interval at which the driver looks for requests, in seconds.
POLL_S = 0.5
#: How long a program that ends waits for the answer that is being written, in seconds.
LAST_ANSWER_S = 10.0
#: How long an answer is waited for after the driver has released the directory, in seconds: a driver releases it before
#: it answers the request that has ended its job.
GONE_S = 15.0
#: How long `ask` waits for an answer by default, in seconds.
TIMEOUT_S = 600.0

#: The most bytes of a request.
MAX_REQUEST_BYTES = 1024 * 1024

Action = Callable[["RunClient", dict[str, Any]], Any]


#: The arguments that a request may have, each with its types and what to call them.
_ARGUMENTS: dict[str, tuple[tuple[type, ...], str]] = {
    "directory": ((str, type(None)), "a text or null"),
    "drain": ((bool,), "true or false"),
}
#: Fields that the form of the files adds.
_FORM = {"version", "action"}


def _savepoint(client: RunClient, request: dict[str, Any]) -> Any:
    return client.trigger_savepoint(request.get("directory")).result()


def _stop(client: RunClient, request: dict[str, Any]) -> Any:
    return client.stop_from_outside(request.get("drain", False), request.get("directory")).result()


def _cancel(client: RunClient, request: dict[str, Any]) -> Any:
    live_jobs.asked_from_outside(client.run)
    client.cancel().result()
    return None


def _describe(client: RunClient, request: dict[str, Any]) -> Any:
    return asdict(client.describe())


#: Name of an action that can be requested -> the function that carries it out.
ACTIONS: dict[str, Action] = {"savepoint": _savepoint, "stop": _stop, "cancel": _cancel, "describe": _describe}


class RequestDesk(JobObserver):
    """Answers requests in the driver: a thread that looks for them in the job directory as long as the job runs."""

    def __init__(self, client: RunClient, directory: JobDirectory) -> None:
        self._client = client
        self._directory = directory
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="flinkish-requests", daemon=True)

    def attempt_started(self, attempt: int) -> None:
        """Start the thread with the first attempt."""
        if attempt == 0:
            # the program may end as soon as the job has ended: before the thread has answered the request to end it
            atexit.register(self._last_answer)
            self._thread.start()

    def job_done(self, status: JobStatus) -> None:
        """Take no more requests; the one that is being carried out is still answered."""
        self._closed.set()

    def _last_answer(self) -> None:
        if self._closed.is_set():
            self._thread.join(LAST_ANSWER_S)

    def _serve(self) -> None:
        while not self._closed.wait(POLL_S):
            try:
                names = self._directory.names(_REQUEST, _SUFFIX)
            except Exception as error:
                # storage that is unavailable for a moment must not end the thread
                _LOG.warning("requests cannot be read: %s", error)
                continue
            for name in names:
                try:
                    self._take(name)
                except Exception as error:
                    # the requests behind this one must be answered, too
                    _LOG.warning("the request %s cannot be answered: %s", name, error)
        atexit.unregister(self._last_answer)

    def _take(self, name: str) -> None:
        try:
            request = self._directory.read(name, limit=MAX_REQUEST_BYTES)
            if request is None:
                return
            action = _checked(request)
        except Exception as error:
            self._directory.delete(name)
            answer = {"error": _text(error)}
        else:
            self._directory.delete(name)
            answer = self._carry_out(action, request)
        self._directory.write(_ANSWER + name[len(_REQUEST) :], answer)

    def _carry_out(self, action: Action, request: dict[str, Any]) -> dict[str, Any]:
        try:
            # values that JSON cannot express are given as text
            return {"value": json.loads(json.dumps(action(self._client, request), default=str))}
        except Exception as error:
            return {"error": _text(error)}


def _checked(request: dict[str, Any]) -> Action:
    """The action that a request asks for.

    Raises:
        ConfigurationError: there is no such action, or an argument is unknown or of a wrong type.
    """
    name = request.get("action")
    action = ACTIONS.get(name) if isinstance(name, str) else None
    if action is None:
        raise ConfigurationError(f"unknown request {abbreviated(name, 100)}", expected=f"one of {', '.join(ACTIONS)}")
    for argument, value in request.items():
        if argument in _FORM:
            continue
        if argument not in _ARGUMENTS:
            raise ConfigurationError(
                f"the request {name} has an unknown argument {abbreviated(argument, 100)}",
                expected=f"none but {', '.join(_ARGUMENTS)}",
            )
        types, expected = _ARGUMENTS[argument]
        if not isinstance(value, types):
            raise ConfigurationError(
                f"the argument {argument} of the request {name} is {abbreviated(value, 100)}", expected=expected
            )
    return action


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, FlinkishError) else f"{type(error).__name__}: {message_of(error)}"


def ask(job_dir: str, action: str, timeout_s: float = TIMEOUT_S, **details: Any) -> Any:
    """Send a request to the driver that runs a job; returns its answer.

    Args:
        job_dir: the job's directory (``flinkish.job.dir``).
        action: ``savepoint``, ``stop``, ``cancel`` or ``describe``.
        timeout_s: how long to wait for the answer, in seconds.
        details: arguments of the action: ``directory`` for ``savepoint``; ``directory`` and ``drain`` for ``stop``.

    Returns:
        The path of the savepoint for ``savepoint`` and ``stop``, None for ``cancel``, and the job's description as a
        dict for ``describe``.

    Raises:
        ConfigurationError: there is no such action.
        OperationError: no driver runs the job, it did not answer in time, or it could not carry out the request.

    Example: ``ask("/data/jobs/clicks", "stop", drain=True)`` -> the savepoint's path.
    """
    if action not in ACTIONS:
        raise ConfigurationError(f"unknown request {action!r}", expected=f"one of {', '.join(ACTIONS)}")
    where = f"job directory {absolute(job_dir)}"
    # a JobDirectory makes its directory
    directory = JobDirectory(job_dir) if is_directory(job_dir) else None
    if directory is None or directory.read("owner.json") is None or not directory.has_living_owner():
        raise OperationError(
            "no driver runs a job in this directory",
            where=where,
            expected="the flinkish.job.dir of a running job",
            hint="check the path (further jobs of a program are below it, in jobs/); start the job first",
        )
    name = uuid.uuid4().hex + _SUFFIX
    directory.write(_REQUEST + name, {"action": action, **details})
    try:
        answer = _wait_for_answer(directory, _ANSWER + name, timeout_s, where)
    finally:
        directory.delete(_REQUEST + name)
        directory.delete(_ANSWER + name)
    if "error" in answer:
        raise OperationError(f"the driver could not {action}: {answer['error']}", where=where)
    return answer["value"]


def _wait_for_answer(directory: JobDirectory, name: str, timeout_s: float, where: str) -> dict[str, Any]:
    now = time.monotonic()
    deadline, alive_s = now + timeout_s, now
    while (answer := directory.read(name)) is None:
        now = time.monotonic()
        if directory.has_living_owner():
            alive_s = now
        if now - alive_s > GONE_S:
            raise OperationError(
                "the driver has ended without an answer",
                where=where,
                hint="look at the driver's output and, if the job is to go on, start it again",
            )
        if now > deadline:
            raise OperationError(
                f"the driver has not answered within {timeout_s:g} s",
                where=where,
                hint="look at the driver's output; the request has been withdrawn unless it was being carried out",
            )
        time.sleep(POLL_S / 2)
    return answer
