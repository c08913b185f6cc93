"""The clicks of these tests, and what counting them must give."""

from __future__ import annotations

from collections import Counter

USERS = 13


def click(index: int) -> tuple[str, bool, int]:
    """(user, logged in, index) of the click with that index; every third user is not logged in."""
    user = index * 7 % USERS
    return f"user-{user}", user % 3 != 0, index


def expected(count: int) -> dict[str, int]:
    """Clicks per user that is logged in."""
    return dict(Counter(user for user, logged_in, _ in map(click, range(count)) if logged_in))
