"""Enrichment by asynchronous I/O, as users start it."""

from __future__ import annotations

from pathlib import Path

from flinkish.examples.clicks import clicks_of
from tests.support.clicks import expected_sales, sqlite_rows
from tests.support.submit import submit

EVENTS, USERS = 20_000, 300


def test_every_click_has_the_country_that_the_service_says(tmp_path: Path) -> None:
    file = tmp_path / "sales.db"
    arguments = ("--events", str(EVENTS), "--users", str(USERS), "--output", str(file))
    with submit("sales_by_country", *arguments, log_file=tmp_path / "job.log") as job:
        output = job.succeed(300)
    expected = expected_sales(clicks_of(range(EVENTS), USERS))
    assert dict(sqlite_rows(file, "SELECT country, amount FROM sales_by_country")) == expected
    assert "cents" in output
