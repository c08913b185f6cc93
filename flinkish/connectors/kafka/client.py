"""What is asked of a broker outside of Spark: is it there, which partitions are there, which offsets.

The check for reachability needs nothing but a socket. The rest needs confluent-kafka (the extra ``kafka``).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from flinkish.errors import ConnectionFailedError, EnvironmentVersionError, OperationError

#: how long one server, or one answer, is waited for
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0

# how librdkafka shows the id of a topic that has none
_NO_IDS = ("", "None", "AAAAAAAAAAAAAAAAAAAAAA")

# properties that Java's client and librdkafka call the same, and that decide whether one gets in
_SHARED = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "enable.ssl.certificate.verification",
)
_SHARED_PREFIXES = ("ssl.ca", "ssl.certificate", "ssl.key.", "ssl.endpoint")


def check_reachable(servers: str, where: str) -> None:
    """
    Raises:
        ConnectionFailedError: none of the servers takes a connection; within CONNECT_TIMEOUT_S per server.
    """
    failures = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S):
                return
        except (OSError, ValueError) as error:
            failures.append(f"{server.strip()}: {error}")
    raise ConnectionFailedError(
        f"Kafka cannot be reached at {servers} ({'; '.join(failures)})",
        where=where,
        expected="at least one bootstrap server as host:port that takes connections",
        hint="start the broker or correct set_bootstrap_servers(...)",
    )


def installed() -> bool:
    """Whether confluent-kafka can be imported."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return False
    return True


def driver(purpose: str) -> Any:
    """The module confluent_kafka.

    Raises:
        EnvironmentVersionError: it is not installed; ``purpose`` says what it is needed for.
    """
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise EnvironmentVersionError(
            f"confluent-kafka is missing, and {purpose} needs it: {error}",
            where="Kafka",
            expected="confluent-kafka on the driver and executors",
            hint="pip install 'flinkish[kafka]'",
        ) from error
    return confluent_kafka


def client_settings(servers: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """librdkafka's settings out of those for Java's client: servers and what is needed to get in.

    >>> jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    >>> client_settings("k:9092", {"sasl.jaas.config": jaas, "fetch.min.bytes": "1"})
    {'bootstrap.servers': 'k:9092', 'sasl.username': 'a', 'sasl.password': 'b'}
    """
    settings: dict[str, Any] = {"bootstrap.servers": servers}
    for key, value in properties.items():
        if key in _SHARED or key.startswith(_SHARED_PREFIXES):
            settings[key] = value
    jaas = properties.get("sasl.jaas.config", "")
    for name in ("username", "password"):
        match = re.search(rf'\b{name}="((?:[^"\\]|\\.)*)"', jaas)
        if match:
            settings[f"sasl.{name}"] = match[1]
    return settings


class Cluster:
    """Questions to a cluster. Use as a context: it holds one consumer, which joins no group."""

    def __init__(self, servers: str, properties: Mapping[str, str], group_id: str, purpose: str) -> None:
        self._kafka = driver(purpose)
        self._servers = servers
        self._settings = client_settings(servers, properties)
        self._consumer = self._kafka.Consumer(
            {
                **self._settings,
                "group.id": group_id or "flinkish",
                "enable.auto.commit": False,
                # errors of connections come as exceptions of the calls; librdkafka would print them as well
                "log_level": 0,
            }
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def partitions(self, topics: Sequence[str], pattern: str | None) -> list[tuple[str, int]]:
        """All partitions of the topics, or of those that the pattern matches as a whole.

        Raises:
            OperationError: a topic does not exist.
        """
        found = self._ask(lambda: self._consumer.list_topics(timeout=REQUEST_TIMEOUT_S)).topics
        if pattern is not None:
            topics = sorted(name for name in found if re.fullmatch(pattern, name))
        for topic in topics:
            if topic not in found or found[topic].error is not None:
                raise OperationError(
                    f"the topic '{topic}' does not exist",
                    where=f"Kafka {self._servers}",
                    expected="a topic that is there before the job starts",
                    hint="create it, or correct the name",
                )
        return [(topic, partition) for topic in topics for partition in sorted(found[topic].partitions)]

    def committed(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offsets that the group has committed; partitions without one are left out. Waits for transactions that
        are about to end."""
        wanted = [self._kafka.TopicPartition(*partition) for partition in partitions]
        found = self._ask(lambda: self._without_errors(self._consumer.committed(wanted, timeout=REQUEST_TIMEOUT_S)))
        return {(entry.topic, entry.partition): entry.offset for entry in found if entry.offset >= 0}

    def _without_errors(self, entries: list[Any]) -> list[Any]:
        for entry in entries:
            if entry.error is not None:
                raise self._kafka.KafkaException(entry.error)
        return entries

    def first_partitions(self) -> list[tuple[str, int]]:
        """The first partition of each topic of the cluster."""
        found = self._ask(lambda: self._consumer.list_topics(timeout=REQUEST_TIMEOUT_S)).topics
        return [(topic, 0) for topic in sorted(found)]

    def group_metadata(self) -> Any:
        """What a transaction wants in order to commit an offset of this group."""
        return self._consumer.consumer_group_metadata()

    def at_time(self, partitions: Sequence[tuple[str, int]], timestamp_ms: int) -> dict[tuple[str, int], int]:
        """The first offset at or after the time; partitions without such a record are left out."""
        wanted = [self._kafka.TopicPartition(topic, partition, timestamp_ms) for topic, partition in partitions]
        found = self._ask(lambda: self._consumer.offsets_for_times(wanted, timeout=REQUEST_TIMEOUT_S))
        return {(entry.topic, entry.partition): entry.offset for entry in found if entry.offset >= 0}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic -> the id it got when it was made; without those of brokers that give none (before Kafka 2.8)."""
        admin = self._kafka.admin.AdminClient(self._settings)
        wanted = self._kafka.TopicCollection(sorted(set(topics)))
        futures = admin.describe_topics(wanted, request_timeout=REQUEST_TIMEOUT_S)
        found = {topic: self._ask(lambda f=future: f.result(REQUEST_TIMEOUT_S)) for topic, future in futures.items()}
        return {topic: str(entry.topic_id) for topic, entry in found.items() if str(entry.topic_id) not in _NO_IDS}

    def kept(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """Partition -> (first offset that is still there, offset of the next record to come)."""
        spec = self._kafka.admin.OffsetSpec
        firsts, nexts = (self._listed(partitions, wanted) for wanted in (spec.earliest(), spec.latest()))
        return {partition: (firsts[partition], nexts[partition]) for partition in partitions}

    def _listed(self, partitions: Sequence[tuple[str, int]], wanted: Any) -> dict[tuple[str, int], int]:
        admin = self._kafka.admin.AdminClient(self._settings)
        asked = {self._kafka.TopicPartition(*partition): wanted for partition in partitions}
        futures = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S) if asked else {}
        return {
            (entry.topic, entry.partition): self._ask(lambda f=future: f.result(REQUEST_TIMEOUT_S)).offset
            for entry, future in futures.items()
        }

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except self._kafka.KafkaException as error:
            raise ConnectionFailedError(
                f"Kafka does not answer at {self._servers}: {error}",
                where="Kafka",
                hint="see the broker's log; check servers, protocol and credentials",
            ) from error
