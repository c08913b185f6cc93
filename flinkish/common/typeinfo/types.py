"""``Types``: the names under which programs declare their types."""

from __future__ import annotations

from collections.abc import Sequence

from flinkish.common.arguments import kind_of
from flinkish.common.typeinfo.base import PickledBytesTypeInfo, TypeInformation
from flinkish.common.typeinfo.basic import BasicTypeInfo
from flinkish.common.typeinfo.collections import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
)
from flinkish.common.typeinfo.composite import RowTypeInfo, TupleTypeInfo
from flinkish.common.typeinfo.temporal import SqlTimeTypeInfo
from flinkish.errors import ArgumentTypeError


class Types:
    """Creates the types by which programs declare their records, keys and state.

    >>> Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
    RowTypeInfo(word: String, count: Long)
    """

    STRING = staticmethod(BasicTypeInfo.STRING_TYPE_INFO)
    BYTE = staticmethod(BasicTypeInfo.BYTE_TYPE_INFO)
    BOOLEAN = staticmethod(BasicTypeInfo.BOOLEAN_TYPE_INFO)
    SHORT = staticmethod(BasicTypeInfo.SHORT_TYPE_INFO)
    INT = staticmethod(BasicTypeInfo.INT_TYPE_INFO)
    LONG = staticmethod(BasicTypeInfo.LONG_TYPE_INFO)
    FLOAT = staticmethod(BasicTypeInfo.FLOAT_TYPE_INFO)
    DOUBLE = staticmethod(BasicTypeInfo.DOUBLE_TYPE_INFO)
    CHAR = staticmethod(BasicTypeInfo.CHAR_TYPE_INFO)
    BIG_INT = staticmethod(BasicTypeInfo.BIG_INT_TYPE_INFO)
    BIG_DEC = staticmethod(BasicTypeInfo.BIG_DEC_TYPE_INFO)
    INSTANT = staticmethod(BasicTypeInfo.INSTANT_TYPE_INFO)
    SQL_DATE = staticmethod(SqlTimeTypeInfo.DATE)
    SQL_TIME = staticmethod(SqlTimeTypeInfo.TIME)
    SQL_TIMESTAMP = staticmethod(SqlTimeTypeInfo.TIMESTAMP)

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any Python object; the type of a stream for which none is declared."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """The type of a Row whose fields are called ``f0``, ``f1``, ..."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """The type of a Row with the given field names, which must be distinct."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """An array of a primitive type, without None; of BYTE it is ``bytes``."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        """An array of a boxed basic type; elements may be None."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        return ListTypeInfo(element_type_info)


def declared_type(declared: TypeInformation | Sequence[TypeInformation] | None) -> TypeInformation:
    """The type that ``output_type=`` declares: None is PICKLED_BYTE_ARRAY, a list of types is a ROW (as in PyFlink).

    Raises:
        TypeError: ``declared`` is anything else.
    """
    if declared is None:
        return PickledBytesTypeInfo()
    if isinstance(declared, TypeInformation):
        return declared
    if isinstance(declared, (list, tuple)):
        return RowTypeInfo(declared)
    raise ArgumentTypeError(
        f"the type is {kind_of(declared)}",
        where="a declared type of records or keys",
        expected="a TypeInformation such as Types.INT(), or a list of such",
        hint="types are made by calls, such as Types.STRING(); Python's own (str, int) are no declared types",
    )
