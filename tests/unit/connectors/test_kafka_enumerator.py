"""The partitions and offsets that a Kafka source decides on, against the mock cluster inside librdkafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.client import Cluster
from flinkish.connectors.kafka.enumerator import SAMPLES_PER_PLAN, KafkaSplitEnumerator, RecordSizes
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer, KafkaSourceSettings
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

    def write(self, topic: str, count: int, partitions: int = 1) -> None:
        for number in range(count * partitions):
            self._producer.produce(topic, b"x", partition=number % partitions)
        assert self._producer.flush(10) == 0

    def settings(self, **more: Any) -> KafkaSourceSettings:
        return KafkaSourceSettings(self.servers, SimpleStringSchema(), **more)


@pytest.fixture
def cluster() -> MockCluster:
    return MockCluster()


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


@pytest.fixture
def asked_for_ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of partitions in each request for end offsets."""
    asked: list[int] = []
    unchanged = Cluster.next_offsets

    def next_offsets(self: Cluster, partitions: Sequence[Any], committed: bool = False) -> Any:
        asked.append(len(partitions))
        return unchanged(self, partitions, committed)

    monkeypatch.setattr(Cluster, "next_offsets", next_offsets)
    return asked


def test_plan_of_many_partitions_asks_once_for_their_ends_and_takes_few_samples(
    cluster: MockCluster, asked_for_ends: list[int]
) -> None:
    topics = [f"clicks-of-{letter}" for letter in "abc"]
    for topic in topics:
        cluster.write(topic, 200, partitions=4)
    settings = cluster.settings(topics=tuple(topics))
    store, progress = SegmentsInMemory(), SourceProgress()
    samples = []
    for epochs in ((1,), (2, 3)):
        enumerator = KafkaSplitEnumerator(settings, progress.splits.splits(store))
        enumerator.start(SplitEnumeratorContext("", progress.state))
        planner = EpochPlanner(KafkaSource(settings), enumerator, 2, SourceLimits(max_records=500), store)
        for epoch in epochs:
            planner.discover(progress, epoch)
            progress = planner.next(progress, epoch)
            samples.append(len(progress.state["samples"]))
        enumerator.close()
    assert asked_for_ends == [12] * 3
    assert samples == [8, 12, 12], "a restart does not begin with samples again"


def test_restart_of_a_bounded_source_asks_once_for_all_ends(cluster: MockCluster, asked_for_ends: list[int]) -> None:
    cluster.write("clicks", 3, partitions=4)
    settings = cluster.settings(topics=("clicks",), stopping=KafkaOffsetsInitializer.latest())
    splits = [SourceSplit(f"clicks-{n}", 0, end, {"topic": "clicks", "partition": n}) for n, end in enumerate([9] * 4)]
    enumerator = KafkaSplitEnumerator(settings, splits)
    enumerator.start(SplitEnumeratorContext(""))
    for plan in (1, 2):
        assert [enumerator.end_of(split, 0) for split in splits] == [(3, False)] * 4
        assert len(asked_for_ends) == plan
        assert enumerator.snapshot_state() is None
    enumerator.close()


def test_end_that_an_earlier_version_has_stored_holds(cluster: MockCluster) -> None:
    cluster.write("clicks", 5)
    settings = cluster.settings(topics=("clicks",), stopping=KafkaOffsetsInitializer.latest())
    split = SourceSplit("clicks-0", 0, None, {"topic": "clicks", "partition": 0})
    enumerator = KafkaSplitEnumerator(settings, [split])
    enumerator.start(SplitEnumeratorContext("", {"clicks-0": 3}))
    assert enumerator.end_of(split, 1) == (3, True)
    enumerator.close()


def test_each_partition_is_sampled_within_as_few_plans_as_possible_even_if_others_need_samples_again() -> None:
    taken: list[int] = []

    def sample(partition: tuple[str, int], position: int) -> float:
        taken.append(partition[1])
        return 100.0

    sizes = RecordSizes(sample)
    for plan in range(5):
        sizes.begin_plan()
        before = len(taken)
        for number in range(5 * SAMPLES_PER_PLAN):
            # all samples are out of date in the next plan
            sizes.size_at(("clicks", number), plan * 10_000_000, lambda: True)
        assert len(taken) - before == SAMPLES_PER_PLAN
    assert sorted(taken) == list(range(5 * SAMPLES_PER_PLAN))


def test_partition_without_a_sample_counts_as_those_of_its_topic() -> None:
    sizes = RecordSizes(lambda partition, position: {"small": 10.0, "large": 5_000.0}.get(partition[0]))
    assert sizes.size_at(("clicks", 0), 0, lambda: False) == 1024.0
    assert sizes.size_at(("small", 0), 0, lambda: True) == 10.0
    assert sizes.size_at(("large", 0), 0, lambda: True) == 5_000.0
    assert [sizes.size_at((topic, 1), 0, lambda: False) for topic in ("small", "large")] == [10.0, 5_000.0]
    assert sizes.size_at(("clicks", 0), 0, lambda: True) == 5_000.0, "no record of it could be read"
