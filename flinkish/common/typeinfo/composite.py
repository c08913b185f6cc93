"""ROW and TUPLE: the types of records with several fields, each with its own type.

Rule upheld here: under a ROW, whatever a function returns (Row, tuple, list, dict, object with attributes) comes out
as a Row with the type's field names, because that is what PyFlink's coder hands to the next function. Fields of a Row
may be None, fields of a Tuple may not. No field is dropped silently: an unknown name or a wrong number is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.arguments import abbreviated, check_instance
from flinkish.common.typeinfo.base import ListConverter, Mismatch, TypeInformation, nullable_list
from flinkish.common.types import Row, RowKind, _create_row, _create_rows
from flinkish.errors import ArgumentValueError

if TYPE_CHECKING:
    import pyarrow as pa


def default_names(count: int) -> list[str]:
    """The names of the fields of a type that is declared without names: f0, f1 and so on, as in Flink."""
    return [f"f{position}" for position in range(count)]


class _CompositeTypeInfo(TypeInformation):
    _field_types: list[TypeInformation]
    _names: list[str]
    #: whether an object must have no other attributes than the fields
    _whole = False

    def __init__(self, field_types: Sequence[TypeInformation], names: Sequence[str] | None = None) -> None:
        self._field_types = list(field_types)
        for position, field_type in enumerate(self._field_types):
            check_instance(
                field_type,
                TypeInformation,
                f"type {position} is",
                type(self).__name__,
                "types are made by calls, such as Types.INT()",
            )
        self._names = default_names(len(self._field_types)) if names is None else list(names)

    def get_field_types(self) -> list[TypeInformation]:
        return self._field_types

    def for_keys(self) -> TypeInformation:
        made = copy(self)
        made._field_types = [field_type.for_keys() for field_type in self._field_types]
        made._whole = True
        return made

    @property
    def is_flat(self) -> bool:
        return all(field.is_flat and not isinstance(field, _CompositeTypeInfo) for field in self._field_types)

    def need_conversion(self) -> bool:
        return True

    def _internal_values(self, values: Iterable[Any]) -> tuple[Any, ...]:
        pairs = zip(self._field_types, values, strict=False)
        return tuple(
            field_type.to_internal_type(value) if field_type.need_conversion() else value for field_type, value in pairs
        )

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None or isinstance(obj, (tuple, list)):
            return obj
        pairs = zip(self._field_types, obj, strict=False)
        return tuple(field_type.from_internal_type(value) for field_type, value in pairs)

    def _checked_length(self, values: Sequence[Any], value: Any) -> Sequence[Any]:
        if len(values) != len(self._field_types):
            raise Mismatch(value, f"{len(self._field_types)} fields, not {len(values)}")
        return values

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.struct(self.to_arrow_fields())

    def to_arrow_fields(self) -> list[pa.Field]:
        import pyarrow as pa

        pairs = zip(self._names, self._field_types, strict=True)
        return [pa.field(name, field_type.arrow_type()) for name, field_type in pairs]

    def _parts(self) -> tuple[Any, ...]:
        # as in Flink, field names do not distinguish types
        return tuple(self._field_types)


class RowField(NamedTuple):
    """A field of a ROW, as `DataTypes.FIELD` makes it: its name, its type, and a description, which has no effect."""

    name: str
    data_type: TypeInformation
    description: str | None = None


class RowTypeInfo(_CompositeTypeInfo):
    """The type of a Row. Without names its fields are called ``f0``, ``f1``, ...

    Accepted values: a Row without names, a tuple or a list by position; a Row with names by name (if the type was
    declared without names, by position); a dict by name, absent keys as None; any other object by its attributes.

    >>> from flinkish.common.typeinfo import Types
    >>> Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()]).convert(("a", 1))
    Row(word='a', count=1)
    """

    def __init__(self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None) -> None:
        super().__init__(field_types, field_names)
        if len(self._names) != len(self._field_types):
            raise ArgumentValueError(
                f"{len(self._names)} field names for {len(self._field_types)} field types",
                where="Types.ROW_NAMED()",
                expected="as many names as types",
                hint="the arguments are names, types",
            )
        if len(set(self._names)) != len(self._names):
            raise ArgumentValueError(
                f"a field name occurs twice in {self._names}",
                where="Types.ROW_NAMED()",
                expected="a name of its own for each field",
                hint="rename one of them",
            )
        self._has_names = field_names is not None

    def get_field_names(self) -> list[str]:
        return self._names

    @property
    def names(self) -> list[str]:
        """The names of the fields, as those of a ``RowType``."""
        return list(self._names)

    @property
    def fields(self) -> list[RowField]:
        """The fields, as those of a ``RowType``."""
        return list(map(RowField, self._names, self._field_types))

    def field_names(self) -> list[str]:
        """The names of the fields, as those of a ``RowType``."""
        return self.names

    def field_types(self) -> list[TypeInformation]:
        """The types of the fields, as those of a ``RowType``."""
        return list(self._field_types)

    def get_field_index(self, field_name: str) -> int:
        """The position of a field.

        Raises:
            ArgumentValueError: there is no such field (a ValueError, as in PyFlink).
        """
        if field_name not in self._names:
            raise ArgumentValueError(
                f"the Row type has no field {field_name!r}",
                where="RowTypeInfo.get_field_index()",
                expected=f"one of {', '.join(self._names)}",
                hint="names are given in Types.ROW_NAMED(names, types)",
            )
        return self._names.index(field_name)

    def to_internal_type(self, obj: Any) -> tuple[Any, ...] | None:
        if obj is None:
            return None
        kind = obj.get_row_kind() if isinstance(obj, Row) else RowKind.INSERT
        try:
            return (kind.value, *self._internal_values(self._values_of(obj)))
        except Mismatch:
            raise ValueError(f"Unexpected tuple {abbreviated(obj)} with RowTypeInfo") from None

    def _values_of(self, value: Any) -> Sequence[Any]:
        if isinstance(value, Row):
            return self._values_of_row(value)
        if isinstance(value, (tuple, list)):
            return self._checked_length(value, value)
        if isinstance(value, dict):
            unknown = [key for key in value if key not in self._names]
            if unknown:
                raise Mismatch(value, f"no other keys than {', '.join(self._names)}, but there is {unknown[0]!r}")
            return [value.get(name) for name in self._names]
        if hasattr(value, "__dict__") and all(hasattr(value, name) for name in self._names):
            if self._whole and (others := [name for name in vars(value) if name not in self._names]):
                raise Mismatch(value, f"no other attributes than {', '.join(self._names)}, but there is {others[0]!r}")
            return [getattr(value, name) for name in self._names]
        raise Mismatch(value, f"a Row, a tuple, a list or a dict with the fields {', '.join(self._names)}")

    def _values_of_row(self, row: Row) -> Sequence[Any]:
        fields = getattr(row, "_fields", None)
        if fields is None or fields == self._names:
            return self._checked_length(row._values, row)
        if sorted(fields) == sorted(self._names):
            return row.get_fields_by_names(self._names)
        if not self._has_names:
            return self._checked_length(row._values, row)
        raise Mismatch(row, f"a Row with the fields {', '.join(self._names)}, not {', '.join(fields)}")

    def _convert(self, value: Any) -> Any:
        values = self._values_of(value)
        converted = []
        for name, field_type, item in zip(self._names, self._field_types, values, strict=True):
            try:
                converted.append(None if item is None else field_type._convert(item))
            except Mismatch as mismatch:
                raise mismatch.inside(f"field '{name}'") from None
        if not isinstance(value, Row):
            return _create_row(self._names, converted)
        if getattr(value, "_fields", None) == self._names and all(
            new is old for new, old in zip(converted, values, strict=True)
        ):
            return value
        return _create_row(self._names, converted, value._row_kind)

    def _list_converter(self) -> ListConverter:
        converters = [nullable_list(field_type) for field_type in self._field_types]
        if not converters:
            return lambda values: [self._convert(value) for value in values]

        def convert_rows(values: list[Any]) -> list[Any]:
            if not values:
                return values
            # from rows to columns and back: one pass of C code per column instead of one call per value
            plain = self._plain_rows(values)
            columns, changed = _converted_columns(plain, converters)
            names = self._names
            kinds = set(map(type, values))
            if kinds <= {tuple, list}:
                return _create_rows(names, columns)
            if not changed and kinds == {Row} and all(getattr(row, "_fields", None) == names for row in values):
                return values
            return [
                _create_row(names, row, value._row_kind if isinstance(value, Row) else RowKind.INSERT)
                for row, value in zip(columns, values, strict=True)
            ]

        return convert_rows

    def _plain_rows(self, values: list[Any]) -> list[Any]:
        if set(map(type, values)) <= {tuple, list}:
            if set(map(len, values)) == {len(self._names)}:
                return values
            raise Mismatch(values, f"{len(self._names)} fields")
        return [self._values_of(value) for value in values]

    def __repr__(self) -> str:
        if not self._has_names:
            return f"RowTypeInfo({', '.join(map(str, self._field_types))})"
        pairs = zip(self._names, self._field_types, strict=True)
        return f"RowTypeInfo({', '.join(f'{name}: {field_type}' for name, field_type in pairs)})"


class TupleTypeInfo(_CompositeTypeInfo):
    """The type of a tuple; a list or a Row is converted to a tuple."""

    def to_internal_type(self, obj: Any) -> tuple[Any, ...] | None:
        if obj is None:
            return None
        if isinstance(obj, (list, tuple, Row)):
            return self._internal_values(obj)
        raise ValueError(f"Unexpected tuple {abbreviated(obj)} with TupleTypeInfo")

    def _convert(self, value: Any) -> Any:
        if not isinstance(value, (tuple, list, Row)):
            raise Mismatch(value, f"a tuple of {len(self._field_types)} fields")
        converted = []
        fields = zip(self._field_types, self._checked_length(tuple(value), value), strict=True)
        for position, (field_type, item) in enumerate(fields):
            try:
                converted.append(field_type._convert(item))
            except Mismatch as mismatch:
                raise mismatch.inside(f"field {position}") from None
        return tuple(converted)

    def _list_converter(self) -> ListConverter:
        converters = [field_type._list_converter() for field_type in self._field_types]
        length = len(converters)
        if not length:
            return lambda values: [self._convert(value) for value in values]

        def convert_tuples(values: list[Any]) -> list[Any]:
            if not values:
                return values
            kinds = set(map(type, values))
            plain = values if kinds <= {tuple, list} else [_plain_tuple(value, length) for value in values]
            if set(map(len, plain)) != {length}:
                raise Mismatch(values, f"{length} fields")
            columns, changed = _converted_columns(plain, converters)
            return values if not changed and kinds == {tuple} else list(columns)

        return convert_tuples

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._field_types))})"


class ExternalTypeInfo(TypeInformation):
    """A reference to another type; it behaves as that type."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = type_info

    @property
    def is_flat(self) -> bool:
        return self._type_info.is_flat

    def need_conversion(self) -> bool:
        return self._type_info.need_conversion()

    def for_keys(self) -> TypeInformation:
        return ExternalTypeInfo(self._type_info.for_keys())

    def to_internal_type(self, obj: Any) -> Any:
        return self._type_info.to_internal_type(obj)

    def from_internal_type(self, obj: Any) -> Any:
        return self._type_info.from_internal_type(obj)

    def _convert(self, value: Any) -> Any:
        return self._type_info._convert(value)

    def _list_converter(self) -> ListConverter | None:
        return self._type_info._list_converter()

    def arrow_type(self) -> pa.DataType:
        return self._type_info.arrow_type()

    def to_arrow_fields(self) -> list[pa.Field]:
        return self._type_info.to_arrow_fields()

    def _parts(self) -> tuple[Any, ...]:
        return (self._type_info,)

    def __repr__(self) -> str:
        return f"ExternalTypeInfo<{self._type_info}>"


def _plain_tuple(value: Any, length: int) -> Any:
    if isinstance(value, (tuple, list, Row)):
        return value
    raise Mismatch(value, f"a tuple of {length} fields")


def _converted_columns(
    rows: list[Any], converters: Sequence[Callable[[list[Any]], list[Any]] | None]
) -> tuple[Iterable[tuple[Any, ...]], bool]:
    """Convert rows column by column; returns the converted rows, and whether any column has changed."""
    changed, converted = False, []
    for convert, column in zip(converters, zip(*rows, strict=True), strict=True):
        before = list(column)
        after = before if convert is None else convert(before)
        changed = changed or after is not before
        converted.append(after)
    return zip(*converted, strict=True), changed
