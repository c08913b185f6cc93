"""The log of a Delta table, read and written file by file, without Spark. No other module knows where it lies.

A commit by Spark costs a second of processor time, and five when it is the first of a driver; a commit here costs
milliseconds. The file of a commit is created exclusively (`flinkish.storage.stores`), by a hard link, a rename that
replaces nothing, or a conditional request: of two writers of the same version, the storage refuses one. Where it has no
way to do that, Spark has to write.

Rule: only data files are added, and only to tables that ask no more of their writers than that (`Appends`).
"""

from __future__ import annotations

import json
import posixpath
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from flinkish.delta.actions import PLAIN_WRITER_VERSION, AddedFile, actions_of, added_by, added_file
from flinkish.delta.checkpoints import checkpoint_batches, first_in_checkpoint
from flinkish.errors import FlinkishError, SavepointError
from flinkish.storage.files import child_names, delete_file, read_bytes
from flinkish.storage.paths import FileKind, check_below, is_local
from flinkish.storage.sealed import typed
from flinkish.storage.stores import NO_LINKS, storage_of

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..+")
#: Any file of one version; of checkpoints only those in one file.
_OF_VERSION = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet)")
#: The file of a checkpoint, or one of several parts, of which the name says how many there are.
_PART = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[\w-]+)?\.(?:parquet|json)")

#: The columns of a checkpoint that name files.
NAMES_OF_FILES = ["add.path", "add.deletionVector.storageType", "add.deletionVector.pathOrInlineDv"]
#: What is said of a file whose actions have another shape than Delta's, or name files elsewhere.
NOT_BELOW = "not what Delta writes below the table"
#: What is expected of any file.
AS_WRITTEN = "the file as Delta wrote it"

#: A path in the log, which is a URI: Delta fails with an untyped error at any other.
_RELATIVE_URI = re.compile(r"(?:[\w.~!$&'()*+,;=@/-]|%[0-9A-Fa-f]{2})+")

#: The features of tables that are upheld by a writer which only adds files to a table without constraints; tables of
#: this version of writers list theirs.
_FEATURES, _FEATURES_VERSION = {"appendOnly", "invariants", "deletionVectors"}, 7


def commits_in(names: list[str]) -> list[int]:
    """The versions of the commits among these names of files of a log."""
    return [int(found[1]) for found in map(_COMMIT.fullmatch, names) if found]


def checkpoints_in(names: list[str]) -> list[int]:
    """The versions of the checkpoints, or of parts of them, among these names."""
    return [int(found[1]) for found in map(_CHECKPOINT.fullmatch, names) if found]


def last_checkpoint(names: list[str], last: int | None = None) -> tuple[int, list[str]]:
    """The version of the last complete checkpoint among these names (up to version ``last``), and the names of its
    files; -1: there is none. A writer that is killed leaves one of which parts are missing."""
    parts = [found for found in map(_PART.fullmatch, names) if found and (last is None or int(found[1]) <= last)]
    counts = Counter(found[1] for found in parts)
    whole = max((found[1] for found in parts if counts[found[1]] >= int(found[2] or 1)), default="-1")
    return int(whole), [found[0] for found in parts if found[1] == whole]


class DeltaLog:
    """The log of one table. Picklable.

    Args:
        table: path of the table.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.path = posixpath.join(table, "_delta_log")

    def damaged(self, path: str, problem: str, expected: str = AS_WRITTEN) -> FlinkishError:
        """The error for a file of the log."""
        return SavepointError(
            f"the log of the table of state is damaged: {path} is {problem}",
            where=path,
            expected=expected,
            hint="copy the file from a backup, or use another savepoint or checkpoint",
        )

    # ------------------------------------------------------------------------------------------------ versions

    def file(self, version: int) -> str:
        """The path of a version's file."""
        return posixpath.join(self.path, f"{version:020d}.json")

    def has(self, *versions: int) -> list[bool]:
        """For each of these versions, whether its file exists."""
        storage = storage_of(self.table)
        return [storage.exists(self.file(version)) for version in versions]

    def commits(self) -> list[int]:
        """The versions whose files are there, in ascending order."""
        return commits_in(child_names(self.path))

    def newest(self) -> int | None:
        """The newest of them; None: there is no table."""
        return max(self.commits(), default=None)

    def versions(self) -> list[int]:
        """All versions of which the log has files (commits or checkpoints), in ascending order."""
        names = child_names(self.path)
        return sorted({*commits_in(names), *checkpoints_in(names)})

    # ------------------------------------------------------------------------------------------------ reading

    def content(self, path: str, kind: FileKind, expected: str = AS_WRITTEN) -> bytes:
        """The content of a file of the log.

        Raises:
            FlinkishError: the file is `damaged`: it is missing, or none that may be read.
            OperationError: the storage fails.
        """
        try:
            data = read_bytes(path, kind)
        except ValueError as error:
            raise self.damaged(path, f"not what Delta writes ({error})", expected) from error
        if data is None:
            raise self.damaged(path, "missing", expected)
        return data

    @contextmanager
    def decoding(self, path: str) -> Iterator[None]:
        """Within the block, raise `damaged` for what is wrong with the content of a file of the log."""
        from pyarrow import ArrowException

        try:
            yield
        except ValueError as error:
            how = "unreadable" if isinstance(error, ArrowException) else NOT_BELOW
            raise self.damaged(path, f"{how} ({error})") from error
        except (OSError, ArrowException) as error:
            raise self.damaged(path, f"unreadable ({error})") from error

    def actions(self, version: int) -> list[dict[str, Any]]:
        """The actions of a version.

        Raises:
            FileNotFoundError: the version's file is gone.
            FlinkishError: the file is `damaged`.
            OSError: the storage fails.
        """
        path = self.file(version)
        try:
            return actions_of(storage_of(path).read(path, FileKind.LOG_COMMIT))
        except ValueError as error:
            raise self.damaged(path, f"not what Delta writes ({error})") from error

    def metadata(self) -> dict[str, Any] | None:
        """The newest ``metaData`` action, which has the schema and the partition columns; None: the log has none."""
        return self._newest("metaData")

    def protocol(self) -> dict[str, Any] | None:
        """What the table asks of readers and writers; None: the log does not tell."""
        return self._newest("protocol")

    def _newest(self, kind: str) -> dict[str, Any] | None:
        names = child_names(self.path)
        summed_up, parts = last_checkpoint(names)
        for version in reversed([one for one in commits_in(names) if one > summed_up]):
            path = self.file(version)
            lines = self.content(path, FileKind.LOG_COMMIT).splitlines()
            with self.decoding(path):
                # in a commit of many files, these are few
                for action in actions_of(b"\n".join(line for line in lines if f'"{kind}"'.encode() in line)):
                    if kind in action:
                        return dict(action[kind])
        for path in (posixpath.join(self.path, name) for name in parts):
            if path.endswith(".parquet"):
                with self.decoding(path):
                    found = first_in_checkpoint(self.content(path, FileKind.LOG_CHECKPOINT), kind)
                if found is not None:
                    return found
        return None

    # ------------------------------------------------------------------------------------------------ data files

    def added(self, version: int | None = None) -> dict[str, AddedFile]:
        """The files that make up a version, by their paths in the log; None: the newest one. Raises `damaged`."""
        names = child_names(self.path)
        summed_up, parts = last_checkpoint(names, version)
        last = max([*commits_in(names), summed_up, 0]) if version is None else version
        files: dict[str, AddedFile] = {}
        for path in (posixpath.join(self.path, name) for name in parts):
            with self.decoding(path):
                content = self.content(path, FileKind.LOG_CHECKPOINT)
                for batch in checkpoint_batches(content, [*NAMES_OF_FILES, "add.stats"]):
                    rows = batch.column("add").drop_null().to_pylist() if "add" in batch.schema.names else []
                    files.update((added.path, added) for added in (typed(AddedFile, row) for row in rows))
        for number in range(summed_up + 1, last + 1):
            path = self.file(number)
            with self.decoding(path):
                actions = actions_of(self.content(path, FileKind.LOG_COMMIT))
                # the order within a commit says nothing: a file with new deletion vectors is removed and added by one
                for removed in (action["remove"] for action in actions if "remove" in action):
                    files.pop(removed["path"], None)
                files.update((added.path, added) for added in added_by(actions))
        return files

    def needs_delta(self, version: int | None = None) -> bool:
        """Whether only Delta can read a version, and not this process; None: the newest one. Raises `damaged`."""
        return self._needs_delta(self.added(version))

    def _needs_delta(self, files: dict[str, AddedFile]) -> bool:
        described = self.metadata() or {}
        mapped = dict(described.get("configuration") or {}).get("delta.columnMapping.mode", "none") != "none"
        vectors = any(one.deletionVector is not None for one in files.values())
        return bool(mapped or vectors or described.get("partitionColumns"))

    def data_files(self, version: int | None = None) -> list[str]:
        """The Parquet files that make up a version; None: the newest one.

        Raises:
            SavepointError: only Delta can read that version; or a file of the log is damaged.
        """
        files = self.added(version)
        if self._needs_delta(files):
            raise SavepointError(
                "only Delta itself can read the table of state: it has deletion vectors, partitions or mapped columns",
                where=self.table,
                expected="a table of plain Parquet files, as each savepoint of flinkish has it",
                hint="restore it on Spark; in place of a checkpoint, take a savepoint there (flinkish savepoint "
                "JOB_DIR)",
            )
        return [self.data_file(path) for path in files]

    def files_of_first_commit(self) -> list[str]:
        """The Parquet files that make up a table of one commit; empty if there are none, or if only Delta can read
        them, as it is if features of Delta (such as column mapping) are on by default. Raises `damaged`."""
        path = self.file(0)
        try:
            actions = self.actions(0)
            for action in actions:
                metadata, protocol = action.get("metaData", {}), action.get("protocol", {})
                featured = metadata.get("configuration") or metadata.get("partitionColumns")
                if featured or protocol.get("minReaderVersion", 1) > 1:
                    return []
            return [self.data_file(added.path) for added in added_by(actions)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except ValueError as error:
            raise self.damaged(path, f"{NOT_BELOW} ({error})") from error

    def data_file(self, path: str) -> str:
        """The path of a data file, given its path in the log: a URI that is relative to the table.

        Raises:
            ValueError: it is no such URI, or does not lie below the table.
        """
        relative = unquote(path)
        names = relative.split("/")
        regular = _RELATIVE_URI.fullmatch(path) and "\0" not in relative
        if not regular or any(name in ("", ".", "..") for name in names):
            raise ValueError(f"it names the file {path!r:.200}")
        found = posixpath.join(self.table, *names)
        check_below(self.table, found)
        return found

    # ------------------------------------------------------------------------------------------------ writing

    def publish(self, version: int, actions: list[dict[str, Any]]) -> bool:
        """Commit a version; False if only Spark can, because the file system has no hard links.

        Raises:
            FileExistsError: another writer has committed this version; nothing was changed.
            OSError: the storage fails.
        """
        path, data = self.file(version), "".join(json.dumps(action) + "\n" for action in actions).encode()
        try:
            storage_of(path).create(path, data, only_by_link=True)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            return False
        return True

    def append(self, version: int, rows: Any, actions: list[dict[str, Any]], stats: dict[str, Any]) -> bool:
        """Write rows (a ``pyarrow.Table``) to a new data file, and commit a version that adds it; False, and raises, as
        `publish` does. Nothing is left of a file that was not committed.

        Args:
            actions: further actions of the commit.
            stats: of the file, besides the number of its rows.
        """
        import pyarrow as pa
        from pyarrow import parquet

        name = f"part-00000-{uuid.uuid4()}.parquet"
        path, whole, committed = posixpath.join(self.table, name), pa.BufferOutputStream(), False
        parquet.write_table(rows, whole)
        data = whole.getvalue().to_pybytes()
        added = added_file(name, len(data), time.time_ns() // 1_000_000, {"numRecords": rows.num_rows, **stats})
        try:
            storage_of(path).replace(path, data, durable=True)
            committed = self.publish(version, [*actions, added])
        finally:
            if not committed:
                delete_file(path)
        return committed

    def takes_appends(self, columns: Iterable[str] = ()) -> bool:
        """Whether the table asks nothing of its writers that an added file with these columns could break."""
        protocol = self.protocol()
        if protocol is None:
            return False
        schema = json.loads((self.metadata() or {}).get("schemaString", "{}"))
        if not set(columns) <= {field["name"] for field in schema.get("fields", ())}:
            return False
        version, features = protocol["minWriterVersion"], protocol.get("writerFeatures") or ()
        return version <= PLAIN_WRITER_VERSION or (version == _FEATURES_VERSION and set(features) <= _FEATURES)

    def trim(self, oldest: int, check: Callable[[], None]) -> None:
        """Delete the files that are not needed to read any version from ``oldest`` on. ``check``: raises when nothing
        may be deleted any more."""
        names = child_names(self.path)
        ours = [(int(found[1]), found[0]) for found in map(_OF_VERSION.fullmatch, names) if found]
        whole = max((version for version, name in ours if version <= oldest and name.endswith(".parquet")), default=-1)
        if whole >= 0:
            check()
        for version, name in ours:
            if version < whole:
                delete_file(posixpath.join(self.path, name))


class Appends:
    """Adds data files to one table with commits of our own instead of Spark's, which cost more than the rows.

    Rule: only where the table asks nothing of its writers that an added file could break, and only where its log is on
    a local file system; otherwise Spark has to write. Of two drivers that commit the same version one is refused.
    """

    def __init__(self, log: DeltaLog, columns: Iterable[str] = ()) -> None:
        """``columns``: those of the files."""
        self._log = log
        self._columns = frozenset(columns)
        self._linked = is_local(log.table)
        #: the version up to which the table is known to ask nothing more of its writers
        self._known: int | None = None

    def base(self) -> int | None:
        """The version of the table to which files may be added without Spark; None: they may not."""
        latest = self._log.newest()
        if not self._linked or latest is None:
            return None
        is_known = self._known is not None and not self._changed_rules(self._known, latest)
        self._known = latest if is_known or self._log.takes_appends(self._columns) else None
        return self._known

    def _changed_rules(self, since: int, latest: int) -> bool:
        """Whether a later version may ask more of writers."""
        try:
            later = [self._log.actions(version) for version in range(since + 1, latest + 1)]
        except FileNotFoundError:
            return True
        return any("protocol" in action or "metaData" in action for actions in later for action in actions)

    def commit(self, actions: list[dict[str, Any]], base: int) -> bool:
        """Commit the version after ``base``; False if another writer has, or the file system has no hard links: then
        `base` will be None."""
        try:
            self._linked = self._log.publish(base + 1, actions)
        except FileExistsError:
            return False
        return self._linked


# ---------------------------------------------------------------------------------------------------- tables of users


def described_table(table: str) -> dict[str, Any] | None:
    """The newest ``metaData`` action of the log of a table; None if there is no table, or if it cannot be read from
    here."""
    try:
        return DeltaLog(table).metadata()
    except (OSError, FlinkishError):
        return None


def newest_version(table: str) -> int | None:
    """The newest version of a table, by the files of its log; None if it cannot be read from here."""
    try:
        return DeltaLog(table).newest()
    except (OSError, FlinkishError):
        return None
