"""Takes the rows of a savepoint into a subtask, before its first data.

Rows were re-hashed by their key, so parallelism and max parallelism may differ from those of the savepoint.
"""

from __future__ import annotations

from typing import Any

from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.state.body_codec import StateRow, body_from_rows
from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
from flinkish.runtime.state.operator_state import OperatorState

#: Kind of rows that hold operator state; their key is the subtask that wrote them.
OPERATOR_STATE_KIND = "operator"


def take_in_rows(
    rows: list[tuple[str, StateRow]],
    states: dict[str, OperatorState],
    head_uid: str,
    keyed: KeyedStateBackend | None,
    subtask: int,
    classes: ProgramClasses = NO_CLASSES,
) -> None:
    """``rows`` are (operator uid, row). Keyed rows replace the (empty) keyed state."""
    for uid, row in rows:
        if row.kind == OPERATOR_STATE_KIND and uid in states:
            states[uid].put(row.state, row.value)
    if keyed is not None:
        keyed_rows = [row for uid, row in rows if uid == head_uid and row.kind != OPERATOR_STATE_KIND]
        body = body_from_rows(keyed_rows, f"operator uid {head_uid}, subtask {subtask}", classes)
        keyed.restore(body)


def operator_state_rows(uid: str, subtask: int, values: dict[str, Any]) -> list[tuple[str, StateRow]]:
    """The rows of one subtask's operator state."""
    return [(uid, StateRow(name, OPERATOR_STATE_KIND, None, subtask, value)) for name, value in values.items()]
