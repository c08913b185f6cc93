"""Which keys a backend has recorded as changed."""

from __future__ import annotations

from typing import Any

from flinkish.runtime.state.backend import KeyedStateBackend


def changed_keys(backend: KeyedStateBackend, *services: str) -> dict[str, set[tuple[Any, Any]]]:
    """State name -> {(namespace, key)} changed since the last snapshot, for a backend that records changes; timers
    of these services under the name of the service."""
    found = {name: backend.table(name, kind).changed_keys() for name, (kind, _) in backend.declared.items()}
    for service in services:
        found[service] = {(namespace, key) for _, _, namespace, key, _ in backend.timers(service).changed_timers()}
    return {name: keys for name, keys in found.items() if keys}
