"""What the planner and the translation ask of the connectors of tables: their sources and sinks.

Sources and sinks of columns are those that the connector reads and writes so; the others are of Rows, and the
translation puts the conversion before or behind them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

from flinkish.common.time import Duration, Instant
from flinkish.common.types import Row, _create_row
from flinkish.common.units import parse_duration
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.connectors.file_system.columns import ColumnFileSource, FileColumns
from flinkish.connectors.jdbc.database import parse_url
from flinkish.connectors.kafka.columns import ColumnKafkaSource, KafkaColumns
from flinkish.core.source import Source
from flinkish.datastream.connectors import file_system, jdbc, kafka
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.delta import DeltaSource
from flinkish.table import sinks
from flinkish.table.declared import DeclaredTable, Options, TableFormat
from flinkish.table.logical_types import MAX_LENGTH, LogicalType
from flinkish.table.sinks import SinkPlan, connection, delta_place

if TYPE_CHECKING:
    from flinkish.datastream import DataStream, StreamExecutionEnvironment
    from flinkish.table.schema import TableDescriptor

EPOCH = datetime(1970, 1, 1)


def column_source(table: TableDescriptor, name: str, used: Sequence[str], zone: str = "UTC") -> Source | None:
    """The source of batches of the columns ``used``, in their order; None: the connector reads Rows (`row_source`).
    ``zone``: that of local times of metadata.

    Raises:
        ConfigurationError: the table cannot be read, or an option is wrong.
    """
    declared = DeclaredTable(table, name)
    _check_kind(declared, (*COLUMN_SOURCES, *ROW_SOURCES), "is read")
    make = COLUMN_SOURCES.get(declared.connector)
    return None if make is None else make(declared, used, zone)


def row_source(table: TableDescriptor, name: str, used: Sequence[str], env: StreamExecutionEnvironment) -> DataStream:
    """The stream of Rows of the columns ``used``, in their order."""
    declared = DeclaredTable(table, name)
    source = ROW_SOURCES[declared.connector](declared, used)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name)


def parallelism(table: TableDescriptor, name: str) -> int | None:
    """The parallelism of the sink of a table, if its options say it."""
    return Options(table, name).parallelism


def sink(table: TableDescriptor, name: str, zone: str = "UTC") -> SinkPlan:
    """What writes the rows of a table.

    Raises:
        ConfigurationError: the table cannot be written, or an option is wrong.
    """
    declared = DeclaredTable(table, name)
    _check_kind(declared, tuple(COLUMN_SINKS), "is written")
    return COLUMN_SINKS[declared.connector](declared, zone)


def _check_kind(declared: DeclaredTable, connectors: tuple[str, ...], what: str) -> None:
    if declared.connector not in connectors:
        raise declared.error(f"the table {what}", f"one of the connectors {', '.join(connectors)}")


def files_source(table: DeclaredTable, used: Sequence[str], zone: str) -> Source:
    of = table.format
    assert of is not None
    path, interval = table.required("path"), table.get("source.monitor-interval", parse_duration, None)
    stored = table.read_from(used, table.physical)
    if of.name == "parquet":
        columns = FileColumns(table.schema(used), stored.schema, table.facts(used), zone=zone)
        content: Any = file_system.BulkFormat(stored.row_type, tuple(stored.names))
    else:
        made = TableFormat(table, of, table.physical)
        reading = made.reading()
        columns = FileColumns(table.schema(used), stored.schema, table.facts(used), made.decoder(stored.names), zone)
        content = file_system.StreamFormat(reading, skip_blank=True, spanning=getattr(reading, "records", None))
    return ColumnFileSource(content, [path], interval, columns)


def kafka_source(table: DeclaredTable, used: Sequence[str], zone: str) -> Source:
    assert table.format is not None
    key, value = table.key_and_value()
    # what is in keys alone, and of changes the primary key, which a deletion has no value for
    of_key = key.only([name for name in used if name not in value.types or table.is_keyed])
    of_value = table.read_from(used, value)
    prefix, key_decoder = table.get("key.fields-prefix", str, ""), None
    if of_key.types:
        assert table.key_format is not None
        made = TableFormat(table, table.key_format, key.named([name.removeprefix(prefix) for name in key.names]))
        key_decoder = made.decoder([name.removeprefix(prefix) for name in of_key.names])
    decoder, facts = TableFormat(table, table.format, value).decoder(of_value.names), table.facts(used)
    columns = KafkaColumns(table.schema(used), decoder, key_decoder, prefix, facts, keyed=table.is_keyed, zone=zone)
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


def jdbc_source(table: DeclaredTable, used: Sequence[str]) -> Source:
    """The source of the rows of a table of a database, in the order of its key."""
    columns = table.physical.only(used)
    keys = table.list_of("scan.key-column") or list(table.primary_key)
    if len(keys) != 1:
        hint = "a table is read page by page, in the order of a column whose values are all different"
        raise table.error("the table is read and has no key of one column", "'scan.key-column' = '...'", hint)
    database = connection(table)
    name = ".".join(parse_url(database.url).dialect.quoted(part) for part in table.required("table-name").split("."))
    page = table.get("scan.fetch-size", int, 0) or 5_000
    return jdbc.JdbcSource(f"SELECT * FROM {name}", columns.row_type, keys[0], database, None, page)


_DELTA_READING = ("startingVersion", "startingTimestamp", "ignoreDeletes", "ignoreChanges", "skipChangeCommits")


def delta_source(table: DeclaredTable, used: Sequence[str]) -> Source:
    given = {key: table.required(key) for key in _DELTA_READING if key in table.given}
    bounded = table.flag("bounded")
    path, name = delta_place(table)
    return DeltaSource(path, table.physical.only(used).row_type, bounded, given, table=name)


_LIMITS = {"TINYINT": 1 << 7, "SMALLINT": 1 << 15, "INT": 1 << 31, "BIGINT": 1 << 63}


def datagen_source(table: DeclaredTable, used: Sequence[str]) -> Source:
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
    size, scale = (*kind.sizes, 0, 0)[:2]
    length = table.get(field + "length", int, size if 0 < size < MAX_LENGTH else 100)
    limit = 10 ** ((size or 10) - scale) if kind.root == "DECIMAL" else _LIMITS.get(kind.root, 10**10)
    low = table.get(field + "min", Decimal, Decimal(-limit))
    high = table.get(field + "max", Decimal, Decimal(limit - 1))
    varying, past = table.flag(field + "var-len"), table.get(field + "max-past", parse_duration, Duration.of_millis(0))

    def text(random: Random) -> str:
        size = random.randint(1, length) if varying else length
        return f"{random.getrandbits(4 * size):0{size}x}"

    def moment_ms(random: Random) -> int:
        return _now_ms() - (random.randint(0, past.to_millis()) if past.to_millis() else 0)

    makers: dict[str, Callable[[Random], Any]] = {
        **dict.fromkeys(_LIMITS, lambda random: random.randint(int(low), int(high))),
        **dict.fromkeys(("FLOAT", "DOUBLE"), lambda random: random.uniform(float(low), float(high))),
        "DECIMAL": lambda random: Decimal(random.uniform(float(low), float(high))),
        "BOOLEAN": lambda random: random.random() < 0.5,
        **dict.fromkeys(("VARCHAR", "CHAR"), text),
        "TIMESTAMP": lambda random: EPOCH + timedelta(milliseconds=moment_ms(random)),
        "TIMESTAMP_LTZ": lambda random: Instant.of_epoch_milli(moment_ms(random)),
        "DATE": lambda random: (EPOCH + timedelta(milliseconds=_now_ms())).date(),
        "TIME": lambda random: (EPOCH + timedelta(milliseconds=_now_ms())).time(),
    }
    if kind.root not in makers:
        raise table.error(f"the column '{name}' of type {kind}", "a number, BOOLEAN, text or TIMESTAMP")
    if table.choice(field + "kind", {"random": True, "sequence": False}, "random"):
        make, rate = makers[kind.root], table.get(field + "null-rate", float, 0.0)
        # numbers are rounded with the other conversions
        return lambda index, random: None if rate and random.random() < rate else info.convert(make(random))
    first, last = table.required(field + "start", int), table.required(field + "end", int)
    counts.append(last - first + 1)
    cast = str if kind.is_text else info.convert
    return lambda index, random: cast(first + index)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


COLUMN_SOURCES = {"kafka": kafka_source, "upsert-kafka": kafka_source, "filesystem": files_source}
ROW_SOURCES = {"datagen": datagen_source, "jdbc": jdbc_source, "delta": delta_source}
COLUMN_SINKS = {
    "kafka": sinks.kafka_sink,
    "upsert-kafka": sinks.kafka_sink,
    "filesystem": sinks.files_sink,
    "jdbc": sinks.jdbc_sink,
    "delta": sinks.delta_sink,
    "print": sinks.print_sink,
    "blackhole": sinks.blackhole_sink,
}
