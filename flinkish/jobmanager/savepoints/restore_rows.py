"""Converts the rows of a savepoint to buffers for the subtasks of a job, re-hashed for its parallelism. The findings of
each task about its rows are rows of their own, so that one pass over the state both checks and moves it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa

from flinkish.jobmanager.savepoints.manifest import StateContents
from flinkish.jobmanager.savepoints.state_table import DIGEST, with_digest
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import Row
from flinkish.runtime.state.saved.restore import state_buffers
from flinkish.runtime.state.saved.texts import SavepointColumns, watermark_of
from flinkish.runtime.state.saved.values import Migration, ProgramStates, RowReader, StoredState
from flinkish.runtime.state.state_rows import WATERMARK
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.spark.data_files import ROW_SCHEMA, VERIFY_PAGES, to_arrow
from flinkish.spark.session import slots_of
from flinkish.spark.worker import Deployment, failures_marked
from flinkish.storage.paths import for_spark

#: Vertex number of rows that are not buffers, but hold the `FoundRows` of a partition.
FOUND_VERTEX = -1000

#: Version of the stored form of those rows.
_FOUND_VERSION = 3

Migrations = dict[tuple[str, str], Migration]


@dataclass
class FoundRows:
    """What was found in the rows of a savepoint: per state the good and bad rows, counts and hashes, and watermarks."""

    states: list[StoredState] = field(default_factory=list)
    #: (uid, state, kind) -> (number of rows, sum of their hashes); includes bad rows and watermarks
    contents: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    #: (uid, text of a watermark)
    watermarks: set[tuple[str, str]] = field(default_factory=set)

    def add(self, saved: SavepointColumns, hashes: list[int]) -> None:
        """Count rows of one state, given with the hash of each."""
        self._count((str(saved.uid), str(saved.state), str(saved.kind)), len(hashes), sum(hashes))
        if saved.kind == WATERMARK:
            self.watermarks.update((saved.uid, text) for text in saved.values)

    def _count(self, state: tuple[str, str, str], rows: int, digest: int) -> None:
        before = self.contents.get(state, (0, 0))
        self.contents[state] = before[0] + rows, before[1] + digest

    def add_all(self, other: FoundRows) -> None:
        """Add the findings of another task."""
        known = {(state.uid, state.state, state.kind): state for state in self.states}
        for state in other.states:
            same = known.get((state.uid, state.state, state.kind))
            if same is None:
                self.states.append(state)
            else:
                same.add(state)
        for entry, counted in other.contents.items():
            self._count(entry, *counted)
        self.watermarks |= other.watermarks

    def state_contents(self) -> tuple[StateContents, ...]:
        """The contents by state, equal to what `count_states` gives for the same rows."""
        return tuple(
            sorted(StateContents(*entry, rows, str(digest)) for entry, (rows, digest) in self.contents.items())
        )

    def lowest_watermarks(self) -> dict[str, int]:
        """The uid of each vertex's head -> the lowest watermark of its subtasks."""
        lowest: dict[str, int] = {}
        for uid, text in sorted(self.watermarks):
            watermark_ms = watermark_of(text, f"savepoint row of uid {uid}, {WATERMARK}")
            lowest[uid] = min(watermark_ms, lowest.get(uid, watermark_ms))
        return lowest

    def encode(self) -> bytes:
        """The findings as bytes, for the row in which they leave the task."""
        return dumps((list(map(astuple, self.states)), self.contents, self.watermarks), _FOUND_VERSION)

    @staticmethod
    def decode(data: bytes) -> FoundRows:
        """The inverse of `encode`."""
        states, contents, watermarks = loads(data, _FOUND_VERSION, "what was found in a savepoint")
        return FoundRows([StoredState(*values) for values in states], contents, watermarks)


@dataclass(frozen=True)
class RowsToBuffers:
    """The function of the Spark tasks that convert the rows of a savepoint.

    Args:
        deployment: the job, for the workers.
        program: the states that the program declares.
        migrations: (uid, state name) -> function that changes a stored value.
        convert: whether values are converted to the declared types, because the rows were edited or made elsewhere.
        buffers: whether buffers are made; False: the rows are only checked.
    """

    deployment: Deployment
    program: ProgramStates
    migrations: Migrations = field(default_factory=dict)
    convert: bool = False
    buffers: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert one partition of the savepoint's table: yields its buffers, and one row with its `FoundRows`."""
        with failures_marked(self.deployment.secret):
            job = self.deployment.job()
            book = self.deployment.book()
            reader = RowReader(self.program, self.migrations, self.convert, job.classes)
            found = FoundRows()
            for batch in batches:
                for saved, hashes in states_of_batch(batch):
                    found.add(saved, hashes)
                    if saved.kind != WATERMARK:
                        yield from to_arrow(self._rows(job, reader, saved), book, 1)
            found.states = list(reader.found.values())
            yield _found_batch(found)

    def _rows(self, job: JobDescriptor, reader: RowReader, saved: SavepointColumns) -> Iterator[Row]:
        rows = reader.read_columns(saved)
        if self.buffers:
            yield from state_buffers(job, saved.uid, rows)


def states_of_batch(batch: pa.RecordBatch) -> Iterator[tuple[SavepointColumns, list[int]]]:
    """The rows of a batch grouped by state, in their order, with the hash of each row."""
    columns = [batch.column(name).to_pylist() for name in ("key", "namespace", "value", DIGEST)]
    states = [batch.column(name) for name in ("uid", "state", "kind")]
    names = [state.unique() for state in states]
    if all(len(same) == 1 for same in names):
        uid, state, kind = (same[0].as_py() for same in names)
        yield SavepointColumns(uid, state, kind, *columns[:3]), columns[3]
        return
    numbers: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for number, entry in enumerate(zip(*(state.to_pylist() for state in states))):
        numbers[entry].append(number)
    for (uid, state, kind), some in numbers.items():
        keys, namespaces, values, hashes = ([column[number] for number in some] for column in columns)
        yield SavepointColumns(uid, state, kind, keys, namespaces, values), hashes


def _found_batch(found: FoundRows) -> pa.RecordBatch:
    columns: list[tuple[str, Any, pa.DataType]] = [
        ("address", 0, pa.int32()),
        ("vertex", FOUND_VERTEX, pa.int32()),
        ("subtask", 0, pa.int32()),
        ("buffer", found.encode(), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind) for _, value, kind in columns], names=[name for name, _, _ in columns]
    )


def written_to(path: str, spark: Any, table: Any, convert: RowsToBuffers) -> FoundRows:
    """Write the buffers below ``path``; returns what was found in the rows."""
    converted = with_digest(table).mapInArrow(convert, ROW_SCHEMA)
    # no more tasks than run at a time, since each writes a file; and nothing else runs before the job is restored
    converted.coalesce(max(4, slots_of(spark))).write.mode("overwrite").parquet(for_spark(path))
    return _found(spark.read.schema(ROW_SCHEMA).option(*VERIFY_PAGES).parquet(for_spark(path)))


def looked_at(table: Any, convert: RowsToBuffers) -> FoundRows:
    """Check the rows without writing anything; returns what was found in them."""
    return _found(with_digest(table).mapInArrow(convert, ROW_SCHEMA))


def _found(rows: Any) -> FoundRows:
    found = FoundRows()
    for row in rows.where(f"vertex = {FOUND_VERTEX}").select("buffer").collect():
        found.add_all(FoundRows.decode(bytes(row["buffer"])))
    found.states.sort(key=lambda state: (state.uid, state.state, state.kind))
    return found
