"""Requests to a running job from another process (the command line), as files in the job directory.

What stands in the names of the files (`StoredRequest`, `Answer`) is the token of the driver that was asked, and an id.

Rule: a request is carried out once, by the driver that it names and by no other one, before it expires. Whoever asked
withdraws it when it gives up, and deletes the answer; what a killed process has left expires or is deleted by the next
driver. What it asks for is an operation of the JobManager, with the id of the request. One that takes its time (a
savepoint, a stop) holds up no other one. A file that is no request is answered with what is wrong with it. The answer
to a request that ends the job is written before the directory is given back.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flinkish.checkpoint.manifest import Manifest
from flinkish.common.arguments import abbreviated
from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_status import JobStatus
from flinkish.errors import ConfigurationError, FinalOperationError, FlinkishError, OperationError, message_of
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Liveness, liveness_of
from flinkish.jobdir.layout import Answer, Owner, SavingNote, StoredRequest
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.operations import Kind, Request
from flinkish.storage.files import child_names, is_directory
from flinkish.storage.paths import absolute

if TYPE_CHECKING:
    from flinkish.jobmanager.client import RunClient

_LOG = logging.getLogger("flinkish.JobManager")

#: Interval at which the driver looks for requests in a local directory, in seconds.
POLL_S = 0.5
#: The same for any other directory, where each look is a request to the storage.
REMOTE_POLL_S = 5.0
#: The longest such interval while the storage is away, in seconds: it doubles with each look that fails.
LONGEST_POLL_S = 30.0
#: How long a job that ends waits for the answers that are being made, in seconds.
LAST_ANSWER_S = 10.0
#: How long an answer that nobody fetches is kept, in seconds.
ANSWER_KEPT_S = 300.0
#: How long `ask` waits for an answer by default, in seconds.
TIMEOUT_S = 600.0

#: The form of the ids in the names of requests.
_OPERATION_ID = re.compile("[0-9a-f]{32}")

#: The most bytes of a request.
MAX_REQUEST_BYTES = StoredRequest.KIND.max_bytes

#: Begins what a request asks for, as the operation of an id (None: a new one), and returns at once; the future holds
#: the answer.
Action = Callable[["RunClient", StoredRequest, "str | None"], CompletableFuture[Any]]


def _operate(client: RunClient, request: StoredRequest, operation_id: str | None) -> CompletableFuture[Any]:
    asked = Request(
        Kind(request.action),
        client.run.job_id.to_hex_string(),
        request.directory,
        drain=request.drain,
        cancel_job=request.cancel_job,
        full=request.full,
    )
    operation = client.operations.trigger(asked, operation_id)
    outcome = client.operations.outcome(operation.id)
    assert outcome is not None, "it was triggered just now"
    return outcome


def _describe(client: RunClient, request: StoredRequest, _: str | None) -> CompletableFuture[Any]:
    """With earlier attempts of subtasks only if they are asked for: after some restarts of many subtasks they are most
    of the answer."""
    described = client.describe()
    return CompletableFuture.completed(asdict(described if request.attempts else described.without_earlier()))


def _look(client: RunClient, request: StoredRequest, _: str | None) -> CompletableFuture[Any]:
    """An operation that was asked for before, as of now; None: there is none, or its result is not kept any more."""
    found = client.operations.get(request.operation)
    if found is None:
        return CompletableFuture.completed(None)
    return CompletableFuture.completed(
        {
            "kind": found.request.kind.value,
            "completed": found.completed,
            "location": found.location,
            "checkpoint_id": found.checkpoint_id,
            "failure": None if found.failure is None else _text(found.failure),
        }
    )


#: Name of an action that can be requested -> the function that begins it.
ACTIONS: dict[str, Action] = {
    **dict.fromkeys((kind.value for kind in Kind), _operate),
    "describe": _describe,
    "operation": _look,
}


class RequestHandler(JobObserver):
    """Answers requests in the driver: a thread that looks for them in the job directory from its claim to the end of
    the job."""

    def __init__(self, client: RunClient, directory: JobDirectory) -> None:
        self._client = client
        self._directory = directory
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="flinkish-requests", daemon=True)
        #: run and id of a request -> the future answer
        self._pending: dict[tuple[str, ...], CompletableFuture[Any]] = {}
        #: (when it was answered, in seconds of the monotonic clock, its run and id), oldest first
        self._answered: deque[tuple[float, tuple[str, ...]]] = deque()
        #: those that could not be worked with, which is told once
        self._warned: set[tuple[str, ...]] = set()

    def open(self) -> None:
        """Start the thread, once the directory is this driver's; to be called once."""
        self._thread.start()

    def job_done(self, status: JobStatus) -> None:
        """Take no more requests; those that have been taken are answered before the directory is given back."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(LAST_ANSWER_S)

    # ------------------------------------------------------------------ the thread

    def _serve(self) -> None:
        failures = 0
        interval_s = POLL_S if self._directory.is_local else REMOTE_POLL_S
        while not self._closed.wait(min(interval_s * 2**failures, LONGEST_POLL_S)):
            try:
                found = self._directory.kept(StoredRequest)
            except Exception as error:
                # storage that is unavailable for a moment must not end the thread
                if not failures:
                    _LOG.warning("requests cannot be read, it is tried again and again: %s", error)
                failures = min(failures + 1, 16)
                continue
            if failures:
                _LOG.warning("requests can be read again")
                failures = 0
            for run, request in found:
                if run == self._directory.token:
                    self._try(self._take, run, request)
            self._answer_all()
            self._forget_answers()
        deadline = time.monotonic() + LAST_ANSWER_S
        while self._pending and time.monotonic() < deadline:
            self._answer_all()
            time.sleep(POLL_S / 10)

    def _try(self, work: Callable[..., None], *name: str) -> None:
        """Work on one file. The others must be worked on, too, whatever happens."""
        try:
            work(*name)
            self._warned.discard(name)
        except Exception as error:
            if name not in self._warned:
                self._warned.add(name)
                file = StoredRequest.file_name(*name)
                _LOG.warning("the request %s cannot be answered, it is tried again: %s", file, error)

    def _take(self, *name: str) -> None:
        try:
            request = self._directory.read(StoredRequest, *name)
            if request is None or name in self._pending:
                return
            action = _checked(request)
        except (FinalOperationError, ConfigurationError) as error:
            self._directory.delete(StoredRequest, *name)
            self._pending[name] = CompletableFuture.failed(error)
        else:
            self._directory.delete(StoredRequest, *name)
            self._pending[name] = self._begun(action, request, name[1])

    def _begun(self, action: Action, request: StoredRequest, operation: str) -> CompletableFuture[Any]:
        try:
            return action(self._client, request, operation if _OPERATION_ID.fullmatch(operation) else None)
        except Exception as error:
            return CompletableFuture.failed(error)

    def _answer_all(self) -> None:
        for name in [name for name, future in self._pending.items() if future.done()]:
            self._try(self._answer, *name)

    def _answer(self, *name: str) -> None:
        self._directory.write(_answer_of(self._pending[name]), *name)
        del self._pending[name]
        self._answered.append((time.monotonic(), name))

    def _forget_answers(self) -> None:
        """Delete the answers whose askers must be gone."""
        while self._answered and self._answered[0][0] < time.monotonic() - ANSWER_KEPT_S:
            self._try(partial(self._directory.delete, Answer), *self._answered.popleft()[1])


def _answer_of(future: CompletableFuture[Any]) -> Answer:
    try:
        # values that JSON cannot express are given as text
        return Answer(json.loads(json.dumps(future.result(), default=str)))
    except Exception as error:
        return Answer(error=_text(error))


def _checked(request: StoredRequest) -> Action:
    """The action that a request asks for.

    Raises:
        ConfigurationError: there is no such action, or the request has expired.
    """
    action, now_ms = ACTIONS.get(request.action), int(time.time() * 1000)
    if action is None:
        what = f"unknown request {abbreviated(request.action, 100)}"
        raise ConfigurationError(what, expected=f"one of {', '.join(ACTIONS)}")
    if request.expires_ms < now_ms:
        raise ConfigurationError(
            f"the request {request.action} has expired: it was valid until {request.expires_ms} ms, now is {now_ms} ms",
            expected="a time in ms since 1970 that is not over yet",
            hint="ask again, with a longer --timeout; where the machines' clocks differ, set them",
        )
    return action


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, FlinkishError) else f"{type(error).__name__}: {message_of(error)}"


@dataclass(frozen=True)
class Sent:
    """A request that was sent to a driver. Its id is that of the operation that it asks for."""

    directory: JobDirectory
    #: the token of the driver
    run: str
    id: str
    action: str

    @property
    def _where(self) -> str:
        return f"job directory {self.directory.path}"

    @property
    def poll_s(self) -> float:
        """How long to wait between two looks for the answer, in seconds."""
        return (POLL_S if self.directory.is_local else REMOTE_POLL_S / 5) / 2

    def is_taken(self) -> bool:
        """Whether the driver has begun to carry it out."""
        return self.directory.read(StoredRequest, self.run, self.id) is None

    def answer(self) -> Answer | None:
        """The answer, whose ``value`` is that of `ask`; None: there is none yet.

        Raises:
            OperationError: the driver could not carry out the request, or has ended without an answer.
        """
        answer = self.directory.read(Answer, self.run, self.id)
        if answer is None:
            owner = self.directory.read(Owner)
            if owner is not None and owner.token == self.run and liveness_of(owner) is not Liveness.GONE:
                return None
            # a driver answers before it gives its directory back
            answer = self.directory.read(Answer, self.run, self.id)
            if answer is None:
                raise self._without_answer(owner)
        if answer.error is not None:
            raise OperationError(f"the driver could not {self.action}: {answer.error}", where=self._where)
        return answer

    def _without_answer(self, owner: Owner | None) -> OperationError:
        end = self.directory.end()
        ours = end is not None and end.run == self.run
        told = f": the job was {end.described()}" if end is not None and ours else _whole_stop(self.directory)
        return OperationError(
            f"the driver has ended without an answer{told}",
            where=self._where,
            hint="look at the driver's output and, if the job is to go on, start it again"
            if owner is None or owner.token == self.run
            else "another driver runs the job by now: ask again",
        )

    def withdraw(self) -> None:
        """Delete the request, if the driver has not taken it, and the answer."""
        self.directory.delete(StoredRequest, self.run, self.id)
        self.directory.delete(Answer, self.run, self.id)

    def late(self, timeout_s: float) -> OperationError:
        """The error that says that there was no answer in time."""
        return OperationError(
            f"the driver has not answered within {timeout_s:g} s",
            where=self._where,
            hint="look at the driver's output; the request has been withdrawn unless it was being carried out",
        )


def send(job_dir: str, action: str, timeout_s: float = TIMEOUT_S, **details: Any) -> Sent:
    """Send a request to the driver that runs a job, without waiting for its answer. Arguments are those of `ask`.

    Raises:
        ConfigurationError: there is no such action.
        OperationError: no driver runs the job.
    """
    if action not in ACTIONS:
        raise ConfigurationError(f"unknown request {action!r}", expected=f"one of {', '.join(ACTIONS)}")
    # a JobDirectory makes its directory
    directory = JobDirectory(job_dir) if is_directory(job_dir) else None
    owner = None if directory is None else directory.read(Owner)
    if directory is None or owner is None or liveness_of(owner) is Liveness.GONE:
        end = None if directory is None else directory.end()
        raise OperationError(
            "no driver runs a job in this directory" + ("" if end is None else f": it was {end.described()}"),
            where=f"job directory {absolute(job_dir)}",
            expected="the flinkish.job.dir of a running job",
            hint="check the path (further jobs of a program are below it, in jobs/); start the job first",
        )
    sent = Sent(directory, owner.token, uuid.uuid4().hex, action)
    expires_ms = int((time.time() + timeout_s) * 1000)
    directory.write(StoredRequest(action=action, **details, expires_ms=expires_ms), sent.run, sent.id)
    return sent


def sent_before(job_dir: str, operation: str) -> Sent | None:
    """The request with this id, if its answer is still there; None: it is not, or there is no such directory."""
    directory = JobDirectory(job_dir) if is_directory(job_dir) else None
    runs = [] if directory is None else [run for run, found in directory.kept(Answer) if found == operation]
    return Sent(directory, runs[0], operation, "carry it out") if directory is not None and runs else None


def ask(job_dir: str, action: str, timeout_s: float = TIMEOUT_S, **details: Any) -> Any:
    """Send a request to the driver that runs a job; returns its answer.

    Args:
        job_dir: the job's directory (``flinkish.job.dir``).
        action: ``savepoint``, ``stop``, ``cancel``, ``checkpoint``, ``dispose``, ``describe`` or ``operation``.
        timeout_s: how long to wait for the answer, in seconds.
        details: arguments of the action: ``directory`` and ``cancel_job`` for ``savepoint``; ``directory`` for
            ``dispose``; ``directory`` and ``drain`` for ``stop``; ``full`` for ``checkpoint``; ``attempts`` for
            ``describe``; the id ``operation`` for ``operation``.

    Returns:
        The path of the savepoint for ``savepoint`` and ``stop``, the number of the checkpoint for ``checkpoint``, None
        for ``cancel`` and ``dispose``; as dicts the job's description for ``describe``, and for ``operation`` what
        became of it (None: there is no such operation).

    Raises:
        ConfigurationError: there is no such action.
        OperationError: no driver runs the job, it did not answer in time, or it could not carry out the request.

    Example: ``ask("/data/jobs/clicks", "stop", drain=True)`` -> the savepoint's path.
    """
    sent = send(job_dir, action, timeout_s, **details)
    deadline = time.monotonic() + timeout_s
    try:
        while (answer := sent.answer()) is None:
            if time.monotonic() > deadline:
                raise sent.late(timeout_s)
            time.sleep(sent.poll_s)
    finally:
        sent.withdraw()
    return answer.value


def _whole_stop(directory: JobDirectory) -> str:
    """What to tell of the savepoint of a stop that a driver has written before it died; "": there is none."""
    for name in directory.kept(SavingNote):
        note = directory.read(SavingNote, *name)
        if note is not None and note.of_stop and Manifest.NAME in child_names(note.path):
            return f", but the savepoint of its stop is whole: {note.path}"
    return ""
