"""The end offsets of the sources of a query after an epoch, in the form in which Spark writes them."""

from __future__ import annotations

import json
from typing import Any

from flinkish.jobmanager.directory.job_directory import QueryLocation
from flinkish.jobmanager.directory.query_log import QueryLog


def end_offsets(query: Any, location: QueryLocation, epoch: int) -> list[str | None]:
    """The end offset of each input of the plan, as Spark writes it; None for an input that had nothing to read yet.

    ``query``: the attempt's query, whose last progress is asked first, then the query's log; None: no query has been
    started in this attempt.
    """
    # not its recent progress, which is a hundred texts to parse
    progress = query.lastProgress if query is not None else None
    if progress is not None:
        batch = int(progress["batchId"]) + location.first_epoch
        # the next batch starts where this one ended, even if it has nothing to read
        if batch in (epoch, epoch + 1):
            edge = "endOffset" if batch == epoch else "startOffset"
            return [_text(source[edge]) for source in progress["sources"]]
    # its last progress is that of another epoch
    return [_text(end) for end in QueryLog(location.path).positions(epoch - location.first_epoch)]


def _text(offset: Any) -> str | None:
    if offset is None or offset == "null":
        return None
    return offset if isinstance(offset, str) else json.dumps(offset)
