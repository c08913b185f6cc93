"""What tumbling event-time windows must do, in plain Python: no operator, no state backend, no timers.

The model knows nothing of how the operator works. It walks over the input once and keeps, for each (window, key), the
elements; everything else is arithmetic on the watermark:

* an element whose window's last timestamp plus the lateness is not above the watermark is late;
* an element of a window that the watermark has passed otherwise makes the window fire again, at once;
* when the watermark rises, the windows whose last timestamp it reaches fire, the earliest first.
"""

from __future__ import annotations

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
class TumblingModel:
    """Windows ``[start, start + size)`` with ``start = offset (mod size)``.

    >>> m = TumblingModel(size=10)
    >>> m.run([Element("a", 1, 3), Element("a", 2, 12), Element("a", 3, 4), Watermark(9), Element("a", 4, 5)])
    >>> m.fired, m.late
    ([Fired(key='a', start=0, end=10, elements=(1, 3))], [Element(key='a', value=4, timestamp=5)])
    """

    size: int
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

    def _add(self, element: Element) -> None:
        start = self.offset + (element.timestamp - self.offset) // self.size * self.size
        last = start + self.size - 1
        if last + self.lateness <= self.watermark:
            self.late.append(element)
            return
        self.windows.setdefault((start, element.key), []).append(element.value)
        if last <= self.watermark:
            self._fire(start, element.key)

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
