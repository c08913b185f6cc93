"""The base of the enumerators of files, which list files once, or again and again; the opening of a split's file; and
the formats of files that a source reads, PyFlink's ``StreamFormat`` and ``BulkFormat``.

Each format decides what a position in its files is. A file that is opened must still be the one that was found.
"""

from __future__ import annotations

import codecs
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from flinkish.common.serialization import DeserializationSchema, SimpleStringSchema
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.file_system.listing import FileSystems, find_files, folders_of
from flinkish.core.source import SourceSplit, SplitEnumerator
from flinkish.errors import (
    ConnectionFailedError,
    FinalOperationError,
    FlinkishError,
    MalformedRecordError,
    ProgramError,
    RetryableError,
)
from flinkish.formats.csv import CsvRecords

if TYPE_CHECKING:
    from pyarrow import NativeFile


#: The facts about a file that a format reads from the file itself.
Facts = TypeVar("Facts")

#: The number of files whose facts are cached: more than the subtasks of a job can have open.
_MOST_FACTS = 16_384
#: The number of files that are looked at at the same time.
LOOKING_THREADS = 32


class FileEnumerator(SplitEnumerator, Generic[Facts]):
    """Finds the files of a source as splits, in the order (modification time, path).

    Args:
        paths: paths or URIs.
        interval_s: seconds between two listings; None: the set of files is static.
        restored: ids of the splits of the savepoint that the job was started from.
        clock: gives seconds and never goes back.
    """

    def __init__(
        self,
        paths: Sequence[str],
        interval_s: float | None,
        restored: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.systems = FileSystems(folders_of(paths))
        self._paths = paths
        self._interval_s = interval_s
        self._restored = frozenset(restored)
        self._clock = clock
        #: when to list the files again, in seconds; None: never
        self._due_s: float | None = clock()
        self._frozen = False
        self._listed = False
        #: split id -> facts about its file, those that were asked for last at the end
        self._facts: dict[str, Facts] = {}
        #: split id -> its facts, while the file is looked at
        self._looking: dict[str, Future[Facts]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        now = self._clock()
        if self._due_s is None or now < self._due_s:
            return ()
        static = self._interval_s is None
        self._due_s = None if self._interval_s is None or self._frozen else now + self._interval_s
        known = frozenset(known)
        # a query that goes on has discovered its static set of files already
        found = [] if static and known - self._restored else self._list()
        self._listed = True
        return [self.as_found(split) for split in found if split.id not in known]

    @property
    def complete(self) -> bool:
        return self._interval_s is None and self._listed

    def freeze(self) -> None:
        self._frozen = True
        if self._interval_s is not None:
            # list the files once more, so that all that are there now are read
            self._due_s = self._clock()

    def as_found(self, split: SourceSplit) -> SourceSplit:
        """The split of a file that was listed, as its format needs it. Must not read the file, since there may be
        many."""
        return split

    def reads_file(self, split: SourceSplit) -> bool:
        """Whether `look_at` reads the file, and may do so for several files at the same time."""
        return False

    def expect(self, splits: Sequence[SourceSplit]) -> None:
        new = [one for one in splits if one.id not in self._facts and one.id not in self._looking]
        for split in filter(self.reads_file, new):
            self._pool = self._pool or ThreadPoolExecutor(LOOKING_THREADS, "flinkish-file-facts")
            self._looking[split.id] = self._pool.submit(self.look_at, split)

    def facts(self, split: SourceSplit) -> Facts:
        """The facts about a file, from a cache: the engine asks for them before each epoch, and `look_at` reads the
        file."""
        found = self._facts.pop(split.id, None) or self._looked_ahead(split) or self.look_at(split)
        self._facts[split.id] = found
        if len(self._facts) > _MOST_FACTS:
            del self._facts[next(iter(self._facts))]
        return found

    def _looked_ahead(self, split: SourceSplit) -> Facts | None:
        """The facts about a file that was expected; None if it was not, or if it could not be read then."""
        looking = self._looking.pop(split.id, None)
        return None if looking is None or looking.exception() is not None else looking.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    @abstractmethod
    def look_at(self, split: SourceSplit) -> Facts:
        """Read the facts that planning needs from the file itself."""

    def _list(self) -> list[SourceSplit]:
        found: dict[str, SourceSplit] = {}
        for path in self._paths:
            try:
                found |= {split.id: split for split in find_files(path, must_match=self._interval_s is None)}
            except ProgramError as error:
                if not self._listed:
                    raise
                # the path existed before, so this is no error of the program: the operator must act
                raise ConnectionFailedError(error.what, where=error.where, expected=error.expected) from None
        return sorted(found.values(), key=lambda split: (split.info["modified_ns"], split.id))


def open_split(systems: FileSystems, split: SourceSplit, as_it_is: bool = False) -> NativeFile:
    """Open the file of a split for random access.

    A file that has grown is accepted: it is read up to the size that it had when it was found. With ``as_it_is`` a
    changed file is accepted too: it is read as a whole, and somebody may have repaired it.

    Raises:
        FinalOperationError: the file is gone; or, without ``as_it_is``, it has become shorter or was replaced by
            another one of the same size.
        ConnectionFailedError: the file system cannot be reached.
        RetryableError: the file cannot be opened.
    """
    from pyarrow import fs

    system, path = systems.locate(split.id)
    try:
        now = system.get_file_info(path)
        if now.type != fs.FileType.File:
            raise _changed(split, "the file is gone")
        if as_it_is:
            return system.open_input_file(path)
        if now.size < split.info["bytes"]:
            raise _changed(split, f"the file has {now.size} bytes and had {split.info['bytes']} when it was found")
        if now.size == split.info["bytes"] and now.mtime_ns != split.info["modified_ns"]:
            raise _changed(split, "the file was replaced by another one after it was found")
        return system.open_input_file(path)
    except FileNotFoundError:
        raise _changed(split, "the file is gone") from None
    except OSError as error:
        if isinstance(error, FlinkishError):
            raise
        raise RetryableError(f"the file cannot be opened: {error}", where=f"file {split.id}") from error


def _changed(split: SourceSplit, what: str) -> FinalOperationError:
    return FinalOperationError(
        what,
        where=f"file {split.id}",
        expected="files that stay as they are until they have been read",
        hint="put the old file back with its modification time (cp -p); write files elsewhere and move them in whole",
    )


def unreadable(split_id: str, error: Exception) -> FlinkishError:
    """The error to raise when reading a file has failed: a RetryableError if the file system is to blame, and a
    MalformedRecordError if the content is."""
    if isinstance(error, FlinkishError):
        return error
    # the errors of pyarrow's file systems have an errno, or name the service that failed; those of its decoders do not
    damaged = not isinstance(error, OSError) or (error.errno is None and split_id.startswith("/"))
    if damaged:
        return MalformedRecordError(
            f"the file is damaged: {error}", where=f"file {split_id}", expected="a complete file of its format"
        )
    return RetryableError(f"the file cannot be read: {error}", where=f"file {split_id}")


@dataclass(frozen=True)
class StreamFormat:
    """The format of files of lines; ``schema`` deserializes each line.

    With ``skip_blank`` an empty or blank line is no record, and with ``skip_comments`` none that begins with ``#``. Nor
    are the first ``first_lines`` of the other lines of a file; ``check_header`` gets the first one and raises
    MalformedRecordError if it is not the header of such files. With ``spanning`` a record may span lines, so that a
    file cannot be cut: it is read as a whole.
    """

    schema: DeserializationSchema
    skip_blank: bool = False
    skip_comments: bool = False
    first_lines: int = 0
    check_header: Callable[[bytes], None] | None = None
    spanning: CsvRecords | None = None

    @property
    def produced_type(self) -> TypeInformation:
        return self.schema.get_produced_type()

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """The format of text files whose lines are records of type STRING. Lines end with ``\\n``, ``\\r\\n`` or
        ``\\r``. Bytes that the charset cannot decode are an error.

        Raises:
            ProgramError: the charset is not known, or does not encode a line feed as the byte 10 (UTF-16, UTF-32).
        """
        try:
            single = "\n".encode(codecs.lookup(charset_name).name.replace("_sig", "")) == b"\n"
        except LookupError:
            single = False
        if not single:
            raise ProgramError(
                f"the charset {charset_name!r} cannot be read in lines",
                where="StreamFormat.text_line_format",
                expected="a charset that Python knows and that holds ASCII, such as UTF-8 or ISO-8859-1",
                hint="convert UTF-16 and UTF-32 files first",
            )
        return StreamFormat(SimpleStringSchema(charset_name))


@dataclass(frozen=True)
class BulkFormat:
    """The format of Parquet files that are read as Rows (``type_info`` is a ROW) or tuples (a TUPLE). ``columns`` are
    the names of the columns for the fields of the type, in their order; other columns are not read.

    Raises:
        ProgramError: there are not as many columns as fields of the type.
    """

    type_info: TypeInformation
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.type_info.to_arrow_fields()) != len(self.columns):
            raise ProgramError(
                f"{len(self.columns)} columns {list(self.columns)} for the type {self.type_info!r}",
                where="FileSource",
                expected="one column name per field",
            )

    @property
    def produced_type(self) -> TypeInformation:
        return self.type_info
