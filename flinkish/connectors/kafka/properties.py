"""Translates the properties of Java's Kafka clients, as users of Flink write them, into librdkafka's; and says which
delivery guarantees a program may ask of a sink.

Rule: a property that has another name in librdkafka is translated. A property without a meaning for librdkafka, or for
a reader that is assigned its partitions, is left out; if it would change something in Java's client, a warning says so.
Every other property is passed to librdkafka, which refuses those that it does not know. Programs often use the same
properties for readers and writers, so either gets what only the other one needs, too. No property that decides how a
connection is secured is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from flinkish.common.no_effect import warn_without_effect
from flinkish.errors import ConfigurationError


class DeliveryGuarantee(Enum):
    """The delivery guarantee that a program asks of a sink."""

    # PyFlink's values, including the tuples
    EXACTLY_ONCE = (0,)
    AT_LEAST_ONCE = (1,)
    NONE = 2


#: Flink's own properties of a Kafka source
CLIENT_ID_PREFIX = "client.id.prefix"
COMMIT_OFFSETS = "commit.offsets.on.checkpoint"
DISCOVERY_INTERVAL_MS = "partition.discovery.interval.ms"
#: the default of Java's client, which Flink users know; librdkafka's is read_committed
DEFAULT_ISOLATION = {"isolation.level": "read_uncommitted"}

# Flink's own properties, those that the source or the sink decides itself, and those that only concern members of a
# consumer group or how Java's clients hand records over and accept them
_NOT_PASSED_ON = {
    CLIENT_ID_PREFIX,
    COMMIT_OFFSETS,
    DISCOVERY_INTERVAL_MS,
    "acks",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "bootstrap.servers",
    "buffer.memory",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "exclude.internal.topics",
    "group.id",
    "key.deserializer",
    "key.serializer",
    "max.block.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "register.consumer.metrics",
    "request.required.acks",
    "transactional.id",
    "value.deserializer",
    "value.serializer",
}
# properties of Java's clients, and of what often stands beside them, that librdkafka does not have
_ONLY_IN_JAVA = {
    "auto.include.jmx.reporter",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "flink.disable-metrics",
    "flink.poll-timeout",
    "interceptor.classes",
    "metadata.max.idle.ms",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.class",
    "partitioner.ignore.keys",
    "register.producer.metrics",
    "schema.registry.url",
    "socket.connection.setup.timeout.max.ms",
    "zookeeper.connect",
}
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
# a producer of librdkafka has a property of this name
_RENAMED_FOR_READERS = {**_RENAMED, "request.timeout.ms": "socket.timeout.ms"}
# a value that a config provider of Java's clients would replace, such as ${file:/run/secrets/kafka:password}
_PROVIDED = re.compile(r"\$\{[\w.-]+:[^}]*\}")
# properties for encryption and credentials that librdkafka knows by the same name
_SECURITY = ("security.protocol", "enable.ssl.certificate.verification")
_SECURITY_PREFIXES = ("sasl.", "ssl.")
_TRANSLATED = ("sasl.jaas.config", "ssl.endpoint.identification.algorithm")
_TRANSLATED_PREFIXES = ("ssl.truststore.", "ssl.keystore.")


def security_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of librdkafka for encryption and credentials.

    Raises:
        ConfigurationError: a key store, trust store or login module that librdkafka cannot read, or any property whose
            value is to come from a config provider.

    >>> jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    >>> security_settings({"sasl.jaas.config": jaas, "fetch.min.bytes": "1"})
    {'sasl.username': 'a', 'sasl.password': 'b'}
    >>> security_settings({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/ca.pem"})
    {'ssl.ca.location': '/etc/ca.pem'}
    """
    _refuse_config_providers(properties)
    settings: dict[str, Any] = {
        key: value
        for key, value in properties.items()
        if (key in _SECURITY or key.startswith(_SECURITY_PREFIXES))
        and not (key in _TRANSLATED or key.startswith(_TRANSLATED_PREFIXES))
    }
    if "ssl.endpoint.identification.algorithm" in properties:
        # an empty text turns the verification of the host name off in Java, and is "none" in librdkafka
        settings["ssl.endpoint.identification.algorithm"] = (
            properties["ssl.endpoint.identification.algorithm"] or "none"
        )
    return {**settings, **_login(properties), **_trust_store(properties), **_key_store(properties)}


def reading_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of librdkafka for a consumer, without its servers, its group and its client id.

    >>> reading_settings({"fetch.max.wait.ms": "10", "max.poll.records": "500", "isolation.level": "read_committed"})
    {'fetch.wait.max.ms': '10', 'isolation.level': 'read_committed'}
    """
    return _settings(properties, _RENAMED_FOR_READERS)


def writing_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of librdkafka for a producer, without its servers and its transactional id.

    >>> writing_settings({"linger.ms": "5", "max.request.size": "1000", "key.serializer": "StringSerializer"})
    {'linger.ms': '5', 'message.max.bytes': '1000'}
    """
    return _settings(properties, _RENAMED)


def warn_of_java_only(properties: Mapping[str, str], where: str) -> None:
    """Log, once per process, which of the properties have no effect because only Java's clients have them."""
    found = sorted(_ONLY_IN_JAVA & properties.keys())
    if found:
        warn_without_effect(f"{', '.join(found)} of {where}", "only Kafka's clients in Java have such properties")


def _settings(properties: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, Any]:
    left_out = _NOT_PASSED_ON | _ONLY_IN_JAVA
    plain = {
        renamed.get(key, key): value
        for key, value in properties.items()
        if key not in left_out and key not in _SECURITY and not key.startswith(_SECURITY_PREFIXES)
    }
    return {**plain, **security_settings(properties)}


def is_read_committed(properties: Mapping[str, str]) -> bool:
    """Whether the properties ask for records of committed transactions only."""
    return {**DEFAULT_ISOLATION, **properties}["isolation.level"] == "read_committed"


def whole_number(properties: Mapping[str, str], key: str, default: int) -> int:
    """The value of a property as an int; ``default`` if it is not set.

    Raises:
        ConfigurationError: the property is no whole number.
    """
    try:
        return int(properties.get(key, default))
    except ValueError:
        raise ConfigurationError(
            f"the property {key} is no number", where="KafkaSource", expected="a whole number"
        ) from None


def _refuse_config_providers(properties: Mapping[str, str]) -> None:
    """Refuse config providers: without Java's clients, the texts that stand for secrets would be taken for these."""
    for key, value in properties.items():
        found = _PROVIDED.search(value) if isinstance(value, str) else None
        if found is not None or key == "config.providers" or key.startswith("config.providers."):
            what = f"the value {found[0]} of the property {key}" if found is not None else f"the property {key}"
            raise ConfigurationError(
                f"{what} needs a config provider, which only Kafka's clients in Java have",
                where="Kafka",
                expected="properties with their values",
                hint="read the file or the environment variable in the program and set the property to what is there; "
                "keys and certificates may stay in files: ssl.key.location, ssl.ca.location",
            )


def _login(properties: Mapping[str, str]) -> dict[str, Any]:
    jaas = properties.get("sasl.jaas.config", "").strip()
    if not jaas:
        return {}
    module = jaas.split()[0]
    found = {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", match[1])
        for name in ("username", "password")
        if (match := re.search(rf'\b{name}\s*=\s*"((?:[^"\\]|\\.)*)"', jaas))
    }
    if not module.endswith((".PlainLoginModule", ".ScramLoginModule")) or len(found) < 2:
        named = f"{module} " if re.fullmatch(r"[\w.$]+LoginModule", module) else ""  # or else it may be a password
        raise ConfigurationError(
            f"the login module {named}of sasl.jaas.config cannot be used",
            where="Kafka",
            expected='PlainLoginModule or ScramLoginModule with username="..." and password="..."',
            hint="set librdkafka's own properties instead: sasl.username, sasl.password, sasl.kerberos.*, "
            "sasl.oauthbearer.*",
        )
    return found


def _trust_store(properties: Mapping[str, str]) -> dict[str, Any]:
    if "ssl.truststore.certificates" in properties:
        return {"ssl.ca.pem": properties["ssl.truststore.certificates"]}
    location = properties.get("ssl.truststore.location")
    if location is None:
        return {}
    kind = properties.get("ssl.truststore.type", "JKS").upper()
    if kind != "PEM":
        raise _unreadable_store("ssl.truststore", location, kind, "PEM", "ssl.ca.location=<file.pem>")
    return {"ssl.ca.location": location}


def _key_store(properties: Mapping[str, str]) -> dict[str, Any]:
    if "ssl.keystore.key" in properties:
        chain = properties.get("ssl.keystore.certificate.chain", "")
        return {"ssl.key.pem": properties["ssl.keystore.key"], "ssl.certificate.pem": chain}
    location = properties.get("ssl.keystore.location")
    if location is None:
        return {}
    kind = properties.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        # one file with the private key and the chain of certificates
        return {"ssl.key.location": location, "ssl.certificate.location": location}
    if kind == "PKCS12":
        password = properties.get("ssl.keystore.password", "")
        return {"ssl.keystore.location": location, "ssl.keystore.password": password}
    instead = "ssl.certificate.location=<file.pem> and ssl.key.location=<file.pem>"
    raise _unreadable_store("ssl.keystore", location, kind, "PEM or PKCS12", instead)


def _unreadable_store(name: str, location: str, kind: str, expected: str, instead: str) -> ConfigurationError:
    return ConfigurationError(
        f"the store {location} ({name}.location) is of the type {kind}, which only Java can read",
        where="Kafka",
        expected=f"{name}.type={expected}",
        hint=f"convert it (keytool -importkeystore ... -deststoretype PKCS12, then openssl pkcs12) and set {instead}",
    )
