"""The directory in which the files of one subtask lie.

Rule: a file is written under a name that is used once, and never changes. So it needs to be checked against its digest
only once in a process, and a copy of it is as good as the file itself. Nobody waits until a file has reached the disk,
as with Spark's own files of state: one that a machine loses is found to be damaged.

Local files are mapped. Where there is a folder on the local disk for copies (``cache_path``), files are fetched whole
into it, under their own names, and mapped there; what is written is copied there as well. A copy that is damaged is
fetched again. Where ``spark.executor.pyspark.memory`` limits the address space, mapped files
get a part of it. A file that cannot be mapped is read into memory, and only a few such files are kept.
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

from flinkish.common.durable_files import delete
from flinkish.common.storage import local_path, place
from flinkish.common.storage_errors import storage_error, storage_errors
from flinkish.errors import CorruptStateError, InternalError, MissingFileError, OperationError
from flinkish.runtime.state.files.file_format import decode, encode
from flinkish.runtime.state.files.references import FileReference
from flinkish.runtime.state.files.retention import epoch_of, file_name
from flinkish.runtime.state.files.rows import Rows

#: So many files stay open in a process, and so many bytes of files that could not be mapped.
OPEN_FILES, READ_BYTES = 1024, 32 * 1024 * 1024

#: Where the address space is limited, one part in so many is for mapped files.
MAPPED_PART = 4

_LOG = logging.getLogger("flinkish.StateDirectory")

_HINT = "restore the file from a copy, or the job from its last checkpoint or savepoint"


class OpenFiles:
    """The files that a process has open: those that were used last. Files that were deleted take up their place on the
    disk for as long as they are in here."""

    def __init__(self, max_files: int = OPEN_FILES, max_read_bytes: int = READ_BYTES) -> None:
        self._max_files = max_files
        self._max_read_bytes = max_read_bytes
        self._lock = threading.Lock()
        #: path -> rows, size, whether they were read into memory
        self._files: OrderedDict[str, tuple[Rows, int, bool]] = OrderedDict()
        #: paths whose content is known to be what was written
        self.verified: set[str] = set()

    def get(self, path: str) -> Rows | None:
        """The rows of a file if it is open."""
        with self._lock:
            found = self._files.get(path)
            if found is None:
                return None
            self._files.move_to_end(path)
            return found[0]

    def put(self, path: str, rows: Rows, size_bytes: int, read: bool) -> None:
        """Keep a file open."""
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
        """Let go of files that were read, or mapped, until those that are left have so many bytes at most."""
        sizes = [(path, size) for path, (_, size, of_read) in self._files.items() if of_read is read]
        excess = sum(size for _, size in sizes) - max_bytes
        for path, size in sizes:
            if excess <= 0:
                return
            del self._files[path]
            excess -= size

    def close(self, path: str) -> None:
        """Let go of a file."""
        with self._lock:
            self._files.pop(path, None)

    def close_others(self, folder: str, names: Collection[str]) -> None:
        """Let go of all files of a folder but those of these names."""
        with self._lock:
            for path in {*self._files, *self.verified}:
                if os.path.dirname(path) == folder and os.path.basename(path) not in names:
                    self._files.pop(path, None)
                    self.verified.discard(path)

    def close_all(self) -> None:
        """Let go of all files."""
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
    """See the module. ``cache_path``: a local folder for copies of the files; without it files that lie on other
    storage are read into memory. ``read_only``: files stay although nobody needs them any more, and none is written."""

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
        self._local = cache_path is None and local_path(path) is not None
        self._cache_path = cache_path
        self._open_files = open_files
        #: what was fetched so far
        self.fetched_files = self.fetched_bytes = 0

    def path_of(self, name: str) -> str:
        """Where a file of that name lies."""
        return posixpath.join(self.path, name)

    # ------------------------------------------------------------------------------------------------ writing

    def write(self, rows: Rows, epoch: int) -> FileReference:
        """Write rows, which are sorted, to a file of their own."""
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
        """The file need not be read again to be checked, nor fetched. Without a copy it is fetched when it is used."""
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
        filesystem, root = place(path)
        try:
            try:
                stream = filesystem.open_output_stream(root)
            except FileNotFoundError:
                filesystem.create_dir(posixpath.dirname(root), recursive=True)
                stream = filesystem.open_output_stream(root)
            with stream:
                stream.write(data)
        except BaseException:
            with suppress(OSError):
                delete(path)
            raise

    # ------------------------------------------------------------------------------------------------ reading

    def open(self, file: FileReference) -> Rows:
        """The rows of a file, as views of it.

        Raises:
            MissingFileError: it is not there.
            CorruptStateError: it is not what was written. Both name it.
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
        """The bytes of a file once they are known to be the right ones, and whether they were read into memory."""
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
                # only the copy is
                _LOG.warning("%s; it is fetched again from %s", error.what, self.path)
                self.release([file.name])
        self.fetch(file)
        return self._checked(file, path)

    def _checked(self, file: FileReference, path: str) -> tuple[Any, bool]:
        data, read = self._mapped_or_read(path)
        self._check(file, data, path)
        return data, read

    def _mapped_or_read(self, path: str) -> tuple[Any, bool]:
        """The content of a local file, and whether it was read into memory."""
        try:
            try:
                with pa.memory_map(path) as stream:
                    return stream.read_buffer(), False
            except (FileNotFoundError, NotADirectoryError):
                raise
            except (OSError, MemoryError):
                self._open_files.close_all()
                with open(path, "rb") as file:
                    return pa.py_buffer(file.read()), True
        except (FileNotFoundError, NotADirectoryError):
            raise _missing(path) from None
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def _check(self, file: FileReference, data: Any, path: str) -> None:
        if data.size != file.size_bytes:
            raise _damaged(path, f"not what was written: it has {data.size} bytes instead of {file.size_bytes}")
        if path in self._open_files.verified:
            return
        if hashlib.sha256(data).digest() != file.sha256:
            raise _damaged(path, "not what was written: its digest is another one")
        self._open_files.verified.add(path)

    def _readable_path(self, name: str) -> str:
        """Where a file is read: on the local disk if that can be."""
        if self._local or self._cache_path is None:
            return local_path(self.path_of(name)) or self.path_of(name)
        return os.path.join(self._cache_path, name)

    def fetched(self, file: FileReference) -> bool:
        """Whether the file need not be fetched, or has been."""
        return self._local or self._cache_path is not None and os.path.exists(self._readable_path(file.name))

    def fetch(self, file: FileReference) -> int:
        """Copy a file to the folder for copies, and say how many bytes that were."""
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
        filesystem, root = place(path)
        try:
            with filesystem.open_input_file(root) as stream:
                return bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            raise _missing(path) from None
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def _check_download(self, file: FileReference, data: bytes) -> None:
        if len(data) != file.size_bytes or hashlib.sha256(data).digest() != file.sha256:
            raise _damaged(self.path_of(file.name), "not what was written")

    # ------------------------------------------------------------------------------------------------ copies

    @property
    def keeps_copies(self) -> bool:
        """Whether files are fetched to the local disk before they are read."""
        return self._cache_path is not None

    def copies(self) -> set[str]:
        """The names of the files that were fetched and are still there."""
        if self._cache_path is None:
            return set()
        try:
            return {name for name in os.listdir(self._cache_path) if epoch_of(name) is not None}
        except FileNotFoundError:
            return set()

    def fetch_ahead(self, name: str) -> int:
        """Copy a file of which nothing but its name is known: it is checked when it is used. Says how many bytes that
        were."""
        data = self._download(name)
        self._keep_copy(data, name)
        self.fetched_files += 1
        self.fetched_bytes += len(data)
        return len(data)

    def wipe(self) -> None:
        """Let go of all that this process and the local disk have of the subtask's files. The files stay."""
        self.release({*self.names(), *self.copies()})

    # ------------------------------------------------------------------------------------------------ clean-up

    def names(self) -> list[str]:
        """The names of all files in the directory; none when it is not there."""
        from pyarrow import fs

        with storage_errors("list", self.path):
            filesystem, root = place(self.path)
            infos = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
        return sorted(info.base_name for info in infos if info.is_file)

    def release(self, names: Iterable[str]) -> None:
        """Let go of files that this process does not need any more, and of their copies on the local disk."""
        for name in names:
            path = self._readable_path(name)
            self._open_files.close(path)
            self._open_files.verified.discard(path)
            if not self._local and self._cache_path is not None:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def close_others(self, names: Collection[str]) -> None:
        """Let go of what this process has open but for these files. Another one may have deleted it, while it had the
        subtask: Spark gives a subtask to any worker."""
        self._open_files.close_others(os.path.dirname(self._readable_path("any")), names)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are not there do not matter."""
        names = list(names)
        self.release(names)
        for name in () if self._read_only else names:
            with storage_errors("delete", self.path_of(name)):
                delete(self.path_of(name))


def _missing(path: str) -> MissingFileError:
    error = MissingFileError(f"state cannot be read: the file {path} is missing", where=path, hint=_HINT)
    error.file = path
    return error


def _damaged(path: str, how: str) -> CorruptStateError:
    error = CorruptStateError(f"state cannot be read: the file {path} is {how}", where=path, hint=_HINT)
    error.file = path
    return error
