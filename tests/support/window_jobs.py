"""What the jobs with windows must give, computed from the input in plain Python."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from jobs import sessionization, top_products

EVENTS, USERS = 40_000, 1_200


def expected_visits(events: int = EVENTS, users: int = USERS) -> list[tuple[Any, ...]]:
    """Rows of the table visits, in order."""
    gap_ms = sessionization.GAP.to_milliseconds()
    by_visitor: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for index in range(events):
        visitor, page, ts = sessionization.click(users, index)
        by_visitor[visitor].append((ts, page))
    visits = []
    for visitor, clicks in by_visitor.items():
        begin = 0
        clicks.sort()
        for position in range(1, len(clicks) + 1):
            if position == len(clicks) or clicks[position][0] - clicks[position - 1][0] > gap_ms:
                first, last = clicks[begin], clicks[position - 1]
                visits.append((visitor, first[0], last[0], position - begin, first[1], last[1]))
                begin = position
    assert len(visits) > len(by_visitor)
    return sorted(visits)


def expected_top(events: int = EVENTS, users: int = USERS) -> list[tuple[Any, ...]]:
    """Rows of the table top_products, in order."""
    size_ms, slide_ms = top_products.SIZE.to_milliseconds(), top_products.SLIDE.to_milliseconds()
    sums: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for index in range(events):
        product, _, cents, ts = top_products.sale(users, index)
        first_end = ts // slide_ms * slide_ms + slide_ms
        for window_end in range(first_end, first_end + size_ms, slide_ms):
            sums[window_end][product] += cents
    rows = []
    for window_end, of_window in sums.items():
        best = sorted(of_window.items(), key=lambda item: (-item[1], item[0]))[: top_products.PLACES]
        rows += [(window_end, place, product, cents) for place, (product, cents) in enumerate(best, 1)]
    return sorted(rows)
