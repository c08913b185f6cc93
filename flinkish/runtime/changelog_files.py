"""The files of the changelog, which records what each epoch has changed in the state of a job; checkpoints read it.

    <job dir>/changelog/epoch=17/part-<token>.parquet    column ``changes``: one value per subtask
    <job dir>/changelog/epoch=17/_parts.json             the names of the valid parts

Rule: the list of an epoch's parts is written after all tasks of the epoch have ended and before the epoch is prepared.
A later run of the same epoch replaces the list. So the changelog of a committed epoch is complete, and files that
failed runs have left behind are in no list.
"""

from __future__ import annotations

import posixpath
import uuid

import pyarrow as pa

from flinkish.common.sealed_json import sealed, unsealed
from flinkish.common.storage import place
from flinkish.common.storage_errors import storage_errors
from flinkish.errors import OperationError

_FILE_SCHEMA = pa.schema([("changes", pa.binary())])
_LIST = "_parts.json"


def changelog_directory(job_dir: str) -> str:
    """The directory of a job's changelog."""
    return posixpath.join(job_dir, "changelog")


def epoch_directory(changelog: str, epoch: int) -> str:
    """The directory of the changelog files of one epoch."""
    return posixpath.join(changelog, f"epoch={epoch}")


def write_changes(changelog: str, epoch: int, changes: list[bytes]) -> str:
    """Write changes to a new part, and return the name of the part."""
    import pyarrow.parquet as pq

    directory = epoch_directory(changelog, epoch)
    name = f"part-{uuid.uuid4().hex}.parquet"
    filesystem, root = place(posixpath.join(directory, name))
    table = pa.table({"changes": pa.array(changes, pa.binary())}, schema=_FILE_SCHEMA)
    with storage_errors("write", posixpath.join(directory, name)):
        filesystem.create_dir(posixpath.dirname(root), recursive=True)
        with filesystem.open_output_stream(root) as stream:
            # pickles are hardly ever equal, so dictionary encoding would only cost time
            pq.write_table(table, stream, use_dictionary=False, write_statistics=False)
    return name


def read_changes(path: str) -> list[pa.RecordBatch]:
    """The changes of a part, in the column ``changes``."""
    import pyarrow.parquet as pq

    filesystem, root = place(path)
    with storage_errors("read", path):
        batches: list[pa.RecordBatch] = pq.read_table(root, filesystem=filesystem, schema=_FILE_SCHEMA).to_batches()
    return batches


def write_parts(changelog: str, epoch: int, names: list[str]) -> None:
    """Write the list of an epoch's valid parts, in place of any list that an earlier run has written."""
    directory = epoch_directory(changelog, epoch)
    filesystem, root = place(directory)
    temporary = posixpath.join(root, f"_{uuid.uuid4().hex}")
    with storage_errors("write", posixpath.join(directory, _LIST)):
        filesystem.create_dir(root, recursive=True)
        with filesystem.open_output_stream(temporary) as stream:
            stream.write(sealed({"version": 2, "parts": sorted(names)}))
        filesystem.move(temporary, posixpath.join(root, _LIST))


def read_parts(changelog: str, epoch: int) -> list[str]:
    """The paths of the valid parts of an epoch; an empty list if the epoch has changed nothing.

    Raises:
        OperationError: the list of parts is damaged.
    """
    directory = epoch_directory(changelog, epoch)
    filesystem, root = place(directory)
    try:
        with filesystem.open_input_stream(posixpath.join(root, _LIST)) as stream:
            content = unsealed(stream.read())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise OperationError(
            f"a list of changes of the state is damaged: {error}",
            where=posixpath.join(directory, _LIST),
            hint="stop the job, delete the directory changelog and the file changelog.json in its directory, and start "
            "the job again: its next checkpoint is then a full one",
        ) from error
    return [posixpath.join(directory, str(name)) for name in content["parts"]]
