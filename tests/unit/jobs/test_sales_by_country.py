"""Enrichment by asynchronous I/O in the minicluster, against a real service."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions
from flinkish.examples.clicks import clicks_of, generated_clicks
from flinkish.examples.country_service import CountryService
from flinkish.examples.options import run_sql
from jobs import sales_by_country
from tests.support.clicks import expected_sales, sqlite_rows
from tests.support.programs import new_environment

EVENTS, USERS = 3_000, 200


@pytest.mark.parametrize(
    ("parallelism", "settings"),
    [
        (1, {}),
        (2, {"flinkish.source.batch-size": "100"}),
        (2, {"flinkish.epoch.max-records-per-source": "500"}),
    ],
)
def test_sales_are_those_of_a_plain_loop(tmp_path: Path, parallelism: int, settings: dict[str, str]) -> None:
    file = tmp_path / "sales.db"
    database = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{file}").build()
    run_sql(database, sales_by_country.CREATE_TABLE)
    env = new_environment(parallelism, **settings)
    with CountryService() as service:
        source = generated_clicks(EVENTS, USERS, splits=2)
        clicks = env.from_source(source, WatermarkStrategy.no_watermarks(), "clicks")
        sales_by_country.build(clicks, service.address, sales_by_country.sales_sink(database))
        env.execute("sales")
    rows = sqlite_rows(file, "SELECT country, amount FROM sales_by_country")
    assert dict(rows) == expected_sales(clicks_of(range(EVENTS), USERS))
    assert "unknown" in dict(rows)
