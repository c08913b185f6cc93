"""The source of ``from_spark``: reads any streaming DataFrame."""

from __future__ import annotations

from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.column_decoder import ColumnDecoder
from flinkish.connectors.spark_types import type_of_schema
from flinkish.core.source import DataFrameSource, RecordDecoder, SourceLimits
from flinkish.errors import ProgramError, SavepointError


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
