"""Visits and best-selling products in the minicluster, against plain loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.examples.options import parse, run_sql
from jobs import sessionization, top_products
from tests.support.clicks import sqlite_rows
from tests.support.programs import new_environment
from tests.support.window_jobs import expected_top, expected_visits

EVENTS, USERS = 22_500, 800
SETTINGS: list[dict[str, str]] = [{}, {"flinkish.epoch.max-records-per-source": "1000"}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_visits_end_where_half_an_hour_passes_without_a_click(tmp_path: Path, settings: dict[str, str]) -> None:
    options = parse(
        "sessionization",
        "",
        ["--output", str(tmp_path / "out.db"), "--events", str(EVENTS), "--users", str(USERS)],
        sessionization.clicks,
    )
    run_sql(options.database, sessionization.CREATE_VISITS)
    env = new_environment(2, **settings)
    stream = env.from_source(options.source, sessionization.watermarks(), "clicks")
    sessionization.build(env, stream, sessionization.visits_sink(options.database))
    env.execute("sessionization")
    assert sqlite_rows(tmp_path / "out.db", "SELECT * FROM visits ORDER BY visitor, begin_ts") == expected_visits(
        EVENTS, USERS
    )


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_best_products_of_each_hour_are_those_of_a_plain_loop(tmp_path: Path, settings: dict[str, str]) -> None:
    options = parse(
        "top-products",
        "",
        ["--output", str(tmp_path / "out.db"), "--events", str(EVENTS), "--users", str(USERS)],
        top_products.sales,
    )
    run_sql(options.database, top_products.CREATE_TOP)
    env = new_environment(2, **settings)
    stream = env.from_source(options.source, top_products.watermarks(), "sales")
    top_products.build(env, stream, top_products.top_sink(options.database))
    env.execute("top-products")
    rows: list[Any] = sqlite_rows(tmp_path / "out.db", "SELECT * FROM top_products ORDER BY window_end, place")
    assert rows == expected_top(EVENTS, USERS)


def test_a_program_with_records_of_its_own_has_no_options_for_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("sessionization", "", ["--help"], sessionization.clicks)
    shown = capsys.readouterr().out
    assert "--events" in shown and "--topic" not in shown
