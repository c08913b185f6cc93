"""What a statement that cannot be carried out is answered: a sentence with the words that help, before a job starts."""

from __future__ import annotations

import re

import pytest

from flinkish.errors import ArgumentTypeError, FlinkishError, MalformedRecordError
from flinkish.table import StreamTableEnvironment
from flinkish.table.udf import udf
from tests.support.programs import new_environment

MINUTE = "INTERVAL '1' MINUTE"
TABLES = {
    "orders": "id BIGINT, user_id STRING, qty INT, price DECIMAL(10, 2), seen TIMESTAMP(3)",
    "timed": "id BIGINT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts",
    "files": "a STRING, b BIGINT",
    "keyless": "a STRING, b BIGINT",
    "lost": "a INT",
}
CONNECTORS = {
    "files": "'connector' = 'filesystem', 'path' = '/tmp/none', 'format' = 'csv'",
    "lost": "'connector' = 'kafk'",
    "keyless": "'connector' = 'jdbc', 'url' = 'jdbc:sqlite:none', 'table-name' = 'k'",
}
DATAGEN = "'connector' = 'datagen'"
COUNTED = "SELECT user_id, COUNT(*) FROM orders GROUP BY user_id"
LISTS = "Query schema: [{}] Sink schema: [{}]"

#: statement -> what its error says, in this order
SAID = {
    # a construct that is not supported: its name, the statement, what there is, what to write
    "SELECT a.id FROM orders AS a JOIN timed AS b ON a.id = b.id": (
        "joins are not supported, line 1, column 30", "SQL: SELECT a.id", "one table in FROM", "to_data_stream(a)"
    ),
    "SELECT DISTINCT ARRAY[qty] FROM orders": (
        "a key of type ARRAY<INT>", "SQL: SELECT DISTINCT", "numbers, texts", "to_data_stream(table).key_by(...)",
    ),
    "SELECT COUNT(DISTINCT ROW(qty, id)) FROM orders": ("COUNT(DISTINCT) of type ROW<", "take a field of the row"),
    "SELECT SUM(qty) OVER (ORDER BY seen) FROM orders": (
        "OVER aggregates are not supported", "SQL: SELECT SUM", "GROUP BY, or a window (TUMBLE",
        "to_data_stream(table).key_by(...).process(...)",
    ),
    "SELECT id FROM timed LIMIT 3": ("LIMIT of an unbounded table", "a bounded table", "to_data_stream(table)"),
    # what is not there: the name, the place, the nearest names
    "SELECT id,\n  qy FROM orders": ("no column 'qy'", "line 2, column 3", "id, user_id, qty", "did you mean qty?"),
    "SELECT UPER(user_id) FROM orders": ("no function UPER", "line 1, column 8", "UPPER", "@udf(result_type=...)"),
    "SELECT id FROM order_s": ("no table 'order_s'", "line 1, column 16", "did you mean orders?"),
    "INSERT INTO fils SELECT 1": ("no table 'fils'", "did you mean files?"),
    # types that do not fit: both of them, and the CAST that helps
    "SELECT qty + user_id FROM orders": ("INT + STRING", "line 1, column 12", "CAST(user_id AS INT)"),
    "SELECT SUM(user_id) FROM orders": ("'SUM(<STRING>)'", "SUM(<NUMERIC>)", "SUM(CAST(user_id AS DOUBLE))"),
    "SELECT id FROM orders WHERE user_id = qty": ("STRING = INT", "CAST(user_id AS INT)"),
    "SELECT id FROM orders UNION ALL SELECT user_id FROM orders": ("BIGINT, STRING", "CAST(x AS BIGINT)"),
    # updates into a table that takes none, or has no key for them
    f"INSERT INTO files {COUNTED}": (
        "default_catalog.default_database.files' doesn't support consuming update changes which is produced by node "
        "GroupAggregate(groupBy=[user_id]", "declare PRIMARY KEY (...) NOT ENFORCED in CREATE TABLE files",
    ),
    f"INSERT INTO keyless {COUNTED}": ("doesn't support consuming update changes", "in CREATE TABLE keyless"),
    # a window over a column that is no event time, or over updates: which column, which statement
    f"SELECT COUNT(*) FROM orders GROUP BY TUMBLE(seen, {MINUTE})": (
        "the timecol 'seen' to be a time attribute, but is TIMESTAMP(3)", "line 1, column 38",
        "declare WATERMARK FOR seen AS seen - INTERVAL '5' SECOND in CREATE TABLE orders",
    ),
    f"SELECT id FROM TABLE(HOP(TABLE orders, DESCRIPTOR(seen), {MINUTE}, {MINUTE}))": (
        "the timecol 'seen'", "in CREATE TABLE orders",
    ),
    f"SELECT COUNT(*) FROM (SELECT ts + {MINUTE} AS late FROM timed) GROUP BY TUMBLE(late, {MINUTE})": (
        "the timecol 'late'", "in CREATE TABLE timed, which has it for ts",
    ),
    f"SELECT 1 FROM (SELECT PROCTIME() p, c FROM (SELECT COUNT(*) c FROM timed)) GROUP BY TUMBLE(p, {MINUTE})": (
        "TUMBLE doesn't support consuming update changes which is produced by node GroupAggregate",
    ),
    # INSERT: both lists, side by side
    "INSERT INTO files SELECT user_id FROM orders": (
        "Different number of columns", LISTS.format("user_id: STRING", "a: STRING, b: BIGINT"),
    ),
    "INSERT INTO files SELECT user_id, price FROM orders": (
        "sink column 'b' at position 2",
        LISTS.format("user_id: STRING, price: DECIMAL(10, 2)", "a: STRING, b: BIGINT"), "CAST(x AS type)",
    ),
    "INSERT INTO files (a) SELECT user_id, id FROM orders": (LISTS.format("user_id: STRING, id: BIGINT", "a: STRING"),),
    "INSERT INTO files (b, c) SELECT id, id FROM orders": ("target column 'c' of 'files'", "a column: a, b"),
    # a connector that is not there: those that are
    "SELECT a FROM lost": ("no connector 'kafk'", "table 'lost'", "expected kafka, upsert-kafka, datagen, filesystem"),
    "INSERT INTO lost SELECT 1": ("no connector 'kafk'", "table 'lost'"),
    # texts that are none
    "SELECT 1; SELECT 2": ("several statements, line 1, column 11", "EXECUTE STATEMENT SET"),
    "SELECT 1 AS order": ("at 'order', line 1, column 13", "in backticks: `order`"),
    f"SELECT '{'x' * (1 << 20)}'": ("1,048,585 characters", "at most 524,288"),
    f"SELECT {'(' * 1_000}1{')' * 1_000}": ("nested too deeply, line 1", "at most 100", "CREATE TEMPORARY VIEW"),
    f"{'SELECT * FROM (' * 1_000}SELECT 1{')' * 1_000}": ("nested too deeply",),
}  # fmt: skip


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    made = StreamTableEnvironment.create(new_environment())
    for name, columns in TABLES.items():
        made.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({CONNECTORS.get(name, DATAGEN)})")
    return made


def test_what_cannot_be_carried_out_is_refused_with_the_words_that_help(t_env: StreamTableEnvironment) -> None:
    for statement, words in SAID.items():
        with pytest.raises(FlinkishError) as raised:
            t_env.execute_sql(statement)
        assert re.search(".*".join(map(re.escape, words)), str(raised.value)), str(raised.value)
        assert len(str(raised.value)) < 1_000


#: query over the rows of VALUES -> its one row, or what its error says of the expression and the row
COMPUTED: dict[str, tuple[object, ...] | str] = {
    "CAST(x AS INT) FROM (VALUES ('1'), ('b')) AS v (x)": r"'b'.*\[CAST\(EXPR\$0 AS INT\), row 1",
    "1 / x FROM (VALUES (1), (0)) AS v (x)": r"/ by zero \[1 / EXPR\$0, row 1",
    "TRY_CAST(x AS INT) FROM (VALUES ('b')) AS v (x)": (None,),
    "x * x FROM (VALUES (CAST('9e37' AS DECIMAL(38, 0)))) AS v (x)": (None,),
    "x + 1, y + 1 FROM (VALUES (2147483647, 9223372036854775807)) AS v (x, y)": (-(1 << 31), -(1 << 63)),
    "`select`, `a b`, `x``y` FROM (VALUES (1, 2, 3)) AS `from` (`select`, `a b`, `x``y`);": (1, 2, 3),
    "';' AS a, '--' AS b, '/*' AS c, 'it''s' AS d -- no ; here\n/* SELECT */ ; ;": (";", "--", "/*", "it's"),
}


def test_values_that_do_not_fit_become_what_they_become_in_flink(t_env: StreamTableEnvironment) -> None:
    for query, expected in COMPUTED.items():
        try:
            with t_env.execute_sql(f"SELECT {query}").collect() as rows:
                assert [tuple(row) for row in rows] == [expected], query
        except MalformedRecordError as error:
            assert isinstance(expected, str) and re.search(expected, str(error)), str(error)


def test_ten_thousand_columns_are_planned(t_env: StreamTableEnvironment) -> None:
    columns = ", ".join(f"qty + {number} AS c{number}" for number in range(10_000))
    assert len(t_env.sql_query(f"SELECT {columns} FROM orders WHERE id > 1").get_schema().get_field_names()) == 10_000


def test_a_function_says_the_type_of_its_results() -> None:
    with pytest.raises(ArgumentTypeError, match="has no result type.*result_type=DataTypes"):
        udf(lambda x: x)
