"""The formats of files that a source reads, PyFlink's ``StreamFormat`` and ``BulkFormat``: lines that a schema
deserializes, or Parquet columns."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass

from flinkish.common.serialization import DeserializationSchema, SimpleStringSchema
from flinkish.common.typeinfo import TypeInformation
from flinkish.errors import ProgramError
from flinkish.formats.csv import CsvRecords


@dataclass(frozen=True)
class StreamFormat:
    """The format of files of lines; ``schema`` deserializes each line.

    With ``skip_blank`` an empty or blank line is no record, and with ``skip_comments`` none that begins with ``#``. Nor
    are the first ``first_lines`` of the other lines of a file; ``check_header`` gets the first one and raises
    MalformedRecordError if it is not the header of such files. With ``spanning`` a record may span lines, so that a
    file cannot be cut: it is read as a whole.
    """

    schema: DeserializationSchema
    skip_blank: bool = False
    skip_comments: bool = False
    first_lines: int = 0
    check_header: Callable[[bytes], None] | None = None
    spanning: CsvRecords | None = None

    @property
    def produced_type(self) -> TypeInformation:
        return self.schema.get_produced_type()

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """The format of text files whose lines are records of type STRING. Lines end with ``\\n``, ``\\r\\n`` or
        ``\\r``. Bytes that the charset cannot decode are an error.

        Raises:
            ProgramError: the charset is not known, or does not encode a line feed as the byte 10 (UTF-16, UTF-32).
        """
        try:
            single = "\n".encode(codecs.lookup(charset_name).name.replace("_sig", "")) == b"\n"
        except LookupError:
            single = False
        if not single:
            raise ProgramError(
                f"the charset {charset_name!r} cannot be read in lines",
                where="StreamFormat.text_line_format",
                expected="a charset that Python knows and that holds ASCII, such as UTF-8 or ISO-8859-1",
                hint="convert UTF-16 and UTF-32 files first",
            )
        return StreamFormat(SimpleStringSchema(charset_name))


@dataclass(frozen=True)
class BulkFormat:
    """The format of Parquet files that are read as Rows (``type_info`` is a ROW) or tuples (a TUPLE). ``columns`` are
    the names of the columns for the fields of the type, in their order; other columns are not read.

    Raises:
        ProgramError: there are not as many columns as fields of the type.
    """

    type_info: TypeInformation
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.type_info.to_arrow_fields()) != len(self.columns):
            raise ProgramError(
                f"{len(self.columns)} columns {list(self.columns)} for the type {self.type_info!r}",
                where="FileSource",
                expected="one column name per field",
            )

    @property
    def produced_type(self) -> TypeInformation:
        return self.type_info
