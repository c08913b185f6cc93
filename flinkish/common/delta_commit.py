"""Commits to the log of a Delta table, and the description of a table, without Spark.

A commit by Spark costs a second of processor time, and five when it is the first of a driver; a commit here costs
milliseconds. The file of a commit is created exclusively (`flinkish.common.stores`): of two writers of the same
version, the storage refuses one.

Rule: only data files are added. A caller must know that the table asks no more of its writers than that, and that a
local file system has hard links; otherwise Spark has to write.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flinkish.common.sealed_json import json_as, typed
from flinkish.common.stores import storage_of

#: The version of Delta's writers that the tables made here ask for.
PLAIN_WRITER_VERSION = 2


@dataclass(frozen=True)
class _File:
    """What is read of an ``add`` or ``remove`` action."""

    path: str
    dataChange: bool = False  # noqa: N815 - a name of Delta's
    stats: str | None = None


@dataclass(frozen=True)
class _Info:
    """What is read of a ``commitInfo`` action."""

    timestamp: int | None = None
    userMetadata: str | None = None  # noqa: N815
    operationMetrics: dict[str, Any] = field(default_factory=dict)  # noqa: N815
    operationParameters: dict[str, Any] = field(default_factory=dict)  # noqa: N815


@dataclass(frozen=True)
class _Protocol:
    """What is read of a ``protocol`` action."""

    minWriterVersion: int  # noqa: N815
    writerFeatures: list[str] | None = None  # noqa: N815


@dataclass(frozen=True)
class _Action:
    """What is read of a line of the log."""

    add: _File | None = None
    remove: _File | None = None
    commitInfo: _Info | None = None  # noqa: N815
    protocol: _Protocol | None = None


def actions_of(data: bytes) -> list[dict[str, Any]]:
    """The actions in the file of a commit, whose fields that are read anywhere have the types of Delta's protocol.

    Raises:
        ValueError: the content is not what Delta writes; the message gives the reason.
    """
    actions = [json_as(dict[str, Any], line) for line in data.splitlines() if line.strip()]
    for action in actions:
        typed(_Action, action)
    return actions


def publish(file: str, actions: list[dict[str, Any]]) -> None:
    """Create the file of a version of the log.

    Raises:
        FileExistsError: another writer has committed this version; nothing was changed.
        OSError: with one of `stores.NO_LINKS`: the file system has no hard links; or the storage fails.
    """
    data = "".join(json.dumps(action) + "\n" for action in actions).encode()
    storage_of(file).create(file, data, only_by_link=True)


def append_info(now_ms: int, **more: Any) -> dict[str, Any]:
    """The action that describes a commit which appends files. ``more``: further fields of Delta's ``commitInfo``."""
    return {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "isBlindAppend": True,
            **more,
            "engineInfo": "flinkish",
            "txnId": str(uuid.uuid4()),
        }
    }


def new_table(columns: Mapping[str, str], now_ms: int, properties: Mapping[str, str]) -> list[dict[str, Any]]:
    """The actions with which the first commit makes a table that any version of Delta reads and writes.

    Args:
        columns: name -> type, in Delta's words, such as ``string``.
        now_ms: the time of the commit, in milliseconds since 1970.
        properties: the properties of the table.
    """
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    described = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": now_ms,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": PLAIN_WRITER_VERSION}}, {"metaData": described}]


def added_file(name: str, size_bytes: int, now_ms: int, stats: dict[str, Any]) -> dict[str, Any]:
    """The action that adds a data file, which lies in the directory of the table. ``stats``: see Delta's protocol,
    "Per-file Statistics"."""
    described = {"path": name, "partitionValues": {}, "size": size_bytes, "modificationTime": now_ms}
    return {"add": {**described, "dataChange": True, "stats": json.dumps(stats)}}


def newest_version(table: str) -> int | None:
    """The newest version of a table, by the files of its log; None if it cannot be read from here."""
    try:
        log = posixpath.join(table, "_delta_log")
        names = [entry.name for entry in storage_of(log).list(log)]
        return max((int(name[:20]) for name in names if name[20:] == ".json"), default=None)
    except (OSError, ValueError):
        return None


def described_table(table: str) -> dict[str, Any] | None:
    """The newest ``metaData`` action of the log of a table, which has its schema and partition columns; None if there
    is no table, or if it cannot be read from here.
    """
    import pyarrow as pa
    from pyarrow import ArrowException, parquet

    log = posixpath.join(table, "_delta_log")
    try:
        storage = storage_of(log)
        files = [entry.name for entry in storage.list(log)]
        checkpoints = [name for name in files if ".checkpoint." in name and name.endswith(".parquet")]
        summed_up = max((name[:20] for name in checkpoints), default="")
        for name in sorted((name for name in files if name[20:] == ".json" and name[:20] > summed_up), reverse=True):
            for line in storage.read(f"{log}/{name}").splitlines():
                if b'"metaData"' in line and "metaData" in (action := json.loads(line)):
                    return dict(action["metaData"])
        for name in sorted(name for name in checkpoints if name[:20] == summed_up):
            data = pa.BufferReader(storage.read(f"{log}/{name}"))
            column = parquet.read_table(data, columns=["metaData"]).column("metaData")
            found = column.drop_null().to_pylist()
            if found:
                return dict(found[0])
    except (OSError, ValueError, ArrowException):
        return None
    return None
