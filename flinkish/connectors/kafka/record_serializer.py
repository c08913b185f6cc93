"""PyFlink's serializer of Kafka records: a topic or topic selector, schemas for key and value, and headers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from flinkish.common.arguments import check_instance, kind_of, result_of_each
from flinkish.common.serialization import RowFieldExtractorSchema, SerializationSchema, batch_serializer
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.types import Row, RowKind, check_inserts_only
from flinkish.errors import ArgumentTypeError, ConfigurationError, TypeMismatchError


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
