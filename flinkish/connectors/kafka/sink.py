"""``KafkaSink``: serializes the records in the task, with a topic or topic selector, schemas for key and value, and
headers; and produces them to Kafka when their epoch commits.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import itemgetter
from typing import Any

from flinkish.common.arguments import check_instance, kind_of, refuse_own_methods, result_of_each
from flinkish.common.serialization import RowFieldExtractorSchema, SerializationSchema, abbreviated, batch_serializer
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.types import Row, RowKind, check_inserts_only
from flinkish.connectors.kafka.client import new_producer
from flinkish.connectors.kafka.committer import KafkaCommitter, KafkaTransactionCommitter
from flinkish.connectors.kafka.properties import DeliveryGuarantee, warn_of_java_only, writing_settings
from flinkish.core.sink import (
    Committer,
    Guarantee,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
    WriterSink,
)
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError, ProgramError, TypeMismatchError


class KafkaTopicSelector(ABC):
    """Chooses the topic that a record is written to."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The name of the topic for the record ``data``."""


@dataclass(frozen=True)
class KafkaRecordSerializationSchema:
    """Serializes records of the stream to Kafka records: topic, key, value and headers. Made by :meth:`builder`."""

    topic: str | None
    topic_selector: Callable[[Any], str] | None
    key_schema: SerializationSchema | None
    value_schema: SerializationSchema
    header_provider: Callable[[Any], Iterable[tuple[str, bytes | None]]] | None = None

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        return KafkaRecordSerializationSchemaBuilder()

    def serialize_batch(self, values: list[Any]) -> list[tuple[str, bytes | None, bytes | None]]:
        """(topic, key, value) for each record, in order.

        Raises:
            TypeMismatchError: the topic selector did not return a non-empty str; or the value is one field of a Row
                that is no insert.
        """
        if isinstance(self.value_schema, RowFieldExtractorSchema):
            check_inserts_only(values, "KafkaSink, RowFieldExtractorSchema")
        topics: Any = repeat(self.topic, len(values))
        if self.topic_selector is not None:
            topics = result_of_each(self.topic_selector, values, "the topic selector", "KafkaSink")
            for topic in topics:
                if not isinstance(topic, str) or not topic:
                    raise TypeMismatchError(
                        f"the topic selector gave {topic!r}", where="KafkaSink", expected="the name of a topic"
                    )
        keys: Any = repeat(None, len(values))
        if self.key_schema is not None:
            keys = batch_serializer(self.key_schema)(_with_fields_of(self.key_schema, values))
        return list(zip(topics, keys, batch_serializer(self.value_schema)(values), strict=True))

    def bind(self, type_info: TypeInformation) -> KafkaRecordSerializationSchema:
        """The same for records of this type."""
        key = None if self.key_schema is None else self.key_schema.bind(type_info)
        return replace(self, key_schema=key, value_schema=self.value_schema.bind(type_info))

    def headers_batch(self, values: list[Any]) -> list[list[tuple[str, bytes | None]]] | None:
        """The headers of each record, in order; None if there is no header provider.

        Raises:
            TypeMismatchError: the header provider gave something else than tuples (str, bytes or None).
        """
        if self.header_provider is None:
            return None
        provided = result_of_each(self.header_provider, values, "the header provider", "KafkaSink")
        found = [list(headers or ()) for headers in provided]
        for headers in found:
            if not all(isinstance(header, tuple) and len(header) == 2 and _is_header(*header) for header in headers):
                raise TypeMismatchError(
                    f"the header provider gave {headers!r:.200}",
                    where="KafkaSink",
                    expected="tuples of a name (str) and a value (bytes or None)",
                )
        return found


def _with_fields_of(schema: SerializationSchema, values: list[Any]) -> list[Any]:
    """The records that a schema serializes: if it has fewer fields than a record, only these, which are found by their
    names if the record has all of them, else the first ones (Flink's schemas always take the first ones)."""
    declared = getattr(schema, "_type_info", None)
    if not isinstance(declared, RowTypeInfo):
        return values
    names = declared.get_field_names()

    def fitting(value: Any) -> Any:
        if not isinstance(value, (Row, tuple)) or len(value) <= len(names):
            return value
        known = getattr(value, "_fields", ())
        places = [known.index(name) for name in names] if set(names) <= set(known) else range(len(names))
        kind = value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT
        return Row.of_kind(kind, *[value[place] for place in places])

    return list(map(fitting, values))


def _is_header(name: Any, value: Any) -> bool:
    return isinstance(name, str) and (value is None or isinstance(value, bytes))


#: The builder's name in error messages.
_BUILDER = "KafkaRecordSerializationSchema.builder()"


class KafkaRecordSerializationSchemaBuilder:
    """Builder of :class:`KafkaRecordSerializationSchema`."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None
        self._headers: Callable[[Any], Iterable[tuple[str, bytes | None]]] | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        check_instance(topic, str, "the topic is", _BUILDER, "give its name")
        self._check_no_topic()
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        is_selector = isinstance(topic_selector, KafkaTopicSelector)
        if not is_selector and not callable(topic_selector):
            raise ArgumentTypeError(
                f"topic_selector must be KafkaTopicSelector or a callable. It is {kind_of(topic_selector)}",
                where=_BUILDER,
                expected="a KafkaTopicSelector or a function of a record",
                hint="call set_topic(name) for one topic",
            )
        self._check_no_topic()
        self._selector = topic_selector.apply if is_selector else topic_selector  # type: ignore[union-attr, assignment]
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        self._check_schema(key_serialization_schema, self._key, "Key")
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        self._check_schema(value_serialization_schema, self._value, "Value")
        self._value = value_serialization_schema
        return self

    def _check_no_topic(self) -> None:
        if self._topic is not None or self._selector is not None:
            raise ConfigurationError(
                "Topic selector already set.",
                where=_BUILDER,
                expected="one of set_topic and set_topic_selector",
                hint="call exactly one of them, once",
            )

    @staticmethod
    def _check_schema(schema: SerializationSchema, before: SerializationSchema | None, which: str) -> None:
        check_instance(
            schema, SerializationSchema, f"the {which.lower()} schema is", _BUILDER, "such as SimpleStringSchema()"
        )
        if before is not None:
            raise ConfigurationError(
                f"{which} serializer already set.", where=_BUILDER, expected="one schema", hint="call it once"
            )

    def set_header_provider(
        self, header_provider: Callable[[Any], Iterable[tuple[str, bytes | None]]]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the function that gives the headers of a record, tuples (name, value), as Flink's ``HeaderProvider``
        does."""
        self._headers = header_provider
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """The serialization schema.

        Raises:
            ConfigurationError: no value schema, or not exactly one of topic and topic selector.
        """
        if self._value is None:
            raise ConfigurationError(
                "no value schema",
                where="KafkaRecordSerializationSchema",
                expected="how a record becomes the value of a Kafka record",
                hint="call set_value_serialization_schema(...)",
            )
        if (self._topic is None) == (self._selector is None):
            raise ConfigurationError(
                "where to write is not said exactly once",
                where="KafkaRecordSerializationSchema",
                expected="one of set_topic and set_topic_selector",
                hint="call exactly one of them",
            )
        return KafkaRecordSerializationSchema(self._topic, self._selector, self._key, self._value, self._headers)


@dataclass(frozen=True)
class KafkaSinkSettings:
    """The settings of a :class:`KafkaSink`, as its builder collects them."""

    bootstrap_servers: str = ""
    serializer: KafkaRecordSerializationSchema | None = None
    guarantee: DeliveryGuarantee = DeliveryGuarantee.NONE
    transactional_id_prefix: str = ""
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    #: whether Kafka's records have the timestamps of the stream's, and not the time of producing
    timestamped: bool = True


class KafkaSink(WriterSink, SupportsPreprocessing):
    """Produces records to Kafka with confluent-kafka (on the executors). Made by :meth:`builder`.

    Guarantee, by ``set_delivery_guarantee`` of the builder:

    * ``AT_LEAST_ONCE``: an epoch counts as committed when all in-sync replicas have acknowledged its records; an epoch
      that is committed again is produced again. ``NONE`` (PyFlink's default) does the same here.
    * ``EXACTLY_ONCE``: for consumers with ``isolation.level=read_committed``. The epoch's records and its number, kept
      as an offset of a consumer group, are one transaction; an epoch that is committed again finds its number and is
      skipped. The broker forgets that number ``offsets.retention.minutes`` (7 days) after the sink's last epoch.

    A worker process keeps its producers from epoch to epoch, and closes those that have been idle for a minute.
    """

    def __init__(self, settings: KafkaSinkSettings) -> None:
        self._settings = settings
        exact = settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE
        self.guarantee = Guarantee.EXACTLY_ONCE if exact else Guarantee.AT_LEAST_ONCE
        self.reads_timestamps = settings.timestamped

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        return KafkaSinkBuilder()

    def get_transformer(self) -> StreamTransformer | None:
        """None: topic selectors written in Python run in the writer, so the stream needs no preprocessing."""
        return None

    def with_input_type(self, input_type: TypeInformation) -> KafkaSink:
        """The same sink for a stream of this type, which decides the text that ``SimpleStringSchema`` writes."""
        assert self._settings.serializer is not None
        bound = copy.copy(self)
        bound._settings = replace(self._settings, serializer=self._settings.serializer.bind(input_type))
        return bound

    @property
    def _destination(self) -> str:
        assert self._settings.serializer is not None
        return f"Kafka {self._settings.bootstrap_servers}, topic {self._settings.serializer.topic}"

    def create_writer(self) -> SinkWriter:
        settings = self._settings
        assert settings.serializer is not None
        return KafkaWriter(settings.serializer, settings.timestamped, message_bytes_max(settings.properties))

    def create_committer(self) -> Committer:
        settings = self._settings
        if settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return KafkaTransactionCommitter(
                settings.bootstrap_servers, settings.properties, settings.transactional_id_prefix
            )
        return KafkaCommitter(settings.bootstrap_servers, settings.properties)


#: The place of the value in a record that is serialized.
_VALUE = itemgetter(2)
#: librdkafka's default of ``message.max.bytes``.
_MESSAGE_BYTES_MAX = 1_000_000


class KafkaWriter(SinkWriter):
    """Serializes records to the committables (topic, key, value, timestamp[, headers]), with the timestamp in ms.

    ``timestamped``: whether the timestamp is the record's; otherwise it is 0, for which Kafka's client sets the time of
    producing. ``bytes_max``: values with more bytes are refused, since the client would not send them; None: they are
    left to the committer.
    """

    def __init__(
        self, serializer: KafkaRecordSerializationSchema, timestamped: bool = True, bytes_max: int | None = None
    ) -> None:
        self._serializer = serializer
        self._timestamped = timestamped
        self._bytes_max = bytes_max

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        records: list[tuple[Any, ...]] = [*self._serializer.serialize_batch(values)]
        if self._bytes_max is not None:
            longest = max(filter(None, map(_VALUE, records)), key=len, default=b"")
            if len(longest) > self._bytes_max:
                raise self._too_long(values[list(map(_VALUE, records)).index(longest)], len(longest))
        if timestamps is None or not self._timestamped:
            records = [(*record, 0) for record in records]
        else:
            # a record without a timestamp has Long.MIN_VALUE; for 0 the client sets the time of producing
            records = [(*record, max(time_ms, 0)) for record, time_ms in zip(records, timestamps, strict=True)]
        headers = self._serializer.headers_batch(values)
        return records if headers is None else [(*record, own) for record, own in zip(records, headers, strict=True)]

    def _too_long(self, value: Any, size_bytes: int) -> ProgramError:
        return ProgramError(
            f"Kafka's client would refuse the record {abbreviated(value)}, whose value has {size_bytes} bytes",
            where="KafkaSink",
            expected=f"at most {self._bytes_max} bytes (max.request.size)",
            hint="make such records smaller, or raise max.request.size and the topic's max.message.bytes; nothing of "
            "the epoch is prepared, so a mended program goes on in the same directory",
        )


def message_bytes_max(properties: Mapping[str, str]) -> int:
    """The size of the largest message that the client sends with these properties."""
    return int(writing_settings(properties).get("message.max.bytes", _MESSAGE_BYTES_MAX))


#: Kafka's limit for transactional ids, less room for what follows the prefix.
_MAX_PREFIX_BYTES = 64_000


class KafkaSinkBuilder:
    """PyFlink's builder of :class:`KafkaSink`."""

    def __init__(self) -> None:
        self._settings = KafkaSinkSettings()

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the bootstrap servers: ``host:port``, several joined by commas."""
        self._settings = replace(self._settings, bootstrap_servers=bootstrap_servers)
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        hint = "such as DeliveryGuarantee.AT_LEAST_ONCE"
        check_instance(delivery_guarantee, DeliveryGuarantee, "the delivery guarantee is", "KafkaSink", hint)
        self._settings = replace(self._settings, guarantee=delivery_guarantee)
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the prefix of the transactional ids, which ``EXACTLY_ONCE`` needs:
        ``<prefix>-<job id>-<sink uid>-<subtask>``. At most 64,000 bytes."""
        check_instance(transactional_id_prefix, str, "the transactional id prefix is", "KafkaSink", "give a short text")
        if len(transactional_id_prefix.encode()) > _MAX_PREFIX_BYTES:
            raise ArgumentValueError(
                "The configured prefix is too long and the resulting transactionalId might exceed Kafka's "
                "transactionalIds size.",
                where="KafkaSink",
                expected=f"at most {_MAX_PREFIX_BYTES} bytes",
                hint="give a short text of this job's own",
            )
        self._settings = replace(self._settings, transactional_id_prefix=transactional_id_prefix)
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        check_instance(
            record_serializer,
            KafkaRecordSerializationSchema,
            "the record serializer is",
            "KafkaSink",
            "make one with KafkaRecordSerializationSchema.builder()",
        )
        hint = "put what is your own into a SerializationSchema, a topic selector or a header provider of the builder"
        refuse_own_methods(record_serializer, "the record serializer", "KafkaSink", hint)
        self._settings = replace(self._settings, serializer=record_serializer)
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of Kafka's Java producer, or of librdkafka's."""
        if value is None:
            raise ArgumentTypeError(
                f"the property {key} is None", where="KafkaSink", expected="a text", hint="leave it out"
            )
        self._settings = replace(self._settings, properties={**self._settings.properties, key: str(value)})
        return self

    def build(self) -> KafkaSink:
        """The sink.

        Raises:
            ConfigurationError: no servers, no serializer, EXACTLY_ONCE without a transactional id prefix, or a property
                that librdkafka refuses.
        """
        settings = self._settings
        if not settings.bootstrap_servers and "bootstrap.servers" in settings.properties:
            settings = replace(settings, bootstrap_servers=settings.properties["bootstrap.servers"])
        if not settings.bootstrap_servers:
            raise ConfigurationError(
                "no servers",
                where="KafkaSink",
                expected="host:port, or several with commas",
                hint="call set_bootstrap_servers('host:port')",
            )
        if settings.serializer is None:
            raise ConfigurationError(
                "no serializer",
                where="KafkaSink",
                expected="how a record becomes bytes",
                hint="call set_record_serializer(...)",
            )
        if settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE and not settings.transactional_id_prefix:
            raise ConfigurationError(
                "EXACTLY_ONCE without a name for the transactions",
                where="KafkaSink",
                expected="a prefix that no other job uses",
                hint="call set_transactional_id_prefix(...) with a text of this job's own",
            )
        # made only to validate the properties; without servers it connects to no broker
        new_producer(writing_settings(settings.properties), "KafkaSink").close()
        warn_of_java_only(settings.properties, "KafkaSink")
        return KafkaSink(settings)
