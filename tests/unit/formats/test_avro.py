"""Avro: Rows to messages and back, and files of records that Avro's own readers read."""

from __future__ import annotations

import bz2
import datetime
import io
import json
import lzma
import pickle
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flinkish.common import AvroRowDeserializationSchema, AvroRowSerializationSchema, Row, Types
from flinkish.connectors.file_system.avro import AvroFormat
from flinkish.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from flinkish.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema, GenericRecordAvroTypeInfo
from flinkish.errors import MalformedRecordError, ProgramError, TypeMismatchError
from tests.support.programs import new_environment, results_of
from tests.support.split_reading import read_all

fastavro: Any = pytest.importorskip("fastavro", reason="the extra 'test' of an older checkout has no fastavro")

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "user", "type": ["null", "string"]},
            {"name": "ok", "type": "boolean"},
            {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
            {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "data", "type": "bytes"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            },
            {
                "name": "item",
                "type": {"type": "record", "name": "Item", "fields": [{"name": "n", "type": "double"}]},
            },
        ],
    }
)


def row(number: int) -> Row:
    return Row(
        id=number,
        user=None if number == 1 else "ann",
        ok=True,
        colour="GREEN",
        tags=["a", None],
        counts={"x": number},
        data=b"\x00\xff",
        day=datetime.date(2024, 2, 29),
        at=datetime.datetime(2024, 2, 29, 23, 59, 59, 999_000),
        price=Decimal("12.34"),
        item=Row(n=0.5),
    )


def test_rows_are_the_same_after_a_message() -> None:
    write = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=SCHEMA)))
    read = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=SCHEMA)))
    for number in range(3):
        assert read.deserialize(write.serialize(row(number))) == row(number)
    assert read.deserialize(None) is None
    # also after it was used
    assert pickle.loads(pickle.dumps(read)).deserialize(pickle.loads(pickle.dumps(write)).serialize(row(4))) == row(4)
    assert read.get_produced_type().convert(row(1)) == row(1)


def test_messages_are_avros_own() -> None:
    message = AvroRowSerializationSchema(avro_schema_string=SCHEMA).serialize(row(2))
    assert message is not None
    record: Any = fastavro.schemaless_reader(io.BytesIO(message), json.loads(SCHEMA), None)
    assert (record["id"], record["at"].tzinfo) == (2, datetime.timezone.utc)
    assert record["item"] == {"n": 0.5}


def test_a_row_without_names_is_taken_in_order() -> None:
    schema = json.dumps(
        {"type": "record", "name": "P", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "int"}]}
    )
    write = AvroRowSerializationSchema(avro_schema_string=schema)
    read = AvroRowDeserializationSchema(avro_schema_string=schema)
    assert read.deserialize(write.serialize(Row("x", 7))) == Row(a="x", b=7)
    assert read.deserialize(write.serialize(("y", 8))) == Row(a="y", b=8)
    # the names that a type without names gives are none
    unnamed = Types.ROW([Types.STRING(), Types.INT()]).convert(("z", 9))
    assert read.deserialize(write.serialize(unnamed)) == Row(a="z", b=9)
    with pytest.raises(TypeMismatchError, match="the Row has no field 'b'"):
        write.serialize(Row(a="x", c=7))
    assert read.get_produced_type() == Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()])
    with pytest.raises(TypeMismatchError, match=r"the record \('x', 'no number'\) does not fit"):
        write.serialize(("x", "no number"))
    with pytest.raises(TypeMismatchError, match="does not fit the Avro schema"):
        write.serialize(("x",))


def test_a_message_that_is_no_record_is_refused() -> None:
    read = AvroRowDeserializationSchema(avro_schema_string=SCHEMA)
    message = AvroRowSerializationSchema(avro_schema_string=SCHEMA).serialize(row(2))
    assert message is not None
    for broken in (b"", message[:-3], message + b"more"):
        with pytest.raises(MalformedRecordError, match="cannot be read"):
            read.deserialize(broken)


def test_files_of_generic_records_hold_their_schema(tmp_path: Path) -> None:
    schema = AvroSchema.parse_string(SCHEMA)
    kind = GenericRecordAvroTypeInfo(schema)
    records = [{"id": n, "user": None, "ok": n > 2} for n in range(5)]
    rest = row(0).as_dict(True)
    env = new_environment(2)
    stream = env.from_collection(records).rebalance().map(lambda record: {**rest, **record}, kind)
    sink = FileSink.for_bulk_format(str(tmp_path), AvroBulkWriters.for_generic_record(schema))
    stream.sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    env.execute("writing")
    found: list[Any] = []
    for path in sorted(tmp_path.iterdir()):
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            found += reader
            assert reader.writer_schema is not None
    assert sorted(record["id"] for record in found) == [0, 1, 2, 3, 4]
    assert {record["id"] for record in found if record["ok"]} == {3, 4}
    read = new_environment(2).create_input(AvroInputFormat(str(tmp_path), schema))
    assert read.get_type() == kind
    assert sorted(results_of(read), key=lambda record: record["id"]) == sorted(found, key=lambda record: record["id"])


def test_a_file_of_another_schema_is_read_as_avro_says(tmp_path: Path) -> None:
    old = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}
    new = {**old, "fields": [{"name": "b", "type": "long"}, {"name": "c", "type": "string", "default": "none"}]}
    with (tmp_path / "old.avro").open("wb") as file:
        fastavro.writer(file, old, [{"a": n, "b": 2 * n} for n in range(2_500)])
    stream = new_environment(flinkish__source__batch_size="1000").create_input(
        AvroInputFormat(str(tmp_path), AvroSchema.parse_string(json.dumps(new)))
    )
    assert results_of(stream) == [{"b": 2 * n, "c": "none"} for n in range(2_500)]


def test_a_file_that_is_not_avros_names_itself(tmp_path: Path) -> None:
    (tmp_path / "text.avro").write_text("no records at all")
    stream = new_environment().create_input(AvroInputFormat(str(tmp_path), AvroSchema.parse_string(SCHEMA)))
    with pytest.raises(MalformedRecordError, match=r"the Avro file cannot be read.*text\.avro"):
        results_of(stream)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "P", "fields": [{"name": "a", "type": "int"}]},
        [{"type": "enum", "name": "E", "symbols": ["A"]}, "null"],
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 2}},
        "string",
    ],
)
def test_the_text_of_a_schema_is_the_schema(schema: Any) -> None:
    assert json.loads(str(AvroSchema.parse_string(json.dumps(schema)))) == schema


def test_schemas_come_from_files_and_are_compared(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(SCHEMA)
    parsed = AvroSchema.parse_file(str(tmp_path / "order.avsc"))
    assert parsed == AvroSchema.parse_string(SCHEMA)
    assert GenericRecordAvroTypeInfo(parsed) == GenericRecordAvroTypeInfo(AvroSchema.parse_string(SCHEMA))
    assert parsed != AvroSchema.parse_string('"string"')


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AvroSchema.parse_string("{"), "is no Avro schema"),
        (lambda: AvroSchema.parse_string('{"type": "recor"}'), "is no Avro schema"),
        (lambda: AvroSchema.parse_file("/no/such.avsc"), "cannot be read"),
        (lambda: AvroRowSerializationSchema("org.example.Order"), "a class of Java cannot be used"),
        (lambda: AvroRowDeserializationSchema(), "no Avro schema is given"),
        (lambda: AvroRowDeserializationSchema(avro_schema_string='"string"'), "is of no record"),
        (
            lambda: AvroRowDeserializationSchema(
                avro_schema_string='{"type":"record","name":"A","fields":[{"name":"u","type":["int","string"]}]}'
            ),
            "the Avro union .* has no type here",
        ),
        (
            lambda: AvroRowDeserializationSchema(
                avro_schema_string='{"type":"record","name":"A","fields":[{"name":"next","type":["null","A"]}]}'
            ),
            "a record that holds itself",
        ),
    ],
)
def test_schemas_that_cannot_be_meant_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        call()


@pytest.mark.parametrize(
    ("kind", "logical", "value"),
    [
        ("string", "uuid", "00000000-0000-0000-0000-000000000005"),
        ("long", "local-timestamp-millis", datetime.datetime(2026, 1, 31, 12, 30)),
        ("long", "local-timestamp-micros", datetime.datetime(2026, 1, 31, 12, 30, 0, 7)),
    ],
)
def test_the_values_of_logical_types_fit_the_type_of_the_records(kind: str, logical: str, value: Any) -> None:
    fields = [{"name": "x", "type": ["null", {"type": kind, "logicalType": logical}]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    reader = AvroRowDeserializationSchema(avro_schema_string=schema)
    record = reader.deserialize(AvroRowSerializationSchema(avro_schema_string=schema).serialize(Row(x=value)))
    convert = reader.get_produced_type().batch_converter("test")
    assert (convert([record]) if convert else [record]) == [Row(x=value)]


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_a_number_of_more_than_32_bits_is_not_written_as_an_int(number: int) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    writer = AvroRowSerializationSchema(avro_schema_string=schema)
    with pytest.raises(TypeMismatchError, match="no whole number of 32 bits"):
        writer.serialize(Row(n=number))
    files = AvroBulkWriters.for_generic_record(AvroSchema.parse_string(schema)).create()
    files.add_batch([{"n": 2**31 - 1}])
    with pytest.raises(TypeMismatchError, match=rf"(?s)does not fit the Avro schema: .*{number}"):
        files.add_batch([{"n": number}])


@pytest.mark.parametrize("text", ["5", "null", "{}", '{"type": "array"}', '{"type": "enum", "name": "E"}'])
def test_json_that_is_no_avro_schema_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ProgramError, match="is no Avro schema"):
        AvroSchema.parse_string(text)


def avro_file(path: Path, schema: Any, records: list[Any], codec: str = "null") -> AvroSchema:
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, codec=codec)
    return AvroSchema.parse_string(json.dumps(schema))


ONE_TEXT: Any = {"type": "record", "name": "T", "fields": [{"name": "t", "type": "string"}]}


def read_file(path: Path, schema: AvroSchema, max_record_bytes: int | None = None) -> list[Any]:
    """As a job reads it."""
    return read_all(FileSource(AvroFormat(schema), [str(path)]), max_record_bytes=max_record_bytes)


def packed_file(path: Path, codec: str, block: bytes, count: int = 1, schema: Any = None) -> AvroSchema:
    """An Avro file of one block, whatever packages of codecs are installed."""
    parsed = avro_file(path, schema or ONE_TEXT, [])
    head = path.read_bytes().replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + long(len(codec)) + codec.encode())
    path.write_bytes(head + long(count) + long(len(block)) + block + head[-16:])
    return parsed


def long(number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", number)
    return stream.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": lambda data: pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big"),
    "zstandard": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "lz4": lambda data: len(data).to_bytes(4, "little") + pa.Codec("lz4_raw").compress(data, asbytes=True),
}


@pytest.mark.parametrize("codec", PACKERS)
def test_a_block_beyond_the_limit_is_an_error_with_file_and_place(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "in.avro"
    for size in (900, 1_000_000):
        schema = packed_file(path, codec, PACKERS[codec](long(size) + b"a" * size))
        if size == 900:
            assert read_file(path, schema, 1024) == [{"t": "a" * size}]
            continue
        with pytest.raises(MalformedRecordError, match=r"1,024.*\(flinkish\.source\.max.*in\.avro, byte \d+"):
            read_file(path, schema, 1024)


@pytest.mark.parametrize(
    ("block", "count", "message"),
    [
        (b"", 2**40, "a block of 0 bytes claims to have 1099511627776 records"),
        (b"\x02a", -1, "claims to have -1 records"),
        (b"\x80\x80\x80\x80\x20a", 1, "EOFError"),
    ],
)
def test_numbers_in_a_block_are_not_believed(tmp_path: Path, block: bytes, count: int, message: str) -> None:
    schema = packed_file(tmp_path / "in.avro", "null", block, count)
    with pytest.raises(MalformedRecordError, match=f"{message}.*in.avro, byte "):
        read_file(tmp_path, schema)


EMPTY: Any = {"type": "record", "name": "Empty", "fields": []}


def indexed(again: Any) -> Any:
    fields = [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "u", "type": ["null", "string"]},
        {"name": "again", "type": {"type": "array", "items": ["null", again]}},
    ]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize("items", ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}])
def test_an_array_whose_items_have_no_bytes_is_refused(tmp_path: Path, items: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    with pytest.raises(ProgramError, match="the items of the array .* have no bytes|the Avro type 'null' has no type"):
        AvroRowDeserializationSchema(avro_schema_string=json.dumps(schema))
    parsed = packed_file(tmp_path / "in.avro", "null", long(2**31) + b"\0", schema=schema)
    with pytest.raises(MalformedRecordError, match="have no bytes.*in.avro"):
        read_file(tmp_path, parsed)


NODE: Any = {
    "type": "record",
    "name": "N",
    "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "next", "type": ["null", "N"]},
        {"name": "more", "type": {"type": "array", "items": "N"}},
    ],
}


def test_a_record_that_holds_itself_is_read_unless_it_is_too_deep(tmp_path: Path) -> None:
    leaf: dict[str, Any] = {"e": "B", "next": None, "more": []}
    records = [{"e": "A", "next": {**leaf, "more": [leaf, leaf]}, "more": [leaf]}, leaf]
    schema = avro_file(tmp_path / "in.avro", NODE, records, "deflate")
    assert read_file(tmp_path, schema) == records
    packed_file(tmp_path / "in.avro", "null", b"\0\x02" * 1_000_000 + b"\0\0\0", schema=NODE)
    with pytest.raises(MalformedRecordError, match=r"holds others to a depth of hundreds.*in\.avro, byte \d"):
        read_file(tmp_path, schema)
    packed_file(tmp_path / "in.avro", "null", b"\0\x02" + long(-1) + b"\0\0\0\0\0", schema=NODE)
    with pytest.raises(MalformedRecordError, match="index of an enum or a union is -1"):
        read_file(tmp_path, schema)


@pytest.mark.parametrize("inner", ["R", "N"])
@pytest.mark.parametrize(
    "left_out",
    [
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 4}},
        {"type": "array", "items": "double"},
        {"type": "map", "values": "float"},
        {"type": "array", "items": {"type": "map", "values": "null"}},
    ],
    ids=json.dumps,
)
def test_the_claimed_length_of_what_the_source_leaves_out_is_not_counted_through(
    tmp_path: Path, left_out: Any, inner: str
) -> None:
    fields = [{"name": "a", "type": left_out}, {"name": "n", "type": "int"}]
    if inner == "N":
        fields.append({"name": "r", "type": ["null", "R"]})
    written = {"type": "record", "name": "R", "fields": fields}
    read = AvroSchema.parse_string(json.dumps({**written, "fields": fields[1:]}))
    whole = {"n": 5} if inner == "R" else {"n": 5, "r": None}
    avro_file(tmp_path / "in.avro", written, [{"a": {} if left_out["type"] == "map" else [], **whole}] * 3)
    assert read_file(tmp_path, read) == [whole] * 3
    # a count that is negative is followed by the number of bytes
    for claimed in (long(2**62), long(-(2**62)) + long(2**62), long(-(2**62)) + long(-5)):
        packed_file(tmp_path / "in.avro", "null", claimed + b"\x02a" * 20, schema=written)
        with pytest.raises(MalformedRecordError, match=r"(EOF|Memory|Value)Error.*in\.avro, byte \d"):
            read_file(tmp_path, read)


@pytest.mark.parametrize("index", [-1, -2, 2])
def test_a_union_as_a_whole_schema_has_no_other_indices(tmp_path: Path, index: int) -> None:
    written = ["int", {"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}]
    schema = avro_file(tmp_path / "in.avro", written, [5, {"s": "x"}, 7])
    assert read_file(tmp_path, schema) == [5, {"s": "x"}, 7]
    wider = AvroSchema.parse_string(json.dumps(["null", *written]))
    assert read_file(tmp_path, wider) == [5, {"s": "x"}, 7]
    packed_file(tmp_path / "in.avro", "null", long(index) + b"\x02a", schema=written)
    for read in (schema, wider):
        with pytest.raises(MalformedRecordError, match=f"index of an enum or a union is {index}, .*in.avro"):
            read_file(tmp_path, read)


@pytest.mark.parametrize(
    ("data", "index"),
    [
        (long(-1) + b"\0\0", -1),
        (long(2) + b"\0\0", 2),
        (b"\0" + long(-1) + b"\x02x\0", -1),
        (b"\0" + long(2) + b"\0", 2),
        (b"\0\0\x02" + long(-1) + b"\0\0", -1),
        (b"\0\0\x02\x02" + long(-2) + b"\0", -2),
    ],
)
def test_an_index_that_the_schema_does_not_have_is_an_error(tmp_path: Path, data: bytes, index: int) -> None:
    written = json.dumps(indexed({"type": "enum", "name": "F", "symbols": ["A", "B"]}))
    read = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=written)))
    with pytest.raises(MalformedRecordError, match=rf"index of an enum or a union is {index}, .* at byte \d"):
        read.deserialize(data)
    assert read.deserialize(b"\x02\x02\x02x\x02\x02\0\0") == Row(e="B", u="x", again=["A"])
    assert pickle.loads(pickle.dumps(read)).deserialize(b"\0\0\0") == Row(e="A", u=None, again=[])
    schema = packed_file(tmp_path / "in.avro", "null", data, schema=indexed("E"))
    with pytest.raises(MalformedRecordError, match=rf"index of an enum or a union is {index}, .*in.avro, byte \d+"):
        read_file(tmp_path, schema)
