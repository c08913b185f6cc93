"""The manifest of a savepoint or checkpoint: everything but the rows of state, and where those are.

    <savepoint>/manifest.json     "state": {"table": "state", "version": null}
    <savepoint>/state/            Delta: uid, state, kind, key, namespace, value

    <checkpoints>/chk-17/manifest.json   "state": {"table": "../state", "version": 42}
    <checkpoints>/state/                 Delta, one table for all checkpoints

    <checkpoints>/chk-18/manifest.json   the same, and "changes": {"table": "../changes", "version": 3}
    <checkpoints>/changes/               Delta: what has changed since that version of the state, entry by entry

Rule: it is written last, so a directory without it is none; and its text carries its own digest, so that a manifest of
which one byte has changed is never believed.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from dataclasses import asdict, dataclass, field
from typing import Any

from flinkish.errors import SavepointError
from flinkish.jobmanager.directory.files import absolute, is_directory, joined, read_bytes, write_bytes
from flinkish.runtime.state.declared_state import DeclaredState

#: Version of the layout above and of the table's columns; and of one with changes, which a reader must not overlook.
SAVEPOINT_VERSION = 2
VERSION_WITH_CHANGES = 3
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class TableVersion:
    """Where the rows are: a Delta table, relative to the manifest's directory, and its version (None: the newest)."""

    table: str = "state"
    version: int | None = None


@dataclass(frozen=True, order=True)
class StateContents:
    """What the table holds of one state; ``digest``: the sum of its rows' hashes, whatever their order."""

    uid: str
    state: str
    kind: str
    rows: int
    digest: str = ""


@dataclass(frozen=True)
class TableContents:
    """What the table held when it was written, in Delta's version of it then: to tell damage from edits."""

    version: int
    states: tuple[StateContents, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What a job goes on from, besides the rows."""

    job_id: str
    job_name: str
    #: the last epoch that is part of it; None: made from a DataFrame, before any epoch
    epoch: int | None
    time_ms: int
    #: uids of all operators
    operators: tuple[str, ...] = ()
    #: source uid -> position behind the last record of the epoch
    sources: dict[str, str] = field(default_factory=dict)
    #: operator uid -> watermark, for people; a restore goes by the rows of kind ``__watermark__``
    watermarks: dict[str, int] = field(default_factory=dict)
    states: tuple[DeclaredState, ...] = ()
    state: TableVersion = TableVersion()
    #: of checkpoints: what has changed since that version of the state; None: nothing
    changes: TableVersion | None = None
    contents: TableContents | None = None
    #: of checkpoints: totals of the job's accumulators (Base64), for a job that goes back to it; None: not known
    accumulators: str | None = None
    savepoint_version: int = SAVEPOINT_VERSION

    def changes_path(self, directory: str) -> str | None:
        """Path of the table of changes, for the manifest that lies in ``directory``; None: there is none."""
        return None if self.changes is None else joined(absolute(directory), self.changes.table)

    def table_path(self, directory: str) -> str:
        """Path of the table, for the manifest that lies in ``directory``."""
        return joined(absolute(directory), self.state.table)


def write_manifest(directory: str, manifest: Manifest) -> str:
    """Write the manifest of a savepoint or checkpoint into its directory; returns the path of the file."""
    path = posixpath.join(absolute(directory), MANIFEST)
    content = {**asdict(manifest), "states": [state.to_json() for state in manifest.states]}
    if manifest.changes is None:
        del content["changes"]
    if manifest.accumulators is None:
        del content["accumulators"]
    write_bytes(path, _rendered(content))
    return path


def _rendered(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"digest": digest, **content}, sort_keys=True, indent=1).encode()


def read_manifest(directory: str) -> Manifest:
    """The manifest of a savepoint or checkpoint.

    Raises:
        SavepointError: there is none, or it is damaged or of another version; names the file.
    """
    directory = absolute(directory)
    path = posixpath.join(directory, MANIFEST)
    data = read_bytes(path)
    if data is None:
        raise _missing(directory, path)
    content = _parsed(data, path)
    version = content.get("savepoint_version")
    if version != (VERSION_WITH_CHANGES if "changes" in content else SAVEPOINT_VERSION):
        raise SavepointError(
            f"the savepoint has version {version}",
            where=path,
            expected=f"version {SAVEPOINT_VERSION}, or {VERSION_WITH_CHANGES} with changes",
            hint="restore it with the version of flinkish that wrote it",
        )
    return _manifest(content)


def _missing(directory: str, path: str) -> SavepointError:
    if not is_directory(directory):
        return SavepointError(
            f"there is no savepoint at {directory}", hint="check the path given with -s / --fromSavepoint"
        )
    return SavepointError(
        f"the savepoint at {directory} is not complete: {MANIFEST} is missing",
        where=path,
        expected="a savepoint or checkpoint that was written to its end",
        hint="use another savepoint",
    )


def _parsed(data: bytes, path: str) -> dict[str, Any]:
    """The content of a manifest of which nothing has changed; of any version."""
    try:
        content = json.loads(data)
    except ValueError as error:
        what = "empty" if not data else f"no JSON ({error})"
        raise _damaged(what, path) from error
    if not isinstance(content, dict):
        raise _damaged("no JSON object", path)
    if content.pop("digest", None) is None and content.get("savepoint_version") == 1:
        return content  # written before there was a digest; refused for its version
    if _rendered(content) != data:
        raise _damaged("not as it was written: its digest does not fit its content", path)
    return content


def _damaged(what: str, path: str) -> SavepointError:
    return SavepointError(
        f"the manifest of the savepoint is damaged: it is {what}",
        where=path,
        expected="the file as flinkish wrote it",
        hint="copy the file from a backup, or use another savepoint; only the rows of the state table may be edited",
    )


def _manifest(content: dict[str, Any]) -> Manifest:
    contents = content["contents"]
    if contents is not None:
        states = tuple(StateContents(**state) for state in contents["states"])
        contents = TableContents(contents["version"], states)
    return Manifest(
        **{
            **content,
            "operators": tuple(content["operators"]),
            "states": tuple(DeclaredState.from_json(state) for state in content["states"]),
            "state": TableVersion(**content["state"]),
            "changes": TableVersion(**content["changes"]) if "changes" in content else None,
            "contents": contents,
        }
    )
