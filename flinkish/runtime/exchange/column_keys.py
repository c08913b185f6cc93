"""The keys of batches of columns: their hashes, equal to `stable_hash` of the key that a row has, and the partitioner
that places rows by them.

The key of a row is the value of the one key column, or the tuple of the values of several; NULL is a key, as in SQL.
Integers, truth values and texts are hashed in numpy over Arrow's buffers, other values one by one, each value once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.core.column_batch import ColumnBatch, python_values
from flinkish.errors import InternalError
from flinkish.runtime.exchange.hashes import Hashes, mix, raw_hashes
from flinkish.runtime.exchange.partitioners import Bucket, Sender, Spread
from flinkish.runtime.exchange.stable_hash import STABLE_HASH_MASK, raw_hash

_MASK = (1 << 64) - 1
_NULL = np.uint64(raw_hash(None))
#: CPython's modulus of the hashes of numbers.
_MODULUS = (1 << 61) - 1
#: The numbers of `stable_hash._combine`.
_TUPLE, _FACTOR = 0x345678, np.uint64(1_000_003)
#: So many texts of a batch are looked at to see whether its texts repeat; if they do, each one is hashed once.
_SAMPLE = 1_024


@dataclass(frozen=True)
class ColumnKeys:
    """The key selector of batches of columns, by the names of the columns; ``names`` (): all rows have the key ()."""

    names: tuple[str, ...]

    def __call__(self, value: Any) -> Any:
        raise InternalError("a row of columns is asked for its key", expected="a batch of columns")

    def spread_columns(self, max_parallelism: int, sender: Sender) -> Spread:
        """The working form of the partitioner by these keys."""
        parallelism = sender.target_parallelism

        def spread(values: Any, timestamps: list[int] | None, buckets: list[Bucket]) -> None:
            if parallelism == 1:
                buckets[0].extend(values, None)
                return
            groups = key_hashes(values.columns, self.names) % np.uint64(max_parallelism)
            subtasks = (groups * np.uint64(parallelism) // np.uint64(max_parallelism)).astype(np.uint16)
            _place(values, subtasks, buckets)

        return spread


def _place(values: ColumnBatch, subtasks: npt.NDArray[np.uint16], buckets: list[Bucket]) -> None:
    """Put each row of a batch into the bucket of its subtask."""
    counts = np.bincount(subtasks, minlength=len(buckets))
    used = np.flatnonzero(counts)
    if len(used) == 1:
        buckets[used[0]].extend(values, None)
        return
    # numpy sorts short integers by their digits, and keeps the order of equal ones
    ordered, start = values.take(np.argsort(subtasks, kind="stable")), 0
    for subtask in used.tolist():
        stop = start + int(counts[subtask])
        buckets[subtask].extend(ordered[start:stop], None)
        start = stop


def key_hashes(columns: pa.RecordBatch, names: Sequence[str]) -> Hashes:
    """`stable_hash` of the key of each row.

    Raises:
        InvalidKeyError: a key is NaN.
    """
    hashes: Hashes = mix(raw_key_hashes(columns, names)) & np.uint64(STABLE_HASH_MASK)
    return hashes


def raw_key_hashes(columns: pa.RecordBatch, names: Sequence[str]) -> Hashes:
    """`raw_hash` of the key of each row."""
    parts = [column_hashes(columns.column(name)) for name in names]
    if len(parts) == 1:
        return parts[0]
    result = np.full(columns.num_rows, _TUPLE + len(parts), np.uint64)
    for part in parts:
        result = mix(result * _FACTOR ^ part)
    return result


def keys_of_columns(columns: Sequence[pa.Array], rows: int) -> list[Any]:
    """The key of each row, as it stands in state, of key columns with so many rows: the value of a single column, a
    tuple of those of several, () of none."""
    values = [python_values(column) for column in columns]
    if len(values) == 1:
        return values[0]
    return list(zip(*values, strict=True)) if values else [()] * rows


def column_hashes(column: pa.Array) -> Hashes:
    """`raw_hash` of each value of a column."""
    kind = column.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return _of_integers(column)
    if pa.types.is_boolean(kind):
        return _of_integers(column.cast(pa.int8()))
    if pa.types.is_string(kind):
        return _of_texts(column)
    if not pa.types.is_dictionary(kind):
        column = _dictionary(column)
    known, places = column.dictionary, column.indices
    hashes = column_hashes(known) if pa.types.is_string(known.type) else raw_hashes_of(python_values(known))
    if not len(hashes):
        return np.full(len(column), _NULL, np.uint64)
    found = hashes[places.fill_null(0).to_numpy(zero_copy_only=False)]
    return _with_nulls(found, places)


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    try:
        return column.dictionary_encode()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        # lists, maps and rows: one by one
        return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(column), dtype=np.int32)), column)


def raw_hashes_of(values: list[Any]) -> Hashes:
    """`raw_hash` of each of these values, which may be None."""
    if None in values:
        return np.fromiter((raw_hash(one) & _MASK for one in values), np.uint64, len(values))
    return raw_hashes(values)


def _with_nulls(hashes: Hashes, column: pa.Array) -> Hashes:
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _of_integers(column: pa.Array) -> Hashes:
    """CPython's hash of an integer is the integer modulo 2**61 - 1, with its sign, and -2 for -1."""
    numbers = column.fill_null(0) if column.null_count else column
    hashes = numbers.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if column.type.bit_width == 64:
        large = np.abs(hashes) >= _MODULUS
        # the least number has no absolute value
        large |= hashes == np.iinfo(np.int64).min
        if large.any():
            hashes = hashes.copy()
            hashes[large] = [hash(one) for one in hashes[large].tolist()]
    hashes = np.where(hashes == -1, -2, hashes) if (hashes == -1).any() else hashes
    return _with_nulls(hashes.view(np.uint64), column)


def _crc_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(0xEDB88320), table >> np.uint32(1))
    return table


_CRC = _crc_table()
#: Adler-32's modulus. Its sums over texts that are not long do not overflow.
_ADLER = 65_521
#: Texts of more bytes are hashed one by one.
_LONG = 128


def _of_texts(column: pa.Array) -> Hashes:
    """crc32 and adler32 of each text. Where texts repeat, each is hashed once."""
    if len(column) > 4 * _SAMPLE and 4 * len(column[:_SAMPLE].unique()) < 3 * _SAMPLE:
        return column_hashes(column.dictionary_encode())
    size = len(column)
    _, offsets, data = column.buffers()
    if not size or data is None:
        return _with_nulls(np.full(size, raw_hash(""), np.uint64), column)
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + size + 1].astype(np.int64)
    lengths, found = np.diff(ends), np.frombuffer(data, np.uint8)
    # the longest first: those that have more than i bytes are a prefix
    order = np.argsort(-lengths, kind="stable")
    hashes = np.empty(size, np.uint64)
    long = int(np.searchsorted(-lengths[order], -_LONG, side="left"))
    for row in order[:long].tolist():
        text = found[ends[row] : ends[row + 1]].tobytes()
        hashes[row] = zlib.crc32(text) | zlib.adler32(text) << 32
    order = order[long:]
    if len(order):
        hashes[order] = _checksums(found, ends[:-1][order], lengths[order])
    return _with_nulls(hashes, column)


def _checksums(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Hashes:
    """crc32 and adler32 << 32 of stretches of bytes, the longest of which come first."""
    crc = np.full(len(starts), 0xFFFFFFFF, np.uint32)
    low, high = np.ones(len(starts), np.uint32), np.zeros(len(starts), np.uint64)
    longest = int(lengths[0])
    longer = np.searchsorted(-lengths, -np.arange(longest), side="left")
    for at in range(longest):
        count = int(longer[at])
        byte = data[starts[:count] + at]
        crc[:count] = _CRC[(crc[:count] ^ byte) & np.uint32(0xFF)] ^ crc[:count] >> np.uint32(8)
        low[:count] += byte
        high[:count] += low[:count]
    adler = (high % np.uint64(_ADLER)) << np.uint64(16) | (low % np.uint32(_ADLER)).astype(np.uint64)
    checksums: Hashes = (crc ^ np.uint32(0xFFFFFFFF)).astype(np.uint64) | adler << np.uint64(32)
    return checksums
