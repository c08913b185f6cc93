"""The input of the big job: two sources, three kinds of records, keys that come and go.

Event time is cut so that what the job puts out does not depend on how the sources are interleaved, on epochs or on
parallelism: nothing that decides about a window or a timer happens within SKEW_MS, by which two inputs may be apart.
Record i of a source belongs to split i % 2, and so does its key: records of one key and source have an order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flinkish.common.watermark_strategy import TimestampAssigner

SOURCES = ("a", "b")
SPLITS = 2
PER_EPOCH = 40
EPOCHS = 36
RECORDS = PER_EPOCH * EPOCHS
KEYS = 12

#: An epoch's share of event time, and what jitter and strategy add to it.
SKEW_MS = 50_000
OUT_OF_ORDER_MS = 5_000
JITTER_MS = 3_000
WINDOW_MS = 200_000
LATENESS_MS = 300_000
#: A key is silent for this long and its life is over. Records of a living key come far closer, bursts far apart.
GAP_MS = 60_000
#: Records in which the same keys are active; a key is active in two of three blocks.
BLOCK = 160

ON_TIME, LATE, TOO_LATE = "on time", "late", "too late"


class Event(NamedTuple):
    """``at_ms``: when it comes; ``time_ms``: its event time; ``burst``: which life of its key it belongs to."""

    source: str
    position: int
    key: int
    kind: str
    at_ms: int
    time_ms: int
    amount: int
    burst: str

    @property
    def id(self) -> str:
        """Unique over both sources."""
        return f"{self.source}{self.position}"


def event(source: str, index: int) -> Event:
    """Record ``index`` of a source."""
    block, slot = index // BLOCK, _slot(index)
    at_ms = index * 1000 + (500 if source == "b" else 0)
    kind, time_ms = _time(source, index, at_ms)
    amount = 1 + index * 7 % 31
    return Event(source, index, 2 * slot + index % 2, kind, at_ms, time_ms, amount, str((slot + block) // 3))


def _slot(index: int) -> int:
    block = index // BLOCK
    active = [slot for slot in range(KEYS // 2) if (slot + block) % 3]
    return active[index // 2 % len(active)]


def _time(source: str, index: int, at_ms: int) -> tuple[str, int]:
    window, phase_ms = divmod(at_ms, WINDOW_MS)
    if index % 23 == 5 and at_ms >= 700_000:
        return TOO_LATE, at_ms - 700_000
    # only one source, or the firings of a window would not have an order; in the middle of the next window
    if source == "a" and index % 3 == 1 and window and 80_000 <= phase_ms < 120_000:
        return LATE, window * WINDOW_MS - WINDOW_MS // 2
    return ON_TIME, max(0, at_ms - index * 1237 % JITTER_MS)


def window_start(time_ms: int) -> int:
    """The window of a time."""
    return time_ms // WINDOW_MS * WINDOW_MS


class EventTime(TimestampAssigner):
    """Event time is a field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.time_ms)
