"""The JDBC source on a real SQLite file: each row once, whatever happens to the table meanwhile."""

from __future__ import annotations

import pickle
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Duration, Row
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSource
from flinkish.errors import ConnectionFailedError, ProgramError, SavepointError, TypeMismatchError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.table import DataTypes
from flinkish.testing import TestingSink
from tests.support.jdbc_items import CREATE, ITEM, QUERIES, insert, item
from tests.unit.minicluster.programs import environment, job_of

BLOB = "x'00ff'"


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute(CREATE.format(bytes="BLOB"))
    return connection


def source(tmp_path: Path, sql: str = "SELECT * FROM items;", **options: Any) -> JdbcSource:
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{tmp_path}/shop.db").build()
    made = JdbcSource(sql, **{"type_info": ITEM, "key_column": "id", "connection": url, "page_size": 4, **options})
    return pickle.loads(pickle.dumps(made))


def cluster_of(reading: JdbcSource, sink: TestingSink, store: StateStore | None = None, most: int = 3) -> MiniCluster:
    env = environment(1)
    env.add_source(reading).sink_to(sink)
    return MiniCluster(job_of(env), ManualClock(), store, most)


@pytest.mark.parametrize("count", [0, 1, 4, 11])
def test_all_rows_are_read_in_the_order_of_the_key(count: int, database: sqlite3.Connection, tmp_path: Path) -> None:
    if count:
        database.execute(insert(1, count, BLOB))
    sink = TestingSink()
    cluster_of(source(tmp_path), sink).run()
    assert sink.values == [item(n) for n in range(1, count + 1)]


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_may_end_in_comments_and_semicolons(sql: str, database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute(insert(1, 5, BLOB))
    sink = TestingSink()
    cluster_of(source(tmp_path, sql), sink).run()
    assert sink.values == [item(n) for n in range(1, 6)]


@pytest.mark.parametrize(
    "cursor", [{"a": 1}, 7, "x", [1, 2], [{"$bytes": 5}], [{"$bytes": "?"}], [{"$decimal": "x"}]], ids=repr
)
def test_a_cursor_that_this_source_never_gave_is_refused(cursor: Any, tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="the cursor .* cannot be read"):
        source(tmp_path).fetch(cursor)


def test_rows_that_change_or_go_after_they_were_planned_are_read_as_they_were(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute(insert(1, 10, BLOB))
    reading, sink, store = source(tmp_path, discovery_interval=Duration.of_millis(1)), TestingSink(), StateStore()
    assert not reading.bounded
    reading.poll_interval_ms = 0
    first = cluster_of(reading, sink, store)
    first.plan()
    first.dispose()
    database.execute("DELETE FROM items WHERE id < 7")
    second = cluster_of(reading, sink, store)
    second.run(5)
    assert sink.values == [item(n) for n in range(1, 11)]
    database.execute(insert(11, 2, BLOB))
    second.run(3)
    assert sink.values[10:] == [item(11), item(12)]


def test_a_table_that_is_empty_at_first_is_looked_at_again(database: sqlite3.Connection, tmp_path: Path) -> None:
    reading, sink = source(tmp_path, discovery_interval=Duration.of_millis(1)), TestingSink()
    reading.poll_interval_ms = 0
    cluster = cluster_of(reading, sink)
    cluster.run(2)
    database.execute(insert(1, 1, BLOB))
    cluster.run(2)
    assert sink.values == [item(1)]


@pytest.mark.parametrize(
    ("statement", "options", "error", "message"),
    [
        ("UPDATE items SET id = NULL WHERE id = 3", {}, ProgramError, "key column 'id' is NULL"),
        ("UPDATE items SET id = 5 WHERE id = 4", {}, ProgramError, "key column 'id' has the value 5 twice"),
        ("UPDATE items SET weight = 'heavy'", {}, TypeMismatchError, "column 'weight' has the value 'heavy'"),
        ("UPDATE items SET id = 1.5 WHERE id = 1", {}, TypeMismatchError, "column 'id' has the value 1.5"),
        ("SELECT 1", {"type_info": Types.ROW_NAMED(["sold"], [Types.STRING()])}, TypeMismatchError, "column 'sold'"),
        ("SELECT 1", {"sql": "SELECT * FROM nowhere"}, ProgramError, "the query failed: no such table: nowhere"),
        ("SELECT 1", {"key_column": "other"}, ProgramError, "no such column: q.other|key column 'other' has the value"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_exactly_is_refused(
    statement: str, options: Any, error: Any, message: str, database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute(insert(1, 9, BLOB))
    database.execute(statement)
    with pytest.raises(error, match=message):
        cluster_of(source(tmp_path, **options), TestingSink()).run()


D = Decimal
DECIMAL = DataTypes.DECIMAL(10, 2)
WIDE = "12345678901234567890.123456789012345678901"


#: (stored, declared, what is read)
EXACT: list[tuple[Any, TypeInformation, Any]] = [
    (2**31 - 1, Types.INT(), 2**31 - 1),
    (2.0, Types.LONG(), 2),
    ("9" * 40, Types.BIG_INT(), int("9" * 40)),
    (1, Types.BOOLEAN(), True),
    (2**53, Types.DOUBLE(), 2.0**53),
    (WIDE, Types.BIG_DEC(), D(WIDE)),
    ("1.990", DECIMAL, D("1.99")),
    (7, DECIMAL, D(7)),
]


def of_columns(tmp_path: Path, stored: list[Any], declared: list[TypeInformation]) -> list[Row]:
    """What is read of a table of one row, whose columns have no type in the database."""
    names = [f"v{number}" for number in range(len(stored))]
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute(f"CREATE TABLE items (id INTEGER, {', '.join(names)})")
    connection.execute(f"INSERT INTO items VALUES (1{', ?' * len(names)})", stored)
    sink = TestingSink()
    cluster_of(source(tmp_path, type_info=Types.ROW_NAMED(names, declared)), sink).run()
    return sink.values


def test_columns_of_other_types_are_read_without_loss(tmp_path: Path) -> None:
    stored, declared, wanted = map(list, zip(*EXACT, strict=True))
    (row,) = of_columns(tmp_path, stored, declared)
    assert [(value, type(value)) for value in row] == [(value, type(value)) for value in wanted]


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (2**31, Types.INT()),
        (128, Types.BYTE()),
        (2.0**53 + 2, Types.LONG()),
        (1.5, Types.BIG_INT()),
        (2, Types.BOOLEAN()),
        (1.0, Types.BOOLEAN()),
        (2**53 + 1, Types.DOUBLE()),
        ("0.1", Types.DOUBLE()),
        (1e300, Types.FLOAT()),
        (1_700_000_000_000, Types.INSTANT()),
        (1_700_000_000_000, Types.SQL_TIMESTAMP()),
        (5, Types.STRING()),
        ("NaN", Types.BIG_DEC()),
        ("1.999", DECIMAL),
        ("123456789", DECIMAL),
    ],
)  # fmt: skip
def test_a_column_of_another_type_that_would_lose_something_is_refused(
    stored: Any, declared: TypeInformation, tmp_path: Path
) -> None:
    words = "the column 'v0' has the value.*declare the type that the column has"
    with pytest.raises(TypeMismatchError, match=words):
        of_columns(tmp_path, [stored], [declared])


def test_wrong_arguments_and_missing_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailedError, match="unable to open database file"):
        cluster_of(source(tmp_path), TestingSink()).run()
    assert not (tmp_path / "shop.db").exists()
    kind: TypeInformation = Types.STRING()
    with pytest.raises(TypeMismatchError, match="ROW_NAMED"):
        source(tmp_path, type_info=kind)
    with pytest.raises(ProgramError, match="page_size=0"):
        source(tmp_path, page_size=0)


def test_texts_that_the_database_takes_for_the_same_key_are_refused_where_a_page_ends_between_them(
    tmp_path: Path,
) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE items (id TEXT COLLATE NOCASE)")
    connection.executemany("INSERT INTO items VALUES (?)", [(key,) for key in ("a", "b", "c", "d", "D", "e")])
    kind = Types.ROW_NAMED(["id"], [Types.STRING()])
    with pytest.raises(ProgramError, match="key column 'id' has the value '[dD]' twice"):
        cluster_of(source(tmp_path, type_info=kind), TestingSink()).run(20)


def test_keys_of_bytes_are_compared_as_bytes(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE items (id BLOB, name TEXT)")
    connection.executemany("INSERT INTO items VALUES (?, ?)", [(bytes([n]), str(n)) for n in range(9)])
    kind, sink = Types.ROW_NAMED(["id", "name"], [Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.STRING()]), TestingSink()
    cluster_of(source(tmp_path, type_info=kind), sink).run(20)
    assert [tuple(row) for row in sink.values] == [(bytes([n]), str(n)) for n in range(9)]


@pytest.mark.parametrize(
    ("value", "declared"), [("'abcd'", Types.PRIMITIVE_ARRAY(Types.BYTE())), ("x'0102'", Types.STRING())]
)
def test_texts_are_not_read_as_bytes_nor_bytes_as_texts(tmp_path: Path, value: str, declared: TypeInformation) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute(f"CREATE TABLE items AS SELECT 1 AS id, {value} AS v")
    with pytest.raises(TypeMismatchError, match="the column 'v' has the value"):
        cluster_of(source(tmp_path, type_info=Types.ROW_NAMED(["v"], [declared])), TestingSink()).run()
