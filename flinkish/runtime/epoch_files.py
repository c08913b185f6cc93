"""The files to which tasks write the committables of an epoch and the changelog of their state.

    <query>/prepared/17.json              the epoch is prepared: all that its commit needs (runtime/prepared_epoch.py)
    <query>/prepared/17/<token>           committables of one run of one task, concatenated
    <job dir>/changelog/epoch=17/...      changes of state, for incremental checkpoints (runtime/changelog_files.py)

The committables lie inside the query's own directory. A driver that takes the job over moves that directory away
(``jobmanager/directory/query_move.py``), so a paused driver that wakes up can neither prepare an epoch nor change one.

Rule: the name of a file is a token that is used only once, and a file never changes. So a task that is tried again, or
that keeps running although its epoch has failed, never touches a file of another run. Only referenced files count.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Annotated

from flinkish.errors import CorruptStateError
from flinkish.runtime.accumulated import accumulators_directory
from flinkish.runtime.changelog_files import write_changes
from flinkish.runtime.deployment import CHANGELOG_VERTEX, JobDescriptor, is_sink_vertex
from flinkish.runtime.exchange.buffer import Buffer, BufferKind, decode, encode
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.report import Row
from flinkish.storage.paths import NameForm
from flinkish.storage.sealed import json_as
from flinkish.storage.stores import OutputFile, storage_error, storage_errors, storage_of

#: Number of bytes of an epoch that may travel to the driver inside the rows, divided among its tasks.
INLINE_BYTES_PER_EPOCH = 1024 * 1024

#: Lower and upper bound of the number of bytes that a single task may send inline.
INLINE_BYTES_MIN, INLINE_BYTES_MAX = 4 * 1024, 64 * 1024

#: First byte of a row of the changelog: the changes themselves follow, or the name of the file that holds them.
CHANGES_INLINE, CHANGES_IN_FILE = b"\0", b"\1"


#: The names of the files with committables: epoch and token.
_OUTPUT_FILE = NameForm(r"[0-9]+/[0-9a-f]{32}")


@dataclass(frozen=True)
class Slice:
    """A reference to a part of a file, and its digest. ``file`` is relative to the directory of the prepared epochs."""

    file: Annotated[str, _OUTPUT_FILE]
    offset: int
    length: int
    sha256: str

    def encode(self) -> bytes:
        """Encode the reference as the payload of a buffer."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(data: bytes) -> Slice:
        """The inverse of `encode`.

        Raises:
            ValueError: the payload is no reference.
        """
        found = json_as(Slice, data)
        if min(found.offset, found.length) < 0:
            raise ValueError("offset and length of the part are less than 0")
        return found


@dataclass(frozen=True)
class EpochFiles:
    """The directories of the files of a query's epochs. Picklable, since it travels to the tasks."""

    #: directory of the prepared epochs, inside the query's own directory
    prepared: str
    #: directory of the changelog, inside the job directory
    changelog: str
    #: directory of the files of keyed state, inside the job directory; "" if all state is stored with the tasks
    state: str = ""
    #: directory for what only the running driver's planner of epochs reads; "": the query's own
    beside_driver: str = ""

    @property
    def planner(self) -> str:
        """The directory of the files through which an epoch informs the planner, but for those of a new driver, too."""
        return self.beside_driver or self.query

    @property
    def query(self) -> str:
        """The directory of the query."""
        return posixpath.dirname(self.prepared)

    @property
    def accumulators(self) -> str:
        """The directory of the totals of the job's accumulators, inside the job directory."""
        return accumulators_directory(posixpath.dirname(self.changelog))

    def payload(self, buffer: Buffer) -> bytes:
        """The committables of a buffer, read from their file if they lie in one.

        Raises:
            CorruptStateError: the file is missing, or its content is not what was written; the error names it.
        """
        if buffer.header.kind is not BufferKind.COMMITTABLES_IN_FILE:
            return buffer.payload
        try:
            part = Slice.decode(buffer.payload)
            path = _OUTPUT_FILE.path(self.prepared, part.file)
        except ValueError as error:
            raise damaged_output(self.prepared, f"referred to by an unreadable reference: {error}") from error
        try:
            data = storage_of(path).read_slice(path, part.offset, part.length)
        except (FileNotFoundError, NotADirectoryError):
            raise damaged_output(path, "missing") from None
        except OSError as error:
            raise storage_error(error, "read", path) from error
        except ValueError as error:
            raise damaged_output(path, f"no file of output ({error})") from error
        if hashlib.sha256(data).hexdigest() != part.sha256:
            raise damaged_output(path, "not what was written")
        return data


def damaged_output(path: str, how: str) -> CorruptStateError:
    """The error for a damaged or missing file of a prepared epoch, without which its output cannot be committed."""
    error = CorruptStateError(
        f"the output of an epoch cannot be committed: {path} is {how}",
        where=path,
        hint="restore the file from a copy, or the job from its last checkpoint or savepoint",
    )
    error.file = path
    return error


class TaskOutput:
    """Writes large committables and changes of the tasks of a worker to files, and puts references into the rows.

    Without ``files`` (in the minicluster) everything stays in the rows.
    """

    def __init__(self, job: JobDescriptor, files: EpochFiles | None) -> None:
        self._files = files
        runs = sum(vertex.parallelism for vertex in job.vertices)
        self._inline_bytes = min(max(INLINE_BYTES_PER_EPOCH // max(runs, 1), INLINE_BYTES_MIN), INLINE_BYTES_MAX)

    @contextmanager
    def of_run(self, epoch: int) -> Iterator[RunOutput]:
        """The output of one run of a task in an epoch. When the block ends, all that was handed over is durable; if an
        error ends it, the file of the run is deleted."""
        output = RunOutput(self._files, self._inline_bytes, epoch)
        try:
            yield output
        except BaseException:
            output.discard()
            raise
        output.close()


class RunOutput:
    """The output of one run of a task. Its committables take at most one file, which is opened when it is needed."""

    def __init__(self, files: EpochFiles | None, inline_bytes: int, epoch: int) -> None:
        self._files = files
        self._inline_left = inline_bytes
        self._epoch = epoch
        self._committables = False
        self._name = ""
        self._file: OutputFile | None = None
        self._offset = 0

    def referenced(self, rows: list[Row]) -> list[Row]:
        """The rows, with references in place of the committables and changes that were written to files."""
        return [self._referenced(row) if row[0] < 0 else row for row in rows]

    def _referenced(self, row: Row) -> Row:
        vertex, subtask, data = row
        if is_sink_vertex(vertex):
            self._committables = True
            return row if self._files is None or self._fits(data) else (vertex, subtask, self._written(decode(data)))
        if vertex == CHANGELOG_VERTEX:
            if self._files is None or self._fits(data):
                return vertex, subtask, CHANGES_INLINE + data
            name = write_changes(self._files.changelog, self._epoch, [data])
            return vertex, subtask, CHANGES_IN_FILE + name.encode()
        return row

    def _fits(self, data: bytes) -> bool:
        """Whether this data may travel inside its row; if so, it is counted."""
        if len(data) > self._inline_left:
            return False
        self._inline_left -= len(data)
        return True

    def _written(self, buffer: Buffer) -> bytes:
        assert self._files is not None
        if self._file is None:
            self._name = f"{self._epoch}/{uuid.uuid4().hex}"
        path = posixpath.join(self._files.prepared, self._name)
        with storage_errors("write", path):
            if self._file is None:
                self._file = storage_of(path).open(path)
            self._file.write(buffer.payload)
        digest = hashlib.sha256(buffer.payload).hexdigest()
        part = Slice(self._name, self._offset, len(buffer.payload), digest)
        self._offset += part.length
        return encode(buffer.header._replace(kind=BufferKind.COMMITTABLES_IN_FILE), part.encode())

    def close(self) -> None:
        """Make the file of the run durable, after all of its rows were handed over."""
        if self._file is not None:
            with storage_errors("write", self._path()):
                self._file.close()
        if self._committables:
            passed(Phase.COMMITTABLES_WRITTEN, epoch=self._epoch)

    def discard(self) -> None:
        """Delete the file of the run, because the run has failed and nothing will refer to the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                storage_of(self._path()).delete(self._path())

    def _path(self) -> str:
        assert self._files is not None
        return posixpath.join(self._files.prepared, self._name)
