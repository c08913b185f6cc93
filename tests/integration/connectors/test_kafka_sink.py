"""The Kafka sink on a real broker: what is delivered again is produced again, or not, as was promised."""

from __future__ import annotations

import os
import pickle
import socket
import stat
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka import client, committer
from flinkish.connectors.kafka.properties import DeliveryGuarantee
from flinkish.connectors.kafka.sink import KafkaRecordSerializationSchema, KafkaSink, KafkaTopicSelector
from flinkish.connectors.kept_resources import KeptResources
from flinkish.core.sink import CommitContext, Guarantee
from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    FencedError,
    FinalOperationError,
    OperationError,
    RetryableError,
)
from tests.support.fences import FallingFence
from tests.support.kafka_broker import KafkaBroker
from tests.support.processes import wait_until

_numbers = count()
EXACTLY_ONCE, AT_LEAST_ONCE = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    name = f"out-{next(_numbers)}"
    kafka.create_topic(name, partitions=2)
    return name


def sink_to(servers: str, topic: str, guarantee: DeliveryGuarantee = EXACTLY_ONCE, **properties: str) -> KafkaSink:
    """``properties``: of the producer, with ``_`` for ``.``."""
    serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
    serializer.set_value_serialization_schema(SimpleStringSchema())
    made = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(serializer.build())
    for key, value in properties.items():
        made.set_property(key.replace("_", "."), value)
    return made.set_delivery_guarantee(guarantee).set_transactional_id_prefix("test").build()


def deliver(
    sink: KafkaSink, values: list[str], epoch: int, subtask: int = 0, timestamps: list[int] | None = None
) -> int:
    sink = pickle.loads(pickle.dumps(sink))
    writer = sink.create_writer()
    batches = iter([writer.write(values, timestamps), writer.prepare_commit()])
    return sink.create_committer().commit(batches, context(sink, epoch, subtask))


def context(sink: KafkaSink, epoch: int, subtask: int = 0) -> CommitContext:
    serializer = sink._settings.serializer
    return CommitContext(f"job-{serializer and serializer.topic}", "test", "sink", "sink", epoch, 1_000, subtask, 2)


class Workers:
    """As if the next committers ran in another process: each worker knows only the producers that it has kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._kept: dict[str, KeptResources[Any]] = {}

    def run_on(self, worker: str, idle_limit_s: float = 60.0) -> KeptResources[Any]:
        """The next commits are this worker's."""
        kept = self._kept.get(worker)
        if kept is None:
            kept = self._kept[worker] = KeptResources[Any](lambda producer: producer.close(), 16, idle_limit_s)
        self._monkeypatch.setattr(committer, "PRODUCERS", kept)
        return kept

    def close(self) -> None:
        """End them all."""
        for kept in self._kept.values():
            kept.close_all()


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    made = Workers(monkeypatch)
    made.run_on("a")
    yield made
    made.close()


def producers_of(kafka: KafkaBroker, topic: str) -> list[tuple[int, int]]:
    """Id and epoch of the producers that have ended a transaction of the topic's job, from the broker's own log."""
    found: list[tuple[int, int]] = []
    for record in kafka.consume("__transaction_state", read_committed=False):
        if record.key is not None and record.value is not None and record.key[4:].decode() == transactional_id(topic):
            _, producer_id, epoch, _, status = struct.unpack(">hqhib", record.value[:17])
            if status == COMPLETE_COMMIT and (producer_id, epoch) not in found:
                found.append((producer_id, epoch))
    return found


COMPLETE_COMMIT = 4


def transactional_id(topic: str, subtask: int = 0) -> str:
    return f"test-job-{topic}-sink-{subtask}"


def values_in(kafka: KafkaBroker, topic: str) -> list[str]:
    return sorted(record.value.decode() for record in kafka.consume(topic) if record.value is not None)


def test_at_least_once_produces_again_what_is_delivered_again(kafka: KafkaBroker, topic: str) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic, AT_LEAST_ONCE)
    assert sink.guarantee is Guarantee.AT_LEAST_ONCE
    assert [deliver(sink, ["a", "b"], 0), deliver(sink, ["a", "b"], 0), deliver(sink, [], 1)] == [2, 2, 0]
    assert values_in(kafka, topic) == ["a", "a", "b", "b"]


def test_exactly_once_skips_what_is_delivered_again_also_to_another_worker(
    kafka: KafkaBroker, topic: str, workers: Workers
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    assert sink.guarantee is Guarantee.EXACTLY_ONCE
    assert [deliver(sink, ["a", "b"], epoch) for epoch in (0, 0)] == [2, 0]
    workers.run_on("b")
    assert [deliver(sink, ["a", "b"], 0), deliver(sink, ["c"], 1)] == [0, 1]
    workers.run_on("c")
    assert [deliver(sink, ["c"], 1), deliver(sink, ["x"], 1, subtask=1), deliver(sink, ["d"], 2)] == [0, 1, 1]
    assert values_in(kafka, topic) == ["a", "b", "c", "d", "x"]


def test_a_marker_that_is_ahead_is_an_error_and_no_reason_to_drop_records(
    kafka: KafkaBroker, topic: str, workers: Workers
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    assert sink.create_committer().last_committed_epoch(context(sink, 0)) is None
    deliver(sink, ["a"], 5)
    deliver(sink, ["b"], 3, subtask=1)
    assert sink.create_committer().last_committed_epoch(context(sink, 0)) == 5
    for worker in ("a", "b"):
        workers.run_on(worker)
        with pytest.raises(FinalOperationError, match="the sink has epoch 5 of this job already.*put back from a copy"):
            deliver(sink, ["c"], 4)
    assert deliver(sink, ["c"], 4, subtask=1) == 1
    assert values_in(kafka, topic) == ["a", "b", "c"]
    assert (
        sink_to(kafka.bootstrap_servers, topic, AT_LEAST_ONCE).create_committer().last_committed_epoch(context(sink, 0))
        is None
    )


@pytest.mark.parametrize("worker", ["a", "b"])
def test_exactly_once_shows_nothing_of_a_committer_that_died_in_the_middle(
    kafka: KafkaBroker, topic: str, workers: Workers, worker: str
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    assert deliver(sink, ["a"], 0) == 1

    def dying() -> Iterator[list[Any]]:
        yield [(topic, None, b"b", 0)]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sink.create_committer().commit(dying(), context(sink, 1))
    workers.run_on(worker)
    assert deliver(sink, ["b", "c"], 1) == 2
    assert values_in(kafka, topic) == ["a", "b", "c"]


def test_what_is_committed_is_known_although_a_killed_worker_has_left_a_transaction_open(
    kafka: KafkaBroker, topic: str, workers: Workers
) -> None:
    """A driver asks when it starts, before anything fences that worker off."""
    sink = sink_to(kafka.bootstrap_servers, topic)
    assert deliver(sink, ["a"], 3) == 1
    found: list[int | None] = []

    def meanwhile() -> Iterator[list[Any]]:
        yield [(topic, None, b"b", 0)]
        found.append(sink.create_committer().last_committed_epoch(context(sink, 4)))

    assert sink.create_committer().commit(meanwhile(), context(sink, 4)) == 1
    found.append(sink.create_committer().last_committed_epoch(context(sink, 4)))
    assert found == [3, 4]


def test_epochs_of_a_subtask_use_one_producer(kafka: KafkaBroker, topic: str, workers: Workers) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    assert [deliver(sink, [str(epoch)], epoch) for epoch in range(4)] == [1] * 4
    assert len(producers_of(kafka, topic)) == 1
    # its number was told to it once, and it remembers it
    assert [deliver(sink, [str(epoch)], epoch) for epoch in (3, 4)] == [0, 1]
    assert len(producers_of(kafka, topic)) == 1
    workers.run_on("b")
    assert deliver(sink, ["5"], 5) == 1
    assert len(producers_of(kafka, topic)) == 2
    assert values_in(kafka, topic) == list("012345")


def test_at_least_once_keeps_one_producer_for_all_subtasks(kafka: KafkaBroker, topic: str, workers: Workers) -> None:
    kept = workers.run_on("a")
    sink = sink_to(kafka.bootstrap_servers, topic, AT_LEAST_ONCE)
    assert [deliver(sink, ["x"], epoch, subtask) for epoch in range(3) for subtask in range(2)] == [1] * 6
    assert len(kept) == 1
    # one producer numbers its records without a gap: another one would begin at the partition's end, with its own id
    assert values_in(kafka, topic) == ["x"] * 6


def test_a_worker_that_lost_a_subtask_and_gets_it_back_writes_nothing_twice(
    kafka: KafkaBroker, topic: str, workers: Workers
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    committed = []
    for worker, epoch in (
        ("a", 0), ("a", 1), ("b", 2), ("a", 2), ("a", 3), ("b", 3), ("b", 4), ("a", 5), ("c", 5), ("a", 6),
    ):  # fmt: skip
        workers.run_on(worker)
        committed.append(deliver(sink, [str(epoch)], epoch))
    assert committed == [1, 1, 1, 0, 1, 0, 1, 1, 0, 1]
    assert values_in(kafka, topic) == list("0123456")


def test_a_driver_that_was_taken_over_does_not_fence_off_the_newer_ones_producer(
    kafka: KafkaBroker, topic: str, workers: Workers
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    assert deliver(sink, ["0"], 0) == 1
    workers.run_on("newer driver's")
    assert deliver(sink, ["1"], 1) == 1
    workers.run_on("a")
    with pytest.raises(FencedError):
        batch = [(topic, None, b"1", 0)]
        sink.create_committer().commit(iter([batch]), replace(context(sink, 1), fence=FallingFence()))
    workers.run_on("newer driver's")
    assert deliver(sink, ["2"], 2) == 1
    assert len(producers_of(kafka, topic)) == 2
    assert values_in(kafka, topic) == ["0", "1", "2"]


def test_a_producer_that_nobody_uses_is_closed_and_the_next_epoch_goes_on(
    kafka: KafkaBroker, topic: str, workers: Workers
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    kept = workers.run_on("short", idle_limit_s=0.1)
    assert deliver(sink, ["0"], 0) == 1
    wait_until(lambda: len(kept) == 0, 30, "the producer to be closed")
    assert [deliver(sink, ["0"], 0), deliver(sink, ["1"], 1)] == [0, 1]
    assert values_in(kafka, topic) == ["0", "1"]


def cut_connections(port: int) -> int:
    """Break off this process's connections to a port; returns how many there were."""
    cut = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as connection:
                if connection.family == socket.AF_INET and connection.getpeername()[1] == port:
                    connection.shutdown(socket.SHUT_RDWR)
                    cut += 1
        except OSError:
            continue
    return cut


def test_a_producer_whose_connections_were_lost_is_made_anew(kafka: KafkaBroker, topic: str, workers: Workers) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    kept = workers.run_on("a")
    assert deliver(sink, ["0"], 0) == 1
    with kept.use(next(iter(kept._kept)), pytest.fail) as producer:
        assert cut_connections(kafka.port) > 0
        wait_until(lambda: producer.client.poll(0.1) is not None and producer.disturbed, 30, "the loss to be noticed")
    assert [deliver(sink, ["1"], 1), deliver(sink, ["1"], 1), deliver(sink, ["2"], 2)] == [1, 0, 1]
    assert len(producers_of(kafka, topic)) == 2
    assert values_in(kafka, topic) == ["0", "1", "2"]


@pytest.mark.slow
def test_a_broker_that_was_away_between_two_epochs_is_found_again(
    kafka: KafkaBroker, topic: str, workers: Workers
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    plain = sink_to(kafka.bootstrap_servers, topic, AT_LEAST_ONCE)
    assert [deliver(sink, ["0"], 0), deliver(plain, ["x"], 0)] == [1, 1]
    kafka.stop()
    kafka.start()
    assert [deliver(sink, ["1"], 1), deliver(sink, ["1"], 1), deliver(sink, ["2"], 2)] == [1, 0, 1]
    assert deliver(plain, ["x"], 1) == 1
    assert values_in(kafka, topic) == ["0", "1", "2", "x", "x"]


def test_an_older_driver_that_wakes_up_in_the_middle_of_an_epoch_commits_nothing(
    kafka: KafkaBroker, topic: str
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)

    def paused() -> Iterator[list[Any]]:
        yield [(topic, None, b"a", 0)]
        # meanwhile, in another process (thread: it has producers of its own), the newer driver runs the same epoch
        with ThreadPoolExecutor(1) as newer:
            assert newer.submit(deliver, sink, ["a", "b"], 0).result() == 2
        yield [(topic, None, b"b", 0)]

    # without any help of a fence: the transactional id alone
    with pytest.raises(RetryableError, match="another committer of this subtask has taken over"):
        sink.create_committer().commit(paused(), context(sink, 0))
    assert values_in(kafka, topic) == ["a", "b"]


def test_a_driver_that_was_taken_over_before_the_newer_one_got_to_the_sink_commits_nothing(
    kafka: KafkaBroker, topic: str
) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    batch = [(topic, None, b"a", 0)]
    with pytest.raises(FencedError):
        sink.create_committer().commit(iter([batch]), replace(context(sink, 0), fence=FallingFence()))
    assert deliver(sink, ["a"], 0) == 1
    assert values_in(kafka, topic) == ["a"]


def test_topics_keys_and_timestamps_are_as_the_program_says(kafka: KafkaBroker, topic: str) -> None:
    other = f"{topic}-other"
    kafka.create_topic(other)

    class ByLetter(KafkaTopicSelector):
        def apply(self, data: Any) -> str:
            return other if data.startswith("x") else topic

    serializer = KafkaRecordSerializationSchema.builder().set_topic_selector(ByLetter())
    serializer.set_key_serialization_schema(SimpleStringSchema())
    serializer.set_value_serialization_schema(SimpleStringSchema())
    made = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    sink = made.set_record_serializer(serializer.build()).build()
    batch = sink.create_writer().write(["a", "x", "b"], [5_000, 6_000, -(2**63)])
    assert sink.create_committer().commit(iter([batch]), context(sink, 0)) == 3
    found = {record.key: record for record in kafka.consume(topic) + kafka.consume(other)}
    assert (found[b"a"].timestamp_ms, found[b"x"].timestamp_ms) == (5_000, 6_000)
    assert found[b"b"].timestamp_ms > 1_600_000_000_000
    assert [record.value for record in kafka.consume(other)] == [b"x"]


class Loading:
    """A consumer whose first question meets a coordinator that is still reading its groups."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.asked = 0

    def committed(self, partitions: Any, timeout: float) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
        return self.consumer.committed(partitions, timeout=timeout)

    def close(self) -> None:
        self.consumer.close()


def test_a_coordinator_that_is_still_reading_its_groups_is_asked_again(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Loading] = []
    new_consumer = client.new_consumer
    monkeypatch.setattr(client, "new_consumer", lambda *of: made.append(one := Loading(new_consumer(*of))) or one)
    with client.Cluster(kafka.bootstrap_servers, {}, f"group-{topic}", "a test") as cluster:
        assert cluster.committed([(topic, 0)]) == {}
    assert [loading.asked for loading in made] == [2]


def test_many_records_are_all_acknowledged(kafka: KafkaBroker, topic: str) -> None:
    sink = sink_to(kafka.bootstrap_servers, topic)
    values = [f"{number:06}" for number in range(150_000)]
    assert deliver(sink, values, 0) == len(values)
    assert values_in(kafka, topic) == values


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_servers_that_cannot_be_reached_are_named_at_once(guarantee: DeliveryGuarantee) -> None:
    with pytest.raises(ConnectionFailedError, match=r"127.0.0.1:1.*epoch 3, subtask 0"):
        deliver(sink_to("127.0.0.1:1", "nowhere", guarantee), ["a"], 3)


def test_a_topic_that_does_not_exist_is_the_operators_business(kafka: KafkaBroker) -> None:
    # a producer gives a topic that may be on its way half a minute by default
    sink = sink_to(kafka.bootstrap_servers, "none", AT_LEAST_ONCE, topic_metadata_propagation_max_ms="1000")
    with pytest.raises(OperationError, match="create the topic"):
        deliver(sink, ["a"], 0)


def test_what_the_builders_miss_is_said() -> None:
    with pytest.raises(ConfigurationError, match="no servers"):
        KafkaSink.builder().build()
    with pytest.raises(ConfigurationError, match="no serializer"):
        KafkaSink.builder().set_bootstrap_servers("x:1").build()
    with pytest.raises(ConfigurationError, match="exactly once"):
        serializer = KafkaRecordSerializationSchema.builder()
        serializer.set_value_serialization_schema(SimpleStringSchema()).build()
