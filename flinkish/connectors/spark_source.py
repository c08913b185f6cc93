"""``from_spark``: any streaming DataFrame as a source."""

from __future__ import annotations

from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.column_decoder import ColumnDecoder
from flinkish.connectors.spark_types import type_of_schema
from flinkish.core.source import DataFrameSource, RecordDecoder, SourceLimits
from flinkish.errors import ProgramError, SavepointError


class SparkSource(DataFrameSource):
    """Rows of a streaming DataFrame; the field names and types are those of its schema.

    Limits of an epoch are those that the DataFrame's own source was given. Restarts of the job are exact; a savepoint
    cannot be restored, since a DataFrame cannot be told where to begin.

    Args:
        frame: a streaming DataFrame.
        bounded: whether the job ends when there is nothing more to read (Spark's ``availableNow``).

    Raises:
        ProgramError: the DataFrame is not a streaming one.
        TypeMismatchError: a column has a type that flinkish does not have.
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
        # a DataFrame belongs to the driver's session; the workers only need the decoder
        return {**self.__dict__, "_frame": None}
