"""Topics through the enumerator and the readers of a Kafka source, epoch by epoch and without an engine: offsets,
bounds, timestamps, replays, and what is said when something is wrong."""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from flinkish.common.serialization import ByteArraySchema, DeserializationSchema, SimpleStringSchema
from flinkish.common.typeinfo import Types
from flinkish.connectors.kafka import reader as kept_consumer
from flinkish.connectors.kafka.reader import KeptConsumer, PartitionBuffer
from flinkish.connectors.kafka.settings import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSourceSettings,
    KafkaTopicPartition,
    Partition,
)
from flinkish.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitRange, SplitReader
from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    FinalOperationError,
    MalformedRecordError,
    OperationError,
)
from flinkish.formats.json import JsonRowDeserializationSchema
from tests.support.kafka_broker import KafkaBroker
from tests.support.processes import wait_until

Offsets = KafkaOffsetsInitializer
_numbers = count()
NO_DISCOVERY = "partition.discovery.interval.ms", "0"


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """Two partitions: p0 to p4 at times 1000 to 1004, q0 to q2 at 2000 to 2002."""
    name = f"clicks-{next(_numbers)}"
    # records of 1970 are deleted at the broker's next look, were it not for this
    kafka.create_topic(name, partitions=2, config={"retention.ms": "-1"})
    for partition, letter, size, begin in ((0, "p", 5, 1000), (1, "q", 3, 2000)):
        for number in range(size):
            kafka.produce(name, [f"{letter}{number}"], partition=partition, timestamp_ms=begin + number)
    return name


def builder(kafka: KafkaBroker, *topics: str, schema: DeserializationSchema | None = None) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    made = made.set_value_only_deserializer(schema or SimpleStringSchema())
    return made.set_topics(*topics) if topics else made


#: The buffers of the partitions that a consumer has begun to read.
Opened = dict[Partition, PartitionBuffer]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """What consumers have begun to read, in order."""
    found: list[Opened] = []
    open_ = KeptConsumer.open
    monkeypatch.setattr(KeptConsumer, "open", lambda *of: found.append(dict(one := open_(*of))) or one)
    return found


ALL = ["p0", "p1", "p2", "p3", "p4", "q0", "q1", "q2"]


class Planner:
    """What the engine does with a source, in short: keeps splits and positions, and reads all that is there."""

    def __init__(self, source: KafkaSource, restored: Sequence[tuple[SourceSplit, int]] = ()) -> None:
        self.source: KafkaSource = pickle.loads(pickle.dumps(source))
        self.enumerator: SplitEnumerator = source.create_enumerator([split for split, _ in restored])
        self.reader: SplitReader = source.create_reader()
        self.splits = {split.id: split for split, _ in restored}
        self.positions = {split.id: position for split, position in restored}
        self.ended: set[str] = set()
        self.epochs: list[list[SplitRange]] = []

    def restarted(self) -> Planner:
        """The driver again, in another process: splits and positions come from the engine's log."""
        made = Planner(self.source)
        made.splits, made.positions, made.ended = dict(self.splits), dict(self.positions), set(self.ended)
        return made

    @property
    def finished(self) -> bool:
        return self.enumerator.complete and self.ended == set(self.splits)

    def plan(self, limit: int = 1_000_000) -> list[SplitRange]:
        for split in self.enumerator.discover(list(self.splits)):
            assert split.id not in self.splits
            self.splits[split.id], self.positions[split.id] = split, split.start
        ranges = []
        for split in self.splits.values():
            if split.id not in self.ended:
                start = self.positions[split.id]
                end, last = self.enumerator.end_of(split, start)
                assert end is not None and end >= start
                stop = min(end, start + limit)
                ranges.append(SplitRange(split, start, stop, last and stop == end))
        return ranges

    def read(self, ranges: Sequence[SplitRange], batch_size: int = 10_000) -> list[tuple[str, Any, int]]:
        """(split, value, timestamp), the ranges side by side."""
        self.reader.open(ranges, batch_size)
        found: list[tuple[str, Any, int]] = []
        running = {entry.split.id: self.reader.read(entry, batch_size) for entry in ranges}
        while running:
            for split, batches in list(running.items()):
                batch = next(batches, None)
                if batch is None:
                    del running[split]
                    continue
                assert batch.timestamps is not None
                found += [(split, *pair) for pair in zip(batch.values, batch.timestamps, strict=True)]
        return found

    def epoch(self, limit: int = 1_000_000, batch_size: int = 10_000) -> list[tuple[str, Any, int]]:
        ranges = self.plan(limit)
        found = self.read(ranges, batch_size)
        self.epochs.append(ranges)
        self.positions.update({entry.split.id: entry.stop for entry in ranges if entry.stop is not None})
        self.ended |= {entry.split.id for entry in ranges if entry.ends}
        return found

    def all(self, limit: int = 1_000_000) -> list[Any]:
        """The values of epochs until there is nothing more to read now."""
        values: list[Any] = []
        while True:
            before = dict(self.positions)
            values += [value for _, value, _ in self.epoch(limit)]
            if self.positions == before:
                return values

    def close(self) -> None:
        self.enumerator.close()
        self.reader.close()


def add_a_partition(kafka: KafkaBroker, topic: str) -> None:
    """The third one."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)


def read_all(source: KafkaSource) -> list[Any]:
    planner = Planner(source)
    try:
        return planner.all()
    finally:
        planner.close()


# ------------------------------------------------------------------------------------------- what is read


def test_values_come_once_with_kafkas_timestamps_and_their_split(kafka: KafkaBroker, topic: str) -> None:
    source = builder(kafka, topic).build()
    assert source.side_by_side and not source.bounded
    assert source.declared_splits() == (f"{topic}-0", f"{topic}-1")
    assert source.produced_type == Types.STRING()
    planner = Planner(source)
    assert sorted(planner.epoch()) == [
        (f"{topic}-{'pq'.index(value[0])}", value, (1000 if value < "q" else 2000) + int(value[1])) for value in ALL
    ]
    assert planner.epoch() == [] and not planner.finished
    kafka.produce(topic, ["p5"], partition=0, timestamp_ms=1005)
    assert planner.epoch() == [(f"{topic}-0", "p5", 1005)]


def test_an_epoch_reads_its_ranges_exactly_and_again_the_same(kafka: KafkaBroker, topic: str) -> None:
    planner = Planner(builder(kafka, topic).build())
    epochs: list[list[tuple[str, Any, int]]] = []
    while not epochs or epochs[-1]:
        epochs.append(planner.epoch(limit=2))
    assert [sorted(value for _, value, _ in epoch) for epoch in epochs] == [
        ["p0", "p1", "q0", "q1"], ["p2", "p3", "q2"], ["p4"], []
    ]  # fmt: skip
    # the same worker and another one; in any order
    another = Planner(builder(kafka, topic).build())
    for index in (2, 0, 1):
        assert planner.read(planner.epochs[index]) == epochs[index]
        assert another.read(planner.epochs[index]) == epochs[index]


def test_batches_depend_on_the_range_and_not_on_what_was_fetched_already(kafka: KafkaBroker) -> None:
    name = f"batches-{next(_numbers)}"
    kafka.create_topic(name)
    kafka.produce(name, [f"{number}".encode() for number in range(25)])
    kafka.produce(name, [bytes(900_000)] * 7)
    source = builder(kafka, name, schema=ByteArraySchema()).set_bounded(Offsets.latest()).build()
    planner = Planner(source)
    (wanted,) = planner.plan()

    def sizes(start: int) -> list[int]:
        planner.reader.open([replace(wanted, start=start)], 10)
        return [len(batch.values) for batch in planner.reader.read(replace(wanted, start=start), 10)]

    assert sizes(0) == [10, 10, 5 + 5, 2], "ten records, or as many as make up 4 MiB"
    assert sizes(0) == [10, 10, 10, 2] and sizes(10) == [10, 10, 2]


def test_what_was_fetched_behind_a_range_is_kept_for_the_next_epoch(
    kafka: KafkaBroker, topic: str, opened: list[Opened]
) -> None:
    # other tests of this process keep consumers with settings of their own
    kept_consumer.close_idle()
    planner = Planner(builder(kafka, topic).build())
    assert len(planner.epoch(limit=1)) == 2
    (kept,) = opened
    assert sum(len(buffer.messages) for buffer in kept.values()) == 6
    assert len(planner.epoch(limit=1)) == 2 and len(planner.epoch()) == 4
    assert len(opened) == 3
    again = (item for later in opened for item in later.items())
    assert all(buffer is kept[partition] for partition, buffer in again), "the partitions have not been assigned again"


def test_readers_of_one_process_take_turns_with_one_consumer(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent: list[KeptConsumer] = []
    lend = kept_consumer.lend
    monkeypatch.setattr(kept_consumer, "lend", lambda *of: lent.append(one := lend(*of)) or one)
    # other tests of this process keep consumers with settings of their own
    kept_consumer.close_idle()
    planner = Planner(builder(kafka, topic).build())
    first, second = planner.plan()
    readers = [planner.source.create_reader(), planner.source.create_reader()]
    for _ in range(2):
        for reader, wanted, expected in zip(readers, (first, second), (5, 3), strict=True):
            reader.open([wanted], 10)
            assert sum(len(batch.values) for batch in reader.read(wanted, 10)) == expected
    assert len(lent) == 4 and len(set(map(id, lent))) == 1


def test_readers_that_are_advanced_in_turns_do_not_disturb_each_other(kafka: KafkaBroker, topic: str) -> None:
    planner = Planner(builder(kafka, topic).build())
    readers = [planner.source.create_reader() for _ in range(2)]
    batches: list[Iterator[Any]] = []
    for reader, wanted in zip(readers, planner.plan(), strict=True):
        reader.open([wanted], 1)
        batches.append(reader.read(wanted, 1))
    found = [next(batches[index]).values for index in (0, 1, 0, 1, 0, 1, 0, 0)]
    assert found == [["p0"], ["q0"], ["p1"], ["q1"], ["p2"], ["q2"], ["p3"], ["p4"]]


def test_what_an_epoch_left_half_read_is_read_again(kafka: KafkaBroker, topic: str) -> None:
    planner = Planner(builder(kafka, topic).build())
    ranges = planner.plan()
    planner.reader.open(ranges, 2)
    assert next(planner.reader.read(ranges[0], 2)).values == ["p0", "p1"]
    assert sorted(value for _, value, _ in planner.read(ranges)) == ALL


def test_a_partition_that_is_far_ahead_waits_in_bounded_memory(
    kafka: KafkaBroker, opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_consumer, "BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(kept_consumer, "TAKE_BYTES", 1 << 18)
    name = f"wide-{next(_numbers)}"
    kafka.create_topic(name, partitions=2)
    for partition in (0, 1):
        kafka.produce(name, [f"{partition}-{number}".ljust(10_000) for number in range(1500)], partition=partition)
    planner = Planner(builder(kafka, name).build())
    first, second = planner.plan()
    planner.reader.open([first, second], 100)
    waiting, ahead = planner.reader.read(first, 100), planner.reader.read(second, 100)
    values = [value for batch in ahead for value in batch.values]
    assert opened[-1][name, 0].bytes < 4 << 20
    values += [value for batch in waiting for value in batch.values]
    assert [value.strip() for value in values] == [f"{part}-{number}" for part in (1, 0) for number in range(1500)]


# ------------------------------------------------------------------------------------------- several kept consumers

#: records of each partition of a backlog, and of one epoch of it
BACKLOG, PER_EPOCH = 2000, 400


@pytest.fixture
def backlog(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> list[Partition]:
    """Three partitions that are much larger than the buffers."""
    monkeypatch.setattr(kept_consumer, "BUFFER_BYTES", 150_000)
    monkeypatch.setattr(kept_consumer, "TAKE_BYTES", 20_000)
    # only a partition that is never delivered takes so long
    monkeypatch.setattr(kept_consumer, "STALLED_S", 20.0)
    name = f"backlog-{next(_numbers)}"
    kafka.create_topic(name, partitions=3)
    for partition in range(3):
        kafka.produce(name, [bytes(500)] * BACKLOG, partition=partition)
    return [(name, partition) for partition in range(3)]


def consumer_of(kafka: KafkaBroker, **properties: str) -> kept_consumer.KeptConsumer:
    """A consumer as one worker process keeps it, which goes on where records are gone."""
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return kept_consumer.KeptConsumer(
        KafkaSourceSettings(kafka.bootstrap_servers, SimpleStringSchema(), fail_on_data_loss=False, properties=named)
    )


def read_one(consumer: kept_consumer.KeptConsumer, buffer: kept_consumer.PartitionBuffer, stop: int) -> list[int]:
    """The offsets of the records of an opened partition up to an offset."""
    found: list[int] = []
    while buffer.start < stop:
        batch = buffer.take(stop, 100)
        found += [message.offset() for message in batch]
        if not batch and buffer.reached >= stop:
            buffer.skip_to(stop)
        elif not batch:
            consumer.fetch(buffer)
    return found


def test_consumers_of_two_workers_that_take_turns_read_every_partition(
    kafka: KafkaBroker, backlog: list[Partition]
) -> None:
    """One partition is read to the end of the epoch while the others fill their buffers, as in every backlog."""
    consumers = [consumer_of(kafka), consumer_of(kafka)]
    for turn, start in enumerate(range(0, BACKLOG, PER_EPOCH)):
        consumer = consumers[turn % 2]
        buffers = consumer.open(dict.fromkeys(backlog, start))
        for partition in backlog:
            assert read_one(consumer, buffers[partition], start + PER_EPOCH) == [*range(start, start + PER_EPOCH)]
    for consumer in consumers:
        consumer.close()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2, 3))])
def test_partitions_that_change_hands_at_random_are_read_exactly(
    kafka: KafkaBroker, backlog: list[Partition], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workers, which read any partitions in any order; epochs that are read again; partitions that are given up
    because nobody has read them for a while."""
    chance = Random(seed)
    consumers = [consumer_of(kafka) for _ in range(3)]
    positions = dict.fromkeys(backlog, 0)
    for _ in range(40):
        monkeypatch.setattr(kept_consumer, "PARTITION_IDLE_S", chance.choice([0.0, 1000.0]))
        consumer = chance.choice(consumers)
        chosen = chance.sample(backlog, chance.randint(1, 3))
        starts = {partition: max(0, positions[partition] - chance.choice([0, 0, 0, 300])) for partition in chosen}
        buffers = consumer.open(starts)
        for partition in chosen:
            stop = min(BACKLOG, starts[partition] + chance.randint(1, 400))
            assert read_one(consumer, buffers[partition], stop) == [*range(starts[partition], stop)]
            positions[partition] = max(positions[partition], stop)
    for consumer in consumers:
        consumer.close()


def test_records_that_are_deleted_while_the_buffer_of_their_partition_is_full_are_passed_over_all_the_same(
    kafka: KafkaBroker, backlog: list[Partition]
) -> None:
    """The client reports once that an offset is gone; here when it does not fetch the partition any more."""
    consumer = consumer_of(
        kafka, queued_max_messages_kbytes="64", max_partition_fetch_bytes="10000", fetch_queue_backoff_ms="10"
    )
    first, second, third = backlog[0], (f"small-batches-{next(_numbers)}", 0), backlog[1]
    kafka.create_topic(second[0])
    for _ in range(0, BACKLOG, 20):
        kafka.produce(second[0], [bytes(520)] * 20)
    buffer = consumer.open({second: 0})[second]
    consumer.fetch(buffer)
    delete_before(kafka, *second, BACKLOG - 100)
    while buffer.reached < 50:
        consumer.fetch(buffer)
    # the client fetches again, is told that the offset is gone, and reports it behind what it has fetched before
    time.sleep(0.5)
    # now a third of the memory is for each of them
    buffers = consumer.open({first: 0, second: 0, third: 0})
    assert read_one(consumer, buffers[first], BACKLOG) == [*range(BACKLOG)]
    found = read_one(consumer, buffers[second], BACKLOG)
    assert found == [*range(len(found) - 100), *range(BACKLOG - 100, BACKLOG)]
    consumer.close()


# ------------------------------------------------------------------------------------------- where it starts


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
def test_it_starts_where_it_is_told_to(kafka: KafkaBroker, topic: str, starting: Any, expected: list[str]) -> None:
    if isinstance(starting, str):
        latest = starting == "given latest"
        strategy = KafkaOffsetResetStrategy.LATEST if latest else KafkaOffsetResetStrategy.EARLIEST
        starting = Offsets.offsets({KafkaTopicPartition(topic, 0): 4}, strategy)
    assert sorted(read_all(builder(kafka, topic).set_starting_offsets(starting).build())) == expected


def test_a_given_offset_that_is_not_there_is_a_matter_of_the_strategy(kafka: KafkaBroker, topic: str) -> None:
    given = {KafkaTopicPartition(topic, 0): 50, KafkaTopicPartition(topic, 1): 1}
    made = builder(kafka, topic)
    assert sorted(read_all(made.set_starting_offsets(Offsets.offsets(given)).build())) == [*ALL[:5], "q1", "q2"]
    strict = made.set_starting_offsets(Offsets.offsets(given, KafkaOffsetResetStrategy.NONE)).build()
    with pytest.raises(OperationError, match=rf"the offsets offset 50 of {topic}-0 is not there \(offsets 0 to 5\)"):
        read_all(strict)


def test_it_starts_from_the_offsets_that_the_group_committed(kafka: KafkaBroker, topic: str) -> None:
    made = builder(kafka, topic).set_group_id(f"group-of-{topic}")
    with pytest.raises(OperationError, match=f"no committed offset for {topic}-0, {topic}-1.*NONE"):
        read_all(made.set_starting_offsets(Offsets.committed_offsets()).build())
    made.build().acknowledge({f"{topic}-0": 2})
    strategy = KafkaOffsetResetStrategy.LATEST
    source = made.set_starting_offsets(Offsets.committed_offsets(strategy)).build()
    assert sorted(read_all(source)) == ["p2", "p3", "p4"]


def test_offsets_are_committed_to_the_group_unless_that_is_switched_off(kafka: KafkaBroker, topic: str) -> None:
    made = builder(kafka, topic).set_group_id(f"group-of-{topic}")

    def committed() -> list[int]:
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"group-of-{topic}"}
        consumer = confluent_kafka.Consumer(settings)
        partitions = [confluent_kafka.TopicPartition(topic, number) for number in (0, 1)]
        found = [entry.offset for entry in consumer.committed(partitions, timeout=10)]
        consumer.close()
        return found

    made.build().acknowledge({f"{topic}-0": 3, f"{topic}-1": 1})
    assert committed() == [3, 1]
    made.build().acknowledge({f"{topic}-0": 5, f"{topic}-1": 1})
    assert committed() == [5, 1]
    # somebody sets the group back to have everything read again: the next job commits the same offsets as the last one
    back = [confluent_kafka.TopicPartition(topic, number, 0) for number in (0, 1)]
    group = confluent_kafka.ConsumerGroupTopicPartitions(f"group-of-{topic}", back)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.alter_consumer_group_offsets([group])[f"group-of-{topic}"].result(10)
    assert committed() == [0, 0]
    made.build().acknowledge({f"{topic}-0": 5, f"{topic}-1": 1})
    assert committed() == [5, 1]
    made.set_property("commit.offsets.on.checkpoint", "false").build().acknowledge({f"{topic}-0": 1})
    assert committed() == [5, 1]
    builder(kafka, topic).build().acknowledge({f"{topic}-0": 1})
    with pytest.raises(ConnectionFailedError, match=f"could not be committed to the group 'group-of-{topic}'"):
        made.set_property("commit.offsets.on.checkpoint", "true").build().acknowledge({"no-topic-0": 1})


# ------------------------------------------------------------------------------------------- where it ends


def test_a_bounded_source_ends_before_the_given_offsets(kafka: KafkaBroker, topic: str) -> None:
    ends = Offsets.offsets({KafkaTopicPartition(topic, 0): 2, KafkaTopicPartition(topic, 1): 1})
    source = builder(kafka, topic).set_bounded(ends).build()
    assert source.bounded
    planner = Planner(source)
    assert sorted(planner.all()) == ["p0", "p1", "q0"] and planner.finished
    by_time = builder(kafka, topic).set_unbounded(Offsets.timestamp(1002)).build()
    assert sorted(read_all(by_time)) == ["p0", "p1"]


def test_latest_is_what_was_there_at_the_first_start_also_after_restarts(kafka: KafkaBroker, topic: str) -> None:
    planner = Planner(builder(kafka, topic).set_bounded(Offsets.latest()).build())
    values = [value for _, value, _ in planner.epoch(limit=1)]
    kafka.produce(topic, ["late p"], partition=0)
    add_a_partition(kafka, topic)
    restarted = planner.restarted()
    assert sorted(values + restarted.all(limit=1)) == ALL
    assert restarted.finished and len(restarted.splits) == 2


def test_a_bound_in_the_future_is_waited_for(kafka: KafkaBroker, topic: str) -> None:
    ends = Offsets.offsets({KafkaTopicPartition(topic, 0): 6})
    planner = Planner(builder(kafka, topic).set_bounded(ends).build())
    assert planner.all() == ALL[:5] and not planner.finished
    kafka.produce(topic, ["p5", "p6"], partition=0)
    assert planner.all() == ["p5"] and planner.finished


def test_a_frozen_source_reads_what_is_there_now_and_goes_on_later(kafka: KafkaBroker, topic: str) -> None:
    planner = Planner(builder(kafka, topic).build())
    planner.enumerator.freeze()
    kafka.produce(topic, ["late p"], partition=0)
    assert sorted(planner.all()) == ALL
    assert not planner.ended, "the partitions go on in the next query"
    assert planner.restarted().all() == ["late p"]


# ------------------------------------------------------------------------------------------- partitions


def test_topics_by_pattern_and_single_partitions(kafka: KafkaBroker, topic: str) -> None:
    by_pattern = builder(kafka).set_topic_pattern(f"{topic[:-1]}[{topic[-1]}]").build()
    assert by_pattern.declared_splits() == (f"{topic}-0", f"{topic}-1")
    assert sorted(read_all(by_pattern)) == ALL
    one = builder(kafka).set_partitions({KafkaTopicPartition(topic, 1)}).build()
    assert read_all(one) == ["q0", "q1", "q2"]


def test_new_partitions_are_found_and_read_from_their_beginning(kafka: KafkaBroker, topic: str) -> None:
    made = builder(kafka, topic).set_starting_offsets(Offsets.latest())
    planner = Planner(made.set_property("partition.discovery.interval.ms", "1").build())
    never = Planner(made.set_property(*NO_DISCOVERY).build())
    assert planner.all() == never.all() == []
    assert not never.enumerator.complete and not planner.enumerator.complete
    add_a_partition(kafka, topic)
    kafka.produce(topic, ["r0"], partition=2)
    wait_until(lambda: planner.all() == ["r0"], 30, "the record of the new partition")
    assert planner.splits[f"{topic}-2"] == SourceSplit(f"{topic}-2", 0, None, {"topic": topic, "partition": 2})
    assert never.all() == []
    # a restart looks once, and finds what came meanwhile
    assert never.restarted().all() == ["r0"]


@pytest.mark.parametrize("bounded", [False, True])
def test_a_restored_source_goes_on_at_the_offsets_and_reads_new_partitions_whole(
    kafka: KafkaBroker, topic: str, bounded: bool
) -> None:
    first = Planner(builder(kafka, topic).build())
    assert len(first.all()) == 8
    add_a_partition(kafka, topic)
    kafka.produce(topic, ["new p"], partition=0)
    kafka.produce(topic, ["new r"], partition=2)
    restored = [(split, first.positions[split.id]) for split in first.splits.values()]
    made = builder(kafka, topic).set_starting_offsets(Offsets.latest())
    planner = Planner((made.set_bounded(Offsets.latest()) if bounded else made).build(), restored)
    assert sorted(planner.all()) == ["new p", "new r"]
    assert planner.finished == bounded


# ------------------------------------------------------------------------------------------- offsets without a record


def test_tombstones_are_no_records(kafka: KafkaBroker, topic: str) -> None:
    kafka.produce(topic, [None, "last"], partition=1, timestamp_ms=3000)
    assert sorted(read_all(builder(kafka, topic).build())) == sorted([*ALL, "last"])


def transactional_producer(kafka: KafkaBroker, topic: str) -> Any:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"tx-{topic}", "linger.ms": 0}
    )
    producer.init_transactions(30)
    return producer


@pytest.mark.parametrize(
    "properties", [{"isolation.level": "read_committed"}, {"isolation.level": "read_uncommitted"}, {}], ids=str
)
def test_markers_of_transactions_hold_no_record_and_only_readers_of_committed_records_wait_for_open_ones(
    kafka: KafkaBroker, topic: str, properties: dict[str, str]
) -> None:
    producer = transactional_producer(kafka, topic)

    def transaction(value: str, end: Any = None) -> None:
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        if end is not None:
            end(30)

    planner = Planner(builder(kafka, topic).set_properties(properties).build())
    committed = properties.get("isolation.level") == "read_committed"
    transaction("given up", producer.abort_transaction)
    transaction("done", producer.commit_transaction)
    values: list[str] = []

    def read_to(offset: int) -> bool:
        # the broker writes a marker some time after it has said that the transaction is done
        values.extend(planner.all())
        return planner.positions[f"{topic}-0"] == offset

    # offset 5 is the record that was given up, 6 and 8 are markers
    wait_until(lambda: read_to(9), 30, "both transactions")
    assert sorted(values) == sorted([*ALL, "done"] + ([] if committed else ["given up"]))
    whole = planner.splits[f"{topic}-0"]
    singles = [planner.read([SplitRange(whole, offset, offset + 1)]) for offset in range(5, 9)]
    assert [[value for _, value, _ in found] for found in singles] == [
        [] if committed else ["given up"], [], ["done"], []
    ]  # fmt: skip
    values.clear()
    transaction("open")
    assert read_to(9 if committed else 10)
    assert values == ([] if committed else ["open"])
    producer.commit_transaction(30)
    wait_until(lambda: read_to(11), 30, "the last transaction")
    assert values == ["open"]


@pytest.mark.parametrize(("level", "expected"), [("read_uncommitted", ["open"]), ("read_committed", [])])
def test_a_time_is_looked_up_among_the_records_that_the_isolation_level_lets_be_read(
    kafka: KafkaBroker, topic: str, level: str, expected: list[str]
) -> None:
    producer = transactional_producer(kafka, topic)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0, timestamp=5000)
    producer.flush(30)
    made = builder(kafka, topic).set_starting_offsets(Offsets.timestamp(3000))
    try:
        assert read_all(made.set_property("isolation.level", level).build()) == expected
    finally:
        producer.abort_transaction(30)


# ------------------------------------------------------------------------------------------- costs


def test_the_cost_of_an_offset_is_measured_where_there_is_much_to_read(kafka: KafkaBroker, topic: str) -> None:
    name = f"large-{next(_numbers)}"
    kafka.create_topic(name, partitions=2)
    kafka.produce(name, ["x" * 10_000] * 300, partition=0)
    kafka.produce(name, ["x"] * 10, partition=1)
    planner = Planner(builder(kafka, name).build())
    large, small = planner.plan()
    cost = planner.enumerator.cost(large.split, 0)
    assert cost.records == 1 and cost.bytes == 10_000
    assert planner.enumerator.cost(small.split, 0).bytes == 10_000, "too few for a sample: as the others"


# ------------------------------------------------------------------------------------------- records that are gone


def delete_before(kafka: KafkaBroker, topic: str, partition: int, offset: int) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in client.delete_records([confluent_kafka.TopicPartition(topic, partition, offset)]).values():
        future.result(10)


def test_a_reader_tells_records_that_were_deleted_unread_or_passes_over_them_on_request(
    kafka: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    strict = Planner(builder(kafka, topic).build())
    lenient = Planner(builder(kafka, topic).set_fail_on_data_loss(False).build())
    ranges = strict.plan()
    delete_before(kafka, topic, 0, 3)
    said = f"records of topic '{topic}', partition 0 were deleted before they were read: offsets 0 to 2"
    for _ in range(2):
        with pytest.raises(FinalOperationError, match=said):
            strict.read(ranges)
    with caplog.at_level(logging.WARNING, "flinkish"):
        assert sorted(value for _, value, _ in lenient.read(ranges)) == ALL[3:]
    assert said in caplog.text and "the job goes on without these records" in caplog.text
    (first, _) = ranges
    assert lenient.read([replace(first, stop=2)]) == []


def test_a_partition_that_is_shorter_than_what_was_read_is_told_by_the_enumerator(
    kafka: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    split = SourceSplit(f"{topic}-0", 0, None, {"topic": topic, "partition": 0})
    said = f"topic '{topic}', partition 0 ends before offset 5, but the job has read up to offset 20"
    with pytest.raises(FinalOperationError, match=said):
        builder(kafka, topic).build().create_enumerator([]).end_of(split, 20)
    made = builder(kafka, topic).set_fail_on_data_loss(False)
    with caplog.at_level(logging.WARNING, "flinkish"):
        assert made.build().create_enumerator([]).end_of(split, 20) == (20, False)
        bounded = made.set_bounded(Offsets.latest()).build().create_enumerator([])
        assert bounded.end_of(replace(split, end=24), 20) == (20, True)
    assert said in caplog.text


# ------------------------------------------------------------------------------------------- errors


def test_a_malformed_message_is_named_with_partition_and_offset(kafka: KafkaBroker, topic: str) -> None:
    name = f"{topic}-json"
    kafka.create_topic(name)
    kafka.produce(name, ['{"n": 1}', '{"n": 2', '{"n": 3}'])
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.LONG()]))
    with pytest.raises(MalformedRecordError, match=rf"\"n\": 2.*partition {name}-0, offset 1"):
        read_all(builder(kafka, name, schema=schema.build()).build())
    tolerant = builder(kafka, name, schema=schema.ignore_parse_errors().build()).build()
    assert [row.n for row in read_all(tolerant)] == [1, 3]


def test_servers_that_cannot_be_reached_are_named_at_once() -> None:
    made = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1,localhost:2").set_topics("x")
    source = made.set_value_only_deserializer(SimpleStringSchema()).build()
    for call in (lambda: source.check_continuation(None, {}), source.declared_splits):
        with pytest.raises(ConnectionFailedError, match="127.0.0.1:1,localhost:2.*refused.*start the broker"):
            call()


def test_a_topic_that_does_not_exist_is_named(kafka: KafkaBroker) -> None:
    source = builder(kafka, "none").build()
    for call in (lambda: source.check_continuation(None, {}), lambda: Planner(source).plan()):
        with pytest.raises(OperationError, match="the topic 'none' does not exist"):
            call()


@pytest.mark.parametrize("by_pattern", [False, True])
def test_a_topic_of_a_savepoint_that_is_not_named_any_more_is_refused_or_left_out(
    kafka: KafkaBroker, topic: str, by_pattern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"views-{next(_numbers)}"
    kafka.create_topic(other)
    kafka.produce(other, ["v0", "v1"])
    split = SourceSplit(f"{other}-0", 0, None, {"topic": other, "partition": 0})
    position = json.dumps({"complete": False, "ended": [], "splits": [[split.id, 1, None, split.info]]})
    made = builder(kafka).set_topic_pattern(f"{topic}.*") if by_pattern else builder(kafka, topic)
    with pytest.raises(FinalOperationError, match=f"does not name any more: {other}.*name them again"):
        made.build().check_continuation(position, {})
    source = made.set_fail_on_data_loss(False).build()
    with caplog.at_level(logging.WARNING, "flinkish"):
        source.check_continuation(position, {})
    assert f"does not name any more: {other}; they are left out" in caplog.text
    assert sorted(Planner(source, [(split, 1)]).all()) == ALL
    both = builder(kafka).set_topic_pattern(f"{topic}|{other}") if by_pattern else builder(kafka, topic, other)
    caplog.clear()
    both.build().check_continuation(position, {})
    assert caplog.text == ""
    assert sorted(Planner(both.build(), [(split, 1)]).all()) == [*ALL, "v1"]


def test_a_reader_whose_broker_does_not_answer_says_so(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = Planner(builder(kafka, topic).build())
    ranges = planner.plan()
    # what a consumer has fetched already would be read without the broker
    kept_consumer.close_idle()
    monkeypatch.setattr(kept_consumer, "STALLED_S", 2.0)
    said = rf"has not delivered partition {topic}-0 from offset 0"
    with kafka.paused(), pytest.raises(ConnectionFailedError, match=said):
        planner.read(ranges)
    monkeypatch.undo()
    assert sorted(value for _, value, _ in planner.read(ranges)) == ALL


def test_a_property_that_the_client_does_not_know_is_named_when_the_source_is_built(kafka: KafkaBroker) -> None:
    with pytest.raises(ConfigurationError, match="No such configuration property: .fetch.min.byte."):
        builder(kafka, "clicks").set_property("fetch.min.byte", "1").build()
