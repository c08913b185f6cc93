"""What a statement gives: the rows of a query, which its job sends as they come, those of SHOW and DESCRIBE, or OK; and
the schemas of tables and results.

Rule upheld here: what is printed is what Flink prints, so that a program's output can be compared with it.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flinkish.common.arguments import check_instance
from flinkish.common.job_client import JobClient
from flinkish.common.no_effect import supply_names
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.arrow import RecordWriter, arrow_array
from flinkish.common.types import Row, RowKind, _create_row
from flinkish.errors import ProgramError
from flinkish.table import casts
from flinkish.table.functions import Run
from flinkish.table.logical_types import STRING, LogicalType, declared, of_type_info
from flinkish.table.plan import Field, row_type_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CloseableIterator", "ResolvedSchema", "ResultKind", "TableResult", "TableSchema"]

#: The widths of printed columns by type: those of its longest values. Other types have the greatest width.
_WIDTHS = {"TINYINT": 4, "SMALLINT": 6, "INT": 11, "BIGINT": 20, "DATE": 10, "BOOLEAN": 5}
_MAX_WIDTH, _NULL = 30, "<NULL>"


class ResultKind:
    """Whether a result has rows, or says OK."""

    SUCCESS, SUCCESS_WITH_CONTENT = range(2)


@dataclass(frozen=True)
class ResolvedSchema:
    """The columns of a table, with their types."""

    _fields: tuple[Field, ...]

    def get_column_names(self) -> list[str]:
        return [field.name for field in self._fields]

    def get_column_data_types(self) -> list[TypeInformation]:
        return self.to_physical_row_data_type().get_field_types()

    def get_column_count(self) -> int:
        return len(self._fields)

    def to_physical_row_data_type(self) -> RowTypeInfo:
        return row_type_of(self._fields)

    def __str__(self) -> str:
        lines = ",\n".join(f"  `{field.name}` {field.shown}" for field in self._fields)
        return f"(\n{lines}\n)"


class TableSchema(ResolvedSchema):
    """The columns of a table, with their types, under the names of Flink's older API."""

    def __init__(
        self,
        field_names: Sequence[str] = (),
        data_types: Sequence[TypeInformation] = (),
        _fields: tuple[Field, ...] | None = None,
    ) -> None:
        made = (Field(name, of_type_info(kind)) for name, kind in zip(field_names, data_types, strict=True))
        super().__init__(tuple(made) if _fields is None else _fields)

    @staticmethod
    def builder() -> TableSchema.Builder:
        return TableSchema.Builder()

    class Builder:
        def __init__(self) -> None:
            self._columns: dict[str, TypeInformation] = {}

        def field(self, name: str, data_type: TypeInformation) -> TableSchema.Builder:
            self._columns[name] = data_type
            return self

        def build(self) -> TableSchema:
            return TableSchema(list(self._columns), list(self._columns.values()))

    get_field_names = ResolvedSchema.get_column_names
    get_field_data_types = ResolvedSchema.get_column_data_types
    get_field_count = ResolvedSchema.get_column_count
    to_row_data_type = ResolvedSchema.to_physical_row_data_type

    def get_field_data_type(self, field: int | str) -> TypeInformation | None:
        """The type of a column, by its name or its position; None if there is no such column."""
        check_instance(field, (int, str), "the column is", "get_field_data_type()", "give a name, or a position")
        by_key = {key: each.type for position, each in enumerate(self._fields) for key in (position, each.name)}
        found = by_key.get(field)
        return None if found is None else declared(found.info, found)

    def get_field_name(self, field_index: int) -> str | None:
        """The name of the column at a position; None if there is no such column."""
        return self._fields[field_index].name if 0 <= field_index < len(self._fields) else None

    def __str__(self) -> str:
        return "".join(["root\n", *(f" |-- {field.name}: {field.shown}\n" for field in self._fields)])

    __repr__ = __str__


class CloseableIterator:
    """Iterates over the rows of a result; `close` ends the job of a query.

    Example::

        with t_env.execute_sql("SELECT ...").collect() as rows:
            for row in rows: ...
    """

    def __init__(self, rows: Iterable[Row], close: Callable[[], None]) -> None:
        self._rows = iter(rows)
        self._close = close

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Row:
        return next(self._rows)

    next = __next__

    def close(self) -> None:
        self._close()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class TableResult:
    """The result of a statement.

    Args:
        _fields: its columns.
        _rows: what gives its rows, once.
        _client: of the job that it has started.
        _style: how it is printed: ``changes``: as a table with the kinds of changes, in widths by type; ``types``:
            without the kinds; ``content``: in the widths of its values; ``raw``: the values alone.
        _close: what ends the job of a query.
        _kind: one of `ResultKind`.
        _zone: the time zone in which times are printed.
    """

    _fields: Sequence[Field] = (Field("result", STRING),)
    _rows: Callable[[], Iterable[Row]] = lambda: [Row("OK")]
    _client: JobClient | None = None
    _style: str = "raw"
    _close: Callable[[], None] = lambda: None
    _kind: int = ResultKind.SUCCESS_WITH_CONTENT
    _zone: str = "UTC"
    _taken: bool = field(default=False, init=False)

    def get_job_client(self) -> JobClient | None:
        """The client of the job; None: the statement started none."""
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for the end of the job of an INSERT, and raise what ended it; TimeoutError if it goes on for longer. The
        rows of a query are waited for where they are collected or printed."""
        if self._client is not None and self._style == "raw":
            ended = self._client.get_job_execution_result()
            try:
                ended.result(None if timeout_ms is None else timeout_ms / 1_000)
            except TimeoutError:
                if ended.done():
                    raise
                raise TimeoutError(f"the job of the INSERT has not ended in {timeout_ms} ms: it goes on") from None

    def collect(self) -> CloseableIterator:
        """The rows, once: of a query as they come, with their kinds."""
        if self._taken and self._client is not None:
            expected = "one collect() or print()"
            raise ProgramError("the rows of the query are taken already", where="TableResult", expected=expected)
        self._taken = True
        floats = [(at, field.type) for at, field in enumerate(self._fields) if "FLOAT" in str(field.type)]

        def row_of(row: Row) -> Row:
            values = list(row._values) if floats else row._values
            for at, kind in floats:
                values[at] = _collected(values[at], kind)
            return _create_row(None, values, row.get_row_kind())

        return CloseableIterator(map(row_of, self._rows()), self._close)

    def print(self) -> None:
        """Print the rows as Flink does, those of a query as they come. Ctrl-C and SIGTERM end its job, and the program,
        as they do in ``execute``: after the running epoch, whose rows are printed."""
        from flinkish.jobmanager.signals import running, stop_on_signals

        with nullcontext() if self._client is None else stop_on_signals(running), self.collect() as rows:
            if self._style == "raw":
                for row in rows:
                    print(*row)
            elif self._style == "content":
                found = list(rows)
                columns = zip(*([field.name for field in self._fields], *found), strict=True)
                self._print(found, [max(_display_width(_NULL if v is None else str(v)) for v in c) for c in columns])
            else:
                self._print(rows, [max(_width(field), _display_width(field.name)) for field in self._fields])

    def _print(self, rows: Iterable[Row], widths: list[int]) -> None:
        changes = self._style == "changes"
        widths = [2, *widths] if changes else widths
        rule = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
        names = (["op"] if changes else []) + [field.name for field in self._fields]
        count = 0
        for row in rows:
            if not count:
                print(rule, _line(names, widths), rule, sep="\n")
            texts = [text_of(each, field.type, self._zone) for each, field in zip(row, self._fields, strict=True)]
            print(_line([str(row.get_row_kind()), *texts] if changes else texts, widths), flush=True)
            count += 1
        print(f"{rule}\n{count} row{'s' if count > 1 else ''} in set" if count else "Empty set")

    def get_result_kind(self) -> int:
        """`ResultKind.SUCCESS` of what only says OK."""
        return self._kind

    def get_resolved_schema(self) -> ResolvedSchema:
        return ResolvedSchema(tuple(self._fields))

    def get_table_schema(self) -> TableSchema:
        return TableSchema(_fields=tuple(self._fields))


def _collected(value: Any, kind: LogicalType) -> Any:
    """A value as `collect` gives it: a FLOAT has no more digits than it needs, as in PyFlink."""
    if value is None:
        return None
    match kind.root:
        case "FLOAT":
            return float(str(np.float32(value)))
        case "ARRAY":
            return [_collected(each, kind.parts[0]) for each in value]
        case "MAP":
            first, second = kind.parts
            return {_collected(key, first): _collected(each, second) for key, each in value.items()}
        case "ROW":
            parts = [_collected(each, part) for each, part in zip(value._values, kind.parts, strict=True)]
            return _create_row(list(kind.names), parts)
    return value


def to_pandas(fields: Sequence[Field], rows: Iterable[Row], zone: str) -> pd.DataFrame:
    """The rows that are left when all changes are done, as a DataFrame. ``zone``: of the columns of TIMESTAMP_LTZ."""
    found = list(rows)
    taken_back = (RowKind.UPDATE_BEFORE, RowKind.DELETE)
    gone = Counter(repr(row._values) for row in found if row.get_row_kind() in taken_back)
    left = []
    for row in found:
        if row.get_row_kind() not in taken_back:
            gone[repr(row._values)] -= 1
            left += [row] if gone[repr(row._values)] < 0 else []
    batch = RecordWriter(row_type_of(fields), "to_pandas()").write(left)
    frame: pd.DataFrame = batch.to_pandas(date_as_object=True)
    for at, column in enumerate(fields):
        if column.type.root == "TIMESTAMP_LTZ":
            series = frame.iloc[:, at]
            series = series.dt.tz_localize("UTC") if series.dt.tz is None else series
            frame.isetitem(at, series.dt.tz_convert(casts.zone_name(zone)))
    return frame


def text_of(value: Any, kind: LogicalType, zone: str) -> str:
    """A value as it is printed: as CAST to STRING writes it, bytes in hexadecimal."""
    if value is None:
        return _NULL
    if kind.is_binary:
        return f"x'{bytes(value).hex()}'"
    if kind.is_text or kind.is_integer:
        return str(value)
    column = arrow_array([value], kind.arrow, kind.info)
    return str(casts.cast(Run(1, (kind,), STRING, 0, zone), column, kind, STRING)[0].as_py())


def _width(field: Field) -> int:
    kind = field.type
    width = _WIDTHS.get(kind.root, _MAX_WIDTH)
    if kind.is_decimal:
        width = kind.precision + 2
    elif kind.root == "TIME":
        width = 9 + kind.precision if kind.precision else 8
    elif kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        width = 20 + kind.precision if kind.precision else 19
    return max(width, len(_NULL))


def _display_width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    return f"| {' | '.join(map(_cell, texts, widths))} |"


def _cell(text: str, width: int) -> str:
    """A text at the right of a cell; a longer one ends with dots."""
    if _display_width(text) > width:
        kept, room = "", width - 3
        for character in text:
            room -= _display_width(character)
            if room < 0:
                break
            kept += character
        text = f"{kept}..."
    return " " * (width - _display_width(text)) + text


supply_names(__name__)
