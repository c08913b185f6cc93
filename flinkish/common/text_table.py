"""Tables as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flinkish.errors import escaped


def aligned(rows: Iterable[Sequence[str]], ruled: bool = False) -> str:
    """Rows as lines with columns of the same width. What a cell holds stays within it. ``ruled``: below the first row
    stands a line.

    >>> print(aligned([("uid", "rows"), ("counts", "3")], ruled=True))
    uid     rows
    ------  ----
    counts  3
    """
    cells = [list(map(escaped, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if ruled:
        cells.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
