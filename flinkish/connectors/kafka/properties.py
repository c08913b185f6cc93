"""Translates the properties of Java's Kafka clients, as users of Flink write them, into librdkafka's.

Rule: a property that has another name in librdkafka is translated. A property without a meaning for librdkafka, or for
a reader that is assigned its partitions, is left out. Every other property is passed to librdkafka, which refuses those
that it does not know. No property that decides how a connection is secured is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flinkish.errors import ConfigurationError

#: Flink's own properties of a Kafka source
CLIENT_ID_PREFIX = "client.id.prefix"
COMMIT_OFFSETS = "commit.offsets.on.checkpoint"
DISCOVERY_INTERVAL_MS = "partition.discovery.interval.ms"
#: the default of Java's client, which Flink users know; librdkafka's is read_committed
DEFAULT_ISOLATION = {"isolation.level": "read_uncommitted"}

# Flink's own properties, those that the source decides itself, and those that only concern members of a consumer group
# or how Java's client hands records over
_NOT_PASSED_ON_BY_READERS = {
    CLIENT_ID_PREFIX,
    COMMIT_OFFSETS,
    DISCOVERY_INTERVAL_MS,
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "bootstrap.servers",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "exclude.internal.topics",
    "group.id",
    "key.deserializer",
    "max.poll.records",
    "partition.assignment.strategy",
    "register.consumer.metrics",
    "value.deserializer",
}
# properties that the sink decides itself, and those that only concern how Java's client accepts records
_NOT_PASSED_ON_BY_WRITERS = {
    "acks",
    "bootstrap.servers",
    "buffer.memory",
    "key.serializer",
    "max.block.ms",
    "request.required.acks",
    "transactional.id",
    "value.serializer",
}
_RENAMED_FOR_ALL = {
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
_RENAMED_FOR_READERS = {
    **_RENAMED_FOR_ALL,
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
}
_RENAMED_FOR_WRITERS = {**_RENAMED_FOR_ALL, "max.request.size": "message.max.bytes"}
# properties for encryption and credentials that librdkafka knows by the same name
_SECURITY = ("security.protocol", "enable.ssl.certificate.verification")
_SECURITY_PREFIXES = ("sasl.", "ssl.")
_TRANSLATED = ("sasl.jaas.config", "ssl.endpoint.identification.algorithm")
_TRANSLATED_PREFIXES = ("ssl.truststore.", "ssl.keystore.")


def security_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of librdkafka for encryption and credentials.

    Raises:
        ConfigurationError: a key store, trust store or login module that librdkafka cannot read.

    >>> jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    >>> security_settings({"sasl.jaas.config": jaas, "fetch.min.bytes": "1"})
    {'sasl.username': 'a', 'sasl.password': 'b'}
    >>> security_settings({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/ca.pem"})
    {'ssl.ca.location': '/etc/ca.pem'}
    """
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
    return _settings(properties, _NOT_PASSED_ON_BY_READERS, _RENAMED_FOR_READERS)


def writing_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of librdkafka for a producer, without its servers and its transactional id.

    >>> writing_settings({"linger.ms": "5", "max.request.size": "1000", "key.serializer": "StringSerializer"})
    {'linger.ms': '5', 'message.max.bytes': '1000'}
    """
    return _settings(properties, _NOT_PASSED_ON_BY_WRITERS, _RENAMED_FOR_WRITERS)


def _settings(properties: Mapping[str, str], not_passed_on: set[str], renamed: Mapping[str, str]) -> dict[str, Any]:
    plain = {
        renamed.get(key, key): value
        for key, value in properties.items()
        if key not in not_passed_on and key not in _SECURITY and not key.startswith(_SECURITY_PREFIXES)
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
            f"the property {key} is {properties[key]!r}", where="KafkaSource", expected="a whole number"
        ) from None


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
        raise ConfigurationError(
            f"the login module {module} of sasl.jaas.config cannot be used",
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
