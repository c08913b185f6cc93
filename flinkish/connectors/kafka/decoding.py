"""The values of Kafka's messages through the schema; their timestamps beside them, in ms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from operator import itemgetter, methodcaller
from typing import Any

from flinkish.common.serialization import DeserializationSchema
from flinkish.core.source import SplitRecords
from flinkish.errors import MalformedRecordError, ProgramError

_value, _timestamp = methodcaller("value"), methodcaller("timestamp")
_milliseconds = itemgetter(1)


def decoded(schema: DeserializationSchema, messages: Sequence[Any], split: str) -> SplitRecords:
    """The records of messages of one partition, without those that hold no record (tombstones).

    Raises:
        MalformedRecordError: names partition and offset.
    """
    values = list(map(_value, messages))
    timestamps: Iterable[int] = map(_milliseconds, map(_timestamp, messages))
    try:
        records = schema.deserialize_batch(values)
    except MalformedRecordError:
        raise _located(schema, messages, split) from None
    if type(None) in set(map(type, records)):
        # null messages (tombstones) and what the schema was told to pass over
        kept = [record is not None for record in records]
        records, timestamps = list(compress(records, kept)), compress(timestamps, kept)
    return SplitRecords(records, list(timestamps))


def _located(schema: DeserializationSchema, messages: Sequence[Any], split: str) -> Exception:
    """The error again, with partition and offset: which record it was is asked of the schema one by one."""
    for message in messages:
        try:
            schema.deserialize_batch([message.value()])
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
