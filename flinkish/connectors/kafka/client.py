"""Makes Kafka clients, and asks a cluster for what the source and the sink must know: whether it can be reached, which
partitions there are, and which offsets.

The check for reachability needs only a socket. All the rest needs confluent-kafka (the extra ``kafka``).
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, TypeVar

from flinkish.connectors.kafka.properties import DEFAULT_ISOLATION, security_settings
from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    EnvironmentVersionError,
    FinalOperationError,
    OperationError,
)

#: seconds to wait for a connection to one server, and for one answer
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
_FIRST_TRY_S = 1.0
#: how often a server is asked whether it speaks TLS, and the seconds between
_PROBES, _PROBE_PAUSE_S = 3, 0.3

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
        ConfigurationError: a server is not written as host:port, and no other one accepts a connection.
        ConnectionFailedError: none of the servers accepts a connection.
    """
    failures, unresolved = [], 0
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            if not 0 < int(port) < 65_536:
                raise ValueError
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S):
                return
        except OSError as error:
            unresolved += isinstance(error, socket.gaierror)
            failures.append(f"{server.strip()}: {error}")
        except ValueError:
            failures.append(f"'{server.strip()}' is no server")
    if any(failure.endswith(" is no server") for failure in failures):
        raise ConfigurationError(
            f"Kafka's servers are given as {servers!r} ({'; '.join(failures)})",
            where=where,
            expected="host:port, several of them separated by commas",
            hint="correct set_bootstrap_servers(...)",
        )
    if unresolved == len(failures):
        raise ConnectionFailedError(
            f"the names of Kafka's servers cannot be resolved ({'; '.join(failures)})",
            where=where,
            expected="hosts that this machine finds",
            hint="correct set_bootstrap_servers(...), or this machine's name service",
        )
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
            hint="pip install confluent-kafka msgspec",
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

    Every query raises ConnectionFailedError if the cluster does not answer, FinalOperationError if it refuses access or
    speaks another protocol, and OperationError if a topic or partition does not exist (any more).

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
        #: the error with which the brokers have refused access, and what the client said of the last other error
        self._refusal: Any = None
        self._last_error = ""
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
            FinalOperationError: a topic does not exist.
        """
        found = self._topics()
        if pattern is not None:
            topics = sorted(name for name in found if re.fullmatch(pattern, name) and name not in _INTERNAL_TOPICS)
        for topic in topics:
            if topic not in found or found[topic].error is not None:
                raise FinalOperationError(
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
            if not failed.retryable:
                raise failed from error
            found = self._ask(lambda: self._consumer.list_topics(timeout=REQUEST_TIMEOUT_S))
        # the cluster has answered: an earlier refusal counts no more
        self._refusal = None
        return dict(found.topics)

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except (self._kafka.KafkaException, FutureTimeout) as error:
            raise self._failed(self._as_kafka_says(error)) from error

    def _as_kafka_says(self, error: Any) -> Any:
        """An exception of the client as it is; for an answer that has not come in time, the one of the same meaning."""
        if not isinstance(error, FutureTimeout):
            return error
        codes = self._kafka.KafkaError
        return self._kafka.KafkaException(codes(codes._TIMED_OUT, f"no answer in {REQUEST_TIMEOUT_S:g} s"))

    def _ask_until_settled(self, question: Callable[[], T]) -> T:
        """The answer to a query, which is retried for REQUEST_TIMEOUT_S while it fails with a momentary error."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                return question()
            except (self._kafka.KafkaException, FutureTimeout) as error:
                said = self._as_kafka_says(error)
                if said.args[0].name() not in MOMENTARY or time.monotonic() > deadline:
                    raise self._failed(said) from error
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
        if self._refusal is None and not_allowed(error.args[0]):
            self._refusal = error.args[0]
        where = f"Kafka {self._servers}"
        if self._refusal is not None:
            return refusal(self._refusal, where)
        other_protocol = _other_protocol(str(self._settings.get("security.protocol", "")), self._servers, where)
        if other_protocol is not None:
            return other_protocol
        return ConnectionFailedError(
            f"Kafka does not answer at {self._servers}: {error}"
            + (f" ({self._last_error})" if self._last_error else ""),
            where="Kafka",
            hint="see the broker's log; check servers, the brokers' advertised.listeners, protocol and credentials",
        )

    def _on_error(self, error: Any) -> None:
        if not_allowed(error):
            self._refusal = error
        elif error.code() != self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error.str()


#: What librdkafka supposes of a server that ends a connection in which TLS begins, as a broker that stops does as well.
_NO_TLS = r"PLAINTEXT broker listener|wrong version number|packet length too long|unknown protocol"


def not_allowed(error: Any) -> bool:
    """Whether an error of librdkafka says that the brokers do not let the client in, which does not pass by itself."""
    codes = driver("Kafka").KafkaError
    if error.code() == codes._SSL:
        return re.search(_NO_TLS, error.str()) is None
    refused = error.code() in (codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED)
    return refused or error.name().endswith("AUTHORIZATION_FAILED")


def refusal(error: Any, where: str) -> FinalOperationError:
    """The error for one that is `not_allowed`: what the brokers refuse, and which properties to correct."""
    if error.code() == driver("Kafka").KafkaError._SSL:
        what, expected = "Kafka and the job do not accept each other's certificates", "certificates that both accept"
        hint = "correct the properties ssl.* of the source or sink"
    elif error.name().endswith("AUTHORIZATION_FAILED"):
        what, expected = "Kafka does not allow the job what it needs", "the rights to what the job reads and writes"
        hint = "have them granted (ACLs of topics, groups and transactional ids), or name another topic or group"
    else:
        what = "Kafka does not let the job in"
        expected = "a user and a password, or another proof, that the brokers know, by a mechanism that they offer"
        hint = "correct the properties sasl.mechanism and sasl.jaas.config (or sasl.*) of the source or sink"
    return FinalOperationError(
        f"{what}: {error.str()}", where=where, expected=expected, hint=f"{hint}; then start the job again"
    )


def _other_protocol(protocol: str, servers: str, where: str) -> FinalOperationError | None:
    """The error for a client with TLS whose servers speak none, or the other way round; None if that is not the reason.
    The servers are asked, since librdkafka does not know more than that a connection has ended.

    Args:
        protocol: the client's ``security.protocol``; "" for Kafka's default.
    """
    wanted = protocol.upper() in ("SSL", "SASL_SSL")
    found = [speaks for server in servers.split(",") if (speaks := _speaks_tls(server.strip())) is not None]
    if not found or any(speaks is wanted for speaks in found):
        return None
    protocol, other = ("PLAINTEXT or SASL_PLAINTEXT", "with") if wanted else ("SSL or SASL_SSL", "without")
    return FinalOperationError(
        f"Kafka {'does not speak' if wanted else 'speaks only'} TLS at {servers}",
        where=where,
        expected="the protocol of the listener at this port",
        hint=f"set the property security.protocol to {protocol}, or name the port of a listener {other} TLS; then "
        "start the job again",
    )


def _speaks_tls(server: str) -> bool | None:
    """Whether a server answers as TLS does; None if it takes no connection or does not answer. One that ends the
    connection is asked again, since it may be about to stop."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = server.rpartition(":")
    for _ in range(_PROBES):
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S) as connection:
                context.wrap_socket(connection).close()
                return True
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, BrokenPipeError):
            time.sleep(_PROBE_PAUSE_S)
        except ssl.SSLError as error:
            # an alert is an answer
            return "ALERT" in str(error.reason)
        except (OSError, ValueError, OverflowError):
            # no server, or one that is no better written: others say so
            return None
    return False
