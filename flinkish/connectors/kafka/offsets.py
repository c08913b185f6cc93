"""Where to begin and where to end: PyFlink's names, and their meaning for each partition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from flinkish.connectors.kafka.client import Cluster
from flinkish.errors import OperationError, SavepointError

# Spark's (and Kafka's) numbers for "the end" and "the beginning"
LATEST, EARLIEST = -1, -2


class KafkaOffsetResetStrategy(Enum):
    """What to do for a partition without a committed or given offset."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


@dataclass(frozen=True)
class KafkaTopicPartition:
    """One partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Made by its static methods."""

    kind: str
    timestamp_ms: int = 0
    given: tuple[tuple[KafkaTopicPartition, int], ...] = ()
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """What the consumer group has committed. Needs confluent-kafka."""
        return KafkaOffsetsInitializer("committed", reset=offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record at or after the time (ms since the epoch); the end of the partition if there is none."""
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
        """These offsets; other partitions by the strategy. Needs confluent-kafka."""
        return KafkaOffsetsInitializer("offsets", given=tuple(offsets.items()), reset=offset_reset_strategy)

    @property
    def needs_cluster(self) -> bool:
        """Whether the offsets can only be told by asking the cluster."""
        return self.kind not in ("earliest", "latest")

    def resolve(self, cluster: Cluster, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """An offset, LATEST or EARLIEST for each partition.

        Raises:
            OperationError: a partition has no offset and the strategy is NONE.
        """
        if self.kind in ("earliest", "latest"):
            return dict.fromkeys(partitions, LATEST if self.kind == "latest" else EARLIEST)
        if self.kind == "timestamp":
            return {**dict.fromkeys(partitions, LATEST), **cluster.at_time(partitions, self.timestamp_ms)}
        known = cluster.committed(partitions) if self.kind == "committed" else _plain(self.given)
        missing = [partition for partition in partitions if partition not in known]
        if missing and self.reset is KafkaOffsetResetStrategy.NONE:
            raise OperationError(
                f"no {self.kind} offset for {', '.join(f'{topic}-{number}' for topic, number in missing)}",
                where="KafkaSource",
                expected="an offset for each partition, since the reset strategy is NONE",
                hint="set the group id whose offsets are meant, or another KafkaOffsetResetStrategy",
            )
        fallback = LATEST if self.reset is KafkaOffsetResetStrategy.LATEST else EARLIEST
        return {partition: known.get(partition, fallback) for partition in partitions}


def offsets_json(offsets: Mapping[tuple[str, int], int]) -> str:
    """Offsets as Spark writes them.

    >>> offsets_json({("a", 1): 5, ("a", 0): -2})
    '{"a": {"0": -2, "1": 5}}'
    """
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)


def position_json(end_offset: str, topic_ids: Mapping[str, str]) -> str:
    """The position of a source in a savepoint: Spark's offsets, with the ids of their topics if they are known.

    >>> position_json('{"a": {"0": 5}}', {"a": "x1"})
    '{"offsets": {"a": {"0": 5}}, "topic_ids": {"a": "x1"}}'
    """
    parse_offsets(end_offset)
    return json.dumps({"offsets": json.loads(end_offset), "topic_ids": dict(topic_ids)}) if topic_ids else end_offset


def parse_position(text: str) -> tuple[dict[tuple[str, int], int], dict[str, str]]:
    """The inverse: offsets and topic ids. Offsets alone will do.

    Raises:
        SavepointError: it is something else.
    """
    try:
        found = json.loads(text)
        ids = found.get("topic_ids", {})
        if set(found) == {"offsets", "topic_ids"} and all(isinstance(name, str) for name in ids.values()):
            return parse_offsets(json.dumps(found["offsets"])), ids
    except (ValueError, AttributeError) as error:
        raise _unreadable(text, error) from error
    return parse_offsets(text), {}


def parse_offsets(text: str) -> dict[tuple[str, int], int]:
    """The end offset of Spark's progress.

    Raises:
        SavepointError: it is something else.
    """
    try:
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in json.loads(text).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise _unreadable(text, error) from error


def _unreadable(text: str, error: Exception) -> SavepointError:
    return SavepointError(
        f"the offset {text[:200]!r} of a Kafka source cannot be read: {error!r}",
        where="KafkaSource",
        expected='{"topic": {"partition": offset, ...}, ...}',
    )


def _plain(given: Sequence[tuple[KafkaTopicPartition, int]]) -> dict[tuple[str, int], int]:
    return {(entry.topic, entry.partition): offset for entry, offset in given}
