"""The named phases of an epoch, a checkpoint, a savepoint, a restore, a drain and a fallback, and a hook that is called
at each of them.

Tests use it to fail, kill or pause the process at any phase: ``FLINKISH_FAULT`` holds an import path
``module:function``, and the function is called with (phase, details) in every process of the job. A test fails if there
is a phase without such a case.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

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
