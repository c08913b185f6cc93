"""Reads the checkpoints of Delta's logs, which are Parquet files.

Rule: nothing is decoded before it was looked at. A checkpoint, which is a file of a few hundred bytes if somebody wants
that, expands to no more than fits into memory, here and in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

#: What a checkpoint of a log may expand to: the bytes of one of its pages, of all pages and of the texts of all rows,
#: where a text counts as often as it occurs; and the values of a column.
PAGE_BYTES_MAX, PAGES_BYTES_MAX, TEXT_BYTES_MAX, VALUES_MAX = 64 << 20, 2 << 30, 1 << 30, 50_000_000

#: The most bytes of the description of a Parquet file, which stands at its end.
_FOOTER_BYTES_MAX = 16 << 20

#: Rows of a checkpoint that are in memory at a time.
_BATCH_ROWS = 10_000

#: Parquet's encoding in which a text consists of the beginning of the text before it and of further bytes.
_SHARED_BEGINNINGS = 7


def first_in_checkpoint(data: bytes, action: str) -> dict[str, Any] | None:
    """The first action of a kind in a checkpoint of a log, given the content of the file; None if there is none. Raises
    as `checkpoint_batches` does."""
    for batch in checkpoint_batches(data, [action]):
        if action in batch.schema.names and len(found := batch.column(action).drop_null()):
            return dict(found[0].as_py())
    return None


def checkpoint_batches(data: bytes, columns: list[str]) -> Iterator[Any]:
    """These columns of a checkpoint of a log, as far as it has them, in Arrow's record batches.

    Args:
        data: the content of the file.
        columns: such as ``add.path``; a name stands for all that is nested in it.

    Raises:
        ValueError: the file expands to more than a checkpoint may, or names a column in two ways. Nothing was decoded.
        pa.ArrowException, OSError: it is no Parquet file, or a damaged one.
    """
    import pyarrow as pa
    from pyarrow import parquet

    content = pa.BufferReader(data)
    schema = parquet.read_metadata(content).schema
    leaves = [schema.column(number) for number in range(len(schema))]
    _check_names([leaf.path for leaf in leaves])
    rows = _check_pages(data)
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    # each text is decoded once, however many rows have it; but pyarrow cannot do that with those that share beginnings
    how: dict[str, Any] = {"read_dictionary": texts} if rows == _BATCH_ROWS else {}
    counted = 0
    for path in texts:
        for batch in parquet.ParquetFile(content, **how).iter_batches(rows, columns=[path]):
            counted += sum(map(_text_bytes, batch.columns))
            if counted > TEXT_BYTES_MAX:
                raise ValueError(f"its texts have more than {TEXT_BYTES_MAX:,} bytes")
    yield from parquet.ParquetFile(content).iter_batches(rows, columns=columns)


def _check_names(paths: list[str]) -> None:
    """Spark does not look at the case of names, so what it reads must not differ from what is read here."""
    known: dict[str, str] = {name.lower(): name for name in _READ}
    for path in paths:
        name = path.partition(".")[0]
        if known.get(name.lower(), name) != name:
            raise ValueError(f"it has a column {name!r:.200}")
    if len({path.lower() for path in paths}) < len(paths):
        raise ValueError("it has two columns of one name")


#: The columns of a checkpoint that are read here.
_READ = ("add", "metaData", "protocol", "sidecar")


def _check_pages(data: bytes) -> int:
    """Check what the pages of a Parquet file expand to, as the headers of the pages say, by which they are decoded.
    Returns how many rows to decode at a time: fewer if texts share their beginnings, where each may be as long as a
    page.

    The description of the file is decoded here, too: pyarrow ends the process when it is asked for a damaged column."""
    pages_bytes, largest, sharing = 0, 1, False
    for first, end in _columns_of(data):
        at, values = first, 0
        while at < end:
            page, at = _page_at(data, at)
            pages_bytes += page.bytes
            values += page.values
            if page.bytes > PAGE_BYTES_MAX or pages_bytes > PAGES_BYTES_MAX or values > VALUES_MAX:
                raise ValueError(
                    f"it has a page of {page.bytes:,} bytes, {pages_bytes:,} in all pages and {values:,} values in a "
                    f"column; expected at most {PAGE_BYTES_MAX:,}, {PAGES_BYTES_MAX:,} and {VALUES_MAX:,}"
                )
            largest, sharing = max(largest, page.bytes), sharing or page.encoding == _SHARED_BEGINNINGS
    return max(1, min(_BATCH_ROWS - 1, PAGE_BYTES_MAX // largest)) if sharing else _BATCH_ROWS


def _columns_of(data: bytes) -> list[tuple[int, int]]:
    """Where the pages of each column of each row group begin and end in a Parquet file."""
    length = int.from_bytes(data[-8:-4], "little")
    found = []
    try:
        if length > _FOOTER_BYTES_MAX:
            raise ValueError(f"its description has {length:,} bytes, expected at most {_FOOTER_BYTES_MAX:,}")
        footer, _ = _struct_at(data, len(data) - 8 - length)
        for group in footer.get(4, []):
            for column in (chunk[3] for chunk in group[1]):
                first, dictionary = column[9], column.get(11, 0)
                first = dictionary if 0 < dictionary < first else first
                found.append((first, first + column[7]))
        whole = all(0 < first <= end <= len(data) for first, end in found)
    except (IndexError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise ValueError("the description of its columns is damaged")
    return found


class _Page(NamedTuple):
    """What the header of a page says: its bytes once they are not compressed, its values and their encoding."""

    bytes: int
    values: int
    encoding: int


def _page_at(data: bytes, at: int) -> tuple[_Page, int]:
    """The page whose header begins at a place in the file, and where the next one begins."""
    try:
        header, at = _struct_at(data, at)
        size, compressed = header[2], header[3]
        first, second = header.get(5, {}), header.get(8, {})
        page = _Page(size, first.get(1, 0) + second.get(1, 0), first.get(2, second.get(4, 0)))
        whole = size >= 0 and compressed >= 0 and page.values >= 0
    except (IndexError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise ValueError("the header of a page is damaged")
    return page, at + compressed


def _struct_at(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields by number of a struct in Thrift's compact protocol, and where it ends. Texts are left out. Raises
    IndexError or ValueError where there is none."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer_at(data, at)
        fields[number], at = _value_at(data, at, head & 15, depth)
    return fields, at + 1


def _value_at(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # the kind itself is the value: true or false
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _integer_at(data, at)
    if kind == 7:  # a floating-point number
        return None, at + 8
    if kind == 8:  # bytes, after their number
        length, at = _varint_at(data, at)
        return None, at + length
    if kind == 9 and depth < _DEPTH_MAX:
        return _list_at(data, at, depth + 1)
    if kind == 12 and depth < _DEPTH_MAX:
        return _struct_at(data, at, depth + 1)
    raise ValueError("its description has a field that Parquet does not know")


def _list_at(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    kind, length, at = data[at] & 15, data[at] >> 4, at + 1
    if length == 15:
        length, at = _varint_at(data, at)
    if kind in (1, 2):  # a byte for each
        return [], at + length
    found = []
    for _ in range(length):
        value, at = _value_at(data, at, kind, depth)
        found.append(value)
    return found, at


#: How deep the description of a Parquet file is nested at most.
_DEPTH_MAX = 12


def _integer_at(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint_at(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 70:
        byte = data[at]
        at, number, shift = at + 1, number | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return number, at
    raise ValueError("its description has a number of more than 64 bits")


def _text_bytes(column: Any) -> int:
    """The bytes of all texts in a column of Arrow."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(column.type):
        lengths = compute.binary_length(column.dictionary)
        return int(compute.sum(compute.take(lengths.cast(pa.int64()), column.indices)).as_py() or 0)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return int(compute.sum(compute.binary_length(column).cast(pa.int64())).as_py() or 0)
    if pa.types.is_struct(column.type):
        return sum(map(_text_bytes, column.flatten()))
    if pa.types.is_nested(column.type):
        return _text_bytes(column.flatten() if not pa.types.is_map(column.type) else column.values)
    return 0
