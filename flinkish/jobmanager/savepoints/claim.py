"""Deletes a savepoint that the job has claimed (``execution.state-recovery.claim-mode: CLAIM``) once it is subsumed.

Rule: a claimed savepoint counts as the job's first checkpoint. It is deleted when it is subsumed, that is when the job
has completed as many checkpoints of its own as are retained; never before, and never without checkpoints. In the modes
NO_CLAIM and LEGACY the savepoint is only read: all of it is copied before the first epoch, so that the job does not
depend on it later.
"""

from __future__ import annotations

import posixpath
import re

from flinkish.common.storage import absolute, joined
from flinkish.jobmanager.directory.damaged_files import damaged_file
from flinkish.jobmanager.directory.files import child_names, delete_directory, delete_file
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.savepoints.manifest import ENDED, MANIFEST, read_manifest

_FILE = "restored.json"
_CHECKPOINT = re.compile(r"chk-\d+")


def subsume_claimed(directory: JobDirectory, completed: int, retained: int) -> str | None:
    """Delete the claimed savepoint if it is subsumed; to be called after each checkpoint.

    Args:
        directory: the job directory.
        completed: the number of the job's completed checkpoints that exist.
        retained: the number of checkpoints that are retained.

    Returns:
        The path of the savepoint that was deleted; None: there was nothing to delete.
    """
    if completed < retained:
        return None
    remembered = directory.read(_FILE)
    if remembered is None or remembered.get("claim_mode") != "CLAIM" or remembered.get("subsumed"):
        return None
    if remembered.get("path") is None:
        raise damaged_file(directory.path, _FILE, "it does not say which savepoint was claimed")
    path = absolute(str(remembered["path"]))
    directory.fence.check()
    _delete(path)
    directory.write(_FILE, {**remembered, "subsumed": True})
    return path


def _delete(path: str) -> None:
    """Delete a savepoint; or a checkpoint, with the tables that it shares if it is the last one that uses them."""
    if MANIFEST not in child_names(path):
        return
    manifest = read_manifest(path, whole=False)
    table = manifest.table_path(path)
    # only what flinkish has written there: whatever else somebody keeps in the directory stays
    delete_file(posixpath.join(path, MANIFEST))
    own = posixpath.dirname(table) == path
    if own:
        delete_directory(table)
    if not child_names(path):
        delete_directory(path)
    if own:
        return
    parent = posixpath.dirname(path)
    others = [name for name in child_names(parent) if _CHECKPOINT.fullmatch(name)]
    if not any(MANIFEST in child_names(posixpath.join(parent, name)) for name in others):
        delete_directory(table)
        for beside in ("changes", ENDED):
            delete_directory(joined(parent, beside))
