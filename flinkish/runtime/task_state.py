"""The life of a task behind a shuffle, and of a standby task: which state may follow which (Kafka Streams' Task.State).

    CREATED -> RESTORING -> RUNNING -> SUSPENDED -> CLOSED

A task is restored before it runs, the first time and after it was suspended. It is closed clean by way of SUSPENDED;
one that is closed dirty may come from any state. CLOSED is the end: a task that is revived is another object.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum

from flinkish.errors import IllegalTransitionError

_LOG = logging.getLogger("flinkish.Task")

#: How long a task waits for something that passes, such as storage that cannot be reached (ms).
TASK_TIMEOUT_MS = 60_000


class TaskState(Enum):
    """Where a task stands."""

    #: nothing of its stored state was read
    CREATED = "CREATED"
    #: files that its state refers to are brought to the executor's disk
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    #: it will probably go on elsewhere: it keeps what it has in memory until that is known
    SUSPENDED = "SUSPENDED"
    CLOSED = "CLOSED"


_S = TaskState

TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    _S.CREATED: frozenset({_S.RESTORING, _S.SUSPENDED, _S.CLOSED}),
    _S.RESTORING: frozenset({_S.RUNNING, _S.SUSPENDED, _S.CLOSED}),
    _S.RUNNING: frozenset({_S.SUSPENDED, _S.CLOSED}),
    _S.SUSPENDED: frozenset({_S.RESTORING, _S.CLOSED}),
    _S.CLOSED: frozenset(),
}


def next_state(before: TaskState, after: TaskState, task: str) -> TaskState:
    """``after``, if it may follow ``before``.

    >>> next_state(TaskState.CREATED, TaskState.RESTORING, "Map (1/2)").name
    'RESTORING'

    Raises:
        IllegalTransitionError: it may not.
    """
    if after not in TRANSITIONS[before]:
        legal = sorted(state.name for state in TRANSITIONS[before])
        raise IllegalTransitionError(
            f"a task cannot go from {before.name} to {after.name}",
            where=f"task '{task}'",
            expected=" or ".join(legal) if legal else f"nothing after {before.name}, which is final",
            hint="please report this",
        )
    return after


class TaskLife:
    """The part of a task that knows where it stands."""

    name: str
    task_state = TaskState.CREATED
    #: when the task is given up unless what it waits for succeeds (ms); None: it waits for nothing
    _deadline_ms: int | None = None

    def _to(self, state: TaskState) -> None:
        before, self.task_state = self.task_state, next_state(self.task_state, state, self.name)
        _LOG.debug("%s goes from %s to %s", self.name, before.name, state.name)

    def suspend(self) -> None:
        """It will probably go on elsewhere."""
        if self.task_state is not TaskState.SUSPENDED:
            self._to(TaskState.SUSPENDED)

    def maybe_init_task_timeout_or_throw(self, now_ms: int, error: Exception) -> None:
        """Something that passes has kept the task from going on; raises the error when that has lasted too long."""
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + TASK_TIMEOUT_MS
        elif now_ms >= self._deadline_ms:
            raise error
        _LOG.warning("%s waits, for %d ms more at most: %s", self.name, self._deadline_ms - now_ms, error)

    @property
    def is_waiting(self) -> bool:
        """Whether something that passes keeps it from going on."""
        return self._deadline_ms is not None

    def clear_task_timeout(self) -> None:
        """The task goes on."""
        self._deadline_ms = None
