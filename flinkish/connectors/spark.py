"""The sources that Spark reads: ``DeltaSource``, which reads a Delta table as a stream of Rows, and ``SparkSource``,
which reads any streaming DataFrame (``from_spark``); what a Delta table is called (`DeltaTable`); and flinkish's types
as Spark's and back.

Spark's types are written as DDL text, so that this module needs no pyspark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flinkish.common.typeinfo import RowTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.arrow import ddl_of_arrow, quoted
from flinkish.connectors.columns import ColumnDecoder
from flinkish.core.source import DataFrameSource, RecordDecoder, SourceLimits
from flinkish.delta.log import described_table, newest_version
from flinkish.errors import ProgramError, SavepointError, TypeMismatchError
from flinkish.storage.sealed import json_as


def ddl_of(type_info: TypeInformation) -> str:
    """The schema, as DDL text, of a DataFrame whose rows are records of this type.

    >>> ddl_of(Types.ROW_NAMED(["user", "tags"], [Types.STRING(), Types.LIST(Types.INT())]))
    '`user` STRING, `tags` ARRAY<INT>'

    Raises:
        TypeMismatchError: a field has a type that Spark does not have (a time of day).
    """
    return ", ".join(f"{quoted(field.name)} {ddl_of_arrow(field.type)}" for field in type_info.to_arrow_fields())


def type_of_schema(schema: Any) -> RowTypeInfo:
    """The ROW type of a DataFrame's schema (a pyspark ``StructType``), with its field names.

    Raises:
        TypeMismatchError: a column has a Spark type without a counterpart in flinkish (intervals, variants).
    """
    return Types.ROW_NAMED(
        [field.name for field in schema.fields], [_type_of(field.dataType) for field in schema.fields]
    )


def _type_of(spark_type: Any) -> TypeInformation:
    name = type(spark_type).__name__
    if name == "StructType":
        return type_of_schema(spark_type)
    if name == "ArrayType":
        return Types.LIST(_type_of(spark_type.elementType))
    if name == "MapType":
        return Types.MAP(_type_of(spark_type.keyType), _type_of(spark_type.valueType))
    if name not in _OF_SPARK:
        raise TypeMismatchError(
            f"flinkish has no type for Spark's {spark_type.simpleString()}",
            where="schema of a DataFrame",
            expected=f"one of {', '.join(sorted(_OF_SPARK))}, or structs, arrays and maps of them",
            hint="cast or drop the column first",
        )
    return _OF_SPARK[name]()


def with_wider_decimals(frame: Any, schema: Any) -> Any | None:
    """The DataFrame with the columns of a schema (a pyspark ``StructType``) where these differ by wider decimals alone;
    None: there is no such column."""
    there = {field.name.lower(): field.dataType for field in schema.fields}
    wider = {}
    for field in frame.schema.fields:
        kind = there.get(field.name.lower(), field.dataType)
        if _shape(kind) != _shape(field.dataType) and _holds(kind, field.dataType):
            wider[field.name] = frame[quoted(field.name)].cast(kind)
    return frame.withColumns(wider) if wider else None


def _shape(kind: Any) -> str:
    return str(kind.simpleString())


def _holds(wide: Any, narrow: Any) -> bool:
    """Whether each value of a Spark type, cast to the other one, is the same number there."""
    name = type(wide).__name__
    if name != type(narrow).__name__:
        return False
    if name == "DecimalType":
        return bool(wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale)
    if name == "ArrayType":
        return _holds(wide.elementType, narrow.elementType)
    if name == "MapType":
        return _holds(wide.keyType, narrow.keyType) and _holds(wide.valueType, narrow.valueType)
    if name == "StructType":
        pairs = list(zip(wide.fields, narrow.fields, strict=False))
        same = len(wide.fields) == len(narrow.fields) and all(one.name == other.name for one, other in pairs)
        return same and all(_holds(one.dataType, other.dataType) for one, other in pairs)
    return _shape(wide) == _shape(narrow)


_OF_SPARK: dict[str, Callable[[], TypeInformation]] = {
    "StringType": Types.STRING,
    "VarcharType": Types.STRING,
    "CharType": Types.STRING,
    "ByteType": Types.BYTE,
    "ShortType": Types.SHORT,
    "IntegerType": Types.INT,
    "LongType": Types.LONG,
    "FloatType": Types.FLOAT,
    "DoubleType": Types.DOUBLE,
    "BooleanType": Types.BOOLEAN,
    "DecimalType": Types.BIG_DEC,
    "DateType": Types.SQL_DATE,
    "TimestampType": Types.INSTANT,
    "TimestampNTZType": Types.SQL_TIMESTAMP,
    "BinaryType": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
}


#: The options of Delta's reader that say where to start, in lower case, as Spark compares them.
_STARTS = ("startingversion", "startingtimestamp")


#: One to three parts of a name in Spark's catalogs; a part in backquotes may have any characters.
_TABLE_NAME = re.compile(r"(?:\w+|`(?:[^`]|``)+`)(?:\.(?:\w+|`(?:[^`]|``)+`)){0,2}")


@dataclass(frozen=True)
class DeltaTable:
    """A Delta table, by its path or by its name in a catalog of Spark, such as those of Unity Catalog and Glue.

    Args:
        path: path or URI of the table; "": the table has a name.
        name: ``catalog.schema.table``, ``schema.table`` or ``table``; the rest is what the session has then.

    Raises:
        ProgramError: none of the two is given, or both, or the name is none.
    """

    path: str
    name: str = ""

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.name):
            raise ProgramError(
                "a Delta table without a path and a name" if not self.name else f"{self.path} and {self.name}",
                where="DeltaSource, DeltaSink",
                expected="either the path of the table, or table='catalog.schema.table'",
            )
        if self.name and _TABLE_NAME.fullmatch(self.name) is None:
            raise ProgramError(
                f"{self.name!r} is no name of a table",
                where="DeltaSource, DeltaSink",
                expected="catalog.schema.table, with parts of other characters in backquotes",
                hint="a path is the first argument",
            )

    def __str__(self) -> str:
        return self.path or self.name

    def read(self, session: Any) -> Any:
        """The rows of the table as a DataFrame of this session."""
        reader = session.read.format("delta")
        return reader.load(self.path) if self.path else reader.table(self.name)

    def read_stream(self, reader: Any) -> Any:
        """The rows of the table as a streaming DataFrame. ``reader``: Delta's DataStreamReader."""
        return reader.load(self.path) if self.path else reader.table(self.name)

    def write(self, writer: Any) -> None:
        """Write a DataFrame to the table. ``writer``: Delta's DataFrameWriter."""
        if self.path:
            writer.save(self.path)
        else:
            writer.saveAsTable(self.name)

    def location(self, session: Any) -> str | None:
        """The path of the table; None if there is no table of that name, or if the catalog does not say where it is."""
        from pyspark.errors import AnalysisException

        if self.path:
            return self.path
        try:
            return session.sql(f"DESCRIBE DETAIL {self.name}").select("location").collect()[0][0] or None
        except AnalysisException:
            return None


class DeltaSource(DataFrameSource):
    """Reads the rows of a Delta table: first the rows that it has, then the rows that are appended to it.

    Args:
        path: path or URI of the table.
        type_info: a ROW_NAMED of the columns to read; None: all columns, with the types of the table's schema. It is
            read from the table's log; for a table with a name, and where the log cannot be read from here, by Spark,
            which requires an active session when the source is added to the program.
        bounded: whether the source ends when it has read everything that is there.
        options: further options of Delta's reader (``ignoreDeletes``, ``skipChangeCommits``, ``startingVersion``, ...).
        table: instead of ``path``, the name of the table in a catalog of Spark: ``catalog.schema.table``.

    Restore: exact if the savepoint's epoch ended with a whole version of the table. A savepoint taken in the middle of
    a version (a large one that is read over several epochs) is refused. An update or delete in the table fails the job,
    unless the options say otherwise.

    Raises:
        ProgramError: the type is no ROW, or it is not known and there is no session; or, when the job starts, there is
            no such table or it lacks a column.
        SavepointError: when the job starts, the savepoint was taken in the middle of a version.
    """

    def __init__(
        self,
        path: str = "",
        type_info: TypeInformation | None = None,
        bounded: bool = False,
        options: Mapping[str, str] | None = None,
        *,
        table: str = "",
    ) -> None:
        self._table = DeltaTable(path, table)
        if type_info is not None and not isinstance(type_info, RowTypeInfo):
            raise ProgramError(
                f"the type {type_info!r} has no columns", where=f"DeltaSource {self._table}", expected="Types.ROW_NAMED"
            )
        self._type_info = type_info
        self._bounded = bounded
        self._options = dict(options or {})

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def produced_type(self) -> TypeInformation:
        return self._row_type()

    def _row_type(self) -> RowTypeInfo:
        if self._type_info is None:
            self._type_info = type_of_schema(self._schema())
        return self._type_info

    def _schema(self) -> Any:
        """The schema of the table, as Spark has it."""
        from pyspark.sql import SparkSession
        from pyspark.sql.types import StructType

        described = described_table(self._table.path) if self._table.path else None
        if described is not None:
            return StructType.fromJson(json.loads(described["schemaString"]))
        session = SparkSession.getActiveSession()
        if session is None:
            raise ProgramError(
                "the columns of the Delta table are not known before there is a Spark session",
                where=f"DeltaSource {self._table}",
                expected="type_info=Types.ROW_NAMED(...), or an active session",
                hint="correct the path if there is no such table",
            )
        return self._checked(lambda: self._table.read(session).schema)

    @property
    def begins_anew(self) -> bool:
        # with the table as it is then, or with a version that is given
        starts = (value for key, value in self._options.items() if key.lower() == "startingversion")
        return "latest" not in map(str.lower, starts)

    def decoder(self) -> RecordDecoder:
        return ColumnDecoder(self._row_type(), f"DeltaSource {self._table}")

    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        options = self._options
        if start is not None:
            # Delta refuses two places to start at
            options = {key: value for key, value in options.items() if key.lower() not in _STARTS}
            options["startingVersion"] = str(_version(start))
        reader = spark.readStream.format("delta").option("maxBytesPerTrigger", str(limits.max_bytes))
        for key, value in options.items():
            reader = reader.option(key, value)
        frame = self._checked(lambda: self._table.read_stream(reader))
        names = self._row_type().get_field_names()
        there = {name.lower() for name in frame.columns}
        missing = [name for name in names if name.lower() not in there]
        if missing:
            raise ProgramError(
                f"the Delta table has no column {', '.join(map(repr, missing))}",
                where=f"DeltaSource {self._table}",
                expected=f"some of {', '.join(frame.columns)}",
                hint="correct the names in type_info, or leave it out to read all columns",
            )
        return self._checked(lambda: frame.select(*map(quoted, names)))

    def left_behind(self, position: str) -> int | None:
        """The number of the table's versions behind the position; None if the log cannot be read from here."""
        newest = newest_version(self._table.path) if self._table.path else None
        return None if newest is None else max(newest + 1 - json_as(_Offset, position).reservoirVersion, 0)

    def _checked(self, action: Any) -> Any:
        from pyspark.errors import AnalysisException

        try:
            return action()
        except AnalysisException as error:
            raise ProgramError(
                f"the Delta table cannot be read: {str(error).splitlines()[0]}",
                where=f"DeltaSource {self._table}",
                expected="a Delta table with the declared columns",
                hint="create the table first, or correct the path or the name",
            ) from error


@dataclass(frozen=True)
class _Offset:
    """An offset of Delta's source, in Delta's names; the newest versions call the flag ``isInitialSnapshot``."""

    reservoirVersion: int
    index: int
    isStartingVersion: bool = False
    isInitialSnapshot: bool = False


def _version(start: str) -> int:
    """The version of the table to start reading from, parsed from the end offset in Spark's query progress.

    Raises:
        SavepointError: the offset cannot be read, or lies in the middle of a version.

    >>> _version('{"sourceVersion": 1, "reservoirVersion": 5, "index": -1, "isStartingVersion": false}')
    5
    """
    try:
        offset = json_as(_Offset, start)
        version, index = offset.reservoirVersion, offset.index
        if version < 0:
            raise ValueError("there is no such version")
    except ValueError as error:
        raise SavepointError(
            f"the offset {start[:200]!r} of a Delta source cannot be read: {error}",
            where="DeltaSource",
            expected='{"reservoirVersion": ..., "index": ..., ...}',
            hint="use another savepoint",
        ) from error
    # The index counts the files of a version; -1 is before the first one, large negative numbers mark a version's ends.
    if offset.isStartingVersion or offset.isInitialSnapshot or index >= 0:
        raise SavepointError(
            f"the savepoint was taken in the middle of version {version} of the table (file {index})",
            where="DeltaSource",
            expected="a savepoint of an epoch that ended with a whole version",
            hint="take the savepoint when the job has caught up with the table",
        )
    return version


class SparkSource(DataFrameSource):
    """Reads a streaming DataFrame as Rows whose field names and types are those of its schema.

    How much an epoch reads is limited by the options of the DataFrame's own source only. Restarts of the job are exact.
    A savepoint cannot be restored, since a DataFrame cannot be told where to begin.

    Args:
        frame: a streaming DataFrame.
        bounded: whether the job ends when it has read everything that is there (Spark's ``availableNow``).

    Raises:
        ProgramError: the DataFrame is not a streaming one.
        TypeMismatchError: a column has a Spark type without a counterpart in flinkish.
        SavepointError: when the job starts, it is restored from a savepoint.
    """

    def __init__(self, frame: Any, bounded: bool = False) -> None:
        if not frame.isStreaming:
            raise ProgramError(
                "the DataFrame is not a streaming one",
                where="from_spark",
                expected="one made by spark.readStream",
                hint="for a static one collect() it and use from_collection, or write it to a table and read that",
            )
        self._frame = frame
        self._bounded = bounded
        self._type_info = type_of_schema(frame.schema)

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def produced_type(self) -> TypeInformation:
        return self._type_info

    def decoder(self) -> RecordDecoder:
        return ColumnDecoder(self._type_info, "from_spark")

    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        if start is not None:
            raise SavepointError(
                "a DataFrame cannot be told where to begin",
                where="from_spark",
                hint="give it a DataFrame that begins at the right place, or use a KafkaSource or FileSource",
            )
        if self._frame is None:
            raise ProgramError("the DataFrame stayed behind when the source was pickled", where="from_spark")
        return self._frame

    def __getstate__(self) -> dict[str, Any]:
        # a DataFrame belongs to the driver's session, and the workers need the decoder only
        return {**self.__dict__, "_frame": None}
