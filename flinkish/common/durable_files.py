"""Writes files that exist whole or not at all, and that survive a power cut where the file system can promise it.

Rule: on the local file system a file is synchronised before anybody can see its name. Other file systems (object
stores, HDFS) promise that a file which was closed is durable.
"""

from __future__ import annotations

import errno
import os
import posixpath
import uuid
from contextlib import suppress
from typing import Any, Protocol

from flinkish.common.storage import local_path, place

#: The errors by which a file system says that it has no hard links.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class OutputFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> Any:
        """Append bytes."""

    def close(self) -> None:
        """Finish the file: it is whole and durable when this returns."""


class _LocalFile:
    """A local file that is synchronised when it is closed."""

    def __init__(self, path: str) -> None:
        self._stream = open(path, "wb")  # noqa: SIM115 - closed by `close`

    def write(self, data: bytes) -> int:
        return self._stream.write(data)

    def close(self) -> None:
        if not self._stream.closed:
            with self._stream:
                self._stream.flush()
                os.fsync(self._stream.fileno())


def open_durable(path: str) -> OutputFile:
    """Open a file for writing, under a name that nothing else uses, and create its parent directories."""
    local = local_path(path)
    if local is not None:
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return _LocalFile(local)
    filesystem, root = place(path)
    filesystem.create_dir(posixpath.dirname(root), recursive=True)
    stream: OutputFile = filesystem.open_output_stream(root)
    return stream


def create_durably(path: str, data: bytes, only_by_link: bool = False) -> None:
    """Create a file that must not exist yet. If two processes create it at once, it is certain that one of
    them is refused only if the file gets its name by a hard link.

    Args:
        only_by_link: for a local file, raise OSError with one of `NO_LINKS` where there are no hard links.

    Raises:
        FileExistsError: the file exists. Nothing was changed.
    """
    parent, name = posixpath.split(path)
    temporary = posixpath.join(parent, f".{name}.{uuid.uuid4().hex}")
    file = open_durable(temporary)
    try:
        file.write(data)
        file.close()
        _give_name(temporary, path, only_by_link)
    finally:
        with suppress(OSError):
            file.close()
        delete(temporary)


def replace_durably(path: str, data: bytes) -> None:
    """Replace a file, or create it: whoever reads it finds the old content or the new one."""
    parent, name = posixpath.split(path)
    temporary = posixpath.join(parent, f".{name}.{uuid.uuid4().hex}")
    file = open_durable(temporary)
    try:
        file.write(data)
        file.close()
        local, own = local_path(path), local_path(temporary)
        if local is not None and own is not None:
            os.replace(own, local)
            synchronise(os.path.dirname(local))
        else:
            filesystem, root = place(path)
            filesystem.move(place(temporary)[1], root)
    finally:
        with suppress(OSError):
            file.close()
        delete(temporary)


def _give_name(temporary: str, path: str, only_by_link: bool) -> None:
    local, own = local_path(path), local_path(temporary)
    if local is not None and own is not None:
        try:
            os.link(own, local)
        except FileExistsError:
            raise
        except OSError as error:
            if only_by_link or error.errno not in NO_LINKS:
                raise
            # a file system without hard links
            _check_absent(path)
            os.rename(own, local)
        synchronise(os.path.dirname(local))
        return
    _check_absent(path)
    filesystem, root = place(path)
    filesystem.move(place(temporary)[1], root)


def _check_absent(path: str) -> None:
    if exists(path):
        raise FileExistsError(errno.EEXIST, "there is a file of that name", path)


def synchronise(path: str) -> None:
    """Make a file that was closed durable, or the names of the files in a directory; does nothing where that is not
    possible, or not needed."""
    local = local_path(path)
    if local is None:
        return
    with suppress(OSError):
        descriptor = os.open(local, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def exists(path: str) -> bool:
    """Whether there is a file at this path."""
    local = local_path(path)
    if local is not None:
        return os.path.isfile(local)
    filesystem, root = place(path)
    return bool(filesystem.get_file_info(root).is_file)


def delete(path: str) -> None:
    """Delete a file if it exists."""
    local = local_path(path)
    with suppress(FileNotFoundError, NotADirectoryError):
        if local is not None:
            os.unlink(local)
            return
        filesystem, root = place(path)
        filesystem.delete_file(root)


def read_slice(path: str, offset: int, length: int) -> bytes:
    """Up to ``length`` bytes of a file from ``offset`` on; fewer if the file is shorter."""
    local = local_path(path)
    if local is not None:
        with open(local, "rb") as file:
            file.seek(offset)
            return file.read(length)
    filesystem, root = place(path)
    with filesystem.open_input_file(root) as file:
        return bytes(file.read_at(length, offset))
