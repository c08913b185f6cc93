"""A savepoint that the job has claimed (``execution.state-recovery.claim-mode: CLAIM``) is its own first checkpoint.

Rule: it is deleted when it is subsumed, that is when the job has completed as many checkpoints of its own as are
retained; never before, and never without checkpoints. In the modes NO_CLAIM and LEGACY it is only read: all of it is
copied before the first epoch, so nothing of the job depends on it later.
"""

from __future__ import annotations

import posixpath
import re

from flinkish.jobmanager.directory.files import child_names, delete_directory, joined
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.savepoints.manifest import MANIFEST, read_manifest

_FILE = "restored.json"
_CHECKPOINT = re.compile(r"chk-\d+")


def subsume_claimed(directory: JobDirectory, completed: int, retained: int) -> str | None:
    """Called after each checkpoint. ``completed``: checkpoints of the job that are there. Returns what was deleted."""
    if completed < retained:
        return None
    remembered = directory.read(_FILE)
    if remembered is None or remembered.get("claim_mode") != "CLAIM" or remembered.get("subsumed"):
        return None
    path = str(remembered["path"])
    directory.fence.check()
    _delete(path)
    directory.write(_FILE, {**remembered, "subsumed": True})
    return path


def _delete(path: str) -> None:
    """A savepoint; or a checkpoint, with the tables that it shares if it is the last one that uses them."""
    if MANIFEST not in child_names(path):
        return
    manifest = read_manifest(path)
    table = manifest.table_path(path)
    delete_directory(path)
    if posixpath.dirname(table) == path:
        return
    parent = posixpath.dirname(path)
    others = [name for name in child_names(parent) if _CHECKPOINT.fullmatch(name)]
    if not any(MANIFEST in child_names(posixpath.join(parent, name)) for name in others):
        delete_directory(table)
        delete_directory(joined(parent, "changes"))
