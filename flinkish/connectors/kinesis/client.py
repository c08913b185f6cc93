"""The client of Kinesis and Firehose: boto3 with the properties of Flink's connector, and errors typed by who must act;
and the records of the stream that what Kinesis has stored stands for.

Requests that AWS refuses because there were too many of them are repeated with growing pauses, at most for
`RETRY_FOR_S`.
"""

from __future__ import annotations

import hashlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

from flinkish.common.arguments import result_of_each
from flinkish.common.detach import handing_over
from flinkish.common.serialization import DeserializationSchema, batch_deserializer
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.source import SplitRecords
from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    EnvironmentVersionError,
    FinalOperationError,
    FlinkishError,
    MalformedRecordError,
    ProgramError,
)

#: How long a request that is refused for a while is repeated, in seconds.
RETRY_FOR_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5.0, 20.0

#: Error codes of requests and of single records that may succeed a little later.
PASSING = frozenset(
    (
        *("ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException"),
        *("ThrottlingException", "Throttling", "RequestLimitExceeded", "RequestThrottled", "SlowDown"),
        *("InternalFailure", "InternalFailureException", "InternalServerError", "ServiceUnavailable"),
        *("ServiceUnavailableException", "ResourceInUseException"),
    )
)
#: The error code of an iterator that has not been used for five minutes.
EXPIRED_ITERATOR = "ExpiredIteratorException"

_PROVIDER = "aws.credentials.provider"
#: Property -> the argument of ``boto3.Session`` or of its ``client``.
_SESSION = {
    "aws.region": "region_name",
    f"{_PROVIDER}.basic.accesskeyid": "aws_access_key_id",
    f"{_PROVIDER}.basic.secretkey": "aws_secret_access_key",
    f"{_PROVIDER}.basic.sessiontoken": "aws_session_token",
    f"{_PROVIDER}.profile.name": "profile_name",
}
_ROLE = {f"{_PROVIDER}.role.arn": "RoleArn", f"{_PROVIDER}.role.sessionName": "RoleSessionName"}
_ROLE[f"{_PROVIDER}.role.externalId"] = "ExternalId"
ENDPOINT = "aws.endpoint"
#: The properties that name the service, and what gives access to it.
PROPERTIES = frozenset((*_SESSION, *_ROLE, _PROVIDER, ENDPOINT))
_PROVIDERS = ("AUTO", "BASIC", "ENV_VAR", "PROFILE", "ASSUME_ROLE")


class ExpiredIteratorError(Exception):
    """An iterator was not used for five minutes; a new one at the same position goes on."""


class Shard(NamedTuple):
    """A shard of a stream. Its hash keys are those from ``first_hash`` to ``last_hash``."""

    id: str
    parents: tuple[str, ...]
    first_hash: int
    last_hash: int
    is_open: bool


class Read(NamedTuple):
    """What a request has read: AWS's records, the iterator that goes on (None: the shard is closed, and this is its
    end), and whether these are the newest records."""

    records: list[dict[str, Any]]
    iterator: str | None
    is_newest: bool


def driver(purpose: str) -> Any:
    """The module boto3.

    Raises:
        EnvironmentVersionError: it is not installed; the message names ``purpose``, which needs it.
    """
    try:
        import boto3
    except ImportError as error:
        raise EnvironmentVersionError(
            f"boto3 is missing, and {purpose} needs it: {error}",
            where="Kinesis",
            expected="boto3 on the driver and executors",
            hint="pip install boto3",
        ) from error
    return boto3


def check_properties(properties: Mapping[str, str], others: frozenset[str], where: str) -> None:
    """Raise ConfigurationError for a property that neither the client knows nor ``others`` has, and for a way to get
    credentials that is not known."""
    unknown = sorted(set(properties) - PROPERTIES - others)
    if unknown:
        raise ConfigurationError(
            f"there is no property {unknown[0]!r}", where=where, expected=", ".join(sorted(PROPERTIES | others))
        )
    provider = properties.get(_PROVIDER, "AUTO")
    if provider not in _PROVIDERS:
        raise ConfigurationError(f"{_PROVIDER} is {provider!r}", where=where, expected=" or ".join(_PROVIDERS))


def new_client(service: str, properties: Mapping[str, str], where: str) -> Any:
    """A client of boto3 for a service.

    Raises:
        ConfigurationError: there is no region, or a property that boto3 refuses.
        EnvironmentVersionError: boto3 is missing.
    """
    boto3 = driver(where)
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    session = {_SESSION[key]: value for key, value in properties.items() if key in _SESSION}
    settings = Config(
        connect_timeout=_CONNECT_TIMEOUT_S, read_timeout=_READ_TIMEOUT_S, retries={"total_max_attempts": 2}
    )
    try:
        made = boto3.Session(**session)
        role = {_ROLE[key]: value for key, value in properties.items() if key in _ROLE}
        if role:
            given = made.client("sts").assume_role(**{"RoleSessionName": "flinkish", **role})["Credentials"]
            made = boto3.Session(
                given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], session.get("region_name")
            )
        return made.client(service, endpoint_url=properties.get(ENDPOINT), config=settings)
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"boto3 makes no client: {error}",
            where=where,
            expected="aws.region, and credentials by aws.credentials.provider or the environment",
        ) from error


def asked(request: Callable[..., Any], where: str, **arguments: Any) -> Any:
    """The answer to a request, which is repeated while it is refused for a while.

    Raises:
        ConnectionFailedError: AWS cannot be reached, or goes on refusing.
        FinalOperationError: there is no such stream, or no access to it.
        ExpiredIteratorError: the request is for records, and its iterator has expired.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    deadline, pause = time.monotonic() + RETRY_FOR_S, _FIRST_PAUSE_S
    while True:
        try:
            return request(**arguments)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code == EXPIRED_ITERATOR:
                raise ExpiredIteratorError from None
            if code not in PASSING or time.monotonic() + pause > deadline:
                raise _typed(error, code, where) from error
        except BotoCoreError as error:
            raise _unreachable(error, where) from error
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _typed(error: Any, code: str, where: str) -> FlinkishError:
    if code in PASSING:
        return ConnectionFailedError(
            f"AWS refuses requests for {RETRY_FOR_S:.0f} s: {error}",
            where=where,
            expected="fewer requests of others for these shards, or more shards",
        )
    missing = code == "ResourceNotFoundException"
    return FinalOperationError(
        str(error),
        where=where,
        expected="a stream that exists in this region and account" if missing else "access to the stream",
        hint="aws.region and the name of the stream" if missing else "credentials, and the policy of the role or user",
    )


def _unreachable(error: Any, where: str) -> FlinkishError:
    from botocore.exceptions import NoCredentialsError, PartialCredentialsError

    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return FinalOperationError(
            str(error), where=where, expected="credentials by aws.credentials.provider, or boto3's own ways"
        )
    return ConnectionFailedError(
        f"AWS does not answer: {error}", where=where, expected="a service that can be reached from this machine"
    )


class KinesisClient:
    """The requests that a source makes. Each raises what `asked` raises.

    Args:
        properties: properties of Flink's connector.
        where: the source or sink, for messages.
    """

    def __init__(self, properties: Mapping[str, str], where: str) -> None:
        self._client, self._where = new_client("kinesis", properties, where), where

    def identity(self, stream: str) -> str:
        """What distinguishes a stream from others that have had its name: the time at which it was made."""
        found = asked(self._client.describe_stream_summary, self._where, StreamName=stream)
        made: datetime = found["StreamDescriptionSummary"]["StreamCreationTimestamp"]
        return made.astimezone(timezone.utc).isoformat()

    def shards(self, stream: str) -> tuple[list[Shard], int]:
        """The shards whose records are kept, in the order of their ids, and the time of AWS in ms since the Unix epoch,
        rounded down to seconds."""
        found: list[dict[str, Any]] = []
        arguments: dict[str, Any] = {"StreamName": stream}
        while True:
            page = asked(self._client.list_shards, self._where, **arguments)
            found += page["Shards"]
            token = page.get("NextToken")
            if not token:
                break
            arguments = {"NextToken": token}
        date = page["ResponseMetadata"]["HTTPHeaders"].get("date")
        now_s = time.time() if date is None else parsedate_to_datetime(date).timestamp()
        shards = [
            Shard(
                shard["ShardId"],
                tuple(shard[key] for key in ("ParentShardId", "AdjacentParentShardId") if shard.get(key)),
                int(shard["HashKeyRange"]["StartingHashKey"]),
                int(shard["HashKeyRange"]["EndingHashKey"]),
                not shard["SequenceNumberRange"].get("EndingSequenceNumber"),
            )
            for shard in found
        ]
        return sorted(shards), int(now_s) * 1000

    def iterator(self, stream: str, shard: str, position: int, at_ms: int | None) -> str:
        """An iterator behind the record with the sequence number ``position - 1``; for position 0 at the time
        ``at_ms``, or, if that is None, at the oldest record."""
        if position > 0:
            start: dict[str, Any] = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER"}
            start["StartingSequenceNumber"] = str(position - 1)
        elif at_ms is not None:
            moment = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
            start = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
        else:
            start = {"ShardIteratorType": "TRIM_HORIZON"}
        found = asked(self._client.get_shard_iterator, self._where, StreamName=stream, ShardId=shard, **start)
        iterator: str = found["ShardIterator"]
        return iterator

    def keeps(self, stream: str, shard: str, number: int) -> bool:
        """Whether the record with this sequence number is still kept."""
        start = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": str(number)}
        found = asked(self._client.get_shard_iterator, self._where, StreamName=stream, ShardId=shard, **start)
        records = self.read(found["ShardIterator"], 1).records
        return bool(records) and records[0]["SequenceNumber"] == str(number)

    def read(self, iterator: str, limit: int) -> Read:
        """At most so many records of an iterator."""
        found = asked(self._client.get_records, self._where, ShardIterator=iterator, Limit=limit)
        records = found["Records"]
        # records of the same ms may be left where the limit was reached
        newest = len(records) < limit and not found.get("MillisBehindLatest", len(records))
        return Read(records, found.get("NextShardIterator"), newest)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


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

    The form of an aggregate is that of AWS's "KPL aggregated record format": four bytes, a message of Protocol Buffers
    with the keys and the records, and the MD5 of that message.
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
