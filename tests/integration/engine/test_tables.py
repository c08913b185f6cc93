"""Queries on Spark: a chain in columns from Parquet to Parquet, and a GROUP BY whose rows go through the shuffle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import StreamTableEnvironment

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
