"""The last change of each key: what sinks that keep one row per primary key write of an epoch, one helper for all of
them.

Rule upheld here: a row that is retracted (-U) and not replaced is deleted, as it is by Flink's sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flinkish.common.types import RowKind
from flinkish.core.column_batch import ColumnBatch, with_kinds
from flinkish.core.sink import Committer, Guarantee, SinkWriter, WriterSink

#: Their kinds, by the numbers of RowKind.
INSERT, UPDATE_BEFORE, DELETE = (int(kind.value) for kind in (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.DELETE))

#: The rows of an epoch that are held before those that later ones replace are dropped.
_HELD_ROWS = 131_072


def last_changes(batch: ColumnBatch, key: Sequence[str]) -> ColumnBatch:
    """The last row of each key, an INSERT or a DELETE, in the order in which they stand in the batch."""
    if not len(batch):
        return batch
    codes = np.zeros(len(batch), np.int64)
    for name in key:
        column = batch.columns.column(name)
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1] if len(key) > 1 else codes
    last: npt.NDArray[np.int64] = np.full(int(codes.max()) + 1, -1, np.int64)
    # of an index that comes several times, numpy keeps the last value
    last[codes] = np.arange(len(batch))
    positions = np.sort(last[last >= 0])
    found = batch.take(positions) if len(positions) < len(batch) else batch
    if found.kinds is None:
        return found
    gone = (found.kinds == UPDATE_BEFORE) | (found.kinds == DELETE)
    return ColumnBatch(found.columns, np.where(gone, DELETE, INSERT).astype(np.int8))


class LastChangeSink(WriterSink):
    """A sink of batches of columns that hands the last change of each key and epoch to another one, as Rows of kind
    INSERT or DELETE.

    Args:
        sink: the sink of Rows.
        key: the columns of the key.
        make_reader: gives what makes Rows of columns.
    """

    reads_timestamps = False

    def __init__(
        self, sink: WriterSink, key: Sequence[str], make_reader: Callable[[], Callable[[Any], list[Any]]]
    ) -> None:
        self._sink, self._key, self._make_reader = sink, tuple(key), make_reader
        self.guarantee: Guarantee = sink.guarantee

    @property
    def default_name(self) -> str:
        return self._sink.default_name

    @property
    def is_idempotent(self) -> bool:
        """True: there is one row per key."""
        return True

    @property
    def _destination(self) -> str:
        return self._sink._destination

    def create_writer(self) -> SinkWriter:
        return _LastChangeWriter(self._sink.create_writer(), self._key, self._make_reader())

    def create_committer(self) -> Committer:
        return self._sink.create_committer()


class _LastChangeWriter(SinkWriter):
    def __init__(self, writer: SinkWriter, key: Sequence[str], read: Callable[[Any], list[Any]]) -> None:
        self._writer, self._key, self._read = writer, key, read
        self._held: list[ColumnBatch] = []
        self._rows = 0

    def open(self, subtask: int, parallelism: int) -> None:
        self._writer._times = self._times
        self._writer.open(subtask, parallelism)

    def write(self, values: Any, timestamps: list[int] | None) -> list[Any]:
        self._held.append(last_changes(values, self._key))
        self._rows += len(self._held[-1])
        if self._rows >= _HELD_ROWS and len(self._held) > 1:
            self._held = [self._last()]
            # the next time when there are as many again
            self._rows = 0
        return []

    def prepare_commit(self) -> list[Any]:
        found: list[Any] = []
        if self._held:
            batch, self._held, self._rows = self._last(), [], 0
            rows = self._read(batch.columns)
            found += self._writer.write(rows if batch.kinds is None else with_kinds(rows, batch.kinds), None)
        return [*found, *self._writer.prepare_commit()]

    def close(self) -> None:
        self._writer.close()

    def _last(self) -> ColumnBatch:
        return last_changes(ColumnBatch.joined(self._held), self._key)
