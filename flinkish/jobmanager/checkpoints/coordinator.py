"""Decides which epoch's end becomes a checkpoint, and what follows from failed ones (Flink's CheckpointCoordinator).

Rule: every epoch's end is an aligned barrier; whether it becomes a checkpoint is decided here, by the clock and by the
outcome of the checkpoints before it. There is no Spark here and no thread of its own; any thread may call it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from flinkish.errors import CheckpointError
from flinkish.jobmanager.checkpoints.settings import CheckpointSettings
from flinkish.jobmanager.description import CheckpointDescription
from flinkish.jobmanager.lifecycle.state_machine import StateMachine
from flinkish.jobmanager.lifecycle.transitions import CHECKPOINT_TRANSITIONS, CheckpointState
from flinkish.runtime.phases import Clock, SystemClock

#: Number of checkpoints whose descriptions are kept.
MAX_DESCRIPTIONS = 100


@dataclass
class _Pending:
    """A checkpoint that has been triggered and has neither completed nor failed."""

    machine: StateMachine[CheckpointState]
    description: CheckpointDescription


class CheckpointCoordinator:
    """Decides when a checkpoint of one job is due, and follows the pending one to its end; at most one is pending.

    Args:
        settings: intervals, tolerable failures.
        where: names the job in errors.
        clock: the clock that decides when a checkpoint is due; by default the machine's.
        next_id: gives the number of a new checkpoint; numbers go on over restarts.
        ended: called with the description of each checkpoint that has completed or failed.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        where: str,
        next_id: Callable[[], int],
        clock: Clock | None = None,
        ended: Callable[[CheckpointDescription], None] = lambda description: None,
    ) -> None:
        self._settings = settings
        self._where = where
        self._clock = clock or SystemClock()
        self._next_id = next_id
        self._ended = ended
        self._lock = threading.RLock()
        self._past: deque[CheckpointDescription] = deque(maxlen=MAX_DESCRIPTIONS)
        self._pending: _Pending | None = None
        self._triggered_ms = self._clock.now_ms()
        self._ended_ms: int | None = None
        self._failures_in_a_row = 0

    # ------------------------------------------------------------------ when a checkpoint is due

    def due_in_ms(self) -> int | None:
        """Milliseconds until the end of an epoch should become a checkpoint, 0 for now; None while a checkpoint is
        pending, and if there is no checkpoint interval."""
        settings = self._settings
        with self._lock:
            if settings.interval_ms is None or self._pending is not None:
                return None
            now_ms = self._clock.now_ms()
            # a clock that was set back must not delay checkpoints
            if now_ms < self._triggered_ms:
                return 0
            paused_ms = 0 if self._ended_ms is None else self._ended_ms + settings.min_pause_ms - now_ms
            return max(0, paused_ms, self._triggered_ms + settings.interval_ms - now_ms)

    def trigger(self, epoch: int, path_of: Callable[[int], str] = str) -> CheckpointDescription:
        """Begin a checkpoint of a committed epoch. Call it only while none is pending. ``path_of``: number -> path of
        the checkpoint."""
        with self._lock:
            assert self._pending is None, "one checkpoint at a time"
            number, now_ms = self._next_id(), self._clock.now_ms()
            machine = StateMachine(CHECKPOINT_TRANSITIONS, f"checkpoint {number}", clock=self._clock)
            description = CheckpointDescription(
                id=number, epoch=epoch, status=machine.state.name, trigger_time_ms=now_ms, path=path_of(number)
            )
            self._pending = _Pending(machine, description)
            self._triggered_ms = now_ms
            return description

    # ------------------------------------------------------------------ the pending checkpoint

    def update(self, description: CheckpointDescription) -> None:
        """Replace the description of the pending checkpoint by one that says more."""
        with self._lock:
            if self._pending is not None and self._pending.description.id == description.id:
                self._pending.description = description

    def complete(self) -> CheckpointDescription:
        """Mark the pending checkpoint as completed."""
        with self._lock:
            self._failures_in_a_row = 0
            return self._end(CheckpointState.COMPLETED, None)

    def fail(self, reason: str, counts: bool = True) -> CheckpointError | None:
        """Mark the pending checkpoint as failed, or count one that could not be triggered if none is pending: it has no
        number, and the next one is due an interval later. Returns the error that the job must fail with when too many
        have failed in a row, otherwise None.

        ``counts``: False for a checkpoint that was aborted because the job is restarted or ends, or has another owner.
        """
        with self._lock:
            if self._pending is None:
                self._triggered_ms = self._clock.now_ms()
            else:
                self._end(CheckpointState.FAILED, reason)
            self._failures_in_a_row += counts
            failures = self._failures_in_a_row
            if failures <= self._settings.tolerable_failures:
                return None
            self._failures_in_a_row = 0
        return CheckpointError(
            f"{failures} checkpoint{'s'[: failures != 1]} in a row failed, the last one with: {reason}",
            where=self._where,
            expected=f"at most {self._settings.tolerable_failures} in a row "
            "(execution.checkpointing.tolerable-failed-checkpoints)",
            hint="mend what the last one failed with, or tolerate more failures",
        )

    def _end(self, state: CheckpointState, reason: str | None) -> CheckpointDescription:
        pending = self._pending
        assert pending is not None, "no checkpoint is pending"
        pending.machine.to(state, reason or "")
        now_ms = self._clock.now_ms()
        duration_ms = max(0, now_ms - pending.description.trigger_time_ms)
        last = replace(pending.description, status=state.name, duration_ms=duration_ms, failure_reason=reason)
        if state is CheckpointState.FAILED:
            last = replace(last, path=None)
        self._pending, self._ended_ms = None, now_ms
        self._past.append(last)
        self._ended(last)
        return last

    # ------------------------------------------------------------------ what is known

    @property
    def pending(self) -> CheckpointDescription | None:
        """The description of the pending checkpoint; None if there is none."""
        with self._lock:
            return None if self._pending is None else self._pending.description

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last checkpoints, oldest first, including the pending one."""
        with self._lock:
            pending = () if self._pending is None else (self._pending.description,)
            return (*self._past, *pending)
