"""Savepoints: a Delta table of all state as rows that SQL can read and edit, and a manifest with everything else.

<savepoint>/state/          Delta: uid, state, kind, key, namespace, value
<savepoint>/manifest.json   format version, job, epoch, source positions; written last: without it there is none
"""

from __future__ import annotations

import posixpath
import time
import uuid
from typing import Any

from flinkish.errors import SavepointError
from flinkish.jobmanager.directory.job_directory import JobDirectory, local_path
from flinkish.jobmanager.spark_run import SparkRun
from flinkish.runtime.phases import Phase, passed
from flinkish.spark.failures import translate
from flinkish.spark.state_reader import SAVEPOINT_SCHEMA, ChannelKinds, read_state

#: Version of the layout above.
SAVEPOINT_VERSION = 1
MANIFEST = "manifest.json"


def state_table(savepoint: str) -> str:
    """Path of the Delta table of a savepoint."""
    return posixpath.join(savepoint, "state")


def take_savepoint(run: SparkRun, directory: str | None) -> str:
    """Write a savepoint of the last committed epoch of a run; returns its path. The job may go on meanwhile."""
    attempt = run.attempt
    job, location = attempt.job, attempt.location
    epoch = attempt.committed_epoch()
    if epoch is None:
        raise SavepointError(
            "no epoch has been committed yet", where=f"job '{run.name}'", hint="try again after the first epoch"
        )
    parent = directory or run.savepoint_directory()
    positions = attempt.positions(epoch)
    path = posixpath.join(_absolute(parent), f"savepoint-{job.job_id[:6]}-{uuid.uuid4().hex[:12]}")
    where = f"job '{run.name}', savepoint {path}"
    kinds = ChannelKinds({vertex.id: (vertex.keyed, vertex.max_parallelism) for vertex in job.vertices})
    try:
        rows = read_state(run.spark, location.path, epoch - location.first_epoch, job.levels, kinds)
        if rows is None:
            rows = run.spark.createDataFrame([], SAVEPOINT_SCHEMA)
        passed(Phase.SAVEPOINT_READ, epoch=epoch)
        rows.write.format("delta").save(state_table(path))
        passed(Phase.SAVEPOINT_WRITTEN, epoch=epoch)
    except Exception as error:
        raise translate(error, where) from error
    _write_manifest(run, path, epoch, positions)
    passed(Phase.SAVEPOINT_COMPLETED, epoch=epoch)
    return path


def _absolute(path: str) -> str:
    import os

    local = local_path(path)
    return path if local is None else os.path.abspath(local)


def _write_manifest(run: SparkRun, path: str, epoch: int, positions: dict[str, str]) -> None:
    manifest = {
        "savepoint_version": SAVEPOINT_VERSION,
        "job_id": run.attempt.job.job_id,
        "job_name": run.name,
        "epoch": epoch,
        "time_ms": time.time_ns() // 1_000_000,
        "operators": sorted({d.uid for vertex in run.attempt.job.vertices for d in vertex.operators}),
        "sources": positions,
    }
    JobDirectory(path).write(MANIFEST, manifest)


def read_manifest(path: str) -> dict[str, Any]:
    """The manifest of a savepoint. SavepointError when there is none or it cannot be used."""
    local = local_path(path)
    import os

    if local is not None and not os.path.isdir(local):
        raise SavepointError(f"there is no savepoint at {path}", hint="check the path given with -s / --from-savepoint")
    manifest = JobDirectory(path).read(MANIFEST)
    if manifest is None:
        raise SavepointError(
            f"the savepoint at {path} is not complete: {MANIFEST} is missing",
            expected="a savepoint that was written to its end",
            hint="use another savepoint",
        )
    if manifest.get("savepoint_version") != SAVEPOINT_VERSION:
        raise SavepointError(
            f"the savepoint at {path} has version {manifest.get('savepoint_version')}",
            expected=f"version {SAVEPOINT_VERSION}",
            hint="restore it with the version of flinkish that wrote it",
        )
    return manifest
