"""Savepoints of programs that run in one process: the rows that a savepoint's table would have, in memory.

They are processed like savepoints on Spark: state is converted to texts, compared with the states that the program
declares, re-hashed for its parallelism, and taken in by the first epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flinkish.errors import SavepointError
from flinkish.jobmanager.savepoints.compatibility import ProgramOutline, compare
from flinkish.jobmanager.savepoints.uids import stateful_without_uid
from flinkish.minicluster import StateStore
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.program_states import states_of_program
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, coordinated_sources
from flinkish.runtime.sources.positions import decode_position, encode_position
from flinkish.runtime.sources.progress import SourceProgress
from flinkish.runtime.state.restored_buffers import state_buffers
from flinkish.runtime.state.saved_task import rows_of_task
from flinkish.runtime.state.savepoint_rows import WATERMARK, SavepointRow, watermark_of
from flinkish.runtime.state.stored_values import RowReader
from flinkish.runtime.state.text_columns import SavepointColumns

_WHERE = "a savepoint in memory"


@dataclass(frozen=True)
class ProgramSavepoint:
    """The state of a program after an epoch, and the position of each of its sources by uid."""

    columns: tuple[SavepointColumns, ...]
    positions: dict[str, str]

    def rows(self, uid: str | None = None) -> list[SavepointRow]:
        """The rows that the savepoint's table would have, of one operator or of all."""
        return [row for columns in self.columns if uid in (None, columns.uid) for row in columns.rows()]


def take_savepoint(job: JobDescriptor, store: StateStore) -> ProgramSavepoint:
    """A savepoint of the last committed epoch.

    Raises:
        SavepointError: no epoch has been committed yet.
    """
    if store.offset == NOTHING_READ:
        raise SavepointError("no epoch has been committed yet", where=f"job '{job.name}'", hint="run an epoch first")
    columns = tuple(
        rows
        for header, body in store.tasks.values()
        for rows in rows_of_task(header, body, store.keyed_state, job.classes)
    )
    positions = {
        one.uid: encode_position(
            SourceProgress.decode(store.offset["sources"][one.uid], f"source uid {one.uid}"), store.segments
        )
        for one in coordinated_sources(job)
    }
    return ProgramSavepoint(columns, positions)


def restore_savepoint(
    savepoint: ProgramSavepoint,
    job: JobDescriptor,
    migrations: dict[tuple[str, str], Callable[[Any], Any]],
    allow_non_restored_state: bool,
    store: StateStore,
) -> JobDescriptor:
    """Put a savepoint into an empty store; returns the job with the watermarks that it begins with.

    Raises:
        SavepointError: the program cannot take in all of the savepoint; the message says what is left over, and why.
    """
    states = states_of_program(job)
    reader = RowReader(states, migrations, False, job.classes)
    watermarks: dict[str, int] = {}
    for saved in savepoint.columns:
        if saved.kind == WATERMARK:
            for text in saved.values:
                watermark_ms = watermark_of(text, _WHERE)
                watermarks[saved.uid] = min(watermark_ms, watermarks.get(saved.uid, watermark_ms))
        else:
            store.restored.extend(state_buffers(job, saved.uid, reader.read_columns(saved)))
    sources = {one.uid for one in coordinated_sources(job)}
    operators = frozenset(descriptor.uid for vertex in job.vertices for descriptor in vertex.operators)
    outline = ProgramOutline(job.name, operators, frozenset(sources), stateful_without_uid(job))
    report = compare(
        _WHERE, False, reader.found.values(), savepoint.positions, outline, states, allow_non_restored_state
    )
    if not report.compatible:
        refused = SavepointError(
            "; ".join(report.problems),
            where=f"job '{job.name}'",
            expected="a program that can take in all of the savepoint",
            hint="; ".join(report.hints),
        )
        refused.details = report.table()
        raise refused
    store.positions = {
        uid: decode_position(text, uid, store.segments) for uid, text in savepoint.positions.items() if uid in sources
    }
    return replace(
        job,
        restored=True,
        restored_watermarks={
            vertex.id: watermarks[vertex.head.uid] for vertex in job.vertices if vertex.head.uid in watermarks
        },
    )
