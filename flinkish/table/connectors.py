"""What a table's options stand for: sources and sinks of the DataStream API, with the defaults of Flink's connectors of
tables.

Rule upheld here: the options of a connector and of a format are listed. One that is not in its list is an error that
shows the list.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from random import Random
from typing import Any, TypeVar

from flinkish.common.no_effect import warn_without_effect
from flinkish.common.serialization import Encoder, SerializationSchema
from flinkish.common.time import Duration, Instant
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation, Types
from flinkish.common.types import Row, _create_row
from flinkish.common.units import parse_boolean, parse_duration, parse_memory
from flinkish.connectors.jdbc.database import parse_url
from flinkish.connectors.jdbc.statement import insert_of
from flinkish.connectors.results import PrintSink
from flinkish.core.sink import Sink
from flinkish.core.source import Source
from flinkish.datastream.connectors import file_system, jdbc, kafka
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.errors import ConfigurationError, MalformedRecordError
from flinkish.formats import csv, json
from flinkish.table.schema import Column, TableDescriptor
from flinkish.table.types import DataTypes

T = TypeVar("T")

_OPTIONS = {
    "kafka": "topic properties.* format value.format scan.startup.mode scan.startup.timestamp-millis "
    "scan.topic-partition-discovery.interval sink.delivery-guarantee sink.transactional-id-prefix",
    "datagen": "rows-per-second number-of-rows fields.*.kind fields.*.start fields.*.end fields.*.min fields.*.max "
    "fields.*.length",
    "filesystem": "path format source.monitor-interval sink.rolling-policy.file-size "
    "sink.rolling-policy.rollover-interval sink.rolling-policy.check-interval",
    "jdbc": "url table-name driver username password sink.buffer-flush.max-rows sink.buffer-flush.interval "
    "sink.max-retries",
    "print": "print-identifier standard-error",
    "blackhole": "",
}
_NO_EFFECT = (
    "sink.rolling-policy.rollover-interval", "sink.rolling-policy.check-interval", "sink.buffer-flush.interval",
)  # fmt: skip
#: options of CSV that are texts, and setters of the schemas' builders
_CSV_TEXTS = ("field-delimiter", "array-element-delimiter", "quote-character", "escape-character", "null-literal")
_FORMATS = {
    "json": "ignore-parse-errors fail-on-missing-field timestamp-format.standard",
    "csv": " ".join(("ignore-parse-errors", "allow-comments", "disable-quote-character", *_CSV_TEXTS)),
}


class Options:
    """The options of a table; ``prefix`` begins those of its format.

    Raises:
        ConfigurationError: there is no such connector or format, or an option is not one of theirs.
    """

    def __init__(self, table: TableDescriptor, name: str) -> None:
        self._given, self.connector, self.where = table.options, table.options.get("connector", ""), f"table '{name}'"
        if self.connector not in _OPTIONS:
            raise self.error(f"the connector {self.connector!r}", ", ".join(_OPTIONS))
        known = ["connector", "sink.parallelism", *_OPTIONS[self.connector].split()]
        fields = [option for option in known if option.startswith("fields.")]
        known += [option.replace("*", column.name) for option in fields for column in table.schema.columns]
        known = [option for option in known if option not in fields]
        key = next((key for key in ("format", "value.format") if key in self._given and key in known), None)
        self.format = "" if key is None else self._given[key]
        if key is not None and self.format not in _FORMATS or key is None and "format" in known:
            raise self.error(f"the format {self.format!r}", f"'format' = {' or '.join(map(repr, _FORMATS))}")
        self.prefix = f"{(key or '').removesuffix('format')}{self.format}."
        known += [self.prefix + option for option in _FORMATS.get(self.format, "").split()]
        unknown = [key for key in self._given if not any(fnmatchcase(key, pattern) for pattern in known)]
        for option in set(_NO_EFFECT) & set(self._given):
            warn_without_effect(f"the option '{option}' of a table", "files and rows appear with their epoch")
        if unknown:
            raise self.error(f"unsupported options: {', '.join(unknown)}", ", ".join(known))

    def get(self, key: str, read: Callable[[str], T], default: T) -> T:
        """The value of an option. Raises ConfigurationError if it cannot be read."""
        try:
            return read(self._given[key]) if key in self._given else default
        except (ValueError, ArithmeticError) as error:
            # what Python says of a number quotes it
            _, ours, expected = str(error).rpartition("expected ")
            expected = expected if ours else "a number"
            raise self.error(f"the value of the option '{key}' cannot be read", expected) from None

    def choice(self, key: str, choices: dict[str, T], default: str) -> T:
        """What the value of an option stands for, whose letters may be small or capital."""
        found = self._given.get(key, default)
        if found.lower() not in choices:
            raise self.error(f"the value of the option '{key}' is none of its choices", " or ".join(choices))
        return choices[found.lower()]

    def required(self, key: str, read: Callable[[str], Any] = str) -> Any:
        """The value of an option that must be set."""
        if key not in self._given:
            raise self.error(f"the option '{key}' is missing", f"'{key}' = '...' in WITH (...)")
        return self.get(key, read, None)

    def properties(self) -> dict[str, str]:
        """The properties of Kafka's client."""
        self.required("properties.bootstrap.servers")
        start = len("properties.")
        return {key[start:]: text for key, text in self._given.items() if key.startswith("properties.")}

    def error(self, what: str, expected: str) -> ConfigurationError:
        where = f"{self.where}, connector '{self.connector}'"
        return ConfigurationError(what, where=where, expected=expected, hint="see docs/tables.md")


# --- between the columns of a table and what is stored --------------------------------------------------------------

EPOCH = datetime(1970, 1, 1)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z?)")
#: standard of texts of times -> what stands between date and time
_STANDARDS = {"sql": " ", "iso-8601": "T"}


def _now(_: Any = None) -> Instant:
    return Instant.of_epoch_milli(time.time_ns() // 1_000_000)


def _instant_of(text: str, separator: str, zone: str = "Z") -> Instant:
    """The Instant of a text such as ``2026-01-31 12:00:00.5Z``. Raises ValueError."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None or (match[2], match[5]) != (separator, zone):
        raise ValueError(text)
    since = datetime.fromisoformat(f"{match[1]} {match[3]}") - EPOCH
    return Instant(since // timedelta(seconds=1), int((match[4] or "").ljust(9, "0")))


def _timestamp_of(text: str, separator: str) -> datetime:
    instant = _instant_of(text, separator, "")
    return EPOCH + timedelta(seconds=instant.seconds, microseconds=instant.nanos // 1_000)


def _timestamp_text(value: datetime, separator: str) -> str:
    text = value.isoformat(separator)
    return text.rstrip("0") if "." in text else text


def _instant_text(value: Instant, separator: str) -> str:
    digits = f".{value.nanos:09}".rstrip("0") if value.nanos else ""
    return f"{_timestamp_text(EPOCH + timedelta(seconds=value.seconds), separator)}{digits}Z"


#: the types whose texts in JSON and CSV are those of Flink's formats of tables, not those of the DataStream API's
_TIMES: dict[TypeInformation, tuple[Callable[[str, str], Any], Callable[[Any, str], str]]] = {
    Types.SQL_TIMESTAMP(): (_timestamp_of, _timestamp_text),
    Types.INSTANT(): (_instant_of, _instant_text),
}


@dataclass(frozen=True)
class ColumnFormat:
    """What the value of a column is in a stored record. ``separator``: between date and time in texts of times; empty:
    times are stored as they are. ``lenient``: a time that cannot be read is None."""

    column: Column
    separator: str
    lenient: bool

    @property
    def stored(self) -> TypeInformation:
        return Types.STRING() if self.separator and self.column.type in _TIMES else self.column.type

    def read(self, record: Row) -> Any:
        """The value of the column."""
        column, function = self.column, self.column.function
        if function == "PROCTIME":
            return _now()
        stored: Any = record[column.argument or column.name]
        if stored is None or self.stored == column.type and not function:
            return stored
        if function == "TO_TIMESTAMP_LTZ":
            return Instant.of_epoch_milli(stored * 10 ** (3 - column.digits))
        try:
            return _TIMES[column.type][0](stored, " " if function else self.separator)
        except ValueError:
            if self.lenient or function:
                return None
        raise MalformedRecordError(
            f"the time {stored!r:.100} cannot be read",
            where=f"column '{column.name}' of a table",
            expected=f"2026-01-31{self.separator}12:00:00.123 for TIMESTAMP, with Z behind it for TIMESTAMP_LTZ",
            hint="set json.timestamp-format.standard, or declare another type and ts AS TO_TIMESTAMP_LTZ(ms, 3)",
        )

    def write(self, value: Any) -> Any:
        """What is stored of a value of the column."""
        is_stored = value is None or self.stored == self.column.type
        return value if is_stored else _TIMES[self.column.type][1](value, self.separator)


class TableFormat:
    """The columns of a table, and the records that its connector reads and writes. ``row_type`` is the type of the
    table's rows, ``written`` that without computed columns, and ``stored`` the type of the records."""

    def __init__(self, options: Options, table: TableDescriptor) -> None:
        self.options, self.primary_key = options, table.schema.primary_key
        standard = options.choice(options.prefix + "timestamp-format.standard", _STANDARDS, "sql")
        separator = standard if options.format else ""
        lenient = options.get(options.prefix + "ignore-parse-errors", parse_boolean, False)
        self.columns = [ColumnFormat(column, separator, lenient) for column in table.schema.columns]
        self.physical = [each for each in self.columns if not each.column.function]
        names = [each.column.name for each in self.physical]
        self.row_type = table.schema.row_type
        self.written = Types.ROW_NAMED(names, [each.column.type for each in self.physical])
        self.stored = Types.ROW_NAMED(names, [each.stored for each in self.physical])

    def read(self, record: Row) -> Row:
        """The table's row of a stored record."""
        return _create_row(self.row_type.get_field_names(), [each.read(record) for each in self.columns])

    def write(self, row: Row) -> Row:
        """What is stored of a row."""
        values = [each.write(value) for each, value in zip(self.physical, row, strict=True)]
        return _create_row(self.stored.get_field_names(), values, row.get_row_kind())

    def schemas(self) -> tuple[Any, Any]:
        """What reads and writes messages."""
        return (_json if self.options.format == "json" else _csv)(self.options, self.stored)


def _json(options: Options, row_type: RowTypeInfo) -> tuple[Any, Any]:
    reading = json.JsonRowDeserializationSchema.builder().type_info(row_type)
    for option in ("fail-on-missing-field", "ignore-parse-errors"):
        if options.get(options.prefix + option, parse_boolean, False):
            getattr(reading, option.replace("-", "_"))()
    return reading.build(), json.JsonRowSerializationSchema.builder().with_type_info(row_type).build()


def _csv(options: Options, row_type: RowTypeInfo) -> tuple[Any, Any]:
    reading: Any = csv.CsvRowDeserializationSchema.Builder(row_type)
    writing: Any = csv.CsvRowSerializationSchema.Builder(row_type).set_line_delimiter("")
    unquoted = options.get(options.prefix + "disable-quote-character", parse_boolean, False)
    for option in _CSV_TEXTS:
        given = options.get(options.prefix + option, _unescaped, None)
        text = "" if option == "quote-character" and unquoted else given
        for builder in (reading, writing) if text is not None else ():
            getattr(builder, f"set_{option.replace('-', '_')}")(text)
    reading.set_allow_comments(options.get(options.prefix + "allow-comments", parse_boolean, False))
    reading.set_ignore_parse_errors(options.get(options.prefix + "ignore-parse-errors", parse_boolean, False))
    return reading.build(), writing.build()


def _unescaped(text: str) -> str:
    """The text with Java's escape sequences replaced: the two characters ``\\t`` are a tab."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


# --- sources and sinks ----------------------------------------------------------------------------------------------


def _start(options: Options) -> kafka.KafkaOffsetsInitializer:
    def group_offsets() -> kafka.KafkaOffsetsInitializer:
        options.required("properties.group.id")
        resets = {strategy.name.lower(): strategy for strategy in kafka.KafkaOffsetResetStrategy}
        return initializer.committed_offsets(options.choice("properties.auto.offset.reset", resets, "none"))

    initializer = kafka.KafkaOffsetsInitializer
    modes: dict[str, Callable[[], kafka.KafkaOffsetsInitializer]] = {
        "earliest-offset": initializer.earliest,
        "latest-offset": initializer.latest,
        "group-offsets": group_offsets,
        "timestamp": lambda: initializer.timestamp(options.required("scan.startup.timestamp-millis", int)),
    }
    return options.choice("scan.startup.mode", modes, "group-offsets")()


def _kafka_source(table: TableFormat) -> Source:
    options = table.options
    builder = kafka.KafkaSource.builder().set_properties(options.properties()).set_starting_offsets(_start(options))
    interval = options.get("scan.topic-partition-discovery.interval", parse_duration, Duration.of_minutes(5))
    builder.set_property("partition.discovery.interval.ms", str(interval.to_millis()))
    builder.set_topics(*options.required("topic").split(";"))
    return builder.set_value_only_deserializer(table.schemas()[0]).build()


def _kafka_sink(table: TableFormat) -> Sink:
    options = table.options
    records = kafka.KafkaRecordSerializationSchema.builder().set_topic(options.required("topic"))
    records.set_value_serialization_schema(table.schemas()[1])
    builder = kafka.KafkaSink.builder().set_record_serializer(records.build())
    guarantees = {each.name.lower().replace("_", "-"): each for each in kafka.DeliveryGuarantee}
    builder.set_delivery_guarantee(options.choice("sink.delivery-guarantee", guarantees, "at-least-once"))
    builder.set_transactional_id_prefix(options.get("sink.transactional-id-prefix", str, ""))
    for name, text in options.properties().items():
        builder.set_property(name, text)
    # as in Flink, records of a table get the time at which they are written, and not their event time
    return kafka.KafkaSink(replace(builder.build()._settings, timestamped=False))


_LIMITS: dict[TypeInformation, int] = {
    Types.BYTE(): 1 << 7, Types.SHORT(): 1 << 15, Types.INT(): 1 << 31, Types.LONG(): 1 << 63,
}  # fmt: skip


def _datagen_source(table: TableFormat) -> Source:
    options, names, counts = table.options, table.stored.get_field_names(), []
    if (count := options.get("number-of-rows", int, None)) is not None:
        counts.append(count)
    makers = [_maker(options, each.column, counts) for each in table.physical]
    # a row follows from its index alone, so that an epoch that runs again reads the same
    seed = zlib.crc32(options.where.encode()) << 64

    def rows(indices: range) -> list[Row]:
        numbers = [(index, Random(seed + index)) for index in indices]
        return [_create_row(names, [make(index, random) for make in makers]) for index, random in numbers]

    count, per_second = min(counts, default=None), options.get("rows-per-second", float, 10_000.0)
    return DataGeneratorSource(rows, count, table.stored, of_list=True, records_per_second=per_second)


def _maker(options: Options, column: Column, counts: list[int]) -> Callable[[int, Random], Any]:
    """What makes the values of a column from a row's index and its random numbers. Adds to ``counts`` how many they
    are, if they end."""
    kind, (size, scale), field = column.type, (*column.size, 0, 0)[:2], f"fields.{column.name}."
    length, limit = options.get(field + "length", int, size or 100), _LIMITS.get(kind, 10 ** ((size or 10) - scale))
    low, high = options.get(field + "min", Decimal, -limit), options.get(field + "max", Decimal, limit - 1)
    makers: dict[TypeInformation, Callable[[Random], Any]] = {
        **dict.fromkeys(_LIMITS, lambda random: random.randint(int(low), int(high))),
        **dict.fromkeys((Types.FLOAT(), Types.DOUBLE()), lambda random: random.uniform(float(low), float(high))),
        # rounded with the other conversions
        DataTypes.DECIMAL(min(size or 10, 38), scale): lambda random: Decimal(random.uniform(float(low), float(high))),
        Types.BOOLEAN(): lambda random: random.random() < 0.5,
        Types.STRING(): lambda random: f"{random.getrandbits(4 * length):0{length}x}",
        Types.SQL_TIMESTAMP(): lambda random: EPOCH + timedelta(milliseconds=_now().to_epoch_milli()),
        Types.INSTANT(): _now,
    }
    if kind not in makers:
        raise options.error(f"the column '{column.name}' of type {kind!r}", "a number, BOOLEAN, text or TIMESTAMP")
    if options.choice(field + "kind", {"random": True, "sequence": False}, "random"):
        make = makers[kind]
        return lambda index, random: kind.convert(make(random))
    first, last = options.required(field + "start", int), options.required(field + "end", int)
    counts.append(last - first + 1)
    cast = str if kind == Types.STRING() else kind.convert
    return lambda index, random: cast(first + index)


@dataclass(frozen=True)
class _Lines(Encoder):
    """Writes one line per record."""

    schema: SerializationSchema

    def encode(self, value: Any) -> bytes:
        return (self.schema.serialize(value) or b"") + b"\n"


def _files_source(table: TableFormat) -> Source:
    options, reading = table.options, table.schemas()[0]
    content = file_system.StreamFormat(reading, skip_blank=True, spanning=getattr(reading, "records", None))
    interval = options.get("source.monitor-interval", parse_duration, None)
    return file_system.FileSource(content, [options.required("path")], interval)


def _files_sink(table: TableFormat) -> Sink:
    size = table.options.get("sink.rolling-policy.file-size", parse_memory, 128 << 20)
    builder = file_system.FileSink.for_row_format(table.options.required("path"), _Lines(table.schemas()[1]))
    builder.with_rolling_policy(file_system.RollingPolicy.default_rolling_policy(size))
    return builder.with_bucket_assigner(file_system.BucketAssigner.base_path_bucket_assigner()).build()


def _jdbc_sink(table: TableFormat) -> Sink:
    options, row_type, into = table.options, table.stored, table.options.required("table-name")
    user, password = options.get("username", str, None), options.get("password", str, None)
    database = jdbc.JdbcConnectionOptions(options.required("url"), options.get("driver", str, None), user, password)
    rows, retries = options.get("sink.buffer-flush.max-rows", int, 100), options.get("sink.max-retries", int, 3)
    execution = jdbc.JdbcExecutionOptions(0, rows, retries)
    if table.primary_key:
        return jdbc.JdbcSink.upsert(into, table.primary_key, row_type, database, execution)
    sql = insert_of(into.split("."), row_type.get_field_names(), parse_url(database.url).dialect)
    return jdbc.JdbcSink.sink(sql, row_type, database, execution)


def _print_sink(table: TableFormat) -> Sink:
    """The sink of the texts of rows."""
    to_std_err = table.options.get("standard-error", parse_boolean, False)
    return PrintSink(table.options.get("print-identifier", str, ""), Types.STRING(), to_std_err)


SOURCES = {"kafka": _kafka_source, "datagen": _datagen_source, "filesystem": _files_source}
#: of 'blackhole', nothing arrives at the sink
SINKS = {
    "kafka": _kafka_sink,
    "filesystem": _files_sink,
    "jdbc": _jdbc_sink,
    "print": _print_sink,
    "blackhole": _print_sink,
}
