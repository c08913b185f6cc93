"""A real Kafka broker (KRaft, one node) as a child process: no root, no containers, Java only.

It keeps its data and its port over `stop` and `start`, so a test can take the broker away for a while.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.ivy import Coordinate, JarSet, java_executable, resolve_jars
from tests.support.processes import ProcessGroup, free_ports, wait_until

KAFKA_JARS = JarSet(
    "kafka",
    (
        Coordinate("org.apache.kafka", "kafka_2.13", "3.9.2"),
        Coordinate("org.slf4j", "slf4j-simple", "1.7.36"),  # without it the broker says nothing of its troubles
    ),
)
CLUSTER_ID = "flinkishTestsCluster00"
START_TIMEOUT_S = 60
REQUEST_TIMEOUT_S = 30
_JAVA_OPTIONS = (
    "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
)  # fmt: skip
# While the broker starts, refused connections are what is expected and not worth a line.
_QUIETLY_UNTIL_UP: dict[str, Any] = {
    "log_level": 0, "error_cb": lambda error: None, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100,
}  # fmt: skip

# Without it, records whose request the broker refuses, as for a topic that is just created, end behind later ones.
_IN_ORDER = {"max.in.flight": 1}


@dataclass(frozen=True)
class KafkaRecord:
    """One record as it lies in a topic; the timestamp is in milliseconds since the epoch."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, str | bytes | None], ...]


class KafkaBroker:
    """A broker on a free port of 127.0.0.1, with 512 MB of heap; topics are made only by `create_topic`.

    With `secured` it listens at a second port as well, for SASL_SSL with the mechanism PLAIN; see `SecuredListener`.
    With `gated` it does so for clients that a `Gate` stands before.

    Example:
        with KafkaBroker() as broker:
            broker.create_topic("orders", partitions=3)
            broker.produce("orders", [b"a", b"b"])
            assert len(broker.consume("orders")) == 2
    """

    def __init__(self, secured: bool = False, gated: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flinkish-kafka-"))
        self.port, self._controller_port, further_port = free_ports(3)
        self.secured = SecuredListener(self.folder, further_port) if secured else None
        self.gate = Gate(further_port) if gated else None
        self._process: ProcessGroup | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, the same after every start."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the broker's process is there."""
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Starts the broker on the data that it has, and returns once it answers."""
        if self.running:
            return
        properties = self.folder / "server.properties"
        if not properties.exists():
            if self.secured is not None:
                self.secured.make_certificate()
            properties.write_text(self._properties())
            self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)).succeed(60)
        self._process = self._java("kafka.Kafka", str(properties))
        client = AdminClient({**_QUIETLY_UNTIL_UP, "bootstrap.servers": self.bootstrap_servers})
        self._process.wait_for(lambda: _answers(client), START_TIMEOUT_S, "an answer from the broker")

    def stop(self) -> None:
        """Shuts the broker down in order; its data stays for the next `start`."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Kills the broker -9; its data stays for the next `start`."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The broker's process does not run, its connections stay: a server that does not answer."""
        assert self._process is not None
        self._process.pause()
        try:
            yield
        finally:
            self._process.resume()

    def log(self) -> str:
        """Returns what the broker has printed, over all its starts."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def create_topic(self, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Creates a topic and waits until it is there."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        client = self._admin()
        client.create_topics([topic])[name].result(REQUEST_TIMEOUT_S)
        wait_until(
            lambda: name in client.list_topics(timeout=REQUEST_TIMEOUT_S).topics, REQUEST_TIMEOUT_S, f"topic {name!r}"
        )

    def delete_topic(self, name: str) -> None:
        """Deletes a topic."""
        client = self._admin()
        client.delete_topics([name])[name].result(REQUEST_TIMEOUT_S)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        keys: Sequence[bytes | str | None] | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Writes the values and returns when the broker has acknowledged all of them.

        `partition` -1 leaves the choice to the client (by key if there is one), `timestamp_ms` 0 means now.
        """
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, "acks": "all", **_IN_ORDER})
        for index, value in enumerate(values):
            key = keys[index] if keys is not None else None
            producer.produce(topic, value, key, partition, on_delivery, timestamp=timestamp_ms, headers=list(headers))
            producer.poll(0)
        left = producer.flush(REQUEST_TIMEOUT_S)
        if left or failures:
            raise AssertionError(
                f"{left} records for {topic!r} were not acknowledged, {len(failures)} failed: {failures[:3]}"
            )

    def consume(self, topic: str, read_committed: bool = True) -> list[KafkaRecord]:
        """Returns all that is in the topic now, ordered by partition and offset."""
        level = "read_committed" if read_committed else "read_uncommitted"
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap_servers, "group.id": "tests", "isolation.level": level,
            "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest",
        })  # fmt: skip
        try:
            partitions = consumer.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            return sorted(
                _read_to_the_end(consumer, set(partitions)), key=lambda record: (record.partition, record.offset)
            )
        finally:
            consumer.close()

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # its data goes with it: nothing is left to shut down in order
        if self.gate is not None:
            self.gate.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def _java(self, main_class: str, *arguments: str) -> ProcessGroup:
        classpath = ":".join(str(jar) for jar in resolve_jars(KAFKA_JARS))
        command = [java_executable(), *_JAVA_OPTIONS, "-cp", classpath, main_class, *arguments]
        return ProcessGroup(command, self.folder / "broker.log")

    def _properties(self) -> str:
        broker, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{self._controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Records whose times are of 1970, as tests write them, would be deleted as too old after a while.
            "log.retention.ms": "-1",
            # A killed broker may come back only when its registration has run out, after 9 s by default.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            # by default, an idle broker writes a record that says nothing, twice a second
            "metadata.max.idle.interval.ms": "0",
            "num.network.threads": "1",
            "num.io.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
        }
        for listener in (self.secured, self.gate):
            for name, value in listener.properties().items() if listener else ():
                settings[name] = f"{settings[name]},{value}" if name in settings else value
        return "".join(f"{name}={value}\n" for name, value in settings.items())


class SecuredListener:
    """A listener to which only the user `USER` gets in, by a password, over TLS with a certificate of its own."""

    USER, PASSWORD = "ann", 'a "word"'
    _STORE_PASSWORD = "changeit"
    _LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

    def __init__(self, folder: Path, port: int) -> None:
        self._store, self.certificate = folder / "broker.p12", folder / "broker.pem"
        self.bootstrap_servers = f"127.0.0.1:{port}"

    def make_certificate(self) -> None:
        """The broker's key in a store of Java's, and its certificate for clients."""
        keytool = str(Path(java_executable()).with_name("keytool"))
        store = ["-alias", "broker", "-keystore", str(self._store), "-storepass", self._STORE_PASSWORD]
        name = ["-dname", "CN=broker", "-ext", "san=ip:127.0.0.1"]
        for command in (
            ["-genkeypair", "-keyalg", "RSA", "-storetype", "PKCS12", *name, *store],
            ["-exportcert", "-rfc", "-file", str(self.certificate), *store],
        ):
            subprocess.run([keytool, *command], check=True, capture_output=True)

    def properties(self) -> dict[str, str]:
        """The broker's; what it has already is added to."""
        return {
            "listeners": f"SECURED://{self.bootstrap_servers}",
            "advertised.listeners": f"SECURED://{self.bootstrap_servers}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
            "listener.name.secured.ssl.keystore.location": str(self._store),
            "listener.name.secured.ssl.keystore.type": "PKCS12",
            "listener.name.secured.ssl.keystore.password": self._STORE_PASSWORD,
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
            # a file of properties has escapes of its own
            "listener.name.secured.plain.sasl.jaas.config": (
                f"{self._LOGIN} user_{self.USER}={quoted(self.PASSWORD)};".replace("\\", r"\\")
            ),
        }

    @classmethod
    def login(cls, password: str = PASSWORD) -> str:
        """What a client says that it is, in JAAS."""
        return f'{cls._LOGIN} username="{cls.USER}" password={quoted(password)};'

    def client_properties(self) -> dict[str, str]:
        """As users of Java's clients write them."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": self.login(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }


#: Kafka's number of the request that ends a transaction.
END_TRANSACTION = 26


class Gate:
    """A proxy before a listener of its own, which can close the connection of a client at a request of one kind: before
    the broker gets the request, or when it has done what it says and before the client gets the answer."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.bootstrap_servers = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._lock = threading.Lock()
        self._planned: tuple[int, str] | None = None
        self._stays_open = True
        #: whether a connection has been closed since `close_at`
        self.closed = threading.Event()
        #: whether other clients are let in; without, the one whose connection was closed cannot try again
        self.open = True
        threading.Thread(target=self._accept, name="kafka-gate", daemon=True).start()

    def properties(self) -> dict[str, str]:
        """The broker's; what it has already is added to."""
        return {
            "listeners": f"GATED://127.0.0.1:{self._broker_port}",
            "advertised.listeners": f"GATED://{self.bootstrap_servers}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GATED:PLAINTEXT",
        }

    def close_at(self, request: int, where: Literal["request", "answer"], stay_open: bool) -> None:
        """Close one connection at the next request of this kind. ``stay_open``: the client can connect anew."""
        self.closed.clear()
        with self._lock:
            self._planned = (request, where)
            self._stays_open = stay_open

    def close(self) -> None:
        """Let nobody in any more."""
        self.open = False
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if not self.open:
                client.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                client.close()
                continue
            #: the number of the request whose answer is not passed on
            withheld: list[int] = []
            for passing in (self._pass_requests, self._pass_answers):
                threading.Thread(target=passing, args=(client, broker, withheld), daemon=True).start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket, withheld: list[int]) -> None:
        with suppress(OSError):
            while frame := _frame(client):
                kind, number = struct.unpack(">h2xi", frame[4:12])
                where = self._take_plan(kind)
                if where == "request":
                    self._close_as_planned(client, broker)
                    return
                if where == "answer":
                    withheld.append(number)
                broker.sendall(frame)
        _close(client, broker)

    def _pass_answers(self, client: socket.socket, broker: socket.socket, withheld: list[int]) -> None:
        with suppress(OSError):
            while frame := _frame(broker):
                if withheld and struct.unpack(">i", frame[4:8])[0] == withheld[0]:
                    self._close_as_planned(client, broker)
                    return
                client.sendall(frame)
        _close(client, broker)

    def _take_plan(self, kind: int) -> str | None:
        """Where the connection is closed at a request of this kind; the plan is for one request."""
        with self._lock:
            if self._planned is None or self._planned[0] != kind:
                return None
            (_, where), self._planned = self._planned, None
            return where

    def _close_as_planned(self, *connections: socket.socket) -> None:
        self.open = self._stays_open
        _close(*connections)
        self.closed.set()


def _frame(connection: socket.socket) -> bytes:
    """A request or an answer with its length; nothing at the end of the connection."""
    head = _exactly(connection, 4)
    return head + _exactly(connection, struct.unpack(">i", head)[0]) if head else b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def _close(*connections: socket.socket) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def quoted(text: str) -> str:
    """A value of JAAS."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _answers(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


def _read_to_the_end(consumer: Consumer, partitions: set[int]) -> list[KafkaRecord]:
    records: list[KafkaRecord] = []
    while partitions:
        message = consumer.poll(REQUEST_TIMEOUT_S)
        if message is None:
            raise AssertionError(f"the broker has not delivered the partitions {sorted(partitions)} to their end")
        problem = message.error()
        if problem is None:
            records.append(_record(message))
        elif problem.code() == KafkaError._PARTITION_EOF:
            partitions.discard(_known(message.partition()))
        else:
            raise KafkaException(problem)
    return records


def _record(message: Message) -> KafkaRecord:
    headers: tuple[Any, ...] = tuple(message.headers() or ())
    partition, offset = _known(message.partition()), _known(message.offset())
    return KafkaRecord(partition, offset, message.key(), message.value(), message.timestamp()[1], headers)


def _known(number: int | None) -> int:
    assert number is not None, "a message that came from a broker has a partition and an offset"
    return number
