"""The JDBC sink on a real PostgreSQL and a real MariaDB: rows and marker are one transaction, whoever delivers an epoch
again."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest

from flinkish.common import Configuration
from flinkish.common.time import Instant
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row, RowKind
from flinkish.connectors.jdbc.database import close
from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.kept_resources import KeptResources
from flinkish.core.sink import NO_FENCE, CommitContext, Fence
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import (
    ConnectionFailedError,
    FencedError,
    FinalOperationError,
    OperationError,
    ProgramError,
    RetryableError,
    TypeMismatchError,
)
from flinkish.table import StreamTableEnvironment
from tests.support.fences import FallingFence
from tests.support.mariadb import MariadbServer
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until

ROW = Types.ROW_NAMED(["page", "n"], [Types.STRING(), Types.LONG()])
INSERT = "INSERT INTO counts VALUES (?, ?)"


class Database:
    """A database with one table, and how things are said in it."""

    create: ClassVar[str]
    #: the clause of a statement of the user that upserts
    on_conflict: ClassVar[str]
    #: the number of the connection, and what ends the connection of a number
    connection_id: ClassVar[str]
    end_connection: ClassVar[str]
    #: how many other connections there are; how many of all have a transaction open
    connections: ClassVar[str]
    transactions: ClassVar[str]

    def __init__(self, server: Any) -> None:
        self.server = server
        self.uri = server.create_database()
        self.name = self.uri.rsplit("/", 1)[1]
        self.query(self.create)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.query(self.uri, statement)

    def rows(self) -> list[tuple[Any, ...]]:
        return self.query("SELECT page, n FROM counts ORDER BY page")

    def markers(self) -> list[tuple[Any, ...]]:
        found = self.query("SELECT * FROM flinkish_epochs ORDER BY subtask")
        return [tuple(each.decode() if isinstance(each, bytes) else each for each in row) for row in found]

    def options(self, uri: str | None = None) -> JdbcConnectionOptions:
        url = "jdbc:" + (uri or self.uri)
        return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()


class Postgresql(Database):
    create = "CREATE TABLE counts (page text PRIMARY KEY, n bigint CHECK (n >= 0))"
    on_conflict = "ON CONFLICT (page) DO UPDATE SET n = EXCLUDED.n"
    connection_id = "pg_backend_pid()"
    end_connection = "SELECT pg_terminate_backend({})"
    connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()"
    transactions = "SELECT count(*) FROM pg_stat_activity WHERE starts_with(state, 'idle in transaction')"


class Mariadb(Database):
    create = "CREATE TABLE counts (page varchar(50) PRIMARY KEY, n bigint CHECK (n >= 0))"
    on_conflict = "ON DUPLICATE KEY UPDATE n = VALUES(n)"
    connection_id = "connection_id()"
    end_connection = "KILL {}"
    connections = "SELECT count(*) FROM information_schema.processlist WHERE db = '{}' AND id <> connection_id()"
    transactions = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> connection_id()"


@pytest.fixture(params=[Postgresql, Mariadb])
def database(request: pytest.FixtureRequest) -> Database:
    kind: type[Database] = request.param
    return kind(request.getfixturevalue("postgres" if kind is Postgresql else "mariadb"))


@pytest.fixture
def postgresql(postgres: PostgresServer) -> Database:
    return Postgresql(postgres)


@pytest.fixture
def maria(mariadb: MariadbServer) -> Database:
    return Mariadb(mariadb)


def retries(count: int) -> JdbcExecutionOptions:
    return JdbcExecutionOptions.builder().with_max_retries(count).with_batch_size(10).build()


def deliver(
    sink: JdbcSink,
    values: list[Any],
    epoch: int,
    subtask: int = 0,
    source: Iterator[list[Any]] | None = None,
    fence: Fence = NO_FENCE,
) -> int:
    writer = sink.create_writer()
    writer.open(subtask, 2)
    batches = iter([writer.write(values, None), writer.prepare_commit()])
    context = CommitContext("job", "shop", "sink", "sink", epoch, 1_000, subtask, 2, fence=fence)
    return sink.create_committer().commit(source or batches, context)


@pytest.mark.parametrize("upserts", [False, True])
def test_an_epoch_that_is_delivered_again_changes_nothing(database: Database, upserts: bool) -> None:
    sink = JdbcSink.sink(f"{INSERT} {database.on_conflict if upserts else ''}", ROW, database.options())
    assert [deliver(sink, [Row("a", 1), ("b", 2)], epoch) for epoch in (4, 4)] == [2, 0]
    assert deliver(sink, [("c", 3)], 5) == 1
    assert database.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert database.markers() == [("job", "sink", 0, 5)]


def test_a_marker_that_is_ahead_is_an_error_and_no_reason_to_drop_rows(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options())
    context = CommitContext("job", "shop", "sink", "sink", 0, 1_000, 0, 2)
    assert sink.create_committer().last_committed_epoch(context) is None
    deliver(sink, [("a", 1)], 5)
    with pytest.raises(FinalOperationError, match="the sink has epoch 5 of this job already.*put back from a copy"):
        deliver(sink, [("b", 2)], 4)
    assert deliver(sink, [("b", 2)], 4, subtask=1) == 1
    assert sink.create_committer().last_committed_epoch(context) == 5
    assert database.rows() == [("a", 1), ("b", 2)]


def test_a_statement_that_upserts_takes_a_key_twice_in_one_epoch(database: Database) -> None:
    sink = JdbcSink.sink(f"{INSERT} {database.on_conflict}", ROW, database.options())
    assert deliver(sink, [("a", 1), ("a", 2)], 0) == 2
    assert database.rows() == [("a", 2)]


@pytest.mark.parametrize("keys", [1, 3, 20_000])
def test_an_upsert_writes_one_row_per_key_and_epoch(database: Database, keys: int) -> None:
    sink = JdbcSink.upsert("counts", ["page"], ROW, database.options())
    for epoch in range(3):
        values = [(f"p{n}", n + epoch + more) for more in (0, 1) for n in range(keys)]
        assert [deliver(sink, values, epoch), deliver(sink, values, epoch)] == [keys, 0]
    assert dict(database.rows()) == {f"p{n}": n + 3 for n in range(keys)}


def test_an_upsert_deletes_what_the_rows_say_in_the_same_transaction(database: Database) -> None:
    database.query("CREATE UNIQUE INDEX of_n ON counts (n)")
    sink = JdbcSink.upsert("counts", ["page"], ROW, database.options())
    deliver(sink, [Row("a", 1), Row("b", 2)], 0)
    changes = [Row.of_kind(RowKind.DELETE, "a", None), Row.of_kind(RowKind.UPDATE_BEFORE, "b", 2), Row("c", 1)]
    assert [deliver(sink, changes, 1), deliver(sink, changes, 1)] == [2, 0]
    assert database.rows() == [("b", 2), ("c", 1)]
    with pytest.raises(ProgramError, match=r"refused the row \('d', -1\)"):
        deliver(sink, [Row.of_kind(RowKind.DELETE, "b", 2), Row("d", -1)], 2)
    assert database.rows() == [("b", 2), ("c", 1)]


def test_what_was_not_committed_when_the_committer_died_is_written_once_by_the_next(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options())

    def dying() -> Iterator[list[Any]]:
        yield [("a", 1)]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deliver(sink, [], 0, source=dying())
    assert database.rows() == []
    assert [deliver(sink, [("a", 1)], 0), deliver(sink, [("a", 1)], 0)] == [1, 0]


def test_a_transaction_left_open_by_a_killed_process_is_not_seen(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options())
    deliver(sink, [("a", 1)], 0)
    killed = database.server.connect(database.uri)
    with killed.cursor() as cursor:
        for statement in ("BEGIN", "UPDATE flinkish_epochs SET epoch = 1", "INSERT INTO counts VALUES ('b', 1)"):
            cursor.execute(statement)
    killed.close()
    assert deliver(sink, [("b", 1)], 1) == 1
    assert database.rows() == [("a", 1), ("b", 1)]


def test_a_driver_that_is_taken_over_within_the_transaction_writes_neither_rows_nor_marker(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options())
    deliver(sink, [("a", 1)], 0)
    with pytest.raises(FencedError):
        deliver(sink, [("b", 2)], 1, fence=FallingFence())
    # nothing is left open either: the newer driver is not kept waiting
    assert deliver(sink, [("c", 3)], 1) == 1
    assert database.rows() == [("a", 1), ("c", 3)]
    with pytest.raises(FencedError):
        deliver(sink, [("b", 2)], 0, fence=FallingFence())


class Paused:
    """The fence of a worker which stands still right before its commit, while other things happen."""

    token = 0

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.meanwhile: list[Callable[[], None]] = [meanwhile]

    def check(self) -> None:
        for happens in self.meanwhile[:1]:
            self.meanwhile.clear()
            happens()


def test_a_worker_that_was_cut_off_before_its_commit_finds_its_epoch_committed_by_another(database: Database) -> None:
    sink = JdbcSink.sink(f"INSERT INTO counts SELECT ?, ? * 0 + {database.connection_id}", ROW, database.options())
    deliver(sink, [("a", 1)], 0)
    ((connection,),) = database.query("SELECT n FROM counts")
    again: list[int] = []

    def cut_off() -> None:
        database.query(database.end_connection.format(connection))
        again.append(deliver(sink, [("b", 1)], 1))

    assert deliver(sink, [("b", 1)], 1, fence=Paused(cut_off)) == 0
    assert again == [1]
    assert [page for page, _ in database.rows()] == ["a", "b"]


def test_two_committers_of_one_epoch_at_once_write_it_once(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options())
    committed: list[int] = []
    start = threading.Barrier(4)

    def run() -> None:
        for epoch in range(10):
            start.wait()
            committed.append(deliver(sink, [(f"{epoch}-{n}", n) for n in range(50)], epoch))

    in_threads(run, run, run, run)
    assert sorted(committed) == [0] * 30 + [50] * 10
    assert len(database.rows()) == 500


def test_subtasks_that_begin_at_once_create_the_marker_table_once_and_do_not_deadlock(database: Database) -> None:
    sink = JdbcSink.upsert("counts", ["page"], ROW, database.options())
    start = threading.Barrier(2)

    def run(subtask: int) -> None:
        # the same keys, in opposite orders
        values = [(f"p{n}", n) for n in range(300)][:: 1 - 2 * subtask]
        for epoch in range(10):
            start.wait()
            assert deliver(sink, values, epoch, subtask) == 300

    in_threads(lambda: run(0), lambda: run(1))
    assert len(database.rows()) == 300
    assert [row[2:] for row in database.markers()] == [(0, 9), (1, 9)]


def test_connections_that_the_server_closed_are_opened_again(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options(), retries(2))
    assert deliver(sink, [("a", 1)], 0) == 1
    database.server.kill()
    database.server.start()
    assert deliver(sink, [("b", 1)], 1) == 1
    assert database.rows() == [("a", 1), ("b", 1)]


def test_epochs_and_subtasks_use_one_connection_until_it_is_killed(database: Database) -> None:
    sink = JdbcSink.sink(f"INSERT INTO counts SELECT ?, ? * 0 + {database.connection_id}", ROW, database.options())
    for epoch in range(3):
        for subtask in range(2):
            assert deliver(sink, [(f"{epoch}-{subtask}", 0)], epoch, subtask) == 1
    (backend,) = {n for _, n in database.rows()}
    database.query(database.end_connection.format(backend))
    assert [deliver(sink, [("later", 0)], 3), deliver(sink, [("later", 0)], 3)] == [1, 0]
    assert database.query("SELECT n FROM counts WHERE page = 'later'") not in ([], [(backend,)])


class Faulty:
    """A value whose conversion fails, while its row is sent."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def fail(self) -> Any:
        raise self.error("no value")

    #: for PyMySQL, whether it is a number is asked of its class
    __class__ = property(fail)  # type: ignore[assignment]


class FaultyDumper(psycopg.adapt.Dumper):
    def dump(self, obj: Any) -> bytes:
        return bytes(obj.fail())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_of_the_program_in_the_middle_of_a_commit_leaves_nothing(
    database: Database, error: type[BaseException]
) -> None:
    psycopg.adapters.register_dumper(Faulty, FaultyDumper)
    sink = JdbcSink.sink(INSERT, ROW, database.options(), retries(0))
    deliver(sink, [("a", 1)], 0)
    values = [(f"p{n}", n) for n in range(100)]
    with pytest.raises(error, match="no value"):
        deliver(sink, [], 1, source=iter([[*values, ("faulty", Faulty(error))]]))
    assert database.query(database.transactions) == [(0,)]
    assert deliver(sink, [("other", 1)], 1, subtask=1) == 1
    assert database.rows() == [("a", 1), ("other", 1)]
    assert [deliver(sink, values, 1), deliver(sink, values, 1)] == [100, 0]


def test_an_idle_connection_is_closed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptResources(close, 8, idle_limit_s=0.1)
    monkeypatch.setattr("flinkish.connectors.jdbc.committer.CONNECTIONS", kept)
    assert deliver(JdbcSink.sink(INSERT, ROW, database.options()), [("a", 1)], 0) == 1
    idle = database.connections.format(database.name)
    wait_until(lambda: database.query(idle) == [(0,)], 30, "the connection to be closed")
    assert deliver(JdbcSink.sink(INSERT, ROW, database.options()), [("b", 1)], 1) == 1


def test_a_server_that_is_down_is_the_operators_business_and_the_epoch_goes_on_when_it_is_up(
    database: Database,
) -> None:
    sink = JdbcSink.upsert("counts", ["page"], ROW, database.options(), retries(1))
    database.server.stop()
    try:
        with pytest.raises(
            ConnectionFailedError, match=r"2 attempts.*epoch 3, subtask 0, (PostgreSQL|MySQL) 127.0.0.1:\d+/test"
        ):
            deliver(sink, [("a", 1)], 3)
    finally:
        database.server.start()
    assert deliver(sink, [("a", 1)], 3) == 1


@pytest.mark.parametrize(
    ("n", "message"),
    [
        ("x" * 1000, r"refused the row \('bad', 'xxx[x]+\.\.\.: .*(?:invalid input|Incorrect).*page: String, n: Long"),
        (-1, r"refused the row \('bad', -1\): .*(?i:constraint).*epoch 7.*page: String, n: Long"),
    ],
    ids=["before the barrier", "behind it"],
)
@pytest.mark.parametrize("upsert", [False, True])
def test_a_refused_row_is_named_and_nothing_of_its_epoch_is_written(
    database: Database, upsert: bool, n: Any, message: str
) -> None:
    sink = (
        JdbcSink.upsert("counts", ["page"], ROW, database.options())
        if upsert
        else JdbcSink.sink(INSERT, ROW, database.options(), retries(0))
    )
    values = [(f"p{i}", i) for i in range(1000)] + [("bad", n)] + [(f"q{i}", i) for i in range(1000)]
    with pytest.raises(ProgramError, match=message):
        deliver(sink, values, 7)
    assert database.rows() == []


def prepare(sink: JdbcSink, *values: Any) -> list[Any]:
    """What the writer hands over at the barrier; nothing is committed."""
    writer = sink.create_writer()
    writer.open(0, 1)
    return [*writer.write(list(values), None), *writer.prepare_commit()]


@pytest.mark.parametrize(
    ("column", "fitting", "wrong", "message"),
    [
        ("v varchar(3)", "äöü", "abcd", "value too long for type character varying"),
        ("v char(2)", "ab", "abc", "value too long for type character"),
        ("v text", "a b", "a\0b", "0x00|NUL"),
        ("v text", "\U0001f600", "\ud83d", "surrogates not allowed"),
        ("v text NOT NULL", "", None, "violates not-null constraint"),
        ("v smallint", -32768, 32768, "out of range"),
        ("v int", 2**31 - 1, 2**31, "out of range"),
        ("v bigint", 5, "five", "invalid input syntax"),
        ("v numeric(4, 2)", Decimal("99.994"), Decimal("99.995"), "numeric field overflow"),
        ("v real", 3.0, 1e39, "out of range"),
        ("v boolean", True, "maybe", "invalid input syntax for type boolean"),
        ("v date", datetime.date(2024, 2, 29), "2024-02-30", "out of range"),
        ("v timestamptz", Instant(1, 0), "soon", "invalid input syntax"),
        ("v json", '{"a": 1}', "{", "invalid input syntax for type json"),
        ("v uuid", "c0ffee00-0000-0000-0000-000000000000", "c0ffee", "invalid input syntax for type uuid"),
        ("v bytea", b"\x00", r"\x0", "invalid hexadecimal data"),
        ("v positive", 1, -1, "positive"),
        ('"V" int', 1, 2, "does not exist"),
        ("v int, w int NOT NULL", 1, 2, "null value in column"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("upsert", [True, False])
def test_a_value_that_does_not_fit_its_column_is_refused_before_its_epoch_is_prepared(
    postgresql: Database, column: str, fitting: Any, wrong: Any, message: str, upsert: bool
) -> None:
    postgresql.query("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    check_values(postgresql, "public", column, fitting, wrong, message, upsert)


@pytest.mark.parametrize(
    ("column", "fitting", "wrong", "message"),
    [
        ("v varchar(3)", "äö\U0001f600", "abcd", "Data too long"),
        ("v char(2) CHARACTER SET latin1", "äb", "\u20ac\u0416", "Incorrect string value"),
        ("v text CHARACTER SET utf8mb3", "äöü", "\U0001f600", "Incorrect string value"),
        ("v tinytext", "a\0b", "x" * 256, "Data too long"),
        ("v text", "\U0001f600", "\ud83d", "surrogates not allowed"),
        ("v varchar(9) NOT NULL", "", None, "cannot be null"),
        ("v tinyint", True, 128, "Out of range"),
        ("v smallint", -32768, 32768, "Out of range"),
        ("v mediumint unsigned", 2**24 - 1, 2**24, "Out of range"),
        ("v int unsigned", 2**32 - 1, -1, "Out of range"),
        ("v bigint unsigned", 2**64 - 1, 2**64, "Out of range"),
        ("v bigint", 5, "five", "Incorrect integer value"),
        ("v decimal(4, 2)", Decimal("99.994"), Decimal("99.995"), "Out of range"),
        ("v float", 3.0, 1e39, "Out of range|Incorrect|Illegal"),
        ("v double", 1e308, float("nan"), "nan can not be used"),
        ("v bit(3)", 7, 8, "Data too long|Out of range"),
        ("v date", datetime.date(2024, 2, 29), "2024-02-30", "Incorrect date value"),
        ("v datetime(6)", datetime.datetime(1, 1, 1), "soon", "Incorrect datetime value"),
        ("v timestamp NULL", Instant(1, 0), datetime.datetime(1970, 1, 1), "Incorrect datetime value"),
        ("v time", datetime.time(12, 30), "25 o'clock", "Incorrect time value|Data truncated"),
        ("v json", '{"a": 1}', "{", "CONSTRAINT `things.v` failed"),
        ("v uuid", UUID("c0ffee00-0000-0000-0000-000000000000"), "c0ffee", "Incorrect uuid value"),
        ("v enum('a', 'b')", "b", "c", "Data truncated"),
        ("v varbinary(2)", b"\x00\xff", b"abc", "Data too long"),
        ("v blob", memoryview(b"ab"), [1], "no form for the value"),
        ("v text", "a", object, "no form in SQL"),
        ("V int", 1, "x", "Incorrect integer value"),
        ("u int", 1, 2, "Unknown column 'v'"),
        ("v int, w int NOT NULL", 1, 2, "Field 'w' doesn't have a default value"),
        ("w int, v int AS (w + 1)", 1, 2, "generated column"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("upsert", [True, False])
def test_a_value_that_does_not_fit_its_column_of_mysql_is_refused_before_its_epoch_is_prepared(
    maria: Database, column: str, fitting: Any, wrong: Any, message: str, upsert: bool
) -> None:
    check_values(maria, maria.name, column, fitting, wrong, message, upsert)


def check_values(
    database: Database, schema: str, column: str, fitting: Any, wrong: Any, message: str, upsert: bool
) -> None:
    database.query(f"CREATE TABLE things (id int PRIMARY KEY, {column})")
    kind = Types.ROW_NAMED(["id", "v"], [Types.INT(), Types.STRING()])
    sink = (
        JdbcSink.upsert(f"{schema}.things", ["id"], kind, database.options())
        if upsert
        else JdbcSink.sink("INSERT INTO things (id, v) VALUES (?, ?)", kind, database.options())
    )
    if column[0] == "v" and "w" not in column or column == "V int":
        assert len(prepare(sink, (1, fitting), (2, fitting))) == 2
        assert deliver(sink, [(1, fitting), (2, fitting)], 0) == 2
    with pytest.raises((ProgramError, TypeMismatchError), match=f"(?s){message}") as refused:
        prepare(sink, (3, fitting), (4, wrong))
    assert "nothing of the epoch is prepared" in str(refused.value) or "no form for the value" in message
    assert database.query("SELECT count(*) FROM things WHERE id > 2") == [(0,)]


FILL = {
    Postgresql: (
        "ALTER TABLE counts ALTER n SET NOT NULL",
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 7; RETURN NEW; END $$",
        "CREATE TRIGGER fill BEFORE INSERT ON counts FOR EACH ROW EXECUTE FUNCTION fill()",
    ),
    Mariadb: (
        "ALTER TABLE counts MODIFY n bigint NOT NULL",
        "CREATE TRIGGER fill BEFORE INSERT ON counts FOR EACH ROW SET NEW.n = 7",
    ),
}


def test_what_a_trigger_fills_in_may_be_absent(database: Database) -> None:
    for statement in FILL[type(database)]:
        database.query(statement)
    sink = JdbcSink.sink(INSERT, ROW, database.options())
    assert deliver(sink, [("a", None)], 0) == 1
    assert database.rows() == [("a", 7)]


def test_a_violated_constraint_is_the_programs_fault(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options())
    deliver(sink, [("a", 1)], 0)
    with pytest.raises(ProgramError, match=r"refused the row \('a', 2\): .*(?i:duplicate)"):
        deliver(sink, [("b", 2), ("a", 2)], 1)
    assert database.rows() == [("a", 1)]


def test_a_missing_table_is_the_programs_fault(database: Database) -> None:
    sink = JdbcSink.sink("INSERT INTO nothing VALUES (?, ?)", ROW, database.options())
    with pytest.raises(ProgramError, match=r"refused the statement: .*nothing\W+ (does not|doesn't) exist.*create"):
        deliver(sink, [("a", 1)], 0)


READER = {
    Postgresql: (
        ("CREATE ROLE reader LOGIN", "GRANT SELECT ON flinkish_epochs TO reader"),
        ("DROP OWNED BY reader", "DROP ROLE reader"),
    ),
    Mariadb: (
        ("CREATE USER reader@127.0.0.1", "GRANT SELECT ON flinkish_epochs TO reader@127.0.0.1"),
        ("DROP USER reader@127.0.0.1",),
    ),
}


def test_a_missing_right_is_the_operators_business(database: Database) -> None:
    deliver(JdbcSink.sink(INSERT, ROW, database.options()), [("a", 1)], 0)
    created, dropped = READER[type(database)]
    for statement in created:
        database.query(statement)
    try:
        options = database.options(f"{database.uri.split(':')[0]}://reader@{database.uri.split('@')[1]}")
        with pytest.raises(OperationError, match="permission denied|denied to user 'reader'"):
            deliver(JdbcSink.sink(INSERT, ROW, options), [("b", 1)], 1)
    finally:
        for statement in dropped:
            database.query(statement)


def test_values_of_all_types_arrive(postgresql: Database) -> None:
    database = postgresql
    database.query(
        'CREATE TABLE "Things" ("Key" int PRIMARY KEY, i timestamptz, d date, b bytea, l bigint[], x numeric, t bool)'
    )
    names = ["Key", "i", "d", "b", "l", "x", "t"]
    types = [
        Types.INT(), Types.INSTANT(), Types.SQL_DATE(), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.LIST(Types.LONG()),
        Types.BIG_DEC(), Types.BOOLEAN(),
    ]  # fmt: skip
    day = datetime.date(2024, 2, 29)
    row = (1, Instant(1, 5_000), day, b"\x00\xff", [1, 2], Decimal("1.50"), True)
    empty = (2, *[None] * 6)
    sink = JdbcSink.upsert("Things", ["Key"], Types.ROW_NAMED(names, types), database.options())
    sql = 'INSERT INTO "Things" SELECT ? + 10, ?, ?, ?, ?, ?, ?'
    other = JdbcSink.sink(sql, Types.ROW(types), database.options())
    assert deliver(sink, [row, empty], 0) == deliver(other, [row, empty], 1) == 2
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=datetime.timezone.utc)
    full, none = (moment, *row[2:]), empty[1:]
    assert database.query('SELECT * FROM "Things" ORDER BY 1') == [(1, *full), (2, *none), (11, *full), (12, *none)]


def test_values_of_all_types_arrive_in_mysql(maria: Database) -> None:
    maria.query(
        "CREATE TABLE `The things` (`Key` int PRIMARY KEY, i timestamp(6) NULL, d date, m datetime(6), o time(6), "
        "b blob, x decimal(65, 30), t bool, f float, j json, u bigint unsigned, z datetime)"
    )
    names = ["Key", "i", "d", "m", "o", "b", "x", "t", "f", "j", "u", "z"]
    types = [
        Types.INT(), Types.INSTANT(), Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.SQL_TIME(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.BIG_DEC(), Types.BOOLEAN(), Types.FLOAT(), Types.STRING(),
        Types.BIG_INT(), Types.SQL_TIMESTAMP(),
    ]  # fmt: skip
    moment, x = datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999), Decimal("1" * 35 + "." + "2" * 30)
    zoned = moment.replace(microsecond=0, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    row = (
        1, Instant(1, 5_000), moment.date(), moment, moment.time(), b"\x00\xff'\\", x, True, 1.5, '{"a": "ä%s?\'"}',
        2**64 - 1, zoned,
    )  # fmt: skip
    empty = (2, *[None] * 11)
    sink = JdbcSink.upsert("The things", ["Key"], Types.ROW_NAMED(names, types), maria.options())
    sql = "INSERT INTO `The things` SELECT ? + 10, " + ", ".join("?" * 11)
    other = JdbcSink.sink(sql, Types.ROW(types), maria.options())
    assert deliver(sink, [row, empty], 0) == deliver(other, [row, empty], 1) == 2
    found = maria.query("SELECT *, unix_timestamp(i), TIME_FORMAT(o, '%T.%f') FROM `The things` ORDER BY 1")
    assert [tuple(each[:1]) for each in found] == [(1,), (2,), (11,), (12,)]
    assert found[1][1:] == found[3][1:] == (None,) * 13
    expected = (
        *row[2:4],
        *row[5:11],
        datetime.datetime(2024, 2, 29, 21, 59, 59),
        Decimal("1.000005"),
        "23:59:59.999999",
    )
    for each in (found[0], found[2]):
        assert (*each[2:4], *each[5:]) == expected


@pytest.mark.parametrize(
    ("create", "key", "message"),
    [
        ("CREATE TABLE things (page varchar(9) PRIMARY KEY, n int) ENGINE=MyISAM", "page", "MyISAM.*no transactions"),
        ("CREATE TABLE things (page varchar(9), n int)", "page", r"no unique index on exactly \(page\)"),
        ("CREATE TABLE things (page varchar(9), n int, KEY (page))", "page", "no unique index on exactly"),
        ("CREATE TABLE things (page varchar(9), n int, UNIQUE (page(3)))", "page", "no unique index on exactly"),
        ("CREATE TABLE things (page varchar(9), n int, PRIMARY KEY (page, n))", "page", "no unique index on exactly"),
        ("CREATE TABLE things (page varchar(9) PRIMARY KEY, n int)", "page,n", r"index on exactly \(page, n\)"),
    ],
)
def test_a_table_of_mysql_on_which_promises_cannot_be_kept_is_refused(
    maria: Database, create: str, key: str, message: str
) -> None:
    maria.query(create)
    sink = JdbcSink.upsert("things", key.split(","), ROW, maria.options())
    with pytest.raises(ProgramError, match=message):
        prepare(sink, ("a", 1))
    # the catalogue is looked at again when the epoch is committed, since it may not have been there before
    with pytest.raises(ProgramError, match=message):
        deliver(sink, [], 0, source=iter([[("a", 1)]]))
    assert maria.query("SELECT * FROM things") == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("varchar(9) CHARACTER SET latin1", "ä"),
        ("varbinary(9)", b"\xff\x00"),
        ("bigint unsigned", 2**64 - 1),
        ("decimal(30, 10)", Decimal("12345678901234567890.0123456789")),
        ("double", 0.1),
        ("bit(9)", 257),
        ("boolean", True),
        ("date", datetime.date(2024, 2, 29)),
        ("datetime(6)", datetime.datetime(2024, 2, 29, 12, 0, 0, 123_456)),
        ("timestamp(6)", Instant(1709208000, 123_456_000)),
        ("time(6)", datetime.time(12, 0, 0, 123_456)),
        ("uuid", UUID("c0ffee00-0000-0000-0000-000000000000")),
        ("enum('b', 'a')", "a"),
    ],
)
def test_keys_of_mysql_may_be_of_any_type(maria: Database, key: str, value: Any) -> None:
    maria.query(f"CREATE TABLE things (page {key} PRIMARY KEY, n bigint)")
    sink = JdbcSink.upsert("things", ["page"], ROW, maria.options())
    deliver(sink, [(value, 1)], 0)
    before = maria.query("SELECT page FROM things")
    deliver(sink, [(value, 2)], 1)
    assert maria.query("SELECT page, n FROM things") == [(*before[0], 2)]
    deliver(sink, [Row.of_kind(RowKind.DELETE, value, None)], 2)
    assert maria.query("SELECT page FROM things") == []


def test_an_upsert_of_mysql_changes_no_row_that_has_another_key(maria: Database) -> None:
    maria.query("CREATE TABLE things (id int AUTO_INCREMENT PRIMARY KEY, page varchar(9) UNIQUE, n int UNIQUE)")
    sink = JdbcSink.upsert("things", ["page"], ROW, maria.options())
    assert deliver(sink, [("a", 1), ("b", 2)], 0) == 2
    with pytest.raises(ProgramError, match=r"row \('c', 2\).*another unique index than that of the key \(page\)"):
        deliver(sink, [("a", 3), ("c", 2)], 1)
    assert deliver(sink, [("a", 3)], 1) == 1
    assert maria.query("SELECT page, n FROM things ORDER BY page") == [("a", 3), ("b", 2)]


def test_values_that_a_lax_server_would_cut_off_are_refused(maria: Database) -> None:
    maria.query("SET GLOBAL sql_mode = ''")
    try:
        sink = JdbcSink.sink(INSERT, ROW, maria.options())
        with pytest.raises(ProgramError, match="Data too long"):
            deliver(sink, [("x" * 51, 1)], 0)
    finally:
        maria.query("SET GLOBAL sql_mode = DEFAULT")


def test_a_session_of_mysql_gives_up_its_locks_when_its_client_is_silent(maria: Database) -> None:
    sql = "INSERT INTO counts SELECT ?, ? * 0 + @@wait_timeout"
    deliver(JdbcSink.sink(sql, ROW, maria.options()), [("a", 0)], 0)
    assert maria.rows() == [("a", 120)]


def test_a_row_that_another_transaction_holds_is_worth_a_retry(maria: Database) -> None:
    maria.query("SET GLOBAL innodb_lock_wait_timeout = 1")
    try:
        sink = JdbcSink.upsert("counts", ["page"], ROW, maria.options(), retries(0))
        with maria.server.connect(maria.uri) as other, other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO counts VALUES ('a', 1)")
            with pytest.raises(RetryableError, match="lost against others 1 times: .*1205"):
                deliver(sink, [("a", 2)], 0)
        assert deliver(sink, [("a", 2)], 0) == 1
        assert maria.rows() == [("a", 2)]
    finally:
        maria.query("SET GLOBAL innodb_lock_wait_timeout = DEFAULT")


def test_statements_of_mysql_have_as_many_rows_as_the_user_or_the_server_says(maria: Database) -> None:
    maria.query("CREATE TABLE log (page mediumtext, n bigint)")
    count = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'COM_INSERT'"
    statements = []
    for epoch, (batch_size, text) in enumerate([(1, "a"), (10, "a"), (0, "a"), (0, "a" * 30_000)]):
        execution = JdbcExecutionOptions.builder().with_batch_size(batch_size).build()
        sink = JdbcSink.sink("INSERT INTO log (page, n) VALUE (?, ?) ;", ROW, maria.options(), execution)
        ((before,),) = maria.query(count)
        deliver(sink, [(text, n) for n in range(100)], epoch)
        ((after,),) = maria.query(count)
        # one of them is that of the marker
        statements.append(int(after) - int(before) - 1)
    assert statements == [100, 10, 1, 3]
    assert maria.query("SELECT count(*), sum(n) FROM log") == [(400, 4 * 4950)]
    with pytest.raises(ProgramError, match="a row of .* bytes is more than max_allowed_packet lets in"):
        deliver(JdbcSink.sink("INSERT INTO log VALUES (?, ?)", ROW, maria.options()), [("x" * (2 << 20), 1)], 4)


def test_the_table_connector_inserts_and_upserts_into_mysql(maria: Database) -> None:
    maria.query("CREATE TABLE log (page varchar(9), n bigint)")
    configuration = Configuration().set_string("execution.target", "minicluster")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    for table, key in (("counts", ", PRIMARY KEY (page) NOT ENFORCED"), ("log", "")):
        t_env.execute_sql(
            f"CREATE TABLE {table} (page STRING, n BIGINT{key}) WITH ('connector' = 'jdbc', 'table-name' = '{table}', "
            f"'url' = 'jdbc:{maria.uri.replace('tester@', '')}', 'username' = 'tester')"
        )
        stream = env.from_collection([Row("a", 1), Row("b", 1), Row("a", 2)], ROW)
        t_env.from_data_stream(stream).execute_insert(table).wait()
    assert maria.rows() == [("a", 2), ("b", 1)]
    assert sorted(maria.query("SELECT * FROM log")) == [("a", 1), ("a", 2), ("b", 1)]


def test_a_table_by_its_key_has_what_the_changes_of_a_query_leave(database: Database) -> None:
    configuration = Configuration().set_string("execution.target", "minicluster")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    t_env.execute_sql(
        "CREATE TABLE counts (page STRING, n BIGINT, PRIMARY KEY (page) NOT ENFORCED) WITH ('connector' = 'jdbc', "
        f"'table-name' = 'counts', 'url' = 'jdbc:{database.uri}')"
    )
    t_env.execute_sql(
        "INSERT INTO counts SELECT page, COUNT(*) FROM (VALUES ('a'), ('b'), ('a'), ('c')) AS t (page) GROUP BY page"
    ).wait()
    assert database.rows() == [("a", 2), ("b", 1), ("c", 1)]
    changes = [
        Row.of_kind(RowKind.UPDATE_BEFORE, "a", 2),
        Row.of_kind(RowKind.UPDATE_AFTER, "a", 3),
        # retracted and not replaced
        Row.of_kind(RowKind.UPDATE_BEFORE, "b", 1),
        Row.of_kind(RowKind.DELETE, "c", 1),
        Row.of_kind(RowKind.INSERT, "c", 7),
    ]
    t_env.from_changelog_stream(env.from_collection(changes, ROW)).execute_insert("counts").wait()
    assert database.rows() == [("a", 3), ("c", 7)]
    with t_env.execute_sql("SELECT n, page FROM counts WHERE n > 3").collect() as rows:
        assert [[*row] for row in rows] == [[7, "c"]]


def test_names_of_a_table_without_quotes_are_postgresqls_in_lower_case(postgresql: Database) -> None:
    # Flink hands names to PostgreSQL as they are declared, so that programs leave the case of its columns open
    postgresql.query('CREATE SCHEMA shop; CREATE TABLE shop.Trips (PULocationID int, "Fare" bigint, n int)')
    configuration = Configuration().set_string("execution.target", "minicluster")
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(configuration))
    for table, key in (("trips", ""), ("by_key", "PRIMARY KEY (PULocationID) NOT ENFORCED, ")):
        t_env.execute_sql(
            f"""CREATE TABLE {table} (PULocationID INT, {key}`"Fare"` BIGINT, N INT) WITH ('connector' = 'jdbc',
            'table-name' = '"shop".Trips', 'scan.key-column' = 'PULocationID', 'url' = 'jdbc:{postgresql.uri}')"""
        )
    t_env.execute_sql("INSERT INTO trips VALUES (1, CAST(10 AS BIGINT), 5), (2, CAST(20 AS BIGINT), 6)").wait()
    postgresql.query("CREATE UNIQUE INDEX ON shop.trips (pulocationid)")
    t_env.execute_sql("INSERT INTO by_key VALUES (2, CAST(21 AS BIGINT), 7)").wait()
    with t_env.execute_sql('SELECT N, PULocationID, `"Fare"` FROM by_key').collect() as rows:
        assert [[*row] for row in rows] == [[5, 1, 10], [7, 2, 21]]


def in_threads(*functions: Any) -> None:
    errors: list[BaseException] = []

    def run(function: Any) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
