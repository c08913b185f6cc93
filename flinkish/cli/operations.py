"""Asks a job's driver for an operation and waits for its outcome: by REST where the driver answers, else by files in
the job directory.

Rule: an operation has an id that both ways know. Who stops waiting, or never waited, finds it again by that.
"""

from __future__ import annotations

import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from flinkish.cli.targets import ENDED, Job
from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    FinalOperationError,
    OperationError,
)

if TYPE_CHECKING:
    from flinkish.jobmanager.requests import Sent
    from flinkish.rest.client import RestClient

#: The form of the id of an operation.
ID = re.compile("[0-9a-f]{32}")
#: The shortest and the longest time between two looks, in seconds.
_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.5
#: How long a driver may be silent that was asked for an operation, in seconds.
_SILENT_S = 60.0

#: What is asked for by POST -> the path of that, that of the outcome, and Flink's names of the arguments.
_PATHS: dict[str, tuple[str, str, dict[str, str]]] = {
    "savepoint": (
        "/jobs/{job}/savepoints",
        "/jobs/{job}/savepoints",
        {"directory": "target-directory", "cancel_job": "cancel-job"},
    ),
    "stop": ("/jobs/{job}/stop", "/jobs/{job}/savepoints", {"directory": "targetDirectory", "drain": "drain"}),
    "checkpoint": ("/jobs/{job}/checkpoints", "/jobs/{job}/checkpoints", {"full": "checkpointType"}),
    "dispose": ("/savepoint-disposal", "/savepoint-disposal", {"directory": "savepoint-path"}),
}


@dataclass(frozen=True)
class Outcome:
    """How an operation stands."""

    id: str
    #: False: it goes on
    completed: bool = True
    #: the path of a savepoint
    location: str | None = None
    #: the number of a checkpoint
    checkpoint: int | None = None


class Driver(Protocol):
    """The driver of a job, as somebody who asks it for operations needs it."""

    def begin(self, kind: str, timeout_s: float, **details: Any) -> str:
        """Ask for an operation; returns its id.

        Args:
            kind: ``savepoint``, ``stop``, ``cancel``, ``checkpoint`` or ``dispose``.
            timeout_s: how long the request holds, in seconds.
            details: ``directory``, ``cancel_job``, ``drain``, ``full``, as in `flinkish.jobmanager.requests.ask`.
        """

    def look(self, operation: str) -> Outcome:
        """How an operation stands.

        Raises:
            OperationError: it has failed, or is not known.
        """

    def has_begun(self, operation: str) -> bool:
        """Whether the driver has begun to carry it out."""

    def leave(self, operation: str, timeout_s: float) -> None:
        """Wait no longer for an operation that goes on.

        Raises:
            OperationError: it had not begun, and will not.
        """


class RestDriver:
    """A driver, or the process that forwards to it, which answers by REST."""

    def __init__(self, client: RestClient, job: Job | None = None) -> None:
        self._client = client
        self._job = job
        self._kinds: dict[str, str] = {}
        self._heard_s = time.monotonic()

    def begin(self, kind: str, timeout_s: float, **details: Any) -> str:
        """Ask for an operation; see `Driver.begin`."""
        operation = uuid.uuid4().hex
        if kind == "cancel":
            self._client.send("PATCH", self._path("/jobs/{job}"))
        else:
            path, _, names = _PATHS[kind]
            body: dict[str, Any] = {names[name]: value for name, value in details.items() if value is not None}
            if "checkpointType" in body:
                body["checkpointType"] = "FULL" if body["checkpointType"] else "CONFIGURED"
            answer = self._client.send("POST", self._path(path), {"triggerId": operation, **body})
            operation = str(answer.get("request-id", operation))
        self._kinds[operation] = kind
        return operation

    def look(self, operation: str) -> Outcome:
        """How an operation stands; see `Driver.look`."""
        try:
            outcome = self._looked(operation)
        except ConnectionFailedError as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                return self._of_directory(operation)
            if time.monotonic() - self._heard_s > _SILENT_S:
                raise
            return Outcome(operation, completed=False)
        self._heard_s = time.monotonic()
        return outcome

    def _looked(self, operation: str) -> Outcome:
        kind = self._kinds.get(operation)
        if kind == "cancel":
            with suppress(FinalOperationError):
                status = self._client.get(self._path("/jobs/{job}/status"))["status"]
                return Outcome(operation, completed=status in ENDED)
            return Outcome(operation)
        for one in ["savepoint", "checkpoint", "dispose"] if kind is None else [kind]:
            path = _PATHS[one][1]
            if "{job}" in path and self._job is None:
                continue
            with suppress(FinalOperationError):
                answer = self._client.get(f"{self._path(path)}/{operation}")
                return _outcome(operation, kind or "carry it out", answer)
        raise FinalOperationError(f"there is no operation {operation}, or its result is not kept any more")

    def has_begun(self, operation: str) -> bool:
        """What was asked for by REST has."""
        return True

    def leave(self, operation: str, timeout_s: float) -> None:
        """Wait no longer; see `Driver.leave`."""

    def _path(self, path: str) -> str:
        return path.format(job="" if self._job is None else self._job.id)

    def _of_directory(self, operation: str) -> Outcome:
        """The outcome that is known after the end of the driver: it ends with its last job."""
        if self._kinds.get(operation) == "cancel":
            return Outcome(operation)
        directory = None if self._job is None else self._job.directory
        if directory is not None:
            from flinkish.cli.ended import ended

            found = ended(directory)
            if found is not None and found.savepoint is not None:
                return Outcome(operation, location=found.savepoint)
        raise OperationError(
            "the driver has ended without an answer",
            where=f"operation {operation}",
            hint="'flinkish describe JOB_DIR' tells how the job has ended",
        )


class FileDriver:
    """A driver that is asked by files in the directory of its job."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._sent: dict[str, Sent] = {}

    def begin(self, kind: str, timeout_s: float, **details: Any) -> str:
        """Ask for an operation; see `Driver.begin`."""
        from flinkish.jobmanager.requests import send

        given = {name: value for name, value in details.items() if value is not None}
        sent = send(self._directory, kind, timeout_s, **given)
        self._sent[sent.id] = sent
        return sent.id

    def look(self, operation: str) -> Outcome:
        """How an operation stands; see `Driver.look`."""
        sent = self._sent.get(operation)
        if sent is not None:
            answer = sent.answer()
            if answer is None:
                return Outcome(operation, completed=False)
            sent.withdraw()
            return _of_value(operation, answer.value)
        from flinkish.jobmanager.requests import ask, sent_before

        earlier = sent_before(self._directory, operation)
        answer = None if earlier is None else earlier.answer()
        if answer is not None:
            return _of_value(operation, answer.value)
        found = ask(self._directory, "operation", operation=operation)
        if found is None:
            raise FinalOperationError(f"there is no operation {operation}, or its result is not kept any more")
        if found["failure"] is not None:
            raise OperationError(f"the driver could not {found['kind']}: {found['failure']}")
        return Outcome(operation, found["completed"], found["location"], found["checkpoint_id"])

    def has_begun(self, operation: str) -> bool:
        """Whether the driver has taken the request."""
        return self._sent[operation].is_taken()

    def leave(self, operation: str, timeout_s: float) -> None:
        """Wait no longer; see `Driver.leave`."""
        sent = self._sent[operation]
        if not sent.is_taken():
            sent.withdraw()
            raise sent.late(timeout_s)


def driver_of(job: Job) -> Driver:
    """The driver of a job."""
    if job.client is not None:
        return RestDriver(job.client, job)
    assert job.directory is not None, "a job that was found has a driver that answers, or a directory"
    return FileDriver(job.directory)


def carry_out(driver: Driver, kind: str, timeout_s: float, detached: bool = False, **details: Any) -> Outcome:
    """Ask for an operation, and wait for its outcome.

    Args:
        driver: who is asked.
        kind: what for.
        timeout_s: how long its outcome is waited for, in seconds.
        detached: wait only until the driver has begun.
        details: those of `Driver.begin`.

    Returns:
        The outcome; ``completed`` is False if the operation goes on.

    Raises:
        FlinkishError: the operation was refused or has failed.
    """
    operation = driver.begin(kind, timeout_s, **details)
    deadline_s, pause_s = time.monotonic() + timeout_s, _LOOK_S
    try:
        while not (outcome := driver.look(operation)).completed:
            if detached and driver.has_begun(operation):
                break
            if time.monotonic() >= deadline_s:
                driver.leave(operation, timeout_s)
                return outcome
            time.sleep(min(pause_s, max(0.0, deadline_s - time.monotonic())))
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
    except KeyboardInterrupt:
        driver.leave(operation, timeout_s)
        return Outcome(operation, completed=False)
    # who does not wait is told the same, however fast it was
    return Outcome(operation, completed=False) if detached else outcome


def checked_id(text: str) -> str:
    """The id of an operation.

    Raises:
        ConfigurationError: it has another form.
    """
    if not ID.fullmatch(text):
        raise ConfigurationError(f"'{text[:100]}' is no id of an operation", expected="32 hexadecimal digits")
    return text


def _of_value(operation: str, value: Any) -> Outcome:
    if isinstance(value, int):
        return Outcome(operation, checkpoint=value)
    return Outcome(operation, location=None if value is None else str(value))


def _outcome(operation: str, kind: str, answer: Any) -> Outcome:
    """What Flink's answer to who polls for an operation says."""
    try:
        if answer["status"]["id"] != "COMPLETED":
            return Outcome(operation, completed=False)
        told = answer["operation"]
        failure = told.get("failure-cause") or told.get("failureCause")
        if failure is None:
            number = told.get("checkpointId")
            return Outcome(operation, True, told.get("location") or None, None if number is None else int(number))
        text = str(failure["stack-trace"]).removeprefix(f"{failure['class']}: ")
    except (LookupError, TypeError, ValueError, AttributeError):
        raise OperationError("the driver's answer cannot be understood", where=f"operation {operation}") from None
    raise OperationError(f"the driver could not {kind}: {text}")
