"""Files of columns and CSV files: what FileSink writes with bulk writers is what was given."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.orc
import pyarrow.parquet
import pytest

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.common.serialization import BulkWriterFactory, Encoder
from flinkish.connectors.file_system.source import FileSource
from flinkish.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig, RollingPolicy
from flinkish.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from flinkish.datastream.formats.orc import OrcBulkWriters
from flinkish.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from flinkish.errors import MalformedRecordError, ProgramError, TypeMismatchError
from flinkish.table import DataTypes
from tests.support.programs import new_environment, results_of
from tests.support.split_reading import read_all

ROW_TYPE = DataTypes.ROW(
    [
        DataTypes.FIELD("name", DataTypes.STRING()),
        DataTypes.FIELD("n", DataTypes.BIGINT()),
        DataTypes.FIELD("tags", DataTypes.ARRAY(DataTypes.STRING())),
        DataTypes.FIELD("day", DataTypes.DATE()),
    ]
)
ROWS = [Row(f"n{i}", None if i == 3 else i, ["a"] * (i % 3), datetime.date(2024, 1, 1 + i % 28)) for i in range(50)]


def sink(folder: Path, factory: BulkWriterFactory) -> FileSink:
    built = FileSink.for_bulk_format(str(folder), factory)
    return built.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()


def write(folder: Path, factory: BulkWriterFactory, rows: list[Row], row_type: Any, **settings: str) -> list[Path]:
    env = new_environment(2, **settings)
    env.from_collection(rows, row_type).rebalance().map(lambda row: row, row_type).sink_to(sink(folder, factory))
    env.execute("writing")
    return sorted(folder.iterdir())


def named(rows: list[Row], row_type: Any) -> list[Row]:
    """As rows come out of files: with the names of their fields."""
    return [Row(**dict(zip(row_type.get_field_names(), row, strict=True))) for row in rows]


def dictionaries(rows: list[Row]) -> list[dict[str, Any]]:
    names = ROW_TYPE.get_field_names()
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("make", "suffix", "read"),
    [
        (ParquetBulkWriters.for_row_type, ".parquet", pyarrow.parquet.read_table),
        (OrcBulkWriters.for_row_type, ".orc", pyarrow.orc.read_table),
    ],
)
def test_files_of_columns_hold_the_rows_of_a_subtask_and_epoch(
    tmp_path: Path, make: Callable[[Any], BulkWriterFactory], suffix: str, read: Callable[[Any], Any]
) -> None:
    files = write(tmp_path / "out", make(ROW_TYPE), ROWS, ROW_TYPE, flinkish__epoch__max_records_per_source="20")
    assert [file.name.rsplit("-", 2)[1:] for file in files] == [
        [f"{subtask}", f"{epoch}{suffix}"] for subtask in range(2) for epoch in range(3)
    ]
    found = [row for file in files for row in read(file).to_pylist()]
    assert sorted(found, key=lambda row: int(row["name"][1:])) == dictionaries(ROWS)


def test_a_folder_of_bulk_files_has_buckets_and_other_suffixes_only_if_asked(tmp_path: Path) -> None:
    factory = ParquetBulkWriters.for_row_type(ROW_TYPE)
    by_day = BucketAssigner.date_time_bucket_assigner("yyyy", "UTC")
    builders = {
        "plain": FileSink.for_bulk_format(str(tmp_path / "plain"), factory),
        "year": FileSink.for_bulk_format(str(tmp_path / "year"), factory).with_bucket_assigner(by_day),
        "named": FileSink.for_bulk_format(str(tmp_path / "named"), factory).with_output_file_config(
            OutputFileConfig("rows", ".pq")
        ),
        "prefixed": FileSink.for_bulk_format(str(tmp_path / "prefixed"), factory).with_output_file_config(
            OutputFileConfig.builder().with_part_prefix("rows").build()
        ),
    }
    env = new_environment()
    rows = env.from_collection(ROWS, ROW_TYPE)
    for builder in builders.values():
        rows.sink_to(builder.build())
    env.execute("writing")
    found = {
        name: [str(file.relative_to(tmp_path / name)) for file in (tmp_path / name).rglob("*") if file.is_file()]
        for name in builders
    }
    patterns = {
        "plain": r"part-[^/]*\.parquet",
        "year": r"\d{4}/part-[^/]*\.parquet",
        "named": r"rows-[^/]*\.pq",
        "prefixed": r"rows-[^/]*\.parquet",
    }
    for name, pattern in patterns.items():
        (file,) = found[name]
        assert re.fullmatch(pattern, file), file
    assert pyarrow.parquet.read_table(tmp_path / "plain").num_rows == len(ROWS)


def test_parquet_files_that_were_written_are_read(tmp_path: Path) -> None:
    write(tmp_path / "out", ParquetBulkWriters.for_row_type(ROW_TYPE), ROWS, ROW_TYPE)
    columns = ParquetColumnarRowInputFormat(ROW_TYPE)
    for source in (
        FileSource.parquet(str(tmp_path / "out"), type_info=ROW_TYPE),
        FileSource.for_bulk_file_format(columns, str(tmp_path / "out")).build(),
    ):
        read = new_environment().from_source(source, WatermarkStrategy.no_watermarks(), "s")
        assert sorted(results_of(read), key=lambda row: int(row[0][1:])) == named(ROWS, ROW_TYPE)


def csv_schema(**more: Any) -> CsvSchema:
    builder = CsvSchema.builder().add_number_column("id", DataTypes.INT()).add_string_column("name")
    builder.add_array_column("list", ",", DataTypes.BIGINT()).add_boolean_column("good").set_column_separator("|")
    for name, value in more.items():
        getattr(builder, name)(value)
    return builder.build()


CSV_ROWS = [Row(1, "plain", [1, 2], True), Row(2, 'with | and "', [], False), Row(3, None, [7], None)]


@pytest.mark.parametrize("settings", [{"set_null_value": "NULL"}, {"set_use_header": True, "set_null_value": "-"}])
def test_csv_files_that_were_written_are_read(tmp_path: Path, settings: dict[str, Any]) -> None:
    schema = csv_schema(**settings)
    row_type = Types.ROW_NAMED(
        ["id", "name", "list", "good"], [Types.INT(), Types.STRING(), Types.LIST(Types.LONG()), Types.BOOLEAN()]
    )
    files = write(tmp_path / "out", CsvBulkWriters.for_schema(schema), CSV_ROWS, row_type)
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert lines.count('"id"|"name"|"list"|"good"') == (2 if "set_use_header" in settings else 0)
    # below the code of the delimiter "|" are nearly all characters, so that Jackson puts all texts in quotes
    assert '1|"plain"|"1,2"|true' in lines
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path / "out")).build()
    read = new_environment().from_source(source, WatermarkStrategy.no_watermarks(), "s")
    assert sorted(results_of(read), key=lambda row: row[0]) == named(CSV_ROWS, row_type)


def test_an_empty_text_as_null_value_is_read_as_none(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('7|||\n8|"x"|1,2|true\n')
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(csv_schema(set_null_value="")), str(tmp_path)
    )
    read = new_environment().from_source(source.build(), WatermarkStrategy.no_watermarks(), "s")
    assert [tuple(row) for row in results_of(read)] == [(7, None, None, None), (8, "x", [1, 2], True)]


def test_columns_of_a_schema_can_be_taken_over() -> None:
    schema = CsvSchema.builder().add_columns_from(csv_schema()).add_string_column("more").build()
    assert (len(schema), schema.size()) == (5, 5)
    assert len(CsvSchema.builder().add_columns_from(schema).clear_columns()) == 0


def read_csv(folder: Path, schema: CsvSchema, *contents: str) -> list[tuple[Any, ...]]:
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number}.csv").write_text(content)
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(folder)).build()
    read = new_environment().from_source(source, WatermarkStrategy.no_watermarks(), "s")
    return [tuple(row) for row in results_of(read)]


def two_columns(**settings: Any) -> CsvSchema:
    builder = CsvSchema.builder().add_number_column("id").add_string_column("name")
    for name, value in settings.items():
        getattr(builder, name)(value)
    return builder.build()


def test_the_first_line_is_the_header_whatever_it_says(tmp_path: Path) -> None:
    headers = ["id,name", "name,id", "x,y", "7,seven", "id", '"id","name","more"']
    contents = [f"{header}\n{number},a\n" for number, header in enumerate(headers)]
    read = read_csv(tmp_path / "in", two_columns(set_use_header=True), *contents, "\n1,a\n", "id\n9,b\n")
    assert read == [*((number, "a") for number in range(len(headers))), (9, "b")]


def test_strict_headers_have_the_names_of_the_columns(tmp_path: Path) -> None:
    schema = two_columns(set_use_header=True, set_strict_headers=True)
    fitting = ("id,name", " id , name ", '"id","name"')
    assert read_csv(tmp_path / "in", schema, *(f"{header}\n1,a\n" for header in fitting)) == [(1, "a")] * 3
    format = CsvReaderFormat.for_schema(schema)
    for number, header in enumerate((' "id" , name ', "name,id", "id", "id,name,more", "ID,name", '"id')):
        path = tmp_path / f"{number}.csv"
        path.write_text(f"{header}\n1,a\n")
        with pytest.raises(MalformedRecordError, match=r"line 1 \(byte 0\).*a header with the names id, name|quotes"):
            read_all(FileSource.for_record_stream_format(format, str(path)).build())


def test_the_first_data_row_can_be_skipped_after_the_header_or_without_one(tmp_path: Path) -> None:
    skipping = two_columns(set_skip_first_data_row=True)
    assert read_csv(tmp_path / "one", skipping, "x,y\n1,a\n2,b\n", "3,c\n") == [(1, "a"), (2, "b")]
    both = two_columns(set_skip_first_data_row=True, set_use_header=True, set_strict_headers=True)
    assert read_csv(tmp_path / "two", both, "id,name\nx,y\n1,a\n") == [(1, "a")]
    builder = CsvSchema.builder().add_number_column("id").add_string_column("name")
    ranges = builder.set_skip_first_data_row(True).set_use_header().disable_quote_char().build()
    assert read_csv(tmp_path / "ranges", ranges, "id,name\nx,y\n1,a\n2,b\n") == [(1, "a"), (2, "b")]


def test_array_columns_have_separators_of_their_own(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_array_column("a", ";", DataTypes.INT()).add_array_column("b", ":")
    rows = [Row([1, 2], ["x", "y;z"]), Row([], [])]
    row_type = Types.ROW_NAMED(["a", "b"], [Types.LIST(Types.INT()), Types.LIST(Types.STRING())])
    (file,) = write(tmp_path / "out", CsvBulkWriters.for_schema(builder.build()), rows[:1], row_type)
    assert file.read_text() == "1;2,x:y;z\n"
    assert read_csv(tmp_path / "own", builder.build(), "1;2,x:y;z\n,\n") == [tuple(row) for row in rows]
    # the separator of all columns is for those that have none of their own
    builder.set_array_element_separator("|")
    assert read_csv(tmp_path / "default", builder.build(), "1;2,x:y|z\n") == [([1, 2], ["x", "y|z"])]
    builder.remove_array_element_separator(1)
    assert read_csv(tmp_path / "removed", builder.build(), "1;2,x:y|z\n") == [([1, 2], ["x:y", "z"])]
    copy = CsvSchema.builder().add_columns_from(builder.build()).disable_array_element_separator()
    with pytest.raises(ProgramError, match="array column 'b'"):
        copy.build()


#: (precision, scale, a number, the number as it is read)
CSV_DECIMALS: list[tuple[int, int, str, str | None]] = [
    (10, 0, "1.5", "2"),
    (10, 0, "2.5", "3"),
    (10, 0, "-1.5", "-2"),
    (10, 0, "1.4", "1"),
    (10, 0, "1e3", "1000"),
    (10, 0, "12345678901", None),
    (4, 2, "1.005", "1.01"),
    (4, 2, "1", "1.00"),
    (4, 2, "99.994", "99.99"),
    (4, 2, "99.995", None),
    (4, 2, "123.4", None),
    (4, 4, "0.12345", "0.1235"),
    (38, 18, "1.5", "1.500000000000000000"),
    (38, 0, "1e-400", "0"),
    (38, 0, "1e400", None),
]


def test_a_decimal_has_its_scale_and_no_more_digits_than_its_precision(tmp_path: Path) -> None:
    builder, names, types = CsvSchema.builder(), [], []
    for number, (precision, scale, _, _) in enumerate(CSV_DECIMALS):
        kind = DataTypes.DECIMAL(precision, scale)
        builder.add_number_column(f"x{number}", kind).add_array_column(f"l{number}", ";", kind)
        names += [f"x{number}", f"l{number}"]
        types += [Types.BIG_DEC(), Types.LIST(Types.BIG_DEC())]
    schema, line = builder.build(), ",".join(f"{text},{text};{text}" for *_, text, _ in CSV_DECIMALS)
    (found,) = read_csv(tmp_path / "in", schema, line + "\n")
    for index, (*_, value) in enumerate(CSV_DECIMALS):
        number, elements = found[2 * index : 2 * index + 2]
        assert [str(item) for item in (number, *elements)] == [str(value)] * 3, CSV_DECIMALS[index]
    # what is written has the scale too, without zeros at the end
    given = (item for *_, text, _ in CSV_DECIMALS for item in (Decimal(text), [Decimal(text)]))
    factory, row_type = CsvBulkWriters.for_schema(schema), Types.ROW_NAMED(names, types)
    (file,) = write(tmp_path / "out", factory, [Row(*given)], row_type)
    short = ("" if value is None else str(Decimal(value).normalize()) for *_, value in CSV_DECIMALS)
    assert file.read_text().replace('"', "") == ",".join(f"{text},{text}" for text in short) + "\n"


#: (precision, scale, a number, the number as it is written)
DECIMALS: list[tuple[int, int, str | None, str | None]] = [
    (10, 2, "1.999", "2.00"),
    (10, 2, "-1.005", "-1.01"),
    (10, 2, "99999999.994", "99999999.99"),
    (10, 2, "99999999.995", None),
    (10, 2, "123456789", None),
    (10, 2, "-8." + "0" * 50, "-8.00"),
    (10, 2, "7.5" + "1" * 50, "7.51"),
    (10, 2, None, None),
    (38, 0, "12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
    (38, 30, "12345678.123456789012345678901234567891", "12345678.123456789012345678901234567891"),
    (38, 38, "0.5", "0.50000000000000000000000000000000000000"),
    (38, 18, "1e-19", "0E-18"),
    (18, 18, "0.1", "0.100000000000000000"),
    (1, 0, "7", "7"),
]


@pytest.mark.parametrize("make", [ParquetBulkWriters.for_row_type, OrcBulkWriters.for_row_type])
def test_files_of_columns_hold_decimals_of_their_declared_type(
    tmp_path: Path, make: Callable[[Any], BulkWriterFactory]
) -> None:
    def row_type(*kinds: Any) -> Any:
        names = [f"x{number}" for number in range(len(kinds))]
        nested = [Types.LIST(kinds[0]), Types.MAP(Types.STRING(), kinds[0]), Types.ROW_NAMED(["n"], [kinds[0]])]
        return Types.ROW_NAMED([*names, "l", "m", "r"], [*kinds, *nested])

    given = [None if text is None else Decimal(text) for _, _, text, _ in DECIMALS]
    kinds = [DataTypes.DECIMAL(precision, scale) for precision, scale, _, _ in DECIMALS]
    # the stream does not know the types, so that the writer rounds
    stream_type = row_type(*(Types.BIG_DEC() for _ in kinds))
    rows = [Row(*given, [given[0], None], {"a": given[0], "b": None}, Row(given[0]))]
    (file,) = write(tmp_path / "out", make(row_type(*kinds)), rows, stream_type)
    is_parquet = file.suffix == ".parquet"
    table = pyarrow.parquet.read_table(file) if is_parquet else pyarrow.orc.read_table(file)
    assert table.schema.types[: len(kinds)] == [pyarrow.decimal128(*size[:2]) for size in DECIMALS]
    (found,) = table.to_pylist()
    values = [None if text is None else Decimal(text) for *_, text in DECIMALS]
    assert list(map(str, list(found.values())[: len(kinds)])) == list(map(str, values))
    two = Decimal("2.00")
    assert (found["l"], found["m"], found["r"]) == ([two, None], [("a", two), ("b", None)], {"n": two})
    if is_parquet:
        source = FileSource.parquet(str(file), type_info=row_type(*kinds))
        (row,) = results_of(new_environment(1).from_source(source, WatermarkStrategy.no_watermarks(), "file"))
        assert tuple(row) == (*values, [two, None], {"a": two, "b": None}, Row(n=two))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: CsvSchema.builder().build(), ProgramError, "a schema without columns"),
        (lambda: csv_schema(add_string_column="id"), ProgramError, "the column 'id' twice"),
        (lambda: csv_schema(set_any_property_name="x"), ProgramError, "declare all columns"),
        (lambda: csv_schema(remove_array_element_separator=4), ProgramError, "no column 4.*0 to 3"),
        (
            lambda: CsvSchema.builder().add_array_column("a", "").disable_array_element_separator().build(),
            ProgramError,
            "no separator.*array column 'a'.*declare a STRING column",
        ),
        (lambda: DataTypes.DECIMAL(39, 0), ValueError, "precision of 1 to 38"),
        (lambda: DataTypes.DECIMAL(4, 5), ValueError, "scale of 0 to the precision"),
        (lambda: ParquetBulkWriters.for_row_type(Types.STRING()), TypeError, r"expected DataTypes.ROW"),
        (
            lambda: ParquetBulkWriters.for_row_type(Types.ROW([Types.PICKLED_BYTE_ARRAY()])),
            TypeMismatchError,
            "pickled objects, which no column can hold",
        ),
        (
            lambda: FileSink.for_bulk_format("/x", Encoder.simple_string_encoder()),  # type: ignore[arg-type]
            TypeError,
            "expected a BulkWriterFactory",
        ),
        (
            lambda: FileSink.for_bulk_format("/x", CsvBulkWriters.for_schema(csv_schema())).with_rolling_policy(
                RollingPolicy.default_rolling_policy()
            ),
            TypeError,
            "expected an OnCheckpointRollingPolicy",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_when_the_program_is_built(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_row_that_does_not_fit_names_its_field(tmp_path: Path) -> None:
    env = new_environment()
    stream = env.from_collection([1]).map(lambda n: ("a", "many", [], None))
    stream.sink_to(sink(tmp_path, ParquetBulkWriters.for_row_type(ROW_TYPE)))
    with pytest.raises(TypeMismatchError, match="field 'n'.*'many'|'many'.*field 'n'"):
        env.execute("writing")


def test_a_type_that_no_column_of_the_format_holds_is_refused_when_the_program_is_built() -> None:
    row_type = Types.ROW_NAMED(["at"], [Types.SQL_TIME()])
    with pytest.raises(TypeMismatchError, match=r"Time.*no column of the format"):
        OrcBulkWriters.for_row_type(row_type)
    ParquetBulkWriters.for_row_type(row_type)
