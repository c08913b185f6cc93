"""The files of the epochs of a query: those to which tasks write the committables of an epoch and the changelog of
their state, and one file per prepared epoch that holds, or refers to, all that the commit of the epoch needs.

    <query>/prepared/17.json              the epoch is prepared: all that its commit needs (`PreparedEpoch`)
    <query>/prepared/17/<token>           committables of one run of one task, concatenated
    <job dir>/changelog/epoch=17/...      changes of state, for incremental checkpoints

The committables lie inside the query's own directory. A driver that takes the job over moves that directory away
(``jobdir/ownership.py``), so a paused driver that wakes up can neither prepare an epoch nor change one.

Rule: the name of a file that a task writes is a token that is used only once, and such a file never changes. So a task
that is tried again, or that keeps running although its epoch has failed, never touches a file of another run. Only
referenced files count.

The file of a prepared epoch says by uid which sink each part of the epoch is for, since the program that commits it
need not be the one that has prepared it.

Rule: before that file exists, nothing of the epoch was committed to any sink, and the epoch is run again as a whole.
From then on the epoch is never run again: whichever driver continues the job commits what the file says. So state and
output of an epoch always come from the same run, whatever its functions do, and no sink gets two contents for an epoch.

An epoch that has neither output for a sink nor additions to accumulators need not be prepared and has no file.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

from flinkish.core.sink import Fence, Sink
from flinkish.errors import CorruptStateError, FencedError, IncompatibleJobError
from flinkish.runtime.epoch.changelog_files import write_changes
from flinkish.runtime.exchange.buffer import Buffer, BufferKind, decode, encode
from flinkish.runtime.job.accumulators import accumulators_directory
from flinkish.runtime.job.deployment import CHANGELOG_VERTEX, JobDescriptor, SinkDescriptor, is_sink_vertex, sink_of
from flinkish.runtime.job.report import Row
from flinkish.runtime.phases import Phase, passed
from flinkish.storage.paths import NameForm
from flinkish.storage.sealed import json_as
from flinkish.storage.stored_file import CHECKPOINT, StoredFile
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
            payload: bytes = buffer.payload
            return payload
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


#: The identity of a sink with a generated uid: the uid and the destination (`SinkDescriptor.identity`).
_GENERATED = re.compile(r"([a-z0-9-]+-[0-9]+): (.+)", re.DOTALL)


@dataclass(frozen=True)
class PreparedEpoch(StoredFile):
    """The reports and the committables of an epoch whose tasks have all ended."""

    NAME = "{}.json"
    FOLDER = "<query>/prepared"
    VERSION = OLDEST = 3
    WHEN = "from the barrier of an epoch with output until the commit of the next one"
    REMEDY = CHECKPOINT
    ERROR = CorruptStateError

    epoch: int
    #: processing time of the epoch
    time_ms: int
    #: whether the epoch is the last one of the job
    end_of_input: bool
    #: that of the driver that has prepared it
    fencing_token: int = field(default=0, kw_only=True, compare=False)
    #: the reports of the tasks, as the tasks have encoded them
    reports: tuple[bytes, ...]
    #: buffers with committables for the sinks, as the tasks have encoded them
    committables: tuple[bytes, ...]
    #: the identities of the sinks of the program that has prepared the epoch, by their numbers in the buffers
    sinks: tuple[str, ...]

    def check_name(self, *parts: str) -> None:
        if self.epoch != int(parts[0]):
            raise ValueError(f"it is that of epoch {self.epoch}")

    def by_target(self, job: JobDescriptor) -> list[tuple[int, int, list[bytes]]]:
        """The committables as (number of the sink in this job, subtask, its buffers), each of which makes one commit,
        in a fixed order.

        Raises:
            IncompatibleJobError: the program has no sink for a part of the epoch.
        """
        found: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        for data in self.committables:
            header = decode(data).header
            found[sink_of(header.vertex), header.subtask].append(data)
        numbers = {number: sink_of_identity(job, self.sinks[number], self.epoch, self.sinks).id for number, _ in found}
        return sorted((numbers[sink], subtask, buffers) for (sink, subtask), buffers in found.items())

    def uids(self, job: JobDescriptor) -> dict[int, str]:
        """The number of a sink in this job -> its uid when the epoch was prepared, of the sinks whose generated uid has
        changed since: a part that is committed already was committed under that one."""
        found = ((_sink_that_moved(job, identity, self.sinks), identity) for identity in self.sinks)
        return {sink.id: _generated(identity)[0] for sink, identity in found if sink is not None}


def identities_of(job: JobDescriptor) -> tuple[str, ...]:
    """The identities of a program's sinks, by their numbers."""
    return tuple(sink.identity for sink in job.sinks)


def sink_of_identity(job: JobDescriptor, identity: str, epoch: int, before: Sequence[str] = ()) -> SinkDescriptor:
    """The sink of the program that an epoch, which an earlier program with the sinks ``before`` has prepared, has
    something for.

    Raises:
        IncompatibleJobError: the program has no such sink.
    """
    for sink in job.sinks:
        if sink.identity == identity:
            return sink
    moved = _sink_that_moved(job, identity, before)
    if moved is not None:
        return moved
    raise IncompatibleJobError(
        f"epoch {epoch} is prepared and has output for the sink '{identity}', which the program does not have",
        where=f"job '{job.name}', epoch {epoch}",
        expected=f"the sinks of the program that has prepared the epoch; this one has "
        f"{', '.join(map(repr, identities_of(job))) or 'none'}",
        hint="start the program as it was in this directory once more: it commits the epoch; stop it, then change its "
        "sinks (give each a uid of its own)",
    )


def _sink_that_moved(job: JobDescriptor, identity: str, before: Sequence[str]) -> SinkDescriptor | None:
    """The sink of the program that writes to where the one of this identity did, if its generated uid has changed, as
    those of operators behind a new one do. None: there is none, or several, or it does not say where it writes to."""
    destination = _generated(identity)[1]
    if not destination or [_generated(other)[1] for other in before].count(destination) != 1:
        return None
    if any(sink.identity == identity for sink in job.sinks):
        return None
    same = [sink for sink in job.sinks if _generated("" if sink.uid_given else sink.identity)[1] == destination]
    if len(same) != 1 or type(same[0].sink)._destination is Sink._destination:
        return None
    return same[0]


def _generated(identity: str) -> tuple[str, str]:
    """The uid and the destination in the identity of a sink with a generated uid; of another one, two empty texts."""
    match = _GENERATED.fullmatch(identity)
    return (match[1], match[2]) if match else ("", "")


class PreparedEpochs:
    """Reads, writes and deletes the prepared epochs of one query, with the files that they refer to."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._storage = storage_of(path)

    def file(self, epoch: int) -> str:
        """The path of the file of an epoch."""
        return PreparedEpoch.path_in(self.path, epoch)

    def read(self, epoch: int) -> PreparedEpoch | None:
        """Read a prepared epoch; None if the epoch is not prepared.

        Raises:
            CorruptStateError: the file of the epoch is damaged; the error names it.
        """
        return PreparedEpoch.read(self.path, epoch)

    def write(self, prepared: PreparedEpoch, fence: Fence, replacing: bool = False) -> None:
        """Prepare an epoch by writing its file; ``replacing``: in the place of the file that it has.

        Raises:
            FencedError: this driver does not own the job any more, or another process has prepared the epoch meanwhile.
        """
        path = self.file(prepared.epoch)
        self._storage.synchronise(posixpath.join(self.path, str(prepared.epoch)))
        data = replace(prepared, fencing_token=fence.token).encoded()
        fence.check()
        try:
            if replacing:
                self._storage.replace(path, data, durable=True, private=True)
            else:
                self._storage.create(path, data)
        except FileExistsError:
            # if there is a newer driver, the file is that of its query, in the place of this one
            fence.check()
            raise FencedError(
                f"epoch {prepared.epoch} has been prepared by another process meanwhile",
                where=path,
                expected="one process that runs the epochs of a job",
                hint="start the job again: it commits what was prepared",
            ) from None
        except OSError as error:
            fence.check()
            raise storage_error(error, "write", path) from error

    def epochs(self) -> list[int]:
        """The prepared epochs that have not been deleted, in order. Only the names of files are read."""
        return sorted(self._epochs_of(self._all_names()))

    def delete_up_to(self, epoch: int, fence: Fence) -> None:
        """Delete all files of the epochs up to this one, which will never be delivered again."""
        names = self._all_names()
        files = [PreparedEpoch.file_name(one) for one in self._epochs_of(names) if one <= epoch]
        self._delete(files, [name for name in names if name.isdigit() and int(name) <= epoch], fence)

    def delete_unreferenced(self, fence: Fence) -> None:
        """Delete the files that failed runs of epochs that are not prepared have left behind. To be called only while
        no epoch runs, since the files of a running epoch are referenced only after it is prepared."""
        names = self._all_names()
        prepared = {str(epoch) for epoch in self._epochs_of(names)}
        unfinished = [name for name in names if name.startswith(".")]
        self._delete(unfinished, [name for name in names if name.isdigit() and name not in prepared], fence)

    def _delete(self, files: list[str], directories: list[str], fence: Fence) -> None:
        if files or directories:
            fence.check()
        # the file of an epoch is deleted before the files that it refers to, without which it would be a damaged one
        for names, delete in ((files, self._storage.delete), (directories, self._storage.delete_directory)):
            for path in (posixpath.join(self.path, name) for name in names):
                with storage_errors("delete", path):
                    delete(path)

    def _epochs_of(self, names: list[str]) -> list[int]:
        return [int(parts[0]) for parts in map(PreparedEpoch.parts_of, names) if parts is not None]

    def _all_names(self) -> list[str]:
        with storage_errors("read", self.path):
            return [entry.name for entry in self._storage.list(self.path)]


def prepared_directory(query: str) -> str:
    """The directory of the prepared epochs of a query."""
    return posixpath.join(query, "prepared")
