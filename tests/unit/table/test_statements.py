"""SQL statements: what a table's declaration means, and what is refused in words."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest

from flinkish.common import Row
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.connectors.columns import RecordReader
from flinkish.errors import EnvironmentVersionError, ProgramError, TypeMismatchError
from flinkish.table import DataTypes, Schema
from flinkish.table.schema import Statement, parse


def declared(columns: str) -> Schema:
    table = parse(f"CREATE TABLE t ({columns}) WITH ('connector' = 'print')").table
    assert table is not None
    return table.schema


@pytest.mark.parametrize(
    ("sql_type", "expected"),
    [
        ("BOOLEAN", Types.BOOLEAN()),
        ("TINYINT", Types.BYTE()),
        ("SMALLINT", Types.SHORT()),
        ("INT", Types.INT()),
        ("INTEGER NOT NULL", Types.INT()),
        ("BIGINT COMMENT 'it''s'", Types.LONG()),
        ("FLOAT", Types.FLOAT()),
        ("DOUBLE PRECISION", Types.DOUBLE()),
        ("DECIMAL(10, 2)", DataTypes.DECIMAL(10, 2)),
        ("NUMERIC(12)", DataTypes.DECIMAL(12, 0)),
        ("ARRAY<DEC>", Types.LIST(DataTypes.DECIMAL(10, 0))),
        ("STRING", Types.STRING()),
        ("VARCHAR(20)", Types.STRING()),
        ("CHAR(3)", Types.STRING()),
        ("BYTES", Types.PRIMITIVE_ARRAY(Types.BYTE())),
        ("VARBINARY(8)", Types.PRIMITIVE_ARRAY(Types.BYTE())),
        ("DATE", Types.SQL_DATE()),
        ("TIME(0)", Types.SQL_TIME()),
        ("TIMESTAMP(3)", Types.SQL_TIMESTAMP()),
        ("TIMESTAMP WITHOUT TIME ZONE", Types.SQL_TIMESTAMP()),
        ("TIMESTAMP_LTZ(3)", Types.INSTANT()),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", Types.INSTANT()),
        ("ARRAY<INT>", Types.LIST(Types.INT())),
        ("MAP<STRING, BIGINT>", Types.MAP(Types.STRING(), Types.LONG())),
        ("ROW<`a b` INT, c ARRAY<ROW<d STRING>>>", Types.ROW_NAMED(
            ["a b", "c"], [Types.INT(), Types.LIST(Types.ROW_NAMED(["d"], [Types.STRING()]))])),
        ("ROW(a INT)", Types.ROW_NAMED(["a"], [Types.INT()])),
    ],
)  # fmt: skip
def test_a_column_has_the_type_of_the_datastream_api(sql_type: str, expected: TypeInformation) -> None:
    [column] = declared(f"`user` {sql_type}").columns
    assert (column.name, column.type) == ("user", expected)
    assert Schema.new_builder().column("user", sql_type).build().columns == (column,)


BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (DataTypes.BINARY(10), BYTES),
        (DataTypes.VARBINARY(10), BYTES),
        (DataTypes.MULTISET(DataTypes.STRING()), Types.MAP(Types.STRING(), Types.INT())),
        (DataTypes.LIST_VIEW(DataTypes.INT()), Types.LIST(Types.INT())),
        (DataTypes.MAP_VIEW(DataTypes.INT(), DataTypes.STRING()), Types.MAP(Types.INT(), Types.STRING())),
        (DataTypes.INTERVAL(DataTypes.YEAR(), DataTypes.MONTH()), Types.INT()),
        (DataTypes.DATE().bridged_to("java.sql.Date"), Types.SQL_DATE()),
    ],
    ids=str,
)
def test_a_data_type_is_that_of_its_values_in_python(data_type: TypeInformation, expected: TypeInformation) -> None:
    assert data_type == expected


def test_an_interval_of_days_is_a_timedelta_and_null_only_none() -> None:
    interval, nothing = DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.SECOND()), DataTypes.NULL()
    day = timedelta(days=1, microseconds=5)
    assert interval.convert(day) == day and nothing.convert(None) is None
    assert interval == DataTypes.INTERVAL(DataTypes.SECOND(3)) != nothing
    row = DataTypes.ROW([DataTypes.FIELD("for", interval), DataTypes.FIELD("nothing", nothing)])
    record = Row(**{"for": day, "nothing": None})
    assert RecordReader(row, "a test").read(RecordWriter(row, "a test").write([record])) == [record]
    for data_type, value in ((interval, 5), (nothing, 0)):
        with pytest.raises(TypeMismatchError):
            data_type.convert(value)
    with pytest.raises(ValueError, match="a unit and a smaller one"):
        DataTypes.INTERVAL(DataTypes.SECOND(), DataTypes.DAY())


def test_a_schema_takes_types_as_objects_or_texts_and_computed_columns() -> None:
    built = Schema.new_builder().column("ms", DataTypes.BIGINT()).column_by_expression("ts", "TO_TIMESTAMP_LTZ(ms, 3)")
    assert built.build() == declared("ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3)")
    [moment] = Schema.new_builder().column("ts", DataTypes.TIMESTAMP_LTZ(3)).build().columns
    assert moment.type == declared("ts TIMESTAMP_LTZ").columns[0].type == DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(3)


@pytest.mark.parametrize(
    ("watermark", "delay_ms"),
    [
        ("ts", 0),
        ("`ts` - INTERVAL '5' SECOND", 5_000),
        ("ts - INTERVAL '0.001' SECOND", 1),
        ("ts - INTERVAL '2' MINUTES", 120_000),
        ("ts - INTERVAL '1' hour", 3_600_000),
        ("ts - INTERVAL '1' DAY", 86_400_000),
    ],
)
def test_a_watermark_is_behind_its_column(watermark: str, delay_ms: int) -> None:
    schema = declared(f"ts TIMESTAMP(3), WATERMARK FOR ts AS {watermark}")
    assert (schema.rowtime, schema.delay_ms) == ("ts", delay_ms)
    assert Schema.new_builder().column("ts", DataTypes.TIMESTAMP(3)).watermark("ts", watermark).build() == (
        Schema((schema.columns[0]._replace(size=()),), "ts", delay_ms)
    )


def test_a_primary_key_is_that_of_the_table() -> None:
    for key in ("PRIMARY KEY", "CONSTRAINT k PRIMARY KEY"):
        assert declared(f"a INT, b INT, {key} (a, b) NOT ENFORCED").primary_key == ("a", "b")
    assert declared("a INT PRIMARY KEY NOT ENFORCED, b INT").primary_key == ("a",)


def test_statements_name_tables_without_the_default_catalog_and_keep_option_values_as_they_are() -> None:
    created = parse(
        "-- orders\nCREATE TEMPORARY TABLE IF NOT EXISTS default_catalog.default_database.`t` (a INT /* id */) "
        "COMMENT 'c' WITH ('connector' = 'kafka', 'topic' = 'it''s', 'csv.field-delimiter' = '\\t');"
    )
    assert (created.verb, created.name, created.tolerant) == ("CREATE TABLE", "t", True)
    assert created.table is not None
    assert created.table.options == {"connector": "kafka", "topic": "it's", "csv.field-delimiter": "\\t"}
    assert parse("INSERT INTO s SELECT * FROM default_database.t") == Statement("INSERT", "s", None, "t")
    assert parse("insert into s table t") == Statement("INSERT", "s", None, "t")
    assert parse("CREATE TEMPORARY VIEW v AS SELECT * FROM t") == Statement("CREATE VIEW", "v", None, "t")
    assert parse("DROP TABLE IF EXISTS t") == Statement("DROP", "t", tolerant=True)
    assert parse("SELECT * FROM t") == Statement("SELECT", source="t")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM t",
        "SELECT a FROM t",
        "INSERT INTO s SELECT * FROM t WHERE a > 1",
        "INSERT INTO s SELECT * FROM t, u",
        "INSERT INTO s SELECT * FROM t LIMIT 3",
        "INSERT INTO s SELECT DISTINCT * FROM t",
        "INSERT INTO s SELECT * FROM (SELECT * FROM t)",
        "INSERT INTO s (a) SELECT * FROM t",
        "INSERT OVERWRITE s SELECT * FROM t",
        "INSERT INTO s VALUES (1)",
        "CREATE TABLE t AS SELECT * FROM u",
        "CREATE TABLE t LIKE u",
        "CREATE TABLE t (a INT) PARTITIONED BY (a) WITH ('connector' = 'filesystem')",
        "CREATE TABLE t (a INT, b AS a + 1) WITH ('connector' = 'print')",
        "CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS SOURCE_WATERMARK()) WITH ('connector' = 'print')",
        "CREATE TABLE t (a TIMESTAMP(3) METADATA FROM 'timestamp') WITH ('connector' = 'kafka')",
        "CREATE TABLE t (a MULTISET<INT>) WITH ('connector' = 'print')",
        "CREATE FUNCTION f AS 'x'",
        "SHOW TABLES",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT * FROM b; END",
        "",
    ],
)
def test_what_needs_an_sql_engine_is_refused_in_words_that_name_spark_sql(sql: str) -> None:
    with pytest.raises(ProgramError, match=r"there is no Table API.*DataStream API.*Spark SQL.*env\.from_spark"):
        parse(sql)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("a INT, a STRING", "two of one name"),
        ("a INT, PRIMARY KEY (b) NOT ENFORCED", "no column 'b'"),
        ("a INT, WATERMARK FOR b AS b", "no column 'b'"),
        ("a INT, b AS TO_TIMESTAMP(c)", "no column 'c'"),
        ("a BIGINT, WATERMARK FOR a AS a", r"for 'a', no TIMESTAMP \(declare ts AS TO_TIMESTAMP_LTZ\(ms, 3\)\)"),
    ],
)
def test_a_schema_whose_parts_do_not_fit_is_refused(columns: str, said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        declared(columns)


@pytest.mark.parametrize("columns", ["(a INT, b AS a + 1) PARTITIONED BY (a)", "(a INT, a INT)"])
def test_an_error_does_not_show_the_password_of_a_statement(columns: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"CREATE TABLE t {columns} WITH ('password' = 'hush')")
    assert "hush" not in str(raised.value)
    assert "PARTITIONED" in columns or "******" in str(raised.value)


def test_two_statements_in_one_call_and_a_missing_sqlglot_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProgramError, match="2 statements .*expected one"):
        parse("DROP TABLE a; DROP TABLE b")
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(EnvironmentVersionError, match=r"sqlglot is missing.*pip install 'sqlglot>="):
        parse("DROP TABLE t")
