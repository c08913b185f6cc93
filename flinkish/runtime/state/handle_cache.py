"""A cache of state handles, because triggers, window assigners and window functions ask for their state at each
record."""

from __future__ import annotations

from collections.abc import Hashable

from flinkish.core.state import State, StateDescriptor
from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
from flinkish.runtime.state.keyed_state_kinds import VOID_NAMESPACE

#: The cache is cleared when it holds so many handles, because those of windows that are gone are not needed any more.
_MAX_HANDLES = 1_000


class HandleCache:
    """The state handles of one backend by descriptor (compared by identity) and namespace. A handle is valid over all
    keys and epochs."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        #: the descriptor is kept with its handle, so that no other object gets its id
        self._handles: dict[tuple[int, Hashable], tuple[StateDescriptor, State]] = {}

    def state(self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE) -> State:
        """The handle that the backend's ``partitioned_state`` returns, cached."""
        found = self._handles.get((id(descriptor), namespace))
        if found is None:
            if len(self._handles) >= _MAX_HANDLES:
                self._handles.clear()
            found = (descriptor, self._backend.partitioned_state(descriptor, namespace))
            self._handles[id(descriptor), namespace] = found
        return found[1]
