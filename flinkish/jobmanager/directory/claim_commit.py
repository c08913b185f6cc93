"""Commits a claim to the fencing table without Spark's Delta, which does not exclude a second writer on S3.

The first use of Delta in a driver takes five seconds of processor time, which a job need not spend before its first
epoch. Of two drivers that write the same version, the storage refuses one (`flinkish.delta.log`).

Rule: tables that require more of a writer than Delta's writer version 2, and file systems without hard links, are left
to Spark.
"""

from __future__ import annotations

import json
import posixpath
import time
import uuid
from dataclasses import asdict
from typing import Any

from flinkish.delta.fence import Claim, FencingLog
from flinkish.delta.log import PLAIN_WRITER_VERSION, added_file, append_info, new_table, publish
from flinkish.errors import OperationError
from flinkish.storage.stores import NO_LINKS, storage_of

#: The log is never cleaned up: a driver that was paused for long must still find the version after its own.
KEPT_FOR_EVER = {"delta.logRetentionDuration": "interval 36500 days", "delta.enableExpiredLogCleanup": "false"}

_TYPES = {str: "string", int: "integer"}


def commit_claim(log: FencingLog, mine: Claim) -> int | None:
    """Append the claim to the table; returns the version of the commit, or None if Spark has to write it.

    Raises:
        OSError: the storage fails.
    """
    while True:
        versions = log.versions()
        if versions and not _is_plain(log, versions):
            return None
        version = versions[-1] + 1 if versions else 0
        try:
            _commit(log.table, log.file(version), mine, new=not versions)
            return version
        except FileExistsError:
            # another driver has committed this version in the same moment; or a file stands where a directory must be
            if not any(log.has(version)):
                raise
        except OSError as error:
            if error.errno in NO_LINKS:
                return None
            raise


def _is_plain(log: FencingLog, versions: list[int]) -> bool:
    """Whether a writer that can only append rows may write to the table."""
    for version in reversed(versions):
        try:
            for action in log.actions(version):
                if action.get("protocol"):
                    return int(action["protocol"]["minWriterVersion"]) <= PLAIN_WRITER_VERSION
        except (FileNotFoundError, OperationError):
            return False
    return False


def _commit(table: str, file: str, mine: Claim, new: bool) -> None:
    now_ms = int(time.time() * 1000)
    name = f"part-00000-{uuid.uuid4()}.parquet"
    row = posixpath.join(table, name)
    committed = False
    try:
        size = _write_row(row, mine)
        said = append_info(now_ms, userMetadata=json.dumps(asdict(mine)))
        columns = {name: _type(value) for name, value in asdict(mine).items()}
        row_added = added_file(name, size, now_ms, {"numRecords": 1})
        publish(file, [said, *(new_table(columns, now_ms, KEPT_FOR_EVER) if new else ()), row_added])
        committed = True
    finally:
        if not committed:
            storage_of(row).delete(row)


def _write_row(path: str, mine: Claim) -> int:
    """Write the file of the claim's row; returns its size in bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {"string": pa.string(), "integer": pa.int32()}
    schema = pa.schema([(name, types[_type(value)]) for name, value in asdict(mine).items()])
    whole = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist([asdict(mine)], schema=schema), whole)
    data = whole.getvalue().to_pybytes()
    storage_of(path).replace(path, data, durable=True)
    return len(data)


def _type(value: Any) -> str:
    return _TYPES[type(value)]
