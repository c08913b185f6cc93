"""Keyed state as it is restored from rows of a savepoint."""

from __future__ import annotations

from collections.abc import Iterable

from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.saved.restore import SavepointRows
from flinkish.runtime.state.state_rows import StateColumns, StateRow


def body_of(rows: Iterable[StateRow]) -> bytes | None:
    """The stored state of a subtask that was given these rows of keyed state, one by one."""
    backend = KeyedStateBackend()
    taken = SavepointRows({}, "", backend, 0)
    for row in rows:
        taken.take_in("", StateColumns(row.state, row.kind, [row.namespace], [row.key], [row.value]))
    taken.end()
    return backend.snapshot()
