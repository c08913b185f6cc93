"""The stored form of many values that differ only in some numbers, texts and times, made by columns: what
`pickles.dumps_joined` gives, byte for byte, in a twentieth of the time.

The pickle of a value is that of a sample with holes; each column of values gives the bytes for one hole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.core.column_batch import python_values
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import FRAME_BEGIN, FRAMED_BYTES, SAMPLE, dumps_all, dumps_joined

#: A column of values: an Arrow array, or what has no type there.
Column: TypeAlias = "pa.Array | list[Any]"

_BINARY = pa.large_binary()
_NONE = np.frombuffer(b"N", np.uint8)[0]
#: The bytes of a pickle before its first opcode: protocol, frame, and the size of the frame.
_HEAD = len(FRAME_BEGIN) + 8
#: Shorter pickles have no frame.
_FRAMED_LEAST = 4


def python_column(column: Column) -> list[Any]:
    """The values of a column."""
    return column if isinstance(column, list) else python_values(column)


def dumps_columns(
    made: Callable[[Sequence[Any]], Any],
    columns: Sequence[Column],
    rows: int,
    classes: ProgramClasses = NO_CLASSES,
) -> pa.LargeBinaryArray:
    """The pickle of ``made(values)`` for the values of each row. ``made`` puts each value into one place, which depends
    on nothing."""
    parts = _parts(made, columns, rows, classes)
    if parts is None:
        values = map(made, zip(*map(python_column, columns), strict=True)) if columns else [made(())] * rows
        data, ends = dumps_joined(values, classes)
        return _binary(np.array([0, *ends]), data)
    inside = pc.binary_join_element_wise(*parts, pa.scalar(b"", _BINARY))
    sizes = np.diff(_offsets(inside))
    if int(sizes.max()) > FRAMED_BYTES or int(sizes.min()) < _FRAMED_LEAST:
        return dumps_columns(made, [_as_objects(column) for column in columns], rows, classes)
    heads = np.empty((rows, _HEAD), np.uint8)
    heads[:, :-8] = np.frombuffer(FRAME_BEGIN, np.uint8)
    heads[:, -8:] = sizes.astype("<u8").view(np.uint8).reshape(rows, 8)
    return pc.binary_join_element_wise(_fixed(heads), inside, pa.scalar(b"", _BINARY))


class _Objects(list[Any]):
    """Values that are pickled one by one."""


def _as_objects(column: Column) -> list[Any]:
    return _Objects(python_column(column))


def _parts(
    made: Callable[[Sequence[Any]], Any], columns: Sequence[Column], rows: int, classes: ProgramClasses
) -> list[Any] | None:
    """What is to be joined for each row; None: the pickles are not made of such parts."""
    if not columns or not rows or any(isinstance(column, _Objects) for column in columns):
        return None
    around = _around(made, len(columns), classes)
    if around is None:
        return None
    parts: list[Any] = [pa.scalar(around[0], _BINARY)]
    for column, behind in zip(columns, around[1:], strict=True):
        inside = _encoded(column, classes)
        if inside is None:
            return None
        parts += [*inside, pa.scalar(behind, _BINARY)]
    return parts


def _around(made: Callable[[Sequence[Any]], Any], columns: int, classes: ProgramClasses) -> list[bytes] | None:
    """What comes before, between and behind the values of the columns; None: they are not in one frame."""
    (sample,), (hole,) = dumps_all([made([SAMPLE] * columns)], classes), dumps_all([SAMPLE], classes)
    around = sample[_HEAD:].split(hole[_HEAD:-1])
    return around if sample.startswith(FRAME_BEGIN) and len(around) == columns + 1 else None


def _encoded(column: Column, classes: ProgramClasses) -> list[pa.LargeBinaryArray] | None:
    """The opcodes of each value of a column, as columns to be joined; None: they are not all in one frame."""
    if not isinstance(column, list):
        of = column.type
        if pa.types.is_integer(of) and of != pa.uint64():
            return [_integers(column)]
        if pa.types.is_floating(of):
            return [_floats(column)]
        if pa.types.is_boolean(of):
            codes = np.where(column.fill_null(False).to_numpy(zero_copy_only=False), 0x88, 0x89).astype(np.uint8)
            return [_cut(codes[:, None], np.ones(len(column), np.int64), column)]
        if pa.types.is_string(of):
            return _texts(column)
    data, ends = dumps_joined(python_column(column), classes)
    found, begin = [], 0
    for end in ends:
        framed = data.startswith(FRAME_BEGIN, begin)
        if end - begin > FRAMED_BYTES or data[begin] != FRAME_BEGIN[0]:
            return None
        # a short pickle has no frame
        found.append(data[begin + (_HEAD if framed else 2) : end - 1])
        begin = end
    return [pa.array(found, _BINARY)]


def loads_columns(
    made: Callable[[Sequence[Any]], Any], columns: int, data: pa.Array, classes: ProgramClasses = NO_CLASSES
) -> list[pa.Array] | None:
    """The inverse of `dumps_columns`, for columns of integers, doubles and texts; None: other values are among them.

    >>> [column.to_pylist() for column in loads_columns(tuple, 2, dumps_columns(tuple, [["a", None], [1, -300]], 2))]
    [['a', None], [1, -300]]
    """
    around = _around(made, columns, classes)
    if around is None or not len(data):
        return None
    stored = data.cast(_BINARY)
    ends = _offsets(stored)
    # values are read as words, also the last one
    content = np.concatenate([np.frombuffer(stored.buffers()[2], np.uint8), np.zeros(9, np.uint8)])
    words = np.ndarray((len(content) - 7,), "<u8", content, strides=(1,))
    at, found = ends[:-1] + _HEAD, list[pa.Array]()
    for place, between in enumerate(around):
        expected, last = np.frombuffer(between, np.uint8), ends[1:] - len(between)
        if (at > last).any() or (place == columns and (at < last).any()):
            return None
        if any((content[at + offset] != byte).any() for offset, byte in enumerate(expected)):
            return None
        at = at + len(between)
        if place < columns:
            column, sizes = _decoded(content, words, at)
            if column is None:
                return None
            found.append(column)
            at = at + sizes
    return found


def _decoded(
    content: npt.NDArray[np.uint8], words: npt.NDArray[np.uint64], at: npt.NDArray[np.int64]
) -> tuple[pa.Array | None, npt.NDArray[np.int64]]:
    """The values that begin at these positions, and how many bytes each takes; None: they have no common type."""
    codes = content[at]
    there = codes != _NONE
    kinds, sizes = set(np.unique(codes[there]).tolist()), np.ones(len(at), np.int64)
    if kinds <= {_BININT, _BININT1, _BININT2, _LONG1}:
        long = codes == _LONG1
        lengths = np.where(long, content[at + 1], _SIZES[codes]).astype(np.int64)
        if int(lengths.max()) > 8:
            return None, sizes
        unused = ((8 - lengths) * 8).clip(0, 63).astype(np.uint64)
        shifted = words[at + 1 + long] << unused
        # those of one and of two bytes have no sign
        signed = (shifted.view(np.int64) >> unused.view(np.int64)).astype(np.int64)
        numbers = np.where(lengths < 4, (shifted >> unused).view(np.int64), signed)
        return pa.array(numbers, mask=~there), sizes + lengths + long
    if kinds == {_BINFLOAT}:
        floats = words[np.where(there, at + 1, 0)].astype("<u8").byteswap().view("<f8")
        return pa.array(floats, mask=~there), np.where(there, 9, 1)
    if kinds == {_TEXT}:
        lengths = np.where(there, content[at + 1], 0).astype(np.int64)
        offsets = np.zeros(len(at) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        of_bytes = np.arange(offsets[-1]) + np.repeat(at + 2 - offsets[:-1], lengths)
        texts = _binary(offsets, content[of_bytes]).cast(pa.large_string()).cast(pa.string())
        return (texts if there.all() else pc.if_else(pa.array(there), texts, None)), np.where(there, 2 + lengths, 1)
    return None, sizes


def _integers(column: pa.Array) -> pa.LargeBinaryArray:
    values = column.fill_null(0) if column.null_count else column
    numbers = values.to_numpy().astype("<i8", copy=False)
    bytes_of = numbers.view(np.uint8).reshape(len(numbers), 8)
    codes = np.empty((len(numbers), 10), np.uint8)
    codes[:, 1:9] = bytes_of
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    sizes = np.full(len(numbers), 5)
    codes[:, 0] = _BININT
    if high >= 0 and low < 1 << 16:
        for opcode, size, limit in ((_BININT2, 3, 1 << 16), (_BININT1, 2, 1 << 8)):
            small = (numbers >= 0) & (numbers < limit)
            sizes[small], codes[small, 0] = size, opcode
    if high >= 1 << 31 or low < -(1 << 31):
        large = np.flatnonzero((numbers >= 1 << 31) | (numbers < -(1 << 31)))
        magnitude = np.where(numbers[large] < 0, ~numbers[large], numbers[large])
        size = 5 + sum((magnitude >= 1 << bits).astype(np.int64) for bits in (39, 47, 55))
        sizes[large], codes[large, 0], codes[large, 1], codes[large, 2:] = size + 2, _LONG1, size, bytes_of[large]
    return _cut(codes, sizes, column)


_BININT, _BININT1, _BININT2, _LONG1, _BINFLOAT, _TEXT, _LONG_TEXT = b"JKM\x8aG\x8cX"


#: The bytes of an integer behind its opcode.
_SIZES = np.zeros(256, np.int64)
_SIZES[[_BININT1, _BININT2, _BININT]] = 1, 2, 4


def _floats(column: pa.Array) -> pa.LargeBinaryArray:
    numbers = (column.fill_null(0.0) if column.null_count else column).to_numpy()
    codes = np.empty((len(numbers), 9), np.uint8)
    codes[:, 0] = _BINFLOAT
    codes[:, 1:] = numbers.astype(">f8").view(np.uint8).reshape(len(numbers), 8)
    return _cut(codes, np.full(len(numbers), 9), column)


def _texts(column: pa.Array) -> list[pa.LargeBinaryArray]:
    texts = (column.fill_null("") if column.null_count else column).cast(pa.large_string()).cast(_BINARY)
    lengths = np.diff(_offsets(texts))
    codes = np.empty((len(texts), 5), np.uint8)
    codes[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(len(texts), 4)
    short = lengths < 256
    codes[:, 0] = np.where(short, _TEXT, _LONG_TEXT)
    return [_cut(codes, np.where(short, 2, 5), column), texts]


def _cut(codes: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64], column: pa.Array) -> pa.LargeBinaryArray:
    """The first bytes of each row, so many of them; of NULL that of None."""
    if column.null_count:
        nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        codes[nulls, 0], sizes[nulls] = _NONE, 1
    longest = int(sizes.max(initial=0))
    codes = codes[:, :longest]
    if int(sizes.min(initial=longest)) == longest:
        return _fixed(np.ascontiguousarray(codes))
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return _binary(offsets, codes[np.arange(longest) < sizes[:, None]])


def _fixed(codes: npt.NDArray[np.uint8]) -> pa.LargeBinaryArray:
    rows, size = codes.shape
    return _binary(np.arange(0, rows * size + 1, max(size, 1), dtype=np.int64)[: rows + 1], codes)


def _binary(offsets: npt.NDArray[np.int64], data: Any) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets.astype(np.int64, copy=False)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(_BINARY, len(offsets) - 1, buffers)


def _offsets(column: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = np.frombuffer(column.buffers()[1], np.int64)
    return found[column.offset : column.offset + len(column) + 1]
