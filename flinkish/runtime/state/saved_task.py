"""Reads the rows of a savepoint from a stored task: its watermark, keyed state and operator state."""

from __future__ import annotations

from collections.abc import Iterator

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.state.files.directory import StateDirectory, state_directory
from flinkish.runtime.state.restore import operator_state_rows
from flinkish.runtime.state.savepoint_rows import SavepointRow, to_savepoint_row, watermark_row
from flinkish.runtime.state.state_rows import StateColumns
from flinkish.runtime.state.stored_columns import stored_columns
from flinkish.runtime.state.stored_operator_states import decode_operator_states
from flinkish.runtime.state.task_body import TaskBody
from flinkish.runtime.state.text_columns import SavepointColumns, to_savepoint_columns
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.task_header import TaskHeader

_BATCH_ROWS = 10_000


def rows_of_task(
    data: bytes, body: bytes | None, state: str, classes: ProgramClasses = NO_CLASSES
) -> Iterator[SavepointColumns]:
    """The rows of a task, in batches of one state each.

    Args:
        data: the encoded header of the task.
        body: the encoded state of the task (`TaskBody`).
        state: the directory with the files of state of the job; "": there are none.
        classes: the classes of the program that state may hold.
    """
    header = TaskHeader.decode(data, "", classes)
    if MIN_TIMESTAMP_MS < header.watermark_ms < MAX_WATERMARK_MS:
        yield _columns_of(watermark_row(header.uid, header.subtask, header.watermark_ms))
    stored = TaskBody.decode(body)
    where = f"uid {header.uid}, subtask {header.subtask}"
    directory = StateDirectory(state_directory(state, header.vertex, header.subtask)) if state else None
    for found in stored_columns(stored.keyed, directory, where, classes):
        for start in range(0, len(found.keys), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            some = StateColumns(found.state, found.kind, found.namespaces[part], found.keys[part], found.values[part])
            yield to_savepoint_columns(header.uid, some, classes)
    for uid, of_operator in decode_operator_states(stored.operators, directory, where, classes).items():
        for row in operator_state_rows(header.subtask, header.parallelism, of_operator):
            yield _columns_of(to_savepoint_row(uid, row, classes))


def _columns_of(row: SavepointRow) -> SavepointColumns:
    return SavepointColumns(*row[:3], *([text] for text in row[3:]))
