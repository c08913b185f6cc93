"""A query goes on from a savepoint: at another parallelism, and with other aggregates; what it could not use is
refused."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.errors import SavepointError
from flinkish.table import StreamTableEnvironment
from tests.support.processes import wait_until
from tests.support.programs import new_environment

TIMEOUT_S = 60
KEYS = 9


def add_file(folder: Path, number: int) -> None:
    """A file of a hundred rows; the keys are texts, and in one column NULL as well."""
    values = list(range(100 * number, 100 * (number + 1)))
    keys = [f"k{value % KEYS}" if value % KEYS else None for value in values]
    pq.write_table(pa.table({"k": keys, "v": values}), folder / f"{number}.parquet")


def environment(folder: Path, parallelism: int, monitored: bool, **settings: Any) -> StreamTableEnvironment:
    env = new_environment(parallelism, pipeline__max_parallelism="16", **settings)
    t_env = StreamTableEnvironment.create(env)
    interval = ", 'source.monitor-interval' = '50 ms'" if monitored else ""
    t_env.execute_sql(
        "CREATE TABLE numbers (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
        f"'path' = '{folder / 'in'}'{interval})"
    )
    t_env.execute_sql(
        "CREATE TABLE totals (k STRING, n BIGINT, total BIGINT, largest BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH "
        f"('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{folder / 'db'}', 'table-name' = 'totals')"
    )
    return t_env


def totals(folder: Path) -> dict[str, tuple[int, ...]]:
    with closing(sqlite3.connect(folder / "db")) as database:
        return {row[0]: row[1:] for row in database.execute("SELECT k, n, total, largest FROM totals")}


def expected(files: int, of_largest: range) -> dict[str, tuple[int, ...]]:
    found = {}
    for key in range(KEYS):
        values = [value for value in range(100 * files) if value % KEYS == key]
        largest = max(value for value in of_largest if value % KEYS == key)
        found[f"k{key}" if key else "-"] = len(values), sum(values), largest
    return found


def query(largest: str) -> str:
    return f"INSERT INTO totals SELECT COALESCE(k, '-'), COUNT(*), SUM(v), {largest} FROM numbers GROUP BY k"


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(("largest", "counted_from"), [("MAX(v)", 0), ("MAX(v + 0)", 200)])
def test_a_group_by_goes_on_from_a_savepoint(
    parallelism: int, largest: str, counted_from: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.execute("CREATE TABLE totals (k TEXT PRIMARY KEY, n INTEGER, total INTEGER, largest INTEGER)")
    for number in range(2):
        add_file(tmp_path / "in", number)
    client: Any = environment(tmp_path, 2, True).execute_sql(query("MAX(v)")).get_job_client()
    wait_until(lambda: totals(tmp_path) == expected(2, range(200)), TIMEOUT_S, "the first rows")
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    # what is new in the query begins at nothing; another savepoint, of rows that the new query has not touched
    between = environment(tmp_path, 2, True, execution__state_recovery__path=path)
    client = between.execute_sql(query(largest)).get_job_client()
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    assert ("stored aggregates have no MAX(v + 0), which begins at nothing" in caplog.text) is (counted_from > 0)
    add_file(tmp_path / "in", 2)
    again = environment(tmp_path, parallelism, False, execution__state_recovery__path=path)
    again.execute_sql(query(largest)).wait()
    assert totals(tmp_path) == expected(3, range(counted_from, 300))


COUNTS = "SELECT k, CAST(COUNT(*) AS STRING) FROM numbers GROUP BY k"
WINDOWS = (
    "SELECT k, CAST(COUNT(*) AS STRING) FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '20' SECOND)) "
    "GROUP BY k, window_start, window_end"
)
TTL, ZONE = "table__exec__state__ttl", "table__local_time_zone"


def telling(folder: Path, keys: str, monitored: bool, **settings: Any) -> StreamTableEnvironment:
    """An environment with numbers that have an event time, and a table that prints."""
    t_env = StreamTableEnvironment.create(new_environment(2, **settings))
    interval = ", 'source.monitor-interval' = '50 ms'" if monitored else ""
    t_env.execute_sql(
        f"CREATE TABLE numbers (k {keys}, v BIGINT, ts AS TO_TIMESTAMP_LTZ(v, 3), WATERMARK FOR ts AS ts) WITH "
        f"('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{folder / 'in'}'{interval})"
    )
    t_env.execute_sql(f"CREATE TABLE told (k {keys}, n STRING) WITH ('connector' = 'print')")
    return t_env


def saved(folder: Path, query: str, **settings: Any) -> str:
    """A savepoint of a query that has read 100 rows."""
    (folder / "in").mkdir()
    add_file(folder / "in", 0)
    client: Any = telling(folder, "STRING", True, **settings).execute_sql(f"INSERT INTO told {query}").get_job_client()
    wait_until(lambda: client.describe().totals.records_in == 100, TIMEOUT_S, "the rows")
    return str(client.stop_with_savepoint(False, str(folder / "savepoints")).result(TIMEOUT_S))


@pytest.mark.parametrize(
    ("before", "after", "keys", "settings", "said"),
    [
        pytest.param(COUNTS, COUNTS, "BIGINT", {}, "does not fit the declared type Long", id="keys of another type"),
        pytest.param(
            WINDOWS, WINDOWS.replace("20", "30"), "STRING", {}, "(ts,20000,UTC)", id="windows of another size"
        ),
        pytest.param(WINDOWS, WINDOWS, "STRING", {ZONE: "Asia/Tokyo"}, "(ts,20000,UTC)", id="another time zone"),
        pytest.param(WINDOWS, COUNTS, "STRING", {}, "the program does not have: table/told/1-window", id="no windows"),
    ],
)
def test_state_that_a_changed_query_could_not_use_is_refused(
    before: str, after: str, keys: str, settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, before, **{ZONE: "UTC"})
    again = telling(tmp_path, keys, False, **{ZONE: "UTC", **settings, "execution__state_recovery__path": path})
    with pytest.raises(SavepointError, match=re.escape(said)):
        again.execute_sql(f"INSERT INTO told {after}")


@pytest.mark.parametrize(("before", "after"), [("1 h", "0 ms"), ("0 ms", "1 h")])
def test_the_time_to_live_may_be_changed(
    before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, COUNTS, **{TTL: before})
    add_file(tmp_path / "in", 1)
    capsys.readouterr()
    again = telling(tmp_path, "STRING", False, **{TTL: after, "execution__state_recovery__path": path})
    again.execute_sql(f"INSERT INTO told {COUNTS}").wait()
    told = re.findall(r"\+U\[k1, (\d+)\]", capsys.readouterr().out)
    assert told[-1] == str(sum(value % KEYS == 1 for value in range(200)))
