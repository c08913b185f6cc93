"""What some programs of ``jobs/`` must give, computed from their input in plain Python."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

from flinkish.examples import sensors
from jobs import abandoned_carts, iot_alerts, word_count


def expected_words(lines: int) -> list[tuple[Any, ...]]:
    """Rows of the table word_counts, in order."""
    text = " ".join(word_count.line(index) for index in range(lines))
    return sorted(Counter(re.findall(r"\w+", text.lower())).items())


def expected_reminders(events: int, customers: int) -> list[tuple[Any, ...]]:
    """Rows of the table reminders, in order."""
    patience_ms = abandoned_carts.PATIENCE.to_milliseconds()
    carts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    rows = []

    def leave(customer: str) -> None:
        cart = carts.pop(customer)
        rows.append((customer, cart[-1][1], len(cart), sum(cents for cents, _ in cart)))

    for index in range(events):
        customer, cents, ts = abandoned_carts.event(customers, index)
        if customer in carts and ts > carts[customer][-1][1] + patience_ms:
            leave(customer)
        if cents == abandoned_carts.PAID:
            carts.pop(customer, None)
        else:
            carts[customer].append((cents, ts))
    for customer in list(carts):
        leave(customer)
    return sorted(rows)


def expected_alerts(events: int, number: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Rows of the tables alerts and broken_sensors, in order."""
    size_ms = iot_alerts.WINDOW.to_milliseconds()
    windows: dict[tuple[str, int], list[float]] = defaultdict(list)
    broken: Counter[str] = Counter()
    for gateway, readings in zip(sensors.GATEWAYS, (events // 2, events // 4), strict=True):
        for index in range(readings):
            sensor, celsius, ts = sensors.reading(gateway, number, index)
            if celsius < -90:
                broken[sensor] += 1
            else:
                windows[sensor, ts // size_ms * size_ms].append(celsius)
    alerts = [
        (sensor, start, round(sum(found) / len(found), 1), len(found))
        for (sensor, start), found in windows.items()
        if sum(found) / len(found) > iot_alerts.TOO_HOT
    ]
    return sorted(alerts), sorted(broken.items())
