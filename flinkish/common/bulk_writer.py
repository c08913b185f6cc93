"""BulkWriterFactory: files whose records are not simply one after the other, such as those of columns.

Rule upheld here: a bulk writer makes the content of one file, which is what a subtask writes in one epoch.
"""

from __future__ import annotations

import abc
from typing import Any

from flinkish.common.arguments import check_instance
from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.composite import RowTypeInfo


class BulkWriter(abc.ABC):
    """Makes one file."""

    @abc.abstractmethod
    def add_batch(self, values: list[Any]) -> None:
        """More records."""

    @abc.abstractmethod
    def finish(self) -> bytes:
        """The content of the file. The writer is not used again."""


class BulkWriterFactory(abc.ABC):
    """Makes writers, in the workers. Subclass it in plain Python; it must be picklable."""

    @abc.abstractmethod
    def create(self) -> BulkWriter:
        """A writer for another file."""

    def bind(self, type_info: TypeInformation) -> BulkWriterFactory:
        """A factory for records of this type; called once by the sink. This one, unless the type matters to it."""
        return self


class RowDataBulkWriterFactory(BulkWriterFactory):
    """Of files of columns: records are Rows, or tuples, of this type."""

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
        """The type of the records."""
        return self._row_type
