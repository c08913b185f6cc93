"""The types of arrays, lists and maps.

Rule upheld here: whatever sequence comes in (list, tuple, array, numpy array), a list comes out, as from PyFlink's
coders; an array of bytes comes out as ``bytes``. Only primitive arrays may not hold None.
"""

from __future__ import annotations

from array import array
from copy import copy
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import abbreviated, check_instance
from flinkish.common.typeinfo.base import ListConverter, Mismatch, TypeInformation, nullable_list
from flinkish.common.typeinfo.basic import BasicType, BasicTypeInfo
from flinkish.errors import ArgumentTypeError

if TYPE_CHECKING:
    import pyarrow as pa

_PRIMITIVE = {
    BasicType.BOOLEAN,
    BasicType.BYTE,
    BasicType.SHORT,
    BasicType.INT,
    BasicType.LONG,
    BasicType.FLOAT,
    BasicType.DOUBLE,
    BasicType.CHAR,
}


class _SequenceTypeInfo(TypeInformation):
    _nullable_elements = True

    def __init__(self, element_type: TypeInformation) -> None:
        check_instance(element_type, TypeInformation, "the element type is", type(self).__name__, "such as Types.INT()")
        self._element_type = element_type

    @property
    def elem_type(self) -> TypeInformation:
        return self._element_type

    def for_keys(self) -> TypeInformation:
        made = copy(self)
        made._element_type = self._element_type.for_keys()
        return made

    def _convert(self, value: Any) -> Any:
        items = _items(value)
        if items is None:
            raise Mismatch(value, "a list, a tuple or an array")
        convert_list = self._element_list_converter()
        try:
            return items if convert_list is None else convert_list(items)
        except Mismatch as mismatch:
            raise self._with_position(items, mismatch) from None

    def _element_list_converter(self) -> ListConverter | None:
        return nullable_list(self._element_type) if self._nullable_elements else self._element_type._list_converter()

    def _with_position(self, items: list[Any], found: Mismatch) -> Mismatch:
        for position, item in enumerate(items):
            if item is None and self._nullable_elements:
                continue
            try:
                self._element_type._convert(item)
            except Mismatch as mismatch:
                return mismatch.inside(f"element {position}")
        return found

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.list_(self._element_type.arrow_type())

    def _parts(self) -> tuple[Any, ...]:
        return (self._element_type,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self._element_type}>"


class PrimitiveArrayTypeInfo(_SequenceTypeInfo):
    """An array of one of Java's primitive types, without None; an array of BYTE is ``bytes``."""

    _nullable_elements = False

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        if not isinstance(element_type, BasicTypeInfo) or element_type._basic_type not in _PRIMITIVE:
            raise ArgumentTypeError(
                f"Invalid element type for a primitive array: {element_type!r}.",
                where="Types.PRIMITIVE_ARRAY()",
                expected="one of Java's primitive types, such as Types.INT()",
                hint="use Types.BASIC_ARRAY for texts and Types.OBJECT_ARRAY for anything else",
            )
        self._is_binary = element_type._basic_type is BasicType.BYTE

    def _convert(self, value: Any) -> Any:
        if self._is_binary:
            if isinstance(value, (bytes, bytearray, memoryview)):
                return bytes(value)
            return bytes(item & 0xFF for item in super()._convert(value))
        return super()._convert(value)

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.binary() if self._is_binary else super().arrow_type()


class BasicArrayTypeInfo(_SequenceTypeInfo):
    """An array of one of Java's boxed types or of String; elements may be None."""

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        allowed = _PRIMITIVE | {BasicType.STRING}
        if not isinstance(element_type, BasicTypeInfo) or element_type._basic_type not in allowed:
            raise ArgumentTypeError(
                f"Invalid element type for a basic array: {element_type!r}.",
                where="Types.BASIC_ARRAY()",
                expected="one of Java's boxed types or Types.STRING()",
                hint="use Types.OBJECT_ARRAY for anything else",
            )


class ObjectArrayTypeInfo(_SequenceTypeInfo):
    """An array of any type; elements may be None."""


class ListTypeInfo(_SequenceTypeInfo):
    """A list; elements may be None."""


class MapTypeInfo(TypeInformation):
    """A dictionary; values may be None."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        for declared in (key_type_info, value_type_info):
            check_instance(declared, TypeInformation, "a type of the map is", "Types.MAP()", "such as Types.INT()")
        self._key_type_info = key_type_info
        self._value_type_info = value_type_info

    def for_keys(self) -> TypeInformation:
        return MapTypeInfo(self._key_type_info.for_keys(), self._value_type_info.for_keys())

    def _convert(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise Mismatch(value, "a dict")
        return {self._part(key, self._key_type_info, key): self._value(key, item) for key, item in value.items()}

    def _value(self, key: Any, item: Any) -> Any:
        return None if item is None else self._part(key, self._value_type_info, item)

    @staticmethod
    def _part(key: Any, declared: TypeInformation, item: Any) -> Any:
        try:
            return declared._convert(item)
        except Mismatch as mismatch:
            raise mismatch.inside(f"entry {abbreviated(key)}") from None

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.map_(self._key_type_info.arrow_type(), self._value_type_info.arrow_type())

    def _parts(self) -> tuple[Any, ...]:
        return (self._key_type_info, self._value_type_info)

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self._key_type_info}, {self._value_type_info}>"


def _items(value: Any) -> list[Any] | None:
    if type(value) is list:
        return value
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, array) or hasattr(value, "__array__") and hasattr(value, "tolist"):
        items = value.tolist()
        return items if isinstance(items, list) else None
    return None
