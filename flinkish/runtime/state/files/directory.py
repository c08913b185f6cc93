"""The directory with the files of one subtask: writes, opens, checks, fetches and deletes them.

Rule: a file is written under a name that is used once, and never changes. So it needs to be checked against its digest
only once in a process, and a copy of it is as good as the file itself. Files are not synced to the disk when they are
written, as Spark's own files of state are not: one that a machine loses is found to be damaged.

Local files are mapped. If there is a folder on the local disk for copies (``cache_path``), files are fetched whole into
it, under their own names, and mapped there; new files are copied there as well. A copy that is damaged is fetched
again. Where ``spark.executor.pyspark.memory`` limits the address space, mapped files get a part of it. A file that
cannot be mapped is read into memory, and only a few such files are kept.
"""

from __future__ import annotations

import hashlib
import logging
import os
import posixpath
import resource
import threading
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from flinkish.errors import CorruptStateError, InternalError, MissingFileError, OperationError
from flinkish.runtime.state.files.references import FileReference, epoch_of, file_name, original_of
from flinkish.runtime.state.files.rows import Rows, decode, encode
from flinkish.storage.paths import FileKind, is_local, local_path, read_regular
from flinkish.storage.stores import storage_error, storage_errors, storage_of

#: How many files stay open in a process, and how many bytes of files that could not be mapped.
OPEN_FILES, READ_BYTES = 1024, 32 * 1024 * 1024

#: If the address space is limited, one part in so many of it is for mapped files.
MAPPED_PART = 4

_LOG = logging.getLogger("flinkish.StateDirectory")

_HINT = "restore the file from a copy, or the job from its last checkpoint or savepoint"


class OpenFiles:
    """A cache of the files that a process has open, which are those that were used last. Files that were deleted take
    space on the disk as long as they are open."""

    def __init__(self, max_files: int = OPEN_FILES, max_read_bytes: int = READ_BYTES) -> None:
        self._max_files = max_files
        self._max_read_bytes = max_read_bytes
        self._lock = threading.Lock()
        #: path -> (rows, size in bytes, whether the file was read into memory instead of mapped)
        self._files: OrderedDict[str, tuple[Rows, int, bool]] = OrderedDict()
        #: paths of files whose content is known to be what was written
        self.verified: set[str] = set()

    def get(self, path: str) -> Rows | None:
        """The rows of a file; None if it is not open."""
        with self._lock:
            found = self._files.get(path)
            if found is None:
                return None
            self._files.move_to_end(path)
            return found[0]

    def put(self, path: str, rows: Rows, size_bytes: int, read: bool) -> None:
        """Keep a file open, and close others if there are too many. ``read``: it was read into memory, not mapped."""
        with self._lock:
            self._files[path] = rows, size_bytes, read
            self._files.move_to_end(path)
            if len(self._files) > self._max_files:
                self._files.popitem(last=False)
            if read:
                self._keep(read=True, max_bytes=self._max_read_bytes)
            elif (limit := _address_space_bytes()) is not None:
                self._keep(read=False, max_bytes=limit // MAPPED_PART)

    def _keep(self, read: bool, max_bytes: int) -> None:
        """Close the files that were read, or mapped, the least recently used first, until they have at most
        ``max_bytes``."""
        sizes = [(path, size) for path, (_, size, of_read) in self._files.items() if of_read is read]
        excess = sum(size for _, size in sizes) - max_bytes
        for path, size in sizes:
            if excess <= 0:
                return
            del self._files[path]
            excess -= size

    def close(self, path: str) -> None:
        """Close a file."""
        with self._lock:
            self._files.pop(path, None)

    def close_others(self, folder: str, names: Collection[str]) -> None:
        """Close all files of a folder except for those with these names."""
        with self._lock:
            for path in {*self._files, *self.verified}:
                if os.path.dirname(path) == folder and os.path.basename(path) not in names:
                    self._files.pop(path, None)
                    self.verified.discard(path)

    def close_all(self) -> None:
        """Close all files."""
        with self._lock:
            self._files.clear()

    def __len__(self) -> int:
        return len(self._files)


def _address_space_bytes() -> int | None:
    """The limit of this process's address space, if it has one. Spark sets it when the worker starts."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


#: The open files of this process.
_OPEN_FILES = OpenFiles()


class StateDirectory:
    """The directory with the files of one subtask (the module docstring says how files are read).

    Args:
        path: the directory, on local or other storage.
        cache_path: a local folder for copies of the files; without it, files on other storage are read into memory.
        open_files: the cache of open files, by default the one of the process.
        read_only: whether `delete` deletes no file and `write` raises InternalError.
    """

    def __init__(
        self,
        path: str,
        cache_path: str | None = None,
        open_files: OpenFiles = _OPEN_FILES,
        *,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._read_only = read_only
        self._local = cache_path is None and is_local(path)
        self._cache_path = cache_path
        self._open_files = open_files
        #: the number of files, and of their bytes, that were fetched so far
        self.fetched_files = self.fetched_bytes = 0

    def path_of(self, name: str) -> str:
        """The path of the file of this name."""
        return posixpath.join(self.path, name)

    # ------------------------------------------------------------------------------------------------ writing

    def write(self, rows: Rows, epoch: int) -> FileReference:
        """Write sorted rows, at least one, to a file of their own, whose name begins with the epoch."""
        data = encode(rows)
        name = file_name(epoch, uuid.uuid4().hex[:16])
        path = self.path_of(name)
        with storage_errors("write", path):
            self._write(data, path)
        self._keep_written(data, name)
        return FileReference(
            name=name,
            rows=len(rows),
            size_bytes=data.size,
            sha256=hashlib.sha256(data).digest(),
            low=(int(rows.hash[0]), int(rows.entry_hash[0])),
            high=(int(rows.hash[-1]), int(rows.entry_hash[-1])),
            tombstones=rows.tombstones,
        )

    def _keep_written(self, data: Any, name: str) -> None:
        """Keep a copy of a new file, if there is a folder for copies, and count it as checked. If the copy cannot be
        written, the file is fetched when it is used."""
        try:
            if self._cache_path is not None:
                self._keep_copy(data, name)
        except OperationError as error:
            _LOG.warning("no copy of %s can be kept: %s", self.path_of(name), error.what)
        else:
            self._open_files.verified.add(self._readable_path(name))

    def _write(self, data: Any, path: str) -> None:
        if self._read_only:
            raise InternalError(f"a file of state was to be written to {path}", expected="that it is only read")
        storage = storage_of(path)
        try:
            storage.write(path, data)
        except BaseException:
            with suppress(OSError):
                storage.delete(path)
            raise

    # ------------------------------------------------------------------------------------------------ reading

    def open(self, file: FileReference) -> Rows:
        """The rows of a file, as views of its content.

        Raises:
            MissingFileError: the file is missing; the error names it.
            CorruptStateError: the file is not what was written; the error names it.
            IncompatibleJobError: another version of flinkish has written the file.
        """
        path = self._readable_path(file.name)
        rows = self._open_files.get(path)
        if rows is None:
            data, read = self._content(file, path)
            try:
                rows = decode(data, path)
            except (pa.ArrowInvalid, KeyError, ValueError, OSError) as error:
                raise _damaged(path, f"no file of state: {error}") from error
            self._open_files.put(path, rows, file.size_bytes, read)
        return rows

    def _content(self, file: FileReference, path: str) -> tuple[Any, bool]:
        """The checked content of a file, and whether it was read into memory instead of mapped."""
        if self._local:
            return self._checked(file, path)
        if self._cache_path is None:
            data = pa.py_buffer(self._download(file.name))
            self._check(file, data, path)
            return data, True
        if os.path.exists(path):
            try:
                return self._checked(file, path)
            except CorruptStateError as error:
                # only the copy is damaged
                _LOG.warning("%s; it is fetched again from %s", error.what, self.path)
                self.release([file.name])
        self.fetch(file)
        return self._checked(file, path)

    def _checked(self, file: FileReference, path: str) -> tuple[Any, bool]:
        data, read = self._mapped_or_read(path)
        self._check(file, data, path)
        return data, read

    def _mapped_or_read(self, path: str) -> tuple[Any, bool]:
        """The content of a local file, and whether it was read into memory because it cannot be mapped."""
        try:
            FileKind.DATA_FILE.check(os.stat(path))
            try:
                with pa.memory_map(path) as stream:
                    return stream.read_buffer(), False
            except (FileNotFoundError, NotADirectoryError):
                raise
            except (OSError, MemoryError):
                self._open_files.close_all()
                return pa.py_buffer(read_regular(path, FileKind.DATA_FILE)), True
        except (FileNotFoundError, NotADirectoryError):
            raise _missing(path) from None
        except OSError as error:
            raise storage_error(error, "read", path) from error
        except ValueError as error:
            raise _damaged(path, f"no file of state: {error}") from error

    def _check(self, file: FileReference, data: Any, path: str) -> None:
        if data.size != file.size_bytes:
            raise _damaged(path, f"not what was written: it has {data.size} bytes instead of {file.size_bytes}")
        if path in self._open_files.verified:
            return
        if hashlib.sha256(data).digest() != file.sha256:
            raise _damaged(path, "not what was written: its digest is another one")
        self._open_files.verified.add(path)

    def _readable_path(self, name: str) -> str:
        """The path from which a file is read: of the local file, or of its copy, if there is such a path."""
        if self._local or self._cache_path is None:
            return local_path(self.path_of(name)) or self.path_of(name)
        return os.path.join(self._cache_path, name)

    def fetched(self, file: FileReference) -> bool:
        """Whether the file can be read from the local disk: the directory is local, or there is a copy."""
        return self._local or self._cache_path is not None and os.path.exists(self._readable_path(file.name))

    def fetch(self, file: FileReference) -> int:
        """Copy a file to the folder for copies and check it; returns its size in bytes, or 0 if there is no such
        folder."""
        if self._local or self._cache_path is None:
            return 0
        data = self._download(file.name)
        self._check_download(file, data)
        self._keep_copy(data, file.name)
        self._open_files.verified.add(self._readable_path(file.name))
        self.fetched_files += 1
        self.fetched_bytes += len(data)
        _LOG.debug("fetched %s, %d bytes", self.path_of(file.name), len(data))
        return len(data)

    def _keep_copy(self, data: Any, name: str) -> None:
        path = self._readable_path(name)
        temporary = f"{path}.{uuid.uuid4().hex}.part"
        with storage_errors("write", path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                with open(temporary, "wb") as stream:
                    stream.write(data)
                os.replace(temporary, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)

    def _download(self, name: str) -> bytes:
        path = self.path_of(name)
        try:
            return storage_of(path).read(path, FileKind.DATA_FILE)
        except (FileNotFoundError, NotADirectoryError):
            raise _missing(path) from None
        except OSError as error:
            raise storage_error(error, "read", path) from error
        except ValueError as error:
            raise _damaged(path, f"no file of state: {error}") from error

    def _check_download(self, file: FileReference, data: bytes) -> None:
        if len(data) != file.size_bytes or hashlib.sha256(data).digest() != file.sha256:
            raise _damaged(self.path_of(file.name), "not what was written")

    # ------------------------------------------------------------------------------------------------ copies

    @property
    def keeps_copies(self) -> bool:
        """Whether files are fetched to the local disk before they are read."""
        return self._cache_path is not None

    def copies(self) -> set[str]:
        """The names of the files in the folder for copies."""
        if self._cache_path is None:
            return set()
        try:
            return {name for name in os.listdir(self._cache_path) if epoch_of(name) is not None}
        except FileNotFoundError:
            return set()

    def release_stale(self, names: Collection[str]) -> None:
        """Delete the copies of files that are gone; those with these names are there. An unfinished copy of a file that
        is there stays, since another process may be writing it."""
        self.release(name for name in self.copies() if original_of(name) not in names)

    def fetch_ahead(self, name: str) -> int:
        """Copy a file of which only the name is known to the folder for copies; returns its size in bytes. The copy is
        checked when it is used."""
        data = self._download(name)
        self._keep_copy(data, name)
        self.fetched_files += 1
        self.fetched_bytes += len(data)
        return len(data)

    def wipe(self) -> None:
        """Close all files of the subtask in this process, and delete their copies on the local disk. The files
        themselves stay."""
        self.release({*self.names(), *self.copies()})

    # ------------------------------------------------------------------------------------------------ clean-up

    def names(self) -> list[str]:
        """The names of all files in the directory, sorted; none if it does not exist."""
        with storage_errors("list", self.path):
            return sorted(entry.name for entry in storage_of(self.path).list(self.path) if entry.is_file)

    def release(self, names: Iterable[str]) -> None:
        """Close files that this process does not need any more, and delete their copies on the local disk."""
        for name in names:
            path = self._readable_path(name)
            self._open_files.close(path)
            self._open_files.verified.discard(path)
            if not self._local and self._cache_path is not None:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def close_others(self, names: Collection[str]) -> None:
        """Close all files of the subtask except for these. Another worker process may have deleted files while it ran
        the subtask, because Spark runs a subtask in any worker process."""
        self._open_files.close_others(os.path.dirname(self._readable_path("any")), names)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and their copies; files that do not exist are ignored."""
        names = list(names)
        self.release(names)
        for name in () if self._read_only else names:
            with storage_errors("delete", self.path_of(name)):
                storage_of(self.path).delete(self.path_of(name))


def _missing(path: str) -> MissingFileError:
    error = MissingFileError(f"state cannot be read: the file {path} is missing", where=path, hint=_HINT)
    error.file = path
    return error


def _damaged(path: str, how: str) -> CorruptStateError:
    error = CorruptStateError(f"state cannot be read: the file {path} is {how}", where=path, hint=_HINT)
    error.file = path
    return error


def state_directory(state: str, vertex: int, subtask: int) -> str:
    """The directory of the files of one subtask's state."""
    return posixpath.join(state, str(vertex), str(subtask))
