"""Views per page and minute, as users start it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.examples.clicks import FIRST_TS_MS, TS, clicks_of
from tests.support.clicks import expected_views, sqlite_rows
from tests.support.submit import submit

EVENTS, USERS = 110_000, 100


@pytest.mark.slow
def test_without_servers_windows_and_late_clicks_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    file = tmp_path / "views.db"
    arguments = ("--events", str(EVENTS), "--users", str(USERS), "--output", str(file), "--parallelism", "3")
    with submit("page_views", *arguments, log_file=tmp_path / "job.log") as job:
        output = job.succeed(300)
    in_time = [click for click in clicks_of(range(EVENTS), USERS) if click[TS] >= FIRST_TS_MS - 60_000]
    late = EVENTS - len(in_time)
    rows = sqlite_rows(file, "SELECT page, window_start, views, amount FROM page_views")
    got = {(page, start): (count, pytest.approx(amount, abs=0.01)) for page, start, count, amount in rows}
    assert got == expected_views(in_time)
    assert sqlite_rows(file, "SELECT SUM(clicks) FROM late_clicks") == [(late,)]
    assert "| watermark 2023-11-14T22:" in output
    assert f"{late} clicks were late" in output
