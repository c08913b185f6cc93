"""What the job of orders and payments must give, computed from the input in plain Python."""

from __future__ import annotations

from flinkish.examples.orders import orders_of, payments_of
from jobs.order_payments import TIMEOUT_MS


def expected_statuses(count: int) -> dict[str, tuple[str, int]]:
    """Order -> (status, how long it took)."""
    paid = {payment[0]: payment for payment in payments_of(range(count))}
    statuses = {}
    for order_id, amount, ts in orders_of(range(count)):
        payment = paid.get(order_id)
        if payment is None or payment[2] - ts > TIMEOUT_MS:
            statuses[order_id] = "unpaid", TIMEOUT_MS
        else:
            statuses[order_id] = "paid" if payment[1] >= amount else "underpaid", payment[2] - ts
    return statuses


def expected_strays(count: int) -> dict[str, float]:
    """Order of a payment that came too late or is for none -> its amount."""
    ordered = {order[0]: order[2] for order in orders_of(range(count))}
    return {
        order_id: amount
        for order_id, amount, ts in payments_of(range(count))
        if order_id not in ordered or ts - ordered[order_id] > TIMEOUT_MS
    }
