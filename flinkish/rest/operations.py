"""The routes that ask something of a job: savepoints, stops, cancellations, checkpoints, disposals of savepoints.

Rule: a request is accepted at once, and its outcome is polled for by the id that the answer names; the client may
choose that id, and asks for the same thing only once then, however often it sends the request. A failure is an outcome,
never a status code. What cannot be asked of a driver is refused with a sentence that says what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from flinkish.common.job_status import JobStatus
from flinkish.errors import ConfigurationError
from flinkish.jobmanager.job.operations import Kind, Operation, Request
from flinkish.rest.failures import failure_cause
from flinkish.rest.route import Asked, BadRequestError, ConflictError, ForbiddenError, NotFoundError, Route, Status

_ID = re.compile("[0-9a-f]{32}")
_ENDED = {status.name for status in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED)}
#: The most characters of a path.
_MAX_PATH = 4_096


def _field(body: Mapping[str, Any], name: str, kind: type, what: str, default: Any = None) -> Any:
    """A field of a body; its default if it is missing or null.

    Raises:
        BadRequestError: it is of another type.
    """
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, str) and len(value) > _MAX_PATH):
        raise BadRequestError(f"The field '{name}' of the body is not {what}.")
    return value


def _text(body: Mapping[str, Any], name: str) -> str | None:
    text: str | None = _field(body, name, str, f"a text of at most {_MAX_PATH} characters")
    return text or None


def _flag(body: Mapping[str, Any], name: str) -> bool:
    return bool(_field(body, name, bool, "true or false", False))


def _choice(body: Mapping[str, Any], name: str, *choices: str) -> str:
    text = _text(body, name) or choices[0]
    if text.upper() not in choices:
        raise BadRequestError(f"The field '{name}' of the body is none of {', '.join(choices)}.")
    return text.upper()


def _triggered(asked: Asked, request: Request) -> Operation:
    """Begin what a request asks for, unless it was begun under that id before.

    Raises:
        NotFoundError: there is no such job.
        ConflictError: the job has ended, or the id is that of something else.
    """
    chosen = _text(asked.body, "triggerId")
    if chosen is not None and not _ID.fullmatch(chosen):
        raise BadRequestError("The field 'triggerId' of the body is no id of 32 hexadecimal digits.")
    known = chosen is not None and asked.jobs.operations.get(chosen) is not None
    if request.job_id is not None and not known:
        job = asked.jobs.describe_job(request.job_id)
        if job.status in _ENDED:
            raise ConflictError(f"Job {job.id} has ended: it is {job.status}.")
    try:
        return asked.jobs.operations.trigger(request, chosen)
    except ConfigurationError as error:
        raise ConflictError(error.message) from error


def _accepted(asked: Asked, request: Request, code: int = 202) -> Status:
    return Status(code, {"request-id": _triggered(asked, request).id})


def _savepoint(asked: Asked) -> Status:
    _choice(asked.body, "formatType", "CANONICAL", "NATIVE")
    return _accepted(
        asked,
        Request(
            Kind.SAVEPOINT,
            asked.path["job"],
            _text(asked.body, "target-directory"),
            cancel_job=_flag(asked.body, "cancel-job"),
        ),
    )


def _stop(asked: Asked) -> Status:
    _choice(asked.body, "formatType", "CANONICAL", "NATIVE")
    return _accepted(
        asked,
        Request(Kind.STOP, asked.path["job"], _text(asked.body, "targetDirectory"), drain=_flag(asked.body, "drain")),
    )


def _checkpoint(asked: Asked) -> Status:
    kind = _choice(asked.body, "checkpointType", "CONFIGURED", "FULL", "INCREMENTAL")
    return _accepted(asked, Request(Kind.CHECKPOINT, asked.path["job"], full=kind == "FULL"))


def _dispose(asked: Asked) -> Status:
    path = _text(asked.body, "savepoint-path")
    if path is None:
        raise BadRequestError("The body has no field 'savepoint-path'.")
    return _accepted(asked, Request(Kind.DISPOSE, directory=path), code=200)


def _cancel(asked: Asked) -> Status:
    mode = asked.query.get("mode", "cancel").lower()
    if mode == "stop":
        raise BadRequestError("A job is stopped by POST /jobs/:jobid/stop; this request can only cancel it.")
    if mode != "cancel":
        raise BadRequestError("The parameter 'mode' is not 'cancel'.")
    return _cancelled(asked, asked.path["job"])


def _cancelled(asked: Asked, job_id: str) -> Status:
    operation = _triggered(asked, Request(Kind.CANCEL, job_id))
    if operation.failure is not None:
        raise operation.failure
    return Status(202, {})


def _cancel_in_web_ui(parameter: str) -> Callable[[Asked], Status]:
    def answer(asked: Asked) -> Status:
        if not asked.features.web_cancel:
            raise ForbiddenError("Jobs are not cancelled in the Web UI here (web.cancel.enable); use 'flink cancel'.")
        return _cancelled(asked, asked.path[parameter])

    return answer


_IN_PROGRESS: dict[str, Any] = {"status": {"id": "IN_PROGRESS"}, "operation": None}


def _outcome(kinds: tuple[Kind, ...], told: Callable[[Operation], dict[str, Any]]) -> Callable[[Asked], dict[str, Any]]:
    """The answer to who polls for an operation of these kinds."""

    def answer(asked: Asked) -> dict[str, Any]:
        trigger, job_id = asked.path["trigger"], asked.path.get("job")
        operation = asked.jobs.operations.get(trigger)
        if operation is None or operation.request.kind not in kinds or operation.request.job_id != job_id:
            raise NotFoundError(f"There is no operation {trigger}, or its result is not kept any more.")
        return {"status": {"id": "COMPLETED"}, "operation": told(operation)} if operation.completed else _IN_PROGRESS

    return answer


def _location(operation: Operation) -> dict[str, Any]:
    if operation.failure is not None:
        return {"failure-cause": failure_cause(operation.failure)}
    return {"location": operation.location or ""}


def _number(operation: Operation) -> dict[str, Any]:
    if operation.failure is not None:
        return {"failureCause": failure_cause(operation.failure)}
    return {"checkpointId": operation.checkpoint_id or 0}


def _disposal(operation: Operation) -> dict[str, Any]:
    return {} if operation.failure is None else {"failure-cause": failure_cause(operation.failure)}


def _refuse(sentence: str) -> Callable[[Asked], Any]:
    def answer(asked: Asked) -> Any:
        raise ForbiddenError(sentence)

    return answer


_NO_JARS = _refuse(
    "flinkish runs Python programs, and a driver runs its own alone: start yours with 'flinkish run PROGRAM.py'."
)
_NO_RESCALING = _refuse(
    "The parallelism of a running job cannot be changed: stop it with a savepoint ('flink stop'), and start it from "
    "that with another one ('flinkish run -s SAVEPOINT -p N PROGRAM.py')."
)

OPERATIONS: tuple[Route, ...] = (
    Route("POST", "/jobs/{job}/savepoints", _savepoint),
    Route("GET", "/jobs/{job}/savepoints/{trigger}", _outcome((Kind.SAVEPOINT, Kind.STOP), _location)),
    Route("POST", "/jobs/{job}/stop", _stop),
    Route("POST", "/jobs/{job}/checkpoints", _checkpoint),
    Route("GET", "/jobs/{job}/checkpoints/{trigger}", _outcome((Kind.CHECKPOINT,), _number)),
    Route("POST", "/savepoint-disposal", _dispose),
    Route("GET", "/savepoint-disposal/{trigger}", _outcome((Kind.DISPOSE,), _disposal)),
    Route("PATCH", "/jobs/{job}", _cancel),
    Route("GET", "/jobs/{job}/yarn-cancel", _cancel_in_web_ui("job")),
    Route("POST", "/applications/{application}/cancel", _cancel_in_web_ui("application")),
    Route("PATCH", "/jobs/{job}/rescaling", _NO_RESCALING),
    Route("PUT", "/jobs/{job}/resource-requirements", _NO_RESCALING),
    Route("POST", "/jobs", _NO_JARS, takes_json=False),
    Route("GET", "/jars", lambda asked: {"address": "", "files": []}),
    Route("POST", "/jars/upload", _NO_JARS, takes_json=False),
    Route("POST", "/jars/{jar}/run", _NO_JARS, takes_json=False),
    Route("POST", "/jars/{jar}/plan", _NO_JARS, takes_json=False),
    Route("DELETE", "/jars/{jar}", _NO_JARS, takes_json=False),
    Route("DELETE", "/cluster", _refuse("A driver ends with its program: cancel or stop its jobs."), takes_json=False),
)
