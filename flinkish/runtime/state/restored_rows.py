"""Encodes rows of a savepoint for the subtask that restores them, as the payload of a STATE buffer."""

from __future__ import annotations

from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.state.state_rows import StateColumns
from flinkish.runtime.stored_pickle import dumps, loads

#: Version of the encoded form.
FORMAT_VERSION = 3


def encode_columns(uid: str, columns: StateColumns, classes: ProgramClasses = NO_CLASSES) -> bytes:
    """Encode rows of one state of an operator, as the tuple (uid, state, kind, namespaces, keys, values)."""
    return dumps((uid, *columns), FORMAT_VERSION, classes)


def decode_columns(payload: bytes, classes: ProgramClasses = NO_CLASSES) -> tuple[str, StateColumns]:
    """The inverse of `encode_columns`: (uid, rows). See `loads` for errors."""
    uid, *columns = loads(payload, FORMAT_VERSION, "the rows of a savepoint", "", classes)
    return uid, StateColumns(*columns)
