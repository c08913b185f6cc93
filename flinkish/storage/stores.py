"""Files on every kind of storage: each kind reads, writes and lists in its own way, and promises the same; and the
errors of storage as OperationErrors, which name the path, the cause and the remedy.

    kind                what replaces a file          what creates one exclusively        directories
    local               temporary file and rename     hard link                           made when needed
    HDFS                temporary file and rename     rename that refuses to replace      made when needed
    S3                  one PUT                       one conditional PUT, by the driver  none
    Google, Azure       one PUT                       by the driver                       none

Rule: on the local file system a durable file is synchronised before anybody can see its name. The others promise that
a file which was closed is durable.

A file system is opened once in a process for each bucket or host.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from flinkish.errors import EnvironmentVersionError, FlinkishError, JobDirectoryError, OperationError
from flinkish.storage.paths import FileKind, is_local, local_path, location_of, opened_regular, read_regular

#: errno -> (what is wrong, what to do)
_KNOWN = {
    errno.ENOSPC: ("no space left", "make space there, then start the same job again: it goes on where it was"),
    errno.EDQUOT: ("the disk quota is used up", "raise the quota or make space, then start the same job again"),
    errno.EROFS: ("the file system is read-only", "mount it for writing, or name another directory"),
    errno.EACCES: ("permission denied", "let this user read and write there, or name another directory"),
    errno.EPERM: ("operation not permitted", "let this user read and write there, or name another directory"),
    errno.ENOTDIR: ("a part of the path is not a directory", "name a path whose parents are directories"),
    errno.EEXIST: ("there is a file of that name", "name a path that is a directory, or that is not there yet"),
    errno.EISDIR: ("it is a directory", "remove the directory that stands in the place of the file"),
}
#: What does not pass by itself: somebody must change the path, its owner or its permissions.
_LASTING = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EEXIST)
_OTHERWISE = "check the storage, then start the same job again"


def storage_error(error: OSError, action: str, path: str) -> OperationError:
    """The typed error for an OSError that came up when ``path`` was to be read, written or the like (``action``).

    >>> storage_error(OSError(28, "full"), "write", "/job/owner.json").what
    'cannot write /job/owner.json: no space left'

    Waiting may help, so all of them are worth a retry.
    """
    what, hint = _KNOWN.get(error.errno or 0, (str(error), _OTHERWISE))
    return OperationError(f"cannot {action} {path}: {what}", hint=hint)


def job_directory_error(error: OSError, action: str, path: str) -> OperationError:
    """`storage_error` for a job directory: final, if waiting does not help."""
    failed = storage_error(error, action, path)
    return JobDirectoryError(failed.what, hint=failed.hint) if error.errno in _LASTING else failed


@contextmanager
def storage_errors(action: str, path: str) -> Iterator[None]:
    """Raise errors of the file system within the block as OperationError. ``action`` is the verb, such as "write"."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FlinkishError):
            raise
        raise storage_error(error, action, path) from error


#: The errors by which a file system says that it has no hard links.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

#: The environment variable with the settings of S3: a JSON object of bucket -> settings, "" for all buckets. The
#: settings are named as Hadoop names them, without ``fs.s3a.``.
S3_SETTINGS = "FLINKISH_S3"

#: How often a request to S3 is made if its connection breaks or it is throttled. The time between two tries doubles:
#: six tries take 15 seconds on average.
_TRIES = 6

#: How long to wait for other requests for an object before each further try to create it.
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)

#: The query string of a URI, in which pyarrow takes settings.
_QUERY = re.compile(r"\?\w+=[^/]*$")


class OutputFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> Any:
        """Append bytes."""

    def close(self) -> None:
        """Finish the file: it is whole and durable when this returns."""


class Entry(NamedTuple):
    """A file or directory in a listing. ``name`` is relative to the directory that was listed."""

    name: str
    path: str
    is_file: bool
    is_directory: bool
    size_bytes: int
    modified_ns: int = 0


class Storage:
    """One file system of pyarrow. All methods take whole paths, as users write them.

    This class is that of the stores in which an object appears whole and directories do not exist: what is asked of
    directories has no effect, or is done with all objects below them.

    Args:
        root: the path of its root, which travels to other processes in its stead.
        system: the file system of pyarrow.
        prefix: what pyarrow puts before the part of a path that follows the bucket or host.
    """

    #: whether a directory is renamed in one step
    renames_directories = False

    def __init__(self, root: str, system: Any, prefix: str = "") -> None:
        self._root = root
        self.system = system
        self._prefix = prefix

    def __reduce__(self) -> tuple[object, ...]:
        return storage_of, (self._root,)

    def inside(self, path: str) -> str:
        """The path within the file system."""
        return (self._prefix + _QUERY.sub("", location_of(path).rest)).rstrip("/")

    # ------------------------------------------------------------------------------------------------ reading

    def read(self, path: str, kind: FileKind = FileKind.JOB_FILE) -> bytes:
        """The content of a file of this kind.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is larger than one of its kind may be, or no regular file; nothing was read.
        """
        with self.system.open_input_file(self.inside(path)) as stream:
            kind.check_size(stream.size())
            return bytes(stream.read())

    def read_slice(self, path: str, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes of a file from ``offset`` on; fewer if the file is shorter. Raises as `read` does."""
        with self.system.open_input_file(self.inside(path)) as stream:
            available = max(0, min(length, stream.size() - offset))
            return bytes(stream.read_at(available, offset)) if available else b""

    def exists(self, path: str) -> bool:
        """Whether there is a file at this path."""
        try:
            with self.system.open_input_file(self.inside(path)):
                return True
        except FileNotFoundError:
            return False

    def modified_s(self, path: str) -> float | None:
        """When a file was last written, in seconds since 1970 by the clock of the storage; None: there is no such file,
        or that is not known."""
        modified_ns = self.system.get_file_info(self.inside(path)).mtime_ns
        return None if modified_ns is None else modified_ns / 1e9

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory at this path."""
        return bool(self.system.get_file_info(self.inside(path)).type.name == "Directory")

    def list(self, directory: str, recursive: bool = False) -> list[Entry]:
        """What is in a directory, in no order; [] if it does not exist."""
        from pyarrow import fs

        root = self.inside(directory)
        selector = fs.FileSelector(root, allow_not_found=True, recursive=recursive)
        try:
            infos = self.system.get_file_info(selector)
        except FileNotFoundError:
            # another process has made or deleted the directory between two looks of pyarrow
            infos = self.system.get_file_info(selector)
        entries = []
        for info in infos:
            name = info.path.strip("/")[len(root.strip("/")) :].strip("/")
            is_directory = info.type == fs.FileType.Directory
            looks = info.size or 0, info.mtime_ns or 0
            entries.append(Entry(name, posixpath.join(directory, name), info.is_file, is_directory, *looks))
        return entries

    # ------------------------------------------------------------------------------------------------ writing

    def open(self, path: str) -> OutputFile:
        """Open a file for writing, under a name that nothing else uses, and make the directories above it."""
        stream: OutputFile = self.system.open_output_stream(self.inside(path))
        return stream

    def write(self, path: str, data: Any) -> None:
        """Write a file under a name that nothing else uses, or which readers check: on file systems they may see a part
        of the new content. The directories above it are made."""
        with self.system.open_output_stream(self.inside(path)) as stream:
            stream.write(data)

    def replace(self, path: str, data: bytes, durable: bool = False, private: bool = False) -> None:
        """Replace a file, or create it: whoever reads it finds the old content or the new one.

        Args:
            durable: it survives a power cut once this returns.
            private: on a local file system only its owner may read and write it (mode 0600).
        """
        self.write(path, data)

    def create(self, path: str, data: bytes, only_by_link: bool = False, private: bool = False) -> None:
        """Create a file that must not exist yet, durably. If several processes create it at once, one succeeds; where a
        local file system has no hard links, more of them may.

        Args:
            data: differs from what any other process would write, so that a repeated request recognises its own file.
            only_by_link: for a local file, raise OSError with one of `NO_LINKS` where there are no hard links.

        Raises:
            FileExistsError: the file exists. Nothing was changed.
            EnvironmentVersionError: the storage is one in which only the driver of a job can do this.
        """
        if _exclusive_creator is None:
            raise EnvironmentVersionError(
                f"{path} cannot be created exclusively in this process",
                expected="the driver of a job, with Spark's own access to the store",
                hint="use a directory on a file system, or start the job with a session of its own",
            )
        for pause_s in (0.0, *_PAUSES_S):
            time.sleep(pause_s)
            try:
                return _exclusive_creator(path, data)
            except FileExistsError:
                # S3 refuses also while another request for the object is under way, which may create nothing
                with suppress(FileNotFoundError):
                    # a request that was repeated since its answer was lost finds what it has written itself
                    if self.read(path) == data:
                        return None
                    raise
        raise OSError(f"{path} cannot be created: other requests for it do not end")

    def synchronise(self, path: str) -> None:
        """Make a file that was closed durable, or the names of the files in a directory; does nothing where that is not
        possible, or not needed."""

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, where there are directories."""

    # ------------------------------------------------------------------------------------------------ deleting, moving

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self.system.delete_file(self.inside(path))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete files, as far as they exist."""
        for path in paths:
            self.delete(path)

    def delete_directory(self, path: str) -> None:
        """Delete a directory and all that is in it, if it exists."""
        with suppress(FileNotFoundError):
            self.system.delete_dir(self.inside(path))

    def move(self, path: str, target: str) -> None:
        """Rename a file or directory. A file replaces the one that is at the target; where directories are renamed in
        one step, nothing may be at the target of a directory."""
        from pyarrow import fs

        source = self.inside(path)
        if self.system.get_file_info(source).type == fs.FileType.File:
            self.system.move(source, self.inside(target))
            return
        for entry in self.list(path, recursive=True):
            if entry.is_file:
                self.copy(entry.path, posixpath.join(target, entry.name))
        self.delete_directory(path)

    def copy(self, path: str, target: str) -> None:
        """Copy a file within this storage."""
        self.system.copy_file(self.inside(path), self.inside(target))


class _FileSystem(Storage, ABC):
    """A file system with directories and renames."""

    renames_directories = True

    def inside(self, path: str) -> str:
        return location_of(path).rest.rstrip("/") or "/"

    def exists(self, path: str) -> bool:
        return bool(self.system.get_file_info(self.inside(path)).is_file)

    def open(self, path: str) -> OutputFile:
        self.make_directory(posixpath.dirname(path))
        return super().open(path)

    def write(self, path: str, data: Any) -> None:
        try:
            super().write(path, data)
        except FileNotFoundError:
            self.make_directory(posixpath.dirname(path))
            super().write(path, data)

    def replace(self, path: str, data: bytes, durable: bool = False, private: bool = False) -> None:
        self._under_other_name(path, data, durable, private, self.move)

    def create(self, path: str, data: bytes, only_by_link: bool = False, private: bool = False) -> None:
        self._under_other_name(path, data, True, private, partial(self._name_exclusively, only_by_link=only_by_link))

    def _under_other_name(
        self, path: str, data: bytes, durable: bool, private: bool, rename: Callable[[str, str], None]
    ) -> None:
        parent, name = posixpath.split(path)
        temporary = posixpath.join(parent, f".{name}.{uuid.uuid4().hex}")
        try:
            if durable:
                file = self.open(temporary)
                try:
                    file.write(data)
                finally:
                    file.close()
            else:
                self.write(temporary, data)
            if private:
                self._make_private(temporary)
            rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self.delete(temporary)
            raise
        if durable:
            self.synchronise(parent)

    def _make_private(self, path: str) -> None:
        """Let nobody but its owner read a file; what others see of it elsewhere is up to the storage."""

    @abstractmethod
    def _name_exclusively(self, temporary: str, path: str, only_by_link: bool) -> None:
        """Give a whole file its name; raises FileExistsError if another one has it."""

    def make_directory(self, path: str) -> None:
        self.system.create_dir(self.inside(path), recursive=True)

    def move(self, path: str, target: str) -> None:
        self.system.move(self.inside(path), self.inside(target))

    def copy(self, path: str, target: str) -> None:
        self.make_directory(posixpath.dirname(target))
        super().copy(path, target)


class LocalStorage(_FileSystem):
    """The local file system, whose paths may be given with ``file:``."""

    def inside(self, path: str) -> str:
        return os.path.abspath(local_path(path) or path)

    def read(self, path: str, kind: FileKind = FileKind.JOB_FILE) -> bytes:
        return read_regular(self.inside(path), kind)

    def read_slice(self, path: str, offset: int, length: int) -> bytes:
        with opened_regular(self.inside(path), FileKind.DATA_FILE) as (file, _):
            file.seek(offset)
            return file.read(length)

    def exists(self, path: str) -> bool:
        return os.path.isfile(self.inside(path))

    def open(self, path: str) -> OutputFile:
        local = self.inside(path)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return _LocalFile(local)

    def _name_exclusively(self, temporary: str, path: str, only_by_link: bool) -> None:
        own, local = self.inside(temporary), self.inside(path)
        try:
            os.link(own, local)
        except FileExistsError:
            raise
        except OSError as error:
            if only_by_link or error.errno not in NO_LINKS:
                raise
            # a file system without hard links
            if os.path.isfile(local):
                raise FileExistsError(errno.EEXIST, "there is a file of that name", path) from None
            os.rename(own, local)
        else:
            os.unlink(own)

    def synchronise(self, path: str) -> None:
        with suppress(OSError):
            descriptor = os.open(self.inside(path), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self.inside(path))

    def _make_private(self, path: str) -> None:
        os.chmod(self.inside(path), 0o600)

    def move(self, path: str, target: str) -> None:
        os.replace(self.inside(path), self.inside(target))


class _LocalFile:
    """A local file that is synchronised when it is closed."""

    def __init__(self, path: str) -> None:
        self._stream = open(path, "wb")

    def write(self, data: bytes) -> int:
        return self._stream.write(data)

    def close(self) -> None:
        if not self._stream.closed:
            with self._stream:
                self._stream.flush()
                os.fsync(self._stream.fileno())


class HdfsStorage(_FileSystem):
    """HDFS, by the package hdfs-native, whose file system is ``client``."""

    def __init__(self, root: str, system: Any, client: Any) -> None:
        super().__init__(root, system)
        self._client = client

    def _name_exclusively(self, temporary: str, path: str, only_by_link: bool) -> None:
        self._client.client.rename(self.inside(temporary), self.inside(path), False)


# ---------------------------------------------------------------------------------------------------- opening

_exclusive_creator: Callable[[str, bytes], None] | None = None


def set_exclusive_creator(creator: Callable[[str, bytes], None] | None) -> None:
    """Say how this process creates an object of an object store that must not exist yet, from a path and its content:
    a driver can by Spark's own file systems. The creator raises FileExistsError if the object exists."""
    global _exclusive_creator
    _exclusive_creator = creator


def storage_of(path: str) -> Storage:
    """The storage that a path belongs to.

    Raises:
        ConfigurationError: flinkish has none of that scheme.
        EnvironmentVersionError: a package is missing that it needs.
        OSError: it cannot be reached.
    """
    if is_local(path):
        return _local()
    scheme, authority, rest = location_of(path)
    query = _QUERY.search(rest)
    settings = os.environ.get(S3_SETTINGS, "") if scheme == "s3" else ""
    return _opened(scheme, authority, query.group() if query else "", settings, os.getpid())


def file_system_of(path: str) -> tuple[Any, str]:
    """pyarrow's file system for a path, and the path within it. Raises as `storage_of` does."""
    storage = storage_of(path)
    return storage.system, storage.inside(path)


@lru_cache(maxsize=1)
def _local() -> Storage:
    from pyarrow import fs

    return LocalStorage("/", fs.LocalFileSystem())


@lru_cache(maxsize=64)
def _opened(scheme: str, authority: str, query: str, s3_settings: str, process: int) -> Storage:
    """``process``: a file system of another process, inherited by a fork, is none of this one."""
    from pyarrow import fs

    if scheme == "hdfs":
        return _hdfs(authority)
    name = authority.rpartition("@")[2] if scheme == "s3" else authority.partition("@")[0]
    root = f"{scheme}://{authority}/{query}"
    if scheme == "s3" and name == authority and not query:
        return Storage(root, fs.S3FileSystem(**s3_options(name, json.loads(s3_settings or "{}"))), name)
    system, _ = fs.FileSystem.from_uri(root)
    return Storage(root, system, name)


def s3_options(bucket: str, settings: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The arguments of pyarrow's S3FileSystem for a bucket. Without keys it looks for credentials itself, as Amazon's
    SDK does.

    Args:
        bucket: its name.
        settings: the settings of all buckets (see `S3_SETTINGS`).
    """
    from pyarrow import fs

    own = {**settings.get("", {}), **settings.get(bucket, {})}
    # a file of less than 5 MB is sent by one request, when it is closed
    options: dict[str, Any] = {
        "allow_delayed_open": True,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
    }
    names = ("access.key", "secret.key", "session.token")
    if own.get(names[0]) and own.get(names[1]):
        options |= {name.replace(".", "_"): own[name] for name in names if own.get(name)}
    if endpoint := own.get("endpoint", ""):
        options["endpoint_override"] = endpoint
        options["scheme"] = "http" if own.get("connection.ssl.enabled", "true") == "false" else "https"
        options["force_virtual_addressing"] = own.get("path.style.access", "false") != "true"
    region = own.get("endpoint.region", "")
    if not region and not endpoint and not os.environ.keys() & {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}:
        with suppress(OSError):
            region = fs.resolve_s3_region(bucket)
    return {**options, "region": region} if region else options


def _hdfs(host: str) -> Storage:
    from pyarrow import fs

    try:
        from hdfs_native.fsspec import HdfsFileSystem
    except ImportError:
        raise EnvironmentVersionError(
            f"hdfs://{host} cannot be read or written here: the package hdfs-native is missing",
            expected="hdfs-native and fsspec on the driver and on all executors",
            hint="pip install hdfs-native fsspec, or use s3://",
        ) from None

    class Replacing(HdfsFileSystem):
        """Moves replace what is at the target, as those of all other file systems do."""

        def mv(self, path1: str, path2: str, **_: Any) -> None:
            self.client.rename(self._strip_protocol(path1), self._strip_protocol(path2), True)

    name, _, port = host.partition(":")
    client = Replacing(name, int(port) if port else None, skip_instance_cache=True)
    return HdfsStorage(f"hdfs://{host}/", fs.PyFileSystem(fs.FSSpecHandler(client)), client)
