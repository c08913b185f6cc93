"""Records that Kafka deleted before the job has read them, and topics that were made anew: told, never passed over."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import FinalOperationError, UserCodeError
from tests.integration.bad_input.job import COUNT, PER_EPOCH, Job, event, pair
from tests.support.kafka_broker import KafkaBroker
from tests.support.processes import wait_until

#: the job has read so many records when it stops
READ = 2 * PER_EPOCH
_numbers = itertools.count()


def fails_half_way(text: str) -> Any:
    record = json.loads(text)
    if record["index"] == READ:
        raise RuntimeError("half way")
    return pair(record)


class Reader:
    """A job that reads a topic to what is its end when the job starts."""

    def __init__(self, job: Job, kafka: KafkaBroker, topic: str) -> None:
        self.job, self.kafka, self.topic = job, kafka, topic

    def fill(self, count: int = COUNT) -> None:
        self.kafka.create_topic(self.topic)
        self.kafka.produce(self.topic, [json.dumps(event(index)) for index in range(count)])

    def make_anew(self, count: int) -> None:
        self.kafka.delete_topic(self.topic)
        client = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        wait_until(lambda: self.topic not in client.list_topics(timeout=10).topics, 30, "the end of the topic")
        self.fill(count)

    def delete_before(self, offset: int) -> None:
        client = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        for future in client.delete_records([confluent_kafka.TopicPartition(self.topic, 0, offset)]).values():
            future.result(10)

    def run(self, **parts: Any) -> None:
        self.build(**parts).execute("shop")

    def build(
        self,
        strict: bool = True,
        bounded: bool = True,
        to_pair: Any = lambda text: pair(json.loads(text)),
        settings: dict[str, str] | None = None,
    ) -> StreamExecutionEnvironment:
        builder = KafkaSource.builder().set_bootstrap_servers(self.kafka.bootstrap_servers).set_topics(self.topic)
        builder = builder.set_value_only_deserializer(SimpleStringSchema()).set_fail_on_data_loss(strict)
        builder = builder.set_starting_offsets(KafkaOffsetsInitializer.earliest())
        if bounded:
            builder = builder.set_bounded(KafkaOffsetsInitializer.latest())
        limit = {"flinkish.epoch.max-records-per-source": str(PER_EPOCH)}
        return self.job.build(source=builder.build(), to_pair=to_pair, settings={**limit, **(settings or {})})

    def stopped_with_savepoint(self, folder: Path) -> str:
        """Where the savepoint is, of a job that has read all."""
        client = self.build(bounded=False).execute_async("shop")
        wait_until(lambda: len(self.job.rows) == COUNT, 120, "all records")
        return str(client.stop_with_savepoint(False, str(folder)).result(120))

    def refused(self, **parts: Any) -> str:
        before = len(self.job.rows)
        with pytest.raises(FinalOperationError) as caught:
            self.run(**parts)
        assert not caught.value.retryable
        assert len(self.job.rows) == before, "nothing was read"
        message = str(caught.value)
        assert "source uid events" in message and f"KafkaSource {self.topic} at" in message
        assert "set_fail_on_data_loss(False) to go on here without those records" in message
        return message


@pytest.fixture
def reader(job: Job, kafka: KafkaBroker) -> Reader:
    """Has read half of its topic."""
    made = Reader(job, kafka, f"trouble-{next(_numbers)}")
    made.fill()
    with pytest.raises(UserCodeError, match="half way"):
        made.run(to_pair=fails_half_way)
    assert len(job.rows) == READ
    return made


def test_records_that_were_deleted_unread_are_told_by_offset_or_passed_over_on_request(
    spark: SparkSession, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    reader.delete_before(READ + 7)
    said = f"topic '{reader.topic}', partition 0 were deleted before they were read: offsets 20 to 26"
    assert said in reader.refused()
    with caplog.at_level(logging.WARNING, "flinkish"):
        reader.run(strict=False)
    assert said in caplog.text and "the job goes on without these records" in caplog.text
    assert len(reader.job.rows) == COUNT - 7


@pytest.mark.nightly
def test_deletion_of_what_was_read_is_no_trouble(spark: SparkSession, reader: Reader) -> None:
    reader.delete_before(READ)
    reader.run()
    reader.job.check_complete()


@pytest.mark.parametrize("count", [5, pytest.param(COUNT + PER_EPOCH, marks=pytest.mark.slow)])
def test_a_topic_that_was_made_anew_is_never_taken_for_the_old_one(
    spark: SparkSession, reader: Reader, count: int
) -> None:
    reader.make_anew(count)
    message = reader.refused()
    assert f"the topic '{reader.topic}' is not the one that the job has read: it was deleted and made anew" in message
    assert ("partition 0 ends before offset 5, but the job has read up to offset 20" in message) == (count == 5)


@pytest.mark.slow
def test_a_topic_that_was_made_anew_and_is_shorter_than_an_epoch_that_has_begun_is_read_on_request(
    spark: SparkSession, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """The epoch that has failed was planned over offsets that the topic does not have now: it is planned anew."""
    reader.make_anew(5)
    with caplog.at_level(logging.WARNING, "flinkish"):
        reader.run(strict=False)
    assert "it was deleted and made anew" in caplog.text
    assert len(reader.job.rows) == READ


@pytest.mark.nightly
def test_a_savepoint_knows_the_topic_that_was_read(
    spark: SparkSession, job: Job, kafka: KafkaBroker, tmp_path: Path
) -> None:
    reader = Reader(job, kafka, f"trouble-{next(_numbers)}")
    reader.fill()
    savepoint = reader.stopped_with_savepoint(tmp_path)
    reader.make_anew(COUNT + PER_EPOCH)
    job.directory = tmp_path / "another-job"
    assert "it was deleted and made anew" in reader.refused(settings={"execution.state-recovery.path": savepoint})


@pytest.mark.slow
def test_a_source_without_bounds_that_gets_them_later_goes_on_from_its_savepoint_and_reads_to_them(
    spark: SparkSession, job: Job, kafka: KafkaBroker, tmp_path: Path
) -> None:
    reader = Reader(job, kafka, f"trouble-{next(_numbers)}")
    reader.fill()
    savepoint = reader.stopped_with_savepoint(tmp_path)
    kafka.produce(reader.topic, [json.dumps(event(index)) for index in range(COUNT, COUNT + PER_EPOCH + 3)])
    # another directory counts its epochs anew, which the collector would take for those that it has got
    job.directory = tmp_path / "another-job"
    job.collect(job.rows.extend)
    reader.run(settings={"execution.state-recovery.path": savepoint})
    assert len(job.rows) == COUNT + PER_EPOCH + 3
