"""Orders and payments in the minicluster, against a plain loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.examples.options import parse, run_sql
from flinkish.examples.orders import generated_orders, generated_payments, order_watermarks, payment_watermarks
from jobs import order_payments
from tests.support.clicks import sqlite_rows
from tests.support.orders import expected_statuses, expected_strays
from tests.support.programs import new_environment

ORDERS = 2_500


@pytest.mark.parametrize("settings", [{}, {"flinkish.epoch.max-records-per-source": "300"}])
def test_each_order_and_each_stray_payment_is_told_once(tmp_path: Path, settings: dict[str, str]) -> None:
    file = tmp_path / "orders.db"
    database = parse("order-payments", "", ["--output", str(file)]).database
    run_sql(database, order_payments.CREATE_ORDERS, order_payments.CREATE_PAYMENTS)
    env = new_environment(2, **settings)
    orders = env.from_source(generated_orders(ORDERS, splits=2), order_watermarks(), "orders")
    payments = env.from_source(generated_payments(ORDERS), payment_watermarks(), "payments")
    order_payments.build(orders, payments, *order_payments.sinks(database))
    env.execute("order-payments")

    expected = expected_statuses(ORDERS)
    assert {status for status, _ in expected.values()} == {"paid", "underpaid", "unpaid"}
    rows = sqlite_rows(file, "SELECT order_id, status, waited_ms FROM orders")
    assert {order_id: rest for order_id, *rest in rows} == {order: list(status) for order, status in expected.items()}
    assert dict(sqlite_rows(file, "SELECT order_id, amount FROM stray_payments")) == expected_strays(ORDERS)
