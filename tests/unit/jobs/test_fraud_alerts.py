"""Fraud alerts in the minicluster, against a plain loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.examples.options import parse, run_sql
from flinkish.examples.transactions import (
    generated_rules,
    generated_transactions,
    rule_watermarks,
    transaction_watermarks,
)
from jobs import fraud_alerts
from tests.support.clicks import sqlite_rows
from tests.support.programs import new_environment
from tests.support.transactions import expected_alerts

TRANSACTIONS, ACCOUNTS = 5_000, 40
ALERTS = "SELECT account, rule, ts, total FROM alerts ORDER BY account, rule, ts"


@pytest.mark.parametrize(
    "settings", [pytest.param({}, marks=pytest.mark.nightly), {"flinkish.epoch.max-records-per-source": "700"}]
)
def test_alerts_are_those_of_a_plain_loop(tmp_path: Path, settings: dict[str, str]) -> None:
    file = tmp_path / "alerts.db"
    database = parse("fraud-alerts", "", ["--output", str(file)]).database
    run_sql(database, fraud_alerts.CREATE_TABLE)
    env = new_environment(2, **settings)
    transactions = env.from_source(
        generated_transactions(TRANSACTIONS, ACCOUNTS, splits=2), transaction_watermarks(), "transactions"
    )
    rules = env.from_source(generated_rules(TRANSACTIONS), rule_watermarks(), "rules")
    fraud_alerts.build(transactions, rules, fraud_alerts.alerts_sink(database))
    env.execute("fraud-alerts")
    expected = expected_alerts(TRANSACTIONS, ACCOUNTS)
    assert len({rule for _, rule, _, _ in expected}) == 2 and len(expected) > 50
    got = sqlite_rows(file, ALERTS)
    assert [alert[:3] for alert in got] == [alert[:3] for alert in expected]
    assert [alert[3] for alert in got] == pytest.approx([alert[3] for alert in expected], abs=0.02)


def test_options_that_the_job_does_not_have_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("fraud-alerts", "", ["--topic", "transactions"], generated_transactions)
    assert "unrecognized arguments: --topic transactions" in capsys.readouterr().err
