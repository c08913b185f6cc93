"""The settings of a Kafka source: set by its builder, used by its enumerator and its readers."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from typing import Any

from flinkish.connectors.kafka.client import Cluster, check_reachable
from flinkish.connectors.kafka.decoding import Schema
from flinkish.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition, Partition
from flinkish.connectors.kafka.properties import (
    CLIENT_ID_PREFIX,
    COMMIT_OFFSETS,
    DEFAULT_ISOLATION,
    DISCOVERY_INTERVAL_MS,
    is_read_committed,
    reading_settings,
    whole_number,
)

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
