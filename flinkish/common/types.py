"""Row and RowKind: a Row behaves exactly as PyFlink's does in its repr, equality and pickling.

Rule upheld here: a Row either has field names (then it is equal to a Row with the same names and values in any
order) or it has none (then only positions count), and it never has both meanings at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any

from flinkish.common.no_effect import no_java_object
from flinkish.errors import ArgumentTypeError, ArgumentValueError, TypeMismatchError

__all__ = ["Row", "RowKind"]

_SIGNS = ("+I", "-U", "+U", "-D")


class RowKind(Enum):
    """The meaning of a Row in a changelog (Flink's ``org.apache.flink.types.RowKind``)."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def to_j_row_kind(self) -> object:
        """Raises ProgramError: there is no Java object."""
        no_java_object("to_j_row_kind()")

    def __str__(self) -> str:
        return _SIGNS[self.value]


class Row:
    """A record whose fields have positions and, optionally, names.

    >>> row = Row(name="Alice", age=11)
    >>> row, row["name"], row.age, row[1], "name" in row
    (Row(name='Alice', age=11), 'Alice', 11, 11, True)
    >>> Row("a", 1)
    <Row('a', 1)>
    >>> Person = Row("name", "age")
    >>> Person("Bob", 12)
    Row(name='Bob', age=12)

    Raises:
        ValueError: both positional and named values are given.
    """

    # slots, not a dictionary: rows are made by the million; `_fields` is left unset where there are no names, since
    # code written for PyFlink asks `hasattr(row, "_fields")`
    __slots__ = ("_fields", "_values", "_row_kind")

    _fields: list[str]
    _values: list[Any]
    _row_kind: RowKind

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ArgumentValueError(
                "Can not use both args and kwargs to create Row",
                where="Row(...)",
                expected="values only, or names with values",
                hint="write Row('a', 1) or Row(word='a', count=1)",
            )
        if kwargs:
            self._fields = list(kwargs)
            self._values = list(kwargs.values())
        else:
            self._values = list(args)
        self._row_kind = RowKind.INSERT

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """A Row with the given kind.

        >>> Row.of_kind(RowKind.DELETE, "a").get_row_kind()
        <RowKind.DELETE: 3>
        """
        row = Row(*args, **kwargs)
        row._row_kind = row_kind
        return row

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """The fields as a dictionary; ``recursive`` turns nested Rows into dictionaries as well.

        Raises:
            TypeError: this Row has no field names.
        """
        if not hasattr(self, "_fields"):
            raise ArgumentTypeError(
                "Cannot convert a Row class into dict: it has no field names",
                where="Row.as_dict()",
                expected="a Row with field names",
                hint="make it with names, or call set_field_names(...) first",
            )
        values = map(_plain, self._values) if recursive else self._values
        return dict(zip(self._fields, values, strict=False))

    def get_row_kind(self) -> RowKind:
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        self._row_kind = row_kind

    def set_field_names(self, field_names: Sequence[str]) -> None:
        self._fields = list(field_names)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """The values of the named fields, in the order of ``names``; all values if this Row has no names.

        Raises:
            ValueError: a name is not a field of this Row.
        """
        names = list(names)
        if not hasattr(self, "_fields") or names == self._fields:
            return list(self._values)
        absent = [name for name in names if name not in self._fields]
        if absent:
            raise ArgumentValueError(
                f"Field names {absent} not exist in {self._fields}.",
                where="Row.get_fields_by_names()",
                expected="names of this Row's fields",
                hint="a Row without names gives all of its values, whatever is asked for",
            )
        return [self._values[self._fields.index(name)] for name in names]

    def _is_retract_msg(self) -> bool:
        return self._row_kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE)

    def _is_accumulate_msg(self) -> bool:
        return not self._is_retract_msg()

    def __contains__(self, item: object) -> bool:
        return item in (self._fields if hasattr(self, "_fields") else self._values)

    def __call__(self, *args: Any) -> Row:
        """A new Row that has this Row's values as its field names.

        Raises:
            ValueError: there are more arguments than this Row has values.
        """
        if len(args) > len(self):
            raise ArgumentValueError(
                f"Can not create Row with fields {self}, expected {len(self)} values but got {args}",
                where="a Row of field names that is called",
                expected=f"at most {len(self)} values",
                hint="a Row that is called uses its values as the field names of a new one",
            )
        return _create_row(self._values, args, self._row_kind)

    def __getitem__(self, item: int | slice | str) -> Any:
        if isinstance(item, (int, slice)):
            return self._values[item]
        return self._values[self._position(item)]

    def __setitem__(self, key: int | slice | str, value: Any) -> None:
        if isinstance(key, (int, slice)):
            self._values[key] = value
        elif not hasattr(self, "_fields"):
            raise KeyError(key)
        else:
            self._values[self._position(key)] = value

    def _position(self, name: str) -> int:
        # ValueError, not KeyError, for an unknown name: PyFlink's choice
        try:
            return self._fields.index(name)
        except ValueError:
            raise ArgumentValueError(
                f"the Row has no field {name!r}",
                where="Row[...]",
                expected=f"one of {', '.join(self._fields)}",
                hint="output_type=Types.ROW_NAMED(...) gives records names",
            ) from None
        except AttributeError:
            raise _without_names(name) from None

    def __getattr__(self, item: str) -> Any:
        if item.startswith("_"):
            raise AttributeError(item)
        try:
            return self._values[self._fields.index(item)]
        except (IndexError, ValueError):
            raise AttributeError(f"the Row has no field {item!r}; it has {', '.join(self._fields)}") from None
        except AttributeError:
            raise _without_names(item) from None

    def __reduce__(self) -> tuple[Any, ...]:
        fields = getattr(self, "_fields", None)
        if self._row_kind is RowKind.INSERT:
            return (_create_row, (fields, tuple(self._values)))
        return (_create_row, (fields, tuple(self._values), self._row_kind))

    def __repr__(self) -> str:
        if hasattr(self, "_fields"):
            pairs = zip(self._fields, self._values, strict=False)
            return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"
        return f"<Row({', '.join(map(repr, self._values))})>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row) or self.__class__ is not other.__class__:
            return False
        if self._row_kind is not other._row_kind:
            return False
        fields, others = getattr(self, "_fields", None), getattr(other, "_fields", None)
        if fields == others:
            return self._values == other._values
        if fields is None or others is None or sorted(fields) != sorted(others):
            return False
        return self._in_order_of_names() == other._in_order_of_names()

    def __hash__(self) -> int:
        # PyFlink hashes by position even where equality goes by name; two equal Rows must have one hash here
        if hasattr(self, "_fields"):
            return hash(tuple(self._in_order_of_names()))
        return hash(tuple(self._values))

    def _in_order_of_names(self) -> list[Any]:
        return [value for _, value in sorted(zip(self._fields, self._values, strict=False), key=itemgetter(0))]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _without_names(name: str) -> AttributeError:
    """The error for a field that is asked for by name in a Row that has only positions; PyFlink's class of error."""
    return AttributeError(
        f"the Row has no field names, so no field {name!r}; output_type=Types.ROW_NAMED(...) gives names"
    )


def _create_row(fields: list[str] | None, values: Sequence[Any], row_kind: RowKind = RowKind.INSERT) -> Row:
    """Make a Row without parsing arguments. ``fields`` is shared, not copied: rows of one type point to one list."""
    row = Row.__new__(Row)
    if fields is not None:
        row._fields = fields
    row._values = list(values)
    row._row_kind = row_kind
    return row


def _create_rows(fields: list[str], rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Make a Row of kind INSERT of each sequence of values, as `_create_row` does."""
    new, kind = object.__new__, RowKind.INSERT
    created: list[Any] = []
    for values in rows:
        row = new(Row)
        row._fields = fields
        row._values = list(values)
        row._row_kind = kind
        created.append(row)
    return created


def check_inserts_only(records: Iterable[Any], where: str) -> None:
    """Check the records of a sink that only appends, and so cannot express an update or a deletion.

    Raises:
        TypeMismatchError: a record is a Row of another kind than INSERT.
    """
    kinds = [record._row_kind for record in records if type(record) is Row]
    if kinds.count(RowKind.INSERT) == len(kinds):
        return
    changes = (row for row in records if type(row) is Row and row._row_kind is not RowKind.INSERT)
    row = next(changes)
    raise TypeMismatchError(
        f"the record {row!r:.200} is of kind {row._row_kind.name} ({row._row_kind}), and only inserts can be written",
        where=where,
        expected="Rows of kind INSERT",
        hint="write changes with JdbcSink.upsert() or DeltaSink.merge(), drop them with filter(), or append them as "
        "they are after row.set_row_kind(RowKind.INSERT)",
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
