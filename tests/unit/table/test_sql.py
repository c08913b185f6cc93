"""SQL text becomes values of `syntax`; what is not supported, and what is hostile, becomes an error in words."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from datetime import date, datetime
from datetime import time as of_day
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import ProgramError
from flinkish.table import StreamTableEnvironment
from flinkish.table import logical_types as types
from flinkish.table.logical_types import LogicalType
from flinkish.table.sql import parse, parse_expression, parse_query, parse_type
from flinkish.table.syntax import (
    Alias,
    Call,
    Cast,
    Column,
    ColumnDefinition,
    CreateFunction,
    CreateTable,
    CreateView,
    Drop,
    Explain,
    Expression,
    Insert,
    InsertSet,
    Literal,
    Named,
    Position,
    Query,
    Select,
    SetOption,
    Show,
    Star,
    TableDefinition,
    TableName,
    UnionAll,
    Values,
    Windowed,
    With,
)
from tests.support.programs import new_environment
from tests.support.rows import hold, refuses

A, B, C, TS, T = Column(("a",)), Column(("b",)), Column(("c",)), Column(("ts",)), TableName("t")
ONE, TWO, NOTHING = Literal(1, types.INT), Literal(2, types.INT), Literal(None, types.NULL)
FROM_T = Select((A,), T)
MINUTE = 60_000


def text(value: str) -> Literal:
    return Literal(value, types.char(len(value)))


def days(milliseconds: int) -> Literal:
    return Literal(milliseconds, types.INTERVAL_DAY)


def call(name: str, *args: Expression, **parts: Any) -> Call:
    return Call(name, args, **parts)


def reads(read: Callable[[str], Any], sql: str, expected: object) -> None:
    found = read(sql)
    assert found == expected, f"{found!r} is not {expected!r}"


def test_an_expression_becomes_a_tree_by_the_precedences_of_flink() -> None:
    hold(partial(reads, parse_expression), [
        ("a + b * c", call("+", A, call("*", B, C))),
        ("a - b - c", call("-", call("-", A, B), C)),
        ("(a + b) * c", call("*", call("+", A, B), C)),
        ("-a % 2", call("%", call("NEG", A), TWO)),
        ("- -1 + +a", call("+", ONE, A)),
        ("a || b || c", call("||", A, B, C)),
        ("a || (b || c)", call("||", A, call("||", B, C))),
        ("a OR b AND NOT c", call("OR", A, call("AND", B, call("NOT", C)))),
        ("a and b and c", call("AND", A, B, C)),
        ("NOT a = 1", call("NOT", call("=", A, ONE))),
        ("a = 1 IS TRUE", call("IS TRUE", call("=", A, ONE))),
        ("a <> b", call("<>", A, B)),
        ("a != b", call("<>", A, B)),
        ("a IS NOT NULL AND b IS NULL", call("AND", call("IS NOT NULL", A), call("IS NULL", B))),
        ("a IS UNKNOWN", call("IS NULL", A)),
        ("a IS NOT FALSE", call("IS NOT FALSE", A)),
        ("a IS NOT DISTINCT FROM b + 1", call("IS NOT DISTINCT FROM", A, call("+", B, ONE))),
        ("a BETWEEN 1 AND 2 AND b", call("AND", call("BETWEEN", A, ONE, TWO), B)),
        ("a NOT BETWEEN 1 AND 2", call("NOT", call("BETWEEN", A, ONE, TWO))),
        ("a IS NOT JSON", call("IS NOT TRUE", call("IS JSON", A))),
        ("a NOT IN (1, NULL)", call("NOT", call("IN", A, ONE, NOTHING))),
        ("a LIKE 'x!%' ESCAPE '!'", call("LIKE", A, text("x!%"), text("!"))),
        ("a NOT SIMILAR TO 'x'", call("NOT", call("SIMILAR TO", A, text("x")))),
        ("a AS `b c`", Alias(A, "b c")),
        ("a b", Alias(A, "b")),
    ])  # fmt: skip


def test_a_literal_has_the_type_that_flink_gives_it() -> None:
    hold(partial(reads, parse_expression), [
        ("1", ONE),
        ("2147483648", Literal(2147483648, types.BIGINT)),
        ("-2147483648", Literal(-2147483648, types.INT)),
        ("-9223372036854775808", Literal(-9223372036854775808, types.BIGINT)),
        ("0.1", Literal(Decimal("0.1"), types.decimal(2, 1))),
        (".5", Literal(Decimal("0.5"), types.decimal(1, 1))),
        ("-12.50", Literal(Decimal("-12.50"), types.decimal(4, 2))),
        ("5.", Literal(5, types.INT)),
        ("1e0", Literal(1.0, types.DOUBLE)),
        ("-1.5E-3", Literal(-0.0015, types.DOUBLE)),
        ("'it''s'", text("it's")),
        ("''", text("")),
        ("'Grüße 😀 -- /* no comment'", text("Grüße 😀 -- /* no comment")),
        ("x'Ff00'", Literal(b"\xff\x00", LogicalType("BINARY", (2,)))),
        (r"U&'\00e9\\x'", text("é\\x")),
        ("U&'!00e9!!' UESCAPE '!'", text("é!")),
        (r"U&'\+01F600\D83D\DE00'", text("😀😀")),
        ("TRUE", Literal(True, types.BOOLEAN)),
        ("NULL", NOTHING),
        ("UNKNOWN", Literal(None, types.BOOLEAN)),
        ("DATE '2026-1-31'", Literal(date(2026, 1, 31), types.DATE)),
        ("TIME '12:00:00.5'", Literal(of_day(12, 0, 0, 500_000), types.time(1))),
        ("TIMESTAMP '2026-01-31'", Literal(datetime(2026, 1, 31), types.timestamp(0))),
        ("TIMESTAMP '2026-01-31 12:00:00.123456789'",
         Literal(datetime(2026, 1, 31, 12, 0, 0, 123_456), types.timestamp(9))),
        ("TIMESTAMP WITH LOCAL TIME ZONE '2026-01-31 12:00:00'",
         Cast(text("2026-01-31 12:00:00"), LogicalType("TIMESTAMP_LTZ", (0,)))),
        ("INTERVAL '5' SECOND", days(5_000)),
        ("INTERVAL 5 MINUTES", days(300_000)),
        ("INTERVAL -'0.001' SECOND(3)", days(-1)),
        ("INTERVAL '-1 02:03:04.5' DAY TO SECOND", days(-93_784_500)),
        ("INTERVAL '02:03' HOUR TO MINUTE", days(7_380_000)),
        ("INTERVAL '1' WEEK", days(604_800_000)),
        ("INTERVAL '1-6' YEAR TO MONTH", Literal(18, types.INTERVAL_MONTH)),
        ("INTERVAL '2' QUARTER", Literal(6, types.INTERVAL_MONTH)),
    ])  # fmt: skip


def test_calls_have_the_forms_of_flinks_functions() -> None:
    hold(partial(reads, parse_expression), [
        ("upper(a)", call("UPPER", A)),
        ("`Decrypt`(a, 1)", call("DECRYPT", A, ONE)),
        ("normalize(a)", call("NORMALIZE", A)),
        ("default_catalog.default_database.f(a)", call("F", A)),
        ("CURRENT_TIMESTAMP", call("CURRENT_TIMESTAMP")),
        ("PROCTIME()", call("PROCTIME")),
        ("LEFT(a, 1)", call("LEFT", A, ONE)),
        ("IF(a > 1, b, NULL)", call("IF", call(">", A, ONE), B, NOTHING)),
        ("CASE WHEN a THEN 1 WHEN b THEN 2 END", call("CASE", A, ONE, B, TWO, NOTHING)),
        ("CASE a WHEN 1 THEN b WHEN 1, 2 THEN c ELSE 2 END",
         call("CASE", call("=", A, ONE), B, call("IN", A, ONE, TWO), C, TWO)),
        ("CAST(a AS BIGINT)", Cast(A, types.BIGINT)),
        ("TRY_CAST(a AS DECIMAL(10, 2))", Cast(A, types.decimal(10, 2), lenient=True)),
        ("EXTRACT(DAY FROM ts)", call("EXTRACT", text("DAY"), TS)),
        ("FLOOR(ts TO HOUR)", call("FLOOR", TS, text("HOUR"))),
        ("CEILING(a)", call("CEIL", A)),
        ("SUBSTRING(a FROM 1 FOR 2)", call("SUBSTRING", A, ONE, TWO)),
        ("SUBSTRING(a, 1)", call("SUBSTRING", A, ONE)),
        ("TRIM(a)", call("TRIM", A)),
        ("TRIM(BOTH 'x' FROM a)", call("BTRIM", A, text("x"))),
        ("TRIM('x' FROM a)", call("BTRIM", A, text("x"))),
        ("TRIM(LEADING FROM a)", call("LTRIM", A)),
        ("TRIM(TRAILING 'x' FROM a)", call("RTRIM", A, text("x"))),
        ("POSITION('x' IN a)", call("POSITION", text("x"), A)),
        ("OVERLAY(a PLACING 'x' FROM 1 FOR 2)", call("OVERLAY", A, text("x"), ONE, TWO)),
        ("TIMESTAMPDIFF(MINUTE, ts, b)", call("TIMESTAMPDIFF", text("MINUTE"), TS, B)),
        ("TIMESTAMPADD(SQL_TSI_DAY, 1, ts)", call("TIMESTAMPADD", text("DAY"), ONE, TS)),
        ("ARRAY[1, a]", call("ARRAY", ONE, A)),
        ("MAP['k', 1]", call("MAP", text("k"), ONE)),
        ("ROW(1, a)", call("ROW", ONE, A)),
        ("(1, a)", call("ROW", ONE, A)),
        ("a[1].b", call("FIELD", call("ITEM", A, ONE), text("b"))),
        ("t.a.b", Column(("t", "a", "b"))),
        ("(a).b", call("FIELD", A, text("b"))),
        ("JSON_VALUE(a, '$.x' RETURNING INT)", Cast(call("JSON_VALUE", A, text("$.x")), types.INT, lenient=True)),
        ("t.*", Star("t")),
        ("COUNT(*)", call("COUNT", Star())),
        ("COUNT(DISTINCT a) FILTER (WHERE b > 1)",
         call("COUNT", A, distinct=True, condition=call(">", B, ONE))),
        ("LISTAGG(a, ';')", call("LISTAGG", A, text(";"))),
        ("TUMBLE_START(ts, INTERVAL '1' MINUTE)", call("TUMBLE_START", TS, days(MINUTE))),
    ])  # fmt: skip


def test_a_type_is_read_with_its_sizes() -> None:
    row = types.row(["a b", "c"], [types.INT, types.array(types.row(["d"], [types.STRING]))])
    hold(partial(reads, parse_type), [
        ("int", types.INT), ("INTEGER NOT NULL", types.INT), ("DOUBLE PRECISION", types.DOUBLE), ("BYTES", types.BYTES),
        ("STRING", types.STRING), ("VARCHAR", types.STRING), ("CHAR(3)", types.char(3)), ("CHAR", types.char(1)),
        ("CHARACTER VARYING (7)", types.varchar(7)), ("VARBINARY(8)", LogicalType("VARBINARY", (8,))),
        ("DEC", types.decimal(10, 0)), ("NUMERIC(12)", types.decimal(12, 0)), ("DECIMAL(5, 2)", types.decimal(5, 2)),
        ("TIME", types.time(0)), ("TIMESTAMP", types.timestamp(6)), ("TIMESTAMP(3)", types.timestamp(3)),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", types.timestamp(3)), ("TIMESTAMP_LTZ(3)", types.timestamp_ltz(3)),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", types.timestamp_ltz(3)),
        ("ARRAY<INT NOT NULL>", types.array(types.INT)), ("DOUBLE ARRAY", types.array(types.DOUBLE)),
        ("INT ARRAY NOT NULL ARRAY", types.array(types.array(types.INT))),
        ("MAP<STRING, ARRAY<INT>>", types.map_of(types.STRING, types.array(types.INT))),
        ("MULTISET<INT>", LogicalType("MULTISET", (), (types.INT,))),
        ("ROW<`a b` INT NOT NULL 'c', c ARRAY<ROW(d STRING)>>", row), ("ROW<>", types.row([], [])),
        ("INTERVAL DAY(2) TO SECOND(3)", types.INTERVAL_DAY), ("INTERVAL YEAR", types.INTERVAL_MONTH),
    ])  # fmt: skip


def window(kind: str, *intervals: int, offset_ms: int = 0, partition: tuple[Column, ...] = ()) -> Select:
    return Select((Star(),), Windowed(kind, T, TS, intervals, offset_ms, partition))


def test_a_query_becomes_a_tree() -> None:
    values: Query = Values(((ONE, text("a")), (TWO, text("b"))))
    hold(partial(reads, parse_query), [
        ("SELECT a FROM t", FROM_T),
        ("select ALL `a` from default_catalog.default_database.`t`;;", FROM_T),
        ("TABLE t", T),
        ("SELECT 1", Select((ONE,))),
        ("SELECT *, t.*, a AS `select` FROM t", Select((Star(), Star("t"), Alias(A, "select")), T)),
        ("SELECT DISTINCT a FROM t WHERE b LIMIT 3", Select((A,), T, where=B, distinct=True, limit=3)),
        ("SELECT a FROM t FETCH FIRST 2 ROWS ONLY", Select((A,), T, limit=2)),
        ("SELECT a FROM t GROUP BY a, b HAVING COUNT(*) > 1",
         Select((A,), T, None, (A, B), call(">", call("COUNT", Star()), ONE))),
        ("SELECT a FROM t GROUP BY (a, b)", Select((A,), T, None, (A, B))),
        ("SELECT 1 FROM t GROUP BY ()", Select((ONE,), T, None, ())),
        ("SELECT a FROM t GROUP BY HOP(ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)",
         Select((A,), T, None, (call("HOP", TS, days(MINUTE), days(2 * MINUTE)),))),
        ("SELECT a FROM (SELECT a FROM t) AS q (x)", Select((A,), Named(FROM_T, "q", ("x",)))),
        ("SELECT * FROM (VALUES (1, 'a'), ROW(2, 'b')) v", Select((Star(),), Named(values, "v"))),
        ("VALUES 1, 2", Values(((ONE,), (TWO,)))),
        ("WITH q AS (SELECT a FROM t), r(x) AS (TABLE q) SELECT a FROM t",
         With((("q", (), FROM_T), ("r", ("x",), TableName("q"))), FROM_T)),
        ("SELECT a FROM t UNION ALL (SELECT a FROM t) UNION ALL TABLE t", UnionAll((FROM_T, FROM_T, T))),
        ("SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))", window("TUMBLE", MINUTE)),
        ("SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTES, INTERVAL '5' SECOND)",
         window("TUMBLE", MINUTE, offset_ms=5_000)),
        ("SELECT * FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE))",
         window("HOP", MINUTE, 2 * MINUTE)),
        ("SELECT * FROM TABLE(HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '2' MINUTE, "
         "SLIDE => INTERVAL '1' MINUTE, `OFFSET` => INTERVAL -'1' MINUTE))",
         window("HOP", MINUTE, 2 * MINUTE, offset_ms=-MINUTE)),
        ("SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE))",
         window("CUMULATE", MINUTE, 2 * MINUTE)),
        ("SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY (a, b), DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
         window("SESSION", MINUTE, partition=(A, B))),
        ("SELECT * FROM TABLE(SESSION(DATA => TABLE t PARTITION BY a, TIMECOL => DESCRIPTOR(ts), "
         "GAP => INTERVAL '1' MINUTE))", window("SESSION", MINUTE, partition=(A,))),
        ("SELECT * FROM TABLE(TUMBLE((SELECT a FROM t), DESCRIPTOR(ts), INTERVAL '1' MINUTE)) w",
         Select((Star(),), Named(Windowed("TUMBLE", FROM_T, TS, (MINUTE,)), "w"))),
    ])  # fmt: skip


def test_a_statement_becomes_a_value() -> None:
    created = (
        "-- orders\nCREATE TEMPORARY TABLE IF NOT EXISTS default_database.`t` (a INT /* id */ COMMENT 'it''s', "
        "b AS a + 1, c STRING METADATA FROM 'k' VIRTUAL, ts TIMESTAMP(3) METADATA, "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, CONSTRAINT k PRIMARY KEY (a, c) NOT ENFORCED) "
        "COMMENT 'x' WITH ('connector' = 'print', 'csv.field-delimiter' = '\\t');"
    )
    columns = (
        ColumnDefinition("a", types.INT, comment="it's"),
        ColumnDefinition("b", expression=call("+", A, ONE)),
        ColumnDefinition("c", types.STRING, metadata="k", virtual=True),
        ColumnDefinition("ts", types.timestamp(3), metadata="ts"),
    )
    options = {"connector": "print", "csv.field-delimiter": "\\t"}
    definition = TableDefinition(columns, ("ts", call("-", TS, days(5_000))), ("a", "c"), options, comment="x")
    a_int = ColumnDefinition("a", types.INT)
    inserts = (Insert("a", T), Insert("b", FROM_T))
    hold(partial(reads, parse), [
        (created, CreateTable("t", definition, if_not_exists=True)),
        ("CREATE TABLE x (a INT PRIMARY KEY NOT ENFORCED)",
         CreateTable("x", TableDefinition((a_int,), primary_key=("a",)))),
        ("CREATE TABLE x (a ROW<b INT NOT NULL>, c INT NOT NULL COMMENT 'y')", CreateTable("x", TableDefinition((
            ColumnDefinition("a", types.row(["b"], [types.INT])),
            ColumnDefinition("c", types.INT, comment="y", required=True))))),
        ("CREATE TABLE x WITH ('k' = 'v') LIKE t", CreateTable("x", TableDefinition(options={"k": "v"}, like="t"))),
        ("CREATE TABLE x (a INT) LIKE t (INCLUDING ALL OVERWRITING OPTIONS)", CreateTable("x", TableDefinition(
            (a_int,), like="t", like_rules={"ALL": "INCLUDING", "OPTIONS": "OVERWRITING"}))),
        ("CREATE OR REPLACE TEMPORARY VIEW v (x) COMMENT 'y' AS SELECT a FROM t",
         CreateView("v", FROM_T, ("x",), or_replace=True)),
        ("CREATE VIEW IF NOT EXISTS v AS TABLE t", CreateView("v", T, if_not_exists=True)),
        ("CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS f AS 'm.f' LANGUAGE PYTHON",
         CreateFunction("f", "m.f", if_not_exists=True)),
        ("DROP TABLE IF EXISTS t", Drop("TABLE", "t", if_exists=True)),
        ("DROP TEMPORARY SYSTEM FUNCTION f", Drop("FUNCTION", "f")),
        ("DROP TEMPORARY VIEW v", Drop("VIEW", "v")),
        ("INSERT INTO s (a, `b`) SELECT a FROM t", Insert("s", FROM_T, ("a", "b"))),
        ("INSERT INTO s (SELECT a FROM t)", Insert("s", FROM_T)),
        ("INSERT INTO s SELECT a FROM t ON CONFLICT DO DEDUPLICATE", Insert("s", FROM_T)),
        ("insert into s values (1), (2)", Insert("s", Values(((ONE,), (TWO,))))),
        ("SELECT a FROM t", FROM_T),
        ("(SELECT a FROM t)", FROM_T),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a TABLE t; INSERT INTO b SELECT a FROM t; END;", InsertSet(inserts)),
        ("BEGIN STATEMENT SET; INSERT INTO a TABLE t; INSERT INTO b SELECT a FROM t; END;", InsertSet(inserts)),
        ("EXECUTE INSERT INTO a TABLE t", inserts[0]),
        ("EXPLAIN PLAN FOR SELECT a FROM t", Explain(FROM_T)),
        ("EXPLAIN ESTIMATED_COST, CHANGELOG_MODE INSERT INTO a TABLE t", Explain(inserts[0])),
        ("EXPLAIN STATEMENT SET BEGIN INSERT INTO a TABLE t; END", Explain(InsertSet(inserts[:1]))),
        ("SET 'a.b' = 'it''s';", SetOption("a.b", "it's")),
        ("SET a.b-c=5s", SetOption("a.b-c", "5s")),
        ("SET", SetOption()),
        ("RESET 'a.b'", SetOption("a.b", reset=True)),
        ("RESET;", SetOption(reset=True)),
        ("SHOW TABLES", Show("TABLES")),
        ("SHOW USER FUNCTIONS", Show("USER FUNCTIONS")),
        ("SHOW COLUMNS FROM t", Show("COLUMNS", "t")),
        ("DESC EXTENDED t", Show("COLUMNS", "t")),
    ])  # fmt: skip


def test_names_may_be_anything_in_backticks() -> None:
    hold(partial(reads, lambda path: parse_query(f"TABLE {path}").name), [  # type: ignore[union-attr]
        ("t", "t"), ("default_catalog.default_database.t", "t"), ("`default_database`.`x``y`", "x`y"),
        ("c.d.t", "c.d.t"), ("`select`", "select"), ("`ünïcode 表`", "ünïcode 表"), ("größe", "größe"),
    ])  # fmt: skip
    assert parse_query("SELECT `from`.`a``b`, value, user FROM `select` `where`") == Select(
        (Column(("from", "a`b")), Column(("value",)), Column(("user",))), Named(TableName("select"), "where")
    )


def test_columns_calls_and_tables_know_their_places() -> None:
    query = parse_query("SELECT a,\n  SUM(b)\nFROM\tt")
    assert isinstance(query, Select) and isinstance(query.source, TableName)
    [column, total] = query.columns
    assert isinstance(column, Column) and isinstance(total, Call)
    assert (column.at, total.at, query.source.at) == (Position(1, 8), Position(2, 3), Position(3, 6))


def test_statements_of_documentation_and_of_programs_are_read() -> None:
    statements = (Path(__file__).parent / "statements.sql").read_text().split("\n\n")[1:]
    assert len(statements) > 50
    hold(lambda sql: parse(sql), [(sql,) for sql in statements])


OVER = r"GROUP BY, or a window.*to_data_stream\(table\)\.key_by\(\.\.\.\)\.process"


def test_a_construct_that_is_not_supported_is_refused_by_its_name_with_what_to_write() -> None:
    def check(sql: str, words: str) -> None:
        refuses(partial(parse, sql), ProgramError, f"{words}.*line 1, column .*SQL: ")

    hold(check, [
        ("SELECT * FROM a JOIN b ON a.x = b.x", "joins are not supported"),
        ("SELECT * FROM a, b", "joins are not"),
        ("SELECT * FROM a x LEFT OUTER JOIN b ON TRUE", "joins are not"),
        ("SELECT * FROM (SELECT * FROM a CROSS JOIN b)", "joins are not"),
        ("SELECT * FROM a, LATERAL TABLE(f(x)) AS l(y)", "table functions"),
        ("SELECT * FROM a CROSS JOIN UNNEST(x) AS u (y)", "table functions"),
        ("SELECT * FROM TABLE(f(1))", "table functions"),
        ("SELECT * FROM f(1)", "table functions"),
        ("SELECT * FROM a FOR SYSTEM_TIME AS OF a.ts", "lookup joins"),
        ("SELECT SUM(x) OVER (PARTITION BY a) FROM t", "OVER aggregates"),
        ("SELECT SUM(x) FILTER (WHERE a) OVER w FROM t WINDOW w AS (ORDER BY ts)", "OVER aggregates"),
        ("SELECT a FROM t WINDOW w AS (ORDER BY ts)", "OVER aggregates"),
        ("SELECT LISTAGG(a) WITHIN GROUP (ORDER BY a) FROM t", "order and NULLs of aggregate"),
        ("SELECT LAST_VALUE(a) IGNORE NULLS FROM t", "order and NULLs of aggregate"),
        ("SELECT a FROM t ORDER BY a", "ORDER BY is"),
        ("SELECT a FROM t LIMIT 1 OFFSET 1", "OFFSET is"),
        ("SELECT a FROM t WHERE a IN (SELECT b FROM u)", "subqueries in expressions"),
        ("SELECT a FROM t WHERE NOT EXISTS (SELECT b FROM u)", "subqueries in expressions"),
        ("SELECT a FROM t WHERE a > ANY (SELECT b FROM u)", "subqueries in expressions"),
        ("SELECT (SELECT MAX(b) FROM u) FROM t", "subqueries in expressions"),
        ("SELECT ARRAY(SELECT b FROM u)", "subqueries in expressions"),
        ("SELECT a FROM t UNION SELECT a FROM t", "UNION without ALL"),
        ("SELECT a FROM t INTERSECT SELECT a FROM t", "INTERSECT is"),
        ("SELECT a FROM t EXCEPT SELECT a FROM t", "EXCEPT is"),
        ("SELECT a FROM t MINUS SELECT a FROM t", "MINUS is"),
        ("SELECT a FROM t GROUP BY GROUPING SETS ((a), ())", "GROUPING SETS, ROLLUP and CUBE"),
        ("SELECT a FROM t GROUP BY ROLLUP (a, b)", "GROUPING SETS, ROLLUP and CUBE"),
        ("SELECT a FROM t GROUP BY CUBE (a)", "GROUPING SETS, ROLLUP and CUBE"),
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A))", "MATCH_RECOGNIZE is"),
        ("SELECT * FROM t TABLESAMPLE SYSTEM (10)", "TABLESAMPLE is"),
        ("SELECT * FROM t /*+ OPTIONS('a' = 'b') */", "hints are"),
        ("SELECT /*+ STATE_TTL('t' = '1d') */ a FROM t", "hints are"),
        ("SELECT JSON_VALUE(a, '$.x' NULL ON EMPTY) FROM t", "clauses of JSON functions"),
        ("SELECT a IS JSON ARRAY FROM t", "clauses of JSON functions"),
        ("INSERT OVERWRITE s SELECT a FROM t", "INSERT OVERWRITE is"),
        ("INSERT INTO s SELECT a FROM t ON CONFLICT DO NOTHING", "ON CONFLICT DO NOTHING and DO ERROR are"),
        ("INSERT INTO s PARTITION (a = 1) SELECT b FROM t", "PARTITION is"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (a) WITH ('k' = 'v')", "PARTITIONED is"),
        ("CREATE TABLE t WITH ('k' = 'v') AS SELECT a FROM u", "CREATE TABLE ... AS SELECT"),
        ("CREATE TABLE t (a INT, UNIQUE (a))", "UNIQUE is"),
        ("CREATE TABLE t (a INT PRIMARY KEY)", "an ENFORCED key"),
        ("CREATE TABLE t (a RAW('x', 'y'))", "the type RAW"),
        ("CREATE TABLE t (a TIMESTAMP WITH TIME ZONE)", "TIMESTAMP WITH TIME ZONE"),
        ("CREATE FUNCTION f AS 'm.f'", "functions of Java"),
        ("CREATE FUNCTION f AS 'm.f' LANGUAGE PYTHON USING JAR 'x'", "functions of Java"),
        ("CREATE CATALOG c WITH ('type' = 'x')", "catalogs are"),
        ("CREATE MATERIALIZED TABLE m AS SELECT 1", "materialized tables"),
        ("USE CATALOG c", "catalogs are"),
        ("SHOW DATABASES", "catalogs are"),
        ("ALTER TABLE t RENAME TO u", "ALTER is"),
        ("UPDATE t SET a = 1", "UPDATE is"),
        ("LOAD MODULE m", "modules are"),
        ("ADD JAR 'x'", "ADD is"),
        ("STOP JOB 'x'", "STOP is"),
    ])  # fmt: skip
    refuses(partial(parse, "SELECT SUM(x) OVER (ORDER BY a) FROM t"), ProgramError, OVER)


def test_a_text_that_cannot_be_read_is_refused_with_its_place_and_what_was_expected() -> None:
    def check(sql: str, words: str) -> None:
        refuses(partial(parse, sql), ProgramError, words)

    hold(check, [
        ("", "there is no statement"),
        (" -- nothing\n /* at all */", "there is no statement"),
        ("SELECT a FROM t; SELECT b FROM t", "several statements, line 1, column 18 .*expected one"),
        ("SELECT 'a", "the quote ' is not closed, line 1, column 8"),
        ("SELECT a\nFROM `t", "the quote ` is not closed, line 2, column 6"),
        ("SELECT a /* FROM t", r"the comment /\* is not closed, line 1, column 10"),
        ('SELECT "a" FROM t', "cannot be read at '\"', line 1, column 8"),
        ("SELECT a b c FROM t", "at 'c', line 1, column 12 .*expected the end of the statement"),
        ("SELECT 1 + * FROM t", r"at '\*', line 1, column 12 .*expected an expression"),
        ("SELECT a FROM", r"at the end, line 1, column 14 .*expected the name of a table"),
        ("SELECT FROM t", "at 'FROM', line 1, column 8 .*expected an expression; .*in backticks: `FROM`"),
        ("SELECT a AS order FROM t", "at 'order'.*a name behind AS; .*stands in backticks: `order`"),
        ("SELECT (a FROM t", r"at 'FROM', line 1, column 11 .*expected \)"),
        ("SELECT a + FROM t", "at 'FROM'.*expected an expression"),
        ("SELECT CASE WHEN a THEN b FROM t", "at 'FROM'.*expected WHEN or ELSE or END"),
        ("SELECT CAST(a AS INTT)", "at 'INTT'.*expected a type of SQL"),
        ("SELECT CAST(a AS DECIMAL(50, 2))", r"the type DECIMAL\(50, 2\).*DECIMAL with 1 to 38"),
        ("SELECT CAST(a AS DECIMAL(5, 6))", r"the type DECIMAL\(5, 6\).*a scale of 0 to the precision"),
        ("SELECT CAST(a AS TIMESTAMP(10))", r"the type TIMESTAMP\(10\)"),
        ("SELECT CAST(a AS MAP<INT>)", "MAP of 1 types"),
        ("SELECT DATE '2026-02-30'", r"the DATE cannot be read, line 1, column 13 .*expected DATE '2026-01-31'"),
        ("SELECT TIMESTAMP '2026-01-31T12:00:00'", "the TIMESTAMP cannot be read"),
        ("SELECT INTERVAL '5:1' SECOND", "the INTERVAL cannot be read"),
        ("SELECT INTERVAL '1' SECOND TO DAY", "the INTERVAL cannot be read"),
        ("SELECT x'f'", "a literal cannot be read"),
        (r"SELECT U&'\D83D'", "a literal cannot be read"),
        ("SELECT INTERVAL '1.5' DAY", "the INTERVAL cannot be read"),
        (f"SELECT {'9' * 39}", "too many digits.*at most 38"),
        ("SELEC a", "at 'SELEC', line 1, column 1 .*expected a statement: SELECT, WITH"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts)))", "TUMBLE without SIZE.*DATA, TIMECOL, SIZE, OFFSET"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MONTH))", "no INTERVAL of time"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts + 1), INTERVAL '1' DAY))", r"at '\+'"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE t, STEP => INTERVAL '1' DAY))", "the arguments DATA, TIMECOL, SIZE, OFFSET"),
        ("CREATE TABLE t WITH ('k' = 'v')", "expected the columns of the table"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED)", "two primary keys"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS a, WATERMARK FOR a AS a)", "two watermarks"),
        ("CREATE TABLE t (a INT, b AS a, a STRING) WITH ('k' = 'v')", "two columns 'a' .SQL: CREATE TABLE"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED)", "there is no column 'b'.*columns among .'a'"),
        ("CREATE TABLE t (a INT, WATERMARK FOR b AS b)", "there is no column 'b'"),
        ("CREATE TABLE t (a INT) WITH ('k' = v)", "the value of the option 'k' in quotes"),
        ("EXECUTE STATEMENT SET BEGIN END", "the statement set has no INSERT"),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO s SELECT a FROM t END", "expected ;"),
        ("EXPLAIN DROP TABLE t", "this statement has no plan"),
        ("SET 'a' 'b'", "the setting cannot be read"),
    ])  # fmt: skip


#: Statements that cannot be read, with what may be a secret: options, hints, settings, comments and texts.
WITH_SECRETS = [
    "CREATE TABLE t (a INT) WITH ('password' = 'hush' 'x'",
    "CREATE TABLE t (a INT) WITH ('password' = 'hush', 'x' 5)",
    "CREATE TABLE t (a INT) WITH ('password' = hush)",
    "CREATE TABLE t (a INT) WITH ('password' = 'hun'hush')",
    "CREATE TABLE t (a INT) WITH ('password' = 'hun'hush', 'a' = 'b')",
    'CREATE TABLE t (a INT) WITH ("password" = "hush")',
    "CREATE TABLE t (a INT) WITH (password = hush)",
    "CREATE TABLE t (a INT) WITH /* x */ ('password' = 'hush'",
    "CREATE TABLE t (a INT) WITH\n-- c\n(\n'password' = 'hush'",
    "CREATE TABLE t (a INT) COMMENT 'hush' WITH (",
    "CREATE TABLE t (a INT) /* hush */ WITHH",
    "CREATE TABLE t (a INT COMMENT 'hush' b) WITH (",
    "-- hush\nSELECT FROM",
    "SELECT * FROM t /*+ OPTIONS('password'='hush') */",
    "SELECT * FROM t /*+ OPTIONS(password=hush) */",
    "SELECT /*+ x(hush) */ a FROM t",
    "SET 's3.secret-key' = 'hush' x",
    "SET s3.secret-key = hush x",
    "set\ts3.secret-key = hush x y",
    "/* c */ SET s3.secret-key = hush x y",
    "SELECT 1; SET s3.secret-key = hush",
    "SET`s3.secret`=hush x",
    "SET'fs.key'=hush x",
    'SET"k"hush',
    "SELECT f('it's hush', a) FROM t",
    "SELECT f('12'hush--', a') FROM",
    "SELECT 'hush",
    "SELECT X'hush' +",
    "SELECT U&'hush' + FROM",
    "SELECT a FROM t WHERE p = 'hush' ORDER BY 1",
    "SELECT a FROM t WHERE p = 'it''s hush' AND",
    "SELECT `a'` FROM t WHERE p = 'hush' ,",
    "CREATE FUNCTION f AS 'hush' LANGUAGE JAVA",
    "ALTER TABLE t SET ('password' = 'hush')",
    "ALTER TABLE t SET (password = hush)",
    "CREATE CATALOG c WITH ('password' = 'hush')",
    "CREATE TABLE t (a INT) WITH ('password' = -hush)",
    "CREATE TABLE t (a INT) WITH ('password' = `hush`)",
    "CREATE TABLE t (a INT) WITH ('password' = 12345678)",
    "CREATE TABLE t (a INT) WITH ('password' 'hush')",
    "CREATE MODEL m WITH ('api-key' = 'hush')",
    "CREATE TABLE t (a INT) with('password' = 'x' hush",
    "CREATE TABLE t (a INT) WITH ('password' = 'hush' 'hush')",
    "CREATE TABLE t (a INT) PARTITIONED BY (a) WITH ('x' = 'hush')",
    "CREATE TABLE t (a INT) WITH ('x' = 'hush) LIKE u",
]


@pytest.mark.parametrize("sql", WITH_SECRETS)
def test_an_error_does_not_show_what_may_be_a_secret(sql: str) -> None:
    for read in (parse, parse_query, parse_expression):
        with pytest.raises(ProgramError) as raised:
            read(sql)
        assert not re.search("hush|12345678", str(raised.value)), str(raised.value)


def test_an_error_shows_its_statement_otherwise() -> None:
    for sql, shown in (
        (
            "SELECT a, /* c */ `b` FROM t -- c\n WHERE s = 'x' AND n > 5 AND",
            "SELECT a, `b` FROM t WHERE s = '...' AND n > 5 AND",
        ),
        (
            "EXECUTE STATEMENT SET BEGIN INSERT INTO t VALUES ('x'); EN",
            "EXECUTE STATEMENT SET BEGIN INSERT INTO t VALUES ('...'); EN",
        ),
        ("WITH q AS (SELECT 1) SELECT * FROM q,", "WITH q AS (SELECT 1) SELECT * FROM q,"),
        ("-- don't\nSELECT 'x', `it's` /* isn't */ FROM t WHERE", "SELECT '...', `it's` FROM t WHERE]"),
        (f"SELECT 'x' FROM t, '{'x' * 3000}' WHERE", "SELECT '...' FROM t, '...' WHERE]"),
        ("SELECT `set` FROM t WHERE", "SELECT `set` FROM t WHERE]"),
        ("CREATE TABLE t (a INT) WITH ('x' = 5)", "CREATE TABLE t (a INT)]"),
    ):
        with pytest.raises(ProgramError) as raised:
            parse(sql)
        assert f"[SQL: {shown}" in str(raised.value), str(raised.value)


HOSTILE: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: "SELECT " + "(" * n + "1" + ")" * n,
    "open brackets": lambda n: "SELECT " + "(" * n,
    "CASE": lambda n: "SELECT " + "CASE WHEN a THEN b ELSE " * n + "1" + " END" * n,
    "functions": lambda n: "SELECT " + "f(" * n + "1" + ")" * n,
    "ROW": lambda n: "SELECT " + "ROW(" * n + "1" + ")" * n,
    "ARRAY": lambda n: "SELECT " + "ARRAY[" * n + "1" + "]" * n,
    "indexes": lambda n: "SELECT a" + "[a" * n + "]" * n,
    "steps": lambda n: "SELECT a" + "[1]" * n,
    "fields": lambda n: "SELECT a[1]" + ".b" * n,
    "NOT": lambda n: "SELECT " + "NOT " * n + "a",
    "minus": lambda n: "SELECT " + "- " * n + "a",
    "types": lambda n: "SELECT CAST(a AS " + "ARRAY<" * n + "INT" + ">" * n + ")",
    "arrays": lambda n: "SELECT CAST(a AS INT" + " ARRAY" * n + ")",
    "CAST": lambda n: "SELECT " + "CAST(" * n + "a" + " AS INT)" * n,
    "subqueries": lambda n: "SELECT * FROM (" * n + "SELECT 1" + ")" * n,
    "WITH": lambda n: "WITH q AS (" * n + "SELECT 1" + ") SELECT 1" * n,
    "IN": lambda n: "SELECT " + "a IN (" * n + "1" + ")" * n,
    "predicates": lambda n: "SELECT a" + " IS NULL" * n,
    "sums": lambda n: "SELECT a" + " + a" * n,
    "comparisons": lambda n: "SELECT a" + " = a" * n,
}


@pytest.mark.parametrize("construct", HOSTILE)
def test_deep_nesting_works_and_deeper_is_refused_in_words(construct: str) -> None:
    if construct != "open brackets":
        parse(HOSTILE[construct](45))
    for depth in (1_000, 10_000):
        refuses(partial(parse, HOSTILE[construct](depth)), ProgramError, "nested too deeply, line 1.*at most 100")


def test_an_operand_that_stands_in_the_tree_again_and_again_is_refused_before_the_tree_explodes() -> None:
    operand = "a"
    for _ in range(12):
        operand = f"CASE {operand} WHEN 1 THEN a WHEN 2 THEN b WHEN 3 THEN c WHEN 4 THEN a END"
    refuses(partial(parse_expression, operand), ProgramError, "nested too deeply")


def from_a_deep_stack(depth: int, sql: str) -> object:
    return parse(sql) if depth == 0 else from_a_deep_stack(depth - 1, sql)


def test_a_program_that_is_deep_in_calls_itself_gets_no_recursion_error() -> None:
    depth = sys.getrecursionlimit() - len(inspect.stack(0)) - 150
    refuses(partial(from_a_deep_stack, depth, HOSTILE["CASE"](90)), ProgramError, "nested too deeply")


@pytest.mark.parametrize("operator", ["AND", "OR", "||"])
def test_long_chains_become_one_call(operator: str) -> None:
    query = parse_query("SELECT a FROM t WHERE " + f" {operator} ".join(["a"] * 10_000))
    assert isinstance(query, Select) and isinstance(query.where, Call) and len(query.where.args) == 10_000


def test_large_statements_are_read_and_larger_ones_refused_in_words() -> None:
    columns = [f"column_{number}" for number in range(10_000)]
    select = parse_query(f"SELECT {', '.join(columns)} FROM t")
    assert isinstance(select, Select) and select.columns == tuple(Column((name,)) for name in columns)
    table = parse(f"CREATE TABLE t ({', '.join(f'{name} DECIMAL(10, 2)' for name in columns)})")
    assert isinstance(table, CreateTable) and [column.name for column in table.definition.columns] == columns
    insert = parse(f"INSERT INTO t VALUES {', '.join(['(1, x, 1.5)'] * 5_000)}")
    assert isinstance(insert, Insert) and isinstance(insert.query, Values) and len(insert.query.rows) == 5_000
    assert parse_expression("'" + "''" * 250_000 + "'") == text("'" * 250_000)
    assert parse_expression("/* " * 150_000 + "*/ 1") == ONE
    union = parse_query("SELECT a FROM t" + " UNION ALL SELECT a FROM t" * 2_000)
    assert isinstance(union, UnionAll) and len(union.queries) == 2_001
    refuses(partial(parse, "SELECT '" + "x" * (1 << 20) + "'"), ProgramError, "1,048,585 characters.*at most 524,288")


def test_what_can_be_read_is_computed_at_the_limits_too() -> None:
    t_env = StreamTableEnvironment.create(new_environment())

    def check(column: str, where: str, expected: object) -> None:
        table = t_env.sql_query(f"SELECT {column} FROM (VALUES (1, 'x')) AS t (a, b) WHERE {where}")
        with table.execute().collect() as rows:
            assert [list(row) for row in rows] == [[expected]]

    hold(check, [
        ("a" + " + a" * 95, "TRUE", 96),
        ("CASE WHEN a > 1 THEN 0 ELSE " * 95 + "a" + " END" * 95, "TRUE", 1),
        ("UPPER(" * 95 + "b" + ")" * 95, "TRUE", "X"),
        (" || ".join(["b"] * 1_000), " AND ".join(f"a <> {number}" for number in range(2, 1_000)), "x" * 1_000),
    ])  # fmt: skip
