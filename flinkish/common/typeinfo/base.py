"""TypeInformation: every type checks values, narrows them as Flink's serializers do, and has an Arrow type. Values for
which no type is declared have the type of any Python object, which is carried by pickle.

Rule upheld here: a type decides about a value in one place, ``_convert``. Checking, narrowing of one value and
narrowing of a whole list are built on it, so they cannot disagree; a list converter may be faster, but its results are
the same.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import abbreviated, runs_ours
from flinkish.common.detach import detached
from flinkish.common.no_effect import no_java_object
from flinkish.errors import TypeMismatchError

if TYPE_CHECKING:
    import pyarrow as pa


ListConverter = Callable[[list[Any]], list[Any]]

_HINT = "return a value of the declared type, or declare the type that the function returns"
_HINT_FOR_NONE = "drop None with filter or flat_map, or declare a type that has room for it: none, or a field of a ROW"


class Mismatch(Exception):
    """Internal: a value does not fit its type. ``path`` leads from the record to the value, outermost part first."""

    def __init__(self, value: Any, expected: str) -> None:
        super().__init__(value, expected)
        self.value = value
        self.expected = expected
        self.path: list[str] = []

    def inside(self, part: str) -> Mismatch:
        self.path.insert(0, part)
        return self


class TypeInformation(abc.ABC):
    """Base of all types. Types are immutable values: equal if they describe the same data, hashable, picklable."""

    def __str__(self) -> str:
        # that of a column of a table has its name in SQL, too
        logical = self.__dict__.get("logical_type")
        return repr(self) if logical is None else str(logical.root)

    # --- PyFlink's own interface --------------------------------------------------------------------------------

    def need_conversion(self) -> bool:
        """Whether the internal form differs from the Python object (PyFlink's meaning, about Java's wrappers)."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """The form of a value that PyFlink hands to Java, such as days, microseconds or tuples."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """The inverse of :meth:`to_internal_type`."""
        return obj

    def get_java_type_info(self) -> object:
        """Raises ProgramError: there is no Java object."""
        no_java_object("get_java_type_info()")

    def bridged_to(self, conversion_cls: str) -> TypeInformation:
        """The type itself, as PyFlink's DataTypes are asked for: ``conversion_cls`` is a class of Java and has no
        effect."""
        return self

    def not_null(self) -> TypeInformation:
        """The type itself, as PyFlink's DataTypes are asked for: every column may hold None."""
        return self

    def nullable(self) -> TypeInformation:
        """The type itself."""
        return self

    # --- checking and narrowing ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def _convert(self, value: Any) -> Any:
        """The value as it comes out of Flink's serializer for this type.

        Raises:
            Mismatch: the value does not fit.
        """

    def convert(self, value: Any, where: str = "") -> Any:
        """The value as it comes out of Flink's serializer for this type.

        Whole numbers wrap as in Java, tuples under a ROW become Rows with the type's field names. A value that is in
        its final form already is returned as it is, not copied.

        Raises:
            TypeMismatchError: the value does not fit this type; ``where`` becomes part of the message.

        >>> from flinkish.common.typeinfo import Types
        >>> Types.INT().convert(9147483648)
        557549056
        """
        try:
            return self._convert(value)
        except Mismatch as mismatch:
            raise self._error(mismatch, where) from None

    def validate(self, value: Any, where: str = "") -> None:
        """Check that a value fits this type (a number that would be narrowed fits).

        Raises:
            TypeMismatchError: the value does not fit.
        """
        self.convert(value, where)

    def _list_converter(self) -> ListConverter | None:
        """A converter of whole lists, or None if none is needed. Subclasses override it with a faster one, which raises
        Mismatch (with any path) for a value that does not fit."""
        convert = self._convert
        return lambda values: [convert(value) for value in values]

    def for_keys(self) -> TypeInformation:
        """This type for values that are told apart by what they are converted to, such as keys: a value that would
        become another one (a number that wraps or is rounded) does not fit, as two keys could become one."""
        return _Lossless(self)

    @property
    def is_flat(self) -> bool:
        """Whether no part of a value can change, because all parts are numbers, texts, dates and the like: a tuple of
        this type is immutable, and a Row is but for its fields."""
        return False

    def batch_converter(self, where: str = "") -> BatchConverter | None:
        """A function that converts a whole list, or None if no value of this type ever needs it.

        The function may return the list it was given if nothing had to be changed.

        Raises (the function):
            TypeMismatchError: for the first value that does not fit, with its position in the list.
        """
        convert_list = self._list_converter()
        if not runs_ours(self, "convert", "_convert"):
            convert_list = partial(_one_by_one, self, where)
        return None if convert_list is None else BatchConverter(self, convert_list, where)

    def _first_error(self, values: list[Any], where: str, found: Mismatch) -> TypeMismatchError:
        # a list converter may work by columns and not know which record is at fault: convert the records one by one
        for position, value in enumerate(values):
            try:
                self._convert(value)
            except Mismatch as mismatch:
                # a part of the record does not fit
                whole = mismatch.inside(f"record {abbreviated(value)}") if mismatch.path else mismatch
                error = self._error(whole, where)
                error.position = position
                return error
        return self._error(found, where)

    def _error(self, mismatch: Mismatch, where: str) -> TypeMismatchError:
        parts = [part for part in (where, *mismatch.path) if part]
        value = abbreviated(mismatch.value, 80)
        error = TypeMismatchError(
            f"the value {value} of type {type(mismatch.value).__name__} does not fit the declared type {self!r}",
            where=", ".join(parts),
            expected=mismatch.expected,
            hint=_HINT_FOR_NONE if mismatch.value is None else _HINT,
        )
        error.value = value
        return error

    # --- Arrow --------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of one value (Row and Tuple: struct). Imports pyarrow when called."""

    def to_arrow_fields(self) -> list[pa.Field]:
        """The columns of a stream of this type: one per field of a ROW or TUPLE, else a single one called ``value``."""
        import pyarrow as pa

        return [pa.field("value", self.arrow_type())]

    # --- value semantics ----------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _parts(self) -> tuple[Any, ...]:
        """The components of this type; two types are equal if they have the same class and equal parts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeInformation) and type(self) is type(other) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._parts()))


class _Lossless(TypeInformation):
    """A type without parts for keys (`TypeInformation.for_keys`)."""

    def __init__(self, declared: TypeInformation) -> None:
        self._declared = declared

    def _convert(self, value: Any) -> Any:
        converted = self._declared._convert(value)
        # a NaN is none of the keys that could become one: it is refused as a key
        if converted is value or converted == value or value != value:
            return converted
        raise Mismatch(value, f"a key that stays the same: it would become {abbreviated(converted)}, as others do")

    def _list_converter(self) -> ListConverter | None:
        convert_list = self._declared._list_converter()
        if convert_list is None:
            return None

        def convert_keys(values: list[Any]) -> list[Any]:
            converted = convert_list(values)
            if converted is values or converted == values:
                return converted
            return [self._convert(value) for value in values]

        return convert_keys

    @property
    def is_flat(self) -> bool:
        return self._declared.is_flat

    def arrow_type(self) -> pa.DataType:
        return self._declared.arrow_type()

    def _parts(self) -> tuple[Any, ...]:
        return (self._declared,)

    def __repr__(self) -> str:
        return repr(self._declared)


@dataclass(frozen=True)
class BatchConverter:
    """Converts the values of a whole list to a type (see `TypeInformation.batch_converter`).

    Args:
        type_info: the type.
        convert_list: its converter, which raises Mismatch.
        where: names the values in errors.
        on_misfit: None: a value that does not fit is an error. Else it stays as it is, and this is called before the
            list that holds it is returned.
    """

    type_info: TypeInformation
    convert_list: ListConverter
    where: str
    on_misfit: Callable[[], None] | None = None

    def __call__(self, values: list[Any]) -> list[Any]:
        try:
            return self.convert_list(values)
        except Mismatch as mismatch:
            if self.on_misfit is None:
                raise self.type_info._first_error(values, self.where, mismatch) from None
        self.on_misfit()
        present = [value for value in values if value is not None]
        try:
            converted = iter(self.convert_list(present))
        except Mismatch:
            converted = map(self._converted_if_it_fits, present)
        return [None if value is None else next(converted) for value in values]

    def _converted_if_it_fits(self, value: Any) -> Any:
        try:
            return self.type_info._convert(value)
        except Mismatch:
            # the look into it that a type whose parts cannot change saves (`detach.SHARED_IF_FLAT`) was missing
            return detached(value)


def _one_by_one(type_info: TypeInformation, where: str, values: list[Any]) -> list[Any]:
    """Converts a list by a type of the program, which has a conversion of its own for one value."""
    return [type_info.convert(value, where) for value in values]


def nullable_list(element: TypeInformation) -> ListConverter | None:
    """A list converter for a type whose values may also be None (fields of a Row, elements of an object array)."""
    convert_list = element._list_converter()
    if convert_list is None:
        return None
    convert = element._convert

    def convert_nullable(values: list[Any]) -> list[Any]:
        if type(None) in set(map(type, values)):
            return [None if value is None else convert(value) for value in values]
        return convert_list(values)

    return convert_nullable


class PickledBytesTypeInfo(TypeInformation):
    """The type of any Python object. Nothing is checked or converted, and it has no column: tables refuse it."""

    def _convert(self, value: Any) -> Any:
        return value

    def _list_converter(self) -> None:
        return None

    def for_keys(self) -> TypeInformation:
        return self

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.binary()

    def _parts(self) -> tuple[Any, ...]:
        return ()

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"
