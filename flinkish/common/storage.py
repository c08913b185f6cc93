"""Which file system a path belongs to (a plain path or ``file:`` is local, any other scheme is one of pyarrow's), what
a name may stand for that was read from a stored file, and who may write to a directory.

Rule upheld here: this is the only place that decides these, for the driver and for the workers.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from dataclasses import dataclass
from typing import Any

from flinkish.errors import FinalOperationError


def local_path(path: str) -> str | None:
    """The path without its scheme if it is on the local file system, else None."""
    if path.startswith("file:"):
        return "/" + path[len("file:") :].lstrip("/")
    return None if "://" in path else path


def place(path: str) -> tuple[Any, str]:
    """The pyarrow file system that a path belongs to, and the path within it."""
    from pyarrow import fs

    local = local_path(path)
    if local is not None:
        return fs.LocalFileSystem(), os.path.abspath(local)
    filesystem, root = fs.FileSystem.from_uri(path)
    return filesystem, root


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
