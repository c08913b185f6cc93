"""Whether the sources of a job can go on from their positions. ``<job dir>/sources.json`` remembers what they read.

Rule: a job goes on with the input that it has read before. If that has been deleted meanwhile, or been replaced by
something else of the same name, an error says so before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flinkish.core.source import Source
from flinkish.errors import FlinkishError
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.sources.progress import known_in

_KNOWN_SOURCES = "sources.json"


def known_sources(directory: JobDirectory) -> dict[str, dict[str, str]]:
    """Source uid -> ids of the things that it read when the job was last started (topic -> its id), which tell them
    from others of the same name."""
    found: dict[str, dict[str, str]] = (directory.read(_KNOWN_SOURCES) or {}).get("sources", {})
    return found


def continue_sources(
    job: JobDescriptor, sources: Mapping[int, Source], directory: JobDirectory, positions: Mapping[str, str]
) -> None:
    """Ask each source whether it can go on from its position, and remember what it reads.

    Args:
        sources: number of a vertex -> its source.
        positions: source uid -> position, of the sources that have one.

    Raises:
        FinalOperationError: a source cannot go on, and waiting does not help.
        ConnectionFailedError: the external system of a source does not answer.
    """
    before = known_sources(directory)
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
        directory.write(_KNOWN_SOURCES, {"sources": now})
