"""Binary search for positions (hash, entry_hash) in sorted columns, for many positions at once."""

from __future__ import annotations

import numpy as np

from flinkish.runtime.state.files.references import END, Position
from flinkish.runtime.state.files.rows import Array, Rows


def lower_bounds(hashes: Array, entry_hashes: Array, of_hashes: Array, of_entry_hashes: Array) -> Array:
    """For each of the positions (``of_hashes``, ``of_entry_hashes``) the index of the first row that is not below it.
    The columns are sorted by (hash, entry_hash)."""
    low = np.searchsorted(hashes, of_hashes, "left")
    if not of_entry_hashes.any():
        return low
    high = np.searchsorted(hashes, of_hashes, "right")
    while (searching := low < high).any():
        middle = (low + high) >> 1
        below = entry_hashes[np.minimum(middle, len(hashes) - 1)] < of_entry_hashes
        low = np.where(searching & below, middle + 1, low)
        high = np.where(searching & ~below, middle, high)
    return low


def lower_bound(hashes: Array, entry_hashes: Array, position: Position) -> int:
    """`lower_bounds` for a single position."""
    if position >= END:
        return len(hashes)
    of_hash, of_entry_hash = np.array([position[0]], np.uint64), np.array([position[1]], np.uint64)
    return int(lower_bounds(hashes, entry_hashes, of_hash, of_entry_hash)[0])


def between(rows: Rows, start: Position, stop: Position) -> tuple[int, int]:
    """The range of indices of the rows of a file with ``start`` <= position < ``stop``."""
    return lower_bound(rows.hash, rows.entry_hash, start), lower_bound(rows.hash, rows.entry_hash, stop)


def places_of_ranges(starts: Array, stops: Array) -> Array:
    """All indices in these ranges, one range after the other; the stops are exclusive."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Array = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return places
