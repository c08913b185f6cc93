"""The same text of a record, by the declared type of its stream, in files, on the screen and in Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Encoder, Row, SerializationSchema, SimpleStringSchema, TypeInformation, Types
from flinkish.datastream.connectors.file_system import FileSink
from flinkish.datastream.connectors.kafka import FlinkKafkaProducer, KafkaRecordSerializationSchema, KafkaSink
from flinkish.errors import TypeMismatchError
from flinkish.formats.avro import AvroRowSerializationSchema
from flinkish.formats.csv import CsvRowSerializationSchema
from flinkish.formats.json import JsonRowSerializationSchema
from tests.support.programs import new_environment

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
ROW = Types.ROW([Types.BOOLEAN(), Types.STRING(), Types.DOUBLE()])

#: declared type, record, its text, and what print() writes
RECORDS: list[tuple[TypeInformation | None, Any, str, str]] = [
    (PAIR, ("a", 1), "(a,1)", "(a,1)"),
    (ROW, Row(True, None, 1.0), "+I[true, null, 1.0]", "+I[True,None,1.0]"),
    (Types.MAP(Types.STRING(), Types.INT()), {"a": 1}, "{a=1}", "{a=1}"),
    (Types.LIST(PAIR), [("a", 1)], "[(a,1)]", "[(a,1)]"),
    (Types.DOUBLE(), 1e10, "1.0E10", "1.0E10"),
    (Types.FLOAT(), 0.1, "0.1", "0.1"),
    (None, ("a", None), "('a', None)", "('a', None)"),
]


@pytest.mark.parametrize(("declared", "record", "text", "printed"), RECORDS, ids=[row[2] for row in RECORDS])
def test_files_and_the_screen_show_the_text_of_the_declared_type(
    declared: TypeInformation | None, record: Any, text: str, printed: str, tmp_path: Path, capsys: Any
) -> None:
    env = new_environment()
    stream = env.from_collection([record], declared)
    stream.sink_to(FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build())
    stream.print()
    env.execute()
    (written,) = [path for path in tmp_path.rglob("part-*") if path.is_file()]
    assert written.read_text() == f"{text}\n"
    assert f"{printed}\n" in capsys.readouterr().out


def kafka_sink(value: SerializationSchema, key: SerializationSchema | None = None) -> KafkaSink:
    serializer = KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(value)
    if key is not None:
        serializer.set_key_serialization_schema(key)
    return KafkaSink.builder().set_bootstrap_servers("h:1").set_record_serializer(serializer.build()).build()


def producer(value: SerializationSchema) -> FlinkKafkaProducer:
    return FlinkKafkaProducer("t", value, {"bootstrap.servers": "h:1"})


@pytest.mark.parametrize("sink_of", [kafka_sink, producer])
@pytest.mark.parametrize(("declared", "record", "text", "_printed"), RECORDS[:-1], ids=[row[2] for row in RECORDS[:-1]])
def test_kafka_gets_the_same_text(
    sink_of: Callable[..., Any], declared: TypeInformation, record: Any, text: str, _printed: str
) -> None:
    converted = declared.convert(record)
    writer = sink_of(SimpleStringSchema()).with_input_type(declared).create_writer()
    assert [found[2] for found in writer.write([converted, None], None)] == [text.encode(), None]


def test_kafka_gets_only_texts_of_streams_without_a_type() -> None:
    writer = kafka_sink(SimpleStringSchema()).with_input_type(Types.PICKLED_BYTE_ARRAY()).create_writer()
    assert writer.write(["a"], None) == [("t", None, b"a", 0)]
    with pytest.raises(TypeMismatchError, match=r"the record \('a', 1\) is of type tuple"):
        writer.write([("a", 1)], None)


def json_of(*names: str) -> SerializationSchema:
    types = {"id": Types.INT(), "name": Types.STRING(), "other": Types.INT()}
    declared = Types.ROW_NAMED(list(names), [types[name] for name in names])
    return JsonRowSerializationSchema.builder().with_type_info(declared).build()


def avro_of(name: str) -> SerializationSchema:
    schema = {"type": "record", "name": "key", "fields": [{"name": name, "type": "int"}]}
    return AvroRowSerializationSchema(avro_schema_string=json.dumps(schema))


PERSON = Types.ROW_NAMED(["name", "id"], [Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    ("key", "record", "expected"),
    [
        (json_of("id"), PERSON.convert(("a", 7)), b'{"id":7}'),
        (json_of("id", "name"), PERSON.convert(("a", 7)), b'{"id":7,"name":"a"}'),
        (
            json_of("other"),
            Types.ROW_NAMED(["n", "name"], [Types.INT(), Types.STRING()]).convert((7, "a")),
            b'{"other":7}',
        ),
        (json_of("other"), (7, "a"), b'{"other":7}'),
        (avro_of("id"), PERSON.convert(("a", 7)), b"\x0e"),
        (avro_of("id"), Row(7, "a"), b"\x0e"),
        (
            CsvRowSerializationSchema.Builder(Types.ROW_NAMED(["id"], [Types.INT()])).build(),
            PERSON.convert(("a", 7)),
            b"7\n",
        ),
    ],
    ids=["by name", "as many", "by position", "of a tuple", "as Avro", "as Avro by position", "as CSV"],
)
def test_a_key_schema_may_have_fewer_fields_than_the_record(
    key: SerializationSchema, record: Any, expected: bytes
) -> None:
    writer = kafka_sink(CountingSchema(), key).create_writer()
    assert writer.write([record], None) == [("t", expected, b"2", 0)]


class CountingSchema(SerializationSchema):
    def serialize(self, value: Any) -> bytes:
        return str(len(value)).encode()
