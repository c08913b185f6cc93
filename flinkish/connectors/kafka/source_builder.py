"""``KafkaSourceBuilder``: PyFlink's builder of a Kafka source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from flinkish.common.arguments import check_instance, refuse_own_methods
from flinkish.common.serialization import DeserializationSchema, SimpleStringSchema
from flinkish.connectors.kafka.client import new_consumer
from flinkish.connectors.kafka.decoding import KafkaRecordDeserializationSchema
from flinkish.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from flinkish.connectors.kafka.properties import warn_of_java_only
from flinkish.connectors.kafka.settings import KafkaSourceSettings
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError

#: The builder's name in error messages.
_WHERE = "KafkaSource.builder()"


class KafkaSourceBuilder:
    """Builder of :class:`KafkaSource`. By default the source starts from the earliest offsets and is unbounded."""

    def __init__(self) -> None:
        self._settings = KafkaSourceSettings("", SimpleStringSchema())
        self._has_deserializer = False

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the bootstrap servers: ``host:port``, several joined by commas."""
        return self._with(bootstrap_servers=bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the consumer group, to which the offsets of finished epochs are committed, and whose offsets
        ``KafkaOffsetsInitializer.committed_offsets()`` means."""
        return self._with(group_id=group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        if not topics:
            raise ArgumentValueError(
                "no topics", where=_WHERE, expected="one or more names", hint="set_topics('a', 'b')"
            )
        for topic in topics:
            check_instance(topic, str, "a topic is", _WHERE, "give each name as an argument: set_topics('a', 'b')")
        return self._reading(topics=tuple(topics))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read the topics whose whole names match a regular expression of Python. Flink's are Java's: an expression in
        the syntax that both have in common means the same."""
        check_instance(topic_pattern, str, "the topic pattern is", _WHERE, "give a regular expression as a text")
        try:
            re.compile(topic_pattern)
        except re.error as error:
            raise ArgumentValueError(
                f"the topic pattern {topic_pattern!r} is none: {error}",
                where=_WHERE,
                expected="a regular expression that Python knows",
                hint="what Java and Python share is safe",
            ) from error
        return self._reading(topic_pattern=topic_pattern)

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        for partition in partitions:
            check_instance(
                partition, KafkaTopicPartition, "a partition is", _WHERE, "KafkaTopicPartition(topic, number)"
            )
        ordered = sorted(partitions, key=lambda entry: (entry.topic, entry.partition))
        return self._reading(partitions=tuple(ordered))

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        return self._with(starting=_initializer(starting_offsets_initializer, "starting"))

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """The same as `set_bounded`: in flinkish a source that stops at some offsets is a bounded one."""
        return self._with(stopping=_initializer(stopping_offsets_initializer, "stopping"))

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Make the source bounded: it ends before these offsets, which are looked up once, when the source starts for
        the first time."""
        return self._with(stopping=_initializer(stopping_offsets_initializer, "stopping"))

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        check_instance(
            deserialization_schema, DeserializationSchema, "the deserializer is", _WHERE, "such as SimpleStringSchema()"
        )
        self._has_deserializer = True
        return self._with(deserializer=deserialization_schema)

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Set a deserializer of whole Kafka records, with their keys, headers and topics, as in Flink's Java API."""
        check_instance(
            record_deserializer,
            (KafkaRecordDeserializationSchema, DeserializationSchema),
            "the deserializer is",
            _WHERE,
            "derive it from KafkaRecordDeserializationSchema",
        )
        self._has_deserializer = True
        return self._with(deserializer=record_deserializer)

    def set_fail_on_data_loss(self, fail: bool) -> KafkaSourceBuilder:
        """Set whether records that Kafka deleted before they were read fail the job (default), or are skipped with a
        warning in the log. The same holds for topics that the job has read and the source does not name any more."""
        return self._with(fail_on_data_loss=fail)

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the prefix of the client ids of the source, by which the broker's log and quotas name its clients."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of Kafka's Java consumer, or of librdkafka's."""
        return self.set_properties({key: value})

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        check_instance(props, Mapping, "the properties are", _WHERE, "give a dict", expected="a dict")
        for key, value in props.items():
            if value is None:
                raise ArgumentTypeError(
                    f"the property {key} is None", where=_WHERE, expected="a text", hint="leave it out"
                )
        properties = {**self._settings.properties, **{key: str(value) for key, value in props.items()}}
        changes: dict[str, object] = {"properties": properties}
        if "bootstrap.servers" in props:
            changes["bootstrap_servers"] = props["bootstrap.servers"]
        if "group.id" in props:
            changes["group_id"] = props["group.id"]
        return self._with(**changes)

    def build(self) -> KafkaSource:
        """The source.

        Raises:
            ConfigurationError: no servers, no deserializer, not exactly one of topics, pattern and partitions,
                committed offsets without a group id, or a property that the client does not know.
            EnvironmentVersionError: confluent-kafka is missing.
        """
        settings = self._settings
        if not settings.bootstrap_servers:
            raise ConfigurationError(
                "no servers",
                where="KafkaSource",
                expected="host:port, or several with commas",
                hint="call set_bootstrap_servers('host:port')",
            )
        if not self._has_deserializer:
            raise ConfigurationError(
                "no deserializer",
                where=settings.label,
                expected="how bytes become a record",
                hint="call set_value_only_deserializer(SimpleStringSchema())",
            )
        if sum(map(bool, (settings.topics, settings.topic_pattern, settings.partitions))) != 1:
            raise ConfigurationError(
                "what to read is not said exactly once",
                where=settings.label,
                expected="one of set_topics, set_topic_pattern and set_partitions",
                hint="call exactly one of them",
            )
        for initializer in (settings.starting, settings.stopping):
            if initializer is not None and initializer.kind == "committed" and not settings.group_id:
                raise ConfigurationError(
                    "Property group.id is required when using committed offset for offsets initializer",
                    where=settings.label,
                    expected="the group whose offsets these are",
                    hint="call set_group_id(...)",
                )
        check_properties(settings)
        return KafkaSource(settings)

    def _reading(self, **what: object) -> KafkaSourceBuilder:
        """Set the topics, the pattern or the partitions to read, of which only one may be set, and only once."""
        settings = self._settings
        if settings.topics or settings.topic_pattern or settings.partitions:
            raise ConfigurationError(
                f"{next(iter(what))} cannot be set: what to read was said before",
                where=_WHERE,
                expected="one of set_topics, set_topic_pattern and set_partitions",
                hint="call exactly one of them, once",
            )
        return self._with(**what)

    def _with(self, **changes: object) -> KafkaSourceBuilder:
        self._settings = replace(self._settings, **changes)  # type: ignore[arg-type]
        return self


def _initializer(initializer: KafkaOffsetsInitializer, what: str) -> KafkaOffsetsInitializer:
    hint = "such as KafkaOffsetsInitializer.earliest()"
    check_instance(initializer, KafkaOffsetsInitializer, f"the {what} offsets are", _WHERE, hint)
    hint = "look the offsets up in the program and pass them: KafkaOffsetsInitializer.offsets({partition: offset})"
    refuse_own_methods(initializer, f"the initializer of the {what} offsets", _WHERE, hint)
    return initializer


def check_properties(settings: KafkaSourceSettings) -> None:
    """Check the properties of a source without a connection to a broker.

    Raises:
        ConfigurationError: a property that the client does not know, or whose value it refuses.
        EnvironmentVersionError: confluent-kafka is missing.
    """
    unconnected = {
        key: value for key, value in settings.consumer_settings("check").items() if key != "bootstrap.servers"
    }
    new_consumer(unconnected, settings.label).close()
    warn_of_java_only(settings.properties, "KafkaSource")
    # evaluated only for the errors that they raise
    _ = settings.discovery_interval_ms, settings.commits_offsets
