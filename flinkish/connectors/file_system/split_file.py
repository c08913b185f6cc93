"""Opens the file of a split and checks that it is still the one that was found; classifies the errors of reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkish.connectors.file_system.paths import FileSystems
from flinkish.core.source import SourceSplit
from flinkish.errors import FinalOperationError, FlinkishError, MalformedRecordError, RetryableError

if TYPE_CHECKING:
    from pyarrow import NativeFile


def open_split(systems: FileSystems, split: SourceSplit, as_it_is: bool = False) -> NativeFile:
    """Open the file of a split for random access.

    A file that has grown is accepted: it is read up to the size that it had when it was found. With ``as_it_is`` a
    changed file is accepted too: it is read as a whole, and somebody may have repaired it.

    Raises:
        FinalOperationError: the file is gone; or, without ``as_it_is``, it has become shorter or was replaced by
            another one of the same size.
        ConnectionFailedError: the file system cannot be reached.
        RetryableError: the file cannot be opened.
    """
    from pyarrow import fs

    system, path = systems.locate(split.id)
    try:
        now = system.get_file_info(path)
        if now.type != fs.FileType.File:
            raise _changed(split, "the file is gone")
        if as_it_is:
            return system.open_input_file(path)
        if now.size < split.info["bytes"]:
            raise _changed(split, f"the file has {now.size} bytes and had {split.info['bytes']} when it was found")
        if now.size == split.info["bytes"] and now.mtime_ns != split.info["modified_ns"]:
            raise _changed(split, "the file was replaced by another one after it was found")
        return system.open_input_file(path)
    except FileNotFoundError:
        raise _changed(split, "the file is gone") from None
    except OSError as error:
        if isinstance(error, FlinkishError):
            raise
        raise RetryableError(f"the file cannot be opened: {error}", where=f"file {split.id}") from error


def _changed(split: SourceSplit, what: str) -> FinalOperationError:
    return FinalOperationError(
        what,
        where=f"file {split.id}",
        expected="files that stay as they are until they have been read",
        hint="put the old file back with its modification time (cp -p); write files elsewhere and move them in whole",
    )


def unreadable(split_id: str, error: Exception) -> FlinkishError:
    """The error to raise when reading a file has failed: a RetryableError if the file system is to blame, and a
    MalformedRecordError if the content is."""
    if isinstance(error, FlinkishError):
        return error
    # the errors of pyarrow's file systems have an errno, or name the service that failed; those of its decoders do not
    damaged = not isinstance(error, OSError) or (error.errno is None and split_id.startswith("/"))
    if damaged:
        return MalformedRecordError(
            f"the file is damaged: {error}", where=f"file {split_id}", expected="a complete file of its format"
        )
    return RetryableError(f"the file cannot be read: {error}", where=f"file {split_id}")
