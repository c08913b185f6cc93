"""What executions have done per second of the last minute, from totals that are looked at now and then.

Rule: what is kept does not grow with time: the totals of all executions at `_SAMPLES` moments of the last minute.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from flinkish.jobmanager.job.description import RatesDescription

#: The time over which rates are taken, in ms (Flink's MeterView).
SPAN_MS = 60_000

#: The number of moments that are kept of it.
_SAMPLES = 12


class Totals(NamedTuple):
    """The totals of an execution: records, bytes, milliseconds of work, and milliseconds in which it was held back."""

    records_in: float = 0.0
    records_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    busy_ms: float = 0.0
    backpressured_ms: float = 0.0


NO_TOTALS = Totals()
_IDLE = RatesDescription(idle_ms=1000.0)


class Rates:
    """The rates of executions, which are numbered from 0."""

    def __init__(self) -> None:
        #: (time in ms, the totals of all executions one behind the other), the oldest first
        self._samples: deque[tuple[int, array[float]]] = deque()

    def begin(self, now_ms: int, executions: int) -> None:
        """Forget what was, since executions begin anew, with totals of 0."""
        self._samples.clear()
        self._samples.append((now_ms, array("d", bytes(8 * len(NO_TOTALS) * executions))))

    def look(self, now_ms: int, totals: Iterable[Totals]) -> None:
        """Keep the totals of all executions, unless that was done a moment ago; ``totals`` is then not iterated."""
        samples = self._samples
        if samples and 0 <= now_ms - samples[-1][0] < SPAN_MS // _SAMPLES:
            return
        while samples and now_ms < samples[-1][0]:
            # the clock was set back
            samples.pop()
        samples.append((now_ms, array("d", [value for each in totals for value in each])))
        while len(samples) > 1 and samples[1][0] <= now_ms - SPAN_MS:
            samples.popleft()

    def now(self, totals: Iterable[tuple[int | None, Totals]]) -> list[RatesDescription | None]:
        """The rates of all executions, given their totals and up to when these are known; None: not at all."""
        return [None if until_ms is None else self._of(n, until_ms, each) for n, (until_ms, each) in enumerate(totals)]

    def _of(self, number: int, until_ms: int, totals: Totals) -> RatesDescription | None:
        before = self._before(until_ms)
        if before is None or until_ms <= before[0]:
            return None
        seconds = max((until_ms - before[0]) / 1000, 1.0)
        return _rates(totals, before[1], number * len(NO_TOTALS), seconds)

    def _before(self, now_ms: int) -> tuple[int, array[float]] | None:
        """The totals to begin from: the first ones of the last minute, or the last ones before it if an epoch takes
        longer."""
        within = (one for one in self._samples if now_ms - SPAN_MS <= one[0] < now_ms)
        return next(within, None) or next((one for one in reversed(self._samples) if one[0] < now_ms), None)


def _rates(totals: Totals, then: array[float], begin: int, seconds: float) -> RatesDescription:
    before = Totals(*then[begin : begin + len(NO_TOTALS)])
    if totals == before:
        # it has done nothing, as most of many
        return _IDLE
    done = Totals(*(max(now - was, 0.0) / seconds for now, was in zip(totals, before)))
    busy_ms = min(done.busy_ms, 1000.0)
    held_ms = min(done.backpressured_ms, 1000.0 - busy_ms)
    return RatesDescription(*done[:4], busy_ms, held_ms, 1000.0 - busy_ms - held_ms)
