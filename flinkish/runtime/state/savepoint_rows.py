"""Conversion of state to rows that people can read and edit with SQL, and back.

There is one row per (operator uid, state name, key, namespace, value). ``key``, ``namespace`` and ``value`` hold texts
that SQL can compare and change (`stored_texts`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flinkish.common.arguments import abbreviated
from flinkish.errors import SavepointError, StoredClassError
from flinkish.runtime.exchange.keys import frozen, thawed
from flinkish.runtime.state.state_rows import MAP_KINDS, WATERMARK, StateRow
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.texts import DEPTH_MAX, from_text, to_text


class SavepointRow(NamedTuple):
    """One row of a savepoint's table. Key, namespace and value are texts as of `to_text`."""

    uid: str
    state: str
    kind: str
    key: str
    namespace: str
    value: str


def to_savepoint_row(uid: str, row: StateRow, classes: ProgramClasses = NO_CLASSES) -> SavepointRow:
    """An entry of state as a row of texts. Raises StoredClassError if a part of it has no text ."""
    try:
        key, namespace, value = (to_text(part, classes) for part in (thawed(row.key), row.namespace, row.value))
    except StoredClassError as error:
        error.where = error.where or f"uid {uid}, state {row.state}, key {abbreviated(thawed(row.key))}"
        raise
    return SavepointRow(uid, row.state, row.kind, key, namespace, value)


def watermark_row(uid: str, subtask: int, watermark_ms: int) -> SavepointRow:
    """The row with the watermark of a subtask, so that records that were late before the savepoint stay late after
    it."""
    return SavepointRow(uid, WATERMARK, WATERMARK, to_text(subtask), to_text(None), to_text(watermark_ms))


def watermark_of(text: str, where: str) -> int:
    """The watermark in a row of `watermark_row`. Raises what `from_text` raises."""
    watermark_ms = from_text(text, where)
    if type(watermark_ms) is not int:
        raise SavepointError(f"the text {text[:200]!r} is no watermark", where=where, expected="whole milliseconds")
    return watermark_ms


def from_savepoint_row(row: SavepointRow, classes: ProgramClasses = NO_CLASSES) -> tuple[str, StateRow]:
    """The inverse of :func:`to_savepoint_row`. Raises what `from_text` raises."""
    where = f"savepoint row of uid {row.uid}, state {row.state}, key {row.key[:100]}"
    key, namespace, value = (from_text(text, where, classes) for text in (row.key, row.namespace, row.value))
    if row.kind in MAP_KINDS and isinstance(value, list):
        value = tuple(value)
    return row.uid, StateRow(row.state, row.kind, namespace, frozen_key(key, where), value)


def frozen_key(key: Any, where: str) -> Any:
    """The key of a row in hashable form.

    Raises:
        SavepointError: it is nested more deeply than keys that have a text.
    """
    if type(key) in (list, tuple) and _is_deep(key):
        raise SavepointError(
            "the key is nested too deeply",
            where=where,
            expected=f"at most {DEPTH_MAX} levels",
            hint="mend the row in the table",
        )
    return frozen(key)


def _is_deep(key: Any) -> bool:
    """Whether lists and tuples are nested more deeply than those of keys that have a text."""
    level = [key]
    for _ in range(DEPTH_MAX):
        level = [part for one in level if type(one) in (list, tuple) for part in one]
        if not level:
            return False
    return True
