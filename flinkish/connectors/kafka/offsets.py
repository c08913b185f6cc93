"""PyFlink's ``KafkaOffsetsInitializer``, for starting and for stopping offsets, and how it resolves to an offset for
each partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from flinkish.common.arguments import check_at_least, check_instance
from flinkish.connectors.kafka.client import Cluster
from flinkish.errors import OperationError

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
