"""Flink's former Kafka consumer and producer, on a real broker: their defaults, and what may be set on them."""

from __future__ import annotations

import logging
from itertools import count
from typing import Any

import pytest

from flinkish.checkpoint.plain_tables import positions_in
from flinkish.common.serialization import SimpleStringSchema
from flinkish.datastream.connectors.kafka import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from flinkish.errors import ConfigurationError, ProgramError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.progress import decode_position
from tests.support.kafka_broker import KafkaBroker
from tests.support.processes import wait_until
from tests.unit.minicluster.programs import environment, job_of

_numbers = count()


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    name = f"former-{next(_numbers)}"
    kafka.create_topic(name, partitions=2)
    for partition in (0, 1):
        kafka.produce(name, [f"{partition}a", f"{partition}b"], partition=partition, timestamp_ms=1_000)
        kafka.produce(name, [f"{partition}c"], partition=partition, timestamp_ms=5_000)
    return name


def consumer(kafka: KafkaBroker, *topics: str, **properties: str) -> FlinkKafkaConsumer:
    given = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"group-of-{topics[0]}"}
    given.update({name.replace("_", "."): value for name, value in properties.items()})
    return FlinkKafkaConsumer(list(topics), SimpleStringSchema(), given)


def producer(
    kafka: KafkaBroker, topic: str, semantic: Semantic = Semantic.AT_LEAST_ONCE, **properties: str
) -> FlinkKafkaProducer:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "message.timeout.ms": "8000"}
    config.update({name.replace("_", "."): value for name, value in properties.items()})
    return FlinkKafkaProducer(topic, SimpleStringSchema(), config, semantic=semantic)


def cluster_of(source: Any, sink: Any, store: StateStore | None = None) -> MiniCluster:
    env = environment(2)
    env.add_source(source, "consumer").uid("consumer").map(str.upper).add_sink(sink)
    return MiniCluster(job_of(env), ManualClock(7_000), store)


def refuses(kafka: KafkaBroker, topic: str, size: int) -> bool:
    """Whether the broker, which applies a topic's settings a moment after it is created, takes no such record."""
    try:
        kafka.produce(topic, ["x" * size])
    except AssertionError:
        return True
    return False


def copied(kafka: KafkaBroker, source: Any, name: str, semantic: Semantic = Semantic.AT_LEAST_ONCE) -> list[Any]:
    """What two epochs write that read the source from the start."""
    kafka.create_topic(name)
    cluster = cluster_of(source, producer(kafka, name, semantic))
    cluster.run(2)
    cluster.dispose()
    return sorted(record.value.decode() for record in kafka.consume(name, read_committed=True))


ALL = ["0A", "0B", "0C", "1A", "1B", "1C"]


@pytest.mark.slow
def test_a_program_with_consumer_and_producer_copies_a_topic_from_where_it_is_told(
    kafka: KafkaBroker, topic: str
) -> None:
    out = f"{topic}-out"
    assert copied(kafka, consumer(kafka, topic).set_start_from_earliest(), f"{out}-0") == ALL
    assert copied(kafka, consumer(kafka, topic).set_start_from_latest(), f"{out}-1") == []
    assert copied(kafka, consumer(kafka, topic).set_start_from_timestamp(2_000), f"{out}-2") == ["0C", "1C"]
    # the default is the group's offsets, which these runs have committed, then the latest ones
    assert copied(kafka, consumer(kafka, topic), f"{out}-3") == []
    fresh = {"group_id": f"fresh-{topic}"}
    assert copied(kafka, consumer(kafka, topic, **fresh), f"{out}-3-fresh") == []
    earliest = consumer(kafka, topic, auto_offset_reset="earliest", group_id=f"earliest-{topic}")
    assert copied(kafka, earliest, f"{out}-4", Semantic.EXACTLY_ONCE) == ALL
    source = consumer(kafka, topic)
    source.acknowledge({f"{topic}-0": 2, f"{topic}-1": 3})
    source.set_commit_offsets_on_checkpoints(False).acknowledge({f"{topic}-0": 0})
    assert copied(kafka, source.set_start_from_group_offsets(), f"{out}-5") == ["0C"]
    # that one has committed nothing, this one does
    assert copied(kafka, consumer(kafka, topic), f"{out}-6") == ["0C"]
    assert copied(kafka, consumer(kafka, topic), f"{out}-7") == []


def test_a_consumer_without_a_group_reads_as_auto_offset_reset_says_and_commits_nothing(
    kafka: KafkaBroker, topic: str
) -> None:
    without = {"bootstrap.servers": kafka.bootstrap_servers}
    source = FlinkKafkaConsumer(topic, SimpleStringSchema(), {**without, "auto.offset.reset": "earliest"})
    assert copied(kafka, source, f"{topic}-out-0") == ALL
    source.acknowledge({f"{topic}-0": 2})
    assert copied(kafka, FlinkKafkaConsumer(topic, SimpleStringSchema(), without), f"{topic}-out-1") == []


def test_a_savepoint_of_a_topic_that_is_not_read_any_more_is_filtered_unless_told_otherwise(
    kafka: KafkaBroker, topic: str
) -> None:
    other = f"{topic}-other"
    kafka.create_topic(other)
    store, out = StateStore(), f"{topic}-out"
    kafka.create_topic(out)
    first = cluster_of(consumer(kafka, topic, other).set_start_from_latest(), producer(kafka, out), store)
    first.run(1)
    text = positions_in(first.job, store)["consumer"]
    first.dispose()
    kafka.produce(topic, ["old"], partition=0)
    kafka.produce(other, ["new"])
    for filtered, expected in ((True, ["NEW"]), (False, ["NEW", "OLD"])):
        name, restored = f"{out}-{filtered}", StateStore()
        kafka.create_topic(name)
        source = consumer(kafka, other)
        if not filtered:
            source.disable_filter_restored_partitions_with_subscribed_topics()
        assert source.check_continuation(text, {})
        restored.positions = {"consumer": decode_position(text, "consumer", restored.segments)}
        cluster = cluster_of(source, producer(kafka, name), restored)
        cluster.run(2)
        cluster.dispose()
        assert sorted(record.value.decode() for record in kafka.consume(name)) == expected


def test_a_producer_writes_times_and_logs_failures_only_if_it_is_told_so(
    kafka: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number, written in enumerate((False, True)):
        out = f"{topic}-times-{number}"
        kafka.create_topic(out)
        cluster = cluster_of(
            consumer(kafka, topic).set_start_from_earliest(), producer(kafka, out).set_write_timestamp_to_kafka(written)
        )
        cluster.run(1)
        cluster.dispose()
        assert {record.timestamp_ms in (1_000, 5_000) for record in kafka.consume(out)} == {written}
    # larger than the client may send, and larger than the topic may hold
    for small in ({"max_request_size": "1000"}, {}):
        name = f"{topic}-small-{len(small)}"
        kafka.create_topic(name, config={"max.message.bytes": "1000"})
        wait_until(lambda topic=name: refuses(kafka, topic, 1_500), 30, "the limit of the topic")
        for log_failures_only in (False, True):
            env = environment(1)
            source = consumer(kafka, topic).set_start_from_earliest()
            sink = producer(kafka, name, **small).set_log_failures_only(log_failures_only)
            env.add_source(source).map(lambda text: text * (1_000 if text == "0b" else 1)).add_sink(sink)
            cluster = MiniCluster(job_of(env), ManualClock())
            if log_failures_only:
                with caplog.at_level(logging.ERROR, "flinkish.KafkaCommitter"):
                    cluster.run(1)
            else:
                with pytest.raises(ProgramError, match="Kafka refused the records|client would refuse"):
                    cluster.run(1)
            cluster.dispose()
    assert caplog.text.count("1 of 6 records are lost, as set_log_failures_only(True) allows") >= 1


def test_what_is_missing_or_unknown_is_refused_when_it_is_built(kafka: KafkaBroker) -> None:
    schema, servers = SimpleStringSchema(), {"bootstrap.servers": kafka.bootstrap_servers}
    with pytest.raises(ConfigurationError, match=r"no bootstrap\.servers"):
        FlinkKafkaConsumer("t", schema, {"group.id": "g"})
    with pytest.raises(ConfigurationError, match="no topics"):
        FlinkKafkaConsumer([], schema, {**servers, "group.id": "g"})
    with pytest.raises(ConfigurationError, match="the value of auto.offset.reset is unknown"):
        FlinkKafkaConsumer("t", schema, {**servers, "group.id": "g", "auto.offset.reset": "sometimes"})
    with pytest.raises(ConfigurationError, match=r"fetch\.nothing"):
        FlinkKafkaConsumer("t", schema, {**servers, "group.id": "g", "fetch.nothing": "1"})
    with pytest.raises(ConfigurationError, match=r"no bootstrap\.servers"):
        FlinkKafkaProducer("t", schema, {})
    with pytest.raises(ConfigurationError, match="0 or more"):
        FlinkKafkaConsumer("t", schema, {**servers, "group.id": "g"}).set_start_from_timestamp(-1)
