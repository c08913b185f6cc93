"""Whole records of Kafka: keys, headers and topics are written and read, on a real broker."""

from __future__ import annotations

import pytest

from flinkish.common import Configuration, Types, WatermarkStrategy
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
from flinkish.errors import MalformedRecordError, TypeMismatchError
from flinkish.minicluster import MiniCluster
from flinkish.runtime.clock import ManualClock
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
