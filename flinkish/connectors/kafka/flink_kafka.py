"""PyFlink's former Kafka source and sink: ``FlinkKafkaConsumer`` and ``FlinkKafkaProducer``.

They are implemented by the Kafka source and sink, with the defaults that these classes have in Flink: reading begins at
the committed offsets of the consumer group, new partitions are not discovered, and records are written without their
timestamps.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum

from flinkish.common.no_effect import warn_without_effect
from flinkish.common.serialization import DeserializationSchema, SerializationSchema
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kafka.client import new_producer
from flinkish.connectors.kafka.committer import KafkaCommitter, KafkaTransactionCommitter
from flinkish.connectors.kafka.properties import (
    COMMIT_OFFSETS,
    DISCOVERY_INTERVAL_MS,
    warn_of_java_only,
    writing_settings,
)
from flinkish.connectors.kafka.settings import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaSourceSettings
from flinkish.connectors.kafka.sink import KafkaRecordSerializationSchema, KafkaWriter, message_bytes_max
from flinkish.connectors.kafka.source import KafkaPartitionsSource, check_properties
from flinkish.core.sink import Committer, Guarantee, SinkWriter, WriterSink
from flinkish.errors import ConfigurationError

#: The former consumer's own property for the discovery of partitions, in ms.
_DISCOVERY_INTERVAL = "flink.partition-discovery.interval-millis"
_DEFAULT_POOL_SIZE = 5


class FlinkKafkaConsumerBase(KafkaPartitionsSource):
    """The setters of `FlinkKafkaConsumer`; each returns the consumer itself."""

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumerBase:
        """Set whether the offsets of finished epochs are committed to the consumer group (default: they are)."""
        properties = {**self._settings.properties, COMMIT_OFFSETS: "true" if commit_on_checkpoints else "false"}
        return self._with(properties=properties)

    def set_start_from_earliest(self) -> FlinkKafkaConsumerBase:
        return self._with(starting=KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> FlinkKafkaConsumerBase:
        return self._with(starting=KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumerBase:
        """Start from the first record at or after the time (ms since the Unix epoch), or from the end of a partition
        without such a record."""
        if startup_offsets_timestamp < 0:
            raise ConfigurationError(
                f"the timestamp is {startup_offsets_timestamp}", where=self._settings.label, expected="0 or more, in ms"
            )
        return self._with(starting=KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumerBase:
        """Start from the offsets that the consumer group has committed (default). For a partition without one, the
        property ``auto.offset.reset`` decides."""
        return self._with(starting=_group_offsets(self._settings.properties, self._settings.label))

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> FlinkKafkaConsumerBase:
        """Go on reading all partitions of a savepoint, also those of topics that the consumer no longer names."""
        return self._with(only_topics=False)

    def get_produced_type(self) -> TypeInformation:
        return self.produced_type

    def _with(self, **changes: object) -> FlinkKafkaConsumerBase:
        self._settings = replace(self._settings, **changes)  # type: ignore[arg-type]
        return self


class FlinkKafkaConsumer(FlinkKafkaConsumerBase):
    """An unbounded source of Kafka topics (Flink's former source, for ``env.add_source``). New programs use
    `KafkaSource`.

    Args:
        topics: the name of a topic, or several names.
        deserialization_schema: deserializes the values of the Kafka records.
        properties: properties of Java's consumer, among them ``bootstrap.servers``. Without a ``group.id`` no offsets
            are committed, and reading begins as ``auto.offset.reset`` says. New partitions are discovered only with
            ``flink.partition-discovery.interval-millis``.

    Raises:
        ConfigurationError: no servers, no topics, or a property that the client does not know.
    """

    def __init__(
        self, topics: str | Sequence[str], deserialization_schema: DeserializationSchema, properties: Mapping[str, str]
    ) -> None:
        plain = {key: str(value) for key, value in properties.items()}
        interval = plain.pop(_DISCOVERY_INTERVAL, "-1")
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        settings = KafkaSourceSettings(
            plain.get("bootstrap.servers", ""),
            deserialization_schema,
            names,
            group_id=plain.get("group.id", ""),
            properties={DISCOVERY_INTERVAL_MS: interval, **plain},
            only_topics=True,
        )
        if not settings.bootstrap_servers:
            raise ConfigurationError("the properties have no bootstrap.servers", where="FlinkKafkaConsumer")
        if not names:
            raise ConfigurationError("no topics", where="FlinkKafkaConsumer", expected="at least one")
        check_properties(settings)
        super().__init__(replace(settings, starting=_group_offsets(plain, settings.label)))


def _group_offsets(properties: Mapping[str, str], where: str) -> KafkaOffsetsInitializer:
    said = properties.get("auto.offset.reset", "latest")
    try:
        reset = KafkaOffsetResetStrategy[said.strip().upper()]
    except KeyError:
        raise ConfigurationError(
            "the value of auto.offset.reset is unknown", where=where, expected="latest, earliest or none"
        ) from None
    if properties.get("group.id"):
        return KafkaOffsetsInitializer.committed_offsets(reset)
    if reset is KafkaOffsetResetStrategy.NONE:
        raise ConfigurationError(
            "auto.offset.reset is none, and there is no group.id whose offsets could be read",
            where=where,
            expected="a group.id, or where to begin",
            hint="set auto.offset.reset to earliest or latest",
        )
    is_latest = reset is KafkaOffsetResetStrategy.LATEST
    return KafkaOffsetsInitializer.latest() if is_latest else KafkaOffsetsInitializer.earliest()


class Semantic(Enum):
    """The delivery guarantee that a program asks of `FlinkKafkaProducer`."""

    # PyFlink's values, including the tuples
    EXACTLY_ONCE = (0,)
    AT_LEAST_ONCE = (1,)
    NONE = 2


class FlinkKafkaProducerBase(WriterSink):
    """The setters of `FlinkKafkaProducer`; each returns the producer itself."""

    _semantic = Semantic.AT_LEAST_ONCE
    _log_failures_only = False

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducerBase:
        """Set whether records that Kafka refuses are only logged, and so lost, instead of failing the job (default).
        Has no effect for ``EXACTLY_ONCE``: a transaction is committed as a whole or not at all."""
        if log_failures_only and self._semantic is Semantic.EXACTLY_ONCE:
            warn_without_effect("set_log_failures_only", "a transaction is committed as a whole or not at all")
        self._log_failures_only = log_failures_only
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducerBase:
        """Has no effect: an epoch always waits for Kafka's acknowledgements. False warns of that."""
        if not flush_on_checkpoint:
            warn_without_effect("set_flush_on_checkpoint(False)", "an epoch counts when Kafka has acknowledged it")
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducerBase:
        """Set whether records are written with their own timestamps, instead of the time of writing (default)."""
        self.reads_timestamps = write_timestamp_to_kafka
        return self


class FlinkKafkaProducer(FlinkKafkaProducerBase):
    """A sink that writes values to a topic (Flink's former sink, for ``ds.add_sink``). New programs use `KafkaSink`.

    Guarantee: that of `KafkaSink`: ``EXACTLY_ONCE`` for consumers with ``isolation.level=read_committed``;
    ``AT_LEAST_ONCE``; and ``NONE``, which does the same as ``AT_LEAST_ONCE`` here.

    Args:
        topic: the topic to write to.
        serialization_schema: serializes the values; the Kafka records have no keys.
        producer_config: properties of Java's producer, among them ``bootstrap.servers``. For ``EXACTLY_ONCE``,
            ``transactional.id`` is the prefix of the transactional ids (default: ``flinkish``).
        kafka_producer_pool_size: has no effect: a worker process keeps one producer per subtask.
        semantic: the delivery guarantee.

    Raises:
        ConfigurationError: no servers, or a property that the client does not know.
    """

    reads_timestamps = False

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, str],
        kafka_producer_pool_size: int = _DEFAULT_POOL_SIZE,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        if kafka_producer_pool_size != _DEFAULT_POOL_SIZE:
            warn_without_effect("kafka_producer_pool_size", "a worker keeps one producer per subtask")
        self._properties = {key: str(value) for key, value in producer_config.items()}
        self._servers = self._properties.get("bootstrap.servers", "")
        if not self._servers:
            raise ConfigurationError("the properties have no bootstrap.servers", where="FlinkKafkaProducer")
        builder = KafkaRecordSerializationSchema.builder().set_topic(topic)
        self._serializer = builder.set_value_serialization_schema(serialization_schema).build()
        self._semantic = semantic
        exact = semantic is Semantic.EXACTLY_ONCE
        self.guarantee = Guarantee.EXACTLY_ONCE if exact else Guarantee.AT_LEAST_ONCE
        # made only to validate the properties; without servers it connects to no broker
        new_producer(writing_settings(self._properties), "FlinkKafkaProducer").close()
        warn_of_java_only(self._properties, "KafkaSink")

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Has no effect: the records of an epoch whose transaction has timed out are still in the job directory, and
        are written again."""
        warn_without_effect(
            "ignore_failures_after_transaction_timeout", "an epoch whose transaction timed out is written again"
        )
        return self

    def with_input_type(self, input_type: TypeInformation) -> FlinkKafkaProducer:
        """The same sink for a stream of this type, which decides the text that ``SimpleStringSchema`` writes."""
        bound = copy.copy(self)
        bound._serializer = self._serializer.bind(input_type)
        return bound

    @property
    def _destination(self) -> str:
        return f"Kafka {self._servers}, topic {self._serializer.topic}"

    def create_writer(self) -> SinkWriter:
        limit = None if self._log_failures_only else message_bytes_max(self._properties)
        return KafkaWriter(self._serializer, self.reads_timestamps, limit)

    def create_committer(self) -> Committer:
        if self._semantic is Semantic.EXACTLY_ONCE:
            prefix = self._properties.get("transactional.id", "flinkish")
            return KafkaTransactionCommitter(self._servers, self._properties, prefix)
        return KafkaCommitter(self._servers, self._properties, self._log_failures_only)
