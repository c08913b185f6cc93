"""Avro records in Parquet files are read back as Avro would give them back; anybody can read the files."""

from __future__ import annotations

import datetime
import io
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.source import SourceLimits
from flinkish.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from flinkish.datastream.formats.avro import AvroSchema, GenericRecordAvroTypeInfo
from flinkish.datastream.formats.parquet import AvroParquetReaders, AvroParquetWriters
from flinkish.errors import ProgramError, TypeMismatchError
from flinkish.minicluster import MiniCluster
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.support.split_reading import SplitReading
from tests.unit.minicluster.programs import environment, job_of

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
SCHEMA_JSON = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "count", "type": "int", "default": 1},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "number", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "sizes", "type": {"type": "map", "values": "double"}},
        {"name": "from", "type": PLACE},
        {"name": "to", "type": ["null", "Place"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": "Place"}}},
    ],
}
SCHEMA = AvroSchema.parse_string(json.dumps(SCHEMA_JSON))
PARSED = fastavro.parse_schema(SCHEMA_JSON)

places = st.fixed_dictionaries({"city": st.text(max_size=5)})
records = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "price": st.decimals(-9999, 9999, places=2),
        "at": st.datetimes(
            datetime.datetime(1960, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(datetime.UTC)
        ).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
        "day": st.none() | st.dates(),
        "number": st.uuids(),
        "tags": st.lists(st.none() | st.text(max_size=3), max_size=3),
        "sizes": st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3),
        "from": places,
        "to": st.none() | places,
        "kind": st.sampled_from("AB"),
        "code": st.binary(min_size=2, max_size=2),
        "more": st.dictionaries(st.text(max_size=3), st.lists(places, max_size=2), max_size=2),
    },
    optional={"note": st.none() | st.text(max_size=5), "count": st.integers(-(2**31), 2**31 - 1)},
)


def written(values: list[Any]) -> bytes:
    writer = AvroParquetWriters.for_generic_record(SCHEMA).create()
    writer.add_batch(values)
    return writer.finish()


def as_avro_gives_it(record: Any) -> Any:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, PARSED, record)
    stream.seek(0)
    return fastavro.schemaless_reader(stream, PARSED, None)


@given(st.lists(records, max_size=12), st.integers(1, 5), st.integers(1, 7))
def test_records_are_read_back_as_avro_gives_them_in_any_ranges(values: list[Any], batch: int, most: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "orders.parquet").write_bytes(written(values))
        source = FileSource.for_record_stream_format(AvroParquetReaders.for_generic_record(SCHEMA), folder).build()
        reading = SplitReading(source, SourceLimits(max_records=most, batch_size=batch)).run()
    assert reading.ended
    assert reading.records == [as_avro_gives_it(value) for value in values]


ORDER = {
    "id": 7,
    "price": Decimal("1.50"),
    "at": datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC),
    "day": datetime.date(2024, 5, 1),
    "number": uuid.UUID(int=3),
    "tags": ["a", None],
    "sizes": {"x": 0.5},
    "from": {"city": "Bern"},
    "to": None,
    "kind": "A",
    "code": b"ok",
    "more": {"all": [{"city": "Ulm"}]},
}


def test_a_program_writes_and_reads_them_and_others_can_too(tmp_path: Path) -> None:
    info = GenericRecordAvroTypeInfo(SCHEMA)
    env = environment(1)
    sink = FileSink.for_bulk_format(str(tmp_path), AvroParquetWriters.for_generic_record(SCHEMA))
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    env.from_collection([{**ORDER, "id": n} for n in range(5)], info).sink_to(sink.build())
    MiniCluster(job_of(env), ManualClock(), max_records_per_epoch=3).run()
    table = pyarrow.parquet.read_table(tmp_path)
    assert table.schema.field("price").type == pyarrow.decimal128(9, 2)
    assert not table.schema.field("id").nullable and table.schema.field("note").nullable
    file = next(tmp_path.glob("*"))
    assert json.loads(pyarrow.parquet.read_metadata(file).metadata[b"parquet.avro.schema"])["name"] == "shop.Order"

    env, read = environment(2), TestingSink()
    source = FileSource.for_record_stream_format(AvroParquetReaders.for_generic_record(SCHEMA), str(tmp_path)).build()
    assert source.produced_type == info
    env.add_source(source).sink_to(read)
    MiniCluster(job_of(env), ManualClock(), max_records_per_epoch=2).run()
    assert sorted(record["id"] for record in read.values) == list(range(5))
    assert all(record == {**ORDER, "note": None, "count": 1, "id": record["id"]} for record in read.values)


def test_fewer_columns_may_be_read_but_none_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "orders.parquet").write_bytes(written([ORDER]))

    def read(*fields: dict[str, Any]) -> list[Any]:
        schema = AvroSchema.parse_string(json.dumps({"type": "record", "name": "Part", "fields": list(fields)}))
        source = FileSource.for_record_stream_format(AvroParquetReaders.for_generic_record(schema), str(tmp_path))
        return SplitReading(source.build()).run().records

    assert read({"name": "kind", "type": "string"}, {"name": "id", "type": "long"}) == [{"kind": "A", "id": 7}]
    with pytest.raises(ProgramError, match="declared column 'size' is not in the file"):
        read({"name": "size", "type": "long"})


@pytest.mark.parametrize(
    ("declared", "column", "wanted"),
    [
        ("long", pyarrow.array([7], pyarrow.int16()), 7),
        ("double", pyarrow.array([1.5], pyarrow.float32()), 1.5),
        ({"type": "array", "items": "int"}, pyarrow.array([[1, 2]]), [1, 2]),
        ({"type": "map", "values": "int"}, pyarrow.array([[("a", 1)]], pyarrow.map_("string", "int64")), {"a": 1}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
         pyarrow.array([Decimal("1.5")], pyarrow.decimal128(38, 18)), Decimal("1.50")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18},
         pyarrow.array([Decimal(10**30)], pyarrow.decimal128(38, 0)), None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pyarrow.array([1.25]), None),
        ("int", pyarrow.array([2**40]), None),
        ("int", pyarrow.array([1.5]), None),
        ("boolean", pyarrow.array([2]), None),
        ("string", pyarrow.array([5]), None),
        ({"type": "long", "logicalType": "timestamp-millis"}, pyarrow.array([1_700_000_000_000]), None),
    ],
    ids=str,
)  # fmt: skip
def test_a_column_of_another_type_is_read_without_loss_or_refused(
    declared: Any, column: pyarrow.Array, wanted: Any, tmp_path: Path
) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x": column}), tmp_path / "other.parquet")
    fields = [{"name": "x", "type": declared}]
    schema = AvroSchema.parse_string(json.dumps({"type": "record", "name": "Part", "fields": fields}))
    source = FileSource.for_record_stream_format(AvroParquetReaders.for_generic_record(schema), str(tmp_path))
    if wanted is not None:
        assert SplitReading(source.build()).run().records == [{"x": wanted}]
    else:
        with pytest.raises(
            TypeMismatchError, match="the column 'x'.*other.parquet.*declare the type that the column has"
        ):
            SplitReading(source.build()).run()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("string", "is no record"),
        ({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}, "holds itself"),
        ({"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}, "has no column"),
        ({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null"]}]}, "has no column"),
    ],
)
def test_schemas_without_columns_are_refused_when_they_are_given(schema: Any, message: str) -> None:
    parsed = AvroSchema.parse_string(json.dumps(schema))
    for use in (AvroParquetReaders.for_generic_record, AvroParquetWriters.for_generic_record):
        with pytest.raises(ProgramError, match=message):
            use(parsed)
    with pytest.raises(TypeError, match="expected an AvroSchema"):
        AvroParquetWriters.for_generic_record("text")  # type: ignore[arg-type]


UNIONS = AvroSchema.parse_string(
    json.dumps(
        {
            "type": "record",
            "name": "Unions",
            "fields": [
                {"name": "nothing", "type": "null"},
                {"name": "number", "type": ["int", "double", "null"]},
                {"name": "which", "type": ["string", "boolean"]},
                {
                    "name": "where",
                    "type": [
                        {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]},
                        {
                            "type": "record",
                            "name": "B",
                            "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "null"}],
                        },
                        {"type": "array", "items": ["A", "string"]},
                    ],
                },
            ],
        }
    )
)


def test_fields_of_null_and_unions_of_several_types_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    records = [
        {"nothing": None, "number": 1, "which": "a", "where": {"a": 1}},
        {"nothing": None, "number": 2.0, "which": True, "where": {"a": 1, "b": None}},
        {"nothing": None, "number": None, "which": "b", "where": [{"a": 2}, "c"]},
    ]
    writer = AvroParquetWriters.for_generic_record(UNIONS).create()
    writer.add_batch(records)
    (tmp_path / "unions.parquet").write_bytes(writer.finish())
    source = FileSource.for_record_stream_format(AvroParquetReaders.for_generic_record(UNIONS), str(tmp_path)).build()
    read = SplitReading(source).run().records
    assert read == records
    assert [type(record["number"]) for record in read] == [int, float, type(None)]
    # the layout of parquet-avro: no column for null, and a member for each type of a union but null
    table = pyarrow.parquet.read_table(tmp_path)
    assert table.column_names == ["number", "which", "where"]
    assert [field.name for field in table.schema.field("number").type] == ["member0", "member1"]


def test_a_record_that_does_not_fit_the_schema_is_refused_and_shown() -> None:
    with pytest.raises(TypeMismatchError, match=r"record .*'many'.* does not fit the Avro schema"):
        written([{**ORDER, "count": "many"}])
    with pytest.raises(TypeMismatchError, match="does not fit the Avro schema"):
        written([{name: value for name, value in ORDER.items() if name != "id"}])


def test_a_decimal_of_more_digits_than_a_column_holds_is_refused() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2}
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "price", "type": price}]})
    with pytest.raises(ProgramError, match="more than 38 digits"):
        AvroParquetWriters.for_generic_record(AvroSchema.parse_string(schema))


def test_a_number_of_more_than_32_bits_does_not_fit_an_int() -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    writer = AvroParquetWriters.for_generic_record(AvroSchema.parse_string(schema)).create()
    with pytest.raises(TypeMismatchError, match="no whole number of 32 bits"):
        writer.add_batch([{"n": 2**31}])
        writer.finish()
