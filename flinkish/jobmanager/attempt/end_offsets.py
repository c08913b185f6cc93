"""Where the sources of a query stood after an epoch, in Spark's words."""

from __future__ import annotations

import json
from typing import Any

from flinkish.jobmanager.directory.job_directory import QueryLocation
from flinkish.jobmanager.directory.query_log import QueryLog


def end_offsets(query: Any, location: QueryLocation, epoch: int) -> list[str | None]:
    """Of each source of the plan, as Spark writes it; None: it had nothing to read yet.

    ``query`` None: it has not been started in this attempt.
    """
    for progress in reversed(query.recentProgress if query is not None else []):
        batch = int(progress["batchId"]) + location.first_epoch
        # the one that follows begins where this one ended, also when it has nothing to read
        if batch in (epoch, epoch + 1):
            edge = "endOffset" if batch == epoch else "startOffset"
            return [_text(source[edge]) for source in progress["sources"]]
    # nothing has happened in this attempt
    return [_text(end) for end in QueryLog(location.path).positions(epoch - location.first_epoch)]


def _text(offset: Any) -> str | None:
    if offset is None or offset == "null":
        return None
    return offset if isinstance(offset, str) else json.dumps(offset)
