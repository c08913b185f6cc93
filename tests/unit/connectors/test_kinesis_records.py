"""What Kinesis has stored becomes the records of its producers, and properties are those of Flink's connector."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common import SimpleStringSchema, Types
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kinesis import source as source_module
from flinkish.connectors.kinesis.client import KinesisRecord, decoded, user_records
from flinkish.core.source import SourcePosition
from flinkish.datastream.connectors.kinesis import (
    FlinkKinesisConsumer,
    KinesisDeserializationSchema,
    KinesisFirehoseSink,
    KinesisStreamsSink,
    PartitionKeyGenerator,
)
from flinkish.errors import (
    ArgumentTypeError,
    ConfigurationError,
    FlinkishError,
    MalformedRecordError,
    ProgramError,
    SavepointError,
)

ALL_HASHES = (0, 2**128 - 1)
ARRIVAL = datetime(2026, 11, 26, 10, 0, 0, 250_000, tzinfo=timezone.utc)
ARRIVAL_MS = 1795687200250


def stored(data: bytes, key: str = "k", number: int = 7) -> dict[str, Any]:
    return {
        "Data": data,
        "PartitionKey": key,
        "SequenceNumber": str(number),
        "ApproximateArrivalTimestamp": ARRIVAL,
    }


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def aggregate(records: list[tuple[str, int | None, bytes]]) -> bytes:
    """The aggregate of records (partition key, hash key, data), as the Kinesis Producer Library writes it."""
    keys = list(dict.fromkeys(key for key, _, _ in records))
    hashes = list(dict.fromkeys(one for _, one, _ in records if one is not None))
    message = b"".join(field(1, key.encode()) for key in keys) + b"".join(field(2, str(one).encode()) for one in hashes)
    for key, one, data in records:
        own = field(1, keys.index(key)) + (b"" if one is None else field(2, hashes.index(one))) + field(3, data)
        # a tag, which consumers pass over
        message += field(3, own + field(4, field(1, b"name") + field(2, b"value")))
    return b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message).digest()


@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.none() | st.integers(0, 2**128 - 1), st.binary(max_size=300)), max_size=20
    )
)
def test_an_aggregate_is_the_records_of_its_producer_in_order(records: list[tuple[str, int | None, bytes]]) -> None:
    found = user_records([stored(b"before"), stored(aggregate(records)), stored(b"after")], *ALL_HASHES)
    assert [(one.partition_key, one.hash_key, one.data) for one in found[1:-1]] == records
    assert [found[0].data, found[-1].data] == [b"before", b"after"]
    assert {(one.sequence_number, one.arrival_ms) for one in found} == {("7", ARRIVAL_MS)}


def test_of_an_aggregate_only_what_belongs_to_the_shard_counts() -> None:
    key_hash = int.from_bytes(hashlib.md5(b"ann").digest(), "big")
    records = [("ann", None, b"by key"), ("bob", 5, b"below"), ("ann", key_hash + 1, b"by hash"), ("ann", 0, b"below")]
    found = user_records([stored(aggregate(records))], key_hash, key_hash + 1)
    assert [one.data for one in found] == [b"by key", b"by hash"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xf3\x89\x9a\xc2",
        b"\xf3\x89\x9a\xc2 a text that begins like an aggregate",
        aggregate([("k", None, b"x")])[:-1] + b"?",
    ],
)
def test_what_only_looks_like_an_aggregate_is_a_record(data: bytes) -> None:
    assert [one.data for one in user_records([stored(data)], *ALL_HASHES)] == [data]


@pytest.mark.parametrize(
    "message",
    [field(3, field(1, 4) + field(3, b"x")), field(3, field(3, b"x")), b"\x1a\x7f", b"\x0f", b"\x08" + b"\xff" * 11],
)
def test_an_aggregate_that_cannot_be_taken_apart_is_named(message: bytes) -> None:
    data = b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message).digest()
    with pytest.raises(MalformedRecordError, match="sequence number 7"):
        user_records([stored(data)], *ALL_HASHES)


class Whole(KinesisDeserializationSchema):
    def deserialize(
        self, record_value: bytes, partition_key: str, sequence_number: str, arrival_ms: int, stream: str, shard_id: str
    ) -> Any:
        text = record_value.decode()
        return None if text == "skip" else (text, partition_key, sequence_number, arrival_ms, stream, shard_id)

    def get_produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()


class Refusing(SimpleStringSchema):
    def deserialize(self, message: Any) -> Any:
        if message == b"bad":
            raise MalformedRecordError("bad text", where="the schema")
        return super().deserialize(message)


def test_a_schema_of_whole_records_gets_all_that_kinesis_keeps() -> None:
    records = [KinesisRecord(data, "ann", str(number), 5 + number) for number, data in enumerate([b"a", b"skip", b"b"])]
    found = decoded(Whole(), records, "clicks", "shardId-1", True)
    assert found.values == [("a", "ann", "0", 5, "clicks", "shardId-1"), ("b", "ann", "2", 7, "clicks", "shardId-1")]
    assert (found.timestamps, found.newest_ms) == ([5, 7], 7)
    assert decoded(SimpleStringSchema(), records[:1], "clicks", "shardId-1", False)[:2] == (["a"], None)


def test_a_record_that_the_schema_refuses_is_named() -> None:
    records = [KinesisRecord(data, "ann", str(number), 5) for number, data in enumerate([b"a", b"bad"], 100)]
    with pytest.raises(MalformedRecordError, match=r"bad text .*clicks, shardId-1, sequence number 101, the schema"):
        decoded(Refusing(), records, "clicks", "shardId-1", True)


def consumer(streams: Any = "clicks", schema: Any = None, **properties: str) -> FlinkKinesisConsumer:
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return FlinkKinesisConsumer(streams, schema or SimpleStringSchema(), {"aws.region": "eu-west-1", **named})


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: consumer([]), ConfigurationError, r"the streams are \[\]"),
        (lambda: consumer(["a", "a"]), ConfigurationError, "each of them once"),
        (lambda: consumer(schema="x"), ArgumentTypeError, "a DeserializationSchema or a KinesisDeserializationSchema"),
        (lambda: consumer(aws__regoin="x"), ConfigurationError, "there is no property 'aws.regoin'"),
        (lambda: consumer(flink__stream__initpos="EARLIEST"), ConfigurationError, "LATEST, TRIM_HORIZON or AT_TIME"),
        (lambda: consumer(flink__stream__initpos="AT_TIMESTAMP"), ConfigurationError, "ISO 8601"),
        (
            lambda: consumer(flink__shard__discovery__intervalmillis="soon"),
            ConfigurationError,
            "intervalmillis is 'soon'.*a whole number",
        ),
        (lambda: consumer(flink__shard__getrecords__maxrecordcount="10001"), ConfigurationError, "10000"),
        (lambda: consumer(aws__credentials__provider="VAULT"), ConfigurationError, "AUTO or BASIC"),
        (lambda: KinesisStreamsSink.builder().build(), ConfigurationError, "has no stream"),
        (
            lambda: KinesisStreamsSink.builder().set_stream_name("a").build(),
            ConfigurationError,
            "no serialization schema",
        ),
        (
            lambda: (
                KinesisStreamsSink.builder().set_stream_name("a").set_serialization_schema(SimpleStringSchema()).build()
            ),
            ConfigurationError,
            "no generator of partition keys",
        ),
        (lambda: KinesisFirehoseSink.builder().build(), ConfigurationError, "has no stream"),
        (lambda: KinesisFirehoseSink.builder().set_max_batch_size(501), ConfigurationError, "at most 500"),
        (lambda: KinesisFirehoseSink.builder().set_max_batch_size(0), FlinkishError, "the batch size"),
        (
            lambda: KinesisStreamsSink.builder().set_kinesis_client_properties({"region": "x"}),
            ConfigurationError,
            "there is no property 'region'",
        ),
    ],
)
def test_what_cannot_be_read_or_written_is_refused_when_it_is_made(make: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        make()


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1795687200.25", 1795687200250),
        ("2026-11-26T10:00:00.250Z", 1795687200250),
        ("2026-11-26T11:00:00.250+01:00", 1795687200250),
    ],
)
def test_the_time_of_the_beginning_is_in_seconds_or_of_iso_8601(
    text: str, expected_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "KinesisSplitReader", lambda settings: settings)
    made: Any = consumer(flink__stream__initpos="AT_TIMESTAMP", flink__stream__initpos__timestamp=text)
    assert made.create_reader().initial_ms == expected_ms


def test_secrets_are_in_no_text_of_a_source_or_sink() -> None:
    secret = {"aws.credentials.provider.basic.secretkey": "HUNTER2", "aws.region": "x"}
    source = FlinkKinesisConsumer("clicks", SimpleStringSchema(), secret)
    sink = KinesisFirehoseSink.builder().set_firehose_client_properties(secret).set_delivery_stream_name("a")
    made = sink.set_serialization_schema(SimpleStringSchema()).build()
    assert "HUNTER2" not in f"{source!r} {vars(source)} {made!r} {vars(made)}"


def test_partition_keys_are_texts_of_256_characters_at_most() -> None:
    values, data = ["a", "b", "a"], [b"a", b"b", b"a"]
    fixed = PartitionKeyGenerator.fixed().keys(values, data)
    assert fixed[0] == fixed[2] != fixed[1] and fixed == PartitionKeyGenerator.fixed().keys(values, data)
    assert len(set(PartitionKeyGenerator.random().keys(values, data))) == 3
    assert PartitionKeyGenerator.of(str.upper).keys(values, data) == ["A", "B", "A"]
    for wrong in (lambda value: 1, lambda value: "", lambda value: "x" * 257):
        with pytest.raises(ProgramError, match="the partition key of 'a' is"):
            PartitionKeyGenerator.of(wrong).keys(values, data)


@pytest.mark.parametrize(("position", "is_read"), [(2**186, True), (2**255, True), (2**256, False), (-(2**300), False)])
def test_a_position_has_the_length_of_a_sequence_number(position: int, is_read: bool) -> None:
    text = json.dumps({"complete": False, "ended": [], "splits": [["a/shardId-1", position, None, {}]]})
    if is_read:
        assert SourcePosition.decode(text, "kinesis").splits[0][1] == position
        return
    with pytest.raises(SavepointError, match="expected a whole number"):
        SourcePosition.decode(text, "kinesis")
