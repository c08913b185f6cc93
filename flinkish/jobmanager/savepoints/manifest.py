"""The manifest of a savepoint or checkpoint: all of it except the rows of state, and the location of those rows.

    <savepoint>/manifest.json     "state": {"table": "state", "version": null}
    <savepoint>/state/            Delta: uid, state, kind, key, namespace, value

    <checkpoints>/chk-17/manifest.json   "state": {"table": "../state", "version": 42}
    <checkpoints>/state/                 Delta, one table for all checkpoints

    <checkpoints>/chk-18/manifest.json   the same, and "changes": {"table": "../changes", "version": 3}
    <checkpoints>/changes/               Delta: what has changed since that version of the state, entry by entry

Rule: the manifest is written last, so that a directory without one is not a savepoint; and it carries a digest of its
own text, so that a manifest in which a single byte has changed is never accepted.
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

#: Version of the layout above and of the table's columns; and the version of a manifest with changes, which differs so
#: that no reader ignores the changes.
SAVEPOINT_VERSION = 2
VERSION_WITH_CHANGES = 3
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class TableVersion:
    """Where the rows are: the path of a Delta table, relative to the manifest's directory, and the version of the table
    (None: the newest)."""

    table: str = "state"
    version: int | None = None


@dataclass(frozen=True, order=True)
class StateContents:
    """What the table holds of one state: the number of its rows, and as ``digest`` the sum of their hashes, which does
    not depend on their order."""

    uid: str
    state: str
    kind: str
    rows: int
    digest: str = ""


@dataclass(frozen=True)
class TableContents:
    """What the table held when it was written, and the Delta version it had then: tells damage from edits."""

    version: int
    states: tuple[StateContents, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest: all that a job needs in order to go on from a savepoint or checkpoint, besides the
    rows of state."""

    job_id: str
    job_name: str
    #: the last epoch that is part of it; None: made from a DataFrame, before any epoch
    epoch: int | None
    #: time at which it was made, in ms since the Unix epoch
    time_ms: int
    #: uids of all operators
    operators: tuple[str, ...] = ()
    #: source uid -> position behind the last record of the epoch
    sources: dict[str, str] = field(default_factory=dict)
    #: operator uid -> watermark, for people; a restore uses the rows of kind ``__watermark__``
    watermarks: dict[str, int] = field(default_factory=dict)
    states: tuple[DeclaredState, ...] = ()
    state: TableVersion = TableVersion()
    #: checkpoints only: the table of changes since that version of the state; None: there are none
    changes: TableVersion | None = None
    contents: TableContents | None = None
    #: checkpoints only: totals of the job's accumulators (Base64), for a job that goes back to it; None: not known
    accumulators: str | None = None
    savepoint_version: int = SAVEPOINT_VERSION

    def changes_path(self, directory: str) -> str | None:
        """Path of the table of changes, if the manifest is in ``directory``; None: there is no such table."""
        return None if self.changes is None else joined(absolute(directory), self.changes.table)

    def table_path(self, directory: str) -> str:
        """Path of the table of state, if the manifest is in ``directory``."""
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
    """Read the manifest of the savepoint or checkpoint in a directory.

    Raises:
        SavepointError: there is no manifest, or it is damaged or has another version; the error names the file.
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
    """The content of a manifest of any version, once its digest has shown that nothing in it has changed."""
    try:
        content = json.loads(data)
    except ValueError as error:
        what = "empty" if not data else f"no JSON ({error})"
        raise _damaged(what, path) from error
    if not isinstance(content, dict):
        raise _damaged("no JSON object", path)
    if content.pop("digest", None) is None and content.get("savepoint_version") == 1:
        return content  # version 1 has no digest; the caller refuses that version
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
