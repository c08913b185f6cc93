"""Makes records of the stream of what Kinesis has stored: takes aggregates of the Kinesis Producer Library apart, and
deserializes.

The form of an aggregate is that of AWS's "KPL aggregated record format": four bytes, a message of Protocol Buffers with
the keys and the records, and the MD5 of that message.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

from flinkish.common.arguments import result_of_each
from flinkish.common.detach import handing_over
from flinkish.common.serialization import DeserializationSchema, batch_deserializer
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.source import SplitRecords
from flinkish.errors import MalformedRecordError, ProgramError

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16

#: The deserializer of a Kinesis source: of the data only, or of whole Kinesis records.
Schema: TypeAlias = "DeserializationSchema | KinesisDeserializationSchema"


class KinesisRecord(NamedTuple):
    """A record of a shard. The time of arrival is in ms since the Unix epoch. ``hash_key``: the key by which the
    producer has chosen the shard, if not that of the partition key."""

    data: bytes
    partition_key: str
    sequence_number: str
    arrival_ms: int
    hash_key: int | None = None


class KinesisDeserializationSchema(ABC):
    """Deserializes whole Kinesis records, as Java's interface of this name; PyFlink has only a wrapper of it."""

    @abstractmethod
    def deserialize(
        self,
        record_value: bytes,
        partition_key: str,
        sequence_number: str,
        approximate_arrival_timestamp: int,
        stream: str,
        shard_id: str,
    ) -> Any:
        """The record of the stream; None: the Kinesis record is left out. The time is in ms since the Unix epoch."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """The type of the records that `deserialize` returns."""


def decoded(
    schema: Schema, records: list[KinesisRecord], stream: str, shard: str, with_timestamps: bool
) -> SplitRecords:
    """Deserialize records of one shard; what the schema passes over is left out.

    Raises:
        MalformedRecordError: the schema refuses a record; the error names shard and sequence number.
    """
    try:
        values = _deserialized(schema, records, stream, shard)
    except MalformedRecordError:
        raise _located(schema, records, stream, shard) from None
    kept = [value is not None for value in values]
    timestamps = [record.arrival_ms for record in records] if with_timestamps else None
    if not all(kept):
        values = list(compress(values, kept))
        timestamps = None if timestamps is None else list(compress(timestamps, kept))
    return SplitRecords(values, timestamps, newest_ms=records[-1].arrival_ms)


def _deserialized(schema: Schema, records: list[KinesisRecord], stream: str, shard: str) -> list[Any]:
    if not isinstance(schema, KinesisDeserializationSchema):
        return batch_deserializer(schema)([record.data for record in records])
    whole = schema.deserialize

    def deserialize(record: KinesisRecord) -> Any:
        return whole(record.data, record.partition_key, record.sequence_number, record.arrival_ms, stream, shard)

    return result_of_each(handing_over(deserialize), records, f"{type(schema).__name__}.deserialize()")


def _located(schema: Schema, records: list[KinesisRecord], stream: str, shard: str) -> Exception:
    """The schema's error with shard and sequence number, found by deserializing the records one by one."""
    for record in records:
        try:
            _deserialized(schema, [record], stream, shard)
        except MalformedRecordError as error:
            place = f"stream {stream}, {shard}, sequence number {record.sequence_number}"
            where = ", ".join(part for part in (place, error.where) if part)
            return MalformedRecordError(error.what, where=where, expected=error.expected, hint=error.hint)
    return ProgramError("the schema refuses a batch of records and none of them alone", where=type(schema).__name__)


def user_records(found: list[dict[str, Any]], first_hash: int, last_hash: int) -> list[KinesisRecord]:
    """The records of users in what a request has read from a shard with these hash keys, in order.

    Of an aggregate only the records count whose hash keys belong to the shard: the producer sends the others again when
    it learns that the shards have changed, as AWS's own consumers expect.
    """
    records: list[KinesisRecord] = []
    for one in found:
        arrival_ms = round(one["ApproximateArrivalTimestamp"].timestamp() * 1000)
        stored = KinesisRecord(one["Data"], one["PartitionKey"], one["SequenceNumber"], arrival_ms)
        parts = _parts(stored)
        if parts is None:
            records.append(stored)
        else:
            records.extend(part for part in parts if first_hash <= _hash_key(part) <= last_hash)
    return records


def _hash_key(record: KinesisRecord) -> int:
    if record.hash_key is not None:
        return record.hash_key
    return int.from_bytes(hashlib.md5(record.partition_key.encode(), usedforsecurity=False).digest(), "big")


def _parts(stored: KinesisRecord) -> list[KinesisRecord] | None:
    """The records of an aggregate; None: it is none, as it is for AWS's own consumers if the digest does not fit."""
    data = stored.data
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + _DIGEST_BYTES:
        return None
    message, digest = data[len(_MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    keys: list[str] = []
    hash_keys: list[int] = []
    found: list[dict[int, Any]] = []
    try:
        for number, value in _fields(message):
            if number == 1:
                keys.append(value.decode())
            elif number == 2:
                hash_keys.append(int(value))
            elif number == 3:
                found.append(dict(_fields(value)))
        return [
            KinesisRecord(
                fields[3],
                keys[fields[1]],
                stored.sequence_number,
                stored.arrival_ms,
                hash_keys[fields[2]] if 2 in fields else None,
            )
            for fields in found
        ]
    except (IndexError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise MalformedRecordError(
            f"an aggregate of the Kinesis Producer Library cannot be taken apart: {error}",
            where=f"sequence number {stored.sequence_number}",
            expected="the message AggregatedRecord",
        ) from error


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message of Protocol Buffers: (number, an int or bytes).

    >>> list(_fields(b"\\x08\\x96\\x01\\x12\\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    at = 0

    def whole_number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    while at < len(message):
        tag = whole_number()
        if tag & 7 == 0:
            yield tag >> 3, whole_number()
        elif tag & 7 == 2:
            size = whole_number()
            if at + size > len(message):
                raise ValueError("a field that is longer than its message")
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError(f"a field of the kind {tag & 7}")
