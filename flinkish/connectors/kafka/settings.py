"""The settings of a Kafka source: set by its builder, used by its enumerator and its readers; among them the offsets at
which it begins and ends (``KafkaOffsetsInitializer``), and the deserialization of messages to records with Kafka's
timestamps in ms.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import compress
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple, TypeAlias

from flinkish.common.arguments import check_at_least, check_instance, form_for_lists, result_of_each
from flinkish.common.detach import handing_over
from flinkish.common.serialization import DeserializationSchema, batch_deserializer
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kafka.client import Cluster, check_reachable
from flinkish.connectors.kafka.properties import (
    CLIENT_ID_PREFIX,
    COMMIT_OFFSETS,
    DEFAULT_ISOLATION,
    DISCOVERY_INTERVAL_MS,
    is_read_committed,
    reading_settings,
    whole_number,
)
from flinkish.core.source import SplitRecords
from flinkish.errors import MalformedRecordError, OperationError, ProgramError

#: The deserializer of a Kafka source: of values only, or of whole Kafka records.
Schema: TypeAlias = "DeserializationSchema | KafkaRecordDeserializationSchema"

_value, _timestamp = methodcaller("value"), methodcaller("timestamp")
_milliseconds = itemgetter(1)


class ConsumerRecord(NamedTuple):
    """A record of a topic, with all that Kafka keeps of it. The timestamp is in ms since the Unix epoch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class KafkaRecordDeserializationSchema(ABC):
    """Deserializes whole Kafka records, with their keys, headers and topics, to records of the stream."""

    #: whether `deserialize_batch` gives a batch of columns, for tables
    gives_columns = False

    @abstractmethod
    def deserialize(self, record: ConsumerRecord) -> Any:
        """The record of the stream, made of plain data (a tuple or Row, not the ConsumerRecord itself); None: the Kafka
        record is left out."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """The type of the records that `deserialize` returns."""

    def deserialize_batch(self, messages: Sequence[Any]) -> list[Any]:
        """The result of `deserialize` for each message (confluent-kafka's ``Message``), in order."""
        return result_of_each(
            handing_over(self.deserialize),
            [_record_of(message) for message in messages],
            f"{type(self).__name__}.deserialize()",
        )


def _record_of(message: Any) -> ConsumerRecord:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return ConsumerRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )


def decoded(schema: Schema, messages: Sequence[Any], split: str, with_timestamps: bool) -> SplitRecords:
    """Deserialize messages of one partition. Messages without a record (tombstones, and those that the schema passes
    over) are left out.

    Raises:
        MalformedRecordError: the schema refuses a message; the error names partition and offset.
    """
    try:
        records = deserializer_of(schema)(_input(schema, messages))
    except MalformedRecordError:
        raise _located(schema, messages, split) from None
    # of the last message, which costs less than the greatest of all, and is the same whether anything reads timestamps
    newest_ms = _milliseconds(_timestamp(messages[-1]))
    if isinstance(schema, KafkaRecordDeserializationSchema) and schema.gives_columns:
        return SplitRecords(records, None, newest_ms=newest_ms)
    timestamps = list(map(_milliseconds, map(_timestamp, messages))) if with_timestamps else None
    if type(None) in set(map(type, records)):
        # messages without a value (tombstones), and those that the schema was told to pass over
        kept = [record is not None for record in records]
        records = list(compress(records, kept))
        timestamps = None if timestamps is None else list(compress(timestamps, kept))
    return SplitRecords(records, timestamps, newest_ms=newest_ms)


def deserializer_of(schema: Schema) -> Callable[[list[Any]], list[Any]]:
    """The function that deserializes many messages as ``schema.deserialize`` does one by one."""
    if isinstance(schema, KafkaRecordDeserializationSchema):
        return form_for_lists(schema, "deserialize", KafkaRecordDeserializationSchema.deserialize_batch)
    return batch_deserializer(schema)


def _input(schema: Schema, messages: Sequence[Any]) -> list[Any]:
    return list(messages if isinstance(schema, KafkaRecordDeserializationSchema) else map(_value, messages))


def _located(schema: Schema, messages: Sequence[Any], split: str) -> Exception:
    """The schema's error with partition and offset, found by deserializing the messages one by one."""
    for message in messages:
        try:
            deserializer_of(schema)(_input(schema, [message]))
        except MalformedRecordError as error:
            return MalformedRecordError(
                error.what,
                where=", ".join(
                    part for part in (f"partition {split}, offset {message.offset()}", error.where) if part
                ),
                expected=error.expected,
                hint=error.hint,
            )
    return ProgramError("the schema refuses a batch of messages and none of them alone", where=type(schema).__name__)


_WHERE = "KafkaOffsetsInitializer"

_log = logging.getLogger("flinkish.KafkaSourceEnumerator")

#: A partition as (topic, number).
Partition = tuple[str, int]


class KafkaOffsetResetStrategy(Enum):
    """Which offset a partition without a committed or given offset gets: its end (LATEST), its first one (EARLIEST), or
    an error (NONE)."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


@dataclass(frozen=True)
class KafkaTopicPartition:
    """A partition of a topic: its topic and its number."""

    topic: str
    partition: int


def _check_strategy(strategy: KafkaOffsetResetStrategy) -> None:
    hint = "such as KafkaOffsetResetStrategy.EARLIEST"
    check_instance(strategy, KafkaOffsetResetStrategy, "the offset reset strategy is", _WHERE, hint)


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Decides at which offset the source begins, or ends, in each partition. Made by its static methods."""

    kind: str
    timestamp_ms: int = 0
    given: tuple[tuple[KafkaTopicPartition, int], ...] = ()
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """The offsets that the consumer group has committed; a partition without one by the strategy. Needs a group
        id."""
        _check_strategy(offset_reset_strategy)
        return KafkaOffsetsInitializer("committed", reset=offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record at or after the time (ms since the Unix epoch); the end of a partition without such a
        record."""
        check_at_least(timestamp, 0, "the timestamp", _WHERE, "milliseconds since 1970", "ms")
        return KafkaOffsetsInitializer("timestamp", timestamp)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        return KafkaOffsetsInitializer("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        return KafkaOffsetsInitializer("latest")

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """The given offsets; a partition without one by the strategy."""
        for partition, offset in offsets.items():
            check_instance(
                partition, KafkaTopicPartition, "a partition is", _WHERE, "KafkaTopicPartition(topic, number)"
            )
            check_at_least(
                offset,
                0,
                f"the offset of {_name((partition.topic, partition.partition))}",
                _WHERE,
                "the first record has 0",
            )
        _check_strategy(offset_reset_strategy)
        return KafkaOffsetsInitializer("offsets", given=tuple(offsets.items()), reset=offset_reset_strategy)

    def starts(self, cluster: Cluster, partitions: Sequence[Partition], read_committed: bool) -> dict[Partition, int]:
        """The offset to begin at, for each partition. A committed or given offset that the partition does not have, or
        no longer has, counts as missing, as for Kafka's own consumers: the reset strategy decides.

        Raises:
            OperationError: a partition has no offset and the strategy is NONE.
        """
        offsets = self.resolve(cluster, partitions, read_committed)
        if self.kind not in ("committed", "offsets"):
            return offsets
        kept = cluster.kept(partitions)
        outside = [entry for entry in partitions if not kept[entry][0] <= offsets[entry] <= kept[entry][1]]
        for entry in outside:
            first, end = kept[entry]
            said = f"the {self.kind} offset {offsets[entry]} of {_name(entry)} is not there (offsets {first} to {end})"
            if self.reset is KafkaOffsetResetStrategy.NONE:
                raise OperationError(
                    said,
                    where="KafkaSource",
                    expected="an offset that is there, since the reset strategy is NONE",
                    hint="correct the offset, or choose another KafkaOffsetResetStrategy",
                )
            _log.warning("%s; it is read from the %s offset", said, self.reset.name.lower())
        return {**offsets, **self._reset_offsets(cluster, outside, read_committed)}

    def resolve(self, cluster: Cluster, partitions: Sequence[Partition], read_committed: bool) -> dict[Partition, int]:
        """An offset for each partition. With ``read_committed`` the end of a partition is where its first open
        transaction begins, if there is one.

        Raises:
            OperationError: a partition has no offset and the strategy is NONE.
        """
        if self.kind == "earliest":
            return cluster.first_offsets(partitions)
        if self.kind == "latest":
            return cluster.next_offsets(partitions, read_committed)
        if self.kind == "timestamp":
            ends = cluster.next_offsets(partitions, read_committed)
            return {**ends, **cluster.at_time(partitions, self.timestamp_ms, read_committed)}
        known = cluster.committed(partitions) if self.kind == "committed" else _plain(self.given)
        missing = [partition for partition in partitions if partition not in known]
        if missing and self.reset is KafkaOffsetResetStrategy.NONE:
            raise OperationError(
                f"no {self.kind} offset for {', '.join(map(_name, missing))}",
                where="KafkaSource",
                expected="an offset for each partition, since the reset strategy is NONE",
                hint="set the group id whose offsets are meant, or another KafkaOffsetResetStrategy",
            )
        found = {partition: known[partition] for partition in partitions if partition in known}
        return {**found, **self._reset_offsets(cluster, missing, read_committed)}

    def _reset_offsets(
        self, cluster: Cluster, partitions: Sequence[Partition], read_committed: bool
    ) -> dict[Partition, int]:
        if self.reset is KafkaOffsetResetStrategy.LATEST:
            return cluster.next_offsets(partitions, read_committed)
        return cluster.first_offsets(partitions)


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _plain(given: Sequence[tuple[KafkaTopicPartition, int]]) -> dict[Partition, int]:
    return {(entry.topic, entry.partition): offset for entry, offset in given}


#: Flink's default
DEFAULT_DISCOVERY_INTERVAL_MS = 300_000


@dataclass(frozen=True)
class KafkaSourceSettings:
    """The settings of a Kafka source, as its builder collects them, and what follows from them."""

    bootstrap_servers: str
    deserializer: Schema
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()
    group_id: str = ""
    starting: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stopping: KafkaOffsetsInitializer | None = None
    fail_on_data_loss: bool = True
    #: what happens to partitions of a savepoint whose topics are not named any more: they are left out (True), reading
    #: them goes on (False), or (None) the job is refused if the source fails on data loss; otherwise they are left out
    only_topics: bool | None = None
    properties: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """The source as messages name it."""
        what = self.topic_pattern or ",".join(self.topics) or f"{len(self.partitions)} partitions"
        return f"KafkaSource {what} at {self.bootstrap_servers}"

    @property
    def read_committed(self) -> bool:
        """Whether the records of open and aborted transactions are left out."""
        return is_read_committed(self.properties)

    @property
    def discovery_interval_ms(self) -> int:
        """How often new partitions are looked for; 0 or less: only once."""
        return whole_number(self.properties, DISCOVERY_INTERVAL_MS, DEFAULT_DISCOVERY_INTERVAL_MS)

    @property
    def commits_offsets(self) -> bool:
        """Whether the offsets of finished epochs are committed to the consumer group."""
        return bool(self.group_id) and self.properties.get(COMMIT_OFFSETS, "true").strip().lower() != "false"

    def leaves_out(self, topic: str) -> bool:
        """Whether the partitions of this topic are not read although a savepoint has them."""
        left_out = not self.fail_on_data_loss if self.only_topics is None else self.only_topics
        return left_out and not self.names(topic)

    def names(self, topic: str) -> bool:
        """Whether the source is told to read this topic, whether or not it exists."""
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, topic) is not None
        return topic in self.topics or any(entry.topic == topic for entry in self.partitions)

    def consumer_settings(self, role: str) -> dict[str, Any]:
        """The settings of librdkafka for a consumer of this source: servers, group and all properties. The consumer is
        assigned its partitions and never joins the group. ``role`` distinguishes the source's clients in the broker's
        log, if the source has a client id prefix."""
        prefix = self.properties.get(CLIENT_ID_PREFIX)
        named = {"client.id": f"{prefix}-{role}-{socket.gethostname()}-{os.getpid()}"} if prefix else {}
        return {
            **DEFAULT_ISOLATION,
            **reading_settings(self.properties),
            **named,
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": self.group_id or "flinkish",
        }

    def cluster(self, purpose: str) -> Cluster:
        """A connection for queries to the cluster; ``purpose`` is named if confluent-kafka is missing.

        Raises:
            ConfigurationError, ConnectionFailedError: `check_reachable` says at once, and in more words, what the
                client says after its timeout.
        """
        check_reachable(self.bootstrap_servers, self.label)
        return Cluster(self.bootstrap_servers, self.properties, self.group_id, purpose)

    def partitions_of(self, cluster: Cluster) -> list[Partition]:
        """All partitions that the source reads: sorted, or as ``partitions`` lists them.

        Raises:
            FinalOperationError: a topic does not exist.
        """
        if self.partitions:
            return [(entry.topic, entry.partition) for entry in self.partitions]
        return sorted(cluster.partitions(self.topics, self.topic_pattern))


def split_id(partition: Partition) -> str:
    """The id of the split of a partition.

    >>> split_id(("clicks", 3))
    'clicks-3'
    """
    return f"{partition[0]}-{partition[1]}"
