"""Keys in columns: each distinct key gets a number (its *id*), by which arrays of state are indexed.

Ids count up from 0 in the order in which keys first appear. No Python object is made per row: integers, times and
floats are looked up as 64-bit numbers in an open-addressing table in numpy, texts by a hash of their bytes, and then
compared in C. NULL is a key. Lists, maps and rows are not supported.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.common.typeinfo.arrow import arrow_array
from flinkish.runtime.exchange.column_keys import keys_of_columns

Ints = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_EMPTY = -1
#: Texts of more bytes are hashed one by one.
_LONG = 128
#: Arrays begin with so much room; they double.
ROOM = 1_024


def grown(array: npt.NDArray[Any], size: int, fill: Any = 0) -> npt.NDArray[Any]:
    """The array itself, or a longer copy of it, that has room for ``size`` values."""
    if size <= len(array):
        return array
    longer = np.full(max(size, 2 * len(array)), fill, array.dtype)
    longer[: len(array)] = array
    return longer


def first_rows(ids: Ints, count: int) -> tuple[Positions, Ints]:
    """The positions at which each distinct id comes first, in their order, and for each row the index of its id among
    them. ``count``: more than the greatest id.

    >>> [found.tolist() for found in first_rows(np.array([7, 3, 7]), 8)]
    [[0, 1], [0, 1, 0]]
    """
    place = np.empty(count, np.int64)
    rows = np.arange(len(ids))
    place[ids[::-1]] = rows[::-1]
    firsts = np.flatnonzero(place[ids] == rows)
    place[ids[firsts]] = rows[: len(firsts)]
    return firsts, place[ids]


def arrow_values(values: Sequence[Any], of: pa.DataType) -> pa.Array:
    """The inverse of `flinkish.core.column_batch.python_values`."""
    if pa.types.is_timestamp(of) and of.tz is not None:
        return arrow_array(values, pa.timestamp("us", of.tz)).cast(of)
    return pa.array(values, of)


def columns_of_keys(keys: Sequence[Any], types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The inverse of `flinkish.runtime.exchange.column_keys.keys_of_columns`, for keys of these types."""
    parts = [keys] if len(types) == 1 else [[key[place] for key in keys] for place in range(len(types))]
    return [arrow_values(part, of) for part, of in zip(parts, types, strict=True)]


class NumberTable:
    """Maps rows of 64-bit numbers to ids, in an open-addressing table.

    A row that is new claims a cell in the name of its position. Of equal rows the first one wins, since all of them are
    at the same cell in each round. ``room``: about how many ids there will be.
    """

    def __init__(self, width: int = 1, room: int = ROOM) -> None:
        self.numbers: list[Ints] = [np.zeros(ROOM, np.int64) for _ in range(width)]
        self.count = 0
        self._enlarge(room)

    def widen(self) -> None:
        """Add a column, in which all rows so far have 0."""
        self.numbers.append(np.zeros(len(self.numbers[0]), np.int64))

    def find(self, columns: Sequence[Ints]) -> Ints:
        """The id of each row; rows that are new get the next ones. Columns that were added by `widen` may be left out:
        they are 0."""
        cell = self._hashes(columns)
        ids = self._cells[cell]
        hit = ids >= 0
        for place, known in enumerate(self.numbers):
            hit &= known[ids] == (columns[place] if place < len(columns) else 0)
        if hit.all():
            return ids.astype(np.int64)
        rest = np.flatnonzero(~hit)
        if 2 * (self.count + len(rest)) > len(self._cells):
            # each of these rows may be a new one
            self._enlarge(self.count + len(rest))
            return self.find(columns)
        columns = [*columns, *(np.zeros(len(ids), np.int64) for _ in self.numbers[len(columns) :])]
        return self._insert(columns, ids.astype(np.int64), rest, cell[rest])

    def _insert(self, columns: Sequence[Ints], ids: Ints, rest: Positions, cell: Positions) -> Ints:
        """`find` for the rows that are not at the first cell where they may be. Until all are found, the id of a new
        one is its position, behind all ids."""
        cells, begin, rows = self._cells, self.count, len(ids)
        for place, column in enumerate(columns):
            self.numbers[place] = grown(self.numbers[place], begin + rows)
            self.numbers[place][begin : begin + rows] = column
        values = [column[rest] for column in columns]
        new, touched = np.zeros(rows, bool), list[Positions]()
        while len(rest):
            found = cells[cell]
            free = np.flatnonzero(found == _EMPTY)
            if len(free):
                claimed, positions = cell[free], rest[free] + begin
                cells[claimed[::-1]] = positions[::-1]
                found[free] = cells[claimed]
                won = found[free] == positions
                new[positions[won] - begin] = True
                touched.append(claimed[won])
            hit = self.numbers[0][found] == values[0]
            for known, value in zip(self.numbers[1:], values[1:], strict=True):
                hit &= known[found] == value
            ids[rest] = found
            left = np.flatnonzero(~hit)
            rest, cell, values = rest[left], (cell[left] + 1) & (len(cells) - 1), [value[left] for value in values]
        if not touched:
            return ids
        ordered = np.flatnonzero(new)
        self.count += len(ordered)
        number = np.arange(begin + rows)
        number[begin + ordered] = np.arange(begin, self.count)
        for known, column in zip(self.numbers, columns, strict=True):
            known[begin : self.count] = column[ordered]
        changed = np.concatenate(touched)
        cells[changed] = number[cells[changed]]
        return number[ids]

    def _enlarge(self, count: int) -> None:
        self._bits = max(4, (3 * count).bit_length())
        self._cells = cells = np.full(1 << self._bits, _EMPTY, np.int32)
        rest = np.arange(self.count)
        cell = self._hashes([known[: self.count] for known in self.numbers])
        while len(rest):
            free = cells[cell] == _EMPTY
            cells[cell[free]] = rest[free]
            left = cells[cell] != rest
            rest, cell = rest[left], (cell[left] + 1) & (len(cells) - 1)

    def _hashes(self, columns: Sequence[Ints]) -> Ints:
        # columns of zeros change nothing, so that they may be left out
        mixed: _Words = columns[0].view(np.uint64) * _MULTIPLIER
        for place, column in enumerate(columns[1:], 2):
            mixed += column.view(np.uint64) * np.uint64(pow(int(_MULTIPLIER), place, 1 << 64))
        mixed >>= np.uint64(64 - self._bits)
        return mixed.view(np.int64)

    @property
    def nbytes(self) -> int:
        """The size of its arrays."""
        return self._cells.nbytes + sum(known.nbytes for known in self.numbers)


def _is_time(of: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(of))


class _Numbers:
    """Values of a fixed width, which are 64-bit numbers themselves; NULL is 0."""

    def __init__(self, of: pa.DataType) -> None:
        self._of = of

    def numbers(self, column: pa.Array) -> Ints:
        of = self._of
        if _is_time(of):
            column = column.view(pa.int32() if of.bit_width == 32 else pa.int64())
        if column.null_count:
            column = column.fill_null(pa.scalar(0).cast(column.type))
        if pa.types.is_boolean(of):
            column = column.cast(pa.int8())
        values = column.to_numpy()
        if pa.types.is_floating(of):
            # 0.0 and -0.0 are one key, and so are all NaN
            values = np.where(np.isnan(values), np.nan, values.astype(np.float64) + 0.0).view(np.int64)
        numbers: Ints = values.astype(np.int64, copy=False)
        return numbers

    def column(self, numbers: Ints, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
        if pa.types.is_floating(self._of):
            return pa.array(numbers.view(np.float64), mask=nulls).cast(self._of)
        if _is_time(self._of):
            narrow = numbers.astype(np.int32) if self._of.bit_width == 32 else numbers
            return pa.array(narrow, mask=nulls).view(self._of)
        return pa.array(numbers, mask=nulls).cast(self._of)

    nbytes = 0


class _Texts:
    """Texts and binary values, and decimals as texts: the number of one is its id in a table by hashes, in which it is
    compared."""

    def __init__(self, of: pa.DataType) -> None:
        self._of, self._large = of, pa.large_binary()
        self._cast = bool(pa.types.is_decimal(of))
        self._table = NumberTable()
        self._data = np.zeros(16 * ROOM, np.uint8)
        self._offsets = np.zeros(ROOM, np.int64)
        self._count = 0
        #: texts whose hash another text had before -> a mark that is added to the hash
        self._odd: dict[bytes, int] = {}
        self._null = -1

    @property
    def count(self) -> int:
        return self._count

    def numbers(self, column: pa.Array) -> Ints:
        marks = np.zeros(len(column), np.int64)
        nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else marks[:0]
        wide = column.cast(pa.string()).cast(self._large) if self._cast else column.cast(self._large)
        if len(nulls):
            wide, marks[nulls] = wide.fill_null(b""), -1
        hashes = text_hashes(wide).view(np.int64)
        ids = self._find(wide, hashes, marks)
        same = pc.equal(self._stored().take(pa.array(ids)), wide)
        if not pc.all(same, min_count=0).as_py():
            for row in np.flatnonzero(~same.to_numpy(zero_copy_only=False)).tolist():
                marks[row] = self._odd.setdefault(wide[row].as_py(), len(self._odd) + 1)
            ids = self._find(wide, hashes, marks)
        if len(nulls):
            self._null = int(ids[nulls[0]])
        return ids

    def _find(self, wide: pa.Array, hashes: Ints, marks: Ints) -> Ints:
        marked = bool(marks.any())
        if marked and len(self._table.numbers) == 1:
            self._table.widen()
        before = self._table.count
        ids = self._table.find([hashes, marks] if marked else [hashes])
        if self._table.count > before:
            rows = np.flatnonzero(ids >= before)
            firsts, _ = first_rows(ids[rows], self._table.count)
            self._append(wide.take(pa.array(rows[firsts])))
        return ids

    def _append(self, texts: pa.Array) -> None:
        offsets, data = _parts_of(texts)
        begin = int(self._offsets[self._count])
        end, count = begin + int(offsets[-1] - offsets[0]), self._count + len(texts)
        self._data, self._offsets = grown(self._data, end), grown(self._offsets, count + 1)
        self._data[begin:end] = data[offsets[0] : offsets[-1]]
        self._offsets[self._count + 1 : count + 1] = offsets[1:] - offsets[0] + begin
        self._count = count

    def _stored(self) -> pa.Array:
        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(self._large, self._count, buffers)

    def column(self, numbers: Ints, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
        found = self._stored().take(pa.array(numbers, mask=numbers == self._null))
        return found.cast(pa.string()).cast(self._of) if self._cast else found.cast(self._of)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._data.nbytes + self._offsets.nbytes


def _column_of(of: pa.DataType) -> _Numbers | _Texts:
    fixed = pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_boolean(of) or _is_time(of)
    return _Numbers(of) if fixed else _Texts(of)


class KeyIds:
    """The ids of the keys of one operator.

    >>> ids = KeyIds([pa.string(), pa.int64()])
    >>> ids.of([pa.array(["a", None, "a"]), pa.array([1, 2, 1])]).tolist(), ids.keys(np.array([1]))
    ([0, 1, 0], [(None, 2)])
    """

    def __init__(self, types: Sequence[pa.DataType], room: int = ROOM) -> None:
        self.types = list(types)
        self._columns = [_column_of(of) for of in types]
        # texts are numbered already. Which other columns of a key are NULL, as bits, is one more number once there is
        # such a key
        self._texts = self._columns[0] if len(self.types) == 1 and isinstance(self._columns[0], _Texts) else None
        self._table = NumberTable(max(1, len(self.types)), room)

    @property
    def count(self) -> int:
        """The number of ids."""
        return self._table.count if self._texts is None else self._texts.count

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the keys take."""
        return self._table.nbytes + sum(column.nbytes for column in self._columns)

    def of(self, columns: Sequence[pa.Array], rows: int = 0) -> Ints:
        """The id of the key of each row. ``rows``: how many there are, if there are no columns."""
        if not columns:
            return self._table.find([np.zeros(rows, np.int64)])
        numbers = [one.numbers(column) for one, column in zip(self._columns, columns, strict=True)]
        if self._texts is not None:
            return numbers[0]
        if any(column.null_count for column in columns):
            if len(self._table.numbers) == len(self.types):
                self._table.widen()
            nulls = [column.is_null().to_numpy(zero_copy_only=False).astype(np.int64) for column in columns]
            numbers.append(sum((of << bit for bit, of in enumerate(nulls)), np.zeros(len(nulls[0]), np.int64)))
        return self._table.find(numbers)

    def of_keys(self, keys: Sequence[Any]) -> Ints:
        """The ids of keys in Python's form (`keys`)."""
        return self.of(columns_of_keys(keys, self.types), len(keys))

    def columns(self, ids: Ints) -> list[pa.Array]:
        """The columns of these keys."""
        if self._texts is not None:
            return [self._texts.column(ids, None)]
        numbers = [known[ids] for known in self._table.numbers]
        nulls = numbers[-1] if len(numbers) > max(1, len(self.types)) else None
        return [
            column.column(numbers[place], None if nulls is None else (nulls >> place & 1).astype(bool))
            for place, column in enumerate(self._columns)
        ]

    def keys(self, ids: Ints) -> list[Any]:
        """These keys in Python's form."""
        return keys_of_columns(self.columns(ids), len(ids))


class SomeKeys:
    """The keys of a slice of time: some of those in a table that many slices share, since most keys come again in the
    next slice. They have ids of their own, in the order in which they first came in the slice.

    >>> keys = SomeKeys(KeyIds([pa.string()]))
    >>> keys.of([pa.array(["a", "b"])]).tolist(), SomeKeys(keys.all).of([pa.array(["b", "a", "b"])]).tolist()
    ([0, 1], [0, 1, 0])
    """

    def __init__(self, of_all: KeyIds) -> None:
        self.all, self.count = of_all, 0
        #: the id of a key among all keys -> its own id; and the inverse
        self._own, self._in_all = np.full(ROOM, _EMPTY, np.int32), np.zeros(ROOM, np.int64)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory they take, without the table."""
        return self._own.nbytes + self._in_all.nbytes

    def of(self, columns: Sequence[pa.Array], rows: int = 0) -> Ints:
        """The id of the key of each row (see `KeyIds`)."""
        return self._of(self.all.of(columns, rows))

    def of_keys(self, keys: Sequence[Any]) -> Ints:
        """The ids of keys in Python's form."""
        return self._of(self.all.of_keys(keys))

    def of_others(self, other: SomeKeys, ids: Ints) -> Ints:
        """The ids of keys of another slice, which have ``ids`` there."""
        if other.all is self.all:
            return self._of(other._in_all[ids])
        return self.of(other.columns(ids), len(ids))

    def _of(self, in_all: Ints) -> Ints:
        self._own = own = grown(self._own, self.all.count, _EMPTY)
        ids = own[in_all]
        new = np.flatnonzero(ids < 0)
        if len(new):
            # of equal keys the first one counts
            keys, rows = in_all[new], np.arange(len(new), dtype=np.int32)
            own[keys[::-1]] = rows[::-1]
            keys = keys[own[keys] == rows]
            begin, self.count = self.count, self.count + len(keys)
            own[keys] = np.arange(begin, self.count, dtype=np.int32)
            self._in_all = grown(self._in_all, self.count)
            self._in_all[begin : self.count] = keys
            ids[new] = own[in_all[new]]
        return ids.astype(np.int64)

    def columns(self, ids: Ints) -> list[pa.Array]:
        """The columns of these keys."""
        return self.all.columns(self._in_all[ids])

    def keys(self, ids: Ints) -> list[Any]:
        """These keys in Python's form."""
        return self.all.keys(self._in_all[ids])


# ---------------------------------------------------------------------------------------------------- texts


def _parts_of(texts: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """The offsets and the bytes of a column of large binary values without NULL."""
    _, offsets, data = texts.buffers()
    begin = texts.offset
    if not len(texts):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64)[begin : begin + len(texts) + 1]
    return ends, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def text_hashes(texts: pa.Array) -> _Words:
    """A 64-bit hash of the bytes of each value of a column of large binary values without NULL."""
    offsets, data = _parts_of(texts)
    begins, sizes = offsets[:-1], np.diff(offsets)
    end = int(offsets[-1])
    if len(data) < end + 8:
        data = np.concatenate([data[:end], np.zeros(8, np.uint8)])
    # an unaligned word from each byte on
    words = np.ndarray((max(0, len(data) - 7),), "<u8", data, strides=(1,))
    hashes: _Words = sizes.astype(np.uint64) * _MULTIPLIER
    longest = min(int(sizes.max(initial=0)), _LONG)
    for place in range(0, longest, 8):
        left = sizes - place
        rows = slice(None) if int(left.min(initial=1)) > 0 else np.flatnonzero(left > 0)
        word = words[begins[rows] + place]
        missing = np.maximum(8 - left[rows], 0).astype(np.uint64) << np.uint64(3)
        some = (hashes[rows] ^ (word << missing)) * _MULTIPLIER
        hashes[rows] = some ^ (some >> np.uint64(32))
    for row in np.flatnonzero(sizes > _LONG).tolist():
        part = data[begins[row] : begins[row] + sizes[row]].tobytes()
        hashes[row] ^= np.uint64(zlib.crc32(part) | zlib.adler32(part) << 32)
    return hashes
