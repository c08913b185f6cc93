"""The JDBC source on a real PostgreSQL and a real MariaDB: columns of all kinds, keys of other types, and a server that
is away."""

from __future__ import annotations

import datetime
import math
import socket
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Row
from flinkish.common.time import Instant
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink, JdbcSource
from flinkish.datastream.functions import MapFunction
from flinkish.errors import (
    ConnectionFailedError,
    FinalOperationError,
    FlinkishError,
    ProgramError,
    TypeMismatchError,
)
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.integration.engine.collecting import collecting
from tests.integration.engine.collecting import environment as spark_environment
from tests.support.jdbc_items import CREATE, CREATE_IN_MYSQL, ITEM, QUERIES, insert, item
from tests.support.mariadb import MariadbServer
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


@pytest.fixture(params=["postgres", "mariadb"])
def items(request: pytest.FixtureRequest) -> str:
    """The URL of a database with nine items."""
    server = request.getfixturevalue(request.param)
    uri: str = server.create_database()
    if request.param == "postgres":
        server.query(uri, CREATE.format(bytes="BYTEA"))
        server.query(uri, insert(1, 9, r"'\x00ff'"))
    else:
        server.query(uri, CREATE_IN_MYSQL)
        with server.connect(uri) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+02:00'")
            cursor.execute(insert(1, 9, "X'00ff'", "2024-02-29 12:00:00"))
    return uri


def test_rows_of_all_kinds_are_read_in_the_order_of_any_key(items: str) -> None:
    expected = [item(n) for n in range(1, 10)]
    assert read(items) == expected
    assert read(items, "name") == expected
    assert read(items, "price") == expected
    assert read(items, "weight") == expected
    assert read(items, sql="SELECT *, 'a%' LIKE 'a%%' AS more FROM items WHERE id % 2 = 0") == expected[1::2]
    for sql in QUERIES:
        assert read(items, sql=sql) == expected, sql
    with pytest.raises(ProgramError, match="key column 'day' has the value .* twice"):
        read(items, "day")
    with pytest.raises(ProgramError, match=r"the query failed: .*nowhere\W+(does not|doesn't) exist"):
        read(items, sql="SELECT * FROM nowhere")
    with pytest.raises(ConnectionFailedError, match="the query failed: .*refused"):
        read(f"{items.split(':')[0]}://localhost:1/none")


def rows_of(uri: str, sql: str, key: str, **fields: TypeInformation) -> list[Any]:
    """The values of the fields of all rows, in the order of the key; read two at a time."""
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(uri).build()
    env, sink = environment(1), TestingSink()
    kind = Types.ROW_NAMED(list(fields), list(fields.values()))
    env.add_source(JdbcSource(sql, kind, key, url, page_size=2)).sink_to(sink)
    MiniCluster(job_of(env), ManualClock()).run(20)
    return [tuple(row) for row in sink.values]


MOMENT = datetime.datetime(2024, 2, 29, 12, 0, 0, 123_456)


@pytest.mark.parametrize(
    ("column", "stored", "declared", "wanted"),
    [
        ("decimal(65, 30)", f"{'1' * 35}.{'2' * 30}", Types.BIG_DEC(), Decimal("1" * 35 + "." + "2" * 30)),
        ("bigint unsigned", 2**64 - 1, Types.BIG_INT(), 2**64 - 1),
        ("bigint unsigned", 2**64 - 1, Types.LONG(), None),
        ("tinyint unsigned", 255, Types.SHORT(), 255),
        ("datetime(6)", MOMENT, Types.SQL_TIMESTAMP(), MOMENT),
        ("timestamp(6) NULL", MOMENT, Types.INSTANT(), Instant(1709208000, 123_456_000)),
        ("date", "0001-01-01", Types.SQL_DATE(), datetime.date(1, 1, 1)),
        ("time(6)", "23:59:59.999999", Types.SQL_TIME(), datetime.time(23, 59, 59, 999_999)),
        ("time", "-00:30:00", Types.SQL_TIME(), None),
        ("time", "838:59:59", Types.STRING(), "838:59:59"),
        ("json", '{"a": "ä"}', Types.STRING(), '{"a": "ä"}'),
        ("mediumtext", "a\0\U0001f600", Types.STRING(), "a\0\U0001f600"),
        ("mediumblob", b"\x00\xff", Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff"),
        ("binary(3)", b"a", Types.PRIMITIVE_ARRAY(Types.BYTE()), b"a\0\0"),
        ("varbinary(3)", b"a", Types.STRING(), None),
        ("bit(1)", 1, Types.BOOLEAN(), True),
        ("bit(64)", 2**64 - 1, Types.BIG_INT(), 2**64 - 1),
        ("boolean", True, Types.BOOLEAN(), True),
        ("year", 2024, Types.INT(), 2024),
        ("double", 0.1, Types.DOUBLE(), 0.1),
        ("double", 5e-324, Types.DOUBLE(), 5e-324),
        ("enum('a', 'b')", "b", Types.STRING(), "b"),
        ("set('a', 'b')", "a,b", Types.STRING(), "a,b"),
        ("uuid", "c0ffee00-0000-0000-0000-000000000000", Types.STRING(), "c0ffee00-0000-0000-0000-000000000000"),
    ],
)  # fmt: skip
def test_a_column_of_mysql_is_read_without_loss_or_refused(
    mariadb: MariadbServer, maria: str, column: str, stored: Any, declared: TypeInformation, wanted: Any
) -> None:
    with mariadb.connect(maria) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"CREATE OR REPLACE TABLE kinds (id int PRIMARY KEY, v {column})")
        cursor.execute("INSERT INTO kinds VALUES (1, %s), (2, NULL)", (stored,))
    if wanted is None:
        with pytest.raises(TypeMismatchError, match="the column 'v' has the value.*declare the type"):
            rows_of(maria, "SELECT * FROM kinds", "id", v=declared)
    else:
        assert rows_of(maria, "SELECT * FROM kinds", "id", v=declared) == [(wanted,), (None,)]


@pytest.fixture(scope="module")
def maria(mariadb: MariadbServer) -> str:
    """The URL of a database."""
    return mariadb.create_database()


def test_a_float_of_mysql_is_refused_since_some_of_its_digits_are_missing(mariadb: MariadbServer, maria: str) -> None:
    mariadb.query(maria, "CREATE TABLE floats (id int, v float)")
    mariadb.query(maria, "INSERT INTO floats VALUES (1, 16777217), (2, 16777215)")
    with pytest.raises(ProgramError, match=r"column 'v' is a FLOAT.*six digits.*v \+ 0E0 AS v"):
        rows_of(maria, "SELECT * FROM floats", "id", v=Types.FLOAT())
    found = rows_of(maria, "SELECT id, v + 0E0 AS v FROM floats", "id", v=Types.FLOAT())
    assert found == [(16777216.0,), (16777215.0,)]


def test_times_that_are_no_times_are_refused(mariadb: MariadbServer, maria: str) -> None:
    with mariadb.connect(maria) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("CREATE TABLE zeros (id int, v datetime)")
        cursor.execute("INSERT INTO zeros VALUES (1, '0000-00-00 00:00:00')")
    with pytest.raises(TypeMismatchError, match="the column 'v' has the value '0000-00-00 00:00:00'"):
        rows_of(maria, "SELECT * FROM zeros", "id", v=Types.SQL_TIMESTAMP())


def test_keys_that_a_database_compares_in_its_own_way_are_read_once_each(mariadb: MariadbServer, maria: str) -> None:
    keys = [Decimal(f"12345678901234567890.000000000{n}") for n in range(7)]
    mariadb.query(maria, "CREATE TABLE decimals (id decimal(40, 10))")
    with mariadb.connect(maria) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO decimals VALUES (%s)", [(key,) for key in keys])
    assert rows_of(maria, "SELECT * FROM decimals", "id", id=Types.BIG_DEC()) == [(key,) for key in keys]
    mariadb.query(maria, "CREATE TABLE moments (id datetime(6))")
    mariadb.query(maria, "INSERT INTO moments SELECT '2024-01-01' + INTERVAL seq MICROSECOND FROM seq_1_to_7")
    assert len(rows_of(maria, "SELECT * FROM moments", "id", id=Types.SQL_TIMESTAMP())) == 7


@pytest.mark.parametrize("other", ["A", "a ", "á"])
def test_texts_that_the_database_takes_for_the_same_key_are_refused(
    mariadb: MariadbServer, maria: str, other: str
) -> None:
    """Where a page ends between them, one of them would be left out."""
    mariadb.query(maria, "CREATE OR REPLACE TABLE texts (id varchar(9) COLLATE utf8mb4_general_ci)")
    for key in ("0", "a", other, "b"):
        mariadb.query(maria, "INSERT INTO texts VALUES (%s)", (key,))
    with pytest.raises(ProgramError, match=f"the key column 'id' has the value '(a|{other})' twice"):
        rows_of(maria, "SELECT * FROM texts", "id", id=Types.STRING())


@pytest.fixture
def restricted(mariadb: MariadbServer) -> Iterator[str]:
    """A database that asks the user `ann` for a password, and lets `eve` nowhere."""
    uri = mariadb.create_database()
    mariadb.query(uri, CREATE_IN_MYSQL)
    users = {"ann": f"GRANT ALL ON {uri.rsplit('/', 1)[1]}.* TO ann@127.0.0.1", "eve": "SELECT 1"}
    for user, statement in users.items():
        mariadb.query(uri, f"CREATE USER {user}@127.0.0.1 IDENTIFIED BY 'r\u00efght'")
        mariadb.query(uri, statement)
    yield uri
    for user in users:
        mariadb.query(uri, f"DROP USER {user}@127.0.0.1")


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
def test_why_postgresql_cannot_be_connected_to_is_told_apart_for_source_and_sink(
    guarded: str, changed: dict[str, str], kind: type[FlinkishError], said: str
) -> None:
    found = urlsplit(guarded)
    parts = {"user": str(found.username), "host": "127.0.0.1", "port": f":{found.port}", "database": found.path}
    parts = {**parts, "query": "", **changed}
    check_refusals("postgresql://{user}@{host}{port}{database}{query}".format(**parts), kind, said)


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({}, None, ""),
        ({"user": "ann:wrong"}, FinalOperationError, f"{NOT_LET_IN}.*1045.*Access denied for user 'ann'"),
        ({"user": "ann"}, FinalOperationError, f"{NOT_LET_IN}.*1045.*Access denied"),
        ({"user": "eve:r%C3%AFght"}, FinalOperationError, f"{NOT_LET_IN}.*1044.*Access denied"),
        ({"user": "nobody"}, FinalOperationError, f"{NOT_LET_IN}.*Access denied for user 'nobody'"),
        ({"user": "tester", "database": "/nowhere"}, FinalOperationError, f"{NOT_LET_IN}.*Unknown database 'nowhere'"),
        ({"query": "?sslMode=REQUIRED"}, FinalOperationError, f"{OTHER_SETTINGS}.*2026.*SSL is required"),
        ({"query": "?ssl_ca=/none"}, FinalOperationError, f"{OTHER_SETTINGS}.*/none"),
        ({"host": "no-such-host.invalid"}, ConnectionFailedError, "cannot be resolved: .*no-such-host.invalid"),
        ({"port": ":1"}, ConnectionFailedError, "refused"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_why_mysql_cannot_be_connected_to_is_told_apart_for_source_and_sink(
    restricted: str, changed: dict[str, str], kind: type[FlinkishError] | None, said: str
) -> None:
    found = urlsplit(restricted)
    parts = {"user": "ann:r%C3%AFght", "host": "127.0.0.1", "port": f":{found.port}", "database": found.path}
    parts = {**parts, "query": "", **changed}
    uri = "mysql://{user}@{host}{port}{database}{query}".format(**parts)
    if kind is None:
        assert read(uri) == []
    else:
        check_refusals(uri, kind, said)


@pytest.fixture(scope="module")
def secured() -> Iterator[MariadbServer]:
    with MariadbServer(secured=True) as server:
        yield server


@pytest.mark.parametrize(
    ("query", "host", "said"),
    [
        ("", "127.0.0.1", None),
        ("?sslMode=REQUIRED", "127.0.0.1", None),
        ("?useSSL=true", "127.0.0.1", None),
        ("?ssl_ca={certificate}", "127.0.0.1", None),
        ("?sslMode=VERIFY_IDENTITY&ssl_ca={certificate}", "localhost", None),
        ("?sslMode=verify-full&serverSslCert={certificate}", "127.0.0.1", "certificate is not valid for '127.0.0.1'"),
        ("?sslMode=VERIFY_CA", "127.0.0.1", "self-signed certificate"),
        ("?sslMode=DISABLED", "127.0.0.1", "Access denied"),
        ("?useSSL=false", "127.0.0.1", "Access denied"),
    ],
)
def test_tls_of_mysql_is_as_the_url_says(secured: MariadbServer, query: str, host: str, said: str | None) -> None:
    uri = secured.create_database()
    secured.query(uri, "CREATE OR REPLACE USER ann@127.0.0.1 REQUIRE SSL")
    secured.query(uri, "GRANT ALL ON *.* TO ann@127.0.0.1")
    url = uri.replace("tester@127.0.0.1", f"ann@{host}") + query.format(certificate=secured.certificate)
    sql = (
        "SELECT 1 AS id, variable_value AS v FROM information_schema.session_status WHERE variable_name = 'SSL_CIPHER'"
    )
    if said is None:
        ((cipher,),) = rows_of(url, sql, "id", v=Types.STRING())
        assert cipher
    else:
        with pytest.raises(FinalOperationError, match=said):
            rows_of(url, sql, "id", v=Types.STRING())


def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for url in (
            f"postgresql://127.0.0.1:{port}/x?connect_timeout=2",
            f"mysql://127.0.0.1:{port}/x?connectTimeout=500",
        ):
            with pytest.raises(ConnectionFailedError, match="timed out|timeout expired"):
                read(url)


def check_refusals(uri: str, kind: type[FlinkishError], said: str) -> None:
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
