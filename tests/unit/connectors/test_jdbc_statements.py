"""URLs, placeholders and statements, as text."""

from __future__ import annotations

import pickle

import pytest

from flinkish.common.typeinfo import Types
from flinkish.connectors.jdbc.database import parse_url
from flinkish.connectors.jdbc.mysql import MYSQL
from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.postgresql import POSTGRESQL
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.jdbc.statement import (
    count_placeholders,
    format_placeholders,
    upsert_statement,
    user_statement,
)
from flinkish.errors import ConfigurationError, ProgramError

ROW = Types.ROW_NAMED(["page", "n"], [Types.STRING(), Types.LONG()])


def connection(url: str = "jdbc:sqlite:/tmp/none.db") -> JdbcConnectionOptions:
    return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://db:5433/shop", {"host": "db", "port": "5433", "dbname": "shop"}),
        ("postgresql://me:p%40ss@db/shop", {"host": "db", "dbname": "shop", "user": "me", "password": "p@ss"}),
        ("postgres://db", {"host": "db"}),
        ("jdbc:postgresql:shop", {"dbname": "shop"}),
        ("jdbc:postgresql://a:1,b/shop", {"host": "a,b", "port": "1,5432", "dbname": "shop"}),
        ("postgresql://[::1]:5433/x", {"host": "::1", "port": "5433", "dbname": "x"}),
        ("postgresql:///shop?host=/run/postgresql", {"dbname": "shop", "host": "/run/postgresql"}),
        ("postgresql://postgres:@/x?host=/run/pg", {"user": "postgres", "dbname": "x", "host": "/run/pg"}),
        (
            "jdbc:postgresql://db/x?ssl=true&currentSchema=app&ApplicationName=job&reWriteBatchedInserts=true",
            {
                "host": "db", "dbname": "x", "sslmode": "verify-full", "options": "-csearch_path=app",
                "application_name": "job",
            },
        ),
    ],
)  # fmt: skip
def test_postgresql_urls_of_java_and_of_python_are_understood(url: str, expected: dict[str, str]) -> None:
    assert parse_url(url).parameters == {"connect_timeout": "10", **expected}


def test_user_and_password_given_apart_win() -> None:
    for url in ("jdbc:postgresql://a:b@db/x?connectTimeout=3", "jdbc:mysql://a:b@db/x?connectTimeout=3000"):
        found = parse_url(url, "me", "secret").parameters
        assert (found["user"], found["password"], found["connect_timeout"]) == ("me", "secret", "3")


@pytest.mark.parametrize(
    ("url", "label", "expected"),
    [
        ("jdbc:mysql://db:3307/shop", "MySQL db:3307/shop", {"host": "db", "port": "3307"}),
        ("jdbc:mariadb://db/shop", "MariaDB db:3306/shop", {"host": "db", "port": "3306"}),
        ("mysql://me:p%40ss@[::1]/shop", "MySQL ::1:3306/shop", {"host": "::1", "user": "me", "password": "p@ss"}),
        ("mysql:///shop?unix_socket=/run/s", "MySQL localhost:3306/shop", {"unix_socket": "/run/s"}),
        ("jdbc:mysql://db/shop?user=me&password=a", "MySQL db:3306/shop", {"user": "me", "password": "a"}),
        ("mysql://db/shop?socketTimeout=500&useSSL=false", None, {"read_timeout": "1", "ssl_mode": "DISABLED"}),
        ("mysql://db/shop?useSSL=true&rewriteBatchedStatements=true", None, {"ssl_mode": "REQUIRED"}),
        ("mysql://db/shop?sslMode=VERIFY_CA&serverTimezone=UTC", None, {"ssl_mode": "VERIFY_CA"}),
        ("mysql://db/shop?useSSL=true&verifyServerCertificate=true", None, {"ssl_mode": "VERIFY_CA"}),
        ("mariadb://db/shop?sslMode=verify-full&serverSslCert=/ca", None, {"ssl_mode": "VERIFY_IDENTITY"}),
        ("mariadb://db/shop?ssl_ca=/ca&ssl_cert=/c&ssl_key=/k", None, {"ssl_mode": "VERIFY_CA", "ssl_key": "/k"}),
    ],
)
def test_mysql_urls_of_java_and_of_python_are_understood(url: str, label: str | None, expected: dict[str, str]) -> None:
    defaults = {"port": "3306", "user": "", "password": "", "connect_timeout": "10", "unix_socket": ""}
    found = parse_url(url)
    assert label is None or found.label == label
    assert (
        defaults | {"host": "localhost", "ssl_mode": "PREFERRED", "database": "shop"} | found.parameters
    ).items() >= (defaults | {"database": "shop"} | expected).items()


@pytest.mark.parametrize("url", ["jdbc:sqlite:/a/b.db", "sqlite:///a/b.db", "sqlite:////a/b.db", "sqlite:/a/b.db?x=1"])
def test_sqlite_urls_name_a_file(url: str) -> None:
    assert parse_url(url).parameters == {"path": "/a/b.db"}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jdbc:oracle://me:secret@db/x", "of no kind that is supported.*jdbc:postgresql"),
        ("jdbc:oracle:thin:scott/secret@db:1521:x", "'oracle...' is of no kind that is supported"),
        ("postgresql://me:secret/b@db/x", "'me:...' is no server"),
        ("jdbc:sqlite::memory:", "names no file"),
        ("jdbc:sqlite:?PASSWORD=secret", "names no file"),
        ("jdbc:oracle://me:a/b?secret@db/x", "of no kind that is supported"),
        ("jdbc:postgresql://db/x?frobnicate=1&PASSWORD=a/secret", "parameter 'frobnicate'"),
        ("postgresql://db/x?pwd=secret", "parameter 'pwd'"),
        ("jdbc:postgresql://db/x?frobnicate=1", "parameter 'frobnicate'"),
        ("postgresql://db:port/x", "'db:...' is no server"),
        ("jdbc:mysql://a,b/x?password=secret", "does not name one server and its database"),
        ("jdbc:mysql:loadbalance://a/x", "does not name one server"),
        ("mysql://me:secret@db", "does not name one server and its database"),
        ("mysql://db:99999/x", "does not name one server"),
        ("mysql://db/x?frobnicate=1&password=secret", "parameter 'frobnicate'.*sslMode=DISABLED"),
        ("mysql://db/x?connectTimeout=soon", "parameter 'connectTimeout=soon'"),
        ("mysql://db/x?sslMode=maybe", "parameter 'sslMode=maybe'"),
        ("mysql://db/x?trustCertificateKeyStoreUrl=file:x", "trustCertificateKeyStoreUrl.*ssl_ca"),
    ],
)
def test_other_urls_are_errors_that_say_what_is_expected(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        parse_url(url)
    assert "secret" not in str(error.value)


def test_passwords_are_in_no_text() -> None:
    options = connection("postgresql://me:secret@db/x?sslpassword=secret")
    assert "secret" not in repr(options)
    assert "secret" not in repr(parse_url(options.url))
    assert "secret" not in parse_url(options.url).label


@pytest.mark.parametrize(
    ("sql", "count", "rewritten"),
    [
        ("INSERT INTO t VALUES (?, ?)", 2, "INSERT INTO t VALUES (%s, %s)"),
        ("SELECT '?''?', \"a?\", ? -- ?\n, ?", 2, "SELECT '?''?', \"a?\", %s -- ?\n, %s"),
        ("SELECT /* ? \n ? */ ? % 2", 1, "SELECT /* ? \n ? */ %s %% 2"),
        ("SELECT $$?$$, $a$ ? $$ $a$, ?", 1, "SELECT $$?$$, $a$ ? $$ $a$, %s"),
        ("SELECT a ?? 'k', ?", 1, "SELECT a ? 'k', %s"),
    ],
)
def test_placeholders_are_only_where_sql_has_values(sql: str, count: int, rewritten: str) -> None:
    assert count_placeholders(sql) == count
    assert format_placeholders(sql) == rewritten


@pytest.mark.parametrize(
    ("sql", "count", "rewritten"),
    [
        ("INSERT INTO t VALUES (?, ?)", 2, "INSERT INTO t VALUES (%s, %s)"),
        ("SELECT 'it\\'s ?', \"a\\\"?\", `b?`, ? # ?\n, ?", 2, "SELECT 'it\\'s ?', \"a\\\"?\", `b?`, %s # ?\n, %s"),
        ("SELECT 1 --?, ? -- ?", 2, "SELECT 1 --%s, %s -- ?"),
        ("SELECT /* ? \n ? */ ? % 2, $$?$$", 2, "SELECT /* ? \n ? */ %s %% 2, $$%s$$"),
    ],
)
def test_placeholders_of_mysql_are_only_where_it_has_values(sql: str, count: int, rewritten: str) -> None:
    assert count_placeholders(sql, MYSQL.token) == count
    assert format_placeholders(sql, MYSQL.token) == rewritten


@pytest.mark.parametrize(
    ("sql", "target", "columns"),
    [
        ("INSERT INTO Shop.Counts (`the page`, N) VALUES (?, ?)", ("Shop", "Counts"), ("the page", "N")),
        ("insert ignore `a``b` value (?, ?) on duplicate key update n = 1", ("a`b",), ()),
        ("REPLACE INTO t VALUES (?, ?)", ("t",), ()),
        ("INSERT INTO t SELECT ?, ?", (), ()),
        ("UPDATE t SET a = ? WHERE b = ?", (), ()),
    ],
)
def test_the_table_of_a_statement_of_mysql_is_found(sql: str, target: tuple[str], columns: tuple[str]) -> None:
    found = user_statement(sql, 2, MYSQL)
    assert (found.target, found.columns) == (target, columns)


@pytest.mark.parametrize(
    "sql", ["TRUNCATE TABLE t", " create table t (a int)", "START TRANSACTION", "LOCK TABLES t READ"]
)
def test_a_statement_that_commits_is_refused_for_mysql(sql: str) -> None:
    with pytest.raises(ProgramError, match="the statement commits the transaction that holds the rows of an epoch"):
        user_statement(sql, 0, MYSQL)


def test_an_upsert_of_mysql_fails_for_a_row_with_another_key() -> None:
    assert upsert_statement("a.t", ["n", "k", "l"], ["k", "l"], MYSQL).sql == (
        "INSERT INTO `a`.`t` (`n`, `k`, `l`) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE "
        "`k` = IF(`k` = VALUES(`k`) AND `l` = VALUES(`l`), `k`, (SELECT NULL UNION ALL SELECT NULL)), `n` = VALUES(`n`)"
    )


def test_an_upsert_of_a_row_that_is_all_key_has_nothing_to_update() -> None:
    assert (
        upsert_statement("t", ["a"], ["a"], POSTGRESQL).sql
        == 'INSERT INTO "t" ("a") VALUES (?) ON CONFLICT ("a") DO NOTHING'
    )


def test_a_statement_with_another_number_of_placeholders_is_refused_when_the_program_is_built() -> None:
    with pytest.raises(ProgramError, match=r"1 placeholders.*2 fields"):
        JdbcSink.sink("INSERT INTO t VALUES (?)", ROW, connection())


def test_a_type_without_columns_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"no columns.*Types.ROW"):
        JdbcSink.sink("INSERT INTO t VALUES (?)", Types.STRING(), connection())


@pytest.mark.parametrize("keys", [[], ["user"], ["page", "page"]])
def test_an_upsert_needs_keys_that_are_fields(keys: list[str]) -> None:
    with pytest.raises(ProgramError, match=r"key columns.*\['page', 'n'\]"):
        JdbcSink.upsert("t", keys, ROW, connection())


def test_options_are_pyflinks() -> None:
    options = JdbcExecutionOptions.builder().with_batch_interval_ms(5).with_batch_size(7).with_max_retries(2).build()
    assert (options.get_batch_interval_ms(), options.get_batch_size(), options.get_max_retries()) == (5, 7, 2)
    assert JdbcExecutionOptions.defaults().get_batch_size() == 5000
    with pytest.raises(ConfigurationError, match="max_retries=-1"):
        JdbcExecutionOptions.builder().with_max_retries(-1).build()
    with pytest.raises(ConfigurationError, match="no database URL"):
        JdbcConnectionOptions.JdbcConnectionOptionsBuilder().build()


@pytest.mark.parametrize("url", ["jdbc:sqlite:/tmp/none.db", "jdbc:postgresql://db/x", "jdbc:mysql://db/x"])
def test_the_sink_travels(url: str) -> None:
    sink = pickle.loads(pickle.dumps(JdbcSink.upsert("t", ["page"], ROW, connection(url))))
    assert sink.create_committer().on_driver is False


def test_parameters_of_a_sqlite_url_are_reported_as_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    parse_url("jdbc:sqlite:/tmp/x.db?foreign_keys=on")
    assert "?foreign_keys=on in the URL of an SQLite database has no effect" in caplog.text
