"""``DeltaSource``: reads a Delta table as a stream of Rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flinkish.common.sealed_json import json_as
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.connectors.column_decoder import ColumnDecoder
from flinkish.connectors.spark_types import type_of_schema
from flinkish.core.source import DataFrameSource, RecordDecoder, SourceLimits
from flinkish.errors import ProgramError, SavepointError

#: The options of Delta's reader that say where to start, in lower case, as Spark compares them.
_STARTS = ("startingversion", "startingtimestamp")


class DeltaSource(DataFrameSource):
    """Reads the rows of a Delta table: first the rows that it has, then the rows that are appended to it.

    Args:
        path: path or URI of the table.
        type_info: a ROW_NAMED of the columns to read; None: all columns, with the types of the table's schema (read by
            Spark when the type is needed, which requires an active session).
        bounded: whether the source ends when it has read everything that is there.
        options: further options of Delta's reader (``ignoreDeletes``, ``skipChangeCommits``, ``startingVersion``, ...).

    Restore: exact if the savepoint's epoch ended with a whole version of the table. A savepoint taken in the middle of
    a version (a large one that is read over several epochs) is refused. An update or delete in the table fails the job,
    unless the options say otherwise.

    Raises:
        ProgramError: the type is no ROW; or, when the job starts, there is no such table or it lacks a column.
        SavepointError: when the job starts, the savepoint was taken in the middle of a version.
    """

    def __init__(
        self,
        path: str,
        type_info: TypeInformation | None = None,
        bounded: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if type_info is not None and not isinstance(type_info, RowTypeInfo):
            raise ProgramError(
                f"the type {type_info!r} has no columns", where=f"DeltaSource {path}", expected="Types.ROW_NAMED"
            )
        self._path = path
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
            from pyspark.sql import SparkSession

            self._type_info = type_of_schema(self._checked(lambda: _read_schema(SparkSession.active(), self._path)))
        return self._type_info

    def decoder(self) -> RecordDecoder:
        return ColumnDecoder(self._row_type(), f"DeltaSource {self._path}")

    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        options = self._options
        if start is not None:
            # Delta refuses two places to start at
            options = {key: value for key, value in options.items() if key.lower() not in _STARTS}
            options["startingVersion"] = str(_version(start))
        reader = spark.readStream.format("delta").option("maxBytesPerTrigger", str(limits.max_bytes))
        for key, value in options.items():
            reader = reader.option(key, value)
        names = [f"`{name.replace('`', '``')}`" for name in self._row_type().get_field_names()]
        return self._checked(lambda: reader.load(self._path).select(*names))

    def _checked(self, action: Any) -> Any:
        from pyspark.errors import AnalysisException

        try:
            return action()
        except AnalysisException as error:
            raise ProgramError(
                f"the Delta table cannot be read: {str(error).splitlines()[0]}",
                where=f"DeltaSource {self._path}",
                expected="a Delta table with the declared columns",
                hint="create the table first, or correct path and names",
            ) from error


def _read_schema(spark: Any, path: str) -> Any:
    return spark.read.format("delta").load(path).schema


@dataclass(frozen=True)
class _Offset:
    """An offset of Delta's source, in Delta's names; the newest versions call the flag ``isInitialSnapshot``."""

    reservoirVersion: int  # noqa: N815
    index: int
    isStartingVersion: bool = False  # noqa: N815
    isInitialSnapshot: bool = False  # noqa: N815


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
