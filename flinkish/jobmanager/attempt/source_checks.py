"""Checks that sources and sinks can go on from where the job is, before a query is started.

Rule: a job goes on with the input that it has read before. If that has been deleted meanwhile, or been replaced by
something else of the same name, an error says so before anything is read. ``<job dir>/sources.json`` remembers what was
read. And it goes on behind the last epoch that its sinks have: in a directory that was put back from an older copy,
sinks would take new records for those that they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flinkish.core.source import Source
from flinkish.errors import FlinkishError
from flinkish.jobmanager.attempt.query_inputs import source_positions
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.directory.query_log import QueryLog
from flinkish.jobmanager.recovery.query_traces import read_traces
from flinkish.runtime.committing import check_sinks
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.sources.positions import known_in
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.spark.plan import PlanOptions

_FILE = "sources.json"


def check_committed(spark: Any, job: JobDescriptor, directory: JobDirectory) -> None:
    """Ask each sink, once per driver, whether it has an epoch that this directory does not know.

    Raises:
        FinalOperationError: one has, so the directory is older than the job's output.
        ConnectionFailedError: the external system of a sink does not answer.
    """
    # nobody has committed anything under the id of a job that is started for the first time
    if job.attempt == 0 or directory.sinks_checked:
        return
    location = directory.query_location()
    delivered = read_traces(location).last_delivered
    check_sinks(job, max(location.first_epoch - 1, -1 if delivered is None else delivered), spark)
    directory.sinks_checked = True


def known_sources(directory: JobDirectory) -> dict[str, dict[str, str]]:
    """Source uid -> ids of the things that it read when the job was last started (topic -> its id), which tell them
    from others of the same name."""
    found: dict[str, dict[str, str]] = (directory.read(_FILE) or {}).get("sources", {})
    return found


def check_sources(
    job: JobDescriptor, sources: Mapping[int, Source], directory: JobDirectory, base: PlanOptions
) -> None:
    """Ask each source whether it can go on from the position at which the query will, and remember what it reads.

    Raises:
        FinalOperationError: a source cannot go on, and waiting does not help.
        ConnectionFailedError: the external system of a source does not answer.
    """
    ends = QueryLog(directory.query_location().path).committed_positions()
    before = known_sources(directory)
    positions = {**base.positions, **source_positions(job, sources, ends, SegmentFiles(directory.path), before)}
    now: dict[str, Any] = {}
    for vertex, source in sorted(sources.items()):
        uid = job.vertex(vertex).head.uid
        try:
            known = source.check_continuation(positions.get(uid), before.get(uid) or known_in(positions.get(uid)))
        except FlinkishError as error:
            error.where = "; ".join(part for part in (f"source uid {uid}", error.where) if part)
            raise
        if known:
            now[uid] = known
    if now != before:
        directory.write(_FILE, {"sources": now})
