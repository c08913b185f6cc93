"""Opens and counts the Delta table of a savepoint or checkpoint, compares it with what was written, and converts its
rows to buffers for the subtasks of a job.

Rule: a table that differs from what was written was either edited (Delta has a newer version of it) or damaged; a
damaged one is never read.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa

from flinkish.checkpoint.manifest import Savepoint, StateContents, TableContents
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.delta.actions import new_table
from flinkish.delta.check import check_log
from flinkish.delta.log import DeltaLog
from flinkish.errors import CorruptStateError, FlinkishError, OperationError, SavepointError
from flinkish.jobdir.layout import EventTimes, SplitWatermark
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import Row
from flinkish.runtime.state.saved.restore import first_calls, state_buffers
from flinkish.runtime.state.saved.texts import SavepointColumns, SavepointRow, watermark_of
from flinkish.runtime.state.saved.values import Migration, ProgramStates, RowReader, StoredState
from flinkish.runtime.state.state_rows import MAP_KINDS, TIMERS_PREFIX, WATERMARK
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.runtime.stored.texts import from_text
from flinkish.spark.changelog import with_changes
from flinkish.spark.data_files import ROW_SCHEMA, VERIFY_PAGES, DataFile, append_of, to_arrow
from flinkish.spark.failures import tells_of_bad_table, translate
from flinkish.spark.session import slots_of
from flinkish.spark.settings import session_with
from flinkish.spark.state import SAVEPOINT_SCHEMA
from flinkish.spark.worker import Deployment, failures_marked
from flinkish.storage.files import delete_directory
from flinkish.storage.paths import for_spark, local_path

COLUMNS = SavepointRow._fields
#: An additional column: the hash of the row.
DIGEST = "digest"

#: SQL for the key in the text of a map entry: {"$tuple": [key, value]} as flinkish writes it, or [key, value]. The
#: key's first character comes before it, since it comes without the quotes that distinguish "1" from 1.
_MAP_KEY = (
    r"concat(regexp_extract(value, '\\[\\s*(.)', 1), ' ', "
    r"coalesce(get_json_object(value, '$[\'$tuple\'][0]'), get_json_object(value, '$[0]')))"
)

_MAP_KINDS = ", ".join(f"'{kind}'" for kind in sorted(MAP_KINDS))


@contextmanager
def reading(spark: Any, where: str, secret: bytes | None = None) -> Iterator[Any]:
    """Within the block, read a savepoint's table: in the session that is yielded checksums of its files are verified,
    and what a damaged table causes is raised as a SavepointError. ``secret``: of the workers that convert its rows, if
    any do."""
    try:
        with session_with(spark, dict([VERIFY_PAGES])) as session:
            yield session
    except FlinkishError:
        raise
    except Exception as error:
        typed = translate(error, where, secret)
        damaged = isinstance(typed, CorruptStateError) or type(typed) is OperationError and tells_of_bad_table(error)
        if not damaged:
            raise typed from error
        raise unreadable(typed.what, where) from error


def unreadable(why: str, where: str) -> SavepointError:
    """The error for a savepoint whose table cannot be read."""
    return SavepointError(
        f"the state of the savepoint cannot be read: {why}",
        where=where,
        expected="an undamaged Delta table with the columns " + ", ".join(COLUMNS),
        hint="copy the table from a backup, or use another savepoint or checkpoint",
    )


def open_table(spark: Any, savepoint: Savepoint) -> Any:
    """The rows of state as a DataFrame of text columns, with the changes applied if there are any.

    Raises:
        SavepointError: the log of a table is damaged.
    """
    manifest, changes = savepoint.manifest, savepoint.changes
    check_log(savepoint.table, needed_version(savepoint))
    rows = _rows_of(spark, savepoint.table, manifest.state.version, savepoint.version)
    if manifest.changes is None or changes is None:
        return rows
    check_log(changes, manifest.changes.version)
    return with_changes(rows, _version(spark, changes, manifest.changes.version))


def _rows_of(spark: Any, path: str, version: int | None, wanted: int | None) -> Any:
    """A version of a table of state as a DataFrame; None: the newest version, which is ``wanted``."""
    # Spark takes a path with one of these characters for a pattern, Delta does not
    plain = wanted == 0 and not re.search(r"[*?\[\]{}\\]", path)
    files = DeltaLog(path).files_of_first_commit() if plain else []
    if files:
        # the files that Delta itself would read, without the Spark jobs that it needs to find them
        rows = spark.read.schema(SAVEPOINT_SCHEMA).parquet(*map(for_spark, files))
    else:
        rows = _version(spark, path, version)
    return rows.select(*COLUMNS)


def _version(spark: Any, path: str, version: int | None) -> Any:
    """A version of a table as a DataFrame; None: the newest version."""
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(for_spark(path))


def needed_version(savepoint: Savepoint) -> int | None:
    """The version of the table that will be read; None: it is not known which one."""
    manifest = savepoint.manifest
    if manifest.state.version is not None or manifest.contents is None:
        return manifest.state.version
    return max(savepoint.newest or 0, manifest.contents.version)


def with_digest(table: Any) -> Any:
    """The rows with an additional column: the hash of the row. The digest of a state is the sum of its rows' hashes."""
    from pyspark.sql import functions as f

    return table.withColumn(DIGEST, f.xxhash64(*COLUMNS))


def count_states(table: Any) -> tuple[StateContents, ...]:
    """The contents of a DataFrame of rows by state, sorted; counted in one pass."""
    from pyspark.sql import functions as f

    digest = f.sum(f.col(DIGEST).cast("decimal(38,0)")).cast("string")
    counted = with_digest(table).groupBy("uid", "state", "kind").agg(f.count("*").alias("rows"), digest.alias("sum"))
    found = (
        StateContents(str(r["uid"]), str(r["state"]), str(r["kind"]), r["rows"], r["sum"]) for r in counted.collect()
    )
    return tuple(sorted(found))


def made_of_files(table: str, files: list[DataFile]) -> bool:
    """Make a new table of files that lie in its directory, by a commit without Spark; False if the file system has no
    hard links, so that Spark has to write the table.

    Raises:
        FileExistsError: there is such a table already.
    """
    now_ms = time.time_ns() // 1_000_000
    info, *added = append_of(files, now_ms)
    return DeltaLog(table).publish(0, [info, *new_table(dict.fromkeys(COLUMNS, "string"), now_ms, {}), *added])


def write_rows(table: str, files: Callable[[str], list[DataFile]], rows: Callable[[], Any]) -> None:
    """Write the table of a savepoint: of files that tasks write into its directory (``files``, of a path without a
    scheme), or of the same rows as a DataFrame where only Spark can commit."""
    local = local_path(table)
    if local is None or not made_of_files(table, files(local)):
        delete_directory(table)
        rows().write.format("delta").save(for_spark(table))


def written_contents(spark: Any, table: str) -> TableContents:
    """The contents of a table that was just written, for its manifest."""
    version = DeltaLog(table).newest() or 0
    return TableContents(version, count_states(_rows_of(spark, table, version, version)))


def is_edited(savepoint: Savepoint) -> bool:
    """Whether the table was changed after it was written.

    Raises:
        SavepointError: the table's log is not complete.
    """
    written, version = savepoint.manifest.contents, savepoint.newest
    if written is None or savepoint.manifest.state.version is not None:
        return False
    if version is None or version < written.version:
        raise SavepointError(
            "the log of the savepoint's table is not complete",
            where=DeltaLog(savepoint.table).file(written.version),
            expected=f"version {written.version}, which was there when the savepoint was written",
            hint="copy the table from a backup, or use another savepoint",
        )
    return version > written.version


def check_contents(savepoint: Savepoint, found: tuple[StateContents, ...]) -> None:
    """Compare the contents of a table that nobody has edited with what was written.

    Raises:
        SavepointError: they differ; the error says in which states.
    """
    written = savepoint.manifest.contents
    if written is None or found == written.states:
        return
    before = {(state.uid, state.state, state.kind): state for state in written.states}
    now = {(state.uid, state.state, state.kind): state for state in found}
    differences = [
        f"uid {key[0]}, state {key[1]}: {_rows(now.get(key))}, written were {_rows(before.get(key))}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]
    raise SavepointError(
        "the savepoint's table does not hold what was written: " + "; ".join(differences[:5]),
        where=savepoint.table,
        expected="the rows as they were written, or edited in a transaction of Delta",
        hint="copy the table from a backup, or use another savepoint",
    )


def _rows(state: StateContents | None) -> str:
    return "no row" if state is None else f"{state.rows} rows (digest {state.digest})"


def check_unique(table: Any, where: str) -> None:
    """Check that no entry of state occurs twice, which can be the case in an edited table.

    Raises:
        SavepointError: an entry occurs more than once; the error names it.
    """
    rows = table.where(f"NOT startswith(state, '{TIMERS_PREFIX}') AND kind <> '{WATERMARK}'").selectExpr(
        "uid",
        "state",
        "key",
        "coalesce(namespace, 'null') AS namespace",
        f"CASE WHEN kind IN ({_MAP_KINDS}) THEN {_MAP_KEY} END AS entry",
    )
    found = rows.groupBy(*rows.columns).count().where("count > 1").take(1)
    if found:
        row = found[0]
        entry = row["entry"][2:] if row["entry"] else ""
        raise doubled(row["count"], row["uid"], row["state"], row["key"], row["namespace"], entry, where)


def doubled(count: int, uid: str, state: str, key: str, namespace: str, map_key: str, where: str) -> SavepointError:
    """The error for an entry of state that occurs more than once. ``map_key``: "" for other kinds of state."""
    entry = f", map key {map_key}" if map_key else ""
    return SavepointError(
        f"there are {count} rows for uid {uid}, state {state}, key {key}, namespace {namespace}{entry}",
        where=where,
        expected="one row per entry of state",
        hint="delete all but one of them in the savepoint's table",
    )


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
    #: (uid, and the texts of namespace, key and value)
    watermarks: set[tuple[str, str, str, str]] = field(default_factory=set)

    def add(self, saved: SavepointColumns, hashes: list[int]) -> None:
        """Count rows of one state, given with the hash of each."""
        self._count((str(saved.uid), str(saved.state), str(saved.kind)), len(hashes), sum(hashes))
        if saved.kind == WATERMARK:
            texts = zip(saved.namespaces, saved.keys, saved.values)
            self.watermarks.update((saved.uid, namespace or "null", key, text) for namespace, key, text in texts)

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

    def event_times(self) -> EventTimes:
        """How far event time is. A subtask of which there is no row has not heard of any."""
        subtasks: dict[str, list[int]] = {}
        least: dict[str, int] = {}
        splits: list[SplitWatermark] = []
        for uid, namespace, key, text in sorted(self.watermarks):
            where = f"savepoint row of uid {uid}, {WATERMARK}"
            watermark_ms = watermark_of(text, where)
            told = from_text(namespace, where)
            if isinstance(told, (tuple, list)):
                source, parallelism, idle = told
                split = str(from_text(key, where))
                splits.append((uid, str(source), int(parallelism), split, bool(idle), watermark_ms))
            else:
                subtasks.setdefault(uid, []).append(watermark_ms)
                # rows of earlier versions do not say how many there are
                least[uid] = told or 1
        lowest = {uid: min(found) for uid, found in subtasks.items() if len(found) >= least[uid]}
        going = {uid: watermark_ms for uid, watermark_ms in lowest.items() if watermark_ms < MAX_WATERMARK_MS}
        return EventTimes(going, tuple(splits))

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

    The rows are hashed again for the parallelism of the job. The findings of each task about its rows are rows of their
    own, so that one pass over the state both checks and moves it.

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
        from pyspark import TaskContext

        with failures_marked(self.deployment.secret):
            job = self.deployment.job()
            book = self.deployment.book()
            reader = RowReader(self.program, self.migrations, self.convert, job.classes)
            found = FoundRows()
            if self.buffers and not TaskContext.get().partitionId():  # type: ignore[union-attr]
                yield from to_arrow(first_calls(job), book, 1)
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


def written_buffers(path: str, spark: Any, table: Any, convert: RowsToBuffers) -> FoundRows:
    """Write the buffers below ``path``; returns what was found in the rows."""
    converted = with_digest(table).mapInArrow(convert, ROW_SCHEMA)
    # no more tasks than run at a time, since each writes a file; and nothing else runs before the job is restored
    converted.coalesce(max(4, slots_of(spark))).write.mode("overwrite").parquet(for_spark(path))
    return _found(spark.read.schema(ROW_SCHEMA).option(*VERIFY_PAGES).parquet(for_spark(path)))


def checked_rows(table: Any, convert: RowsToBuffers) -> FoundRows:
    """Check the rows without writing anything; returns what was found in them."""
    return _found(with_digest(table).mapInArrow(convert, ROW_SCHEMA))


def _found(rows: Any) -> FoundRows:
    found = FoundRows()
    for row in rows.where(f"vertex = {FOUND_VERTEX}").select("buffer").collect():
        found.add_all(FoundRows.decode(bytes(row["buffer"])))
    found.states.sort(key=lambda state: (state.uid, state.state, state.kind))
    return found
