"""Schemas and descriptors of tables, which hold what CREATE TABLE says, and LIKE."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flinkish.common import Row
from flinkish.common.config_options import ConfigOptions
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.connectors.columns import RecordReader
from flinkish.errors import ArgumentTypeError, ProgramError, TypeMismatchError, UnsupportedOperationError
from flinkish.table import DataTypes, FormatDescriptor, Schema, TableDescriptor
from flinkish.table.expressions import col, lit
from flinkish.table.schema import like
from flinkish.table.sql import parse
from flinkish.table.syntax import CreateTable, TableDefinition
from tests.support.rows import hold, refuses

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


def declared(elements: str, rest: str = "") -> TableDefinition:
    """What CREATE TABLE declares."""
    created = parse(f"CREATE TABLE t {f'({elements})' if elements else ''} {rest}")
    assert isinstance(created, CreateTable)
    return created.definition


@pytest.mark.parametrize(
    ("sql_type", "expected"),
    [
        ("BOOLEAN", Types.BOOLEAN()),
        ("TINYINT", Types.BYTE()),
        ("SMALLINT", Types.SHORT()),
        ("INTEGER NOT NULL", Types.INT()),
        ("BIGINT", Types.LONG()),
        ("FLOAT", Types.FLOAT()),
        ("DOUBLE PRECISION", Types.DOUBLE()),
        ("DECIMAL(10, 2)", DataTypes.DECIMAL(10, 2)),
        ("NUMERIC(12)", DataTypes.DECIMAL(12, 0)),
        ("ARRAY<DEC>", Types.LIST(DataTypes.DECIMAL(10, 0))),
        ("STRING", Types.STRING()),
        ("BYTES", BYTES),
        ("DATE", Types.SQL_DATE()),
        ("TIME(0)", Types.SQL_TIME()),
        ("TIMESTAMP(9)", Types.SQL_TIMESTAMP()),
        ("TIMESTAMP_LTZ(9)", Types.INSTANT()),
        ("MAP<STRING, BIGINT>", Types.MAP(Types.STRING(), Types.LONG())),
        ("ROW<`a b` INT, c ARRAY<ROW<d STRING>>>", Types.ROW_NAMED(
            ["a b", "c"], [Types.INT(), Types.LIST(Types.ROW_NAMED(["d"], [Types.STRING()]))])),
    ],
)  # fmt: skip
def test_a_column_has_the_type_of_the_datastream_api(sql_type: str, expected: TypeInformation) -> None:
    schema = Schema.new_builder().column("user", sql_type).build()
    assert [column.type.info for column in schema.definition.columns if column.type] == [expected]
    assert schema.definition == declared(f"`user` {sql_type}")


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


def test_a_schema_declares_what_create_table_does() -> None:
    by_texts = (
        Schema.new_builder()
        .column("a", "DECIMAL(10, 2)")
        .column_by_expression("b", "a * 2")
        .column_by_metadata("c", "STRING", "k", True)
        .column_by_metadata("ts", "TIMESTAMP(3)")
        .watermark("ts", "ts - INTERVAL '5' SECOND")
        .primary_key("a")
        .build()
    )
    assert by_texts.definition == declared(
        "a DECIMAL(10, 2), b AS a * 2, c STRING METADATA FROM 'k' VIRTUAL, ts TIMESTAMP(3) METADATA, "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (a) NOT ENFORCED"
    )
    by_objects = (
        Schema.new_builder()
        .from_fields(["a"], [DataTypes.DECIMAL(10, 2)])
        .column_by_expression("b", col("a") * 2)
        .column_by_metadata("c", DataTypes.STRING(), "k", is_virtual=True)
        .column_by_metadata("ts", DataTypes.TIMESTAMP(3))
        .watermark("ts", col("ts") - lit(5).seconds)
        .primary_key_named("k", "a")
        .build()
    )
    assert by_objects == by_texts == Schema.new_builder().from_schema(by_texts).build()
    row = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.STRING())])
    assert Schema.new_builder().from_row_data_type(row).build().definition == declared("a INT, b STRING")


def test_a_descriptor_declares_what_create_table_does() -> None:
    schema = Schema.new_builder().column("a", "INT").build()
    described = FormatDescriptor.for_format("json").option("ignore-parse-errors", True).build()
    topic = ConfigOptions.key("topic").string_type().no_default_value()
    table = (
        TableDescriptor.for_connector("kafka")
        .comment("c")
        .schema(schema)
        .option(topic, "t")
        .format(described)
        .format("csv", ConfigOptions.key("key.format").string_type().no_default_value())
        .build()
    )
    options = "'connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'json.ignore-parse-errors' = 'true'"
    assert table == TableDescriptor(declared("a INT", f"COMMENT 'c' WITH ({options}, 'key.format' = 'csv')"))
    assert (table.get_schema(), table.get_comment(), table.get_partition_keys()) == (schema, "c", [])
    assert table.get_options()["json.ignore-parse-errors"] == "true"
    assert (described.get_format(), described.get_options()) == ("json", {"ignore-parse-errors": "true"})
    secret = TableDescriptor.for_connector("jdbc").option("password", "hush").format(
        FormatDescriptor.for_format("x").option("password", "hush").build()
    )  # fmt: skip
    assert "hush" not in repr(secret.build()) + repr(FormatDescriptor.for_format("x").option("p", "hush").build())


BASE = declared(
    "a INT, b AS a + 1, ts TIMESTAMP(3) METADATA, WATERMARK FOR ts AS ts, PRIMARY KEY (a) NOT ENFORCED",
    "WITH ('connector' = 'kafka', 'topic' = 't')",
)


def test_like_takes_over_what_its_rules_say() -> None:
    def check(elements: str, rest: str, expected_elements: str, expected_rest: str) -> None:
        assert like(declared(elements, rest), BASE, "a test") == declared(expected_elements, expected_rest)

    everything = "a INT, b AS a + 1, ts TIMESTAMP(3) METADATA, WATERMARK FOR ts AS ts, PRIMARY KEY (a) NOT ENFORCED"
    given = "'connector' = 'kafka', 'topic' = 't'"
    hold(check, [
        ("", "LIKE x", everything, f"WITH ({given})"),
        ("z INT", "WITH ('topic' = 'u', 'k' = 'v') LIKE x",
         everything.replace(" METADATA,", " METADATA, z INT,"), f"WITH ({given}, 'topic' = 'u', 'k' = 'v')"),
        ("", "WITH ('k' = 'v') LIKE x (EXCLUDING OPTIONS)", everything, "WITH ('k' = 'v')"),
        ("", "LIKE x (EXCLUDING ALL)", "a INT", ""),
        ("", "LIKE x (EXCLUDING ALL INCLUDING METADATA)", "a INT, ts TIMESTAMP(3) METADATA", ""),
        ("b AS a + 2, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND",
         "LIKE x (OVERWRITING GENERATED OVERWRITING WATERMARKS EXCLUDING CONSTRAINTS)",
         "a INT, ts TIMESTAMP(3) METADATA, b AS a + 2, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND",
         f"WITH ({given})"),
    ])  # fmt: skip


def test_parts_that_do_not_fit_together_are_refused() -> None:
    builder = Schema.new_builder().column("a", "INT")

    hold(refuses, [
        (lambda: TableDescriptor.for_connector("x").schema(builder.primary_key("b").build()).build(), ProgramError,
         "there is no column 'b'.*columns among .'a'"),
        (lambda: TableDescriptor(TableDefinition(builder.build().definition.columns * 2)), ProgramError,
         "two columns 'a'"),
        (lambda: Schema.new_builder().column("a", "INT").column("a", "INT").build(), ProgramError, "two columns 'a'"),
        (lambda: Schema.new_builder().column("a", "INTT"), ProgramError, "at 'INTT'.*the type: INTT"),
        (lambda: Schema.new_builder().column("a", 5), ArgumentTypeError, "the type is"),  # type: ignore[arg-type]
        (lambda: Schema.new_builder().column(5, "INT"), ArgumentTypeError, "the name"),  # type: ignore[arg-type]
        (lambda: Schema.new_builder().column_by_expression("a", "b +"), ProgramError, "at the end.*the expression: b"),
        (lambda: Schema.new_builder().from_fields(["a"], []), ProgramError, "1 names and 0 types"),
        (lambda: Schema.new_builder().from_row_data_type(DataTypes.INT()), ArgumentTypeError, "DataTypes.ROW"),
        (lambda: TableDescriptor.for_connector("x").partitioned_by("a"), UnsupportedOperationError, "PARTITIONED"),
        (lambda: like(declared("a INT", "LIKE x"), BASE, "here"), ProgramError, "two columns 'a' .here"),
        (lambda: like(declared("PRIMARY KEY (a) NOT ENFORCED", "LIKE x"), BASE, ""), ProgramError, "both .* primary"),
        (lambda: like(declared("WATERMARK FOR ts AS ts", "LIKE x"), BASE, ""), ProgramError, "both have a watermark"),
        (lambda: like(declared("", "WITH ('topic' = 'u') LIKE x (INCLUDING OPTIONS)"), BASE, ""), ProgramError,
         "both have the option 'topic'"),
    ])  # fmt: skip
