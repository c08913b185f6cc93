"""Basic types: text, truth values and numbers, narrowed to Java's widths.

Rule upheld here: whole numbers wrap (``INT`` 9147483648 -> 557549056) and ``FLOAT`` rounds to 32 bits, as PyFlink's
coders do, but no value changes its kind: a float under ``INT`` or a number under ``STRING`` is an error, not a guess.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from enum import Enum
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any

from flinkish.common.time import Instant
from flinkish.common.typeinfo.base import ListConverter, Mismatch, TypeInformation

if TYPE_CHECKING:
    import pyarrow as pa


class BasicType(Enum):
    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


# wide enough for the 38 digits of SQL's DECIMAL
_DECIMAL_CONTEXT = Context(prec=100)
_BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}
# the Python type whose instances need no conversion; not for whole numbers of a fixed width, whose range is checked
_FINAL = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
    BasicType.BIG_INT: int,
    BasicType.INSTANT: Instant,
}


class BasicTypeInfo(TypeInformation):
    """The type of one :class:`BasicType`. A ``BIG_INT`` may have any size (PyFlink's coder stops at 64 bits)."""

    def __init__(self, basic_type: BasicType) -> None:
        self._basic_type = basic_type

    @property
    def is_flat(self) -> bool:
        return True

    def _convert(self, value: Any) -> Any:
        bits = _BITS.get(self._basic_type)
        return _wrap(_whole(value), bits) if bits is not None else _CONVERTERS[self._basic_type](value)

    def _list_converter(self) -> ListConverter:
        kind, convert = self._basic_type, self._convert
        if kind in _BITS:
            return _whole_list(_BITS[kind], convert)
        if kind is BasicType.FLOAT:
            return _float_list
        final = _FINAL.get(kind)

        def convert_list(values: list[Any]) -> list[Any]:
            if set(map(type, values)) <= {final}:
                return values
            return [convert(value) for value in values]

        return convert_list

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        arrow_types: dict[BasicType, Callable[[], pa.DataType]] = {
            BasicType.STRING: pa.string,
            BasicType.BYTE: pa.int8,
            BasicType.BOOLEAN: pa.bool_,
            BasicType.SHORT: pa.int16,
            BasicType.INT: pa.int32,
            BasicType.LONG: pa.int64,
            BasicType.FLOAT: pa.float32,
            BasicType.DOUBLE: pa.float64,
            BasicType.CHAR: pa.string,
            BasicType.BIG_INT: lambda: pa.decimal128(38, 0),
            # Flink's default for BigDecimal in SQL
            BasicType.BIG_DEC: lambda: pa.decimal128(38, 18),
            BasicType.INSTANT: lambda: pa.timestamp("us", tz="UTC"),
        }
        return arrow_types[self._basic_type]()

    def _parts(self) -> tuple[Any, ...]:
        return (self._basic_type,)

    def __repr__(self) -> str:
        return self._basic_type.value

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> InstantTypeInfo:
        return InstantTypeInfo()


class InstantTypeInfo(BasicTypeInfo):
    """The type of :class:`flinkish.common.time.Instant`."""

    def __init__(self, basic_type: BasicType = BasicType.INSTANT) -> None:
        super().__init__(basic_type)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Instant) -> int:
        return obj.to_epoch_milli() * 1_000

    def from_internal_type(self, obj: int) -> Instant:
        return Instant.of_epoch_milli(obj // 1_000)


class DecimalTypeInfo(BasicTypeInfo):
    """A ``BIG_DEC`` of at most ``precision`` digits, ``scale`` of them behind the point: SQL's DECIMAL(precision,
    scale). As in Flink, a number is rounded to the scale (halves away from zero), and one with too many digits is None.

    >>> DecimalTypeInfo(4, 2).rounded(Decimal("1.005")), DecimalTypeInfo(4, 2).rounded(Decimal("123.4"))
    (Decimal('1.01'), None)
    """

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(BasicType.BIG_DEC)
        self._precision, self._scale = precision, scale
        # not by arithmetic, which the context of the program would round
        self._unit = Decimal((0, (1,), -scale))

    def rounded(self, value: Decimal) -> Decimal | None:
        """The number with the scale of the type; None if it has too many digits."""
        if value and value.adjusted() >= self._precision - self._scale:
            return None
        result = value.quantize(self._unit, ROUND_HALF_UP, _DECIMAL_CONTEXT)
        return result if result.adjusted() < self._precision - self._scale or not result else None

    def _convert(self, value: Any) -> Any:
        return self.rounded(_decimal(value))

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.decimal128(self._precision, self._scale)

    def _parts(self) -> tuple[Any, ...]:
        return (self._basic_type, self._precision, self._scale)

    def __repr__(self) -> str:
        return f"DecimalTypeInfo({self._precision}, {self._scale})"


def for_map_keys(declared: TypeInformation) -> TypeInformation:
    """The type to which the keys of a map in state are converted: `TypeInformation.for_keys`, but FLOAT keys are not
    rounded to 32 bits."""
    if isinstance(declared, BasicTypeInfo) and declared._basic_type is BasicType.FLOAT:
        return BasicTypeInfo(BasicType.DOUBLE).for_keys()
    return declared.for_keys()


def _whole(value: Any) -> int:
    try:
        return index(value)  # int, bool and numpy's integers; neither floats nor texts
    except TypeError:
        raise Mismatch(value, "a whole number (int)") from None


def _wrap(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return value if -half <= value < half else ((value + half) & ((1 << bits) - 1)) - half


def _whole_list(bits: int, convert: Callable[[Any], Any]) -> ListConverter:
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert_list(values: list[Any]) -> list[Any]:
        if set(map(type, values)) <= {int} and (not values or (min(values) >= lowest and max(values) <= highest)):
            return values
        return [convert(value) for value in values]

    return convert_list


def _real(value: Any) -> float:
    if not isinstance(value, (Real, Decimal)):
        raise Mismatch(value, "a number (float or int)")
    number: Any = value
    try:
        return float(number)
    except OverflowError:  # an int beyond 1.8e308
        return -math.inf if number < 0 else math.inf


def _float32(value: Any) -> float:
    return array("f", (_real(value),))[0]  # infinity beyond the range, as in Java's cast


def _float_list(values: list[Any]) -> list[Any]:
    if set(map(type, values)) <= {float}:
        return array("f", values).tolist()
    return [_float32(value) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    raise Mismatch(value, "a text (str)")


def _character(value: Any) -> str:
    if isinstance(value, str) and len(value) == 1:
        return _text(value)
    raise Mismatch(value, "a text of one character")


def _truth(value: Any) -> bool:
    if isinstance(value, (bool, int)) or getattr(getattr(value, "dtype", None), "kind", "") in ("b", "i", "u"):
        return bool(value)
    raise Mismatch(value, "a truth value (bool)")


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise Mismatch(value, "a finite decimal.Decimal, as Java's BigDecimal is")
        return value
    if isinstance(value, int):
        return Decimal(value)
    raise Mismatch(value, "a decimal.Decimal (a float is not exact: convert it with Decimal(str(value)))")


def _instant(value: Any) -> Instant:
    if isinstance(value, Instant):
        return value
    raise Mismatch(value, "a flinkish.common.Instant")


_CONVERTERS: dict[BasicType, Callable[[Any], Any]] = {
    BasicType.STRING: _text,
    BasicType.BOOLEAN: _truth,
    BasicType.FLOAT: _float32,
    BasicType.DOUBLE: _real,
    BasicType.CHAR: _character,
    BasicType.BIG_INT: _whole,
    BasicType.BIG_DEC: _decimal,
    BasicType.INSTANT: _instant,
}
