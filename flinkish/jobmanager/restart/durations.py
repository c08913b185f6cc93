"""Durations as text for people."""

from __future__ import annotations


def seconds(duration_ms: int) -> str:
    """A duration in seconds, without trailing zeros.

    >>> seconds(1500), seconds(60_000), seconds(7)
    ('1.5 s', '60 s', '0.007 s')
    """
    return f"{duration_ms / 1000:.3f}".rstrip("0").rstrip(".") + " s"
