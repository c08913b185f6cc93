"""The interface between keyed operators and the representation of their state.

A backend serves one task and holds one key group at a time as *current* (`activate`); within it, state is found by
(state name, namespace, key). State handles that user functions got in ``open()`` stay valid over all key groups and
epochs: they look at the backend's current key group and current key at each call.

A backend knows which (state name, namespace, key) an epoch has changed. That is what incremental checkpoints and a
changelog backend are made of. No operator may notice which backend it runs on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flinkish.core.state import State, StateDescriptor
    from flinkish.runtime.state.state_table import StateTable
    from flinkish.runtime.state.timer_queue import TimerQueue

#: The namespace of state that belongs to no window.
VOID_NAMESPACE: None = None


class KeyedStateBackend(ABC):
    """State of the key groups of one task."""

    #: The key that state handles read and write. Operators set it before they call user code.
    current_key: Any
    key_group: int

    @abstractmethod
    def activate(self, key_group: int, load: Callable[[], bytes | None]) -> None:
        """Make a key group current. ``load`` gives its encoded body (None: empty); called at most once and only when
        the body is really needed (lazily)."""

    @abstractmethod
    def table(self, name: str, kind: str) -> StateTable:
        """The table of one state (created when absent) of the current key group. ``kind`` is value, list, map,
        reducing or aggregating; StateAccessError when the name already has another kind."""

    @abstractmethod
    def timers(self, service: str) -> TimerQueue:
        """The timers of one timer service of the current key group."""

    @abstractmethod
    def partitioned_state(self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE) -> State:
        """A handle for user code, scoped to ``current_key`` and the namespace (a window, or VOID_NAMESPACE)."""

    @abstractmethod
    def next_timer_ms(self) -> tuple[int | None, int | None]:
        """The earliest (event-time, processing-time) timer of the current key group. Never decodes the body."""

    @abstractmethod
    def changed(self) -> bool:
        """Whether the current key group was changed since `activate` or the last `snapshot`."""

    @abstractmethod
    def changed_keys(self) -> dict[str, set[tuple[Hashable, Any]]]:
        """State name -> {(namespace, key)} changed since the last `snapshot`; timers under the name ``__timers__``."""

    @abstractmethod
    def snapshot(self) -> bytes | None:
        """The encoded body of the current key group (None: nothing in it) and forget what was changed."""

    @abstractmethod
    def forget(self, key_group: int) -> None:
        """Drop the in-memory form of a key group (moved away, or dirty after a failure)."""

    @abstractmethod
    def holds(self, key_group: int) -> bool:
        """Whether the decoded form of that key group is in memory."""
