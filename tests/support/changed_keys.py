"""Which keys a backend has recorded as changed."""

from __future__ import annotations

from typing import Any

from flinkish.runtime.state.backend import KeyedStateBackend


def changed_keys(backend: KeyedStateBackend) -> dict[str, set[tuple[Any, Any]]]:
    """State name -> {(namespace, key)} changed since the last snapshot, for a backend that records changes; timers
    under the name of their service."""
    found = {name: table.changed_keys() for name, table in backend._tables.items()}
    for service, queue in backend._timers.items():
        found[service] = {(namespace, key) for _, _, namespace, key, _ in queue.changed_timers()}
    return {name: keys for name, keys in found.items() if keys}
