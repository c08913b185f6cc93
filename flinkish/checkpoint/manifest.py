"""The manifest of a savepoint or checkpoint: all of it except the rows of state, and the location of those rows; and
the directory of a job's checkpoints, each of which is complete once its manifest is written.

    <savepoint>/ (`Manifest`)            "state": {"table": "state", "version": null}
    <savepoint>/state/                   Delta: uid, state, kind, key, namespace, value

    <checkpoints>/chk-17/ (`Manifest`)   "state": {"table": "../state", "version": 42}
    <checkpoints>/state/                 Delta, one table for all checkpoints

    <checkpoints>/chk-18/ (`Manifest`)   the same, and "changes": {"table": "../changes", "version": 3}
    <checkpoints>/changes/               Delta: what has changed since that version of the state, entry by entry
    <checkpoints>/ended/ (`EndedSplits`) ids of splits, to which positions refer (runtime/sources/progress.py)

Rule: the manifest is written last, so that a directory without one is not a savepoint; and it carries a digest of its
own text, so that a manifest in which a single byte has changed is never accepted.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from flinkish.delta.log import DeltaLog
from flinkish.errors import FencedError, FlinkishError, SavepointError
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.sources.progress import files_of, with_ended
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.storage.files import child_names, delete_directory, delete_directory_at_once, delete_file, is_directory
from flinkish.storage.paths import FileKind, NameForm, absolute, check_below, joined
from flinkish.storage.sealed import json_as, optional, plain, typed
from flinkish.storage.stored_file import StoredFile, newer_release

#: Version of the layout above and of the table's columns; and the versions of a manifest with changes, and of one that
#: refers to files with splits, which differ so that no reader ignores those.
SAVEPOINT_VERSION = 2
VERSION_WITH_CHANGES = 3
VERSION_WITH_FILES = 4

#: The tables of state and of changes that a manifest may name, relative to its directory.
_STATE, _CHANGES = ("state", "../state"), ("../changes",)
_CHECKPOINT = re.compile(r"chk-[0-9]+")


#: The directory of the files with ids of splits, beside the checkpoints that refer to them; what stands in their names.
ENDED = "ended"
_ENDED = NameForm(r"[0-9a-f]{32}-[0-9a-f]{8}")

_OF_SAVEPOINT = "copy the file from a backup, or use another checkpoint or savepoint"


@dataclass(frozen=True)
class EndedSplits(StoredFile):
    """Ids of splits that sources have read to their ends."""

    NAME = "{}.json"
    PART = _ENDED.pattern
    FOLDER = "ended"
    PRIVATE = False
    WHEN = "of checkpoints of sources with many splits"
    READER = "any release since 0.1"
    REMEDY = _OF_SAVEPOINT
    ERROR = SavepointError
    KIND = FileKind.ENDED_SPLITS

    ended: list[str]


@dataclass(frozen=True)
class CheckpointCounter(StoredFile):
    """The last number that was given to a checkpoint or savepoint."""

    NAME = "counter.json"
    FOLDER = "checkpoints"
    PRIVATE = SEALED = False
    LENIENT = True
    WHEN = "with checkpoints or savepoints"
    KIND = FileKind.COUNTER

    last: int


@dataclass(frozen=True)
class MaintenanceCounts(StoredFile):
    """What the checkpoints have written since their tables were merged and cleaned up last."""

    NAME = "maintenance.json"
    FOLDER = "checkpoints"
    PRIVATE = SEALED = False
    LENIENT = BARE = True
    WHEN = "with checkpoints on Spark"
    READER = "the thread that takes checkpoints"
    KIND = FileKind.COUNTER

    counts: dict[str, int]


@dataclass(frozen=True)
class TableVersion:
    """Where the rows are: the path of a Delta table, relative to the manifest's directory, and the version of the table
    (None: the newest)."""

    table: str = "state"
    version: int | None = None


@dataclass(frozen=True, order=True)
class StateContents:
    """What the table holds of one state: the number of its rows, and as ``digest`` the sum of their hashes, which does
    not depend on their order."""

    uid: str
    state: str
    kind: str
    rows: int
    digest: str = ""


@dataclass(frozen=True)
class TableContents:
    """What the table held when it was written, and the Delta version it had then: tells damage from edits."""

    version: int
    states: tuple[StateContents, ...] = ()

    @property
    def rows_of_operators(self) -> dict[str, int]:
        """Operator uid -> the number of rows of its state."""
        rows = Counter[str]()
        for state in self.states:
            rows[state.uid] += state.rows
        return dict(rows)


@dataclass(frozen=True)
class Manifest(StoredFile):
    """The content of a manifest: all that a job needs in order to go on from a savepoint or checkpoint, besides the
    rows of state."""

    NAME = "manifest.json"
    FOLDER = "<savepoint>"
    VERSION, OLDEST = VERSION_WITH_FILES, SAVEPOINT_VERSION
    PRIVATE = False
    WHEN = "once the savepoint or checkpoint is complete"
    READER = "any release since 0.1"
    REMEDY = _OF_SAVEPOINT + "; only the rows of the state table may be edited"
    ERROR = SavepointError
    KIND = FileKind.MANIFEST

    job_id: str
    job_name: str
    #: the last epoch that is part of it; None: made from a DataFrame, before any epoch
    epoch: int | None
    #: time at which it was made, in ms since the Unix epoch
    time_ms: int
    #: uids of all operators
    operators: tuple[str, ...] = ()
    #: source uid -> position behind the last record of the epoch
    sources: dict[str, str] = field(default_factory=dict)
    #: operator uid -> watermark, for people; a restore uses the rows of kind ``__watermark__``
    watermarks: dict[str, int] = field(default_factory=dict)
    states: tuple[DeclaredState, ...] = ()
    state: TableVersion = TableVersion()
    #: checkpoints only: the table of changes since that version of the state; None: there are none
    changes: TableVersion | None = optional(None)
    contents: TableContents | None = None
    #: checkpoints only: totals of the job's accumulators (Base64), for a job that goes back to it; None: not known
    accumulators: str | None = optional(None)
    savepoint_version: int = SAVEPOINT_VERSION

    def encoded(self) -> bytes:
        """The content of the file, with a digest of its own text."""
        return _rendered(self.content())

    @classmethod
    def decoded(cls, data: bytes) -> Any:
        content = json_as(dict[str, Any], data)
        version = content.get("savepoint_version")
        # version 1 has no digest
        if content.pop("digest", None) is not None or version != 1:
            try:
                whole = _rendered(content) == data
            except (RecursionError, MemoryError):
                whole = False
            if not whole:
                raise ValueError("its content does not fit its digest")
        if type(version) is int and version > cls.VERSION:
            raise newer_release(version, cls.VERSION)
        own = VERSION_WITH_CHANGES if "changes" in content else SAVEPOINT_VERSION
        if version not in (own, VERSION_WITH_FILES):
            raise ValueError(f"it has version {version!r:.100}, expected version {own} or {VERSION_WITH_FILES}")
        return typed(cls, content)


def _table(directory: str, table: str, known: tuple[str, ...]) -> str:
    """The path of a table that a manifest names: one of the few that flinkish writes in the directory of a savepoint,
    or beside that of a checkpoint. A manifest from elsewhere could name any other directory, to be read or deleted."""
    beside = table.startswith("../")
    path, above = joined(directory, table), posixpath.dirname(directory) if beside else directory
    try:
        if table not in known or (beside and _CHECKPOINT.fullmatch(posixpath.basename(directory)) is None):
            raise ValueError(f"it names the table {table!r:.200}, expected one of {', '.join(known)}")
        check_below(above, path)
    except ValueError as error:
        raise Manifest.damaged(Manifest.path_in(directory), error) from error
    return path


def write_manifest(directory: str, manifest: Manifest) -> str:
    """Write the manifest of a savepoint or checkpoint into its directory; returns the path of the file."""
    manifest.write(absolute(directory))
    return Manifest.path_in(absolute(directory))


def _rendered(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, default=plain)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"digest": digest, **content}, sort_keys=True, indent=1, default=plain).encode()


def version_of(sources: Mapping[str, str], changes: TableVersion | None) -> int:
    """The version of a manifest with these positions and changes."""
    if any(map(files_of, sources.values())):
        return VERSION_WITH_FILES
    return SAVEPOINT_VERSION if changes is None else VERSION_WITH_CHANGES


@dataclass(frozen=True)
class Savepoint:
    """A savepoint or checkpoint that is open: its manifest is read, and it is known where its tables are.

    Rule: whoever begins something with a savepoint opens it, once, and passes it on; nobody else reads its manifest or
    takes its path apart.
    """

    #: the path as somebody has given it; and absolute, as `absolute` makes it
    given: str
    path: str
    manifest: Manifest
    #: path of the table of state
    table: str
    #: path of the table of changes; None: there is none
    changes: str | None

    @classmethod
    def open(cls, given: str, whole: bool = True) -> Savepoint:
        """Open the savepoint or checkpoint in a directory.

        Args:
            given: path or URI of the directory.
            whole: whether positions are completed from the files that they refer to, without which they are none.

        Raises:
            SavepointError: there is no manifest, or it is damaged, has another version, or names a table that flinkish
                does not write there; the error names the file.
        """
        path = absolute(given)
        manifest = Manifest.read(path)
        if manifest is None:
            raise _missing(path)
        table = _table(path, manifest.state.table, _STATE)
        changes = None if manifest.changes is None else _table(path, manifest.changes.table, _CHANGES)
        return cls(given, path, _completed(path, manifest) if whole else manifest, table, changes)

    @property
    def version(self) -> int | None:
        """The version of the table of state that is read; None: there is no table."""
        return self.newest if self.manifest.state.version is None else self.manifest.state.version

    @cached_property
    def newest(self) -> int | None:
        """The newest version of the table of state, as it was when this was asked first; None: there is no table."""
        return DeltaLog(self.table).newest()


def _completed(directory: str, manifest: Manifest) -> Manifest:
    ended = joined(directory, f"../{ENDED}")
    sources = manifest.sources.items()
    try:
        complete = {uid: with_ended(position, lambda name: _ids_in(ended, name)) for uid, position in sources}
    except ValueError as error:
        raise manifest.damaged(manifest.path_in(directory), f"it refers to a file in vain: {error}") from error
    return replace(manifest, sources=complete)


def write_ids(ended: str, name: str, ids: list[str]) -> None:
    """Write a file with ids of splits."""
    EndedSplits(ids).write(ended, _ENDED.checked(name))


def _ids_in(ended: str, name: str) -> list[str]:
    """The ids in the file that a position refers to. Raises ValueError if the name is none that flinkish gives."""
    path = EndedSplits.path_in(ended, _ENDED.checked(name))
    check_below(ended, path)
    found = EndedSplits.read(ended, name)
    if found is None:
        raise EndedSplits.damaged(path, "it is missing")
    return found.ended


def _missing(directory: str) -> SavepointError:
    if not is_directory(directory):
        return SavepointError(
            f"there is no savepoint at {directory}", hint="check the path given with -s / --fromSavepoint"
        )
    return SavepointError(
        f"the savepoint at {directory} is not complete: {Manifest.NAME} is missing",
        where=Manifest.path_in(directory),
        expected="a savepoint or checkpoint that was written to its end",
        hint="use another savepoint",
    )


def state_table(savepoint: str) -> str:
    """Path of the Delta table of a savepoint."""
    return posixpath.join(savepoint, "state")


def manifest_of(job: JobDescriptor, epoch: int, positions: dict[str, str], **more: Any) -> Manifest:
    """The manifest of a savepoint or checkpoint that is taken now. ``more``: further fields."""
    return Manifest(
        job_id=job.job_id,
        job_name=job.name,
        epoch=epoch,
        time_ms=time.time_ns() // 1_000_000,
        operators=tuple(sorted(d.uid for vertex in job.vertices for d in vertex.operators)),
        sources=positions,
        **more,
    )


#: All kinds of files of checkpoints and savepoints that are read as a whole.
CHECKPOINT_LAYOUT: tuple[type[StoredFile], ...] = (Manifest, EndedSplits, CheckpointCounter, MaintenanceCounts)

_NUMBERED = re.compile(r"chk-(\d+)")


class CheckpointDirectory:
    """Numbers, lists, reads, writes and deletes the checkpoints of one job, and numbers its savepoints. A checkpoint is
    complete once its manifest is written.

        <checkpoints>/ (`CheckpointCounter`) the last number that was given to a checkpoint or savepoint
        <checkpoints>/state/                 Delta: the state of the last checkpoint that was full, or after which
                                             changes were merged; older checkpoints refer to earlier versions
        <checkpoints>/changes/               Delta: what has changed since (`writer.IncrementalWriter`)
        <checkpoints>/ended/                 ids of splits that sources have read, to which positions refer
        <checkpoints>/chk-17/ (`Manifest`)   written last: without it there is no checkpoint 17

    Rule: a number is given once, whatever becomes of the checkpoint. Only what was there before the check that the job
    is still this driver's (``check``) is deleted, so nothing that a newer driver has made.
    """

    def __init__(self, path: str) -> None:
        self.path = absolute(path)
        #: segment of a list of splits -> the file with the ids of its splits; None: not known yet
        self._ended: dict[str, str] | None = None
        self._numbering = threading.Lock()
        #: the checkpoints that somebody reads; each as often as somebody does
        self._held: list[int] = []
        #: part of the names of files that this driver writes, which an earlier one therefore never deletes
        self._token = uuid.uuid4().hex[:8]

    @property
    def table(self) -> str:
        """Path of the Delta table of state."""
        return posixpath.join(self.path, "state")

    @property
    def changes(self) -> str:
        """Path of the Delta table of changes."""
        return posixpath.join(self.path, "changes")

    @property
    def ended(self) -> str:
        """Path of the directory of the files with ids of splits."""
        return posixpath.join(self.path, ENDED)

    def store_ids(self, segment: str, ids: Callable[[], list[str]]) -> str:
        """Store the ids of the splits of a segment in a file, unless the last completed checkpoint or a later one
        refers to such a file; returns its name."""
        if self._ended is None:
            files = set[str]()
            with suppress(SavepointError):
                files = self._referred(self.completed()[-1:])
            self._ended = {name.partition("-")[0]: name for name in files}
        if segment not in self._ended:
            name = f"{segment}-{self._token}"
            write_ids(self.ended, name, ids())
            self._ended[segment] = name
        return self._ended[segment]

    def _referred(self, numbers: list[int]) -> set[str]:
        """The files with ids of splits to which these checkpoints refer."""
        manifests = map(self.read, numbers)
        return {name for one in manifests for position in one.sources.values() for name in files_of(position)}

    def checkpoint(self, number: int) -> str:
        """Path of one checkpoint, from which a job can be restored."""
        return posixpath.join(self.path, f"chk-{number}")

    def next_id(self) -> int:
        """Reserve a number that no checkpoint or savepoint of the job has had; returns it."""
        with self._numbering:
            return self._next_id()

    def _next_id(self) -> int:
        counted = (CheckpointCounter.read(self.path) or CheckpointCounter(0)).last
        number = max([counted, *self._ids()]) + 1
        CheckpointCounter(number).write(self.path)
        return number

    def _ids(self) -> list[int]:
        found = (_NUMBERED.fullmatch(name) for name in child_names(self.path))
        return sorted(int(match.group(1)) for match in found if match)

    def completed(self) -> list[int]:
        """The numbers of the completed checkpoints, in ascending order."""
        return self._whole(self._ids())

    def _whole(self, numbers: list[int]) -> list[int]:
        return [number for number in numbers if Manifest.NAME in child_names(self.checkpoint(number))]

    def write(self, number: int, manifest: Manifest) -> None:
        """Write the manifest of a checkpoint, which completes it."""
        write_manifest(self.checkpoint(number), manifest)

    def complete(self, number: int, manifest: Manifest, check: Callable[[], None]) -> None:
        """Write the manifest of a checkpoint of a job that this driver owns.

        Rule: who stands still between the question and the write goes on when another driver owns the job. So it asks
        again behind the write, and takes its checkpoint back; no other driver has given this number. Whoever has built
        upon it meanwhile looks for its base anew, and writes a full checkpoint.

        Args:
            number: of the checkpoint.
            manifest: what completes it.
            check: raises when the checkpoint must not be completed; a FencedError when the job is another driver's.
        """
        check()
        self.write(number, manifest)
        try:
            check()
        except FencedError:
            delete_directory(self.checkpoint(number))
            raise
        except FlinkishError:
            # what comes too late for a checkpoint that is complete ends nothing
            pass

    def read(self, number: int) -> Manifest:
        """The manifest of a checkpoint, as it is written: its positions may refer to files. Raises SavepointError when
        it is damaged or there is none."""
        return Savepoint.open(self.checkpoint(number), whole=False).manifest

    def hold(self, number: int) -> None:
        """Keep a checkpoint, and the versions that it names, until `let_go` is called as often."""
        self._held.append(number)

    def let_go(self, number: int) -> None:
        """The inverse of `hold`."""
        self._held.remove(number)

    def drop_but(self, retained: int, check: Callable[[], None]) -> list[int]:
        """Delete all but the last ``retained`` completed checkpoints, and those before the newest that were never
        completed; returns the numbers of the completed checkpoints that are left, among them those that are held.

        ``check``: raises when the job is no longer this driver's; then nothing is deleted.
        """
        there, ended = self._ids(), set(child_names(self.ended))
        whole, held = self._whole(there), set(self._held)
        left = sorted({*whole[-retained:], *(number for number in whole if number in held)})
        unneeded = self._unneeded(ended, left)
        check()
        for number in there:
            if left and number not in left and number < left[-1]:
                delete_directory(self.checkpoint(number))
        for name in unneeded:
            delete_file(posixpath.join(self.ended, name))
        if unneeded:
            self._ended = None
        return left

    def _unneeded(self, ended: set[str], left: list[int]) -> set[str]:
        """Those of the files with ids of splits to which none of these checkpoints refers. The newest one refers to
        most of them, and often to all."""
        try:
            for number in reversed(left):
                if ended:
                    ended = ended - set(map(EndedSplits.file_name, self._referred([number])))
        except SavepointError:
            # it is not known what a damaged checkpoint refers to
            return set()
        return ended if left else set()

    def delete(self, check: Callable[[], None]) -> None:
        """Delete all checkpoints and their tables; the counter stays, so no number is given again. ``check``: as for
        `drop_but`."""
        there = self._ids()
        check()
        for number in there:
            delete_directory(self.checkpoint(number))
        check()
        for directory in (self.table, self.changes, self.ended):
            delete_directory_at_once(directory)
        self._ended = None
