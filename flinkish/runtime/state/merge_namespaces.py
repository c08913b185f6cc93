"""Merge the state of several namespaces of a key into one (Flink's ``InternalMergingState.mergeNamespaces``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import MISSING


def merge_namespaces(
    table: StateTable,
    key: Any,
    target: Hashable,
    sources: Iterable[Hashable],
    merge: Callable[[Any, Any], Any],
) -> None:
    """Merge the values of a key in the source namespaces into its value in the target namespace, and remove them from
    the sources. The target is none of the sources. ``merge`` gets two values: first the one of the target or of the
    earlier source."""
    merged: Any = MISSING
    for source in sources:
        table.fetch(source, (key,))
        values = table.existing(source)
        if values and key in values:
            value = values[key]
            table.remove(source, key)
            merged = value if merged is MISSING else merge(merged, value)
    if merged is MISSING:
        return
    table.fetch(target, (key,))
    table.mark(target, key)
    into = table.namespace(target)
    into[key] = merge(into[key], merged) if key in into else merged
