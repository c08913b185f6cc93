"""Every job gives the same result when it is stopped with a savepoint and goes on with another parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.examples.clicks import FIRST_TS_MS, TS, click_watermarks, clicks_of, generated_clicks
from flinkish.examples.options import parse, run_sql
from flinkish.examples.orders import generated_orders, generated_payments, order_watermarks, payment_watermarks
from flinkish.examples.transactions import (
    generated_rules,
    generated_transactions,
    rule_watermarks,
    transaction_watermarks,
)
from jobs import click_count, fraud_alerts, order_payments, page_views
from tests.support.clicks import expected_counts, expected_views, sqlite_rows
from tests.support.orders import expected_statuses, expected_strays
from tests.support.processes import wait_until
from tests.support.transactions import expected_alerts

EVENTS, USERS = 110_000, 200
TRANSACTIONS = 40_000
TIMEOUT_S = 120
MARKERS = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'flinkish_epochs'"


def start(job: Any, folder: Path, database: JdbcConnectionOptions, parallelism: int, groups: int, **more: str) -> Any:
    """The job's client. Epochs of 5,000 clicks."""
    configuration = Configuration()
    for key, value in {
        "flinkish.job.dir": str(folder),
        "execution.checkpointing.interval": "0 s",
        "flinkish.epoch.max-records-per-source": "5000",
        "parallelism.default": str(parallelism),
        "pipeline.max-parallelism": str(groups),
        **{key.replace("_", "."): value for key, value in more.items()},
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    if job is fraud_alerts:
        transactions = env.from_source(generated_transactions(TRANSACTIONS, USERS), transaction_watermarks(), "in")
        rules = env.from_source(generated_rules(TRANSACTIONS), rule_watermarks(), "rules").uid("rules")
        fraud_alerts.build(transactions.uid("transactions"), rules, fraud_alerts.alerts_sink(database))
        return env.execute_async(folder.name)
    if job is order_payments:
        orders = env.from_source(generated_orders(TRANSACTIONS), order_watermarks(), "orders").uid("orders")
        payments = env.from_source(generated_payments(TRANSACTIONS), payment_watermarks(), "payments").uid("payments")
        order_payments.build(orders, payments, *order_payments.sinks(database))
        return env.execute_async(folder.name)
    clicks = env.from_source(generated_clicks(EVENTS, USERS), click_watermarks(), "clicks").uid("clicks")
    if job is click_count:
        click_count.build(env, clicks, click_count.counts_sink(database))
    else:
        views = JdbcSink.upsert("page_views", ["page", "window_start"], page_views.VIEWS, database)
        late = JdbcSink.upsert("late_clicks", ["page"], page_views.LATE_COUNTS, database)
        page_views.build(env, clicks, views, late)
    return env.execute_async(folder.name)


def check(job: Any, file: Path) -> None:
    if job is order_payments:
        rows = sqlite_rows(file, "SELECT order_id, status, waited_ms FROM orders")
        assert {order_id: tuple(rest) for order_id, *rest in rows} == expected_statuses(TRANSACTIONS)
        assert dict(sqlite_rows(file, "SELECT * FROM stray_payments")) == expected_strays(TRANSACTIONS)
        return
    if job is fraud_alerts:
        rows = sqlite_rows(file, "SELECT account, rule, ts FROM alerts ORDER BY account, rule, ts")
        assert rows == [alert[:3] for alert in expected_alerts(TRANSACTIONS, USERS)]
        return
    clicks = clicks_of(range(EVENTS), USERS)
    if job is click_count:
        assert dict(sqlite_rows(file, "SELECT user_id, clicks FROM click_counts")) == expected_counts(clicks)
        return
    in_time = [click for click in clicks if click[TS] >= FIRST_TS_MS - 60_000]
    rows = sqlite_rows(file, "SELECT page, window_start, views, amount FROM page_views")
    got = {(page, start): (count, pytest.approx(amount, abs=0.01)) for page, start, count, amount in rows}
    assert got == expected_views(in_time)
    assert sqlite_rows(file, "SELECT SUM(clicks) FROM late_clicks") == [(EVENTS - len(in_time),)]


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(click_count, marks=pytest.mark.slow),
        pytest.param(page_views, marks=pytest.mark.slow),
        pytest.param(fraud_alerts, marks=pytest.mark.slow),
        pytest.param(order_payments, marks=pytest.mark.slow),
    ],
)
def test_through_a_savepoint_from_parallelism_1_to_3_the_result_is_the_same(
    spark: SparkSession, tmp_path: Path, job: Any
) -> None:
    file = tmp_path / "results.db"
    database = parse("jobs", "", ["--output", str(file)]).database
    run_sql(database, click_count.CREATE_TABLE, page_views.CREATE_VIEWS, page_views.CREATE_LATE)
    run_sql(database, fraud_alerts.CREATE_TABLE, order_payments.CREATE_ORDERS, order_payments.CREATE_PAYMENTS)

    first = start(job, tmp_path / "first", database, 1, 4)
    wait_until(lambda: sqlite_rows(file, MARKERS) == [(1,)], TIMEOUT_S, "the first results")
    savepoint = first.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    first.get_job_execution_result().result(TIMEOUT_S)
    assert first.get_job_status().result().name == "FINISHED"
    with pytest.raises(AssertionError):
        check(job, file)  # it was stopped in the midst of its work

    second = start(job, tmp_path / "second", database, 3, 16, **{"execution_state-recovery_path": savepoint})
    second.get_job_execution_result().result(TIMEOUT_S)
    check(job, file)
