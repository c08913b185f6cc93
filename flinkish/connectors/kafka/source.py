"""``KafkaSource`` and its builder: reads topics of Kafka with confluent-kafka in the workers; each partition is a
split. The offsets of finished epochs are committed to the consumer group."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Any

from flinkish.common.arguments import check_instance, refuse_own_methods
from flinkish.common.serialization import DeserializationSchema, SimpleStringSchema
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kafka.client import MOMENTARY, client_settings, driver, new_consumer
from flinkish.connectors.kafka.enumerator import KafkaSplitEnumerator, check_continued, check_named, next_offsets
from flinkish.connectors.kafka.properties import warn_of_java_only
from flinkish.connectors.kafka.reader import KafkaSplitReader
from flinkish.connectors.kafka.settings import (
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSourceSettings,
    KafkaTopicPartition,
    split_id,
)
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitReader, SplitSource
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError, ConnectionFailedError

TIMEOUT_S = 10.0

_lock = threading.Lock()
# Admin clients are kept for the next epoch, one per cluster and credentials: its settings as text -> client.
_clients: dict[str, Any] = {}


def commit_offsets(settings: KafkaSourceSettings, positions: Mapping[str, int]) -> None:
    """Commit the next offset of each split to the group of the source.

    Flink does the same when a checkpoint is complete. The job itself never reads these offsets: they serve monitoring,
    and jobs that start from ``committed_offsets()``. So whoever calls this only logs a failure.

    Raises:
        ConnectionFailedError: Kafka does not answer, or refuses.
    """
    kafka = driver("KafkaSource")
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return _commit(kafka, settings, positions)
        except (kafka.KafkaException, FutureTimeout) as error:
            # as of a group that nobody has committed anything to before
            momentary = isinstance(error, kafka.KafkaException) and error.args[0].name() in MOMENTARY
            if not momentary or time.monotonic() > deadline:
                raise ConnectionFailedError(
                    f"offsets could not be committed to the group '{settings.group_id}': {error}",
                    where=settings.label,
                    expected="a group without members, to which the credentials may commit",
                    hint="the job does not need these offsets; commit.offsets.on.checkpoint=false switches this off",
                ) from error
            time.sleep(0.1)


def _commit(kafka: Any, settings: KafkaSourceSettings, positions: Mapping[str, int]) -> None:
    access = client_settings(settings.bootstrap_servers, settings.properties)
    key = str(sorted(access.items()))
    with _lock:
        if key not in _clients:
            _clients[key] = kafka.admin.AdminClient({"log_level": 0, **access})
        client = _clients[key]
    offsets = [_next_offset(kafka, split, offset) for split, offset in positions.items()]
    wanted = kafka.ConsumerGroupTopicPartitions(settings.group_id, offsets)
    futures = client.alter_consumer_group_offsets([wanted], request_timeout=TIMEOUT_S)
    answer = futures[settings.group_id].result(TIMEOUT_S)
    refused = [entry for entry in answer.topic_partitions if entry.error is not None]
    if refused:
        raise kafka.KafkaException(refused[0].error)


def _next_offset(kafka: Any, split: str, offset: int) -> Any:
    topic, _, partition = split.rpartition("-")
    return kafka.TopicPartition(topic, int(partition), offset)


class KafkaPartitionsSource(SplitSource):
    """The common base of `KafkaSource` and `FlinkKafkaConsumer`: reads the partitions that the settings name."""

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings

    @property
    def bounded(self) -> bool:
        return self._settings.stopping is not None

    @property
    def produced_type(self) -> TypeInformation:
        return self._settings.deserializer.get_produced_type()

    @property
    def side_by_side(self) -> bool:
        return True

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Check that Kafka can be reached and still has the records at the position; returns topic -> its id.

        Raises:
            ConnectionFailedError: no server can be reached.
            OperationError: a topic does not exist.
            FinalOperationError: records that were not read are gone, or a topic was deleted and created again, or is
                not named any more.
            SavepointError: the position is none of a Kafka source.
        """
        settings = self._settings
        offsets = next_offsets(position) if position is not None else {}
        if settings.only_topics is not False:
            unnamed = {topic for topic, _ in offsets if not settings.names(topic)}
            check_named(unnamed, all(map(settings.leaves_out, unnamed)), settings.label)
            offsets = {partition: at for partition, at in offsets.items() if partition[0] not in unnamed}
        with settings.cluster("KafkaSource") as cluster:
            topics = {topic for topic, _ in settings.partitions_of(cluster)}
            if settings.only_topics is False:
                topics.update(topic for topic, _ in offsets)
            return check_continued(cluster, offsets, known, topics, settings.fail_on_data_loss, settings.label)

    def declared_splits(self) -> tuple[str, ...]:
        """The ids of all partitions that exist now."""
        with self._settings.cluster("KafkaSource") as cluster:
            return tuple(map(split_id, self._settings.partitions_of(cluster)))

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return KafkaSplitEnumerator(self._settings, restored)

    def create_reader(self) -> SplitReader:
        return KafkaSplitReader(self._settings)

    def subtask_of(self, split_id: str, parallelism: int) -> int:
        """The subtask of Flink's KafkaSourceEnumerator: round robin over the partitions of a topic, beginning with a
        subtask that follows from the hash of the topic's name.

        >>> from flinkish.connectors.kafka.settings import KafkaSourceSettings
        >>> from flinkish.common.serialization import SimpleStringSchema
        >>> source = KafkaSource(KafkaSourceSettings("localhost:9092", SimpleStringSchema()))
        >>> [source.subtask_of(f"clicks-{partition}", 3) for partition in range(4)]
        [0, 1, 2, 0]
        """
        topic, _, partition = split_id.rpartition("-")
        first = (_java_hash(topic) * 31 & 0x7FFFFFFF) % parallelism
        return (first + int(partition)) % parallelism

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        read = {split: at for split, at in positions.items() if not self._settings.leaves_out(split.rpartition("-")[0])}
        if self._settings.commits_offsets and read:
            commit_offsets(self._settings, read)


class KafkaSource(KafkaPartitionsSource):
    """Reads topics of Kafka. The timestamps of the records are Kafka's. Made by :meth:`builder`. Needs confluent-kafka
    (the extra ``kafka``) on the driver and the executors.

    >>> from flinkish.common.serialization import SimpleStringSchema
    >>> source = (KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("clicks")
    ...     .set_value_only_deserializer(SimpleStringSchema()).build())
    >>> source.bounded
    False

    With a value-only deserializer, a Kafka record with a null value (a tombstone) is no record of the stream. Offsets
    are kept in the job's checkpoint; those of finished epochs are also committed to the consumer group, if there is one
    (``commit.offsets.on.checkpoint``), for monitoring and for ``committed_offsets()`` of another job. If Kafka deleted
    records before they were read, the job fails, unless ``set_fail_on_data_loss(False)``.

    The source looks for new partitions every ``partition.discovery.interval.ms`` (five minutes; 0 or less: only at the
    start) and reads them from their beginning. With ``set_bounded`` the stopping offsets are looked up when the source
    starts for the first time and hold over all restarts: ``latest()`` is what was there then. Restore: exact, from the
    offsets of the savepoint.

    Raises (when the job starts, or goes on):
        FinalOperationError: records that were not read are gone, or a topic was deleted and created again.
        ConnectionFailedError: no server can be reached; checked before the query starts.
        OperationError: a topic does not exist.
    """

    @staticmethod
    def builder() -> KafkaSourceBuilder:

        return KafkaSourceBuilder()


def _java_hash(text: str) -> int:
    """Java's ``String.hashCode`` of the text.

    >>> _java_hash("hello"), _java_hash("polygenelubricants")
    (99162322, -2147483648)
    """
    found = 0
    for character in text:
        found = (found * 31 + ord(character)) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


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
