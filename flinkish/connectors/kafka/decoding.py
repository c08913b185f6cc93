"""Deserializes Kafka's messages to records, with Kafka's timestamps in ms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import compress
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple, TypeAlias

from flinkish.common.arguments import form_for_lists, result_of_each
from flinkish.common.detach import handing_over
from flinkish.common.serialization import DeserializationSchema, batch_deserializer
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.source import SplitRecords
from flinkish.errors import MalformedRecordError, ProgramError

#: The deserializer of a Kafka source: of values only, or of whole Kafka records.
Schema: TypeAlias = "DeserializationSchema | KafkaRecordDeserializationSchema"

_value, _timestamp = methodcaller("value"), methodcaller("timestamp")
_milliseconds = itemgetter(1)


class ConsumerRecord(NamedTuple):
    """A record of a topic, with all that Kafka keeps of it. The timestamp is in ms since the Unix epoch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class KafkaRecordDeserializationSchema(ABC):
    """Deserializes whole Kafka records, with their keys, headers and topics, to records of the stream."""

    @abstractmethod
    def deserialize(self, record: ConsumerRecord) -> Any:
        """The record of the stream, made of plain data (a tuple or Row, not the ConsumerRecord itself); None: the Kafka
        record is left out."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """The type of the records that `deserialize` returns."""

    def deserialize_batch(self, messages: Sequence[Any]) -> list[Any]:
        """The result of `deserialize` for each message (confluent-kafka's ``Message``), in order."""
        return result_of_each(
            handing_over(self.deserialize),
            [_record_of(message) for message in messages],
            f"{type(self).__name__}.deserialize()",
        )


def _record_of(message: Any) -> ConsumerRecord:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return ConsumerRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )


def decoded(schema: Schema, messages: Sequence[Any], split: str, with_timestamps: bool) -> SplitRecords:
    """Deserialize messages of one partition. Messages without a record (tombstones, and those that the schema passes
    over) are left out.

    Raises:
        MalformedRecordError: the schema refuses a message; the error names partition and offset.
    """
    try:
        records = deserializer_of(schema)(_input(schema, messages))
    except MalformedRecordError:
        raise _located(schema, messages, split) from None
    timestamps = list(map(_milliseconds, map(_timestamp, messages))) if with_timestamps else None
    # of the last message, which costs less than the greatest of all, and is the same whether anything reads timestamps
    newest_ms = _milliseconds(_timestamp(messages[-1]))
    if type(None) in set(map(type, records)):
        # messages without a value (tombstones), and those that the schema was told to pass over
        kept = [record is not None for record in records]
        records = list(compress(records, kept))
        timestamps = None if timestamps is None else list(compress(timestamps, kept))
    return SplitRecords(records, timestamps, newest_ms=newest_ms)


def deserializer_of(schema: Schema) -> Callable[[list[Any]], list[Any]]:
    """The function that deserializes many messages as ``schema.deserialize`` does one by one."""
    if isinstance(schema, KafkaRecordDeserializationSchema):
        return form_for_lists(schema, "deserialize", KafkaRecordDeserializationSchema.deserialize_batch)
    return batch_deserializer(schema)


def _input(schema: Schema, messages: Sequence[Any]) -> list[Any]:
    return list(messages if isinstance(schema, KafkaRecordDeserializationSchema) else map(_value, messages))


def _located(schema: Schema, messages: Sequence[Any], split: str) -> Exception:
    """The schema's error with partition and offset, found by deserializing the messages one by one."""
    for message in messages:
        try:
            deserializer_of(schema)(_input(schema, [message]))
        except MalformedRecordError as error:
            return MalformedRecordError(
                error.what,
                where=", ".join(
                    part for part in (f"partition {split}, offset {message.offset()}", error.where) if part
                ),
                expected=error.expected,
                hint=error.hint,
            )
    return ProgramError("the schema refuses a batch of messages and none of them alone", where=type(schema).__name__)
