"""Decides which epoch's end becomes a checkpoint, and what follows from failed ones (Flink's CheckpointCoordinator).

Rule: every epoch's end is an aligned barrier; whether it becomes a checkpoint is decided here, by the clock and by what
became of the checkpoints before it. Pure: no Spark, no thread of its own; any thread may call it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from flinkish.errors import CheckpointError
from flinkish.jobmanager.checkpoints.settings import CheckpointSettings
from flinkish.jobmanager.description import CheckpointDescription
from flinkish.jobmanager.lifecycle.checkpoint import CHECKPOINT_TRANSITIONS, CheckpointState
from flinkish.jobmanager.lifecycle.state_machine import StateMachine
from flinkish.runtime.clock import Clock, SystemClock

#: Descriptions of so many checkpoints are kept.
MAX_DESCRIPTIONS = 100


@dataclass
class _Pending:
    """The checkpoint that is being taken."""

    machine: StateMachine[CheckpointState]
    description: CheckpointDescription


class CheckpointCoordinator:
    """See the module.

    Args:
        settings: intervals, timeout, tolerable failures.
        where: names the job in errors.
        clock: of the decisions.
        next_id: gives the number of a new checkpoint; numbers go on over restarts.
        ended: hears of each checkpoint that has completed or failed.
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

    # ------------------------------------------------------------------ when

    def due_in_ms(self) -> int | None:
        """How long until the end of an epoch should become a checkpoint, 0 for now; None: not while another one is
        pending, or never."""
        settings = self._settings
        with self._lock:
            if settings.interval_ms is None or self._pending is not None:
                return None
            now_ms = self._clock.now_ms()
            # a clock that was put back must not put checkpoints off
            if now_ms < self._triggered_ms:
                return 0
            paused_ms = 0 if self._ended_ms is None else self._ended_ms + settings.min_pause_ms - now_ms
            return max(0, paused_ms, self._triggered_ms + settings.interval_ms - now_ms)

    def trigger(self, epoch: int, path_of: Callable[[int], str] = str) -> CheckpointDescription:
        """Begin a checkpoint of an epoch that is committed. Call it only while no other is pending."""
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

    # ------------------------------------------------------------------ what became of it

    def update(self, description: CheckpointDescription) -> None:
        """More is known of the pending checkpoint."""
        with self._lock:
            if self._pending is not None and self._pending.description.id == description.id:
                self._pending.description = description

    def expired(self) -> bool:
        """Whether the pending checkpoint has taken longer than it may."""
        with self._lock:
            if self._pending is None:
                return False
            elapsed_ms = self._clock.now_ms() - self._pending.description.trigger_time_ms
            return elapsed_ms >= self._settings.timeout_ms

    def complete(self) -> CheckpointDescription:
        """The pending checkpoint is whole."""
        with self._lock:
            self._failures_in_a_row = 0
            return self._end(CheckpointState.COMPLETED, None)

    def fail(self, reason: str, counts: bool = True) -> CheckpointError | None:
        """The pending checkpoint is none. Returns the error that the job must fail with, when there were too many.

        ``counts``: False for one that was given up because the job is restarted or ends.
        """
        with self._lock:
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
        """The one that is being taken."""
        with self._lock:
            return None if self._pending is None else self._pending.description

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last ones, oldest first, with the pending one."""
        with self._lock:
            pending = () if self._pending is None else (self._pending.description,)
            return (*self._past, *pending)
