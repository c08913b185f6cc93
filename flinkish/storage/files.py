"""Reads, writes and deletes files and directories on any storage (`flinkish.storage.stores`), with errors that
name the path. Files are written whole or not at all, and reading never creates anything."""

from __future__ import annotations

import uuid

from flinkish.storage.paths import FileKind
from flinkish.storage.stores import storage_error, storage_errors, storage_of


def read_bytes(path: str, kind: FileKind) -> bytes | None:
    """The content of a file of this kind; None when there is no such file.

    Raises:
        ValueError: it is none that may be read (see `FileKind`).
        OperationError: the storage fails.
    """
    try:
        return storage_of(path).read(path, kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error(error, "read", path) from error


def write_bytes(path: str, data: bytes) -> None:
    """Write a file, and make the directories above it; no reader ever sees a part of the file."""
    with storage_errors("write", path):
        storage_of(path).replace(path, data)


def is_directory(path: str) -> bool:
    """Whether there is such a directory."""
    with storage_errors("read", path):
        return storage_of(path).is_directory(path)


def child_names(path: str) -> list[str]:
    """The names of the files and directories in a directory, sorted; [] when there is no such directory."""
    return sorted(entry.name for entry in storage_of(path).list(path))


def empty_files(path: str) -> list[str]:
    """The names of the empty files in a directory, sorted; [] when there is no such directory."""
    found = storage_of(path).list(path)
    return sorted(entry.name for entry in found if entry.is_file and entry.size_bytes == 0)


def directory_bytes(path: str) -> int:
    """Size of the files in a directory in bytes, without those in its subdirectories."""
    return sum(entry.size_bytes for entry in storage_of(path).list(path))


def delete_file(path: str) -> None:
    """Delete a file if it is there."""
    storage_of(path).delete(path)


def move_directory(path: str, target: str) -> None:
    """Rename a directory; what is at the target already is deleted."""
    delete_directory(target)
    with storage_errors("move", path):
        storage_of(path).move(path, target)


def delete_directory_at_once(path: str) -> None:
    """Delete a directory and what it holds now. What others make at its path meanwhile is not touched: on object
    stores, which cannot move a directory in one step, what they make after the directory was listed."""
    if not storage_of(path).renames_directories or not is_directory(path):
        delete_directory(path)
        return
    aside = f"{path}.deleted-{uuid.uuid4().hex}"
    move_directory(path, aside)
    delete_directory(aside)


def delete_directory(path: str) -> None:
    """Delete a directory and all that is in it, if it is there."""
    storage_of(path).delete_directory(path)
