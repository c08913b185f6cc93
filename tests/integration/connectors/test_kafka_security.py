"""A broker that lets in only who has a password, over TLS: source and sink with the properties of Java's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkish.common import Configuration, WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.delivery_guarantee import DeliveryGuarantee
from flinkish.connectors.kafka.offsets import KafkaOffsetsInitializer
from flinkish.connectors.kafka.record_serializer import KafkaRecordSerializationSchema
from flinkish.connectors.kafka.sink import KafkaSink
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import FlinkishError
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
    broker: KafkaBroker, reading: dict[str, str], writing: dict[str, str] | None = None, job_dir: Path | None = None
) -> None:
    """A job from one topic to the other, through the secured listener; without ``job_dir`` in the minicluster.
    ``reading`` and ``writing``: the properties of source and sink, the same by default."""
    servers = listener_of(broker).bootstrap_servers
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics("words").set_group_id("shouting")
    source = source.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    source = source.set_bounded(KafkaOffsetsInitializer.latest())
    source = source.set_value_only_deserializer(SimpleStringSchema())
    serializer = KafkaRecordSerializationSchema.builder().set_topic("shouted")
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


@pytest.mark.parametrize("whose", ["source", "sink"])
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
    assert shouted(broker) == before
