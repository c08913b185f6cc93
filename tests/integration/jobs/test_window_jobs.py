"""Visits and best-selling products, as users start them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.clicks import sqlite_rows
from tests.support.submit import submit
from tests.support.window_jobs import EVENTS, USERS, expected_top, expected_visits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job_name", "table", "expected", "told"),
    [
        ("sessionization", "visits", expected_visits, f"visits of {EVENTS:,} clicks"),
        ("top_products", "top_products", expected_top, "windows, in the table"),
    ],
)
def test_without_servers_the_results_are_those_of_a_plain_loop(
    tmp_path: Path, job_name: str, table: str, expected: Any, told: str
) -> None:
    file = tmp_path / "out.db"
    arguments = ("--events", str(EVENTS), "--users", str(USERS), "--output", str(file), "--parallelism", "2")
    with submit(job_name, *arguments, log_file=tmp_path / "job.log") as job:
        output = job.succeed(300)
    assert sqlite_rows(file, f"SELECT * FROM {table} ORDER BY 1, 2") == expected()
    assert told in output
