"""The actions of Delta's protocol, of which the commits of a log consist: those that are read, and those with which
flinkish adds files to a table or makes one.

Rule: actions have the shape of the protocol, or nothing of their file is used.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flinkish.storage.sealed import json_as, typed

#: The version of Delta's writers that the tables made here ask for.
PLAIN_WRITER_VERSION = 2


@dataclass(frozen=True)
class DeletionVector:
    """A deletion vector of a data file."""

    storageType: str
    pathOrInlineDv: str


@dataclass(frozen=True)
class AddedFile:
    """What is read of an ``add`` or ``remove`` action."""

    path: str
    dataChange: bool = False
    stats: str | None = None
    deletionVector: DeletionVector | None = None


@dataclass(frozen=True)
class _Info:
    """What is read of a ``commitInfo`` action."""

    timestamp: int | None = None
    userMetadata: str | None = None
    operationMetrics: dict[str, Any] = field(default_factory=dict)
    operationParameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Protocol:
    """What is read of a ``protocol`` action."""

    minWriterVersion: int
    minReaderVersion: int = 1
    writerFeatures: list[str] | None = None


@dataclass(frozen=True)
class _Metadata:
    """What is read of a ``metaData`` action."""

    schemaString: str = "{}"
    partitionColumns: list[str] = field(default_factory=list)
    configuration: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Action:
    """What is read of a line of the log."""

    add: AddedFile | None = None
    remove: AddedFile | None = None
    commitInfo: _Info | None = None
    protocol: _Protocol | None = None
    metaData: _Metadata | None = None


def actions_of(data: bytes) -> list[dict[str, Any]]:
    """The actions in the file of a commit. Each is an object, and the fields that are read anywhere have the types of
    Delta's protocol.

    Raises:
        ValueError: the content is not what Delta writes; the message names the line and gives the reason.
    """
    actions = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                action = json_as(dict[str, dict[str, Any]], line)
                typed(_Action, action)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            actions.append(action)
    return actions


def added_by(actions: Iterable[dict[str, Any]]) -> list[AddedFile]:
    """The files that these actions add, which `actions_of` has returned."""
    return [typed(AddedFile, action["add"]) for action in actions if "add" in action]


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


def removed_file(path: str, now_ms: int) -> dict[str, Any]:
    """The action that removes a data file without a deletion vector. ``path``: as the log has it."""
    return {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": True}}


def new_table(
    columns: Mapping[str, Any], now_ms: int, properties: Mapping[str, str], *, with_deletion_vectors: bool = False
) -> list[dict[str, Any]]:
    """The actions with which the first commit makes a table that any version of Delta reads and writes; with deletion
    vectors, any that knows these.

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
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": PLAIN_WRITER_VERSION}
    if with_deletion_vectors:
        vectors = ["deletionVectors"]
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": vectors,
            "writerFeatures": [*vectors, "appendOnly", "invariants"],
        }
    return [{"protocol": protocol}, {"metaData": described}]


def added_file(name: str, size_bytes: int, now_ms: int, stats: dict[str, Any]) -> dict[str, Any]:
    """The action that adds a data file, which lies in the directory of the table. ``stats``: see Delta's protocol,
    "Per-file Statistics"."""
    described = {"path": name, "partitionValues": {}, "size": size_bytes, "modificationTime": now_ms}
    return {"add": {**described, "dataChange": True, "stats": json.dumps(stats)}}
