"""Reads, writes and deletes files and directories on any file system that pyarrow or the local machine knows. Files are
written whole or not at all, and reading never creates anything."""

from __future__ import annotations

import contextlib
import os
import posixpath
import uuid

from flinkish.common.storage import local_path, place
from flinkish.common.storage_errors import storage_error, storage_errors


def absolute(path: str) -> str:
    """The absolute path, without a scheme, of a path on the local file system; any other path as it is, but without a
    slash at its end, so that what is above a directory is the same however its path is written."""
    local = local_path(path)
    return path.rstrip("/") if local is None else os.path.abspath(local)


def joined(directory: str, relative: str) -> str:
    """The path of what is at ``relative`` to a directory, without ``..`` in it; a scheme stays as it is.

    >>> joined("s3://bucket/job/checkpoints/chk-3", "../state")
    's3://bucket/job/checkpoints/state'
    """
    scheme, separator, path = directory.rpartition("://")
    return scheme + separator + posixpath.normpath(posixpath.join(path, relative))


def read_bytes(path: str) -> bytes | None:
    """The content of a file; None when there is no such file."""
    filesystem, root = place(path)
    try:
        with filesystem.open_input_stream(root) as stream:
            return bytes(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error(error, "read", path) from error


def write_bytes(path: str, data: bytes) -> None:
    """Write a file, and make the directories above it; no reader ever sees a part of the file."""
    filesystem, root = place(path)
    parent, name = posixpath.split(root)
    temporary = posixpath.join(parent, f".{name}.{uuid.uuid4().hex}")
    with storage_errors("write", path):
        filesystem.create_dir(parent, recursive=True)
        try:
            with filesystem.open_output_stream(temporary) as stream:
                stream.write(data)
            filesystem.move(temporary, root)
        except BaseException:
            with contextlib.suppress(OSError):
                filesystem.delete_file(temporary)
            raise


def is_directory(path: str) -> bool:
    """Whether there is such a directory."""
    from pyarrow import fs

    filesystem, root = place(path)
    return bool(filesystem.get_file_info(root).type == fs.FileType.Directory)


def child_names(path: str) -> list[str]:
    """The names of the files and directories in a directory, sorted; [] when there is no such directory."""
    from pyarrow import fs

    filesystem, root = place(path)
    return sorted(info.base_name for info in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True)))


def empty_files(path: str) -> list[str]:
    """The names of the empty files in a directory, sorted; [] when there is no such directory."""
    from pyarrow import fs

    filesystem, root = place(path)
    found = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    return sorted(info.base_name for info in found if info.is_file and info.size == 0)


def directory_bytes(path: str) -> int:
    """Size of the files in a directory in bytes, without those in its subdirectories."""
    from pyarrow import fs

    filesystem, root = place(path)
    return sum(info.size or 0 for info in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True)))


def delete_file(path: str) -> None:
    """Delete a file if it is there."""
    filesystem, root = place(path)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_file(root)


def move_directory(path: str, target: str) -> None:
    """Rename a directory; what is at the target already is deleted."""
    filesystem, root = place(path)
    delete_directory(target)
    with storage_errors("move", path):
        filesystem.move(root, place(target)[1])


def delete_directory_at_once(path: str) -> None:
    """Delete a directory and what it holds now. What others make at its path meanwhile is not touched: on object
    stores, which cannot move a directory in one step, what they make after the directory was listed."""
    if local_path(path) is None or not is_directory(path):
        delete_directory(path)
        return
    aside = f"{path}.deleted-{uuid.uuid4().hex}"
    move_directory(path, aside)
    delete_directory(aside)


def delete_directory(path: str) -> None:
    """Delete a directory and all that is in it, if it is there."""
    filesystem, root = place(path)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(root)
