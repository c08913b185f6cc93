"""Removes expired state that nobody reads, each time state is stored (Flink's cleanup strategies). This is for subtasks
without state in files; from files, compaction removes expired rows."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from flinkish.runtime.state.map_table import MapEntries
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.ttl import TtlPolicy


def purge_expired(state: StateTable, times: StateTable, policy: TtlPolicy) -> None:
    """Remove expired entries from a state and from the table of its times, and times whose value is gone."""
    for namespace, accessed in times.items():
        values = state.namespace(namespace)
        for key, accessed_ms in list(accessed.items()):
            if key not in values:
                times.remove(namespace, key)
            elif state.kind in ("map", "list"):
                purge = _purge_map if state.kind == "map" else _purge_list
                if purge(values[key], accessed_ms, policy):
                    state.mark(namespace, key)
                    times.mark(namespace, key)
            elif policy.expired(accessed_ms):
                _remove(state, times, namespace, key)
            if state.kind in ("map", "list") and key in values and not values[key]:
                _remove(state, times, namespace, key)


def _remove(state: StateTable, times: StateTable, namespace: Hashable, key: Any) -> None:
    state.remove(namespace, key)
    times.remove(namespace, key)


def _purge_map(values: MapEntries, times: MapEntries, policy: TtlPolicy) -> bool:
    """Remove the expired entries of a map; returns whether anything was removed."""
    entries, accessed = values.entries, times.entries
    before = len(accessed)
    values.ascending = None
    for user_key, (_, accessed_ms) in list(accessed.items()):
        if user_key not in entries:
            del accessed[user_key]
        elif policy.expired(accessed_ms):
            del entries[user_key], accessed[user_key]
    return len(accessed) < before


def _purge_list(elements: list[Any], accessed: list[int], policy: TtlPolicy) -> bool:
    """Remove the expired elements of a list; returns whether anything was removed."""
    expired = any(map(policy.expired, accessed))
    if expired:
        # elements beyond the end of the times have no time yet, and stay
        kept = [(element, time) for element, time in zip(elements, accessed, strict=False) if not policy.expired(time)]
        elements[: len(accessed)] = [element for element, _ in kept]
        accessed[:] = [time for _, time in kept]
    return expired
