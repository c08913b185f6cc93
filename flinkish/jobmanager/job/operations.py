"""Operations: what somebody asks a driver to do with a job, at once acknowledged, and found again by its id.

The callers are REST, PyFlink's JobClient and the files of the job directory; what carries operations out is given.
Source of the semantics: Flink's asynchronous operations, which are idempotent by trigger id, and whose results are kept
for ``rest.async.store-duration``.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from flinkish.common.completable_future import CompletableFuture
from flinkish.errors import ConfigurationError, FlinkishError, InternalError, message_of
from flinkish.runtime.phases import Clock, ElapsedClock, SystemClock


class Kind(Enum):
    """What is asked for."""

    SAVEPOINT = "savepoint"
    STOP = "stop"
    CANCEL = "cancel"
    CHECKPOINT = "checkpoint"
    DISPOSE = "dispose"


@dataclass(frozen=True)
class Request:
    """One thing that somebody asks for."""

    kind: Kind
    #: id of the job, 32 hexadecimal digits; None: of a disposal, which belongs to no job
    job_id: str | None = None
    #: of a savepoint or a stop: where the savepoint is made, None: as configured; of a disposal: the savepoint
    directory: str | None = None
    #: of a stop: whether event time is advanced to its end before the savepoint
    drain: bool = False
    #: of a savepoint: whether the job is cancelled after it
    cancel_job: bool = False
    #: of a checkpoint: whether all state is written, not only what has changed
    full: bool = False


@dataclass(frozen=True)
class Operation:
    """A request that was accepted, and its outcome."""

    #: 32 hexadecimal digits
    id: str
    request: Request
    #: when it was accepted
    submitted_ms: int
    #: whether it has come to its end
    completed: bool = False
    #: path of the savepoint
    location: str | None = None
    #: number of the checkpoint
    checkpoint_id: int | None = None
    #: why it could not be carried out; None: it was, or it is not completed
    failure: FlinkishError | None = None


@dataclass
class _Entry:
    operation: Operation
    outcome: CompletableFuture[Any]
    #: when the outcome was seen first
    completed_ms: int | None = None


class Operations:
    """Accepts requests and keeps their outcomes. Any thread may use it; nothing waits.

    Args:
        start: begins to carry a request out, without waiting for its end; the future holds the path of a savepoint, the
            number of a checkpoint, or None. What it raises is the failure of the operation.
        keep_ms: how long an outcome is kept after the end of the operation.
        clock: gives the times.
    """

    #: The most operations that are kept; the oldest completed ones go first.
    MAX_OPERATIONS = 1_000

    def __init__(
        self,
        start: Callable[[Request], CompletableFuture[Any]],
        keep_ms: int = 300_000,
        clock: Clock | None = None,
    ) -> None:
        self._start = start
        self._keep_ms = keep_ms
        self._clock, self._elapsed = clock or SystemClock(), clock or ElapsedClock()
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def trigger(self, request: Request, operation_id: str | None = None) -> Operation:
        """Begin an operation, or return the one with that id, which is not begun a second time.

        Args:
            request: what is asked for.
            operation_id: 32 hexadecimal digits that the caller has chosen; None: a new id.

        Raises:
            ConfigurationError: the id belongs to another request.
        """
        with self._lock:
            self._forget()
            known = None if operation_id is None else self._entries.get(operation_id)
            if known is not None and known.operation.request != request:
                raise ConfigurationError(
                    f"the operation {operation_id} is another one: {known.operation.request.kind.value}",
                    expected="a new id for each operation",
                )
            if known is None:
                outcome: CompletableFuture[Any] = CompletableFuture()
                operation = Operation(operation_id or uuid.uuid4().hex, request, self._clock.now_ms())
                self._entries[operation.id] = known = _Entry(operation, outcome)
                begin = True
            else:
                begin = False
        if begin:
            # outside of the lock: whoever is asked may ask in turn
            try:
                known.outcome = self._start(request)
            except Exception as error:
                known.outcome.complete_exceptionally(error)
        return self._seen(known)

    def get(self, operation_id: str) -> Operation | None:
        """The operation as of now; None if there is none, or its outcome is not kept any more."""
        with self._lock:
            self._forget()
            known = self._entries.get(operation_id)
        return None if known is None else self._seen(known)

    def outcome(self, operation_id: str) -> CompletableFuture[Any] | None:
        """The future outcome of an operation, for who waits for it; None if there is none, or it is not kept any
        more."""
        with self._lock:
            known = self._entries.get(operation_id)
        return None if known is None else known.outcome

    def in_progress(self) -> tuple[Operation, ...]:
        """The operations that have not come to their end, oldest first."""
        with self._lock:
            kept = tuple(self._entries.values())
        return tuple(operation for known in kept if not (operation := self._seen(known)).completed)

    def _seen(self, known: _Entry) -> Operation:
        operation, outcome = known.operation, known.outcome
        if not outcome.done():
            return operation
        if known.completed_ms is None:
            known.completed_ms = self._elapsed.now_ms()
        error = outcome.exception()
        if error is not None:
            return replace(operation, completed=True, failure=_typed(error))
        result = outcome.result()
        if isinstance(result, int):
            return replace(operation, completed=True, checkpoint_id=result)
        return replace(operation, completed=True, location=None if result is None else str(result))

    def _forget(self) -> None:
        now_ms = self._elapsed.now_ms()
        for known in self._entries.values():
            if known.completed_ms is None and known.outcome.done():
                known.completed_ms = now_ms
        ended = [(known.completed_ms, name) for name, known in self._entries.items() if known.completed_ms is not None]
        surplus = len(self._entries) - self.MAX_OPERATIONS
        for place, (completed_ms, name) in enumerate(sorted(ended)):
            if place < surplus or now_ms - completed_ms > self._keep_ms:
                del self._entries[name]


def _typed(error: BaseException) -> FlinkishError:
    if isinstance(error, FlinkishError):
        return error
    return InternalError(f"{type(error).__name__}: {message_of(error)}", hint="please report this")
