"""BulkWriter and its factory: file formats that do not simply write one record after another, such as columnar ones.

Rule upheld here: a bulk writer encodes one file, which holds what a subtask writes in one epoch.
"""

from __future__ import annotations

import abc
from typing import Any

from flinkish.common.arguments import check_instance
from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.composite import RowTypeInfo


class BulkWriter(abc.ABC):
    """Encodes the records of one file."""

    @abc.abstractmethod
    def add_batch(self, values: list[Any]) -> None:
        """Add these records to the file."""

    @abc.abstractmethod
    def finish(self) -> bytes:
        """The content of the whole file. The writer is not used again."""


class BulkWriterFactory(abc.ABC):
    """Creates bulk writers in the workers. Subclass it in plain Python; it must be picklable."""

    #: the end of the names of the files, by which readers know the format, such as ``.parquet``
    file_suffix: str = ""

    @abc.abstractmethod
    def create(self) -> BulkWriter:
        """A new writer for one file."""

    def bind(self, type_info: TypeInformation) -> BulkWriterFactory:
        """A factory for records of this type; the sink calls this once. Itself, unless the format needs the type."""
        return self


class RowDataBulkWriterFactory(BulkWriterFactory):
    """Base of the factories for columnar files, whose records are Rows or tuples of the given row type."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        check_instance(
            row_type,
            RowTypeInfo,
            "the row type is",
            type(self).__name__,
            "DataTypes of the Table API and Types of the DataStream API will both do",
            "DataTypes.ROW([...]) or Types.ROW_NAMED(...)",
        )
        self._row_type = row_type

    def get_row_type(self) -> RowTypeInfo:
        """The row type of the records."""
        return self._row_type
