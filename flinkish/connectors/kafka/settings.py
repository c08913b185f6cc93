"""What a Kafka source is told by its builder, and what its enumerator and its readers make of it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Any

from flinkish.connectors.kafka.client import Cluster
from flinkish.connectors.kafka.decoding import Schema
from flinkish.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition, Partition
from flinkish.connectors.kafka.properties import (
    CLIENT_ID_PREFIX,
    COMMIT_OFFSETS,
    DISCOVERY_INTERVAL_MS,
    is_read_committed,
    reading_settings,
    whole_number,
)

#: Flink's
DEFAULT_DISCOVERY_INTERVAL_MS = 300_000


@dataclass(frozen=True)
class KafkaSourceSettings:
    """What the builder collects."""

    bootstrap_servers: str
    deserializer: Schema
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()
    group_id: str = ""
    starting: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stopping: KafkaOffsetsInitializer | None = None
    fail_on_data_loss: bool = True
    #: what becomes of partitions in a savepoint whose topics are not named any more: they are not read (True), they are
    #: read on (False), or the job is refused (None)
    only_topics: bool | None = None
    properties: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """For messages."""
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
        """Whether partitions of this topic, which a savepoint may name, are not read."""
        return self.only_topics is True and topic not in self.topics

    def consumer_settings(self, role: str) -> dict[str, Any]:
        """librdkafka's settings of a consumer of this source: servers, group and all properties. It is assigned its
        partitions and never joins the group, so ``role`` only tells clients apart in the broker's log."""
        prefix = self.properties.get(CLIENT_ID_PREFIX)
        named = {"client.id": f"{prefix}-{role}-{socket.gethostname()}-{os.getpid()}"} if prefix else {}
        return {
            **reading_settings(self.properties),
            **named,
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": self.group_id or "flinkish",
        }

    def cluster(self, purpose: str) -> Cluster:
        """A connection for questions."""
        return Cluster(self.bootstrap_servers, self.properties, self.group_id, purpose)

    def partitions_of(self, cluster: Cluster) -> list[Partition]:
        """All partitions that are to be read, in order.

        Raises:
            OperationError: a topic does not exist.
        """
        if self.partitions:
            return [(entry.topic, entry.partition) for entry in self.partitions]
        return sorted(cluster.partitions(self.topics, self.topic_pattern))


def split_id(partition: Partition) -> str:
    """
    >>> split_id(("clicks", 3))
    'clicks-3'
    """
    return f"{partition[0]}-{partition[1]}"
