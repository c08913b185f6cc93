"""A table as its connector sees it: which connectors and formats there are, the options that may be said of each, the
columns that are stored, those of metadata, the primary key, and what reads and writes its messages, lines and files.

Rule upheld here: the options of a connector and of a format are listed. One that is not in its list is an error that
shows the list. Values of options may be secrets: no message quotes one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from flinkish.common.no_effect import warn_without_effect
from flinkish.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from flinkish.common.typeinfo import RowTypeInfo, Types
from flinkish.common.types import Row
from flinkish.common.units import parse_boolean
from flinkish.connectors.columns import RecordReader
from flinkish.errors import ConfigurationError
from flinkish.formats._csv_values import CsvDialect, CsvReading
from flinkish.formats._json_values import JsonReading, JsonWriting
from flinkish.formats.columns import ColumnDecoder, CsvColumns, RawColumns
from flinkish.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from flinkish.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from flinkish.formats.json_columns import JsonColumns
from flinkish.table.logical_types import BIGINT, BYTES, INT, STRING, LogicalType, map_of, timestamp_ltz
from flinkish.table.schema import TableDescriptor
from flinkish.table.syntax import ColumnDefinition

T = TypeVar("T")

_KAFKA = "topic properties.* value.format key.format key.fields-prefix value.fields-include sink.delivery-guarantee "
_KAFKA += "sink.transactional-id-prefix scan.bounded.mode scan.bounded.timestamp-millis sink.parallelism "
_FLUSH = "sink.buffer-flush.max-rows sink.buffer-flush.interval "
_OPTIONS = {
    "kafka": _KAFKA + "topic-pattern format key.fields scan.startup.mode scan.startup.specific-offsets "
    "scan.startup.timestamp-millis scan.topic-partition-discovery.interval sink.partitioner",
    "upsert-kafka": _KAFKA + _FLUSH,
    "datagen": "rows-per-second number-of-rows fields.*.kind fields.*.start fields.*.end fields.*.min fields.*.max "
    "fields.*.length fields.*.var-len fields.*.max-past fields.*.null-rate",
    "filesystem": "path format source.monitor-interval sink.rolling-policy.file-size "
    "sink.rolling-policy.rollover-interval sink.rolling-policy.check-interval sink.parallelism "
    "auto-compaction compaction.file-size source.report-statistics",
    "delta": "table-path path table startingVersion startingTimestamp ignoreDeletes ignoreChanges skipChangeCommits "
    "mergeSchema partition-columns bounded sink.parallelism",
    "jdbc": "url table-name driver username password scan.fetch-size scan.key-column scan.auto-commit "
    "sink.max-retries sink.parallelism connection.max-retry-timeout lookup.* "
    + _FLUSH,
    "print": "print-identifier standard-error sink.parallelism",
    "blackhole": "sink.parallelism",
}  # fmt: skip
_WITH_EPOCH = "files and rows appear with their epoch"
#: Options that are accepted and change nothing -> what holds instead.
_NO_EFFECT = {
    "sink.rolling-policy.rollover-interval": _WITH_EPOCH,
    "sink.rolling-policy.check-interval": _WITH_EPOCH,
    "sink.buffer-flush.interval": _WITH_EPOCH,
    "sink.partitioner": "Kafka's client chooses the partitions, by the key if there is one",
    "auto-compaction": "each file is final when its epoch ends",
    "compaction.file-size": "each file is final when its epoch ends",
    "source.report-statistics": "plans do not depend on statistics",
    "scan.auto-commit": "rows are read page by page",
    "connection.max-retry-timeout": "connections are tried again as the restart strategy says",
    "lookup.*": "there are no lookup joins",
    "*parquet.utc-timezone": "moments in files are in UTC",
}
#: The options of CSV that are texts, and setters of the builders of its schemas.
CSV_TEXTS = ("field-delimiter", "array-element-delimiter", "quote-character", "escape-character", "null-literal")
_FORMATS = {
    "json": "ignore-parse-errors fail-on-missing-field timestamp-format.standard encode.ignore-null-fields "
    "encode.decimal-as-plain-number",
    "csv": " ".join(("ignore-parse-errors", "allow-comments", "disable-quote-character", *CSV_TEXTS)),
    "raw": "charset",
    "parquet": "compression utc-timezone",
}
#: Connector -> its formats.
_FORMATS_OF = {
    "filesystem": ("csv", "json", "parquet"),
    **dict.fromkeys(("kafka", "upsert-kafka"), ("csv", "json", "raw")),
}
#: The standards of texts of times -> what stands between date and time.
_STANDARDS = {"sql": " ", "iso-8601": "T"}
#: The metadata of Kafka's records: their keys, with their types; and those that are written.
_METADATA = {
    "topic": STRING, "partition": INT, "offset": BIGINT, "timestamp": timestamp_ltz(3), "timestamp-type": STRING,
    "headers": map_of(STRING, BYTES), "leader-epoch": INT,
}  # fmt: skip
_WRITTEN = ("timestamp", "headers")


class Format(NamedTuple):
    """A format that a table names, and what its options begin with. ``option``: the one that names it."""

    name: str
    prefix: str
    option: str


@dataclass(frozen=True)
class Columns:
    types: dict[str, LogicalType]

    @property
    def names(self) -> list[str]:
        return list(self.types)

    @property
    def row_type(self) -> RowTypeInfo:
        return Types.ROW_NAMED(self.names, [kind.info for kind in self.types.values()])

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, kind.arrow) for name, kind in self.types.items()])

    def only(self, names: Collection[str]) -> Columns:
        return Columns({name: kind for name, kind in self.types.items() if name in names})

    def named(self, names: Sequence[str]) -> Columns:
        return Columns(dict(zip(names, self.types.values(), strict=True)))


def _placed(columns: Iterable[ColumnDefinition]) -> Iterator[str]:
    """The names of columns, and a pattern for what is inside of them."""
    for column in columns:
        yield column.name
        if column.type is not None and column.type.parts:
            yield f"{column.name}.*"


class DeclaredTable:
    """A table: its options, and its columns.

    Raises:
        ConfigurationError: there is no such connector, format, option or metadata, or they do not fit together.
    """

    def __init__(self, table: TableDescriptor, name: str) -> None:
        self.given: Mapping[str, str] = table.options
        self.connector, self.name = table.options.get("connector", ""), name
        if "connector" not in table.options:
            raise self.error("it has no connector", f"'connector' = {' or '.join(map(repr, _OPTIONS))} in WITH (...)")
        if self.connector not in _OPTIONS:
            raise self.error(f"there is no connector {self.connector!r}", ", ".join(_OPTIONS))
        known = ["connector", *_OPTIONS[self.connector].split()]
        fields = [option for option in known if option.startswith("fields.")]
        known += [option.replace("*", each) for option in fields for each in _placed(table.definition.columns)]
        known = [option for option in known if option not in fields]
        #: the formats of the value (or of files) and of the key
        self.format = self._format(("format", "value.format"), known)
        self.key_format = self._format(("key.format",), known)
        if self.format is None and self.connector in _FORMATS_OF:
            raise self.error("the format is missing", self._formats("format"))
        for each in (self.format, self.key_format):
            known += [] if each is None else [each.prefix + option for option in _FORMATS[each.name].split()]
        unknown = [key for key in self.given if not any(fnmatchcase(key, pattern) for pattern in known)]
        if unknown:
            raise self.error(f"unsupported options: {', '.join(unknown)}", ", ".join(known))
        for option in self.given:
            why = next((why for pattern, why in _NO_EFFECT.items() if fnmatchcase(option, pattern)), None)
            if why is not None:
                warn_without_effect(f"the option '{option}' of a table", why)
        self.primary_key = table.definition.primary_key
        columns = table.definition.columns
        self.physical = Columns({each.name: each.type for each in columns if each.type and each.metadata is None})
        #: the columns of metadata: name -> its key
        self.metadata: dict[str, str] = {}
        #: those that are not written
        self.virtual: set[str] = set()
        #: the types of both, in the order in which the table has them
        self._kinds: dict[str, LogicalType] = {}
        for column in columns:
            if column.metadata is not None:
                self.metadata[column.name] = column.metadata
                self._kinds[column.name] = self._checked(column.metadata, column.name, column.type)
                self.virtual |= {column.name} if column.virtual else set()
            elif column.name in self.physical.types:
                self._kinds[column.name] = self.physical.types[column.name]

    def _format(self, names: tuple[str, ...], known: list[str]) -> Format | None:
        option = next((name for name in names if name in self.given and name in known), None)
        if option is None:
            return None
        name = self.given[option]
        if name not in _FORMATS_OF[self.connector]:
            raise self.error(f"there is no format {name!r}", self._formats(option))
        return Format(name, f"{option.removesuffix('format')}{name}.", option)

    def _formats(self, option: str) -> str:
        return f"'{option}' = {' or '.join(map(repr, _FORMATS_OF[self.connector]))}"

    def get(self, key: str, read: Callable[[str], T], default: T) -> T:
        """The value of an option. Raises ConfigurationError if it cannot be read."""
        try:
            return read(self.given[key]) if key in self.given else default
        except (ValueError, ArithmeticError) as error:
            # what Python says of a number quotes it
            _, ours, expected = str(error).rpartition("expected ")
            expected = expected if ours else "a number"
            raise self.error(f"the value of the option '{key}' cannot be read", expected) from None

    def choice(self, key: str, choices: Mapping[str, T], default: str) -> T:
        """What the value of an option stands for, whose letters may be small or capital."""
        found = self.given.get(key, default)
        if found.lower() not in choices:
            raise self.error(f"the value of the option '{key}' is none of its choices", " or ".join(choices))
        return choices[found.lower()]

    def flag(self, key: str, default: bool = False) -> bool:
        return self.get(key, parse_boolean, default)

    def required(self, key: str, read: Callable[[str], Any] = str) -> Any:
        if key not in self.given:
            raise self.error(f"the option '{key}' is missing", f"'{key}' = '...' in WITH (...)")
        return self.get(key, read, None)

    def list_of(self, key: str) -> list[str]:
        """The names that an option lists, which semicolons part."""
        return [name.strip() for name in self.given.get(key, "").split(";") if name.strip()]

    def separator(self, of: Format) -> str:
        """What stands between date and time in the texts of times of a format."""
        return self.choice(of.prefix + "timestamp-format.standard", _STANDARDS, "sql")

    @property
    def parallelism(self) -> int | None:
        found = self.get("sink.parallelism", int, None)
        if found is not None and found < 1:
            raise self.error("the value of the option 'sink.parallelism' is less than 1", "the number of subtasks")
        return found

    def properties(self) -> dict[str, str]:
        self.required("properties.bootstrap.servers")
        given = {key.partition("properties."): text for key, text in self.given.items()}
        return {name: text for (before, found, name), text in given.items() if found and not before}

    def error(self, what: str, expected: str, hint: str = "see docs/tables.md") -> ConfigurationError:
        connector = f", connector '{self.connector}'" * bool(self.connector)
        return ConfigurationError(what, where=f"table '{self.name}'{connector}", expected=expected, hint=hint)

    @property
    def is_keyed(self) -> bool:
        """Whether its records are changes of the row of their key."""
        return self.connector == "upsert-kafka"

    def _checked(self, key: str, column: str, declared: LogicalType | None) -> LogicalType:
        known = _METADATA if self.connector.endswith("kafka") else {}
        if key not in known:
            listed = ", ".join(known) or "none: the connector has no metadata"
            raise self.error(f"there is no metadata {key!r} (column '{column}')", listed)
        kind = known[key]
        declared = declared or kind
        fits = declared.root == kind.root or kind.is_numeric and (declared.is_numeric or declared.is_text)
        if not fits and (kind.root, declared.root) != ("TIMESTAMP_LTZ", "TIMESTAMP") or declared.parts != kind.parts:
            raise self.error(f"the column '{column}' of the metadata {key!r} has the type {declared}", str(kind))
        return declared

    def columns(self, used: Sequence[str]) -> Columns:
        """The columns that are used, in their order."""
        return Columns({name: self._kinds[name] for name in used})

    def facts(self, used: Collection[str]) -> dict[str, str]:
        return {name: key for name, key in self.metadata.items() if name in used}

    @property
    def written(self) -> Columns:
        """The columns that are written, in their order.

        Raises:
            ConfigurationError: one of them is metadata that cannot be written.
        """
        for name, key in self.metadata.items():
            if name not in self.virtual and key not in _WRITTEN:
                expected = f"METADATA VIRTUAL, or one of {', '.join(_WRITTEN)}"
                raise self.error(f"the metadata {key!r} (column '{name}') cannot be written", expected)
        return Columns({name: kind for name, kind in self._kinds.items() if name not in self.virtual})

    def key_and_value(self) -> tuple[Columns, Columns]:
        """The columns of Kafka's keys and of its values."""
        names, prefix, listed = self.physical.names, self.get("key.fields-prefix", str, ""), self.list_of("key.fields")
        if self.is_keyed:
            if not self.primary_key:
                raise self.error("the table has no PRIMARY KEY", "PRIMARY KEY (...) NOT ENFORCED among its columns")
            listed = [name for name in names if name in self.primary_key]
            self.required("key.format")
        elif bool(listed) != (self.key_format is not None):
            raise self.error("'key.fields' and 'key.format' belong together", "both of them, or none")
        apart = self.choice("value.fields-include", {"all": False, "except_key": True}, "all")
        for name in listed:
            if name not in names:
                raise self.error(f"the key field '{name}' is no column", f"some of {', '.join(names)}")
            if not name.startswith(prefix):
                raise self.error(f"the key field '{name}' does not begin with 'key.fields-prefix'", prefix)
        if prefix and not apart:
            raise self.error("'key.fields-prefix' with all fields", "'value.fields-include' = 'EXCEPT_KEY' too")
        value = self.physical.only([name for name in names if not (apart and name in listed)])
        return self.physical.only(listed), value


class TableFormat:
    """A format with the options that a table gives it, for messages with these fields."""

    def __init__(self, options: DeclaredTable, of: Format, columns: Columns) -> None:
        self._options, self._of, self._columns = options, of, columns
        if of.name == "raw" and [kind.root for kind in columns.types.values()] not in (["VARCHAR"], ["VARBINARY"]):
            listed = ", ".join(f"{name} {kind}" for name, kind in columns.types.items())
            raise options.error(f"the format 'raw' has the columns {listed}", "one column, of type STRING or BYTES")

    def decoder(self, used: Collection[str]) -> ColumnDecoder:
        """What makes the columns ``used`` of messages."""
        if self._of.name == "json":
            return JsonColumns(self._columns.row_type, self._json_reading, used)
        if self._of.name == "csv":
            return CsvColumns(self._columns.row_type, *self._csv, used)
        return RawColumns(self._columns.schema, self._charset)

    def reading(self) -> DeserializationSchema:
        """What makes Rows of messages."""
        row_type = self._columns.row_type
        if self._of.name == "json":
            return JsonRowDeserializationSchema(row_type, self._json_reading)
        return CsvRowDeserializationSchema(row_type, *self._csv)

    def writing(self) -> SerializationSchema:
        row_type = self._columns.row_type
        if self._of.name == "json":
            options, prefix = self._options, self._of.prefix + "encode."
            flags = [options.flag(prefix + name) for name in ("ignore-null-fields", "decimal-as-plain-number")]
            return JsonRowSerializationSchema(row_type, JsonWriting(options.separator(self._of), *flags))
        if self._of.name == "csv":
            dialect = self._csv[0].having(null_literal=self._csv[0].null_literal or "", line_delimiter="")
            return CsvRowSerializationSchema(row_type, dialect)
        return _OneField(SimpleStringSchema(self._charset) if self._charset else ByteArraySchema())

    @property
    def _charset(self) -> str:
        """That of texts; empty: the column is one of bytes."""
        texts = next(iter(self._columns.types.values())).root == "VARCHAR"
        return self._options.get(self._of.prefix + "charset", str, "UTF-8") if texts else ""

    @property
    def _json_reading(self) -> JsonReading:
        options, prefix = self._options, self._of.prefix
        missing, ignored = (options.flag(prefix + name) for name in ("fail-on-missing-field", "ignore-parse-errors"))
        if missing and ignored:
            what = f"{prefix}fail-on-missing-field and {prefix}ignore-parse-errors shouldn't both be true"
            raise options.error(what, "one of them")
        return JsonReading(missing, ignored, times=options.separator(self._of))

    @property
    def _csv(self) -> tuple[CsvDialect, CsvReading]:
        options, prefix = self._options, self._of.prefix
        texts = {option: options.get(prefix + option, _unescaped, None) for option in CSV_TEXTS}
        if options.flag(prefix + "disable-quote-character"):
            texts["quote-character"] = ""
        given = {option.replace("-", "_"): text for option, text in texts.items() if text is not None}
        how = CsvReading(options.flag(prefix + "ignore-parse-errors"), options.flag(prefix + "allow-comments"))
        return CsvDialect(times=" ").having(**given), how


@dataclass(frozen=True)
class _OneField(SerializationSchema):
    """Writes the only field of Rows."""

    schema: SerializationSchema

    def serialize(self, value: Any) -> bytes | None:
        return None if value[0] is None else self.schema.serialize(value[0])


@dataclass(frozen=True)
class Lines(Encoder):
    """Writes one line per Row."""

    schema: SerializationSchema

    def encode(self, value: Row) -> bytes:
        return (self.schema.serialize(value) or b"") + b"\n"

    def encode_batch(self, values: list[Any]) -> bytes:
        return b"".join([(line or b"") + b"\n" for line in self.schema.serialize_batch(values)])


def _unescaped(text: str) -> str:
    """The text with Java's escape sequences replaced: the two characters ``\\t`` are a tab."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def rows_reader(row_type: RowTypeInfo) -> Callable[[pa.RecordBatch], list[Any]]:
    """What makes Rows of batches of their columns."""
    return RecordReader(row_type, "a table").read


def takes_changes(table: TableDescriptor) -> bool:
    connector = table.options.get("connector")
    if connector in ("jdbc", "delta", "upsert-kafka"):
        return bool(table.definition.primary_key)
    return connector in ("print", "blackhole")


def takes_updates_alone(table: TableDescriptor, key: tuple[str, ...]) -> bool:
    """Whether a table that takes changes needs no rows that say what an update replaces: it drops all rows, or knows
    them by the columns ``key``, whose values are there once."""
    connector = table.options.get("connector")
    of_table = table.definition.primary_key
    return connector == "blackhole" or (connector != "print" and bool(key) and set(key) == set(of_table))


def gives_changes(table: TableDescriptor) -> bool:
    """Whether the rows that are read are changes of those of their key."""
    return table.options.get("connector") == "upsert-kafka"


def is_bounded(table: TableDescriptor) -> bool:
    """Whether a table ends by itself when it is read."""
    options = table.options
    match options.get("connector"):
        case "filesystem":
            return "source.monitor-interval" not in options
        case "datagen":
            return "number-of-rows" in options or "sequence" in options.values()
        case "kafka" | "upsert-kafka":
            return options.get("scan.bounded.mode", "unbounded") != "unbounded"
        case "delta":
            return options.get("bounded") == "true"
    return options.get("connector") == "jdbc"
