"""Enrichment by asynchronous I/O, as users start it: killed in the midst of its epochs, and started again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from flinkish.examples.clicks import clicks_of
from tests.support.clicks import expected_sales, sqlite_rows
from tests.support.submit import submit

EVENTS, USERS, EPOCH_RECORDS = 20_000, 300, 1_000


def last_epoch(file: Path) -> int:
    """The last epoch that the database has taken in; -1 before the first one."""
    try:
        ((epoch,),) = sqlite_rows(file, "SELECT COALESCE(MAX(epoch), -1) FROM flinkish_epochs")
    except sqlite3.OperationalError:
        return -1
    return int(epoch)


@pytest.mark.slow
def test_every_click_has_the_country_that_the_service_says_although_the_job_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "sales.db"
    generator = ("--events", str(EVENTS), "--users", str(USERS))
    arguments = (*generator, "--output", str(file), "--job-dir", str(tmp_path / "job"))
    settings = {"flinkish.epoch.max-records-per-source": str(EPOCH_RECORDS)}
    expected = expected_sales(clicks_of(range(EVENTS), USERS))
    with submit("sales_by_country", *arguments, log_file=tmp_path / "first.log", settings=settings) as job:
        job.wait_for(lambda: last_epoch(file) >= 2, 300, "some epochs in the database")
        assert job.running
        job.kill()
    sold = sum(amount for (amount,) in sqlite_rows(file, "SELECT amount FROM sales_by_country"))
    assert 0 < sold < sum(expected.values()), "the job was killed in the midst of its work"
    with submit("sales_by_country", *arguments, log_file=tmp_path / "second.log", settings=settings) as job:
        output = job.succeed(300)
    assert dict(sqlite_rows(file, "SELECT country, amount FROM sales_by_country")) == expected
    assert "cents" in output
