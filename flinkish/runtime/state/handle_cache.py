"""State handles that were given out already: triggers, window assigners and functions of windows ask for their state at
each record."""

from __future__ import annotations

from collections.abc import Hashable

from flinkish.core.state import State, StateDescriptor
from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
from flinkish.runtime.state.keyed_state_kinds import VOID_NAMESPACE

#: Windows come and go: handles of more of them are not kept.
_MAX_HANDLES = 1_000


class HandleCache:
    """Handles by descriptor, the very object, and namespace. A handle is valid over all keys and epochs."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        #: the descriptor is kept with its handle, so that no other object gets its id
        self._handles: dict[tuple[int, Hashable], tuple[StateDescriptor, State]] = {}

    def state(self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE) -> State:
        """The same as the backend's ``partitioned_state``."""
        found = self._handles.get((id(descriptor), namespace))
        if found is None:
            if len(self._handles) >= _MAX_HANDLES:
                self._handles.clear()
            found = (descriptor, self._backend.partitioned_state(descriptor, namespace))
            self._handles[id(descriptor), namespace] = found
        return found[1]
