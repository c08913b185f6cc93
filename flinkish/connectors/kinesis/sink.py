"""``KinesisStreamsSink`` and ``KinesisFirehoseSink``: serialize the records in the task, and put them when their epoch
commits."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from flinkish.common.arguments import abbreviated, check_at_least, check_instance, result_of_each
from flinkish.common.no_effect import warn_without_effect
from flinkish.common.serialization import SerializationSchema, batch_serializer
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kept_resources import KeptResources
from flinkish.connectors.kinesis.client import PASSING, RETRY_FOR_S, asked, check_properties, driver, new_client
from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink, how_to_skip
from flinkish.errors import ConfigurationError, ConnectionFailedError, FinalOperationError, ProgramError

#: How many idle clients a worker process keeps.
_CLIENTS_KEPT = 4
_PAUSE_S = 0.2
_kept: KeptResources[Any] = KeptResources(lambda client: client.close(), _CLIENTS_KEPT)


class PartitionKeyGenerator:
    """Makes the partition key of a record, which decides its shard."""

    def __init__(self, function: Callable[[Any, bytes], str]) -> None:
        self._function = function

    @staticmethod
    def fixed() -> PartitionKeyGenerator:
        """The same key for the same record."""
        return PartitionKeyGenerator(_digest)

    @staticmethod
    def random() -> PartitionKeyGenerator:
        """A random key for each record, which spreads them evenly."""
        return PartitionKeyGenerator(_random)

    @staticmethod
    def of(function: Callable[[Any], str]) -> PartitionKeyGenerator:
        """The key that a function makes of a record. Not in PyFlink, whose generators are Java's.

        Example::

            PartitionKeyGenerator.of(lambda click: click["user"])
        """
        return PartitionKeyGenerator(_Of(function))

    def keys(self, values: list[Any], data: list[bytes]) -> list[str]:
        """The keys of records, with their data."""
        function = self._function
        keys = result_of_each(lambda pair: function(*pair), list(zip(values, data)), "the partition key generator")
        for key, value in zip(keys, values):
            if not isinstance(key, str) or not 0 < len(key) <= 256:
                raise ProgramError(
                    f"the partition key of {abbreviated(value)} is {abbreviated(key)}",
                    where="KinesisStreamsSink",
                    expected="a text of 1 to 256 characters",
                )
        return keys


@dataclass(frozen=True)
class _Of:
    function: Callable[[Any], str]

    def __call__(self, value: Any, data: bytes) -> str:
        return self.function(value)


def _digest(value: Any, data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _random(value: Any, data: bytes) -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class _Service:
    """What differs between a stream and a delivery stream of Firehose."""

    name: str
    sink: str
    target: str
    request: str
    results: str
    max_bytes: int


_STREAMS = _Service("kinesis", "KinesisStreamsSink", "StreamName", "put_records", "Records", 5 * 1024 * 1024)
_FIREHOSE = _Service(
    "firehose", "KinesisFirehoseSink", "DeliveryStreamName", "put_record_batch", "RequestResponses", 4 * 1024 * 1024
)
#: AWS's limits of a request and of a record.
_MAX_BATCH, _MAX_RECORD_BYTES = 500, 1024 * 1024


@dataclass(frozen=True)
class _Settings:
    service: _Service
    target: str = ""
    serializer: SerializationSchema | None = None
    key_generator: PartitionKeyGenerator | None = None
    fail_on_error: bool = False
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    max_batch: int = _MAX_BATCH
    max_batch_bytes: int = 4 * 1024 * 1024
    max_record_bytes: int = _MAX_RECORD_BYTES


class _KinesisSink(WriterSink):
    """The common base of both sinks.

    Guarantee: at least once. An epoch counts as committed when AWS has acknowledged all of its records; an epoch that
    is committed again is put again.
    """

    guarantee = Guarantee.AT_LEAST_ONCE
    reads_timestamps = False

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    @property
    def _destination(self) -> str:
        return f"{self._settings.service.sink} {self._settings.target}"

    def with_input_type(self, input_type: TypeInformation) -> _KinesisSink:
        """The same sink for a stream of this type, which decides the text that ``SimpleStringSchema`` writes."""
        assert self._settings.serializer is not None
        return type(self)(replace(self._settings, serializer=self._settings.serializer.bind(input_type)))

    def create_writer(self) -> SinkWriter:
        return _Writer(self._settings)

    def create_committer(self) -> Committer:
        return _Committer(self._settings)


class KinesisStreamsSink(_KinesisSink):
    """Puts records into a stream of Kinesis with boto3 (on the executors). Made by :meth:`builder`.

    Guarantee: at least once, as in Flink. Kinesis does not keep the order of records of which some were refused for a
    while.

    Example::

        sink = (KinesisStreamsSink.builder().set_stream_name("clicks").set_serialization_schema(SimpleStringSchema())
            .set_partition_key_generator(PartitionKeyGenerator.random())
            .set_kinesis_client_properties({"aws.region": "eu-west-1"}).build())
    """

    @staticmethod
    def builder() -> KinesisStreamsSinkBuilder:
        return KinesisStreamsSinkBuilder()


class KinesisFirehoseSink(_KinesisSink):
    """Puts records into a delivery stream of Firehose with boto3 (on the executors). Made by :meth:`builder`.

    Guarantee: at least once, as in Flink.
    """

    @staticmethod
    def builder() -> KinesisFirehoseSinkBuilder:
        return KinesisFirehoseSinkBuilder()


class _Writer(SinkWriter):
    """Serializes records to the committables (data, partition key or None)."""

    def __init__(self, settings: _Settings) -> None:
        assert settings.serializer is not None
        self._serialize, self._settings = batch_serializer(settings.serializer), settings

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        data, generator = [message or b"" for message in self._serialize(values)], self._settings.key_generator
        longest = max(data, key=len, default=b"")
        if len(longest) > self._settings.max_record_bytes:
            raise ProgramError(
                f"AWS would refuse the record {abbreviated(values[data.index(longest)])}: it has {len(longest)} bytes",
                where=self._settings.service.sink,
                expected=f"at most {self._settings.max_record_bytes} bytes (set_max_record_size_in_bytes)",
                hint="make such records smaller; nothing of the epoch is prepared, so a mended program goes on in the "
                "same directory",
            )
        keys = [None] * len(data) if generator is None else generator.keys(values, data)
        return list(zip(data, keys))


class _Committer(Committer):
    """Puts the records of a (sink, subtask, epoch), in requests of several records."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        settings, count = self._settings, 0
        where = f"sink '{context.sink_uid}' ({settings.service.sink} {settings.target}), epoch {context.epoch}"
        key = (settings.service.name, tuple(sorted(settings.properties.items())))
        with _kept.use(key, lambda: new_client(settings.service.name, settings.properties, where)) as client:
            for batch in self._batches(chain.from_iterable(committables)):
                context.fence.check()
                self._put(client, batch, context, where)
                count += len(batch)
        return count

    def _batches(self, records: Iterator[tuple[bytes, str | None]]) -> Iterator[list[dict[str, Any]]]:
        batch: list[dict[str, Any]] = []
        size = 0
        for data, key in records:
            entry_size = len(data) + len((key or "").encode())
            if batch and (len(batch) == self._settings.max_batch or size + entry_size > self._settings.max_batch_bytes):
                yield batch
                batch, size = [], 0
            batch.append({"Data": data} if key is None else {"Data": data, "PartitionKey": key})
            size += entry_size
        if batch:
            yield batch

    def _put(self, client: Any, batch: list[dict[str, Any]], context: CommitContext, where: str) -> None:
        """Put records; those that AWS refuses for a while are put again."""
        service, deadline, pause_s = self._settings.service, time.monotonic() + RETRY_FOR_S, _PAUSE_S
        while True:
            request = getattr(client, service.request)
            found = asked(request, where, **{service.target: self._settings.target, "Records": batch})
            refused = [
                (record, answer)
                for record, answer in zip(batch, found[service.results], strict=True)
                if answer.get("ErrorCode")
            ]
            if not refused:
                return
            answer = next((answer for _, answer in refused if answer["ErrorCode"] not in PASSING), None)
            if answer is not None:
                raise FinalOperationError(
                    f"AWS refuses {len(refused)} records: {answer['ErrorCode']}, {answer.get('ErrorMessage')}",
                    where=where,
                    expected="records that the stream takes",
                    hint=how_to_skip(context),
                )
            if self._settings.fail_on_error or time.monotonic() > deadline:
                raise ConnectionFailedError(
                    f"AWS has not taken {len(refused)} of {len(batch)} records: {refused[0][1]['ErrorCode']}",
                    where=where,
                    expected="a stream with enough shards",
                    hint="more shards, or set_fail_on_error(False), which repeats such records",
                )
            batch = [record for record, _ in refused]
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)


B = TypeVar("B", bound="_Builder")


class _Builder:
    """The setters that both builders have; each returns the builder itself."""

    _service: _Service

    def __init__(self) -> None:
        self._settings = _Settings(self._service)

    def set_serialization_schema(self: B, serialization_schema: SerializationSchema) -> B:
        """Set what makes the data of a record; required."""
        hint = "such as SimpleStringSchema()"
        check_instance(serialization_schema, SerializationSchema, "the schema is", self._service.sink, hint)
        return self._with(serializer=serialization_schema)

    def set_fail_on_error(self: B, fail_on_error: bool) -> B:
        """Set whether the job fails when AWS has not taken a record (default: the record is put again)."""
        return self._with(fail_on_error=fail_on_error)

    def set_max_batch_size(self: B, max_batch_size: int) -> B:
        """Set the most records of a request: 500 at most, AWS's limit and the default."""
        return self._limited("max_batch", max_batch_size, _MAX_BATCH, "the batch size")

    def set_max_batch_size_in_bytes(self: B, max_batch_size_in_bytes: int) -> B:
        """Set the most bytes of a request (default: 4 MiB)."""
        return self._limited("max_batch_bytes", max_batch_size_in_bytes, self._service.max_bytes, "the batch size")

    def set_max_record_size_in_bytes(self: B, max_record_size_in_bytes: int) -> B:
        """Set the most bytes of a record: 1 MiB at most, the default."""
        return self._limited("max_record_bytes", max_record_size_in_bytes, _MAX_RECORD_BYTES, "the record size")

    def set_max_in_flight_requests(self: B, max_in_flight_requests: int) -> B:
        """Has no effect: a subtask makes one request at a time."""
        return self._without_effect("set_max_in_flight_requests", "a subtask makes one request at a time")

    def set_max_buffered_requests(self: B, max_buffered_requests: int) -> B:
        """Has no effect: records are in the epoch's files until they are put."""
        return self._without_effect("set_max_buffered_requests", "records are in files until they are put")

    def set_max_time_in_buffer_ms(self: B, max_time_in_buffer_ms: int) -> B:
        """Has no effect: records are put when their epoch commits."""
        return self._without_effect("set_max_time_in_buffer_ms", "records are put when their epoch commits")

    def _without_effect(self: B, method: str, why: str) -> B:
        warn_without_effect(f"{self._service.sink}.{method}", why)
        return self

    def _limited(self: B, name: str, value: int, most: int, what: str) -> B:
        check_at_least(value, 1, what, self._service.sink, f"between 1 and {most}")
        if value > most:
            raise ConfigurationError(f"{what} is {value}", where=self._service.sink, expected=f"at most {most}")
        return self._with(**{name: value})

    def _with(self: B, **changes: Any) -> B:
        self._settings = replace(self._settings, **changes)
        return self

    def _with_properties(self: B, properties: Mapping[str, Any]) -> B:
        texts = {key: str(value) for key, value in properties.items()}
        check_properties(texts, frozenset(), self._service.sink)
        return self._with(properties=texts)

    def _checked(self) -> _Settings:
        settings = self._settings
        if not settings.target or settings.serializer is None:
            raise ConfigurationError(
                "the builder has no stream" if not settings.target else "the builder has no serialization schema",
                where=self._service.sink,
                expected="the name of the stream, and a serialization schema",
            )
        driver(self._service.sink)
        return settings


class KinesisStreamsSinkBuilder(_Builder):
    """PyFlink's builder of :class:`KinesisStreamsSink`."""

    _service = _STREAMS

    def set_stream_name(self, stream_name: str) -> KinesisStreamsSinkBuilder:
        """Set the name of the stream; required."""
        check_instance(stream_name, str, "the stream name is", self._service.sink, "a sink writes to one stream")
        return self._with(target=stream_name)

    def set_partition_key_generator(self, partition_key_generator: PartitionKeyGenerator) -> KinesisStreamsSinkBuilder:
        """Set what makes the partition key of a record; required."""
        hint = "such as PartitionKeyGenerator.random()"
        check_instance(partition_key_generator, PartitionKeyGenerator, "the generator is", self._service.sink, hint)
        return self._with(key_generator=partition_key_generator)

    def set_kinesis_client_properties(self, kinesis_client_properties: Mapping[str, Any]) -> KinesisStreamsSinkBuilder:
        """Set the properties of the client: ``aws.region``, ``aws.endpoint``, ``aws.credentials.provider``..."""
        return self._with_properties(kinesis_client_properties)

    def build(self) -> KinesisStreamsSink:
        """Make the sink.

        Raises:
            ConfigurationError: there is no stream, no serialization schema or no generator of partition keys.
        """
        settings = self._checked()
        if settings.key_generator is None:
            raise ConfigurationError(
                "the builder has no generator of partition keys",
                where=self._service.sink,
                expected="set_partition_key_generator, such as PartitionKeyGenerator.random()",
            )
        return KinesisStreamsSink(settings)


class KinesisFirehoseSinkBuilder(_Builder):
    """PyFlink's builder of :class:`KinesisFirehoseSink`."""

    _service = _FIREHOSE

    def set_delivery_stream_name(self, delivery_stream_name: str) -> KinesisFirehoseSinkBuilder:
        """Set the name of the delivery stream; required."""
        hint = "a sink writes to one delivery stream"
        check_instance(delivery_stream_name, str, "the delivery stream name is", self._service.sink, hint)
        return self._with(target=delivery_stream_name)

    def set_firehose_client_properties(
        self, firehose_client_properties: Mapping[str, Any]
    ) -> KinesisFirehoseSinkBuilder:
        """Set the properties of the client: ``aws.region``, ``aws.endpoint``, ``aws.credentials.provider``..."""
        return self._with_properties(firehose_client_properties)

    def build(self) -> KinesisFirehoseSink:
        """Make the sink.

        Raises:
            ConfigurationError: there is no delivery stream, or no serialization schema.
        """
        return KinesisFirehoseSink(self._checked())
