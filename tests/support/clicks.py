"""What the programs in ``jobs/`` must give, computed from the input in plain Python."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from flinkish.examples.clicks import AMOUNT, LOGGED_IN, PAGE, TS, USER_ID
from flinkish.examples.country_service import country_of

MINUTE_MS = 60_000


def expected_counts(clicks: Iterable[Sequence[Any]]) -> dict[str, int]:
    """Clicks per user, of those that were logged in."""
    return dict(Counter(click[USER_ID] for click in clicks if click[LOGGED_IN]))


def expected_views(clicks: Iterable[Sequence[Any]]) -> dict[tuple[str, int], tuple[int, float]]:
    """(page, start of the minute) -> (views, sum of amounts)."""
    views: dict[tuple[str, int], tuple[int, float]] = {}
    for click in clicks:
        minute = (click[PAGE], click[TS] // MINUTE_MS * MINUTE_MS)
        count, amount = views.get(minute, (0, 0.0))
        views[minute] = (count + 1, amount + click[AMOUNT])
    return views


def expected_sales(clicks: Iterable[Sequence[Any]]) -> dict[str, int]:
    """Cents per country of the user."""
    sales: Counter[str] = Counter()
    for click in clicks:
        sales[country_of(click[USER_ID]) or "unknown"] += round(click[AMOUNT] * 100)
    return dict(sales)


def sqlite_rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """Rows of a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()
