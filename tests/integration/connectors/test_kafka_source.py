"""Topics through Spark and the decoder: offsets, bounds, timestamps and what is said when something is wrong."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession

from flinkish.common.serialization import DeserializationSchema, SimpleStringSchema
from flinkish.common.typeinfo import Types
from flinkish.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.connectors.kafka.source_builder import KafkaSourceBuilder
from flinkish.core.source import SourceLimits
from flinkish.errors import ConnectionFailedError, OperationError
from flinkish.formats.json import JsonRowDeserializationSchema
from tests.integration.connectors.reading import read
from tests.support.kafka_broker import KafkaBroker

Offsets = KafkaOffsetsInitializer
_numbers = count()


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """Two partitions: p0 to p4 at times 1000 to 1004, q0 to q2 at 2000 to 2002."""
    name = f"clicks-{next(_numbers)}"
    kafka.create_topic(name, partitions=2)
    for partition, letter, size, begin in ((0, "p", 5, 1000), (1, "q", 3, 2000)):
        for number in range(size):
            kafka.produce(name, [f"{letter}{number}"], partition=partition, timestamp_ms=begin + number)
    return name


def builder(kafka: KafkaBroker, *topics: str, schema: DeserializationSchema | None = None) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    made = made.set_value_only_deserializer(schema or SimpleStringSchema())
    return made.set_topics(*topics) if topics else made


ALL = ["p0", "p1", "p2", "p3", "p4", "q0", "q1", "q2"]


def test_values_come_once_with_kafkas_timestamps_and_their_split(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    source = builder(kafka, topic).build()
    assert source.declared_splits() == (f"{topic}-0", f"{topic}-1")
    assert source.produced_type == Types.STRING()
    reading = read(spark, source, tmp_path)
    assert sorted(zip(reading.records, reading.timestamps, strict=True)) == [
        (value, (1000 if value < "q" else 2000) + int(value[1])) for value in ALL
    ]
    assert reading.splits == {f"{topic}-0", f"{topic}-1"}


def test_an_epoch_takes_no_more_than_the_limit(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    reading = read(spark, builder(kafka, topic).build(), tmp_path, SourceLimits(max_records=3))
    assert max(map(len, reading.epochs)) <= 3
    assert sorted(reading.records) == ALL


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        (Offsets.earliest(), ALL),
        (Offsets.latest(), []),
        (Offsets.timestamp(1003), ["p3", "p4", "q0", "q1", "q2"]),
        (Offsets.timestamp(2001), ["q1", "q2"]),
        ("given", ["p4", "q0", "q1", "q2"]),
        ("given latest", ["p4"]),
    ],
)
def test_it_starts_where_it_is_told_to(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path, starting: Any, expected: list[str]
) -> None:
    if isinstance(starting, str):
        latest = starting == "given latest"
        strategy = KafkaOffsetResetStrategy.LATEST if latest else KafkaOffsetResetStrategy.EARLIEST
        starting = Offsets.offsets({KafkaTopicPartition(topic, 0): 4}, strategy)
    source = builder(kafka, topic).set_starting_offsets(starting).build()
    assert sorted(read(spark, source, tmp_path).records) == expected


def test_it_starts_from_the_offsets_that_the_group_committed(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    made = builder(kafka, topic).set_group_id(f"group-of-{topic}")
    nothing = made.set_starting_offsets(Offsets.committed_offsets()).build()
    with pytest.raises(OperationError, match=f"no committed offset for {topic}-0, {topic}-1.*NONE"):
        nothing.load(spark, SourceLimits(), None)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"group-of-{topic}"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    strategy = KafkaOffsetResetStrategy.LATEST
    source = made.set_starting_offsets(Offsets.committed_offsets(strategy)).build()
    assert sorted(read(spark, source, tmp_path).records) == ["p2", "p3", "p4"]


def test_a_bounded_source_ends_before_the_given_offsets(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    assert builder(kafka, topic).set_bounded(Offsets.latest()).build().bounded
    ends = Offsets.offsets({KafkaTopicPartition(topic, 0): 2, KafkaTopicPartition(topic, 1): 1})
    source = builder(kafka, topic).set_bounded(ends).build()
    assert source.bounded
    assert sorted(read(spark, source, tmp_path / "a").records) == ["p0", "p1", "q0"]
    by_time = builder(kafka, topic).set_unbounded(Offsets.timestamp(1002)).build()
    assert sorted(read(spark, by_time, tmp_path / "b").records) == ["p0", "p1"]


def test_topics_by_pattern_and_single_partitions(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    by_pattern = builder(kafka).set_topic_pattern(f"{topic[:-1]}[{topic[-1]}]").build()
    assert by_pattern.declared_splits() == (f"{topic}-0", f"{topic}-1")
    assert sorted(read(spark, by_pattern, tmp_path / "a").records) == ALL
    one = builder(kafka).set_partitions({KafkaTopicPartition(topic, 1)}).build()
    assert read(spark, one, tmp_path / "b").records == ["q0", "q1", "q2"]


def test_a_restored_source_goes_on_at_the_offsets_and_reads_new_partitions_whole(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    first = read(spark, builder(kafka, topic).build(), tmp_path / "a")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    kafka.produce(topic, ["new p"], partition=0)
    kafka.produce(topic, ["new r"], partition=2)
    start = first.end_offset if isinstance(first.end_offset, str) else json.dumps(first.end_offset)
    source = builder(kafka, topic).build()
    assert sorted(read(spark, source, tmp_path / "b", start=start).records) == ["new p", "new r"]


def test_tombstones_are_no_records(spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    kafka.produce(topic, [None, "last"], partition=1, timestamp_ms=3000)
    reading = read(spark, builder(kafka, topic).build(), tmp_path)
    assert sorted(reading.records) == sorted([*ALL, "last"])
    assert len(reading.timestamps) == len(reading.records)


def test_a_malformed_message_is_named_with_partition_and_offset(
    spark: SparkSession, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    name = f"{topic}-json"
    kafka.create_topic(name)
    kafka.produce(name, ['{"n": 1}', '{"n": 2', '{"n": 3}'])
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.LONG()]))
    with pytest.raises(Exception, match=rf"MalformedRecordError.*\"n\": 2.*partition {name}-0, offset 1"):
        read(spark, builder(kafka, name, schema=schema.build()).build(), tmp_path / "a")
    tolerant = builder(kafka, name, schema=schema.ignore_parse_errors().build()).build()
    assert [row.n for row in read(spark, tolerant, tmp_path / "b").records] == [1, 3]


def test_servers_that_cannot_be_reached_are_named_at_once(spark: SparkSession) -> None:
    made = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1,localhost:2").set_topics("x")
    source = made.set_value_only_deserializer(SimpleStringSchema()).build()
    for call in (lambda: source.load(spark, SourceLimits(), None), source.declared_splits):
        with pytest.raises(ConnectionFailedError, match="127.0.0.1:1,localhost:2.*refused.*start the broker"):
            call()


def test_a_topic_that_does_not_exist_is_named(spark: SparkSession, kafka: KafkaBroker) -> None:
    with pytest.raises(OperationError, match="the topic 'none' does not exist"):
        builder(kafka, "none").build().load(spark, SourceLimits(), None)
