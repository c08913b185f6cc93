"""Tables as sinks: of columns where the connector writes them, else of Rows; with changes where it has a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from flinkish.common.serialization import SerializationSchema, batch_serializer
from flinkish.common.text import ROW_SEPARATOR
from flinkish.common.time import Instant
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.temporal import LocalTimeTypeInfo
from flinkish.common.types import Row, RowKind
from flinkish.common.units import parse_memory
from flinkish.connectors.columns import RecordReader
from flinkish.connectors.jdbc.database import parse_url
from flinkish.connectors.jdbc.statement import insert_of
from flinkish.connectors.results import PrintSink
from flinkish.core.last_changes import LastChangeSink
from flinkish.core.sink import CommitContext, Committer, Guarantee, Sink, SinkWriter, WriterSink
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.datastream.connectors import file_system, jdbc, kafka
from flinkish.datastream.connectors.delta import DeltaSink
from flinkish.formats.parquet_columns import ColumnParquetFactory
from flinkish.table.declared import Columns, DeclaredTable, Lines, TableFormat
from flinkish.table.logical_types import LogicalType

if TYPE_CHECKING:
    import pyarrow as pa


class SinkPlan(NamedTuple):
    """What writes a table: ``takes`` is ``columns`` (batches of columns with their kinds) or ``rows`` (Rows)."""

    takes: str
    sink: Sink


def _reader(row_type: RowTypeInfo) -> Callable[[pa.RecordBatch], list[Any]]:
    return RecordReader(row_type, "a table").read


def last_change_sink(table: DeclaredTable, sink: WriterSink) -> SinkPlan:
    """The plan of a sink of Rows that gets the last change of each primary key and epoch."""
    made = LastChangeSink(sink, table.primary_key, partial(_reader, table.written.row_type))
    return SinkPlan("columns", made)


@dataclass(frozen=True)
class _Fields(SerializationSchema):
    """Writes some of the fields of Rows; with ``deletes``, Rows of kind DELETE have no message."""

    schema: SerializationSchema
    places: tuple[int, ...]
    deletes: bool = False

    def serialize(self, value: Any) -> bytes | None:
        return self.serialize_batch([value])[0]

    def serialize_batch(self, values: list[Any]) -> list[bytes | None]:
        places = self.places
        messages = batch_serializer(self.schema)([Row(*[value[place] for place in places]) for value in values])
        gone = [self.deletes and value.get_row_kind() is RowKind.DELETE for value in values]
        return [None if deleted else message for deleted, message in zip(gone, messages, strict=True)]


@dataclass(frozen=True)
class _Headers:
    """The headers of a Row: the map in one of its fields."""

    place: int

    def __call__(self, row: Any) -> Iterable[tuple[str, bytes | None]]:
        return (row[self.place] or {}).items()


class KafkaTableSink(kafka.KafkaSink):
    """A KafkaSink of Rows, whose timestamps are those of the field ``time``; None: Kafka gives them, as in Flink."""

    def __init__(self, settings: Any, time: int | None, zone: str) -> None:
        super().__init__(replace(settings, timestamped=time is not None))
        self.reads_timestamps = False
        self._time, self._zone = time, zone

    def create_writer(self) -> SinkWriter:
        writer = super().create_writer()
        return writer if self._time is None else _TimedWriter(writer, self._time, self._zone)


class _TimedWriter(SinkWriter):
    def __init__(self, writer: SinkWriter, place: int, zone: str) -> None:
        self._writer, self._place, self._zone = writer, place, ZoneInfo(zone)

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return self._writer.write(values, [self._milliseconds(value[self._place]) for value in values])

    def _milliseconds(self, value: Any) -> int:
        if value is None:
            return MIN_TIMESTAMP_MS
        return value.to_epoch_milli() if isinstance(value, Instant) else epoch_ms(value.replace(tzinfo=self._zone))


def epoch_ms(moment: datetime) -> int:
    """The milliseconds since 1970 of a moment with a zone."""
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def kafka_sink(table: DeclaredTable, zone: str) -> SinkPlan:
    written = table.written
    key, value = table.key_and_value()
    assert table.format is not None

    def fields(of: Any, columns: Columns, names: list[str], deletes: bool = False) -> SerializationSchema:
        places = tuple(map(written.names.index, columns.names))
        return _Fields(TableFormat(table, of, columns.named(names)).writing(), places, deletes)

    places = {table.metadata[name]: place for place, name in enumerate(written.names) if name in table.metadata}
    records = kafka.KafkaRecordSerializationSchema.builder().set_topic(table.required("topic"))
    records.set_value_serialization_schema(fields(table.format, value, value.names, table.is_keyed))
    if key.types:
        prefix = table.get("key.fields-prefix", str, "")
        names = [name.removeprefix(prefix) for name in key.names]
        records.set_key_serialization_schema(fields(table.key_format, key, names))
    if "headers" in places:
        records.set_header_provider(_Headers(places["headers"]))
    builder = kafka.KafkaSink.builder().set_record_serializer(records.build())
    guarantees = {each.name.lower().replace("_", "-"): each for each in kafka.DeliveryGuarantee}
    builder.set_delivery_guarantee(table.choice("sink.delivery-guarantee", guarantees, "at-least-once"))
    builder.set_transactional_id_prefix(table.get("sink.transactional-id-prefix", str, ""))
    for name, text in table.properties().items():
        builder.set_property(name, text)
    sink = KafkaTableSink(builder.build()._settings, places.get("timestamp"), zone)
    return last_change_sink(table, sink) if table.is_keyed else SinkPlan("rows", sink)


def files_sink(table: DeclaredTable, zone: str) -> SinkPlan:
    of, path = table.format, table.required("path")
    assert of is not None
    if of.name == "parquet":
        codecs = {name: name for name in ("snappy", "gzip", "zstd", "lz4", "uncompressed")}
        compression = table.choice("parquet.compression", codecs, "snappy")
        factory = ColumnParquetFactory(table.written.schema, compression)
        return SinkPlan("columns", file_system.FileSink.for_bulk_format(path, factory).build())
    size = table.get("sink.rolling-policy.file-size", parse_memory, 128 << 20)
    encoder = Lines(TableFormat(table, of, table.written).writing())
    builder = file_system.FileSink.for_row_format(path, encoder)
    builder.with_rolling_policy(file_system.RollingPolicy.default_rolling_policy(size))
    builder.with_bucket_assigner(file_system.BucketAssigner.base_path_bucket_assigner())
    return SinkPlan("rows", builder.build())


def connection(table: DeclaredTable) -> jdbc.JdbcConnectionOptions:
    """How the database of a table is reached."""
    user, password = table.get("username", str, None), table.get("password", str, None)
    return jdbc.JdbcConnectionOptions(table.required("url"), table.get("driver", str, None), user, password)


def jdbc_sink(table: DeclaredTable, zone: str) -> SinkPlan:
    columns, into = table.written, table.required("table-name")
    database = connection(table)
    rows, retries = table.get("sink.buffer-flush.max-rows", int, 100), table.get("sink.max-retries", int, 3)
    execution = jdbc.JdbcExecutionOptions(0, rows, retries)
    if table.primary_key:
        sink = jdbc.JdbcSink.upsert(into, table.primary_key, columns.row_type, database, execution)
        return last_change_sink(table, sink)
    sql = insert_of(into.split("."), columns.names, parse_url(database.url).dialect)
    return SinkPlan("rows", jdbc.JdbcSink.sink(sql, columns.row_type, database, execution))


def delta_place(table: DeclaredTable) -> tuple[str, str]:
    """The path of a Delta table, or its name in a catalog; the other one is empty."""
    path = table.get("table-path", str, "") or table.get("path", str, "")
    return (path, "") if path else ("", table.required("table"))


def delta_sink(table: DeclaredTable, zone: str) -> SinkPlan:
    partitions = table.list_of("partition-columns")
    path, name = delta_place(table)
    made: Any
    if table.primary_key:
        made = DeltaSink.merge(path, table.primary_key, partition_by=partitions, table=name)
    else:
        given = {"mergeSchema": table.required("mergeSchema")} if "mergeSchema" in table.given else {}
        made = DeltaSink(path, partition_by=partitions, options=given, table=name)
    made.check_type(table.written.row_type, f"table '{table.name}'")
    return SinkPlan("columns", made)


def print_sink(table: DeclaredTable, zone: str) -> SinkPlan:
    to_std_err = table.flag("standard-error")
    kinds = [printed(kind) for kind in table.written.types.values()]
    row_type = Types.ROW_NAMED(table.written.names, kinds)
    identifier = table.get("print-identifier", str, "")
    return SinkPlan("rows", PrintSink(identifier, row_type, to_std_err, ROW_SEPARATOR))


def printed(kind: LogicalType) -> TypeInformation:
    """The type whose text that of a value is: times of SQL are those of java.time."""
    parts = [printed(part) for part in kind.parts]
    if kind.root == "ROW":
        return Types.ROW_NAMED(list(kind.names), parts)
    if kind.root == "ARRAY":
        return Types.LIST(parts[0])
    if kind.root == "MAP":
        return Types.MAP(*parts)
    of = LocalTimeTypeInfo.TimeType
    local = {"DATE": of.LOCAL_DATE, "TIME": of.LOCAL_TIME, "TIMESTAMP": of.LOCAL_DATE_TIME}
    return LocalTimeTypeInfo(local[kind.root]) if kind.root in local else kind.info


class BlackholeSink(WriterSink):
    """Drops all rows, and counts them."""

    guarantee = Guarantee.EXACTLY_ONCE
    reads_timestamps = False

    def create_writer(self) -> SinkWriter:
        return _Counter()

    def create_committer(self) -> Committer:
        return _Counter()


class _Counter(SinkWriter, Committer):
    count = 0

    def write(self, values: Any, timestamps: list[int] | None) -> list[Any]:
        self.count += len(values)
        return []

    def prepare_commit(self) -> list[Any]:
        count, self.count = self.count, 0
        return [count] if count else []

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        return sum(map(sum, committables))


def blackhole_sink(table: DeclaredTable, zone: str) -> SinkPlan:
    return SinkPlan("columns", BlackholeSink())
