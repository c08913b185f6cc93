"""Looks at what sources are to go on with, before a query is started on it.

Rule: a job goes on with the input that it has read before. What has been deleted meanwhile, or been replaced by
something else of the same name, is told before anything is read. ``<job dir>/sources.json`` remembers what was read.
"""

from __future__ import annotations

from typing import Any

from flinkish.core.source import DataFrameSource, Source
from flinkish.errors import FlinkishError
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.directory.query_log import QueryLog
from flinkish.runtime.deployment import JobDescriptor
from flinkish.spark.plan import PlanOptions

_FILE = "sources.json"


def check_sources(job: JobDescriptor, sources: dict[int, Source], directory: JobDirectory, base: PlanOptions) -> None:
    """Ask each source that Spark reads whether it can go on where the query will.

    Raises:
        FinalOperationError: it cannot, and waiting does not help.
        ConnectionFailedError: nobody answers.
    """
    ordered = sorted(sources.items())
    if not any(isinstance(source, DataFrameSource) for _, source in ordered):
        return
    positions = QueryLog(directory.query_location().path).committed_positions()
    before: dict[str, Any] = (directory.read(_FILE) or {}).get("sources", {})
    now: dict[str, Any] = {}
    for index, (vertex, source) in enumerate(ordered):
        if isinstance(source, DataFrameSource):
            head = job.vertex(vertex).head
            position = positions[index] if index < len(positions) else None
            try:
                now[head.uid] = source.check_continuation(
                    position or base.start_offsets.get(vertex), before.get(head.uid, {})
                )
            except FlinkishError as error:
                error.where = "; ".join(part for part in (f"source uid {head.uid}", error.where) if part)
                raise
    if now != before:
        directory.write(_FILE, {"sources": now})
