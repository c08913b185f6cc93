"""Remembers the savepoints that a driver takes of one job, beside the job's checkpoints: they are shown with them, and
have no part in when a checkpoint is due, in how many are retained, or in how many may fail.

Rule: what is remembered is bounded and needs no storage, so that no savepoint fails because of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flinkish.errors import message_of
from flinkish.jobmanager.checkpoints.coordinator import MAX_DESCRIPTIONS
from flinkish.jobmanager.description import CheckpointDescription
from flinkish.jobmanager.lifecycle.transitions import CheckpointState
from flinkish.runtime.phases import Clock, SystemClock


class SavepointLog:
    """The last savepoints that were taken of one job in this driver, and those that are being taken. Any thread may use
    it.

    Args:
        ended: called with the description of each savepoint that has completed or failed.
        clock: gives the times of savepoints; by default the machine's.
    """

    def __init__(self, ended: Callable[[CheckpointDescription], None], clock: Clock | None = None) -> None:
        self._ended = ended
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._taken = 0
        #: number -> description, oldest first
        self._known: dict[int, CheckpointDescription] = {}

    @contextmanager
    def taking(self, epoch: int, path: str) -> Iterator[Callable[..., None]]:
        """A savepoint of an epoch is taken within the block: it has failed if the block raises, otherwise completed.

        The block is given a function for what it learns of the savepoint, as fields of its description.
        """
        learned: dict[str, Any] = {}
        with self._lock:
            self._taken += 1
            number = self._taken
            state, now_ms = CheckpointState.PENDING.name, self._clock.now_ms()
            self._known[number] = CheckpointDescription(number, epoch, state, now_ms, is_savepoint=True, path=path)
            if len(self._known) > MAX_DESCRIPTIONS:
                del self._known[next(iter(self._known))]
            triggered = self._known[number]
        try:
            yield learned.update
        except BaseException as error:
            reason = f"{type(error).__name__}: {message_of(error)}"
            self._end(replace(triggered, status=CheckpointState.FAILED.name, path=None, failure_reason=reason))
            raise
        self._end(replace(triggered, status=CheckpointState.COMPLETED.name, **learned))

    def _end(self, description: CheckpointDescription) -> None:
        duration_ms = max(0, self._clock.now_ms() - description.trigger_time_ms)
        description = replace(description, duration_ms=duration_ms)
        with self._lock:
            if description.id in self._known:
                self._known[description.id] = description
        self._ended(description)

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last savepoints in the order in which they were triggered."""
        with self._lock:
            return tuple(self._known.values())
