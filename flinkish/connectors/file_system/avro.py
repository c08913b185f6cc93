"""Avro object container files as a source: a file is read as a whole, by one subtask.

Rule upheld here: nothing that a file says about itself is believed before it is compared with a limit. fastavro reads
the values; the blocks that hold them are unpacked here.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.file_system.enumerator import FileEnumerator, open_split, unreadable
from flinkish.connectors.file_system.listing import FileSystems
from flinkish.core.source import SourceSplit, SplitRange, SplitReader, SplitRecords, UnitCost, positions_text
from flinkish.errors import MalformedRecordError
from flinkish.formats.avro import AvroSchema, GenericRecordAvroTypeInfo, check_bounded, check_indices, fastavro_package

#: The assumed size of a record, in bytes: an epoch's limit of records is kept as far as the assumption holds.
_BYTES_PER_RECORD = 100

#: The beginning of an Avro file.
_HEADER = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}
_MARKER_BYTES = 16
#: The codec of blocks that are not packed and whose end is checked (`_Ending`), for fastavro only.
_CHECKED = "flinkish.checked"
#: The most bytes that unpacking one block may take besides the block: xz names the size of its dictionary itself, of
#: which its highest level takes 64 MiB.
_XZ_BYTES = 128 * 1024 * 1024
_STEP_BYTES = 1024 * 1024
#: The end of messages that a larger limit would help against.
_RAISE = " (flinkish.source.max-record-bytes)"


@dataclass(frozen=True)
class AvroFormat:
    """The format of Avro files that are read as generic records (dictionaries) of a schema. Files that were written
    with another schema are read if Avro's rules of schema resolution allow it."""

    schema: AvroSchema

    @property
    def produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self.schema)


class AvroFileEnumerator(FileEnumerator[UnitCost]):
    """Finds Avro files. Such a file is not cut: the unit of its positions is the whole file."""

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        return self.facts(split)

    def look_at(self, split: SourceSplit) -> UnitCost:
        size = float(split.info["bytes"])
        return UnitCost(max(1.0, size / _BYTES_PER_RECORD), size)


class AvroSplitReader(SplitReader):
    """Reads an Avro file from its beginning to its end."""

    def __init__(self, avro_format: AvroFormat, systems: FileSystems) -> None:
        self._schema = avro_format.schema
        self._systems = systems
        #: the number of the first record of the last batch, counted from 0
        self._number = 0

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:
        """Does nothing: no file is kept open between ranges."""

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        held: list[Any] = []
        self._number = 0
        try:
            with open_split(self._systems, wanted.split, as_it_is=True) as file:
                for record in _read_file(file, self._schema, self.max_record_bytes):
                    held.append(record)
                    if len(held) == batch_size:
                        yield SplitRecords(held, None)
                        self._number, held = self._number + len(held), []
        except MalformedRecordError as error:
            error.where = ", ".join(filter(None, (f"file {wanted.split.id}", error.where)))
            raise
        except OSError as error:
            raise unreadable(wanted.split.id, error) from None
        if held:
            yield SplitRecords(held, None)

    def place_of(self, split: str, first: int, last: int) -> str:
        return f"file {split}, {positions_text('record', self._number + first, self._number + last)}"

    def close(self) -> None:
        """Does nothing: no file is kept open between ranges."""


def _read_file(file: Any, schema: AvroSchema, max_bytes: int) -> Iterator[Any]:
    """The records of an open Avro file, as dictionaries of this schema. The header and each block may have at most
    ``max_bytes`` bytes, packed and unpacked.

    Raises:
        MalformedRecordError: it is no Avro file, its schema cannot be resolved to this one, or it is larger than that.
            ``where`` is the byte at which the block begins.
        OSError: the file cannot be read.
    """
    blocks = _UnpackedBlocks(file, max_bytes)
    try:
        yield from _records(blocks, schema)
    except OSError:
        raise
    except RecursionError:
        raise MalformedRecordError(
            "the Avro file has a record that holds others to a depth of hundreds",
            where=f"byte {blocks.position}",
            expected="records that hold few of their own kind inside each other",
            hint="mend the file, or keep it out of the source's paths",
        ) from None
    except Exception as error:
        # fastavro raises exceptions of many types for malformed data
        raise MalformedRecordError(
            f"the Avro file cannot be read: {type(error).__name__}: {error}",
            where=f"byte {blocks.position}",
            expected=f"Avro's files of records that fit the schema {abbreviated(str(schema))}",
            hint="mend the file, or keep it out of the source's paths",
        ) from None


def _records(blocks: _UnpackedBlocks, schema: AvroSchema) -> Iterator[Any]:
    fastavro = fastavro_package()
    written, read = blocks.read_header(), schema._schema
    parsed = fastavro.schema.parse_schema(written)
    holds_itself = check_bounded(parsed)
    canonical = fastavro.schema.to_parsing_canonical_form
    # arrays and maps that the schema of the source leaves out are passed over without a look at where the block ends
    counted = any(f'"{kind}"' in json.dumps(written) for kind in ("array", "map"))
    blocks.checked = counted and canonical(parsed) != canonical(read)
    if isinstance(written, list):
        # a record of one field is encoded as the field is, and the indices of unions inside records are checked
        blocks.schema, read = _whole(written), _whole(json.loads(str(schema)))
    # fastavro's fast reader calls itself for a record inside another one without a limit; Python's own calls have one
    reader = fastavro._read_py.reader if holds_itself else fastavro.reader
    records = reader(blocks, reader_schema=read)
    check_indices(records.writer_schema)
    yield from records if not isinstance(written, list) else (record["value"] for record in records)


def _whole(schema: Any) -> Any:
    """The schema of a record whose only field ``value`` has this schema."""
    return {"type": "record", "name": "flinkish_whole", "fields": [{"name": "value", "type": schema}]}


class _Ending(io.RawIOBase):
    """The values of a block as a stream that raises EOFError for whoever reads behind their end. (An array may claim
    any number of values, and fastavro does not notice that it passes over nothing.)"""

    def __init__(self, data: bytes) -> None:
        self._left = memoryview(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), len(self._left))
        if not size:
            raise EOFError("a value ends behind its block")
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size


def _register_checked_blocks() -> None:
    """Tell fastavro of the blocks whose end is checked, as other packages tell it of further codecs."""
    fastavro = fastavro_package()

    def fast(blocks: Any) -> Any:
        return io.BufferedReader(_Ending(fastavro.schemaless_reader(blocks, "bytes", None)))

    fastavro.read.BLOCK_READERS[_CHECKED] = fast
    fastavro._read_py.BLOCK_READERS[_CHECKED] = lambda decoder: io.BufferedReader(_Ending(decoder.read_bytes()))


class _UnpackedBlocks:
    """An Avro file as a stream in which no block is packed. fastavro reads it, which itself bounds neither what a block
    says about its size nor what it unpacks to."""

    def __init__(self, file: Any, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._left = max_bytes
        #: the byte at which the part that was read last begins
        self.position = 0
        self._part = io.BytesIO()
        self._codec = ""
        self._marker = b""
        self._header: dict[str, Any] | None = None
        #: the schema with which the records are to be read, and whether values are not to be looked for behind the end
        #: of their block
        self.schema: Any = None
        self.checked = False

    def read(self, size: int) -> bytes:
        """The next bytes, all of one part: of the header, or of one block."""
        found = self._part.read(size)
        if not found and size:
            header, self._header = self._header, None
            if header is None:
                self.position = self._file.tell()
            self._part = io.BytesIO(self._block() if header is None else self._header_of(header))
            found = self._part.read(size)
        return found

    def read_header(self) -> Any:
        """Read the header; returns the schema that the file was written with."""
        header = fastavro_package().schemaless_reader(SimpleNamespace(read=self._exactly), _HEADER, None)
        self._codec, self._marker = header["meta"].get("avro.codec", b"null").decode(), header["sync"]
        self._header, self.schema = header, json.loads(header["meta"]["avro.schema"])
        return self.schema

    def _header_of(self, header: dict[str, Any]) -> bytes:
        """The header, which says that the blocks are not packed."""
        fastavro = fastavro_package()
        _register_checked_blocks()
        codec = _CHECKED if self.checked else "null"
        meta = {**header["meta"], "avro.codec": codec.encode(), "avro.schema": json.dumps(self.schema).encode()}
        written = io.BytesIO()
        fastavro.schemaless_writer(written, _HEADER, {**header, "meta": meta})
        return written.getvalue()

    def _block(self) -> bytes:
        """The next block; b"" at the end of the file."""
        self._left = self._max_bytes
        first = bytes(self._file.read(1))
        if not first:
            return b""
        count, size = self._number(first), self._number(b"")
        packed = self._exactly(size)
        self._left = _MARKER_BYTES
        if self._exactly(_MARKER_BYTES) != self._marker:
            raise ValueError("the block does not end with the marker of the file")
        data = _unpacked(self._codec, packed, self._max_bytes)
        if not 0 <= count <= len(data):
            raise ValueError(f"a block of {len(data)} bytes claims to have {count} records")
        return _encoded(count) + _encoded(len(data)) + data + self._marker

    def _number(self, begin: bytes) -> int:
        value, shift = 0, 0
        while shift < 64:
            byte = (begin or self._exactly(1))[0]
            begin = b""
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise ValueError("a number has more than 64 bits")

    def _exactly(self, size: int) -> bytes:
        """So many bytes of the file, within the limit of the header or block."""
        if not 0 <= size <= self._left:
            raise ValueError(f"there is a part of {size:,} bytes, and {self._max_bytes:,} are allowed{_RAISE}")
        self._left -= size
        found = bytes(self._file.read(size))
        if len(found) != size:
            raise EOFError("the file ends in the middle of a block")
        return found


def _encoded(number: int) -> bytes:
    """A number that is not negative, as Avro encodes it."""
    number, found = number << 1, bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _unpacked(codec: str, data: bytes, max_bytes: int) -> bytes:
    """The content of a block, which may have at most ``max_bytes`` bytes; no more are unpacked."""
    if codec == "null":
        return data
    if codec == "deflate":
        found = zlib.decompressobj(-15).decompress(data, max_bytes + 1)
    elif codec == "bzip2":
        found = bz2.BZ2Decompressor().decompress(data, max_bytes + 1)
    elif codec == "xz":
        found = lzma.LZMADecompressor(memlimit=_XZ_BYTES).decompress(data, max_bytes + 1)
    elif codec in ("snappy", "lz4", "zstandard"):
        found = _unpacked_by_arrow(codec, data, max_bytes)
    else:
        raise ValueError(f"its blocks are packed with {codec!r}, which is unknown")
    if len(found) > max_bytes:
        raise ValueError(f"a block of {len(data):,} bytes unpacks to more than the allowed {max_bytes:,}{_RAISE}")
    return found


def _unpacked_by_arrow(codec: str, data: bytes, max_bytes: int) -> bytes:
    import pyarrow as pa

    if codec == "zstandard":
        found = bytearray()
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while len(found) <= max_bytes and (step := stream.read(_STEP_BYTES)):
                found += step
        return bytes(found)
    if codec == "lz4":
        size, packed, name = int.from_bytes(data[:4], "little"), data[4:], "lz4_raw"
    else:
        # the block ends with a checksum of 4 bytes, and begins with its size in 7 bits of each byte
        packed, size, name = data[:-4], 0, "snappy"
        for place, byte in enumerate(packed[:5]):
            size |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
    if size > max_bytes:
        raise ValueError(f"a block says that it unpacks to {size:,} bytes, and {max_bytes:,} are allowed{_RAISE}")
    return bytes(pa.Codec(name).decompress(packed, decompressed_size=size, asbytes=True))
