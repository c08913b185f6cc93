"""The files of the changelog, which records what each epoch has changed in the state of a job; checkpoints read it.

    <job dir>/changelog/epoch=17/part-<token>-<digest>.parquet    column ``changes``: one value per subtask
                                (`ChangelogParts`)            the names of the valid parts, and changes that are few

Rule: what was not written is never read. The list has a digest, and the name of a part, which the list holds, ends with
the digest of its content; a part of any other content or name is damaged, and the next checkpoint is a full one.

Rule: the list of an epoch's parts is written after all tasks of the epoch have ended and before the epoch is prepared.
A later run of the same epoch replaces the list. So the changelog of a committed epoch is complete, and files that
failed runs have left behind are in no list.
"""

from __future__ import annotations

import hashlib
import posixpath
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from flinkish.errors import CorruptStateError
from flinkish.storage.paths import FileKind, NameForm
from flinkish.storage.stored_file import StoredFile
from flinkish.storage.stores import storage_error, storage_errors, storage_of

_FILE_SCHEMA = pa.schema([("changes", pa.binary())])
_SUFFIX = ".parquet"

#: Changes of an epoch of at most so many bytes, all together, are in the list itself: they need no file of their own.
FEW_BYTES = 64 * 1024

_PART = NameForm(r"part-[0-9a-f]{1,64}(-[0-9a-f]{64})?\.parquet")


@dataclass(frozen=True)
class ChangelogParts(StoredFile):
    """A list of parts, and changes that are in no part."""

    NAME = "_parts.json"
    FOLDER = "changelog/epoch=<n>"
    VERSION = 3
    WHEN = "with incremental checkpoints"
    READER = "the thread that takes checkpoints"
    REMEDY = "nothing need be done: the next checkpoint is a full one"
    ERROR = CorruptStateError

    parts: tuple[Annotated[str, _PART], ...]
    changes: tuple[bytes, ...] = ()


def changelog_directory(job_dir: str) -> str:
    """The directory of a job's changelog."""
    return posixpath.join(job_dir, "changelog")


def epoch_directory(changelog: str, epoch: int) -> str:
    """The directory of the changelog files of one epoch."""
    return posixpath.join(changelog, f"epoch={epoch}")


def write_changes(changelog: str, epoch: int, changes: list[bytes]) -> str:
    """Write changes to a new part, and return the name of the part."""
    import pyarrow.parquet as pq

    table = pa.table({"changes": pa.array(changes, pa.binary())}, schema=_FILE_SCHEMA)
    content = pa.BufferOutputStream()
    # pickles are hardly ever equal, so dictionary encoding would only cost time
    pq.write_table(table, content, use_dictionary=False, write_statistics=False)
    data = content.getvalue()
    directory = epoch_directory(changelog, epoch)
    name = f"part-{uuid.uuid4().hex}-{_digest(data)}{_SUFFIX}"
    path = posixpath.join(directory, name)
    with storage_errors("write", path):
        storage_of(path).write(path, data)
    return name


def read_changes(path: str) -> list[pa.RecordBatch]:
    """The changes of a part, or those in a list of parts, in the column ``changes``.

    Raises:
        CorruptStateError: the part is missing, or its content is not what was written.
    """
    import pyarrow.parquet as pq

    if posixpath.basename(path) == ChangelogParts.NAME:
        found = ChangelogParts.read(posixpath.dirname(path))
        if found is None:
            raise ChangelogParts.damaged(path, "it is missing")
        return [pa.record_batch([pa.array(found.changes, pa.binary())], schema=_FILE_SCHEMA)]
    try:
        data = pa.py_buffer(storage_of(path).read(path, FileKind.JOB_FILE))
    except FileNotFoundError:
        raise ChangelogParts.damaged(path, "it is missing") from None
    except ValueError as error:
        raise ChangelogParts.damaged(path, error) from error
    except OSError as error:
        raise storage_error(error, "read", path) from error
    if not path.endswith(f"-{_digest(data)}{_SUFFIX}"):
        raise ChangelogParts.damaged(path, "its content does not fit the digest in its name")
    batches: list[pa.RecordBatch] = pq.read_table(pa.BufferReader(data), schema=_FILE_SCHEMA).to_batches()
    return batches


def _digest(data: pa.Buffer) -> str:
    return hashlib.sha256(data).hexdigest()


def write_parts(changelog: str, epoch: int, names: list[str], changes: Sequence[bytes] = ()) -> None:
    """Write the list of an epoch's valid parts, with changes that are in no part, in place of any list that an earlier
    run has written."""
    ChangelogParts(tuple(sorted(names)), tuple(changes)).write(epoch_directory(changelog, epoch))


def has_list(changelog: str, epoch: int) -> bool:
    """Whether an earlier run of the epoch has written a list of parts."""
    path = ChangelogParts.path_in(epoch_directory(changelog, epoch))
    return storage_of(path).exists(path)


def read_parts(changelog: str, epoch: int) -> list[str]:
    """The paths of the valid parts of an epoch, and that of their list if it has changes itself; an empty list if the
    epoch has changed nothing.

    Raises:
        CorruptStateError: the list of parts is damaged.
    """
    directory = epoch_directory(changelog, epoch)
    found, path = ChangelogParts.read(directory), ChangelogParts.path_in(directory)
    if found is None:
        return []
    try:
        return [_PART.path(directory, name) for name in found.parts] + ([path] if found.changes else [])
    except ValueError as error:
        raise ChangelogParts.damaged(path, error) from error
