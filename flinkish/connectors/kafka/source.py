"""``KafkaSource``: topics read by Spark's Kafka connector, one split per partition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flinkish.common.serialization import DeserializationSchema
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kafka import continuation
from flinkish.connectors.kafka.client import Cluster, check_reachable, installed
from flinkish.connectors.kafka.decoder import KafkaDecoder
from flinkish.connectors.kafka.offsets import (
    EARLIEST,
    LATEST,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    offsets_json,
    parse_position,
    position_json,
)
from flinkish.core.source import SPLIT_COLUMN, DataFrameSource, RecordDecoder, SourceLimits
from flinkish.errors import ConfigurationError

if TYPE_CHECKING:
    from flinkish.connectors.kafka.source_builder import KafkaSourceBuilder

# Spark sets these itself, or they are Flink's own: they have no meaning for this reader
_NOT_FOR_SPARK = {
    "auto.offset.reset",
    "bootstrap.servers",
    "client.id.prefix",
    "commit.offsets.on.checkpoint",
    "enable.auto.commit",
    "group.id",
    "key.deserializer",
    "partition.discovery.interval.ms",
    "register.consumer.metrics",
    "value.deserializer",
}


@dataclass(frozen=True)
class KafkaSourceSettings:
    """What the builder collects."""

    bootstrap_servers: str
    deserializer: DeserializationSchema
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()
    group_id: str = ""
    starting: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stopping: KafkaOffsetsInitializer | None = None
    fail_on_data_loss: bool = True
    properties: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """For messages."""
        what = self.topic_pattern or ",".join(self.topics) or f"{len(self.partitions)} partitions"
        return f"KafkaSource {what} at {self.bootstrap_servers}"


class KafkaSource(DataFrameSource):
    """The values of Kafka's records, with Kafka's timestamps. Made by :meth:`builder`.

    >>> from flinkish.common.serialization import SimpleStringSchema
    >>> source = (KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("clicks")
    ...     .set_value_only_deserializer(SimpleStringSchema()).build())
    >>> source.bounded
    False

    A record with a null value (a tombstone) is no record of the stream. Offsets live in the job's checkpoint; nothing
    is committed to the consumer group. Records that Kafka deleted before they were read end the job, unless
    ``set_fail_on_data_loss(False)``.

    Bounded by ``set_bounded``: ``latest()`` is what is there when the job starts (after a restart of the driver: when
    it starts again); any other bound is exact. Restore: exact, from the offsets of the savepoint.

    Raises (when it is loaded, or goes on):
        FinalOperationError: records are gone that were not read, or a topic was made anew.
        ConnectionFailedError: no server can be reached, found out before the query starts.
        OperationError: a topic does not exist (if confluent-kafka is installed; else Spark says so).
    """

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings
        self._topic_ids: dict[str, str] = {}

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        from flinkish.connectors.kafka.source_builder import KafkaSourceBuilder

        return KafkaSourceBuilder()

    @property
    def bounded(self) -> bool:
        return self._settings.stopping is not None

    @property
    def produced_type(self) -> TypeInformation:
        return self._settings.deserializer.get_produced_type()

    def decoder(self) -> RecordDecoder:
        return KafkaDecoder(self._settings.deserializer)

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Topic -> its id. Needs confluent-kafka; without it Spark alone finds out, and only what it stumbles over."""
        settings = self._settings
        if not installed():
            return dict(known)
        offsets, ids = parse_position(position) if position is not None else ({}, {})
        check_reachable(settings.bootstrap_servers, settings.label)
        with self._cluster("a look at what is still there") as cluster:
            topics = {topic for topic, _ in self._partitions(cluster)}
            self._topic_ids = continuation.check(
                cluster, offsets, {**ids, **known}, topics, settings.fail_on_data_loss, settings.label
            )
        return self._topic_ids

    def position(self, spark: Any, end_offset: str, checkpoint: str, index: int) -> str:
        return position_json(end_offset, self._topic_ids)

    def declared_splits(self) -> tuple[str, ...]:
        """All partitions, if confluent-kafka is installed; else ()."""
        if not installed():
            return ()
        check_reachable(self._settings.bootstrap_servers, self._settings.label)
        with self._cluster("partitions that are known beforehand") as cluster:
            return tuple(f"{topic}-{partition}" for topic, partition in self._partitions(cluster))

    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        from pyspark.sql import functions as f

        settings = self._settings
        check_reachable(settings.bootstrap_servers, settings.label)
        options = {**self._subscription(), **self._start(start)}
        options["maxOffsetsPerTrigger"] = str(limits.max_records)
        options["failOnDataLoss"] = str(settings.fail_on_data_loss).lower()
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", settings.bootstrap_servers)
        for key, value in options.items():
            reader = reader.option(key, value)
        frame = _loaded(reader, settings.label)
        ends = self._ends()
        if ends is not None:
            for (topic, number), end in ends.items():
                if end != LATEST:
                    here = (f.col("topic") == topic) & (f.col("partition") == number)
                    frame = frame.filter(~(here & (f.col("offset") >= end)))
        return frame.select(
            f.col("value"),
            f.unix_millis(f.col("timestamp")).alias("timestamp"),
            f.col("offset"),
            f.concat_ws("-", f.col("topic"), f.col("partition").cast("string")).alias(SPLIT_COLUMN),
        )

    def _subscription(self) -> dict[str, str]:
        settings = self._settings
        options = {f"kafka.{key}": value for key, value in settings.properties.items() if key not in _NOT_FOR_SPARK}
        if settings.group_id:
            # not the group itself: Spark must not share its consumers' positions with anyone
            options["groupIdPrefix"] = settings.group_id
        if settings.topic_pattern is not None:
            return {**options, "subscribePattern": settings.topic_pattern}
        if settings.topics:
            return {**options, "subscribe": ",".join(settings.topics)}
        by_topic: dict[str, list[int]] = {}
        for entry in settings.partitions:
            by_topic.setdefault(entry.topic, []).append(entry.partition)
        return {**options, "assign": json.dumps(by_topic)}

    def _start(self, start: str | None) -> dict[str, str]:
        starting = self._settings.starting
        if start is not None:
            return {"startingOffsets": offsets_json(self._with_new_partitions(parse_position(start)[0]))}
        if starting.kind == "timestamp":
            self._check_topics()
            # Flink reads a partition without a record that late from its end
            return {
                "startingTimestamp": str(starting.timestamp_ms),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        if not starting.needs_cluster:
            self._check_topics()
            return {"startingOffsets": starting.kind}
        with self._cluster(f"starting from {starting.kind} offsets") as cluster:
            return {"startingOffsets": offsets_json(starting.resolve(cluster, self._partitions(cluster)))}

    def _with_new_partitions(self, offsets: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Spark wants an offset for each partition; one that came after the savepoint is read from its beginning."""
        if not installed():
            return offsets
        with self._cluster("a restore") as cluster:
            return {partition: offsets.get(partition, EARLIEST) for partition in self._partitions(cluster)}

    def _check_topics(self) -> None:
        if self._settings.topics and installed():
            with self._cluster("topics") as cluster:
                self._partitions(cluster)

    def _ends(self) -> dict[tuple[str, int], int] | None:
        """The first offset that is not read any more, per partition; None if the engine's bound (now) is the one."""
        stopping = self._settings.stopping
        if stopping is None or stopping.kind == "latest":
            return None
        with self._cluster(f"stopping at {stopping.kind} offsets") as cluster:
            return stopping.resolve(cluster, self._partitions(cluster))

    def _partitions(self, cluster: Cluster) -> list[tuple[str, int]]:
        settings = self._settings
        if settings.partitions:
            return [(entry.topic, entry.partition) for entry in settings.partitions]
        return cluster.partitions(settings.topics, settings.topic_pattern)

    def _cluster(self, purpose: str) -> Cluster:
        settings = self._settings
        return Cluster(settings.bootstrap_servers, settings.properties, settings.group_id, purpose)


def _loaded(reader: Any, where: str) -> Any:
    from pyspark.errors import AnalysisException

    try:
        return reader.load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower():
            raise
        raise ConfigurationError(
            f"Spark cannot read Kafka: {str(error).splitlines()[0]}",
            where=where,
            expected="Spark's Kafka connector among the session's packages",
            hint="--packages org.apache.spark:spark-sql-kafka-0-10_2.13:<Spark's version>",
        ) from error
