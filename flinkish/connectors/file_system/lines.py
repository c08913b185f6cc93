"""Files of lines as a source: positions are bytes. A compressed file is one unit, and so is a file whose records may
span lines.

Rule upheld here (Hadoop's): a range holds the lines that BEGIN in it. So wherever a file is cut into ranges, each line
is read exactly once, and planning need not read the file.
"""

from __future__ import annotations

import codecs
import gzip
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.serialization import batch_deserializer
from flinkish.connectors.file_system.enumerator import FileEnumerator, StreamFormat, open_split, unreadable
from flinkish.connectors.file_system.listing import FileSystems
from flinkish.core.source import SourceSplit, SplitRange, SplitReader, SplitRecords, UnitCost
from flinkish.errors import MalformedRecordError, ProgramError
from flinkish.formats.csv import CsvRecords

if TYPE_CHECKING:
    from pyarrow import NativeFile

#: The number of bytes that are read at a time: one request to an object store.
BLOCK_BYTES = 2 * 1024 * 1024
#: The size of the sample by which the length of a file's lines is estimated.
SAMPLE_BYTES = 64 * 1024
#: The beginning of a line is searched for in steps of this size.
SCAN_BYTES = 16 * 1024
#: An error names the line number up to this position; beyond it only for files of the local file system.
_COUNTED_BYTES = 64 * 1024 * 1024
#: The most bytes that the sample of a compressed file is decompressed to.
_UNPACKED_BYTES = 16 * 1024 * 1024

#: Suffix of a compressed file's name -> pyarrow's name of the codec.
COMPRESSED = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
#: The suffixes of files whose compression cannot be read.
_UNKNOWN_COMPRESSION = (".deflate", ".lzo", ".snappy", ".xz")

_LINE_END = re.compile(rb"[\r\n]")
_LINE_ENDS = re.compile(rb"\r\n?|\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: The byte order marks of encodings whose lines cannot be cut at the byte 10 -> the name of the encoding. The mark of
#: UTF-16 is the beginning of that of UTF-32.
_WIDE_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def compression_of(path: str) -> str | None:
    """pyarrow's name of a file's compression codec, by the suffix of the path; None if it is not compressed.

    >>> compression_of("/in/a.txt.gz"), compression_of("/in/a.txt")
    ('gzip', None)
    """
    return next((codec for suffix, codec in COMPRESSED.items() if path.endswith(suffix)), None)


class LineFileEnumerator(FileEnumerator[UnitCost]):
    """Finds files of lines, which are read in ranges of bytes. A file that cannot be cut has the whole file as its
    unit: a compressed one, and with ``whole_files`` every one.

    The length of a file's lines is judged by that file alone: an epoch that is planned again, in another process, would
    otherwise read other records."""

    def __init__(
        self,
        paths: Sequence[str],
        interval_s: float | None,
        restored: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        whole_files: bool = False,
    ) -> None:
        super().__init__(paths, interval_s, restored, clock)
        self._whole_files = whole_files

    def as_found(self, split: SourceSplit) -> SourceSplit:
        if split.id.endswith(_UNKNOWN_COMPRESSION):
            raise ProgramError(
                "the file is compressed in a way that cannot be read",
                where=f"file {split.id}",
                expected=f"no compression, or one of {', '.join(COMPRESSED)}",
                hint="compress the file otherwise, or keep it out of the source's paths",
            )
        if self._whole_files or compression_of(split.id):
            return split
        return replace(split, end=int(split.info["bytes"]))

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        return self.facts(split)

    def reads_file(self, split: SourceSplit) -> bool:
        return True

    def look_at(self, split: SourceSplit) -> UnitCost:
        codec, sample = compression_of(split.id), self._sample(split)
        if codec is not None:
            return _cost_of_compressed(sample, codec, split.info["bytes"])
        records = max(1, len(_LINE_ENDS.findall(sample))) / max(1, len(sample))
        if split.end is None:
            size = float(split.info["bytes"])
            return UnitCost(max(1.0, records * size), size)
        return UnitCost(records, 1.0)

    def _sample(self, split: SourceSplit) -> bytes:
        # whether a file may have changed is for the reader to say: one that is read as a whole may
        with open_split(self.systems, split, as_it_is=True) as file:
            try:
                return bytes(file.read(SAMPLE_BYTES))
            except OSError as error:
                raise unreadable(split.id, error) from None


def _cost_of_compressed(sample: bytes, codec: str, size: int) -> UnitCost:
    """The estimated number of lines and decompressed bytes of a whole file, judged by a sample of its beginning."""
    import pyarrow as pa

    unpacked = b""
    with pa.CompressedInputStream(pa.BufferReader(sample), codec) as stream:
        try:
            while len(unpacked) < _UNPACKED_BYTES and (block := stream.read(SAMPLE_BYTES)):
                unpacked += block
        except OSError:
            pass  # the sample is truncated; whether the file is complete shows when it is read
    times = size / len(sample)
    return UnitCost(max(1.0, times * len(_LINE_ENDS.findall(unpacked))), max(float(size), times * len(unpacked)))


class Lines(NamedTuple):
    """A block of whole lines, line ends included. ``position`` is the byte at which it begins in the file (in the
    decompressed content of a compressed file). ``records`` are its records, line ends included, if some of them may
    span lines; None: each line is one."""

    data: bytes
    position: int
    records: list[bytes] | None = None

    def begin_of(self, index: int) -> int:
        """The offset in ``data`` at which the record of that index begins."""
        if self.records is not None:
            return sum(map(len, self.records[:index]))
        return [match.end() for match in _LINE_ENDS.finditer(self.data)][index - 1] if index else 0


def line_start(file: NativeFile, position: int, end: int) -> int:
    """The position of the first line that begins at or after ``position``; ``end`` if none begins before it.

    A byte order mark belongs to no line.
    """
    if position <= 0:
        file.seek(0)
        return min(end, len(_BYTE_ORDER_MARK)) if file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0
    at = position - 1
    while at < end:
        file.seek(at)
        # one byte more than is searched, since a \n after a \r belongs to the same line end
        block = bytes(file.read(min(SCAN_BYTES, end - at) + 1))
        found = _LINE_END.search(block, 0, SCAN_BYTES)
        if found is not None:
            return min(end, at + found.end() + (block[found.start() : found.start() + 2] == b"\r\n"))
        if not block:
            break
        at += SCAN_BYTES
    return end


class LongRecordError(Exception):
    """A line has more bytes than is allowed, or a record that may span lines (``spans``). ``position`` is the byte at
    which it begins."""

    def __init__(self, position: int, spans: bool) -> None:
        super().__init__(position, spans)
        self.position = position
        self.spans = spans


def whole_lines(
    file: NativeFile | gzip.GzipFile,
    position: int,
    stop: int | None,
    max_bytes: int,
    spanning: CsvRecords | None = None,
) -> Iterator[Lines]:
    """Read blocks of whole lines from ``position``, where a line begins, to ``stop``, where a line ends (None: to the
    end of the file). The file must be positioned at ``position``. With ``spanning`` a block holds whole records, which
    may span lines. At most ``max_bytes`` and a block are in memory.

    Raises:
        EOFError: the file ends before ``stop``.
        LongRecordError: a line or record has more than ``max_bytes`` bytes, without its end.
    """
    rest = b""
    at = position
    while stop is None or at < stop:
        # for a line longer than a block, the size of each step doubles, as far as the line may be that long
        size = max(BLOCK_BYTES, min(len(rest), max_bytes - len(rest)))
        block = bytes(file.read(size if stop is None else min(size, stop - at)))
        if not block and stop is not None:
            raise EOFError(f"the file ends at byte {at} and had {stop} bytes when it was found")
        if not block:
            break
        data = rest + block if rest else block
        if at == 0 and stop is None:
            data = data.removeprefix(_BYTE_ORDER_MARK)
        at += len(block)
        records = None if spanning is None else spanning.whole_in(data)
        if records is None:
            # a \r at the very end of the data may be the first half of a \r\n
            cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, max(0, len(data) - 1))) + 1
        else:
            cut = sum(map(len, records))
        if len(data) > max_bytes:
            _check_lengths(data, at - len(data), cut, records, max_bytes)
        if cut:
            yield Lines(data[:cut], at - len(data), records)
        rest = data[cut:]
    if rest:
        yield Lines(rest, at - len(rest), None if spanning is None else [rest])


def _check_lengths(data: bytes, position: int, cut: int, records: list[bytes] | None, max_bytes: int) -> None:
    """Check the records of a block, and the beginning of one behind ``cut``.

    Raises:
        LongRecordError: one of them has more than ``max_bytes`` bytes.
    """
    whole = data[:cut].splitlines(keepends=True) if records is None else records
    for record in (*whole, data[cut:]):
        if len(record) > max_bytes and len(record.rstrip(b"\r\n")) > max_bytes:
            raise LongRecordError(position, records is not None)
        position += len(record)


def split_lines(data: bytes) -> list[bytes]:
    """The lines without their ends, which are ``\\n``, ``\\r\\n`` or ``\\r``.

    >>> split_lines(b"a\\r\\n\\nb"), split_lines(b"a\\n")
    ([b'a', b'', b'b'], [b'a'])
    """
    if b"\r" in data:
        return data.splitlines()  # three times slower than the split at \n below
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def unpacked(file: NativeFile, path: str) -> NativeFile | gzip.GzipFile:
    """The decompressed content of a file as a stream; the file itself if its name has no suffix of a compressed one."""
    import pyarrow as pa

    codec = compression_of(path)
    if codec == "gzip":
        # pyarrow's stream takes zeros behind the content, which tapes and blocks of fixed size leave, for damage
        return gzip.GzipFile(fileobj=file)
    return file if codec is None else pa.CompressedInputStream(file, codec)


def _check_encoding(begin: bytes, path: str) -> None:
    """Refuse a file that begins with the byte order mark of an encoding that cannot be cut at line feeds.

    Raises:
        MalformedRecordError: the file begins so.
    """
    name = next((name for mark, name in _WIDE_ENCODINGS.items() if begin.startswith(mark)), None)
    if name is not None:
        raise MalformedRecordError(
            f"the file is text in {name}, as its first bytes say",
            where=f"file {path}",
            expected="text in UTF-8 or another encoding that holds ASCII",
            hint=f"convert it first: iconv -f {name} -t UTF-8",
        )


class LineSplitReader(SplitReader):
    """Reads ranges of files of lines, and makes a record of each line by the schema of the format. The file that was
    read last is kept open, unless it is read as a whole."""

    def __init__(self, stream_format: StreamFormat, systems: FileSystems) -> None:
        self._format = stream_format
        self._deserialize = batch_deserializer(stream_format.schema)
        self._systems = systems
        self._open: tuple[SourceSplit, NativeFile] | None = None
        #: the split, block and first line of the last batch, with its messages
        self._last: tuple[SourceSplit, Lines, int, list[bytes | None]] | None = None

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:
        if self._open is not None and all(wanted.split != self._open[0] for wanted in ranges):
            self.close()

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        # the number of lines still to come that are no records
        first_lines = self._format.first_lines if wanted.start == 0 else 0
        for number, block in enumerate(self._blocks(wanted)):
            if number == 0 and wanted.start == 0:
                _check_encoding(block.data, wanted.split.id)
            lines = split_lines(block.data) if block.records is None else block.records
            for begin in range(0, len(lines), batch_size):
                messages = self._messages(lines[begin : begin + batch_size])
                if first_lines:
                    first_lines = self._without_first(messages, first_lines, wanted.split, block, begin)
                records = self._records(messages, wanted.split, block, begin)
                if records:
                    self._last = (wanted.split, block, begin, messages)
                    yield SplitRecords(records, None)

    def place_of(self, split: str, first: int, last: int) -> str:
        assert self._last is not None
        file, block, begin, messages = self._last
        records = self._deserialize(messages)
        lines = [begin + index for index, record in enumerate(records) if record is not None]
        places = [self._place(file, block.position + block.begin_of(lines[number])) for number in {first, last}]
        return f"file {split}, {' to '.join(sorted(places, key=len))}"

    def _blocks(self, wanted: SplitRange) -> Iterator[Lines]:
        split = wanted.split
        try:
            if split.end is None:
                yield from self._whole(split, spanning=self._format.spanning)
            else:
                file = self._file(wanted)
                end = file.size() if wanted.whole else int(split.info["bytes"])
                stop = line_start(file, end if wanted.ends or wanted.stop is None else min(wanted.stop, end), end)
                start = line_start(file, wanted.start, end)
                file.seek(start)
                yield from whole_lines(file, start, stop, self.max_record_bytes, self._format.spanning)
        except LongRecordError as error:
            unclosed = ", perhaps because its quote is not closed" * error.spans
            raise MalformedRecordError(
                f"a record has more than {self.max_record_bytes:,} bytes{unclosed}",
                where=f"file {split.id}, {self._place(split, error.position)}",
                expected="quotes in pairs, and shorter records" if error.spans else "shorter lines",
                hint="mend the input, or raise flinkish.source.max-record-bytes",
            ) from None
        except (OSError, EOFError, zlib.error) as error:
            self.close()
            raise unreadable(split.id, error) from None
        if wanted.ends:
            self.close()

    def _whole(
        self, split: SourceSplit, stop: int | None = None, spanning: CsvRecords | None = None
    ) -> Iterator[Lines]:
        """The blocks of a file that is read as a whole, or of its beginning up to the position ``stop``."""
        with open_split(self._systems, split, as_it_is=True) as file, closing(unpacked(file, split.id)) as stream:
            yield from whole_lines(stream, 0, stop, self.max_record_bytes, spanning)

    def _file(self, wanted: SplitRange) -> NativeFile:
        if self._open is None or self._open[0] != wanted.split or wanted.whole:
            self.close()
            self._open = (wanted.split, open_split(self._systems, wanted.split, wanted.whole))
        return self._open[1]

    def _records(self, messages: list[bytes | None], split: SourceSplit, block: Lines, begin: int) -> list[Any]:
        try:
            records = self._deserialize(messages)
        except MalformedRecordError:
            raise self._located(messages, split, block, begin) from None
        if type(None) in set(map(type, records)):
            # blank lines, headers, and lines that the schema was told to pass over (ignore_parse_errors)
            records = [record for record in records if record is not None]
        return records

    def _messages(self, lines: list[bytes]) -> list[bytes | None]:
        """The messages for the schema, with None in place of the lines that are no records."""
        kept: list[bytes | None] = list(lines)
        if self._format.skip_blank:
            kept = [None if not line or line.isspace() else line for line in lines]
        if self._format.skip_comments:
            kept = [None if line is None or line.lstrip().startswith(b"#") else line for line in kept]
        return kept

    def _without_first(
        self, messages: list[bytes | None], left: int, split: SourceSplit, block: Lines, begin: int
    ) -> int:
        """Replace the first ``left`` messages that there are by None. Returns how many are still to come.

        Raises:
            MalformedRecordError: the first one of the file is not the header that the format demands.
        """
        for index, message in enumerate(messages):
            if left and message is not None:
                if self._format.check_header is not None and left == self._format.first_lines:
                    try:
                        self._format.check_header(message)
                    except MalformedRecordError as error:
                        raise self._at(error, split, block, begin + index) from None
                messages[index] = None
                left -= 1
        return left

    def _located(self, messages: list[bytes | None], split: SourceSplit, block: Lines, begin: int) -> Exception:
        """The schema's error with file, line and byte, found by deserializing the messages one by one."""
        for index, message in enumerate(messages, begin):
            try:
                self._deserialize([message])
            except MalformedRecordError as error:
                return self._at(error, split, block, index)
        return ProgramError(
            "the schema refuses a batch of lines and none of its lines", where=type(self._format.schema).__name__
        )

    def _at(self, error: MalformedRecordError, split: SourceSplit, block: Lines, index: int) -> MalformedRecordError:
        """The error with file, line and byte of a record of the block."""
        place = self._place(split, block.position + block.begin_of(index))
        return MalformedRecordError(
            error.what,
            where=", ".join(part for part in (f"file {split.id}, {place}", error.where) if part),
            expected=error.expected,
            hint=error.hint,
        )

    def _place(self, split: SourceSplit, byte: int) -> str:
        """The line that begins at a byte, for messages."""
        if not split.id.startswith("/") and byte > _COUNTED_BYTES:
            return f"byte {byte}"
        if split.end is None:
            blocks = self._whole(split, byte)
        else:
            blocks = whole_lines(self._from_start(split), 0, byte, self.max_record_bytes)
        number = 1 + sum(len(split_lines(block.data.removeprefix(_BYTE_ORDER_MARK))) for block in blocks)
        return f"line {number} (byte {byte})"

    def _from_start(self, split: SourceSplit) -> NativeFile:
        """The file of the split, at its beginning. Reading of the current range cannot go on afterwards."""
        if self._open is None or self._open[0] != split:
            self.close()
            self._open = (split, open_split(self._systems, split))
        self._open[1].seek(0)
        return self._open[1]

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None
