"""The JDBC sink on a real PostgreSQL: rows and marker are one transaction, whoever delivers an epoch again."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from flinkish.common.time import Instant
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row, RowKind
from flinkish.connectors.jdbc.database import close
from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.kept_resources import KeptResources
from flinkish.core.sink import CommitContext
from flinkish.errors import ConnectionFailedError, FinalOperationError, OperationError, ProgramError
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until

ROW = Types.ROW_NAMED(["page", "n"], [Types.STRING(), Types.LONG()])
INSERT = "INSERT INTO counts VALUES (?, ?)"
UPSERT = "INSERT INTO counts VALUES (?, ?) ON CONFLICT (page) DO UPDATE SET n = EXCLUDED.n"


class Database:
    """A database with one table."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.uri = server.create_database()
        self.query("CREATE TABLE counts (page text PRIMARY KEY, n bigint CHECK (n >= 0))")

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.query(self.uri, statement)

    def rows(self) -> list[tuple[Any, ...]]:
        return self.query("SELECT page, n FROM counts ORDER BY page")

    def options(self) -> JdbcConnectionOptions:
        return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:" + self.uri).build()


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return Database(postgres)


def retries(count: int) -> JdbcExecutionOptions:
    return JdbcExecutionOptions.builder().with_max_retries(count).with_batch_size(10).build()


def deliver(
    sink: JdbcSink, values: list[Any], epoch: int, subtask: int = 0, source: Iterator[list[Any]] | None = None
) -> int:
    writer = sink.create_writer()
    writer.open(subtask, 2)
    batches = iter([writer.write(values, None), writer.prepare_commit()])
    context = CommitContext("job", "shop", "sink", "sink", epoch, 1_000, subtask, 2)
    return sink.create_committer().commit(source or batches, context)


@pytest.mark.parametrize("sql", [INSERT, UPSERT])
def test_an_epoch_that_is_delivered_again_changes_nothing(database: Database, sql: str) -> None:
    sink = JdbcSink.sink(sql, ROW, database.options())
    assert [deliver(sink, [Row("a", 1), ("b", 2)], epoch) for epoch in (4, 4)] == [2, 0]
    assert deliver(sink, [("c", 3)], 5) == 1
    assert database.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert database.query("SELECT * FROM flinkish_epochs") == [("job", "sink", 0, 5)]


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
    assert deliver(JdbcSink.sink(UPSERT, ROW, database.options()), [("a", 1), ("a", 2)], 0) == 2
    assert database.rows() == [("a", 2)]


@pytest.mark.parametrize("keys", [1, 3, 20_000])
def test_an_upsert_writes_one_row_per_key_and_epoch(database: Database, keys: int) -> None:
    sink = JdbcSink.upsert("counts", ["page"], ROW, database.options())
    for epoch in range(3):
        values = [(f"p{n}", n + epoch + more) for more in (0, 1) for n in range(keys)]
        assert [deliver(sink, values, epoch), deliver(sink, values, epoch)] == [keys, 0]
    assert dict(database.rows()) == {f"p{n}": n + 3 for n in range(keys)}


def test_an_upsert_deletes_what_the_rows_say_in_the_same_transaction(database: Database) -> None:
    database.query("CREATE UNIQUE INDEX ON counts (n)")
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
    killed = psycopg.connect(database.uri)
    killed.execute("UPDATE flinkish_epochs SET epoch = 1")
    killed.execute("INSERT INTO counts VALUES ('b', 1)")
    killed.close()
    assert deliver(sink, [("b", 1)], 1) == 1
    assert database.rows() == [("a", 1), ("b", 1)]


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
    assert database.query("SELECT subtask, epoch FROM flinkish_epochs ORDER BY subtask") == [(0, 9), (1, 9)]


def test_connections_that_the_server_closed_are_opened_again(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options(), retries(2))
    assert deliver(sink, [("a", 1)], 0) == 1
    database.server.kill()
    database.server.start()
    assert deliver(sink, [("b", 1)], 1) == 1
    assert database.rows() == [("a", 1), ("b", 1)]


OF_BACKEND = "INSERT INTO counts SELECT ?, ?::bigint * 0 + pg_backend_pid()"


def test_epochs_and_subtasks_use_one_connection_until_it_is_killed(database: Database) -> None:
    sink = JdbcSink.sink(OF_BACKEND, ROW, database.options())
    for epoch in range(3):
        for subtask in range(2):
            assert deliver(sink, [(f"{epoch}-{subtask}", 0)], epoch, subtask) == 1
    (backend,) = {n for _, n in database.rows()}
    assert database.query(f"SELECT pg_terminate_backend({backend})") == [(True,)]
    assert [deliver(sink, [("later", 0)], 3), deliver(sink, [("later", 0)], 3)] == [1, 0]
    assert database.query("SELECT n FROM counts WHERE page = 'later'") not in ([], [(backend,)])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_of_the_program_in_the_middle_of_a_commit_leaves_nothing(
    database: Database, error: type[BaseException]
) -> None:
    class Faulty:
        """A value whose conversion fails, while its row is sent."""

    class FaultyDumper(psycopg.adapt.Dumper):
        def dump(self, obj: Any) -> bytes:
            raise error("no value")

    psycopg.adapters.register_dumper(Faulty, FaultyDumper)
    sink = JdbcSink.sink(INSERT, ROW, database.options(), retries(0))
    deliver(sink, [("a", 1)], 0)
    values = [(f"p{n}", n) for n in range(100)]
    with pytest.raises(error, match="no value"):
        deliver(sink, [*values, ("faulty", Faulty())], 1)
    left = "SELECT count(*) FROM pg_stat_activity WHERE starts_with(state, 'idle in transaction')"
    assert database.query(left) == [(0,)]
    assert deliver(sink, [("other", 1)], 1, subtask=1) == 1
    assert database.rows() == [("a", 1), ("other", 1)]
    assert [deliver(sink, values, 1), deliver(sink, values, 1)] == [100, 0]


def test_an_idle_connection_is_closed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptResources(close, 8, idle_limit_s=0.1)
    monkeypatch.setattr("flinkish.connectors.jdbc.committer._connections", kept)
    assert deliver(JdbcSink.sink(INSERT, ROW, database.options()), [("a", 1)], 0) == 1
    name = database.uri.rsplit("/", 1)[1]
    idle = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    wait_until(lambda: database.query(idle) == [(0,)], 30, "the connection to be closed")
    assert deliver(JdbcSink.sink(INSERT, ROW, database.options()), [("b", 1)], 1) == 1


def test_a_server_that_is_down_is_the_operators_business_and_the_epoch_goes_on_when_it_is_up(
    database: Database,
) -> None:
    sink = JdbcSink.upsert("counts", ["page"], ROW, database.options(), retries(1))
    database.server.stop()
    try:
        with pytest.raises(
            ConnectionFailedError, match=r"2 attempts.*epoch 3, subtask 0, PostgreSQL 127.0.0.1:\d+/test"
        ):
            deliver(sink, [("a", 1)], 3)
    finally:
        database.server.start()
    assert deliver(sink, [("a", 1)], 3) == 1


@pytest.mark.parametrize(
    ("n", "message"),
    [
        ("x" * 1000, r"refused the row \('bad', 'xxx[x]+\.\.\.: invalid input syntax.*page: String, n: Long"),
        (-1, r"refused the row \('bad', -1\): .*check constraint.*epoch 7.*page: String, n: Long"),
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
    database: Database, column: str, fitting: Any, wrong: Any, message: str, upsert: bool
) -> None:
    database.query("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    database.query(f"CREATE TABLE things (id int PRIMARY KEY, {column})")
    kind = Types.ROW_NAMED(["id", "v"], [Types.INT(), Types.STRING()])
    sink = (
        JdbcSink.upsert("public.things", ["id"], kind, database.options())
        if upsert
        else JdbcSink.sink("INSERT INTO things (id, v) VALUES (?, ?)", kind, database.options())
    )
    if "V" not in column and "w" not in column:
        assert len(prepare(sink, (1, fitting), (2, fitting))) == 2
        assert deliver(sink, [(1, fitting), (2, fitting)], 0) == 2
    with pytest.raises(ProgramError, match=rf"(?s){message}.*nothing of the epoch is prepared"):
        prepare(sink, (3, fitting), (4, wrong))
    assert database.query("SELECT count(*) FROM things WHERE id > 2") == [(0,)]


def test_what_a_trigger_fills_in_may_be_absent(database: Database) -> None:
    database.query("ALTER TABLE counts ALTER n SET NOT NULL")
    database.query(
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 7; RETURN NEW; END $$;"
        "CREATE TRIGGER fill BEFORE INSERT ON counts FOR EACH ROW EXECUTE FUNCTION fill()"
    )
    sink = JdbcSink.sink(INSERT, ROW, database.options())
    assert deliver(sink, [("a", None)], 0) == 1
    assert database.rows() == [("a", 7)]


def test_a_violated_constraint_is_the_programs_fault(database: Database) -> None:
    sink = JdbcSink.sink(INSERT, ROW, database.options())
    deliver(sink, [("a", 1)], 0)
    with pytest.raises(ProgramError, match=r"refused the row \('a', 2\): duplicate key"):
        deliver(sink, [("b", 2), ("a", 2)], 1)
    assert database.rows() == [("a", 1)]


def test_a_missing_table_is_the_programs_fault(database: Database) -> None:
    sink = JdbcSink.sink("INSERT INTO nothing VALUES (?, ?)", ROW, database.options())
    with pytest.raises(ProgramError, match='refused the statement: relation "nothing" does not exist.*create'):
        deliver(sink, [("a", 1)], 0)


def test_a_missing_right_is_the_operators_business(database: Database) -> None:
    deliver(JdbcSink.sink(INSERT, ROW, database.options()), [("a", 1)], 0)
    database.query("CREATE ROLE reader LOGIN")
    try:
        database.query("GRANT SELECT ON flinkish_epochs TO reader")
        url = "jdbc:postgresql://reader@" + database.uri.split("@")[1]
        options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()
        with pytest.raises(OperationError, match="permission denied"):
            deliver(JdbcSink.sink(INSERT, ROW, options), [("b", 1)], 1)
    finally:
        database.query("DROP OWNED BY reader")
        database.query("DROP ROLE reader")


def test_values_of_all_types_arrive(database: Database) -> None:
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
