"""What event-time windows must do, in plain Python: no operator, no state backend, no timers.

The models know nothing of how the operators work. They walk over the input once and keep, for each (window, key), the
elements; everything else is arithmetic on the watermark:

* an element whose window's last timestamp plus the lateness is not above the watermark is late;
* an element of a window that the watermark has passed otherwise makes the window fire again, at once;
* when the watermark rises, the windows whose last timestamp it reaches fire, the earliest first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MIN_WATERMARK = -(2**63)


class Element(NamedTuple):
    """A record of the input."""

    key: Any
    value: Any
    timestamp: int


class Watermark(NamedTuple):
    """The watermark rises."""

    timestamp: int


class Fired(NamedTuple):
    """A window is evaluated: these elements, in the order of their arrival."""

    key: Any
    start: int
    end: int
    elements: tuple[Any, ...]


@dataclass
class AlignedModel:
    """Windows ``[start, start + size)`` with ``start = offset (mod slide)``; the slide of tumbling windows is the size.

    >>> m = AlignedModel(size=10, slide=10)
    >>> m.run([Element("a", 1, 3), Element("a", 2, 12), Element("a", 3, 4), Watermark(9), Element("a", 4, 5)])
    >>> m.fired, m.late
    ([Fired(key='a', start=0, end=10, elements=(1, 3))], [Element(key='a', value=4, timestamp=5)])
    """

    size: int
    slide: int
    offset: int = 0
    lateness: int = 0
    watermark: int = MIN_WATERMARK
    fired: list[Fired] = field(default_factory=list)
    late: list[Element] = field(default_factory=list)
    #: (start, key) -> elements
    windows: dict[tuple[int, Any], list[Any]] = field(default_factory=dict)

    def run(self, events: list[Element | Watermark]) -> None:
        """Take in elements and watermarks in this order."""
        for event in events:
            if isinstance(event, Watermark):
                self._rise(event.timestamp)
            else:
                self._add(event)

    def starts(self, timestamp: int) -> list[int]:
        """The windows that hold a timestamp, the last one first."""
        candidates = range(timestamp, timestamp - self.size, -1)
        return [start for start in candidates if (start - self.offset) % self.slide == 0]

    def _add(self, element: Element) -> None:
        taken = False
        for start in self.starts(element.timestamp):
            last = start + self.size - 1
            if last + self.lateness <= self.watermark:
                continue
            taken = True
            self.windows.setdefault((start, element.key), []).append(element.value)
            if last <= self.watermark:
                self._fire(start, element.key)
        if not taken and element.timestamp + self.lateness <= self.watermark:
            self.late.append(element)

    def _rise(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        # sorted() is stable: keys of one window in the order in which they came to it
        for start, key in sorted(self.windows, key=lambda window: window[0]):
            if self.watermark < start + self.size - 1 <= watermark:
                self._fire(start, key)
        self.watermark = watermark
        alive = {w: e for w, e in self.windows.items() if w[0] + self.size - 1 + self.lateness > watermark}
        self.windows = alive

    def _fire(self, start: int, key: Any) -> None:
        self.fired.append(Fired(key, start, start + self.size, tuple(self.windows[start, key])))


@dataclass
class Session:
    """An open session. ``since``: the number of the element that gave it this start and end."""

    key: Any
    start: int
    end: int
    elements: list[Any]
    since: int


@dataclass
class SessionModel:
    """Sessions ``[timestamp, timestamp + gap of the element)``; those that overlap or touch are one.

    >>> m = SessionModel(gap=lambda value: 5)
    >>> m.run([Element("a", 1, 0), Element("a", 2, 10), Element("a", 3, 5), Element("a", 4, 30), Watermark(20)])
    >>> m.fired
    [Fired(key='a', start=0, end=15, elements=(1, 2, 3))]
    """

    gap: Callable[[Any], int]
    lateness: int = 0
    watermark: int = MIN_WATERMARK
    fired: list[Fired] = field(default_factory=list)
    late: list[Element] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    count: int = 0

    def run(self, events: list[Element | Watermark]) -> None:
        """Take in elements and watermarks in this order."""
        for event in events:
            if isinstance(event, Watermark):
                self._rise(event.timestamp)
            else:
                self._add(event)

    def _add(self, element: Element) -> None:
        self.count += 1
        start, end = element.timestamp, element.timestamp + self.gap(element.value)
        # all open sessions are apart from each other: only those that the new one touches become one
        joined = [s for s in self.sessions if s.key == element.key and s.start <= end and s.end >= start]
        joined.sort(key=lambda session: session.start)
        if not joined and end - 1 + self.lateness <= self.watermark:
            if element.timestamp + self.lateness <= self.watermark:
                self.late.append(element)
            return
        start, end = min([start, *(s.start for s in joined)]), max([end, *(s.end for s in joined)])
        elements = [value for session in joined for value in session.elements]
        same = [session.since for session in joined if (session.start, session.end) == (start, end)]
        session = Session(element.key, start, end, [*elements, element.value], same[0] if same else self.count)
        self.sessions = [s for s in self.sessions if s not in joined] + [session]
        if end - 1 <= self.watermark:
            self._fire(session)

    def _rise(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        for session in sorted(self.sessions, key=lambda s: (s.end, s.since)):
            if self.watermark < session.end - 1 <= watermark:
                self._fire(session)
        self.watermark = watermark
        self.sessions = [s for s in self.sessions if s.end - 1 + self.lateness > watermark]

    def _fire(self, session: Session) -> None:
        self.fired.append(Fired(session.key, session.start, session.end, tuple(session.elements)))
