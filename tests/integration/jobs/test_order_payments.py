"""Orders and payments, as users start the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clicks import sqlite_rows
from tests.support.orders import expected_statuses, expected_strays
from tests.support.submit import submit

ORDERS = 60_000


@pytest.mark.slow
def test_without_servers_orders_and_payments_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    arguments = ("--events", str(ORDERS), "--output", str(file), "--parallelism", "3")
    with submit("order_payments", *arguments, log_file=tmp_path / "job.log") as job:
        output = job.succeed(300)
    rows = sqlite_rows(file, "SELECT order_id, status, waited_ms FROM orders")
    assert {order_id: tuple(rest) for order_id, *rest in rows} == expected_statuses(ORDERS)
    strays = expected_strays(ORDERS)
    assert dict(sqlite_rows(file, "SELECT order_id, amount FROM stray_payments")) == strays
    assert f"{len(strays):,} payments had no order in time" in output
