"""Changes of state as rows of a table, which are read together with the rows of state that they change, or merged into
those; and how the changelog of a job (`ChangelogFiles`) becomes such rows, which Spark can write, or files of them,
which only have to be added to the table.

A change belongs to one entry (columns `ENTRY`) and one epoch. It consists of ``marker`` rows, which name the entry once
for each text that its key may have, and of one row for each row of state that the entry has after the epoch (none if
the entry is gone). Rule: only the changes of the last epoch of an entry count, and they replace all rows that the entry
had. So merging the same changes twice does no harm.

The slot tells the entries of one key and state apart: timers, and the entries of a map. The slot of a map entry is the
beginning of the text of its row. A marker with an empty slot stands for all that the key has of the state; changes of
earlier epochs do not count any more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import pyarrow as pa

from flinkish.common.arguments import abbreviated
from flinkish.runtime.epoch.changelog_files import read_changes, read_parts
from flinkish.runtime.state.changelog import Change, decode_changes, key_texts
from flinkish.runtime.state.saved.texts import SavepointRow, to_savepoint_row, to_texts
from flinkish.runtime.state.state_rows import MAP_KINDS
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.texts import to_text
from flinkish.spark.data_files import FILE_SCHEMA, DataFile, RowsToFiles, joined
from flinkish.spark.settings import give_way_to_epochs, workers_beside_epochs
from flinkish.spark.worker import DeployedClasses, failures_marked
from flinkish.storage.paths import for_spark

#: Columns of a table of changes, in Spark's DDL. A row whose ``uid`` is null says that a key has more texts than can
#: be listed.
CHANGES_SCHEMA = (
    "epoch long, uid string, state string, kind string, key string, namespace string, value string, slot string, "
    "marker boolean"
)
#: The columns that identify an entry: all changes of one entry have the same values in them.
ENTRY = "uid, state, key, namespace, slot"

_CHANGED_ARROW = pa.schema(
    [("epoch", pa.int64())]
    + [(name, pa.string()) for name in ("uid", "state", "kind", "key", "namespace", "value", "slot")]
    + [("marker", pa.bool_())]
)
#: Names of the columns of a table of changes.
CHANGES_COLUMNS: list[str] = _CHANGED_ARROW.names
_BATCH_ROWS = 10_000
#: How many times as long as it works the driver's process rests while it converts changes.
RESTS_PER_WORK = 5

_ChangedRow = tuple[int, str | None, str, str, str, str, str | None, str, bool]


@dataclass(frozen=True)
class ChangesToRows:
    """The function of ``mapInArrow`` that decodes changes and turns them into rows of a table of changes."""

    deployed: DeployedClasses

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert one Spark partition of the changelog."""
        give_way_to_epochs()
        with failures_marked(self.deployed.secret):
            yield from joined(self._batches(batches))

    def _batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        classes = self.deployed.classes()
        for batch in batches:
            for data in batch.column("changes").to_pylist():
                epoch, changes = decode_changes(data, "", classes)
                yield from _batches_of(epoch, changes, classes)


def _batches_of(epoch: int, changes: list[Change], classes: ProgramClasses) -> Iterator[pa.RecordBatch]:
    """The rows of the changes of a subtask in an epoch."""
    for (uid, state, kind, in_columns), run in groupby(changes, _run_of):
        if in_columns:
            while share := list(islice(run, _BATCH_ROWS)):
                yield from _columns_of(epoch, uid, state, kind, share, classes)
        else:
            rows = (row for change in run for row in _rows_of(epoch, change, classes))
            while part := list(islice(rows, _BATCH_ROWS)):
                yield _batch(part)


def _run_of(change: Change) -> tuple[str, str, str, bool]:
    """The state that a change belongs to, and whether the changes of a run can be converted column by column: that
    takes a tenth of the time."""
    in_columns = type(change.key) is str and change.timer_ms is None and change.kind not in MAP_KINDS
    return change.uid, change.state, change.kind, in_columns and change.namespace is None


def _columns_of(
    epoch: int, uid: str, state: str, kind: str, share: list[Change], classes: ProgramClasses
) -> Iterator[pa.RecordBatch]:
    """What `_rows_of` gives for each change, for changes with keys of type str and without a namespace."""
    keys = to_texts([change.key for change in share], classes)
    yield _batch_of_columns(epoch, uid, state, kind, keys, None)
    keys = [key for key, change in zip(keys, share, strict=True) for _ in change.values]
    if keys:
        values = to_texts([value for change in share for value in change.values], classes)
        yield _batch_of_columns(epoch, uid, state, kind, keys, values)


def _batch_of_columns(
    epoch: int, uid: str, state: str, kind: str, keys: list[str], values: list[str] | None
) -> pa.RecordBatch:
    """Rows of changes; without values: markers."""
    columns = [epoch, uid, state, kind, keys, to_text(None), values, "", values is None]
    count = len(keys)
    arrays = [
        pa.array(column, field.type) if isinstance(column, list) else pa.repeat(pa.scalar(column, field.type), count)
        for column, field in zip(columns, _CHANGED_ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_CHANGED_ARROW)


def _rows_of(epoch: int, change: Change, classes: ProgramClasses) -> Iterator[_ChangedRow]:
    keys, namespaces = key_texts(change.key), key_texts(change.namespace)
    if keys is None or namespaces is None:
        yield (epoch, None, change.state, change.kind, abbreviated(change.key, 200), "", None, "", True)
        return
    timer = None if change.timer_ms is None else str(change.timer_ms)
    slots = [("" if timer is None else f"{change.kind}/{timer}", timer)]
    if change.map_key:
        texts = key_texts(change.map_key[0])
        if texts is None:
            yield (epoch, None, change.state, change.kind, abbreviated(change.map_key[0], 200), "", None, "", True)
            return
        slots = [(map_slot(text), map_slot(text)) for text in texts]
    for key in keys:
        for namespace in namespaces:
            for slot, value in slots:
                yield (epoch, change.uid, change.state, change.kind, key, namespace, value, slot, True)
    for row in change.rows():
        slot = map_slot(to_text(row.value[0], classes)) if change.kind == "map" else slots[0][0]
        yield (epoch, *to_savepoint_row(change.uid, row, classes), slot, False)


def map_slot(text: str) -> str:
    """The slot of a map entry, made of the text of its map key: the text of this entry's row begins with it, and the
    text of no other entry's row does."""
    return f'{{"$tuple": [{text}, '


def _batch(share: list[_ChangedRow]) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*share), _CHANGED_ARROW)]
    return pa.RecordBatch.from_arrays(columns, schema=_CHANGED_ARROW)


@dataclass(frozen=True)
class FromParts:
    """The function of ``mapInArrow`` that reads the parts of the changelog whose numbers it gets, and passes them on to
    another such function. Spark's own reader costs more than a part does."""

    paths: tuple[str, ...]
    convert: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert one Spark partition of the numbers."""
        numbers = (number for batch in batches for number in batch.column("id").to_pylist())
        return self.convert(part for number in numbers for part in read_changes(self.paths[number]))


def changed_rows(spark: Any, changelog: str, epochs: list[int], deployed: DeployedClasses, tasks: int) -> Any:
    """The changes of these epochs as a DataFrame of `CHANGES_SCHEMA`, with so many partitions at most.

    Args:
        changelog: directory of the changelog.
        deployed: the classes that the changed values may be instances of.
    """
    return _converted(spark, changelog, epochs, tasks, ChangesToRows(deployed), CHANGES_SCHEMA)


def changed_files(
    spark: Any, changelog: str, epochs: list[int], deployed: DeployedClasses, tasks: int, table: str
) -> list[DataFile]:
    """Write the changes of these epochs to files in the directory of a table of changes, one per partition of
    `changed_rows`. ``table``: a path without a scheme."""
    convert = RowsToFiles(ChangesToRows(deployed), _CHANGED_ARROW, table, deployed.secret)
    files = _converted(spark, changelog, epochs, tasks, convert, FILE_SCHEMA).collect()
    return [DataFile(*file) for file in files]


def changed_file(changelog: str, epochs: list[int], deployed: DeployedClasses, table: str) -> list[DataFile]:
    """`changed_files`, converted and written as one file by this process: for few changes, which take less time than a
    Spark job does. It takes a sixth of a core, as it would take the core and the interpreter from the running epoch."""
    paths = (path for epoch in epochs for path in read_parts(changelog, epoch))
    parts = with_rests(part for path in paths for part in read_changes(path))
    files = RowsToFiles(ChangesToRows(deployed), _CHANGED_ARROW, table, deployed.secret)(parts)
    return [DataFile(**file) for batch in files for file in batch.to_pylist()]


def with_rests(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The parts; after each of them this thread rests, in proportion to the processor time that the part took. Waiting
    does not count: a driver that was suspended meanwhile must not rest for a multiple of that."""
    for part in parts:
        began_s = time.thread_time()
        yield part
        time.sleep(RESTS_PER_WORK * (time.thread_time() - began_s))


def _converted(spark: Any, changelog: str, epochs: list[int], tasks: int, convert: Any, schema: str) -> Any:
    paths = tuple(path for epoch in epochs for path in read_parts(changelog, epoch))
    if not paths:
        return spark.createDataFrame([], schema)
    with workers_beside_epochs(spark):
        numbers = spark.range(0, len(paths), 1, min(len(paths), tasks))
        return numbers.mapInArrow(FromParts(paths, convert), schema)


_LAST = f"""
    SELECT * EXCEPT (last, last_of_all) FROM (
        SELECT
            *,
            max(epoch) OVER (PARTITION BY {ENTRY}) AS last,
            max(CASE WHEN slot = '' THEN epoch END) OVER (PARTITION BY uid, state, key, namespace) AS last_of_all
        FROM {{changes}}
    ) WHERE epoch = last AND epoch >= coalesce(last_of_all, epoch)
"""
#: SQL condition: a row of state (t) belongs to the entry that a marker row of the changes (c) names.
_IS_OF_ENTRY = (
    "t.uid = c.uid AND t.state = c.state AND t.key = c.key AND t.namespace = c.namespace "
    "AND CASE WHEN c.slot = '' THEN true WHEN c.kind = 'map' THEN startswith(t.value, c.value) "
    "ELSE t.kind = c.kind AND t.value = c.value END"
)
_COLUMNS = ", ".join(SavepointRow._fields)


def with_changes(rows: Any, changes: Any) -> Any:
    """The rows of state with the changes applied, as a DataFrame with the columns of a savepoint."""
    spark = rows.sparkSession
    return spark.sql(
        f"""
        WITH last AS ({_LAST})
        SELECT {_COLUMNS} FROM {{rows}} t WHERE NOT EXISTS (SELECT 1 FROM last c WHERE c.marker AND {_IS_OF_ENTRY})
        UNION ALL
        SELECT {_COLUMNS} FROM last WHERE NOT marker
        """,
        rows=rows,
        changes=changes,
    )


def merge_changes(spark: Any, table: str, changes: Any) -> None:
    """Apply the changes to the Delta table of state, in one commit."""
    view = f"flinkish_changes_{uuid.uuid4().hex}"
    changes.createOrReplaceTempView(view)
    try:
        spark.sql(
            f"""
            MERGE INTO delta.`{for_spark(table)}` t
            USING ({_LAST.format(changes=view)}) c
            ON c.marker AND {_IS_OF_ENTRY}
            WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED AND NOT c.marker THEN
                INSERT ({_COLUMNS}) VALUES ({", ".join(f"c.{name}" for name in SavepointRow._fields)})
            """
        ).collect()
    finally:
        spark.catalog.dropTempView(view)
