"""Savepoints and checkpoints without Spark, for the minicluster: the same manifests and tables as on Spark, written and
read by this process, with the same checks.

Rule: what is written here is restored on Spark, and the other way round. A table that only Delta can read (deletion
vectors, column mapping) is refused.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flinkish.checkpoint.compatibility import CompatibilityReport, compare, outline_of
from flinkish.checkpoint.compatibility import with_changes as with_changed_types
from flinkish.checkpoint.manifest import (
    Manifest,
    Savepoint,
    TableContents,
    manifest_of,
    state_table,
    write_manifest,
)
from flinkish.checkpoint.rows import (
    COLUMNS,
    DIGEST,
    FoundRows,
    Migrations,
    check_contents,
    doubled,
    is_edited,
    made_of_files,
    needed_version,
    states_of_batch,
    unreadable,
)
from flinkish.delta.check import check_log
from flinkish.delta.log import DeltaLog
from flinkish.errors import FlinkishError, OperationError
from flinkish.jobdir.layout import EventTimes
from flinkish.minicluster import StateStore
from flinkish.runtime.exchange.hashes import row_hashes
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import Row
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.job_enumerator import coordinated_sources, progress_in
from flinkish.runtime.sources.progress import encode_position
from flinkish.runtime.state.saved.columns import rows_of_task
from flinkish.runtime.state.saved.restore import first_calls, state_buffers
from flinkish.runtime.state.saved.texts import SavepointColumns
from flinkish.runtime.state.saved.values import RowReader
from flinkish.runtime.state.state_rows import MAP_KINDS, TIMERS_PREFIX, WATERMARK, DeclaredState
from flinkish.runtime.task.tasks import states_of_program
from flinkish.spark.changelog import CHANGES_COLUMNS
from flinkish.spark.data_files import DataFile, RowsToFiles
from flinkish.spark.state import SAVEPOINT_ARROW, batch_of
from flinkish.spark.worker import secret_of
from flinkish.storage.files import read_bytes
from flinkish.storage.paths import FileKind, local_path

#: Rows of one state, each with the hash of each of its rows.
_Hashed = Iterable[tuple[SavepointColumns, list[int]]]

#: (uid, state, key, namespace)
_Group = tuple[str, str, str, str]


# ---------------------------------------------------------------------------------------------------- writing


def write_plainly(
    job: JobDescriptor,
    store: StateStore,
    epoch: int,
    path: str,
    states: tuple[DeclaredState, ...],
    known: Mapping[str, Mapping[str, str]],
    check: Callable[[], None] = lambda: None,
    **more: Any,
) -> Manifest:
    """Write a savepoint or checkpoint of the last committed epoch of a minicluster, with a table of its own; returns
    its manifest, which is written last.

    Args:
        job: the job graph.
        store: the stored state.
        epoch: the last committed epoch.
        path: the directory to write.
        states: the states that the job has declared.
        known: source uid -> ids of the things that it reads.
        check: called again and again; what it raises ends the writing.
        more: further fields of the manifest.

    Raises:
        OperationError: the directory cannot be written, or is not on a local file system with hard links.
    """
    positions = positions_in(job, store, known)
    rows = _checked(rows_in(job, store), check)
    contents = _write_table(state_table(path), rows, secret_of(job.job_id, job.attempt))
    passed(Phase.SAVEPOINT_WRITTEN, epoch=epoch)
    check()
    manifest = manifest_of(job, epoch, positions, contents=contents, states=states, **more)
    write_manifest(path, manifest)
    return manifest


def _checked(rows: Iterator[SavepointColumns], check: Callable[[], None]) -> Iterator[SavepointColumns]:
    for saved in rows:
        check()
        yield saved


def rows_in(job: JobDescriptor, store: StateStore) -> Iterator[SavepointColumns]:
    """The rows of all stored state of a minicluster."""
    for header, body in store.tasks.values():
        yield from rows_of_task(header, body, store.keyed_state, job.classes)


def positions_in(
    job: JobDescriptor, store: StateStore, known: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, str]:
    """Source uid -> its position after the last committed epoch of a minicluster."""
    where = f"job '{job.name}'"
    return {
        one.uid: encode_position(progress_in(store.offset, one.uid, where), store.segments, (known or {}).get(one.uid))
        for one in coordinated_sources(job)
    }


def _write_table(table: str, rows: Iterable[SavepointColumns], secret: bytes) -> TableContents:
    local, found = local_path(table), FoundRows()
    if local is None:
        raise OperationError(
            "the minicluster writes savepoints and checkpoints to local file systems only",
            where=table,
            hint="name a local directory, or run the job on Spark",
        )

    def batches(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for saved in rows:
            batch = batch_of(saved)
            found.add(saved, _hashes_of(batch))
            yield batch

    files = RowsToFiles(batches, SAVEPOINT_ARROW, local, secret)(iter(()))
    if not made_of_files(table, [DataFile(**file) for batch in files for file in batch.to_pylist()]):
        raise OperationError(
            "the minicluster cannot write a Delta table here: the file system has no hard links",
            where=table,
            hint="name a directory on another file system, or run the job on Spark",
        )
    return TableContents(0, found.state_contents())


def _hashes_of(batch: pa.RecordBatch) -> list[int]:
    return row_hashes([batch.column(name).to_pylist() for name in COLUMNS])


# ---------------------------------------------------------------------------------------------------- restoring


@dataclass(frozen=True)
class TakenIn:
    """What a program takes in of a savepoint: the rows for its first epoch, and the uid of each vertex' head -> the
    watermark that the vertex begins with; and the report of the comparison."""

    report: CompatibilityReport
    rows: list[Row]
    times: EventTimes


#: Is told how many parts of a savepoint are read, and of how many. What it raises ends the reading.
Read = Callable[[int, int], None]


def nobody_asks(parts: int, of: int) -> None:
    """A `Read` for a restore of which nobody wants to know."""


def take_in_savepoint(
    savepoint: str,
    job: JobDescriptor,
    migrations: Migrations,
    allow_non_restored_state: bool,
    read: Read = nobody_asks,
) -> tuple[Savepoint, TakenIn]:
    """Compare a savepoint or checkpoint with a program, and read what the program takes in of it.

    Raises:
        SavepointError: the savepoint is missing or damaged, or only Spark can read it.
    """
    opened = Savepoint.open(savepoint)
    manifest, edited = opened.manifest, is_edited(opened)
    where = f"job '{job.name}', savepoint {opened.path}"
    counted = manifest.contents is not None and not edited
    found = FoundRows()
    with reading_files(where):
        rows = rows_of_savepoint(opened, read)
        if not counted and manifest.state.version is None:  # a given version of a table cannot have been edited
            rows = _without_doubles(rows, where)
        as_written = manifest.epoch is not None and not edited
        taken = take_in(
            savepoint,
            _counted(rows, found),
            manifest.sources,
            job,
            migrations,
            allow_non_restored_state,
            before=manifest.states,
            edited=edited,
            convert=not as_written,
        )
    if counted:
        check_contents(opened, found.state_contents())
    return opened, taken


def take_in(
    savepoint: str,
    rows: Iterable[SavepointColumns],
    positions: Iterable[str],
    job: JobDescriptor,
    migrations: Migrations,
    allow_non_restored_state: bool,
    *,
    before: tuple[DeclaredState, ...] | None = None,
    edited: bool = False,
    convert: bool = False,
) -> TakenIn:
    """Compare the rows of a savepoint with a program, and make the buffers of its first epoch of them.

    Args:
        savepoint: what to call it in errors and in the report.
        rows: the rows of the savepoint.
        positions: uids of the sources whose positions the savepoint has.
        job: the job graph of the program.
        migrations: (uid, state name) -> function that changes a stored value.
        allow_non_restored_state: whether the state of operators that the program does not have may be dropped.
        before: the states as they were declared when the savepoint was written; None: as the program declares them.
        edited, convert: whether the rows were edited; whether values are converted to the declared types therefore.
    """
    program = states_of_program(job)
    if before is not None:
        program = with_changed_types(program, before)
    reader = RowReader(program, migrations, convert, job.classes)
    buffers: list[Row] = list(first_calls(job))
    found = FoundRows()
    for saved in rows:
        if saved.kind == WATERMARK:
            found.add(saved, [])
        else:
            buffers.extend(state_buffers(job, saved.uid, reader.read_columns(saved)))
    outline = outline_of(job, (one.uid for one in coordinated_sources(job)))
    report = compare(savepoint, edited, reader.found.values(), positions, outline, program, allow_non_restored_state)
    return TakenIn(report, buffers, found.event_times())


def _counted(rows: _Hashed, found: FoundRows) -> Iterator[SavepointColumns]:
    for saved, hashes in rows:
        found.add(saved, hashes)
        yield saved


@contextmanager
def reading_files(where: str) -> Iterator[None]:
    """Within the block, read a savepoint's table: what a damaged file causes is raised as a SavepointError."""
    try:
        yield
    except FlinkishError:
        raise
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise unreadable(str(error), where) from error


# ---------------------------------------------------------------------------------------------------- tables


def rows_of_savepoint(savepoint: Savepoint, read: Read = nobody_asks) -> _Hashed:
    """The rows of state by batch and state, each with its hash; with the changes applied if there are any.

    Raises:
        SavepointError: the log of a table is damaged, or only Delta itself can read a table.
    """
    manifest, changes = savepoint.manifest, savepoint.changes
    check_log(savepoint.table, needed_version(savepoint))
    batches = _batches_of(savepoint.table, manifest.state.version, COLUMNS, read)
    if manifest.changes is not None and changes is not None:
        check_log(changes, manifest.changes.version)
        batches = _with_changes(batches, _batches_of(changes, manifest.changes.version, CHANGES_COLUMNS))
    for batch in batches:
        if not all(pa.types.is_string(kind) for kind in batch.schema.types):
            raise pa.ArrowTypeError(f"its columns are {batch.schema.to_string(show_schema_metadata=False)}, not texts")
        columns = [*batch.columns, pa.array(_hashes_of(batch), pa.int64())]
        yield from states_of_batch(pa.RecordBatch.from_arrays(columns, names=[*COLUMNS, DIGEST]))


def _batches_of(
    table: str, version: int | None, columns: Sequence[str], read: Read = nobody_asks
) -> Iterator[pa.RecordBatch]:
    """The rows of a version of a Delta table, with these columns; None: the newest version."""
    from pyarrow import parquet

    files = DeltaLog(table).data_files(version)
    for number, path in enumerate(files):
        local = local_path(path)
        data = read_bytes(path, FileKind.DATA_FILE) if local is None else b""
        if data is None or local is not None and not os.path.isfile(local):
            raise FileNotFoundError(f"the file {path} is missing")
        file = parquet.ParquetFile(local or pa.BufferReader(data), page_checksum_verification=True)
        for batch in file.iter_batches(columns=list(columns)):
            read(number, len(files))
            yield batch.select(list(columns))
        read(number + 1, len(files))


def _with_changes(rows: Iterator[pa.RecordBatch], changes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of state with the changes applied: what `flinkish.spark.changelog.with_changes` says in SQL."""
    gone: dict[_Group, list[tuple[str, str, str]]] = defaultdict(list)
    added = []
    for row in _last_changes([row for batch in changes for row in batch.to_pylist()]):
        if row["marker"]:
            gone[_group_of(row)].append((row["slot"], row["kind"], row["value"]))
        else:
            added.append({name: row[name] for name in COLUMNS})
    for batch in rows:
        kept = [not any(_is_of_entry(row, *entry) for entry in gone[_group_of(row)]) for row in batch.to_pylist()]
        yield batch.filter(pa.array(kept, pa.bool_()))
    if added:
        yield pa.RecordBatch.from_pylist(added, schema=SAVEPOINT_ARROW)


def _last_changes(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the last epoch of each entry, and none before the last one that stands for all that the key has."""
    last: dict[tuple[_Group, str], int] = {}
    of_all: dict[_Group, int] = {}
    for row in changes:
        group, epoch = _group_of(row), row["epoch"]
        last[group, row["slot"]] = max(epoch, last.get((group, row["slot"]), epoch))
        if row["slot"] == "":
            of_all[group] = max(epoch, of_all.get(group, epoch))
    return [
        row
        for row in changes
        if row["epoch"] == last[_group_of(row), row["slot"]] >= of_all.get(_group_of(row), row["epoch"])
    ]


def _group_of(row: Mapping[str, Any]) -> _Group:
    return row["uid"], row["state"], row["key"], row["namespace"]


def _is_of_entry(row: Mapping[str, Any], slot: str, kind: str, value: str) -> bool:
    """Whether a row of state belongs to the entry that a marker of its key and state names."""
    if slot == "":
        return True
    return row["value"].startswith(value) if kind == "map" else (row["kind"], row["value"]) == (kind, value)


def _without_doubles(rows: _Hashed, where: str) -> _Hashed:
    """The rows, once it is known that no entry of state occurs twice, which can be the case in an edited table."""
    kept = list(rows)
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    entry_of: Callable[[str], str | None]
    for saved, _ in kept:
        if not saved.state.startswith(TIMERS_PREFIX) and saved.kind != WATERMARK:
            entry_of = _map_key if saved.kind in MAP_KINDS else lambda value: None
            for key, namespace, value in zip(saved.keys, saved.namespaces, saved.values):
                counts[saved.uid, saved.state, key, namespace or "null", entry_of(value) or ""] += 1
    for (uid, state, key, namespace, entry), count in counts.items():
        if count > 1:
            raise doubled(count, uid, state, key, namespace, entry, where)
    return kept


def _map_key(value: str) -> str | None:
    """The text of the key in the text of a map entry; None: it is none, which whoever reads the row finds out."""
    try:
        parsed = json.loads(value)
        return json.dumps((parsed["$tuple"] if isinstance(parsed, dict) else parsed)[0])
    except (ValueError, LookupError, TypeError):
        return None
