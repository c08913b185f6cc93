"""What is in the files: lines with a schema each, or Parquet columns. PyFlink's ``StreamFormat`` and ``BulkFormat``."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from flinkish.common.serialization import DeserializationSchema, SimpleStringSchema
from flinkish.common.typeinfo import TypeInformation
from flinkish.errors import ProgramError


@dataclass(frozen=True)
class StreamFormat:
    """Files of lines; each line is a message for ``schema``.

    ``skip_blank``: a line of blanks is no record. ``header``: a line with exactly this text is no record (CSV).
    """

    schema: DeserializationSchema
    skip_blank: bool = False
    header: str | None = None

    @property
    def produced_type(self) -> TypeInformation:
        return self.schema.get_produced_type()

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Each line is a text; lines end with ``\\n``, ``\\r\\n`` or ``\\r``. Bytes that are no text are an error.

        Raises:
            ProgramError: a charset in which the end of a line is not the byte 10.
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
    """Parquet files; ``type_info`` is a ROW_NAMED (Rows) or, with ``columns``, a TUPLE. Other columns are not read.

    Raises:
        ProgramError: the number of columns is not that of the type.
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
