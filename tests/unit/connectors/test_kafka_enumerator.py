"""The partitions and offsets that a Kafka source decides on, against the mock cluster inside librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.client import Cluster
from flinkish.connectors.kafka.enumerator import KafkaSplitEnumerator
from flinkish.connectors.kafka.offsets import KafkaOffsetsInitializer
from flinkish.connectors.kafka.settings import KafkaSourceSettings
from flinkish.core.source import SourceLimits, SourceSplit, SplitEnumeratorContext
from flinkish.datastream.connectors.kafka import KafkaSource
from flinkish.runtime.sources.epoch_planner import EpochPlanner
from flinkish.runtime.sources.progress import SourceProgress
from flinkish.runtime.sources.split_list import SegmentsInMemory


class MockCluster:
    """A producer with a Kafka cluster in its own process. A topic exists once a record was written to it."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._producer.list_topics(timeout=10).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"

    def write(self, topic: str, count: int) -> None:
        for _ in range(count):
            self._producer.produce(topic, b"x", partition=0)
        assert self._producer.flush(10) == 0

    def settings(self, **more: Any) -> KafkaSourceSettings:
        return KafkaSourceSettings(self.servers, SimpleStringSchema(), **more)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    yield MockCluster()


def test_a_pattern_does_not_mean_the_topics_of_kafka_itself(cluster: MockCluster) -> None:
    for topic in ("clicks", "__consumer_offsets", "__transaction_state"):
        cluster.write(topic, 1)
    with Cluster(cluster.servers, {}, "", "test") as queries:
        assert {topic for topic, _ in queries.partitions((), ".*")} == {"clicks"}


def test_a_topic_that_comes_after_the_start_is_read_whole_even_if_it_is_the_first_one(cluster: MockCluster) -> None:
    now = [0.0]
    settings = cluster.settings(topic_pattern="clicks.*", starting=KafkaOffsetsInitializer.latest())
    enumerator = KafkaSplitEnumerator(settings, (), lambda: now[0])
    assert not enumerator.discover(())
    cluster.write("clicks", 3)
    now[0] = 1_000.0
    assert {split.id: split.start for split in enumerator.discover(())}["clicks-0"] == 0
    enumerator.close()


def test_each_start_looks_for_partitions_even_if_they_are_looked_for_only_then(cluster: MockCluster) -> None:
    settings = cluster.settings(topic_pattern="clicks.*", properties={"partition.discovery.interval.ms": "0"})
    store, progress = SegmentsInMemory(), SourceProgress()
    cluster.write("clicks-a", 1)
    found = []
    for epoch in (1, 2):
        enumerator = KafkaSplitEnumerator(settings, progress.splits.splits(store))
        planner = EpochPlanner(KafkaSource(settings), enumerator, 2, SourceLimits(), store)
        for _ in range(2):
            planner.discover(progress, epoch)
            progress = planner.next(progress, epoch)
            found.append({split.info["topic"] for split in progress.splits.splits(store)})
            cluster.write("clicks-b", 1)
        enumerator.close()
    assert found == [{"clicks-a"}, {"clicks-a"}, {"clicks-a", "clicks-b"}, {"clicks-a", "clicks-b"}]


def test_the_end_of_a_source_that_became_bounded_holds_over_restarts(cluster: MockCluster) -> None:
    cluster.write("clicks", 3)
    settings = cluster.settings(topics=("clicks",), stopping=KafkaOffsetsInitializer.latest())
    split = SourceSplit("clicks-0", 0, None, {"topic": "clicks", "partition": 0})
    first = KafkaSplitEnumerator(settings, [split])
    first.start(SplitEnumeratorContext(""))
    assert first.end_of(split, 0) == (3, True)
    state = first.snapshot_state()
    first.close()
    cluster.write("clicks", 2)
    again = KafkaSplitEnumerator(settings, [split])
    again.start(SplitEnumeratorContext("", state))
    assert again.end_of(split, 1) == (3, True)
    again.close()
