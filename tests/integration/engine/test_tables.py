"""Queries on Spark: a chain in columns from Parquet to Parquet, and a GROUP BY whose rows go through the shuffle; its
state over upgrades, damage and edits."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flinkish.common import Configuration, JobStatus
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import StreamTableEnvironment
from tests.integration.engine.collecting import environment
from tests.integration.engine.test_fallback import lose_state
from tests.support.processes import wait_until

TIMEOUT_S = 120
ROWS, USERS, FILES = 30_000, 700, 3


@pytest.fixture
def t_env(spark: SparkSession, tmp_path: Path) -> StreamTableEnvironment:
    """An environment with two subtasks and the table ``clicks``, which takes several epochs."""
    (tmp_path / "in").mkdir()
    for part in range(FILES):
        numbers = range(part, ROWS, FILES)
        columns = {"user": [f"ü{number * number % USERS}" for number in numbers], "n": list(numbers)}
        pq.write_table(pa.table(columns), tmp_path / "in" / f"{part}.parquet")
    configuration = Configuration().set_string("flinkish.job.dir", str(tmp_path / "job"))
    configuration.set_string("flinkish.epoch.max-records-per-source", "12000")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    t_env = StreamTableEnvironment.create(env)
    declare(t_env, "clicks", "`user` STRING, n BIGINT", tmp_path / "in")
    return t_env


def declare(t_env: StreamTableEnvironment, name: str, columns: str, path: Path) -> None:
    options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'"
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")


def test_a_selection_goes_in_columns_from_source_to_sink(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    declare(t_env, "even", "u STRING, m BIGINT", tmp_path / "out")
    t_env.execute_sql("INSERT INTO even SELECT UPPER(`user`), n * 2 FROM clicks WHERE MOD(n, 2) = 0").wait()
    found = pyarrow.dataset.dataset(tmp_path / "out", format="parquet").to_table().to_pylist()
    expected = [{"u": f"Ü{number * number % USERS}", "m": 2 * number} for number in range(0, ROWS, 2)]
    assert sorted(found, key=lambda row: int(row["m"])) == expected


def test_the_rows_of_a_group_by_go_through_the_shuffle_in_columns(t_env: StreamTableEnvironment) -> None:
    query = "SELECT `user`, COUNT(*) AS c, SUM(n) AS s FROM clicks GROUP BY `user`"
    last, kinds = {}, Counter[str]()
    with t_env.execute_sql(query).collect() as rows:
        for row in rows:
            kinds[str(row.get_row_kind())] += 1
            last[row[0]] = row[1], row[2]
    expected = Counter[str](f"ü{number * number % USERS}" for number in range(ROWS))
    assert {user: count for user, (count, _) in last.items()} == expected
    assert sum(total for _, total in last.values()) == sum(range(ROWS))
    assert kinds["+I"] == len(expected)
    # in later epochs the aggregates of the earlier ones went on
    assert kinds["-U"] == kinds["+U"] > 0


AGGREGATE = "uid = 'table/totals/1-aggregate(k)' AND state = 'aggregates'"


def totals(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Of each key, how many rows there were, their sum, and the largest since the query asks for it."""
    with closing(sqlite3.connect(folder / "db")) as database:
        return {key: (n, total, largest) for key, *(n, total, largest) in database.execute("SELECT * FROM totals")}


def counted(folder: Path) -> int:
    return sum(n for n, *_ in totals(folder).values())


def read_on(folder: Path, rows: int, largest: str, job: str = "job", **settings: Any) -> Any:
    """Write numbers into a file, and start the query, until it has counted so many rows in all."""
    before = len(list((folder / "in").iterdir())) * 10
    numbers = range(before, before + 10)
    pq.write_table(pa.table({"k": [f"k{n % 2}" for n in numbers], "v": list(numbers)}), folder / "in" / f"{before}")
    env = environment(folder / job, execution__checkpointing__interval="1 ms", **settings)
    t_env = StreamTableEnvironment.create(env)
    options = f"'path' = '{folder / 'in'}', 'format' = 'parquet', 'source.monitor-interval' = '50 ms'"
    t_env.execute_sql(f"CREATE TABLE numbers (k STRING, v BIGINT) WITH ('connector' = 'filesystem', {options})")
    t_env.execute_sql(
        "CREATE TABLE totals (k STRING, n BIGINT, total BIGINT, largest BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH "
        f"('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{folder / 'db'}', 'table-name' = 'totals')"
    )
    query = f"INSERT INTO totals SELECT k, COUNT(*), SUM(v), {largest} FROM numbers GROUP BY k"
    client: Any = t_env.execute_sql(query).get_job_client()
    wait_until(lambda: counted(folder) == rows or client.run.result.done(), TIMEOUT_S, "rows")
    return client


def suspend(client: Any) -> None:
    client.run.request_stop(JobStatus.SUSPENDED, "a signal")
    client.get_job_execution_result().result(TIMEOUT_S)


@pytest.mark.nightly
def test_a_query_goes_on_after_damage_with_one_aggregate_more_and_with_state_that_sql_has_edited(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.execute("CREATE TABLE totals (k TEXT PRIMARY KEY, n INTEGER, total INTEGER, largest INTEGER)")
    suspend(read_on(tmp_path, 10, "CAST(NULL AS BIGINT)"))
    assert totals(tmp_path) == {"k0": (5, 20, None), "k1": (5, 25, None)}
    lose_state(tmp_path)
    suspend(read_on(tmp_path, 20, "CAST(NULL AS BIGINT)"))
    assert "goes on from the checkpoint" in capsys.readouterr().err
    assert totals(tmp_path) == {"k0": (10, 90, None), "k1": (10, 100, None)}
    client = read_on(tmp_path, 30, "MAX(v)", parallelism__default=3)
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    assert totals(tmp_path) == {"k0": (15, 210, 28), "k1": (15, 225, 29)}
    value = '{"$row": [["COUNT(*)", "SUM(v)", "MAX(v)"], [5, 1000, 2000]]}'
    spark.sql(f"UPDATE delta.`{path}/state` SET value = '{value}' WHERE {AGGREGATE} AND key = '\"k0\"'")
    spark.sql(f"DELETE FROM delta.`{path}/state` WHERE {AGGREGATE} AND key = '\"k1\"'")
    suspend(read_on(tmp_path, 15, "MAX(v)", "other", execution__state_recovery__path=path))
    assert totals(tmp_path) == {"k0": (10, 1170, 2000), "k1": (5, 175, 39)}
