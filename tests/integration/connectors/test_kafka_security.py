"""A broker that lets in only who has a password, over TLS: source and sink with the properties of Java's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkish.common import Configuration, WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.properties import DeliveryGuarantee
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
from flinkish.connectors.kafka.sink import KafkaRecordSerializationSchema, KafkaSink
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError, ConnectionFailedError, FinalOperationError, FlinkishError
from tests.support.kafka_broker import KafkaBroker, SecuredListener

WORDS = ["to", "be", "or", "not"]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(secured=True) as broker:
        broker.create_topic("words")
        broker.create_topic("shouted")
        broker.produce("words", WORDS)
        yield broker


def listener_of(broker: KafkaBroker) -> SecuredListener:
    assert broker.secured is not None
    return broker.secured


def shout(
    broker: KafkaBroker,
    reading: dict[str, str],
    writing: dict[str, str] | None = None,
    job_dir: Path | None = None,
    reading_from: str | None = None,
    topic: str = "words",
    writing_to: str = "shouted",
) -> None:
    """A job from one topic to the other, through the secured listener; without ``job_dir`` in the minicluster.
    ``reading`` and ``writing``: the properties of source and sink, the same by default. ``reading_from``: other servers
    for the source."""
    servers = listener_of(broker).bootstrap_servers
    source = KafkaSource.builder().set_bootstrap_servers(reading_from or servers).set_topics(topic)
    source = source.set_group_id("shouting")
    source = source.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    source = source.set_bounded(KafkaOffsetsInitializer.latest())
    source = source.set_value_only_deserializer(SimpleStringSchema())
    serializer = KafkaRecordSerializationSchema.builder().set_topic(writing_to)
    serializer.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(serializer.build())
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("shouting")
    source.set_properties(reading)
    for key, value in (reading if writing is None else writing).items():
        sink.set_property(key, value)
    settings = Configuration()
    if job_dir is None:
        settings.set_string("execution.target", "minicluster")
    else:
        settings.set_string("flinkish.job.dir", str(job_dir))
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    words = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "words").uid("words")
    words.map(str.upper).uid("upper").sink_to(sink.build()).uid("shouted")
    env.execute("shouting")


def shouted(broker: KafkaBroker) -> list[str]:
    return [(record.value or b"").decode() for record in broker.consume("shouted")]


def test_source_and_sink_get_in_with_the_properties_of_javas_clients(
    spark: object, broker: KafkaBroker, tmp_path: Path
) -> None:
    shout(broker, listener_of(broker).client_properties(), job_dir=tmp_path / "job")
    assert shouted(broker) == [word.upper() for word in WORDS]


@pytest.mark.parametrize("whose", [pytest.param("source", marks=pytest.mark.nightly), "sink"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sasl.jaas.config": SecuredListener.login("guessed")}, "Authentication failed"),
        ({"ssl.truststore.location": "/etc/hostname"}, "ssl.ca.location failed"),
        ({"ssl.truststore.location": None}, "certificate verify failed"),
    ],
    ids=["password", "no certificates", "certificate"],
)
def test_who_is_not_let_in_is_told_why(
    broker: KafkaBroker, whose: str, wrong: dict[str, str | None], said: str
) -> None:
    before = shouted(broker)
    right = listener_of(broker).client_properties()
    changed = {key: value for key, value in {**right, **wrong}.items() if value is not None}
    with pytest.raises(FlinkishError, match=said) as caught:
        shout(broker, *((changed, right) if whose == "source" else (right, changed)))
    assert "guessed" not in str(caught.value)
    assert not caught.value.retryable
    assert shouted(broker) == before


@pytest.mark.parametrize(
    ("server", "properties", "kind", "said"),
    [
        ("plain", {"security.protocol": "SSL"}, FinalOperationError, "does not speak TLS.*security.protocol to PLAIN"),
        ("plain", None, FinalOperationError, "does not speak TLS.*security.protocol to PLAIN"),
        ("secured", {}, FinalOperationError, "speaks only TLS.*security.protocol to SSL"),
        (
            "secured",
            {"sasl.jaas.config": SecuredListener.login("guessed")},
            FinalOperationError,
            "does not let the job in: .*Authentication failed.*sasl.mechanism",
        ),
        (
            "secured",
            {"sasl.mechanism": "SCRAM-SHA-256"},
            FinalOperationError,
            "does not let the job in: .*SCRAM-SHA-256.*sasl.mechanism",
        ),
        ("no-such-host.invalid:9092", {}, ConnectionFailedError, "cannot be resolved .no-such-host.invalid:9092: "),
        ("localhost", {}, ConfigurationError, "'localhost' is no server.*host:port"),
        ("127.0.0.1:99999", {}, ConfigurationError, "'127.0.0.1:99999' is no server.*host:port"),
        ("127.0.0.1:1", {}, ConnectionFailedError, "cannot be reached at 127.0.0.1:1"),
    ],
    ids=["TLS", "TLS and login", "no TLS", "password", "mechanism", "name", "no port", "port", "nobody"],
)
def test_why_a_client_does_not_get_in_is_told_apart(
    broker: KafkaBroker, server: str, properties: dict[str, str] | None, kind: type[FlinkishError], said: str
) -> None:
    right = listener_of(broker).client_properties()
    servers = {"plain": broker.bootstrap_servers, "secured": listener_of(broker).bootstrap_servers}.get(server, server)
    if properties is None or any(key.startswith("sasl") for key in properties):
        properties = {**right, **(properties or {})}
    with pytest.raises(FlinkishError, match=said) as caught:
        shout(broker, properties, right, reading_from=servers)
    assert type(caught.value) is kind, repr(caught.value)
    assert len(str(caught.value).splitlines()) == 1 and "guessed" not in str(caught.value)


@pytest.mark.parametrize(
    "mistyped", [{"topic": "wrods"}, pytest.param({"writing_to": "shuoted"}, marks=pytest.mark.slow)], ids=str
)
def test_a_mistyped_topic_is_named_and_does_not_go_away_by_itself(
    broker: KafkaBroker, mistyped: dict[str, str]
) -> None:
    with pytest.raises(FinalOperationError, match="topic.*correct"):
        shout(broker, listener_of(broker).client_properties(), **mistyped)  # type: ignore[arg-type]
