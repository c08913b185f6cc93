"""Alerts by rules that change, as users start the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clicks import sqlite_rows
from tests.support.submit import submit
from tests.support.transactions import expected_alerts

TRANSACTIONS, ACCOUNTS = 40_000, 200


@pytest.mark.slow
def test_without_servers_alerts_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    file = tmp_path / "alerts.db"
    arguments = ("--events", str(TRANSACTIONS), "--users", str(ACCOUNTS), "--output", str(file), "--parallelism", "3")
    with submit("fraud_alerts", *arguments, log_file=tmp_path / "job.log") as job:
        output = job.succeed(300)
    expected = expected_alerts(TRANSACTIONS, ACCOUNTS)
    rows = sqlite_rows(file, "SELECT account, rule, ts FROM alerts ORDER BY account, rule, ts")
    assert rows == [alert[:3] for alert in expected]
    assert f"{len(expected):,} alerts for {len({alert[0] for alert in expected}):,} accounts" in output
