"""Turns the changelog of a job (``runtime/changelog_files.py``) into rows of a table of changes (`changed_rows`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flinkish.runtime.changelog_files import read_parts
from flinkish.runtime.program_classes import ProgramClasses
from flinkish.runtime.state.changelog import Change, decode_changes
from flinkish.runtime.state.key_texts import key_texts
from flinkish.runtime.state.savepoint_rows import to_savepoint_row, to_text
from flinkish.spark.changed_rows import CHANGES_SCHEMA
from flinkish.spark.worker import DeployedClasses, failures_marked
from flinkish.spark.worker_pool import give_way_to_epochs, workers_beside_epochs

_CHANGED_ARROW = pa.schema(
    [("epoch", pa.int64())]
    + [(name, pa.string()) for name in ("uid", "state", "kind", "key", "namespace", "value", "slot")]
    + [("marker", pa.bool_())]
)
_BATCH_ROWS = 10_000

_ChangedRow = tuple[int, str | None, str, str, str, str, str | None, str, bool]


@dataclass(frozen=True)
class ChangesToRows:
    """The function of ``mapInArrow`` that decodes changes and turns them into rows of a table of changes."""

    deployed: DeployedClasses

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert one Spark partition of the changelog."""
        give_way_to_epochs()
        with failures_marked():
            share: list[_ChangedRow] = []
            classes = self.deployed.classes()
            for batch in batches:
                for data in batch.column("changes").to_pylist():
                    epoch, changes = decode_changes(data, "", classes)
                    for change in changes:
                        share.extend(_rows_of(epoch, change, classes))
                        if len(share) >= _BATCH_ROWS:
                            yield _batch(share)
                            share = []
            if share:
                yield _batch(share)


def _rows_of(epoch: int, change: Change, classes: ProgramClasses) -> Iterator[_ChangedRow]:
    keys, namespaces = key_texts(change.key), key_texts(change.namespace)
    if keys is None or namespaces is None:
        yield (epoch, None, change.state, change.kind, repr(change.key)[:200], "", None, "", True)
        return
    timer = None if change.timer_ms is None else str(change.timer_ms)
    slots = [("" if timer is None else f"{change.kind}/{timer}", timer)]
    if change.map_key:
        texts = key_texts(change.map_key[0])
        if texts is None:
            yield (epoch, None, change.state, change.kind, repr(change.map_key[0])[:200], "", None, "", True)
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


def changed_rows(spark: Any, changelog: str, epochs: list[int], deployed: DeployedClasses) -> Any:
    """The changes of these epochs as a DataFrame of `CHANGES_SCHEMA`.

    Args:
        changelog: directory of the changelog.
        deployed: the classes that the changed values may be instances of.
    """
    paths = [path for epoch in epochs for path in read_parts(changelog, epoch)]
    if not paths:
        return spark.createDataFrame([], CHANGES_SCHEMA)
    convert = ChangesToRows(deployed)
    with workers_beside_epochs(spark):
        return spark.read.schema("changes binary").parquet(*paths).mapInArrow(convert, CHANGES_SCHEMA)
