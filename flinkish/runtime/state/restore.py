"""Takes the rows of a savepoint into a subtask, before its first data.

Rows were re-hashed by their key, so parallelism and max parallelism may differ from those of the savepoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkish.core.time_domain import TimeDomain
from flinkish.errors import CorruptStateError
from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.state_rows import OPERATOR_STATE_KIND, TIMERS_PREFIX, StateRow
from flinkish.runtime.state.state_table import StateTable


def take_in_rows(
    rows: list[tuple[str, StateRow]],
    states: dict[str, OperatorState],
    head_uid: str,
    keyed: KeyedStateBackend | None,
    subtask: int,
) -> None:
    """``rows`` are (operator uid, row). Keyed rows are taken into the keyed state, which is empty.

    Raises:
        CorruptStateError: two rows for one entry, or one state with two kinds.
    """
    for uid, row in rows:
        if row.kind == OPERATOR_STATE_KIND and uid in states:
            states[uid].put(row.state, row.value)
    if keyed is not None:
        keyed_rows = (row for uid, row in rows if uid == head_uid and row.kind != OPERATOR_STATE_KIND)
        take_in_keyed_rows(keyed, keyed_rows, f"operator uid {head_uid}, subtask {subtask}")


def take_in_keyed_rows(keyed: KeyedStateBackend, rows: Iterable[StateRow], where: str) -> None:
    """The keyed part of `take_in_rows`. Rows of one state keep their order."""
    for row in rows:
        if row.state.startswith(TIMERS_PREFIX):
            queue = keyed.timers(row.state[len(TIMERS_PREFIX) :])
            queue.register(TimeDomain[row.kind], row.value, row.key, row.namespace)
            continue
        table = keyed.restored_table(row.state, row.kind)
        if table.kind != row.kind:
            raise _bad_rows(f"state {row.state!r} has rows of kind {table.kind} and of kind {row.kind}", where)
        _put(table, row, where)
    keyed.forget_changes()


def _put(table: StateTable, row: StateRow, where: str) -> None:
    if isinstance(table, MapTable):
        user_key, value = row.value
        twice = table.entry(row.namespace, row.key, user_key) is not None
        table.put(row.namespace, row.key, {user_key: value})
    else:
        values = table.namespace(row.namespace)
        twice = row.key in values
        values[row.key] = row.value
    if twice:
        raise _bad_rows(f"state {row.state!r} has two rows for namespace {row.namespace!r}, key {row.key!r}", where)


def _bad_rows(what: str, where: str) -> CorruptStateError:
    return CorruptStateError(what, where=where, expected="one row per entry", hint="mend the savepoint's table")


def operator_state_rows(uid: str, subtask: int, values: dict[str, Any]) -> list[tuple[str, StateRow]]:
    """The rows of one subtask's operator state."""
    return [(uid, StateRow(name, OPERATOR_STATE_KIND, None, subtask, value)) for name, value in values.items()]
