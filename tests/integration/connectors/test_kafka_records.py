"""Whole records of Kafka: keys, headers and topics are written and read, on a real broker."""

from __future__ import annotations

import pytest

from flinkish.common import Configuration, Duration, Time, Types, WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.common.typeinfo import TypeInformation
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.kafka import (
    ConsumerRecord,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import MalformedRecordError, TypeMismatchError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.support.kafka_broker import KafkaBroker
from tests.unit.minicluster.programs import environment, job_of


class Whole(KafkaRecordDeserializationSchema):
    """All but records whose value is ``skip``; ``bad`` is refused."""

    def deserialize(self, record: ConsumerRecord) -> tuple[object, ...] | None:
        if record.value == b"bad":
            raise MalformedRecordError("a bad value")
        return None if record.value == b"skip" else tuple(record)

    def get_produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()


def read(kafka: KafkaBroker, topic: str) -> list[ConsumerRecord]:
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(topic)
    source = builder.set_deserializer(Whole()).set_bounded(KafkaOffsetsInitializer.latest()).build()
    env, sink = environment(1), TestingSink()
    env.add_source(source).sink_to(sink)
    MiniCluster(job_of(env), ManualClock()).run()
    return [ConsumerRecord(*values) for values in sink.values]


def write(kafka: KafkaBroker, topic: str, values: list[str], headers: object) -> None:
    serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
    serializer.set_key_serialization_schema(SimpleStringSchema())
    serializer.set_value_serialization_schema(SimpleStringSchema())
    serializer.set_header_provider(lambda value: headers)  # type: ignore[arg-type, return-value]
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    env = environment(1)
    env.from_collection(values, Types.STRING()).sink_to(builder.set_record_serializer(serializer.build()).build())
    MiniCluster(job_of(env), ManualClock()).run()


def test_keys_headers_and_topics_go_there_and_back(kafka: KafkaBroker) -> None:
    kafka.create_topic("whole")
    write(kafka, "whole", ["a", "skip", "b"], [("from", b"tests"), ("from", None)])
    found = read(kafka, "whole")
    assert [(record.key, record.value, record.offset) for record in found] == [(b"a", b"a", 0), (b"b", b"b", 2)]
    assert {record.headers for record in found} == {(("from", b"tests"), ("from", None))}
    assert {(record.topic, record.partition) for record in found} == {("whole", 0)}
    assert all(record.timestamp_ms > 0 for record in found)
    write(kafka, "whole", ["bad"], [])
    with pytest.raises(MalformedRecordError, match="a bad value.*partition whole-0, offset 3"):
        read(kafka, "whole")
    with pytest.raises(TypeMismatchError, match="the header provider gave"):
        write(kafka, "whole", ["c"], ["no header"])


@pytest.mark.parametrize("target", ["minicluster", pytest.param("spark", marks=pytest.mark.slow)])
def test_a_bounded_program_goes_on_where_its_group_has_read_to(
    kafka: KafkaBroker, request: pytest.FixtureRequest, target: str
) -> None:
    """Each run ends its partitions with its last epoch, and commits their ends to the group."""
    if target == "spark":
        request.getfixturevalue("spark")
    topic = f"read-by-group-{target}"
    kafka.create_topic(topic, partitions=2)
    for values in (["a0", "a1", "a2"], [], ["b0", "b1"]):
        for value in values:
            kafka.produce(topic, [value], partition=int(value[1]) % 2)
        builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_group_id(topic)
        builder.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST))
        builder.set_bounded(KafkaOffsetsInitializer.latest()).set_value_only_deserializer(SimpleStringSchema())
        configuration = Configuration().set_string("execution.target", target)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        source = builder.set_topics(topic).build()
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "r", Types.STRING())
        with stream.execute_and_collect() as read:
            assert sorted(read) == values


def test_a_silent_partition_that_holds_the_watermark_back_is_named(kafka: KafkaBroker) -> None:
    kafka.create_topic("silent", partitions=3, config={"retention.ms": "-1"})
    source = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics("silent")
    source.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_value_only_deserializer(SimpleStringSchema())
    env = environment(1)
    clicks = env.from_source(source.build(), WatermarkStrategy.for_monotonous_timestamps(), "clicks").uid("clicks")
    clicks.key_by(lambda click: click).reduce(lambda a, b: b).sink_to(TestingSink())
    job, clock = job_of(env), ManualClock(1_000)
    cluster, named = MiniCluster(job, clock), []
    for number in range(5):
        for partition in (0, 2):
            kafka.produce("silent", [f"{number}"], partition=partition, timestamp_ms=1_000 * number)
        report = cluster.run_epoch()
        named.append([(one.source_uid, one.split, one.silent_ms) for one in report.silent_splits(job)])
        clock.advance(10_000)
    cluster.dispose()
    assert named == [[], [], [], [("clicks", "silent-1", 30_000)], [("clicks", "silent-1", 40_000)]]


def test_the_records_that_an_epoch_leaves_are_reported_as_backlog(kafka: KafkaBroker) -> None:
    kafka.create_topic("backlog", partitions=2)
    for partition, records in ((0, 6), (1, 4)):
        kafka.produce("backlog", ["x"] * records, partition=partition)
    source = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics("backlog")
    source.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_value_only_deserializer(SimpleStringSchema())
    env = environment(2)
    env.add_source(source.build()).sink_to(TestingSink())
    cluster = MiniCluster(job_of(env), ManualClock(), StateStore(), 4)
    reports = [cluster.run_epoch() for _ in range(4)]
    cluster.dispose()
    assert [report.records_in for report in reports] == [4, 4, 2, 0]
    assert [sum(task.backlog for task in report.tasks) for report in reports] == [6, 2, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("records_of_an_epoch", ["2000", "5000"])
def test_a_topic_of_400_partitions_is_read_wholly_and_closes_its_windows(
    kafka: KafkaBroker, spark: object, records_of_an_epoch: str
) -> None:
    """Each partition is as far in event time as the others, and every fifth one is empty."""
    partitions, per_partition, width_s = 400, 20, 5
    topic = f"wide-{records_of_an_epoch}"
    kafka.create_topic(topic, partitions=partitions, config={"retention.ms": "-1"})
    for partition in range(partitions):
        if partition % 5:
            for second in range(per_partition):
                kafka.produce(topic, [f"{partition % 7}"], partition=partition, timestamp_ms=1_000_000 + 1_000 * second)
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(topic)
    builder.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_bounded(KafkaOffsetsInitializer.latest())
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    configuration = Configuration().set_string("flinkish.epoch.max-records-per-source", records_of_an_epoch)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(3)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_seconds(1))
    clicks = env.from_source(source, strategy, "clicks", Types.STRING())
    pairs = clicks.map(lambda key: (key, 1), Types.TUPLE([Types.STRING(), Types.INT()])).key_by(lambda pair: pair[0])
    counts = pairs.window(TumblingEventTimeWindows.of(Time.seconds(width_s))).sum(1)
    with counts.execute_and_collect() as rows:
        found = sorted(rows)
    filled = [sum(partition % 5 != 0 and partition % 7 == key for partition in range(partitions)) for key in range(7)]
    windows = per_partition // width_s
    assert found == sorted((str(key), filled[key] * width_s) for key in range(7) for _ in range(windows))
