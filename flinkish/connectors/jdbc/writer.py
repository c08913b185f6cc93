"""The writers of the JDBC sink: they convert the records of one subtask and epoch to rows for the driver. For an upsert
the writer holds the last row of each primary key until the barrier.

A committable is a tuple, which is a row to be written; or a Row of kind DELETE, whose key is to be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from flinkish.common.types import Row, RowKind, check_inserts_only
from flinkish.connectors.jdbc.catalogue import RowCheck
from flinkish.connectors.jdbc.statement import JdbcStatement
from flinkish.core.sink import SinkWriter
from flinkish.errors import TypeMismatchError

_RECORDS = (Row, tuple, list)


class RowWriter(SinkWriter):
    """Converts each record to a row at once; holds nothing until the barrier but the rows that the database has to
    decide on (`RowCheck`)."""

    def __init__(self, statement: JdbcStatement, names: Sequence[str], check: RowCheck) -> None:
        self._statement = statement
        self._check = check
        self._names = list(names)
        self._adapters = statement.dialect.adapters

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        rows = self.rows(values)
        self._check.add(rows)
        return rows

    def prepare_commit(self) -> list[Any]:
        self._check.confirm()
        return []

    def rows(self, values: list[Any]) -> list[tuple[Any, ...]]:
        """The records as tuples of values that the driver takes. Rows with the field names of the type give their
        values by name, as in PyFlink, and all other records by position.

        Raises:
            TypeMismatchError: a record is no Row, tuple or list, has another number of fields than the statement, or is
                a Row of another kind than INSERT.
        """
        return self._rows(self._checked(values))

    def _rows(self, checked: list[Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = list(map(tuple, checked))
        if not set(map(len, rows)) <= {self._statement.width}:
            raise self._mismatch(next(row for row in rows if len(row) != self._statement.width))
        return self._adapted(rows)

    def _checked(self, values: list[Any]) -> list[Any]:
        kinds = set(map(type, values))
        if not all(issubclass(kind, _RECORDS) for kind in kinds):
            raise self._mismatch(next(value for value in values if not isinstance(value, _RECORDS)))
        return self._plain(values) if Row in kinds else values

    def _plain(self, values: list[Any]) -> list[Any]:
        """Records with Rows among them as they are written: with their values in the order of the type's fields."""
        check_inserts_only(values, f"JdbcSink, {self._statement.sql!r}")
        return list(map(self._by_name, values))

    def _by_name(self, value: Any) -> Any:
        fields = getattr(value, "_fields", self._names) if type(value) is Row else self._names
        if fields == self._names or sorted(fields) != sorted(self._names):
            return value
        return tuple(value[name] for name in self._names)

    def _adapted(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        adapters = self._adapters
        columns: list[Sequence[Any]] | None = None
        for position in range(self._statement.width):
            column = list(map(itemgetter(position), rows))
            if not adapters.keys().isdisjoint(map(type, column)):
                columns = columns if columns is not None else list(zip(*rows, strict=True))
                columns[position] = [
                    adapters[type(value)](value) if type(value) in adapters else value for value in column
                ]
        return rows if columns is None else list(zip(*columns, strict=True))

    def _mismatch(self, value: Any) -> TypeMismatchError:
        return TypeMismatchError(
            f"the record {abbreviated(value)} of type {type(value).__name__} is no row for the statement",
            where=f"JdbcSink, {self._statement.sql!r}",
            expected=f"a Row or tuple of {self._statement.width} fields",
        )


class UpsertWriter(RowWriter):
    """Holds the last row of each primary key until the barrier. The rows before it need not be written, since nobody
    could see them: the epoch is one transaction.

    A Row of kind DELETE deletes the row of its key; one of kind UPDATE_BEFORE has no effect, since the UPDATE_AFTER
    that follows it replaces the row."""

    def __init__(self, statement: JdbcStatement, names: Sequence[str], check: RowCheck) -> None:
        super().__init__(statement, names, check)
        self._key = itemgetter(*statement.key_positions)
        self._last: dict[Any, Any] = {}

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        values = self._checked(values)
        try:
            self._last.update(zip(map(self._key, values), values, strict=True))
        except (TypeError, IndexError):
            self.rows(values)  # raises with the record that is no row
            raise self._unhashable() from None
        return []

    def _plain(self, values: list[Any]) -> list[Any]:
        plain = []
        for value in values:
            kind = value._row_kind if type(value) is Row else RowKind.INSERT
            if kind is RowKind.DELETE:
                plain.append(Row.of_kind(RowKind.DELETE, *self._by_name(value)))
            elif kind is not RowKind.UPDATE_BEFORE:
                plain.append(self._by_name(value))
        return plain

    def prepare_commit(self) -> list[Any]:
        last, self._last = self._last, {}
        values = list(last.values())
        rows: list[Any] = self._rows(values)
        for number, value in enumerate(values):
            if type(value) is Row and value._row_kind is RowKind.DELETE:
                rows[number] = Row.of_kind(RowKind.DELETE, *self._only_key(rows[number]))
        for row in rows:
            if any(row[position] is None for position in self._statement.key_positions):
                raise TypeMismatchError(
                    f"the row {abbreviated(row)} has a null in its primary key",
                    where=f"JdbcSink.upsert into {self._statement.table}",
                    expected="a value in each key column",
                    hint="filter such records before the sink",
                )
        self._check.add(rows)
        self._check.confirm()
        return rows

    def _only_key(self, row: tuple[Any, ...]) -> list[Any]:
        # the other columns of a deletion need not fit the table
        keys = self._statement.key_positions
        return [value if position in keys else None for position, value in enumerate(row)]

    def _unhashable(self) -> TypeMismatchError:
        return TypeMismatchError(
            "a primary key holds a value that cannot be hashed",
            where=f"JdbcSink.upsert into {self._statement.table}",
            expected="keys of texts, numbers, bytes or dates",
        )


def abbreviated(value: Any, limit: int = 200) -> str:
    """The ``repr`` of a value for messages, at most ``limit`` characters long."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
