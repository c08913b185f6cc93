"""The stored form of rows of a savepoint on their way to a subtask: the payload of a STATE buffer."""

from __future__ import annotations

from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.state.state_rows import StateRow
from flinkish.runtime.stored_pickle import dumps, loads

#: Version of the stored form.
FORMAT_VERSION = 2


def encode_rows(rows: list[tuple[str, StateRow]], classes: ProgramClasses = NO_CLASSES) -> bytes:
    """The stored form of (operator uid, row)."""
    return dumps([(uid, *row) for uid, row in rows], FORMAT_VERSION, classes)


def decode_rows(payload: bytes, classes: ProgramClasses = NO_CLASSES) -> list[tuple[str, StateRow]]:
    """The inverse of `encode_rows`."""
    rows = loads(payload, FORMAT_VERSION, "the rows of a savepoint", "", classes)
    return [(uid, StateRow(*row)) for uid, *row in rows]
