"""What tests control of a job: the wall clock, which is a parameter, and the named phases of an epoch, a checkpoint, a
savepoint, a restore, a drain, a fallback and an upgrade, and the steps of a job, with a hook that is called at each of
them.

Tests use the hook to fail, kill or pause the process at any phase: ``FLINKISH_FAULT`` holds an import path
``module:function``, and the function is called with (phase, details) in every process of the job. A test fails if there
is a phase without such a case.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol


class Clock(Protocol):
    """A source of the current time, in milliseconds since 1970-01-01T00:00:00Z: a parameter, so that tests need not
    wait."""

    def now_ms(self) -> int:
        """The current time."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """The current time."""
        return time.time_ns() // 1_000_000


class ElapsedClock:
    """Counts from some moment on, whatever the machine's clock is set to: for what waits, or asks how long ago."""

    def now_ms(self) -> int:
        """The milliseconds since that moment."""
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that only moves when it is told to.

    >>> clock = ManualClock(5); clock.advance(10); clock.now_ms()
    15
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The current time."""
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        """Move the clock forward."""
        self._now_ms += by_ms

    def set(self, now_ms: int) -> None:
        """Set the clock to this time."""
        self._now_ms = now_ms


#: Clocks are corrected all the time; a step back by less than this, in milliseconds, is no jump.
TOLERATED_MS = 1_000


class ClockWatch:
    """Finds out by how much the machine's clock was set back, by comparing it with the monotonic clock, which cannot be
    set.

    A job never waits for a time of the clock that it has seen before. Spark waits for the time of the next epoch by the
    machine's clock: if that is set back by an hour, the job would be silent for an hour.

    Args:
        clock: the clock that may be set; by default the machine's.
        elapsed_ms: returns the milliseconds since some fixed moment; never goes back.
    """

    def __init__(self, clock: Clock | None = None, elapsed_ms: Callable[[], int] | None = None) -> None:
        self._clock = clock or SystemClock()
        self._elapsed_ms = elapsed_ms or ElapsedClock().now_ms
        self._offset_ms = self._now_ms()

    def set_back_ms(self) -> int:
        """How many milliseconds the clock is behind its most advanced setting since the last jump that was reported; 0
        if less than `TOLERATED_MS`."""
        now_ms = self._now_ms()
        if now_ms > self._offset_ms - TOLERATED_MS:
            # small steps back add up to a jump; after a step forward, steps back are measured from the new setting
            self._offset_ms = max(self._offset_ms, now_ms)
            return 0
        back_ms, self._offset_ms = self._offset_ms - now_ms, now_ms
        return back_ms

    def _now_ms(self) -> int:
        return self._clock.now_ms() - self._elapsed_ms()


#: Environment variable with the import path of a hook, for processes that a test cannot reach otherwise.
FAULT_VARIABLE = "FLINKISH_FAULT"


class Phase(Enum):
    """A point in the work of a job. Those of an epoch come first, in the order in which an epoch passes them."""

    PLANNED = "planned"
    SOURCES_READ = "sources read"
    LEVEL_PROCESSED = "level processed"
    STATE_WRITTEN = "state written"
    COMMITTABLES_WRITTEN = "committables written"
    EPOCH_PREPARED = "epoch prepared"
    COMMIT_BEGUN = "commit begun"
    SINK_COMMITTED = "sink committed"
    METADATA_COMMITTED = "metadata committed"
    CLEANED_UP = "cleaned up"
    CHECKPOINT_READ = "checkpoint read"
    CHECKPOINT_WRITTEN = "checkpoint written"
    CHECKPOINT_COMPLETED = "checkpoint completed"
    SAVEPOINT_READ = "savepoint read"
    SAVEPOINT_WRITTEN = "savepoint written"
    SAVEPOINT_COMPLETED = "savepoint completed"
    RESTORE_PREPARED = "restore prepared"
    RESTORE_APPLIED = "restore applied"
    DRAIN_BEGUN = "drain begun"
    DRAIN_PREPARED = "drain prepared"
    DRAIN_DONE = "drain done"
    FALLBACK_PREPARED = "fallback prepared"
    FALLBACK_DONE = "fallback done"
    UPGRADE_PREPARED = "upgrade prepared"
    UPGRADE_WRITTEN = "upgrade written"
    UPGRADE_DONE = "upgrade done"
    #: with the ``step`` that the job is about to carry out (``jobmanager/decision.py``)
    STEP_DECIDED = "step decided"


Hook = Callable[[Phase, dict[str, Any]], None]


class _Hooks:
    """The hook in force in this process."""

    def __init__(self) -> None:
        self.hook: Hook | None = None
        self.loaded_from: str | None = None

    def current(self) -> Hook | None:
        """The hook set by `set_hook`, else the one that the environment names."""
        if self.hook is not None:
            return self.hook
        path = os.environ.get(FAULT_VARIABLE)
        if not path:
            return None
        if path != self.loaded_from:
            module, _, function = path.partition(":")
            self._from_environment: Hook = getattr(importlib.import_module(module), function)
            self.loaded_from = path
        return self._from_environment


_hooks = _Hooks()


def set_hook(hook: Hook | None) -> None:
    """Install (or remove) the hook of this process."""
    _hooks.hook = hook


@contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    """While the block runs, call this hook before the one that is in force."""
    before, current = _hooks.hook, _hooks.current()

    def both(phase: Phase, details: dict[str, Any]) -> None:
        hook(phase, details)
        if current is not None:
            current(phase, details)

    set_hook(both)
    try:
        yield
    finally:
        set_hook(before)


def passed(phase: Phase, **details: Any) -> None:
    """Call the hook, if there is one, for a phase that has been passed."""
    hook = _hooks.current()
    if hook is not None:
        hook(phase, details)
