"""What can be said of a job: frozen values that every view (REST, command line, pages, notebooks) renders.

Rule: ``describe()`` is the one source. A view adds nothing and computes nothing that another view would compute too.
Times are milliseconds since the epoch of 1970, durations milliseconds; None: not known, or not yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CheckpointDescription:
    """One barrier that became, or should have become, a checkpoint or a savepoint."""

    id: int
    #: the epoch at whose end the barrier stood
    epoch: int
    #: PENDING, COMPLETED, FAILED
    status: str
    trigger_time_ms: int
    #: from the trigger to completion or failure
    duration_ms: int | None = None
    is_savepoint: bool = False
    #: only what had changed was written
    incremental: bool = False
    #: where it can be restored from
    path: str | None = None
    #: rows written to the state table
    rows_written: int = 0
    #: operator uid -> bytes of its state, as the tasks hold it
    state_bytes: dict[str, int] = field(default_factory=dict)
    #: source uid -> position behind the last record of the epoch
    offsets: dict[str, str] = field(default_factory=dict)
    #: operator uid -> watermark
    watermarks: dict[str, int] = field(default_factory=dict)
    failure_reason: str | None = None
