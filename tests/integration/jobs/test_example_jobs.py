"""Word counts, reminders and alerts, as users start them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.clicks import sqlite_rows
from tests.support.example_jobs import expected_alerts, expected_reminders, expected_words
from tests.support.submit import submit

EVENTS, USERS = 20_000, 1_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job_name", "table", "expected", "told"),
    [
        ("word_count", "word_counts", expected_words(EVENTS), "words, "),
        ("abandoned_carts", "reminders", expected_reminders(EVENTS, USERS), "reminders for"),
        ("iot_alerts", "alerts", expected_alerts(EVENTS, USERS)[0], "broken sensors"),
    ],
)
def test_without_servers_the_results_are_those_of_a_plain_loop(
    tmp_path: Path, job_name: str, table: str, expected: list[tuple[Any, ...]], told: str
) -> None:
    file = tmp_path / "out.db"
    arguments = ("--events", str(EVENTS), "--users", str(USERS), "--output", str(file), "--parallelism", "2")
    with submit(job_name, *arguments, log_file=tmp_path / "job.log") as job:
        output = job.succeed(300)
    assert sqlite_rows(file, f"SELECT * FROM {table} ORDER BY 1, 2") == expected
    assert told in output
