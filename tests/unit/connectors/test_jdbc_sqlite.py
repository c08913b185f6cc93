"""The JDBC sink on a real SQLite file: each row once, whatever is delivered again."""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections import namedtuple
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flinkish.common.time import Instant
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row, RowKind
from flinkish.connectors.jdbc.database import Database, DatabaseLocation, open_database
from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.core.sink import NO_FENCE, CommitContext, Fence
from flinkish.errors import (
    ConnectionFailedError,
    FencedError,
    FinalOperationError,
    ProgramError,
    RetryableError,
    TypeMismatchError,
)
from tests.support.fences import FallingFence

ROW = Types.ROW_NAMED(["page", "n"], [Types.STRING(), Types.LONG()])
INSERT = "INSERT INTO counts VALUES (?, ?)"


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE counts (page TEXT PRIMARY KEY, n INTEGER CHECK (n >= 0))")
    return connection


def options(tmp_path: Path, name: str = "shop.db") -> JdbcConnectionOptions:
    return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{tmp_path / name}").build()


@pytest.fixture
def sink(tmp_path: Path, database: sqlite3.Connection) -> JdbcSink:
    """Inserts into the table of the database."""
    return JdbcSink.sink(INSERT, ROW, options(tmp_path))


def no_retry() -> JdbcExecutionOptions:
    return JdbcExecutionOptions.builder().with_max_retries(0).build()


def deliver(
    sink: JdbcSink, values: list[Any], epoch: int, subtask: int = 0, job_id: str = "job", fence: Fence = NO_FENCE
) -> int:
    writer = sink.create_writer()
    writer.open(subtask, 2)
    batches = [writer.write(values[:1], None), writer.write(values[1:], None), writer.prepare_commit()]
    context = CommitContext(job_id, "shop", "sink", "sink", epoch, 1_000, subtask, 2, fence=fence)
    return sink.create_committer().commit(iter(batches), context)


def rows(database: sqlite3.Connection) -> list[Any]:
    return database.execute("SELECT page, n FROM counts ORDER BY page").fetchall()


def test_an_epoch_that_is_delivered_again_changes_nothing(sink: JdbcSink, database: sqlite3.Connection) -> None:
    assert [deliver(sink, [Row("a", 1), ("b", 2)], epoch) for epoch in (4, 4)] == [2, 0]
    assert deliver(sink, [("c", 3)], 5) == 1
    assert rows(database) == [("a", 1), ("b", 2), ("c", 3)]
    assert database.execute("SELECT * FROM flinkish_epochs").fetchall() == [("job", "sink", 0, 5)]


def test_a_driver_that_is_taken_over_within_the_transaction_writes_neither_rows_nor_marker(
    sink: JdbcSink, database: sqlite3.Connection
) -> None:
    deliver(sink, [("a", 1)], 0)
    with pytest.raises(FencedError):
        deliver(sink, [("b", 2)], 1, fence=FallingFence())
    # nothing is left open either: the newer driver is not kept waiting
    assert deliver(sink, [("c", 3)], 1) == 1
    assert rows(database) == [("a", 1), ("c", 3)]


def test_an_older_driver_that_comes_late_with_an_epoch_finds_it_done(
    sink: JdbcSink, database: sqlite3.Connection
) -> None:
    """Between its last look at the fence and its commit: an epoch's number stands for the same records, whoever runs
    it, so that the marker is all it takes."""
    assert deliver(sink, [("a", 1)], 4) == 1
    assert deliver(sink, [("a", 1)], 4, fence=FallingFence(passes=1)) == 0
    assert rows(database) == [("a", 1)]


def test_a_marker_that_is_ahead_is_an_error_and_no_reason_to_drop_rows(
    sink: JdbcSink, database: sqlite3.Connection
) -> None:
    deliver(sink, [("a", 1)], 5)
    with pytest.raises(
        FinalOperationError,
        match="the sink has epoch 5 of this job already, and the job is at epoch 4 only.*put back from a copy.*"
        "sink 'sink' of job 'shop'.*put back the newest state of the directory; or",
    ):
        deliver(sink, [("b", 2)], 4)
    # that of a driver which was superseded says so instead
    with pytest.raises(FencedError):
        deliver(sink, [("b", 2)], 4, fence=FallingFence())
    assert deliver(sink, [("b", 2)], 4, subtask=1) == 1, "subtasks have markers of their own"
    assert rows(database) == [("a", 1), ("b", 2)]


def test_the_last_epoch_is_the_highest_marker_of_the_sinks_subtasks(tmp_path: Path, sink: JdbcSink) -> None:
    context = CommitContext("job", "shop", "sink", "sink", 0, 1_000, 0, 2)
    assert sink.create_committer().last_committed_epoch(context) is None
    for number, (epoch, subtask, job_id) in enumerate([(7, 1, "job"), (5, 0, "job"), (9, 0, "other")]):
        deliver(sink, [(str(number), 1)], epoch, subtask, job_id)
    assert sink.create_committer().last_committed_epoch(context) == 7
    nowhere = JdbcSink.sink(INSERT, ROW, options(tmp_path, "none/x.db"), no_retry())
    with pytest.raises(ConnectionFailedError, match="cannot be reached"):
        nowhere.create_committer().last_committed_epoch(context)


def test_markers_of_subtasks_and_jobs_are_apart(sink: JdbcSink, database: sqlite3.Connection) -> None:
    assert deliver(sink, [("a", 1)], 0) == deliver(sink, [("b", 1)], 0, subtask=1) == 1
    assert deliver(sink, [("c", 1)], 0, job_id="other") == 1
    assert len(rows(database)) == 3


def test_an_epoch_without_rows_asks_no_database(tmp_path: Path) -> None:
    assert deliver(JdbcSink.sink(INSERT, ROW, options(tmp_path, "none/x.db")), [], 0) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_upsert_writes_one_row_per_key_and_epoch(tmp_path: Path, database: sqlite3.Connection) -> None:
    sink = JdbcSink.upsert("counts", ["page"], ROW, options(tmp_path))
    assert deliver(sink, [("a", 1), ("b", 1), ("a", 2), ("a", 3)], 0) == 2
    assert rows(database) == [("a", 3), ("b", 1)]
    assert deliver(sink, [("a", 4)], 1) == 1
    assert rows(database) == [("a", 4), ("b", 1)]


def test_subtasks_that_commit_at_once_all_get_through(sink: JdbcSink, database: sqlite3.Connection) -> None:
    committed: list[int] = []

    def run(subtask: int) -> None:
        for epoch in range(5):
            committed.append(deliver(sink, [(f"{subtask}-{epoch}", 1)], epoch, subtask))

    threads = [threading.Thread(target=run, args=(subtask,)) for subtask in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert committed == [1] * 20
    assert len(rows(database)) == 20


def test_values_without_a_form_in_sqlite_become_texts_that_sort(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE things (i, d, t, h, s, b)")
    types = [Types.INSTANT(), Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.BIG_DEC(), Types.STRING(), Types.BOOLEAN()]
    sink = JdbcSink.sink("INSERT INTO things VALUES (?, ?, ?, ?, ?, ?)", Types.ROW(types), options(tmp_path))
    day, moment = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3)
    deliver(sink, [(Instant(0, 5_000), day, moment, Decimal("1.50"), None, True), (None,) * 6], 0)
    assert database.execute("SELECT * FROM things").fetchall() == [
        ("1970-01-01 00:00:00.000005+00:00", "2024-02-29", "2024-02-29 01:02:03", "1.50", None, 1), (None,) * 6,
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", ["ab", 7, ("a",), Row("a", 1, 2), None])
def test_a_record_that_is_no_row_of_the_statement_is_named(tmp_path: Path, wrong: object) -> None:
    for sink in (
        JdbcSink.sink(INSERT, ROW, options(tmp_path)),
        JdbcSink.upsert("counts", ["n"], ROW, options(tmp_path)),
    ):
        with pytest.raises(TypeMismatchError, match="is no row for the statement.*2 fields"):
            deliver(sink, [wrong], 0)


def test_a_null_in_a_primary_key_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match=r"\(None, 1\) has a null in its primary key"):
        deliver(JdbcSink.upsert("counts", ["page"], ROW, options(tmp_path)), [(None, 1)], 0)


def test_a_refused_row_is_named_and_nothing_of_its_epoch_is_written(
    sink: JdbcSink, database: sqlite3.Connection
) -> None:
    values = [(f"p{n}", n) for n in range(50)] + [("bad", -1)] + [(f"q{n}", n) for n in range(50)]
    with pytest.raises(ProgramError, match=r"refused the row \('bad', -1\).*CHECK.*epoch 7.*page: String, n: Long"):
        deliver(sink, values, 7)
    assert rows(database) == []
    assert deliver(sink, [value for value in values if value[1] >= 0], 7) == 100


def test_all_refused_rows_are_named_by_their_numbers_in_the_epoch(tmp_path: Path, database: sqlite3.Connection) -> None:
    for sink in (
        JdbcSink.sink(INSERT, ROW, options(tmp_path)),
        JdbcSink.upsert("counts", ["page"], ROW, options(tmp_path)),
    ):
        values = [("z", -1), ("b", 1), ("a", -2), ("c", 2), ("y", -3)]
        with pytest.raises(ProgramError, match=r"and 2 more.*--sink 'sink' --subtask 0 --skip 1,3,5 --into FILE"):
            deliver(sink, values, 0)


class Faulty:
    """A value whose conversion fails, while its row is written."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __conform__(self, protocol: object) -> None:
        raise self.error("no value")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_of_the_program_in_the_middle_of_a_commit_leaves_nothing(
    sink: JdbcSink, database: sqlite3.Connection, error: type[BaseException]
) -> None:
    deliver(sink, [("a", 1)], 0)
    with pytest.raises(error, match="no value"):
        deliver(sink, [("b", 2), ("c", Faulty(error))], 1)
    # no lock is left either
    database.execute("PRAGMA busy_timeout = 0")
    database.execute("INSERT INTO counts VALUES ('mine', 1)")
    assert deliver(sink, [("d", 4)], 1, subtask=1) == 1
    assert rows(database) == [("a", 1), ("d", 4), ("mine", 1)]
    assert [deliver(sink, [("b", 2)], 1), deliver(sink, [("b", 2)], 1)] == [1, 0]


def test_an_error_while_committables_are_read_leaves_nothing(sink: JdbcSink) -> None:
    def torn() -> Iterator[list[Any]]:
        yield [("a", 1)]
        raise EOFError("the file ends here")

    context = CommitContext("job", "shop", "sink", "sink", 0, 1_000, 0, 1)
    with pytest.raises(EOFError):
        sink.create_committer().commit(torn(), context)
    assert deliver(sink, [("a", 1)], 0) == 1


def test_epochs_and_subtasks_use_one_connection_and_other_databases_another(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def counting(location: DatabaseLocation) -> Database:
        opened.append(Path(location.parameters["path"]).name)
        return open_database(location)

    monkeypatch.setattr("flinkish.connectors.jdbc.committer.open_database", counting)
    for epoch in range(3):
        for subtask in range(2):
            deliver(JdbcSink.sink(INSERT, ROW, options(tmp_path)), [(f"{epoch}-{subtask}", 1)], epoch, subtask)
    assert opened == ["shop.db"]
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE counts (page, n)")
    deliver(JdbcSink.sink(INSERT, ROW, options(tmp_path, "other.db")), [("a", 1)], 0)
    assert opened == ["shop.db", "other.db"]


def test_a_database_file_that_was_replaced_is_opened_again(
    tmp_path: Path, sink: JdbcSink, database: sqlite3.Connection
) -> None:
    deliver(sink, [("a", 1)], 0)
    database.close()
    for file in tmp_path.glob("shop.db*"):
        file.unlink()
    anew = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    anew.execute("CREATE TABLE counts (page, n)")
    assert deliver(sink, [("b", 2)], 1) == 1
    assert rows(anew) == [("b", 2)]


def test_a_missing_table_is_the_programs_fault(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="refused the statement: no such table: counts"):
        deliver(JdbcSink.sink(INSERT, ROW, options(tmp_path)), [("a", 1)], 0)


def test_a_file_that_cannot_be_opened_is_the_operators_business(tmp_path: Path) -> None:
    sink = JdbcSink.sink(INSERT, ROW, options(tmp_path, "none/x.db"), no_retry())
    with pytest.raises(ConnectionFailedError, match=r"1 attempts.*unable to open.*none/x.db"):
        deliver(sink, [("a", 1)], 0)


def test_a_database_that_stays_locked_is_worth_a_retry(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flinkish.connectors.jdbc.sqlite.BUSY_TIMEOUT_S", 0)
    database.execute("BEGIN IMMEDIATE")
    sink = JdbcSink.sink(INSERT, ROW, options(tmp_path), no_retry())
    with pytest.raises(RetryableError, match="lost against others 1 times"):
        deliver(sink, [("a", 1)], 0)
    database.execute("ROLLBACK")
    assert deliver(sink, [("a", 1)], 0) == 1


@pytest.mark.parametrize("upsert", [False, True])
def test_rows_with_field_names_are_written_by_name(tmp_path: Path, database: sqlite3.Connection, upsert: bool) -> None:
    place = options(tmp_path)
    sink = JdbcSink.upsert("counts", ["page"], ROW, place) if upsert else JdbcSink.sink(INSERT, ROW, place)
    deliver(sink, [Row(n=1, page="a"), Row(page="b", n=2), Row(x="c", y=3), Row("d", 4)], 0)
    assert rows(database) == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]


def test_named_tuples_are_tuples(tmp_path: Path, database: sqlite3.Connection) -> None:
    count = namedtuple("count", "page n")
    deliver(JdbcSink.sink(INSERT, ROW, options(tmp_path)), [count("a", 1)], 0)
    assert rows(database) == [("a", 1)]


def test_a_record_without_positions_is_named_by_an_upsert_too(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match="of type dict is no row"):
        deliver(JdbcSink.upsert("counts", ["page"], ROW, options(tmp_path)), [{"page": "a"}], 0)


def test_half_of_a_surrogate_pair_is_an_error_that_names_the_row(tmp_path: Path, database: sqlite3.Connection) -> None:
    with pytest.raises(ProgramError, match=r"refused the row \('\\ud800', 2\)"):
        deliver(JdbcSink.sink(INSERT, ROW, options(tmp_path)), [("a", 1), ("\ud800", 2)], 0)
    assert rows(database) == []


@pytest.mark.parametrize(
    ("table", "error"), [("locked_pages", "UNIQUE constraint failed"), ("busy.locked", "no such table")]
)
def test_names_in_sqlites_messages_do_not_make_them_conflicts(
    tmp_path: Path, database: sqlite3.Connection, table: str, error: str
) -> None:
    database.execute("CREATE TABLE locked_pages (page TEXT PRIMARY KEY, n INTEGER)")
    sink = JdbcSink.sink(f"INSERT INTO {table} VALUES (?, ?)", ROW, options(tmp_path), no_retry())
    with pytest.raises(ProgramError, match=error):
        deliver(sink, [("a", 1), ("a", 2)], 0)


def test_a_relative_path_of_a_database_is_the_programs_wherever_the_workers_are(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:shop.db").build()
    sink = JdbcSink.sink(INSERT, ROW, url)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    deliver(sink, [("a", 1)], 0)
    assert rows(database) == [("a", 1)]


def prepare(sink: JdbcSink, *values: Any) -> list[Any]:
    """What the writer hands over at the barrier; nothing is committed."""
    writer = sink.create_writer()
    writer.open(0, 1)
    return [*writer.write(list(values), None), *writer.prepare_commit()]


THINGS = "CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT NOT NULL, weight REAL DEFAULT 1.0)"
THING = Types.ROW_NAMED(["id", "name", "weight"], [Types.LONG(), Types.STRING(), Types.DOUBLE()])


@pytest.mark.parametrize(
    ("create", "sql", "row", "message"),
    [
        (THINGS, "INSERT INTO things VALUES (?, ?, ?)", (1, None, 1.0), r"row \(1, None, 1.0\): NOT NULL.*things.name"),
        (THINGS, 'insert into "things" ("name", ID, weight) values (?, ?, ?)', (None, 1, 1.0), "NOT NULL"),
        (THINGS, "INSERT INTO main.Things (weight, name) VALUES (?, ?)", (1.0, None), "NOT NULL.*things.name"),
        (THINGS, "INSERT INTO things VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (2**63, "a", 1.0), "too large"),
        (THINGS, "INSERT INTO things VALUES (?, ?, ?)", ("one", "a", 1.0), "datatype mismatch"),
        (THINGS, "INSERT INTO things VALUES (?, ?, ?)", (1, "\ud83d", 1.0), "surrogates not allowed"),
        (f"{THINGS} STRICT", "INSERT INTO things VALUES (?, ?, ?)", (1, "a", "heavy"), "cannot store TEXT"),
        (THINGS, "INSERT INTO absent VALUES (?)", (1,), "refused the statement: no such table: absent"),
        (THINGS, "INSERT INTO things (id, absent) VALUES (?, ?)", (1, 2), "refused the statement.*absent"),
        (THINGS, "INSERT INTO things (id) VALUES (?)", (1,), "NOT NULL.*things.name"),
        (THINGS, "INSERT INTO things VALUES (?, ?)", (1, "a"), "refused the statement.*3 columns but 2 values"),
        (THINGS, "upsert", (1, None, 1.0), "NOT NULL.*things.name"),
        (f"{THINGS} STRICT", "upsert", (1, "a", "heavy"), "cannot store TEXT value in REAL"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_the_table_is_refused_before_its_epoch_is_prepared(
    tmp_path: Path, database: sqlite3.Connection, create: str, sql: str, row: tuple[Any, ...], message: str
) -> None:
    database.execute(create)
    if sql == "upsert":
        sink = JdbcSink.upsert("things", ["id"], THING, options(tmp_path))
    else:
        sink = JdbcSink.sink(sql, Types.ROW([Types.LONG()] * len(row)), options(tmp_path))
    with pytest.raises(ProgramError, match=message) as error:
        prepare(sink, row)
    assert "nothing of the epoch is prepared" in str(error.value)
    assert database.execute("SELECT * FROM things").fetchall() == []


@pytest.mark.parametrize(
    ("sql", "row", "stored"),
    [
        ("INSERT OR IGNORE INTO things VALUES (?, ?, ?)", (1, None, 1.0), []),
        ("INSERT INTO things (name, weight) VALUES (?, ?)", ("a", None), [(1, "a", None)]),
        ("INSERT INTO things VALUES (?, ?, ?)", (None, "a", "light"), [(1, "a", "light")]),
        ("INSERT INTO things SELECT ?, coalesce(?, 'none'), ?", (1, None, 1.0), [(1, "none", 1.0)]),
    ],
)
def test_the_database_decides_whether_a_row_fits(
    tmp_path: Path, database: sqlite3.Connection, sql: str, row: tuple[Any, ...], stored: list[Any]
) -> None:
    database.execute(THINGS)
    deliver(JdbcSink.sink(sql, Types.ROW([Types.LONG()] * len(row)), options(tmp_path)), [row], 0)
    assert database.execute("SELECT * FROM things").fetchall() == stored


def test_a_key_that_is_there_twice_is_found_when_the_epoch_is_committed(sink: JdbcSink) -> None:
    """The row that is in its way may be gone by then."""
    deliver(sink, [("a", 1)], 0)
    assert prepare(sink, ("a", 2), (None, 1.5)) == [("a", 2), (None, 1.5)]
    with pytest.raises(ProgramError, match=r"refused the row \('a', 2\): UNIQUE"):
        deliver(sink, [("a", 2)], 1)


def test_a_table_that_was_altered_meanwhile_is_looked_at_again(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.execute(THINGS)
    sink = JdbcSink.sink("INSERT INTO things VALUES (?, ?, ?)", THING, options(tmp_path))
    writer = sink.create_writer()
    writer.open(0, 1)
    assert writer.write([(1, "a", 1.0)], None) and writer.prepare_commit() == []
    database.execute("DROP TABLE things")
    database.execute(THINGS.replace("NOT NULL", ""))
    assert writer.write([(1, None, 1.0)], None) and writer.prepare_commit() == []


def test_a_deletion_needs_no_other_fields_than_the_key(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.execute(THINGS)
    sink = JdbcSink.upsert("things", ["id"], THING, options(tmp_path))
    assert deliver(sink, [(1, "a", 1.0), Row.of_kind(RowKind.DELETE, 2, None, None)], 0) == 2
    with pytest.raises(ProgramError, match="refused the row.*datatype mismatch|too large"):
        prepare(sink, Row.of_kind(RowKind.DELETE, 2**70, None, None))
