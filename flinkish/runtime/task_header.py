"""The header of a subtask's stored state: the small part that is read in every epoch, while the body is decoded only
when needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import OriginProgress
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads

#: Version of the stored form of header and body. It must be raised with every incompatible change.
STATE_FORMAT_VERSION = 3


#: How long an origin must have been silent before it counts as one that holds the watermark back, in ms.
SILENT_MS = 30_000
#: The most silent origins that a task names.
_MOST_NAMED = 10


def silent_origins(origins: Mapping[str, OriginProgress], now_ms: int) -> dict[str, int]:
    """The origins that hold the watermark of a subtask back because nothing comes from them, each with the time in ms
    since it was active; those with the lowest watermarks first, and not more than a message can name.

    Such an origin is neither idle nor at its end, no other active one has a lower watermark, some have higher ones, and
    it has been silent for `SILENT_MS`.

    >>> silent_origins({"0/a": OriginProgress(0, 5, False, 0), "0/b": OriginProgress(0, 9, False, 40_000)}, 40_000)
    {'0/a': 40000}
    """
    active = [
        (progress.watermark_ms, name, now_ms - progress.last_active_ms)
        for name, progress in origins.items()
        if not progress.idle and progress.watermark_ms < MAX_WATERMARK_MS
    ]
    lowest_ms = min(active)[0] if active else MAX_WATERMARK_MS
    if all(watermark_ms == lowest_ms for watermark_ms, _, _ in active):
        return {}
    silent = sorted((name, ms) for watermark_ms, name, ms in active if watermark_ms == lowest_ms and ms >= SILENT_MS)
    return dict(silent[:_MOST_NAMED])


@dataclass(frozen=True)
class TaskHeader:
    """The part of a subtask's state that is not in its body. ``token`` identifies one written version of the state, so
    that a worker can tell whether the decoded state in its memory is that version."""

    uid: str
    vertex: int
    subtask: int
    token: bytes = b""
    epoch: int = -1
    #: parallelism of the vertex in that epoch
    parallelism: int = 1
    watermark_ms: int = MIN_TIMESTAMP_MS
    idle: bool = False
    finished: bool = False
    origins: dict[str, OriginProgress] = field(default_factory=dict)
    #: the watermark of each input of ``connect``, and of each source that is united with other streams
    group_watermarks_ms: dict[tuple[Any, ...], int] = field(default_factory=dict)
    #: processing time of the subtask's last epoch; it never goes back, even if the clock does
    processing_time_ms: int = 0
    #: operator uid -> what `OperatorChain.end` has saved: the value of `StreamOperator.save` and the output watermark
    saved: dict[str, Any] = field(default_factory=dict)

    def encode(self, classes: ProgramClasses = NO_CLASSES) -> bytes:
        """Encode the header for storage."""
        values = dict(self.__dict__)
        values["origins"] = {name: tuple(progress) for name, progress in self.origins.items()}
        return dumps(values, STATE_FORMAT_VERSION, classes)

    @staticmethod
    def decode(data: bytes, where: str = "", classes: ProgramClasses = NO_CLASSES) -> TaskHeader:
        """The inverse of `encode`."""
        values = loads(data, STATE_FORMAT_VERSION, "the header of a subtask's state", where, classes)
        values["origins"] = {name: OriginProgress(*parts) for name, parts in values["origins"].items()}
        return TaskHeader(**values)

    def with_changes(self, **changes: Any) -> TaskHeader:
        """A copy with some fields replaced."""
        return replace(self, **changes)
