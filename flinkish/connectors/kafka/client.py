"""Makes Kafka clients, and asks a cluster for what the source and the sink must know: whether it can be reached, which
partitions there are, and which offsets.

The check for reachability needs only a socket. All the rest needs confluent-kafka (the extra ``kafka``).
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from flinkish.connectors.kafka.properties import DEFAULT_ISOLATION, security_settings
from flinkish.errors import ConfigurationError, ConnectionFailedError, EnvironmentVersionError, OperationError

#: seconds to wait for a connection to one server, and for one answer
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
_FIRST_TRY_S = 1.0

# how librdkafka shows the id of a topic without an id
_NO_IDS = ("", "None", "AAAAAAAAAAAAAAAAAAAAAA")

#: the client's errors for a partition that has no leader at the moment (it has just been created, or its broker has
#: just gone), and for a group whose coordinator has not loaded its offsets yet
MOMENTARY = (
    *("_NOENT", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE"),
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
)

# Kafka's own topics, which no pattern means, as in Flink
_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")

T = TypeVar("T")


def check_reachable(servers: str, where: str) -> None:
    """Check that at least one server accepts a connection. Takes at most ``CONNECT_TIMEOUT_S`` per server.

    Raises:
        ConnectionFailedError: none of the servers accepts a connection.
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


def driver(purpose: str) -> Any:
    """The module confluent_kafka.

    Raises:
        EnvironmentVersionError: it is not installed; the message names ``purpose``, which needs it.
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
    """The settings of librdkafka that are needed to connect, translated from the properties of Java's client: servers,
    encryption and credentials.

    >>> jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    >>> client_settings("k:9092", {"sasl.jaas.config": jaas, "fetch.min.bytes": "1"})
    {'bootstrap.servers': 'k:9092', 'sasl.username': 'a', 'sasl.password': 'b'}
    """
    return {"bootstrap.servers": servers, **security_settings(properties)}


def new_consumer(settings: Mapping[str, Any], where: str) -> Any:
    """A consumer with these settings of librdkafka.

    Raises:
        ConfigurationError: a property that librdkafka does not know, or a value that it refuses.
        EnvironmentVersionError: confluent-kafka is missing.
    """
    # log_level 0: connection errors are raised by the calls, and librdkafka would print them as well
    defaults = {"log_level": 0, "enable.auto.commit": False}
    return _new_client(driver("KafkaSource").Consumer, {**defaults, **settings}, "consumer", where)


def new_producer(settings: Mapping[str, Any], where: str) -> Any:
    """A producer with these settings of librdkafka; raises the same errors as `new_consumer`."""
    # records go to the partitions of their keys as with Java's producer, not by librdkafka's own hash
    defaults = {"log_level": 0, "linger.ms": 20, "enable.idempotence": True, "partitioner": "murmur2_random"}
    return _new_client(driver("KafkaSink").Producer, {**defaults, **settings}, "producer", where)


def _new_client(client: Callable[[dict[str, Any]], Any], settings: dict[str, Any], kind: str, where: str) -> Any:
    try:
        return client(settings)
    except driver("Kafka").KafkaException as error:
        raise ConfigurationError(
            f"the Kafka client refuses its settings: {error.args[0].str()}",
            where=where,
            expected=f"properties of Kafka's Java {kind} that librdkafka knows as well, or librdkafka's own",
            hint="correct or remove that property (CONFIGURATION.md of librdkafka lists them)",
        ) from error


class Cluster:
    """Queries the metadata and offsets of a Kafka cluster. A context manager: it holds one consumer, which never joins
    its group, and an admin client if one is needed.

    Every query raises ConnectionFailedError if the cluster does not answer, and OperationError if it refuses access or
    a topic or partition does not exist.

    Args:
        servers: the bootstrap servers.
        properties: properties of Java's client or librdkafka's; those for encryption and credentials are used.
        group_id: the consumer group that `committed` and `group_metadata` are about; "" for none.
        purpose: the part of the program that needs confluent-kafka, for the error if it is missing.
        settled: whether `committed` waits for the end of transactions that commit offsets of the group.
    """

    def __init__(
        self, servers: str, properties: Mapping[str, str], group_id: str, purpose: str, settled: bool = True
    ) -> None:
        self._kafka = driver(purpose)
        self._servers = servers
        self._settings = client_settings(servers, properties)
        self._admin_client: Any = None
        self._refusal = ""
        # librdkafka waits for offsets to be settled if it is to read committed records only
        isolation = {} if settled else DEFAULT_ISOLATION
        self._consumer = new_consumer(
            {**self._settings, **isolation, "group.id": group_id or "flinkish", "error_cb": self._on_error},
            f"Kafka {servers}",
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._admin_client = None

    def partitions(self, topics: Sequence[str], pattern: str | None) -> list[tuple[str, int]]:
        """All partitions (topic, number) of the topics; with a pattern, of the topics whose whole names it matches,
        without Kafka's own topics.

        Raises:
            OperationError: a topic does not exist.
        """
        found = self._topics()
        if pattern is not None:
            topics = sorted(name for name in found if re.fullmatch(pattern, name) and name not in _INTERNAL_TOPICS)
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
        """The offsets that the group has committed; partitions without one are left out. Waits for the end of
        transactions that commit some, unless told otherwise."""
        wanted = [self._kafka.TopicPartition(*partition) for partition in partitions]
        found = self._ask_until_settled(
            lambda: self._without_errors(self._consumer.committed(wanted, timeout=REQUEST_TIMEOUT_S))
        )
        return {(entry.topic, entry.partition): entry.offset for entry in found if entry.offset >= 0}

    def _without_errors(self, entries: list[Any]) -> list[Any]:
        for entry in entries:
            if entry.error is not None:
                raise self._kafka.KafkaException(entry.error)
        return entries

    def first_partitions(self) -> list[tuple[str, int]]:
        """The first partition of each topic of the cluster."""
        found = self._topics()
        return [(topic, 0) for topic in sorted(found)]

    def group_metadata(self) -> Any:
        """The metadata of the group with which a transactional producer commits offsets of this group."""
        return self._consumer.consumer_group_metadata()

    def at_time(
        self, partitions: Sequence[tuple[str, int]], timestamp_ms: int, committed: bool
    ) -> dict[tuple[str, int], int]:
        """The offset of each partition's first record at or after the time (ms since the Unix epoch); partitions
        without such a record are left out. With ``committed`` the records behind the begin of a transaction that is
        still open do not count."""
        found = self._listed(partitions, self._kafka.admin.OffsetSpec.for_timestamp(timestamp_ms), committed)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic -> the id that it got when it was created; topics of brokers without topic ids (before Kafka 2.8) are
        left out."""
        wanted = self._kafka.TopicCollection(sorted(set(topics)))
        futures = self._admin.describe_topics(wanted, request_timeout=REQUEST_TIMEOUT_S)
        found = {topic: self._ask(lambda f=future: f.result(REQUEST_TIMEOUT_S)) for topic, future in futures.items()}
        return {topic: str(entry.topic_id) for topic, entry in found.items() if str(entry.topic_id) not in _NO_IDS}

    def kept(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """Partition -> (first offset that still exists, offset of the next record to be written)."""
        firsts, nexts = self.first_offsets(partitions), self.next_offsets(partitions)
        return {partition: (firsts[partition], nexts[partition]) for partition in partitions}

    def first_offsets(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Partition -> the first offset that still exists."""
        return self._listed(partitions, self._kafka.admin.OffsetSpec.earliest(), committed=False)

    def next_offsets(
        self, partitions: Sequence[tuple[str, int]], committed: bool = False
    ) -> dict[tuple[str, int], int]:
        """Partition -> the offset of the next record to be written; with ``committed`` the first offset of a
        transaction that is still open, if there is one. One request for all partitions."""
        return self._listed(partitions, self._kafka.admin.OffsetSpec.latest(), committed)

    def _listed(
        self, partitions: Sequence[tuple[str, int]], wanted: Any, committed: bool
    ) -> dict[tuple[str, int], int]:
        levels = self._kafka.IsolationLevel
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        asked = {self._kafka.TopicPartition(*partition): wanted for partition in partitions}
        if not asked:
            return {}

        def offsets() -> dict[tuple[str, int], int]:
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
            return {
                (entry.topic, entry.partition): future.result(REQUEST_TIMEOUT_S).offset
                for entry, future in futures.items()
            }

        return self._ask_until_settled(offsets)

    @property
    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = self._kafka.admin.AdminClient({"log_level": 0, **self._settings})
        return self._admin_client

    def _topics(self) -> dict[str, Any]:
        """The metadata of all topics. The first request has a short timeout: a refusal of the credentials is known at
        once, but the client would retry until its timeout."""
        try:
            found = self._consumer.list_topics(timeout=_FIRST_TRY_S)
        except self._kafka.KafkaException as error:
            failed = self._failed(error)
            if self._refusal:
                raise failed from error
            found = self._ask(lambda: self._consumer.list_topics(timeout=REQUEST_TIMEOUT_S))
        # the cluster has answered: an earlier refusal counts no more
        self._refusal = ""
        return dict(found.topics)

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except self._kafka.KafkaException as error:
            raise self._failed(error) from error

    def _ask_until_settled(self, question: Callable[[], T]) -> T:
        """The answer to a query, which is retried for REQUEST_TIMEOUT_S while it fails with a momentary error."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                return question()
            except self._kafka.KafkaException as error:
                if error.args[0].name() not in MOMENTARY or time.monotonic() > deadline:
                    raise self._failed(error) from error
                # a client refreshes its metadata so seldom that a new client is faster
                self._admin_client = None
                time.sleep(0.1)

    def _failed(self, error: Any) -> OperationError:
        if error.args[0].code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return OperationError(
                f"a topic or a partition is not there (any more): {error}",
                where=f"Kafka {self._servers}",
                expected="all partitions that the job reads",
                hint="create the topic again, or start the job without it",
            )
        with suppress(self._kafka.KafkaException):
            self._consumer.poll(0)  # calls _on_error
        if self._refusal:
            return OperationError(
                f"Kafka at {self._servers} does not let the job in: {self._refusal}",
                where="Kafka",
                expected="credentials and certificates that the brokers and the job accept",
                hint="correct the properties security.protocol, sasl.* and ssl.* of the source or sink",
            )
        return ConnectionFailedError(
            f"Kafka does not answer at {self._servers}: {error}",
            where="Kafka",
            hint="see the broker's log; check servers, protocol and credentials",
        )

    def _on_error(self, error: Any) -> None:
        if error.code() in (self._kafka.KafkaError._AUTHENTICATION, self._kafka.KafkaError._SSL):
            self._refusal = error.str()
