"""The JDBC source on a real PostgreSQL: columns of all kinds, keys of other types, and a server that is away."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Row
from flinkish.common.typeinfo import Types
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink, JdbcSource
from flinkish.datastream.functions import MapFunction
from flinkish.errors import ConnectionFailedError, FinalOperationError, FlinkishError, ProgramError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.clock import ManualClock
from flinkish.testing import TestingSink
from tests.integration.engine.collecting import collecting
from tests.integration.engine.collecting import environment as spark_environment
from tests.support.jdbc_items import CREATE, ITEM, QUERIES, insert, item
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
    for sql in QUERIES:
        assert read(uri, sql=sql) == items, sql
    with pytest.raises(ProgramError, match="key column 'day' has the value .* twice"):
        read(uri, "day")
    with pytest.raises(ProgramError, match='the query failed: relation "nowhere" does not exist'):
        read(uri, sql="SELECT * FROM nowhere")
    with pytest.raises(ConnectionFailedError, match="the query failed: .*refused"):
        read("postgresql://localhost:1/none")


@pytest.fixture
def guarded(postgres: PostgresServer) -> Iterator[str]:
    """A database that asks the user `ann` for a password, lets `eve` nowhere, and does not know others."""
    uri = postgres.create_database()
    postgres.query(uri, CREATE.format(bytes="BYTEA"))
    (hba,) = postgres.folder.rglob("pg_hba.conf")
    before = hba.read_text()
    rules = "host all ann 127.0.0.1/32 scram-sha-256\nhost all eve 127.0.0.1/32 reject\n"
    hba.write_text(rules + before)
    for statement in ("CREATE ROLE ann LOGIN PASSWORD 'right'", "CREATE ROLE eve LOGIN", "SELECT pg_reload_conf()"):
        postgres.query(uri, statement)
    yield uri
    hba.write_text(before)
    for statement in ("DROP ROLE ann", "DROP ROLE eve", "SELECT pg_reload_conf()"):
        postgres.query(uri, statement)


NOT_LET_IN, OTHER_SETTINGS = "does not let the job in: ", "cannot be connected to in this way: "


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"user": "ann:wrong"}, FinalOperationError, f"{NOT_LET_IN}.*password authentication failed"),
        ({"user": "ann"}, FinalOperationError, f"{NOT_LET_IN}.*no password supplied"),
        ({"user": "eve"}, FinalOperationError, f"{NOT_LET_IN}.*pg_hba.conf"),
        ({"user": "nobody"}, FinalOperationError, f'{NOT_LET_IN}.*role "nobody" does not exist'),
        ({"database": "/nowhere"}, FinalOperationError, f'{NOT_LET_IN}.*database "nowhere" does not exist'),
        ({"query": "?sslmode=require"}, FinalOperationError, f"{OTHER_SETTINGS}.*does not support SSL"),
        ({"query": "?sslmode=maybe"}, FinalOperationError, f"{OTHER_SETTINGS}.*sslmode"),
        ({"port": ":99999"}, FinalOperationError, f"{OTHER_SETTINGS}.*port"),
        ({"host": "no-such-host.invalid"}, ConnectionFailedError, "cannot be resolved: .*no-such-host.invalid"),
        ({"port": ":1"}, ConnectionFailedError, "refused"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_why_a_database_cannot_be_connected_to_is_told_apart_for_source_and_sink(
    guarded: str, changed: dict[str, str], kind: type[FlinkishError], said: str
) -> None:
    found = urlsplit(guarded)
    parts = {"user": str(found.username), "host": "127.0.0.1", "port": f":{found.port}", "database": found.path}
    parts = {**parts, "query": "", **changed}
    uri = "postgresql://{user}@{host}{port}{database}{query}".format(**parts)
    with pytest.raises(FlinkishError, match=said) as of_source:
        read(uri)
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(uri).build()
    env = environment(1)
    names = Types.ROW_NAMED(["name"], [Types.STRING()])
    sink = JdbcSink.sink("INSERT INTO items (name) VALUES (?)", names, options)
    env.from_collection([Row("a")], names).add_sink(sink)
    with pytest.raises(FlinkishError, match=said) as of_sink:
        MiniCluster(job_of(env), ManualClock()).run(20)
    for caught in (of_source, of_sink):
        assert type(caught.value) is kind
        assert len(str(caught.value).splitlines()) == 1
        assert ("4 attempts" in str(caught.value)) is (caught is of_sink and said == "refused")
        assert "wrong" not in str(caught.value)


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
