"""The interface between keyed operators and the representation of their state.

A backend holds the state of one subtask, of all of its key groups; state is found by (state name, namespace, key).
State handles that user functions got in ``open()`` stay valid over all keys and epochs: they look at the backend's
current key at each call.

A backend knows which (state name, namespace, key) an epoch has changed. That is what incremental checkpoints and a
changelog backend are made of. No operator may notice which backend it runs on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flinkish.core.state import State, StateDescriptor
    from flinkish.runtime.state.state_table import StateTable
    from flinkish.runtime.state.timer_queue import TimerQueue

#: The namespace of state that belongs to no window.
VOID_NAMESPACE: None = None


class KeyedStateBackend(ABC):
    """The keyed state of one task."""

    #: The key that state handles read and write. Operators set it before they call user code.
    current_key: Any

    @abstractmethod
    def restore(self, body: bytes | None) -> None:
        """Take in what `snapshot` gave (None: nothing), in place of what is there."""

    @abstractmethod
    def table(self, name: str, kind: str) -> StateTable:
        """The table of one state (created when absent). ``kind`` is value, list, map,
        reducing or aggregating; StateAccessError when the name already has another kind."""

    @abstractmethod
    def timers(self, service: str) -> TimerQueue:
        """The timers of one timer service."""

    @abstractmethod
    def partitioned_state(self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE) -> State:
        """A handle for user code, scoped to ``current_key`` and the namespace (a window, or VOID_NAMESPACE)."""

    @abstractmethod
    def next_timer_ms(self) -> tuple[int | None, int | None]:
        """The earliest (event-time, processing-time) timer. Never decodes the body."""

    @abstractmethod
    def changed(self) -> bool:
        """Whether anything was changed since `restore` or the last `snapshot`."""

    @abstractmethod
    def changed_keys(self) -> dict[str, set[tuple[Hashable, Any]]]:
        """State name -> {(namespace, key)} changed since the last `snapshot`; timers under the name ``__timers__``."""

    @abstractmethod
    def snapshot(self) -> bytes | None:
        """All state encoded (None: there is none), and forget what was changed."""
