"""What the planner and the translation ask of the connectors of tables: their sources and sinks.

Sources and sinks of columns are those that the connector reads and writes so; the others are of Rows, and the
translation puts the conversion before or behind them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from flinkish.common.serialization import SerializationSchema, batch_serializer
from flinkish.common.text import ROW_SEPARATOR
from flinkish.common.time import Duration, Instant
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.temporal import LocalTimeTypeInfo
from flinkish.common.types import Row, RowKind, _create_row
from flinkish.common.units import parse_duration, parse_memory
from flinkish.connectors.file_system.columns import ColumnFileSource
from flinkish.connectors.jdbc.database import Dialect, parse_url
from flinkish.connectors.jdbc.statement import insert_of
from flinkish.connectors.kafka.columns import ColumnKafkaSource, KafkaColumns
from flinkish.connectors.results import BlackholeSink, PrintSink
from flinkish.core.last_changes import LastChangeSink
from flinkish.core.sink import Sink, SinkWriter, WriterSink
from flinkish.core.source import Source
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.datastream.connectors import file_system, jdbc, kafka
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.delta import DeltaSink, DeltaSource
from flinkish.formats.columnar import ColumnParquetFactory
from flinkish.table.declared import Columns, DeclaredTable, Lines, TableFormat, rows_reader
from flinkish.table.logical_types import MAX_LENGTH, LogicalType

if TYPE_CHECKING:
    from flinkish.table.schema import TableDescriptor


class SinkPlan(NamedTuple):
    """What writes a table: ``takes`` is ``columns`` (batches of columns with their kinds) or ``rows`` (Rows);
    ``parallelism``: that which its options say."""

    takes: str
    sink: Sink
    parallelism: int | None = None


def source(table: TableDescriptor, name: str, used: Sequence[str], zone: str = "UTC") -> tuple[Source, bool]:
    """What reads the columns ``used`` of a table, and whether it gives batches of columns, in their order, or Rows.
    ``zone``: that of local times of metadata.

    Raises:
        ConfigurationError: the table cannot be read, or an option is wrong.
    """
    declared = DeclaredTable(table, name)
    _check_kind(declared, SOURCES, "is read")
    return SOURCES[declared.connector](declared, used, zone), declared.connector in _IN_COLUMNS


def sink(table: TableDescriptor, name: str, zone: str = "UTC") -> SinkPlan:
    """What writes the rows of a table.

    Raises:
        ConfigurationError: the table cannot be written, or an option is wrong.
    """
    declared = DeclaredTable(table, name)
    _check_kind(declared, SINKS, "is written")
    return SINKS[declared.connector](declared, zone)._replace(parallelism=declared.parallelism)


def _check_kind(declared: DeclaredTable, connectors: Collection[str], what: str) -> None:
    if declared.connector not in connectors:
        raise declared.error(f"the table {what}", f"one of the connectors {', '.join(connectors)}")


def files_source(table: DeclaredTable, used: Sequence[str], zone: str) -> Source:
    of, columns = table.format, table.columns(used)
    assert of is not None
    path, interval = table.required("path"), table.get("source.monitor-interval", parse_duration, None)
    if of.name == "parquet":
        content = file_system.BulkFormat(columns.row_type, tuple(used))
        return ColumnFileSource(content, [path], interval, columns.schema)
    made = TableFormat(table, of, table.physical)
    reading = made.reading()
    lines = file_system.StreamFormat(reading, skip_blank=True, spanning=getattr(reading, "records", None))
    return ColumnFileSource(lines, [path], interval, columns.schema, made.decoder(used))


def kafka_source(table: DeclaredTable, used: Sequence[str], zone: str) -> Source:
    assert table.format is not None
    key, value = table.key_and_value()
    # what is in keys alone, and of changes the primary key, which a deletion has no value for
    of_key = key.only([name for name in used if name not in value.types or table.is_keyed])
    # how many rows there are is said by one column at least
    of_value = value.only(used) if value.only(used).types else value.only(value.names[:1])
    prefix, key_decoder = table.get("key.fields-prefix", str, ""), None
    if of_key.types:
        assert table.key_format is not None
        made = TableFormat(table, table.key_format, key.named([name.removeprefix(prefix) for name in key.names]))
        key_decoder = made.decoder([name.removeprefix(prefix) for name in of_key.names])
    decoder, facts = TableFormat(table, table.format, value).decoder(of_value.names), table.facts(used)
    columns = KafkaColumns(
        table.columns(used).schema, decoder, key_decoder, prefix, facts, keyed=table.is_keyed, zone=zone
    )
    builder = kafka.KafkaSource.builder().set_properties(table.properties()).set_starting_offsets(_start(table))
    interval = table.get("scan.topic-partition-discovery.interval", parse_duration, Duration.of_minutes(5))
    builder.set_property("partition.discovery.interval.ms", str(interval.to_millis()))
    if "topic-pattern" in table.given:
        builder.set_topic_pattern(table.required("topic-pattern"))
    else:
        builder.set_topics(*table.required("topic").split(";"))
    bound = _bound(table)
    if bound is not None:
        builder.set_bounded(bound)
    return ColumnKafkaSource(builder.set_deserializer(columns).build()._settings)


def _start(table: DeclaredTable) -> kafka.KafkaOffsetsInitializer:
    initializer = kafka.KafkaOffsetsInitializer

    def group_offsets() -> kafka.KafkaOffsetsInitializer:
        table.required("properties.group.id")
        resets = {strategy.name.lower(): strategy for strategy in kafka.KafkaOffsetResetStrategy}
        return initializer.committed_offsets(table.choice("properties.auto.offset.reset", resets, "none"))

    def specific() -> kafka.KafkaOffsetsInitializer:
        given = table.required("scan.startup.specific-offsets", _offsets)
        topic = table.required("topic")
        return initializer.offsets({kafka.KafkaTopicPartition(topic, number): at for number, at in given.items()})

    if table.is_keyed:
        return initializer.earliest()
    modes: dict[str, Callable[[], kafka.KafkaOffsetsInitializer]] = {
        "earliest-offset": initializer.earliest,
        "latest-offset": initializer.latest,
        "group-offsets": group_offsets,
        "timestamp": lambda: initializer.timestamp(table.required("scan.startup.timestamp-millis", int)),
        "specific-offsets": specific,
    }
    return table.choice("scan.startup.mode", modes, "group-offsets")()


def _offsets(text: str) -> dict[int, int]:
    """The offsets of ``partition:0,offset:42;partition:1,offset:300``."""
    found = {}
    for part in filter(None, text.split(";")):
        entries = dict(entry.split(":") for entry in part.split(","))
        if set(entries) != {"partition", "offset"}:
            raise ValueError("expected partition:0,offset:42;partition:1,offset:300")
        found[int(entries["partition"])] = int(entries["offset"])
    return found


def _bound(table: DeclaredTable) -> kafka.KafkaOffsetsInitializer | None:
    initializer = kafka.KafkaOffsetsInitializer
    modes: dict[str, Callable[[], kafka.KafkaOffsetsInitializer | None]] = {
        "unbounded": lambda: None,
        "latest-offset": initializer.latest,
        "group-offsets": initializer.committed_offsets,
        "timestamp": lambda: initializer.timestamp(table.required("scan.bounded.timestamp-millis", int)),
    }
    return table.choice("scan.bounded.mode", modes, "unbounded")()


def jdbc_source(table: DeclaredTable, used: Sequence[str], zone: str) -> Source:
    """The source of the rows of a table of a database, in the order of its key."""
    columns = table.physical.only(used)
    keys = table.list_of("scan.key-column") or list(table.primary_key)
    if len(keys) != 1:
        hint = "a table is read page by page, in the order of a column whose values are all different"
        raise table.error("the table is read and has no key of one column", "'scan.key-column' = '...'", hint)
    database = connection(table)
    dialect = parse_url(database.url).dialect
    into, _ = in_database(table, columns, dialect)
    names = dict.fromkeys([*columns.names, *keys])
    selected = ", ".join(f"{dialect.quoted(dialect.identifier(name))} AS {dialect.quoted(name)}" for name in names)
    page = table.get("scan.fetch-size", int, 0) or 5_000
    query = f"SELECT {selected} FROM {'.'.join(map(dialect.quoted, into))}"
    return jdbc.JdbcSource(query, columns.row_type, keys[0], database, None, page)


_DELTA_READING = ("startingVersion", "startingTimestamp", "ignoreDeletes", "ignoreChanges", "skipChangeCommits")


def delta_source(table: DeclaredTable, used: Sequence[str], zone: str) -> Source:
    given = {key: table.required(key) for key in _DELTA_READING if key in table.given}
    bounded = table.flag("bounded")
    path, name = delta_place(table)
    return DeltaSource(path, table.physical.only(used).row_type, bounded, given, table=name)


EPOCH = datetime(1970, 1, 1)
_LIMITS = {"TINYINT": 1 << 7, "SMALLINT": 1 << 15, "INT": 1 << 31, "BIGINT": 1 << 63}


def datagen_source(table: DeclaredTable, used: Sequence[str], zone: str) -> Source:
    counts = list[int]()
    if (count := table.get("number-of-rows", int, None)) is not None:
        counts.append(count)
    makers = [_maker(table, name, kind, counts) for name, kind in table.physical.types.items()]
    columns = table.physical.only(used)
    places = [table.physical.names.index(name) for name in columns.names]
    names = columns.names
    # a row follows from its index alone, so that an epoch that runs again reads the same
    seed = zlib.crc32(f"table '{table.name}'".encode()) << 64

    def rows(indices: range) -> list[Row]:
        numbers = [(index, Random(seed + index)) for index in indices]
        made = [[make(index, random) for make in makers] for index, random in numbers]
        return [_create_row(names, [row[place] for place in places]) for row in made]

    count, per_second = min(counts, default=None), table.get("rows-per-second", float, 10_000.0)
    return DataGeneratorSource(rows, count, columns.row_type, of_list=True, records_per_second=per_second)


def _maker(table: DeclaredTable, name: str, kind: LogicalType, counts: list[int]) -> Callable[[int, Random], Any]:
    """What makes the values of a column from a row's index and its random numbers. Adds to ``counts`` how many they
    are, if they end."""
    info, field = kind.info, f"fields.{name}."
    if table.choice(field + "kind", {"random": True, "sequence": False}, "random"):
        make = _random(table, name, kind)
        # numbers are rounded with the other conversions
        return lambda index, random: None if (made := make(random)) is None else info.convert(made)
    first, last = table.required(field + "start", int), table.required(field + "end", int)
    counts.append(last - first + 1)
    cast = str if kind.is_text else info.convert
    return lambda index, random: cast(first + index)


def _random(table: DeclaredTable, name: str, kind: LogicalType) -> Callable[[Random], Any]:
    """What makes a random value of a column, or of a part of it, which ``name`` says as Flink's options do."""
    field = f"fields.{name}."
    size, scale = (*kind.sizes, 0, 0)[:2]
    several = 3 if kind.root in ("ARRAY", "MAP") else 100
    length = table.get(field + "length", int, size if 0 < size < MAX_LENGTH else several)
    limit = 10 ** ((size or 10) - scale) if kind.root == "DECIMAL" else _LIMITS.get(kind.root, 10**10)
    low = table.get(field + "min", Decimal, Decimal(-limit))
    high = table.get(field + "max", Decimal, Decimal(limit - 1))
    varying, past = table.flag(field + "var-len"), table.get(field + "max-past", parse_duration, Duration.of_millis(0))
    names = {"ROW": kind.names, "ARRAY": ("element",), "MAP": ("key", "value")}.get(kind.root, ())
    parts = [_random(table, f"{name}.{part}", each) for part, each in zip(names, kind.parts, strict=False)]

    def sized(random: Random) -> range:
        return range(random.randint(1, length) if varying else length)

    def text(random: Random) -> str:
        return f"{random.getrandbits(4 * (size := len(sized(random)))):0{size}x}"

    def moment_ms(random: Random) -> int:
        return _now_ms() - (random.randint(0, past.to_millis()) if past.to_millis() else 0)

    makers: dict[str, Callable[[Random], Any]] = {
        **dict.fromkeys(_LIMITS, lambda random: random.randint(int(low), int(high))),
        **dict.fromkeys(("FLOAT", "DOUBLE"), lambda random: random.uniform(float(low), float(high))),
        "DECIMAL": lambda random: Decimal(random.uniform(float(low), float(high))),
        "BOOLEAN": lambda random: random.random() < 0.5,
        **dict.fromkeys(("VARCHAR", "CHAR"), text),
        **dict.fromkeys(("VARBINARY", "BINARY"), lambda random: random.randbytes(len(sized(random)))),
        "TIMESTAMP": lambda random: EPOCH + timedelta(milliseconds=moment_ms(random)),
        "TIMESTAMP_LTZ": lambda random: Instant.of_epoch_milli(moment_ms(random)),
        "DATE": lambda random: (EPOCH + timedelta(milliseconds=_now_ms())).date(),
        "TIME": lambda random: (EPOCH + timedelta(milliseconds=_now_ms())).time(),
        "ROW": lambda random: _create_row(list(names), [make(random) for make in parts]),
        "ARRAY": lambda random: [parts[0](random) for _ in sized(random)],
        "MAP": lambda random: {parts[0](random): parts[1](random) for _ in sized(random)},
    }
    if kind.root not in makers:
        expected = "a number, BOOLEAN, text, bytes, time, ROW, ARRAY or MAP"
        raise table.error(f"the column '{name}' of type {kind}", expected)
    make, rate = makers[kind.root], table.get(field + "null-rate", float, 0.0)
    return lambda random: None if rate and random.random() < rate else make(random)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def last_change_sink(table: DeclaredTable, sink: WriterSink) -> SinkPlan:
    """The plan of a sink of Rows that gets the last change of each primary key and epoch."""
    made = LastChangeSink(sink, table.primary_key, partial(rows_reader, table.written.row_type))
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
    user, password = table.get("username", str, None), table.get("password", str, None)
    return jdbc.JdbcConnectionOptions(table.required("url"), table.get("driver", str, None), user, password)


def in_database(table: DeclaredTable, columns: Columns, dialect: Dialect) -> tuple[list[str], Columns]:
    """The parts of the table's name and the columns as the database has them: as in Flink, PostgreSQL takes names that
    have no quotes of its own in lower case."""
    parts = [dialect.identifier(part) for part in table.required("table-name").split(".")]
    return parts, columns.named([dialect.identifier(name) for name in columns.names])


def jdbc_sink(table: DeclaredTable, zone: str) -> SinkPlan:
    database = connection(table)
    into, columns = in_database(table, table.written, parse_url(database.url).dialect)
    rows, retries = table.get("sink.buffer-flush.max-rows", int, 100), table.get("sink.max-retries", int, 3)
    execution = jdbc.JdbcExecutionOptions(0, rows, retries)
    if table.primary_key:
        keys = [columns.names[table.written.names.index(key)] for key in table.primary_key]
        sink = jdbc.JdbcSink.upsert(".".join(into), keys, columns.row_type, database, execution)
        return last_change_sink(table, sink)
    sql = insert_of(into, columns.names, parse_url(database.url).dialect)
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


def blackhole_sink(table: DeclaredTable, zone: str) -> SinkPlan:
    return SinkPlan("columns", BlackholeSink())


SOURCES: dict[str, Callable[[DeclaredTable, Sequence[str], str], Source]] = {
    "kafka": kafka_source, "upsert-kafka": kafka_source, "filesystem": files_source, "datagen": datagen_source,
    "jdbc": jdbc_source, "delta": delta_source,
}  # fmt: skip
_IN_COLUMNS = ("kafka", "upsert-kafka", "filesystem")
SINKS = {
    "kafka": kafka_sink,
    "upsert-kafka": kafka_sink,
    "filesystem": files_sink,
    "jdbc": jdbc_sink,
    "delta": delta_sink,
    "print": print_sink,
    "blackhole": blackhole_sink,
}
