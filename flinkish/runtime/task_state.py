"""The lifecycle of a task downstream of a shuffle, and of a standby task (Kafka Streams' Task.State).

    CREATED -> RESTORING -> RUNNING -> SUSPENDED -> CLOSED

A task is restored before it runs, the first time and after it was suspended. It is suspended before it is closed clean;
it can be closed dirty in any state. CLOSED is final: a task that is revived is another object.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum

from flinkish.errors import IllegalTransitionError

_LOG = logging.getLogger("flinkish.Task")

#: How long a task waits for a temporary failure to pass, such as storage that cannot be reached (ms).
TASK_TIMEOUT_MS = 60_000


class TaskState(Enum):
    """A state in the lifecycle of a task."""

    #: nothing of the task's stored state was read
    CREATED = "CREATED"
    #: the files that its state refers to are fetched to the executor's disk
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    #: the task will probably continue elsewhere; it keeps its state in memory until that is known
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
    """Return ``after`` if it may follow ``before``.

    >>> next_state(TaskState.CREATED, TaskState.RESTORING, "Map (1/2)").name
    'RESTORING'

    Raises:
        IllegalTransitionError: ``after`` may not follow ``before``.
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
    """The part of a task that keeps its place in the lifecycle, and its deadline while it waits for storage."""

    name: str
    task_state = TaskState.CREATED
    #: time at which the task fails if what it waits for has not succeeded (ms); None if it waits for nothing
    _deadline_ms: int | None = None

    def _to(self, state: TaskState) -> None:
        before, self.task_state = self.task_state, next_state(self.task_state, state, self.name)
        _LOG.debug("%s goes from %s to %s", self.name, before.name, state.name)

    def suspend(self) -> None:
        """Suspend the task, because it will probably continue elsewhere."""
        if self.task_state is not TaskState.SUSPENDED:
            self._to(TaskState.SUSPENDED)

    def maybe_init_task_timeout_or_throw(self, now_ms: int, error: Exception) -> None:
        """Wait after a temporary failure, or raise its error if the task has waited for `TASK_TIMEOUT_MS`."""
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + TASK_TIMEOUT_MS
        elif now_ms >= self._deadline_ms:
            raise error
        _LOG.warning("%s waits, for %d ms more at most: %s", self.name, self._deadline_ms - now_ms, error)

    @property
    def is_waiting(self) -> bool:
        """Whether the task waits for a temporary failure to pass."""
        return self._deadline_ms is not None

    def clear_task_timeout(self) -> None:
        """Stop waiting, because the task has made progress."""
        self._deadline_ms = None
