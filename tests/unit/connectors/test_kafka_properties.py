"""Properties of Java's consumer, and what librdkafka gets of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from flinkish.common import no_effect
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka import source as source_module
from flinkish.connectors.kafka.client import new_producer
from flinkish.connectors.kafka.flink_kafka import FlinkKafkaConsumer, FlinkKafkaProducer
from flinkish.connectors.kafka.properties import reading_settings, security_settings, writing_settings
from flinkish.connectors.kafka.settings import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaSourceSettings
from flinkish.connectors.kafka.sink import KafkaRecordSerializationSchema, KafkaSink, KafkaSinkBuilder
from flinkish.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from flinkish.errors import ConfigurationError, EnvironmentVersionError, ProgramError

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_what_only_a_member_of_a_group_or_flink_needs_is_left_out() -> None:
    own = {
        "auto.offset.reset": "latest", "enable.auto.commit": "true", "max.poll.records": "5", "group.id": "g",
        "client.id.prefix": "p", "partition.discovery.interval.ms": "1", "key.deserializer": "x",
    }  # fmt: skip
    passed = {"fetch.min.bytes": "2", "isolation.level": "read_committed", "security.protocol": "SASL_SSL"}
    assert reading_settings({**own, **passed}) == passed


def test_names_that_differ_are_translated() -> None:
    java = {"fetch.max.wait.ms": "1", "receive.buffer.bytes": "2", "ssl.endpoint.identification.algorithm": ""}
    assert reading_settings(java) == {
        "fetch.wait.max.ms": "1", "socket.receive.buffer.bytes": "2", "ssl.endpoint.identification.algorithm": "none"
    }  # fmt: skip


def test_a_login_of_java_gives_its_user_and_password() -> None:
    jaas = rf'{SCRAM} required username="a\"b" password = "c;\\d";'
    settings = security_settings({"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas})
    assert settings == {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": 'a"b', "sasl.password": r"c;\d"}


@pytest.mark.parametrize(
    "jaas", [f"{SCRAM} required;", "com.sun.security.auth.module.Krb5LoginModule required keyTab='/k';"]
)
def test_a_login_that_only_java_can_do_is_refused(jaas: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the login module \S+LoginModule.* cannot be used.*sasl.kerberos"):
        security_settings({"sasl.jaas.config": jaas})


@pytest.mark.parametrize("jaas", ["hush", 'username="u" password="hush";', "'hush' required", "hush,LoginModule x"])
def test_what_is_no_login_module_is_not_quoted(jaas: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the login module of sasl.jaas.config cannot be used") as raised:
        security_settings({"sasl.jaas.config": jaas})
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("java", "expected"),
    [
        ({"truststore.type": "PEM", "truststore.location": "/ca"}, {"ssl.ca.location": "/ca"}),
        ({"truststore.type": "PEM", "truststore.certificates": "---"}, {"ssl.ca.pem": "---"}),
        (
            {"keystore.type": "PEM", "keystore.location": "/k", "key.password": "p"},
            {"ssl.key.location": "/k", "ssl.certificate.location": "/k", "ssl.key.password": "p"},
        ),
        (
            {"keystore.type": "PEM", "keystore.key": "-k-", "keystore.certificate.chain": "-c-"},
            {"ssl.key.pem": "-k-", "ssl.certificate.pem": "-c-"},
        ),
        (
            {"keystore.type": "PKCS12", "keystore.location": "/k", "keystore.password": "p"},
            {"ssl.keystore.location": "/k", "ssl.keystore.password": "p"},
        ),
        ({"ca.location": "/ca"}, {"ssl.ca.location": "/ca"}),
    ],
)
def test_stores_that_openssl_can_read_are_handed_on(java: dict[str, str], expected: dict[str, str]) -> None:
    assert security_settings({f"ssl.{key}": value for key, value in java.items()}) == expected


@pytest.mark.parametrize(
    ("java", "message"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "/t.jks .* type JKS.*ssl.truststore.type=PEM.*ssl.ca.location"),
        ({"ssl.truststore.location": "/t", "ssl.truststore.type": "PKCS12"}, "type PKCS12.*ssl.ca.location"),
        ({"ssl.keystore.location": "/k.jks"}, "/k.jks .* type JKS.*PEM or PKCS12.*ssl.certificate.location"),
    ],
)
def test_stores_that_only_java_can_read_are_refused(java: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        security_settings(java)


def builder(**properties: Any) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("clicks")
    made = made.set_value_only_deserializer(SimpleStringSchema())
    return made.set_properties({key.replace("_", "."): value for key, value in properties.items()})


def settings_of(source: KafkaSource) -> KafkaSourceSettings:
    """What the reader of a source is given."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(source_module, "KafkaSplitReader", lambda settings: settings)
        given: Any = source.create_reader()
    assert isinstance(given, KafkaSourceSettings)
    return given


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"fetch_min_byte": "1"}, "No such configuration property: .fetch.min.byte.*KafkaSource clicks at localhost:1"),
        ({"fetch_min_bytes": "many"}, "Invalid value for configuration property .fetch.min.bytes"),
        ({"ssl_engine_factory_class": "a.B"}, "ssl.engine.factory.class"),
        (
            {"partition_discovery_interval_ms": "5 min"},
            "partition.discovery.interval.ms is no number.*expected a whole",
        ),
    ],
)
def test_a_property_that_cannot_be_used_is_named_when_the_source_is_built(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        builder(**properties).build()


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("config.providers", "file", r"the property config\.providers needs"),
        ("config.providers.file.class", "a.FileConfigProvider", r"the property config\.providers\.file\.class needs"),
        ("sasl.password", "${file:/run/secrets/kafka:password}", r"\$\{file:/run/secrets/kafka:password\} of the "),
        ("client.id", "app-${env:HOST}", r"the value \$\{env:HOST\} of the property client\.id needs"),
        ("ssl.key.location", "${directory:/keys}", r"the value \$\{directory:/keys\} of the property ssl\.key\."),
    ],
)
@pytest.mark.parametrize("side", [reading_settings, writing_settings])
def test_config_providers_are_refused_with_what_to_do_instead(
    side: Callable[[dict[str, str]], object], key: str, value: str, what: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{what}.*in the program and set the property to what is there"):
        side({"bootstrap.servers": "localhost:1", key: value})


#: What programs set for consumer and producer alike.
OF_BOTH = {
    "bootstrap.servers": "localhost:1", "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": "true",
    "max.poll.records": "5", "key.deserializer": "x", "value.serializer": "y", "acks": "all", "buffer.memory": "99999",
    "fetch.max.wait.ms": "10", "max.request.size": "2000000", "receive.buffer.bytes": "65536",
}  # fmt: skip
ONLY_IN_JAVA = {
    "interceptor.classes": "a.B", "metric.reporters": "", "metrics.num.samples": "2", "zookeeper.connect": "z:2181",
    "partitioner.class": "a.C", "flink.poll-timeout": "100",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["source", "sink", "former source", "former sink"])
def test_properties_that_only_java_or_the_other_side_knows_are_taken_with_one_warning(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    no_effect.forget_reports()
    properties = {**OF_BOTH, **ONLY_IN_JAVA}
    sink = sink_builder()
    for key, value in properties.items():
        sink.set_property(key, value)
    make: dict[str, Callable[[], object]] = {
        "source": builder().set_properties(properties).build,
        "sink": sink.build,
        "former source": lambda: FlinkKafkaConsumer("t", SimpleStringSchema(), properties),
        "former sink": lambda: FlinkKafkaProducer("t", SimpleStringSchema(), properties),
    }
    with caplog.at_level(logging.WARNING):
        make[kind]()
        make[kind]()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{', '.join(sorted(ONLY_IN_JAVA))} of Kafka")
    assert "has no effect: only Kafka's clients in Java have such properties" in said


@pytest.mark.parametrize(
    ("properties", "start"),
    [
        ({}, KafkaOffsetsInitializer.latest()),
        ({"auto.offset.reset": "latest"}, KafkaOffsetsInitializer.latest()),
        ({"auto.offset.reset": "earliest"}, KafkaOffsetsInitializer.earliest()),
        (
            {"auto.offset.reset": "earliest", "group.id": "g"},
            KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST),
        ),
    ],
)
def test_the_former_consumer_begins_without_a_group_as_auto_offset_reset_says(
    properties: dict[str, str], start: KafkaOffsetsInitializer
) -> None:
    made = FlinkKafkaConsumer("t", SimpleStringSchema(), {"bootstrap.servers": "localhost:1", **properties})
    assert settings_of(made).starting == start
    assert settings_of(made).commits_offsets == ("group.id" in properties)


def test_the_former_consumer_needs_a_group_to_begin_only_at_its_offsets() -> None:
    with pytest.raises(ConfigurationError, match=r"auto.offset.reset is none, and there is no group\.id"):
        FlinkKafkaConsumer("t", SimpleStringSchema(), {"bootstrap.servers": "l:1", "auto.offset.reset": "none"})


def test_a_client_bears_the_prefix_that_was_given() -> None:
    settings = settings_of(builder(client_id_prefix="shop").build()).consumer_settings("reader")
    assert settings["client.id"].startswith("shop-reader-")
    assert "client.id" not in settings_of(builder().build()).consumer_settings("reader")


@pytest.mark.parametrize(
    ("given", "level"),
    [({}, "read_uncommitted"), ({"isolation_level": "read_committed"}, "read_committed")],
)
def test_planner_and_readers_have_the_same_isolation_level_by_default_that_of_java(
    given: dict[str, str], level: str
) -> None:
    settings = settings_of(builder(**given).build())
    assert settings.consumer_settings("reader")["isolation.level"] == level
    assert settings.read_committed == (level == "read_committed")


@pytest.mark.parametrize(("parallelism", "first"), [(1, 0), (2, 0), (3, 1), (7, 3)])
def test_partitions_go_to_the_subtasks_that_flink_gives_them_to(parallelism: int, first: int) -> None:
    # (("page-views".hashCode() * 31) & 0x7FFFFFFF) % parallelism, by Java
    source = builder().build()
    expected = [(first + partition) % parallelism for partition in range(9)]
    assert [source.subtask_of(f"page-views-{partition}", parallelism) for partition in range(9)] == expected


def test_a_missing_client_is_told_with_the_packages_that_bring_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(
        EnvironmentVersionError, match=r"confluent-kafka is missing.*pip install confluent-kafka msgspec"
    ):
        builder().build()


def sink_builder() -> KafkaSinkBuilder:
    serializer = KafkaRecordSerializationSchema.builder().set_topic("out")
    serializer.set_value_serialization_schema(SimpleStringSchema())
    return KafkaSink.builder().set_bootstrap_servers("localhost:1").set_record_serializer(serializer.build())


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_how_many_acknowledge_is_the_sinks_business_and_java_programs_may_say_it(acks: str) -> None:
    java = {"acks": acks, "buffer.memory": "33554432", "max.block.ms": "60000", "compression.type": "lz4"}
    builder = sink_builder()
    for key, value in java.items():
        builder = builder.set_property(key, value)
    builder.build()
    assert writing_settings(java) == {"compression.type": "lz4"}


def test_a_property_that_no_producer_knows_is_refused_when_the_sink_is_built() -> None:
    with pytest.raises(ConfigurationError, match="lingerr.ms"):
        sink_builder().set_property("lingerr.ms", "5").build()


def test_keys_go_to_the_partitions_that_javas_producer_gives_them() -> None:
    found: dict[bytes, int] = {}
    producer = new_producer({"test.mock.num.brokers": 1}, "KafkaSink")
    # Kafka's own examples of its hash; a topic of the client's cluster in memory has 4 partitions
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key in hashes:
        producer.produce("t", b"", key, on_delivery=lambda _, record: found.update({record.key(): record.partition()}))
    assert producer.flush(30) == 0
    assert found == {key: (value & 0x7FFFFFFF) % 4 for key, value in hashes.items()}


def test_a_header_provider_may_give_none_for_a_record_without_headers() -> None:
    builder = KafkaRecordSerializationSchema.builder().set_topic("t")
    builder.set_value_serialization_schema(SimpleStringSchema()).set_header_provider(lambda _: None)
    assert builder.build().headers_batch(["a"]) == [[]]


@pytest.mark.parametrize(
    ("properties", "length", "refused"),
    [
        ({}, 999_000, False),
        ({}, 1_000_001, True),
        ({"max.request.size": "2000"}, 2_001, True),
        ({"message.max.bytes": "3000000"}, 2_000_000, False),
    ],
)
def test_a_message_that_the_client_would_not_send_is_refused_before_its_epoch_is_prepared(
    properties: dict[str, str], length: int, refused: bool
) -> None:
    serializer = KafkaRecordSerializationSchema.builder().set_topic("t")
    serializer.set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_bootstrap_servers("host:1").set_record_serializer(serializer.build())
    for key, value in properties.items():
        builder.set_property(key, value)
    writer = builder.build().create_writer()
    assert len(writer.write(["short", "x"], None)) == 2
    with pytest.raises(ProgramError, match=f"'xxx.*{length} bytes.*prepared") if refused else nullcontext():
        assert len(writer.write(["short", None, "x" * length], None)) == 3
