"""A query goes on from a savepoint: at another parallelism, and with other aggregates."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    # another savepoint, of rows that the new query has not touched
    between = environment(tmp_path, 2, True, execution__state_recovery__path=path)
    client = between.execute_sql(query(largest)).get_job_client()
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    add_file(tmp_path / "in", 2)
    again = environment(tmp_path, parallelism, False, execution__state_recovery__path=path)
    # what is new in the query begins at nothing
    caplog.clear()
    again.execute_sql(query(largest)).wait()
    assert ("stored aggregates have no MAX(v + 0), which begins at nothing" in caplog.text) is (counted_from > 0)
    assert totals(tmp_path) == expected(3, range(counted_from, 300))
