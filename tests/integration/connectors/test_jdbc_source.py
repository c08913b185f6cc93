"""The JDBC source on a real PostgreSQL: columns of all kinds, keys of other types, and a server that is away."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common.typeinfo import Types
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSource
from flinkish.datastream.functions import MapFunction
from flinkish.errors import ConnectionFailedError, ProgramError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.clock import ManualClock
from flinkish.testing import TestingSink
from tests.integration.engine.collecting import collecting
from tests.integration.engine.collecting import environment as spark_environment
from tests.support.jdbc_items import CREATE, ITEM, insert, item
from tests.support.postgres import PostgresServer
from tests.unit.minicluster.programs import environment, job_of


class FailsOnce(MapFunction):
    """Hands rows on, and fails at one of them as long as there is no such file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def map(self, value: Any) -> Any:
        if value.id == 6 and not self.marker.exists():
            self.marker.touch()
            raise ValueError("once")
        return value


def read(uri: str, key: str = "id", sql: str = "SELECT * FROM items") -> list[Any]:
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(uri).build()
    env, sink, store = environment(1), TestingSink(), StateStore()
    env.add_source(JdbcSource(sql, ITEM, key, url, page_size=4)).sink_to(sink)
    MiniCluster(job_of(env), ManualClock(), store, 3).run()
    return sink.values


def test_rows_of_all_kinds_are_read_in_the_order_of_any_key(postgres: PostgresServer) -> None:
    uri = postgres.create_database()
    postgres.query(uri, CREATE.format(bytes="BYTEA"))
    postgres.query(uri, insert(1, 9, r"'\x00ff'"))
    items = [item(n) for n in range(1, 10)]
    assert read(uri) == items
    assert read(uri, "name") == items
    assert read(uri, "price") == items
    assert read(uri, sql="SELECT *, 'a%' LIKE 'a%%' AS more FROM items WHERE id % 2 = 0") == items[1::2]
    with pytest.raises(ProgramError, match="key column 'day' has the value .* twice"):
        read(uri, "day")
    with pytest.raises(ProgramError, match='the query failed: relation "nowhere" does not exist'):
        read(uri, sql="SELECT * FROM nowhere")
    with pytest.raises(ConnectionFailedError, match="the query failed: .*refused"):
        read("postgresql://localhost:1/none")


def test_keys_of_bytes_nan_and_operators_with_question_marks_are_as_in_the_database(postgres: PostgresServer) -> None:
    uri = postgres.create_database()
    postgres.query(uri, "CREATE TABLE readings (id BYTEA, tags JSONB, heat FLOAT8)")
    for n in range(9):
        postgres.query(uri, f"INSERT INTO readings VALUES ('\\x0{n}', '{{\"a\": {n}}}', 'NaN')")
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(uri).build()
    kind = Types.ROW_NAMED(["id", "heat"], [Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.DOUBLE()])
    env, sink = environment(1), TestingSink()
    sql = "SELECT * FROM readings WHERE tags ?? 'a'"
    env.add_source(JdbcSource(sql, kind, "id", url, page_size=4)).sink_to(sink)
    MiniCluster(job_of(env), ManualClock()).run(20)
    assert [row.id for row in sink.values] == [bytes([n]) for n in range(9)]
    assert all(math.isnan(row.heat) for row in sink.values)


@pytest.mark.slow
def test_a_spark_job_reads_each_row_once_over_epochs_and_a_restart(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    uri = postgres.create_database()
    postgres.query(uri, CREATE.format(bytes="BYTEA"))
    postgres.query(uri, insert(1, 25, r"'\x00ff'"))
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(uri).build()
    limits = {"flinkish__epoch__max_records_per_source": "4", "restart_strategy__type": "fixed-delay"}
    with collecting() as collected:
        env = spark_environment(tmp_path / "job", **limits)
        rows = env.add_source(JdbcSource("SELECT * FROM items", ITEM, "id", url, page_size=3)).uid("items")
        rows.map(FailsOnce(tmp_path / "failed"), ITEM).uid("map").sink_to(collected.sink("items"))
        env.execute("items")
        assert sorted(collected.rows["items"], key=lambda row: row.id) == [item(n) for n in range(1, 26)]
    assert (tmp_path / "failed").exists()
