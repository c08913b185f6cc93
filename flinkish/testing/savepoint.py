"""Savepoints of programs that run in one process: the rows that a savepoint's table would have, in memory.

They are processed like savepoints on Spark: state is converted to texts, compared with the states that the program
declares, re-hashed for its parallelism, and taken in by the first epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flinkish.checkpoint.compatibility import incompatible
from flinkish.checkpoint.plain_tables import positions_in, rows_in, take_in
from flinkish.errors import SavepointError
from flinkish.minicluster import StateStore
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, coordinated_sources
from flinkish.runtime.sources.progress import decode_position
from flinkish.runtime.state.saved.texts import SavepointColumns, SavepointRow

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
    return ProgramSavepoint(tuple(rows_in(job, store)), positions_in(job, store))


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
    taken = take_in(_WHERE, savepoint.columns, savepoint.positions, job, migrations, allow_non_restored_state)
    if not taken.report.compatible:
        raise incompatible(taken.report, job)
    store.restored.extend(taken.rows)
    store.positions = {
        one.uid: decode_position(savepoint.positions[one.uid], one.uid, store.segments)
        for one in coordinated_sources(job)
        if one.uid in savepoint.positions
    }
    return replace(
        job,
        restored=True,
        restored_watermarks={
            vertex.id: taken.watermarks[vertex.head.uid]
            for vertex in job.vertices
            if vertex.head.uid in taken.watermarks
        },
    )
