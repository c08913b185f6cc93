"""How figures are shown to people: times with their zone and how long ago they were, durations, sizes, and tables.

Rule: what is not known is "-" or said in a word; no number stands for something else. No text of a program can steer
the terminal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo

from flinkish.errors import escaped, shortened

#: What stands for a figure that is not known.
UNKNOWN = "-"
#: The watermarks that stand for none yet, and for the end of the input.
_NONE_MS, _END_MS = -(2**63), 2**63 - 1
#: The most characters of a cell of a table.
_WIDEST = 100


def time(time_ms: float | None, zone: tzinfo | None = None) -> str:
    """A time of the calendar with its zone; ``zone``: by default that of this machine.

    >>> from datetime import timezone
    >>> time(1_800_000_000_000, timezone.utc)
    '2027-01-15 08:00:00 UTC'
    """
    if time_ms is None:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms:.0f} ms after 1970"


def time_and_age(time_ms: float | None, now_ms: float, zone: tzinfo | None = None) -> str:
    """A time, and how long ago it was."""
    return UNKNOWN if time_ms is None else f"{time(time_ms, zone)} ({age(time_ms, now_ms)})"


def age(time_ms: float | None, now_ms: float) -> str:
    """How long ago a time was.

    >>> age(0, 90_000), age(5, 0)
    ('1 min 30 s ago', 'just now')
    """
    if time_ms is None:
        return UNKNOWN
    return f"{duration(now_ms - time_ms)} ago" if now_ms - time_ms >= 1 else "just now"


def duration(duration_ms: float | None) -> str:
    """A duration in its two largest units.

    >>> [duration(ms) for ms in (None, 4, 1_240, 61_000, 7_500_000, 200_000_000)]
    ['-', '4 ms', '1.2 s', '1 min 1 s', '2 h 5 min', '2 d 7 h']
    """
    if duration_ms is None:
        return UNKNOWN
    if duration_ms < 1_000:
        return f"{duration_ms:.0f} ms"
    seconds = int(duration_ms / 1_000)
    if seconds < 60:
        return f"{duration_ms / 1_000:.1f} s"
    for unit, of_next, next_unit, seconds_of in (("min", 60, "s", 60), ("h", 60, "min", 3_600), ("d", 24, "h", 86_400)):
        if unit == "d" or seconds < seconds_of * (60 if unit == "min" else 24):
            rest = seconds % seconds_of // (seconds_of // of_next)
            return f"{seconds // seconds_of} {unit}" + (f" {rest} {next_unit}" if rest else "")
    raise AssertionError("a day has no next unit")


def watermark(watermark_ms: int | None, zone: tzinfo | None = None) -> str:
    """A watermark as a time.

    >>> watermark(None), watermark(-(2**63)), watermark(2**63 - 1)
    ('none', 'none', 'end of input')
    """
    if watermark_ms is None or watermark_ms <= _NONE_MS:
        return "none"
    return "end of input" if watermark_ms >= _END_MS else time(watermark_ms, zone)


def number(value: float | None) -> str:
    """A number with separators.

    >>> number(1234567), number(0.25), number(None), number(float("nan"))
    ('1,234,567', '0.2', '-', '-')
    """
    if isinstance(value, int):
        return f"{value:,}"
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:,.1f}"


def size(size_bytes: float | None) -> str:
    """A number of bytes.

    >>> size(512), size(1_500), size(3 << 30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    if size_bytes is None:
        return UNKNOWN
    value, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = next(units)
    while value >= 1_024 and (larger := next(units, None)):
        value, unit = value / 1_024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def one_line(value: object, most: int = _WIDEST) -> str:
    """A text of a program in one line that does not steer the terminal, shortened in its midst."""
    return shortened(escaped(str(value)), most)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "  ") -> list[str]:
    """The lines of a table; columns whose head begins with a blank are aligned to the right. The last column may be of
    any width.

    >>> print("\\n".join(table(("name", " n"), [("a", 1), ("longer", 20)])))
      name     n
      a        1
      longer  20
    """
    cells = [
        [one_line(cell, _WIDEST if place + 1 < len(heads) else 1_000) for place, cell in enumerate(row)] for row in rows
    ]
    heads, right = [head.strip() for head in heads], [head.startswith(" ") for head in heads]
    widths = [max(len(row[place]) for row in (heads, *cells)) for place in range(len(heads))]
    return [
        (
            indent
            + "  ".join(
                cell.rjust(width) if of_right else cell.ljust(width)
                for cell, width, of_right in zip(row, widths, right)
            )
        ).rstrip()
        for row in (heads, *cells)
    ]
