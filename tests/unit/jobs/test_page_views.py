"""Views per page and minute in the minicluster, against a plain loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.datastream.connectors.jdbc import JdbcSink
from flinkish.examples import clicks
from flinkish.examples.clicks import FIRST_TS_MS, TS, click_watermarks, clicks_of, generated_clicks
from flinkish.examples.options import parse, run_sql
from jobs import page_views
from tests.support.clicks import expected_views, sqlite_rows
from tests.support.programs import new_environment

EVENTS, USERS, LATE_FROM = 20_000, 100, 15_000


@pytest.mark.parametrize(
    "settings", [pytest.param({}, marks=pytest.mark.nightly), {"flinkish.epoch.max-records-per-source": "1500"}]
)
def test_windows_and_late_clicks_are_those_of_a_plain_loop(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clicks, "LATE_FROM", LATE_FROM)
    file = tmp_path / "views.db"
    database = parse("page-views", "", ["--output", str(file)]).database
    run_sql(database, page_views.CREATE_VIEWS, page_views.CREATE_LATE)
    env = new_environment(2, **settings)
    stream = env.from_source(generated_clicks(EVENTS, USERS, splits=2), click_watermarks(), "clicks")
    views = JdbcSink.upsert("page_views", ["page", "window_start"], page_views.VIEWS, database)
    page_views.build(env, stream, views, JdbcSink.upsert("late_clicks", ["page"], page_views.LATE_COUNTS, database))
    env.execute("page-views")

    # what comes an hour late lies before all else
    all_clicks = clicks_of(range(EVENTS), USERS)
    in_time = [click for click in all_clicks if click[TS] >= FIRST_TS_MS - 60_000]
    assert len(in_time) < EVENTS
    rows = sqlite_rows(file, "SELECT page, window_start, views, amount FROM page_views")
    got = {(page, start): (count, pytest.approx(amount, abs=0.01)) for page, start, count, amount in rows}
    assert got == expected_views(in_time)
    ((late,),) = sqlite_rows(file, "SELECT SUM(clicks) FROM late_clicks")
    assert late == EVENTS - len(in_time)
