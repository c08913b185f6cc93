"""``KafkaSink``: serializes the records in the task, and produces them to Kafka when their epoch commits."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from flinkish.common.arguments import check_instance, refuse_own_methods
from flinkish.common.serialization import abbreviated
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kafka.client import new_producer
from flinkish.connectors.kafka.committer import KafkaCommitter, KafkaTransactionCommitter
from flinkish.connectors.kafka.delivery_guarantee import DeliveryGuarantee
from flinkish.connectors.kafka.properties import warn_of_java_only, writing_settings
from flinkish.connectors.kafka.record_serializer import KafkaRecordSerializationSchema
from flinkish.core.sink import (
    Committer,
    Guarantee,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
    WriterSink,
)
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError, ProgramError


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
