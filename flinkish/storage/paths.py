"""Which file system a path belongs to and how Spark names it, what a name may stand for that was read from a stored
file, how large a stored file may be, and who may write to a directory.

Rule upheld here: this is the only module that looks at the scheme of a path, for the driver and for the workers. A path
without a scheme is local, whatever the default file system of Spark is.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, NamedTuple

from flinkish.errors import ConfigurationError, FinalOperationError

#: Set on the machines of Databricks, where Spark does not read what is mounted there by the path of the mount.
DATABRICKS = "DATABRICKS_RUNTIME_VERSION"

#: Schemes that stand for Amazon S3: that of pyarrow, and those of Hadoop.
S3_SCHEMES = ("s3", "s3a", "s3n")

#: The schemes of storage that is not local.
REMOTE_SCHEMES = (*S3_SCHEMES, "gs", "abfs", "abfss", "hdfs")

#: What a path looks like that flinkish can use.
ACCEPTED = (
    "a local path, file:///..., s3://bucket/..., gs://bucket/..., abfss://container@account/... or hdfs://host/..."
)

#: A scheme has two letters at least: `C:` is none.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)

_HINTS = {
    "dbfs": "on Databricks write /Volumes/... or /dbfs/..., which are local paths on all of its machines",
    "viewfs": "name the file system behind it, hdfs://host/...; as the default file system of Spark it does no harm",
}


def scheme_of(path: str) -> str:
    """The scheme of a path in small letters; "" if it has none, and is local.

    Raises:
        ConfigurationError: flinkish has no storage of that scheme, or the path names no host or bucket after it.

    >>> scheme_of("/data/in"), scheme_of("C:/data"), scheme_of("s3a://bucket/in")
    ('', '', 's3a')
    """
    found = _SCHEME.match(path)
    if found is None:
        return ""
    scheme, rest = found.group(1).lower(), found.group(2)
    if scheme == "file":
        if re.match(r"(//(localhost)?/|/(?!/))", rest):
            return scheme
        what = f"the path '{path}' is not absolute"
    elif scheme not in REMOTE_SCHEMES:
        what = f"the scheme '{scheme}:' of the path '{path}' is unknown"
    elif not re.match(r"//[^/]", rest):
        what = f"the path '{path}' names no {'host' if scheme == 'hdfs' else 'bucket'}"
    else:
        return scheme
    raise ConfigurationError(
        what, expected=ACCEPTED, hint=_HINTS.get(scheme, "a local path that looks like one begins with ./")
    )


class Location(NamedTuple):
    """A path that is not local, taken apart. ``scheme`` is pyarrow's; ``authority`` is the host, or the bucket, or
    ``container@account``, with the credentials that a URI may carry; ``rest`` begins with a slash."""

    scheme: str
    authority: str
    rest: str


def location_of(path: str) -> Location:
    """The parts of a path that is not local. Raises as `scheme_of` does.

    >>> location_of("s3a://bucket/in/x")
    Location(scheme='s3', authority='bucket', rest='/in/x')
    """
    scheme = scheme_of(path)
    authority, _, rest = path.partition("://")[2].partition("/")
    return Location("s3" if scheme in S3_SCHEMES else scheme, authority, f"/{rest}")


def is_local(path: str) -> bool:
    """Whether a path is on the local file system. Raises as `scheme_of` does."""
    return scheme_of(path) in ("", "file")


def looks_of(path: str) -> tuple[int, int] | None:
    """How a local file looks from outside: another one in its place looks different, though one that looks different
    may be the same. None: it is not there, or not local."""
    local = local_path(path)
    try:
        found = None if local is None else os.stat(local)
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


def local_path(path: str) -> str | None:
    """The path without its scheme if it is on the local file system, else None. Raises as `scheme_of` does.

    >>> local_path("file:///data/in"), local_path("file:/data/in"), local_path("data"), local_path("s3://bucket/in")
    ('/data/in', '/data/in', 'data', None)
    """
    scheme = scheme_of(path)
    if scheme == "file":
        return "/" + re.sub("^file:(//localhost/)?", "", path, flags=re.IGNORECASE).lstrip("/")
    return None if scheme else path


def absolute(path: str) -> str:
    """The path in a form that means the same in every process: absolute and without a scheme on the local file system;
    any other path as it is, but without a slash at its end, so that what is above a directory is the same however its
    path is written. Raises as `scheme_of` does.

    >>> absolute("file:///data/in/"), absolute("s3a://bucket/in/")
    ('/data/in', 's3a://bucket/in')
    """
    local = local_path(path)
    return path.rstrip("/") if local is None else os.path.abspath(local)


def for_spark(path: str) -> str:
    """The path as Spark takes it, which would look for a path without a scheme in its default file system. It is not
    percent-encoded, since Hadoop's paths are not.

    Where Spark is that of Databricks, what is mounted at ``/Volumes`` and ``/dbfs`` is named as it is known there.
    Raises as `scheme_of` does.

    >>> for_spark("/data/a b%20c"), for_spark("s3://bucket/in"), for_spark("hdfs://node:8020/in")
    ('file:///data/a b%20c', 's3a://bucket/in', 'hdfs://node:8020/in')
    """
    local = local_path(path)
    if local is None:
        return f"s3a{path[path.index(':') :]}" if scheme_of(path) in S3_SCHEMES else path
    local = os.path.abspath(local)
    if DATABRICKS in os.environ:
        if local.startswith("/Volumes/"):
            return f"dbfs:{local}"
        if local.startswith("/dbfs/"):
            return f"dbfs:{local.removeprefix('/dbfs')}"
    return f"file://{local}"


def joined(directory: str, relative: str) -> str:
    """The path of what is at ``relative`` to a directory, without ``..`` in it; a scheme stays as it is.

    >>> joined("s3://bucket/job/checkpoints/chk-3", "../state")
    's3://bucket/job/checkpoints/state'
    """
    scheme, separator, path = directory.rpartition("://")
    return scheme + separator + posixpath.normpath(posixpath.join(path, relative))


@dataclass(frozen=True)
class NameForm:
    """The form of the names that flinkish gives to one kind of file or directory. Every name that was read from a
    stored file goes through it before it becomes a path: whoever wrote the file chooses among the files of this kind,
    and no other ones.

    Args:
        pattern: a regular expression that matches the whole of such a name, and no name with ``..``.

    >>> parts = NameForm(r"part-[0-9a-f]{4}")
    >>> parts.checked("part-c0de")
    'part-c0de'
    >>> parts.checked("../part-c0de")
    Traceback (most recent call last):
    ValueError: it names the file '../part-c0de', expected a name of the form part-[0-9a-f]{4}
    """

    pattern: str

    def checked(self, name: object) -> str:
        """The name.

        Raises:
            ValueError: it has another form, or is no text.
        """
        if isinstance(name, str) and re.fullmatch(self.pattern, name) is not None:
            return name
        raise ValueError(f"it names the file {repr(name)[:200]}, expected a name of the form {self.pattern}")

    def path(self, directory: str, name: object) -> str:
        """The path of the file of that name, which lies below ``directory`` also when links are followed.

        Raises:
            ValueError: the name has another form, or is that of a link that leads out of the directory.
        """
        path = posixpath.join(directory, self.checked(name))
        check_below(directory, path)
        return path


def check_below(directory: str, path: str) -> None:
    """Check that a local path lies below a directory when links are followed; other storage has no links.

    Raises:
        ValueError: it does not.
    """
    above, local = local_path(directory), local_path(path)
    if above is None or local is None:
        return
    inside, real = os.path.realpath(above), os.path.realpath(local)
    if not real.startswith(inside.rstrip("/") + "/"):
        raise ValueError(f"{local} leads to {real}, out of the directory {above}")


class FileKind(Enum):
    """The kinds of stored files that are read as a whole: what one is called in errors, and the most bytes that it may
    have. A file with more of them, or one that is no regular file, is refused before anything of it is read.

    Whoever edits a savepoint or a checkpoint can write those of the first part, so their limits also bound what reading
    them takes. The other ones only tell damage, since whoever can write a job directory is trusted.
    """

    MANIFEST = "a manifest", 256 << 20
    ENDED_SPLITS = "a list of splits that were read", 1 << 30
    LOG_COMMIT = "a commit of a Delta log", 512 << 20
    LOG_CHECKPOINT = "a checkpoint of a Delta log", 512 << 20
    LOG_OTHER = "another file of a Delta log", 64 << 20
    COUNTER = "a file of counts", 1 << 20
    PAGE = "a page that was read ahead", 1 << 30
    # ---- in a job directory
    REQUEST = "a request", 1 << 20
    PROGRESS = "a report of progress", 4 << 20
    JOB_FILE = "a file of a job directory", 4 << 30
    DATA_FILE = "a file of state or output", 256 << 30

    def __init__(self, called: str, max_bytes: int) -> None:
        self.called = called
        self.max_bytes = max_bytes

    def check_size(self, size_bytes: int) -> None:
        """Raises ValueError if a file of this kind may not have so many bytes; the message gives the reason."""
        if size_bytes > self.max_bytes:
            raise ValueError(f"it has {size_bytes:,} bytes, and {self.called} has at most {self.max_bytes:,}")

    def check(self, found: os.stat_result) -> None:
        """Check what is known of a local file, links followed; reading a directory fails by itself.

        Raises:
            ValueError: it is a pipe, a device or the like, or too large; the message gives the reason.
        """
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            kind = next((name for is_one, name in _IRREGULAR if is_one(found.st_mode)), "no regular file")
            raise ValueError(f"it is {kind}, expected a regular file")
        self.check_size(found.st_size)


#: What else than a regular file or a directory a path may lead to.
_IRREGULAR = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


@contextmanager
def opened_regular(path: str, kind: FileKind) -> Iterator[tuple[BinaryIO, int]]:
    """Within the block, a file of the local file system is open for reading; gives it and its size in bytes.

    Raises:
        ValueError: it is larger than one of its kind may be, or no regular file; nothing was read.
        OSError: it cannot be read, or is a directory.
    """
    # looked at before it is opened, since opening a device may have effects, and once more in case it was replaced
    kind.check(os.stat(path))
    with open(path, "rb", opener=_without_waiting) as file:
        found = os.fstat(file.fileno())
        kind.check(found)
        yield file, found.st_size


def read_regular(path: str, kind: FileKind) -> bytes:
    """The content of a file of the local file system. Raises as `opened_regular` does."""
    with opened_regular(path, kind) as (file, size_bytes):
        return file.read(size_bytes)


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; a pipe at once, and not when somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def make_private(path: str) -> None:
    """Make a local directory that only this user can read and write (mode 0700), unless it exists.

    Raises:
        OSError: it cannot be made.
    """
    if not os.path.isdir(path):
        parent = os.path.dirname(os.path.abspath(path))
        try:
            os.makedirs(parent, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), parent) from None
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise


def check_private(path: str, what: str) -> None:
    """Check as ssh does with its files that nobody else can write to a local directory whose content decides what
    runs: it belongs to this user or to root, and neither group nor others may write to it. If others can enter it, the
    same holds for what lies directly in it. A directory above it may be writable for all only with the sticky bit, as
    ``/tmp`` is. A directory that does not exist is as good as a private one.

    Args:
        path: the directory, without a scheme.
        what: what it is called in the error, such as ``the job directory``.

    Raises:
        FinalOperationError: somebody else can write there.
    """
    path = os.path.realpath(path)
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    _check_owned(path, found, what, path)
    if found.st_mode & 0o011:
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    inside = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                _check_owned(entry.path, inside, what, path)
    above = os.path.dirname(path)
    while True:
        mode = os.lstat(above).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise FinalOperationError(
                f"everybody can replace {what}: {above}, which is above it, is writable for all",
                where=path,
                expected="directories above it that only their owners write to, or with the sticky bit, as /tmp",
                hint=f"chmod o-w {above}",
            )
        if above == os.path.dirname(above):
            return
        above = os.path.dirname(above)


def _check_owned(path: str, found: os.stat_result, what: str, directory: str) -> None:
    me = os.geteuid()
    if found.st_uid not in (me, 0):
        raise FinalOperationError(
            f"somebody else (uid {found.st_uid}) can write to {what}: {path} belongs to them",
            where=directory,
            expected=f"a directory of the user that runs this process (uid {me}): its content decides what runs",
            hint=f"chown -R {me} {directory}, or choose another directory, once you trust its content",
        )
    if found.st_mode & 0o022 and not stat.S_ISLNK(found.st_mode):
        raise FinalOperationError(
            f"others can write to {what}: {path} has the mode {stat.S_IMODE(found.st_mode):04o}",
            where=directory,
            expected="a directory that neither group nor others can write to: its content decides what runs",
            hint=f"chmod 700 {directory}, once you trust its content",
        )


def shown_path(path: str) -> str:
    """A path as Flink's ``Path`` shows it, without the slashes that end it and with single ones inside.

    >>> shown_path("file://var/checkpoints/"), shown_path("/a//b/"), shown_path("/")
    ('file://var/checkpoints', '/a/b', '/')
    """
    scheme, separator, rest = path.rpartition("://")
    rest = re.sub("/+", "/", rest)
    return f"{scheme}{separator}{rest if rest == '/' else rest.rstrip('/')}"


def shown_on_this_machine(path: str) -> str:
    """The same for a path of the local file system, of which Flink shows no scheme.

    >>> shown_on_this_machine("file://var/db/"), shown_on_this_machine("/db")
    ('/db', '/db')
    """
    return shown_path(re.sub("^file:(//[^/]*)?", "", path))
