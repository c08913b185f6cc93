"""The record decoder of sources whose DataFrame has one column per field: Delta tables and streaming DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.columns import RecordReader
from flinkish.core.source import RecordDecoder

if TYPE_CHECKING:
    import pyarrow


class ColumnDecoder(RecordDecoder):
    """Decodes Arrow batches, one column per field of the type, to records of that type without timestamps.

    ``where`` names the source in error messages.
    """

    def __init__(self, type_info: TypeInformation, where: str) -> None:
        self._type_info = type_info
        self._where = where
        self._reader: RecordReader | None = None

    def decode(self, batch: pyarrow.RecordBatch) -> tuple[list[Any], list[int] | None]:
        reader = self._reader
        if reader is None:
            reader = self._reader = RecordReader(self._type_info, self._where)
        return reader.read(batch), None

    def __getstate__(self) -> tuple[TypeInformation, str]:
        return (self._type_info, self._where)

    def __setstate__(self, state: tuple[TypeInformation, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]
