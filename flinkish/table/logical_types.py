"""The types of SQL, as the planner computes with them: name, precision and scale. The type of the DataStream API that
holds the values (`LogicalType.info`), and the type of the column in a batch (`LogicalType.arrow`), follow from it.

Rule: types decide what Flink computes, such as INT / INT, and how it writes values, such as the digits of a second; so
they are Flink's, whatever Arrow or Python have. Whether a column may be NULL is not told apart: every one may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from datetime import timedelta
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.typeinfo import ExternalTypeInfo, RowTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.typeinfo.basic import BasicType, BasicTypeInfo, DecimalTypeInfo
from flinkish.common.typeinfo.collections import MapTypeInfo, PrimitiveArrayTypeInfo, _SequenceTypeInfo
from flinkish.common.typeinfo.composite import TupleTypeInfo, default_names
from flinkish.common.typeinfo.temporal import DateTypeInfo, LocalTimeTypeInfo, TimestampTypeInfo, TimeTypeInfo

if TYPE_CHECKING:
    import pyarrow as pa

#: The length of STRING and BYTES.
MAX_LENGTH = 2_147_483_647

#: The most digits of a DECIMAL.
MAX_PRECISION = 38


class NullTypeInfo(TypeInformation):
    """The type whose only value is None."""

    is_flat = True
    _values, _expected, _arrow, _name = type(None), "None", "null", "Null"

    def _convert(self, value: Any) -> Any:
        if not isinstance(value, self._values):
            raise Mismatch(value, self._expected)
        return value

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.type_for_alias(self._arrow)

    def _parts(self) -> tuple[Any, ...]:
        return ()

    def __repr__(self) -> str:
        return self._name


class IntervalTypeInfo(NullTypeInfo):
    """The type of ``timedelta``: an interval of days to seconds, with microseconds."""

    _values, _expected, _arrow, _name = timedelta, "a timedelta", "duration[us]", "Interval"  # type: ignore[assignment]


class LogicalType(NamedTuple):
    """A type of SQL.

    Args:
        root: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, CHAR, VARCHAR (STRING is
            VARCHAR(2147483647)), BINARY, VARBINARY, DATE, TIME, TIMESTAMP, TIMESTAMP_LTZ, INTERVAL_DAY (a literal of it
            is a number of milliseconds), INTERVAL_MONTH (a number of months), ARRAY, MAP, MULTISET, ROW, NULL, or RAW.
        sizes: precision and scale of DECIMAL, the length of texts, the digits of a second of times.
        parts: the types of elements, of keys and values, or of fields.
        names: the names of the fields of a ROW.
        raw: the type of the values of a RAW.

    >>> str(decimal(10, 2)), str(STRING), str(array(timestamp(3))), decimal(10, 2).arrow
    ('DECIMAL(10, 2)', 'STRING', 'ARRAY<TIMESTAMP(3)>', Decimal128Type(decimal128(10, 2)))
    """

    root: str
    sizes: tuple[int, ...] = ()
    parts: tuple[LogicalType, ...] = ()
    names: tuple[str, ...] = ()
    raw: TypeInformation | None = None

    @property
    def info(self) -> TypeInformation:
        return _info(self)

    @property
    def arrow(self) -> pa.DataType:
        return _arrow(self)

    @property
    def precision(self) -> int:
        return self.sizes[0]

    @property
    def scale(self) -> int:
        return self.sizes[1]

    @property
    def is_numeric(self) -> bool:
        return self.root in _NUMBERS

    @property
    def is_integer(self) -> bool:
        return self.root in _INTEGERS

    @property
    def is_float(self) -> bool:
        return self.root in ("FLOAT", "DOUBLE")

    @property
    def is_text(self) -> bool:
        return self.root in ("CHAR", "VARCHAR")

    @property
    def is_binary(self) -> bool:
        return self.root in ("BINARY", "VARBINARY")

    @property
    def is_time_point(self) -> bool:
        return self.root in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")

    @property
    def is_interval(self) -> bool:
        return self.root.startswith("INTERVAL")

    @property
    def is_decimal(self) -> bool:
        return self.root == "DECIMAL"

    def __str__(self) -> str:
        if self.root in ("VARCHAR", "VARBINARY") and self.sizes == (MAX_LENGTH,):
            return "STRING" if self.root == "VARCHAR" else "BYTES"
        if self.root == "ROW":
            return f"ROW<{', '.join(f'`{name}` {part}' for name, part in zip(self.names, self.parts, strict=True))}>"
        if self.parts:
            return f"{self.root}<{', '.join(map(str, self.parts))}>"
        if self.root == "RAW":
            return f"RAW({self.raw})"
        return _INTERVALS.get(self.root) or self.root + (f"({', '.join(map(str, self.sizes))})" if self.sizes else "")


_INTERVALS = {"INTERVAL_DAY": "INTERVAL SECOND(3)", "INTERVAL_MONTH": "INTERVAL MONTH"}

NULL, BOOLEAN, DATE = map(LogicalType, ("NULL", "BOOLEAN", "DATE"))
TINYINT, SMALLINT, INT, BIGINT = map(LogicalType, ("TINYINT", "SMALLINT", "INT", "BIGINT"))
FLOAT, DOUBLE = map(LogicalType, ("FLOAT", "DOUBLE"))
INTERVAL_DAY, INTERVAL_MONTH = map(LogicalType, ("INTERVAL_DAY", "INTERVAL_MONTH"))
STRING, BYTES = (LogicalType(root, (MAX_LENGTH,)) for root in ("VARCHAR", "VARBINARY"))


def _sized(root: str, *usual: int) -> Callable[..., LogicalType]:
    return lambda *sizes: LogicalType(root, sizes or usual)


char, decimal, time = _sized("CHAR"), _sized("DECIMAL"), _sized("TIME", 0)
timestamp, timestamp_ltz = _sized("TIMESTAMP", 6), _sized("TIMESTAMP_LTZ", 6)


def varchar(length: int) -> LogicalType:
    return LogicalType("VARCHAR", (min(length, MAX_LENGTH),))


def array(element: LogicalType) -> LogicalType:
    return LogicalType("ARRAY", parts=(element,))


def map_of(key: LogicalType, value: LogicalType) -> LogicalType:
    return LogicalType("MAP", parts=(key, value))


def row(names: Sequence[str], parts: Sequence[LogicalType]) -> LogicalType:
    return LogicalType("ROW", parts=tuple(parts), names=tuple(names))


#: Integers by their width, with the digits of the DECIMAL that holds each.
_INTEGERS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_NUMBERS = (*_INTEGERS, "DECIMAL", "FLOAT", "DOUBLE")


@lru_cache(maxsize=4096)
def _info(of: LogicalType) -> TypeInformation:
    info = _plain_info(of)
    return info if of_type_info(info) == of else declared(info, of)


def _plain_info(of: LogicalType) -> TypeInformation:
    if of.root in _SIMPLE:
        return _SIMPLE[of.root]
    parts = [part.info for part in of.parts]
    match of.root:
        case "DECIMAL":
            return DecimalTypeInfo(of.precision, of.scale)
        case "ARRAY":
            return Types.LIST(parts[0])
        case "MAP":
            return Types.MAP(*parts)
        case "MULTISET":
            return Types.MAP(parts[0], Types.INT())
        case "ROW":
            return Types.ROW_NAMED(list(of.names), parts)
    return of.raw or Types.PICKLED_BYTE_ARRAY()


@lru_cache(maxsize=4096)
def _arrow(of: LogicalType) -> pa.DataType:
    import pyarrow as pa

    parts = [part.arrow for part in of.parts]
    match of.root:
        case "ARRAY":
            return pa.list_(parts[0])
        case "MAP":
            return pa.map_(*parts)
        case "ROW":
            return pa.struct([pa.field(name, part) for name, part in zip(of.names, parts, strict=True)])
    return of.info.arrow_type()


_SIMPLE: dict[str, TypeInformation] = {
    "BOOLEAN": Types.BOOLEAN(), "TINYINT": Types.BYTE(), "SMALLINT": Types.SHORT(), "INT": Types.INT(),
    "BIGINT": Types.LONG(), "FLOAT": Types.FLOAT(), "DOUBLE": Types.DOUBLE(), "INTERVAL_MONTH": Types.INT(),
    **dict.fromkeys(("CHAR", "VARCHAR"), Types.STRING()),
    **dict.fromkeys(("BINARY", "VARBINARY"), Types.PRIMITIVE_ARRAY(Types.BYTE())),
    "DATE": Types.SQL_DATE(), "TIME": Types.SQL_TIME(), "TIMESTAMP": Types.SQL_TIMESTAMP(),
    "TIMESTAMP_LTZ": Types.INSTANT(), "INTERVAL_DAY": IntervalTypeInfo(), "NULL": NullTypeInfo(),
}  # fmt: skip

_OF_BASIC = {
    BasicType.STRING: STRING, BasicType.BYTE: TINYINT, BasicType.BOOLEAN: BOOLEAN, BasicType.SHORT: SMALLINT,
    BasicType.INT: INT, BasicType.LONG: BIGINT, BasicType.FLOAT: FLOAT, BasicType.DOUBLE: DOUBLE,
    BasicType.CHAR: char(1), BasicType.BIG_INT: decimal(38, 0), BasicType.BIG_DEC: decimal(38, 18),
    BasicType.INSTANT: timestamp_ltz(9),
}  # fmt: skip
_OF_CLASS: dict[type[TypeInformation], LogicalType] = {
    DateTypeInfo: DATE, TimeTypeInfo: time(0), TimestampTypeInfo: timestamp(9), IntervalTypeInfo: INTERVAL_DAY,
    NullTypeInfo: NULL,
}  # fmt: skip
_OF_LOCAL = dict(zip(LocalTimeTypeInfo.TimeType, (DATE, time(0), timestamp(9)), strict=True))


def declared(info: TypeInformation, logical: LogicalType) -> TypeInformation:
    """The type of the DataStream API with the SQL type that it was declared as, which `of_type_info` finds again: it
    says more of lengths and digits."""
    made = copy(info)
    made.__dict__["logical_type"] = logical
    return made


def of_type_info(info: TypeInformation) -> LogicalType:
    """The type of SQL whose values are those of this type of the DataStream API."""
    found = info.__dict__.get("logical_type")
    if isinstance(found, LogicalType):
        return found
    match info:
        case ExternalTypeInfo():
            return of_type_info(info._type_info)
        case DecimalTypeInfo():
            return decimal(info._precision, info._scale)
        case BasicTypeInfo():
            return _OF_BASIC[info._basic_type]
        case PrimitiveArrayTypeInfo() if info.elem_type == Types.BYTE():
            return BYTES
        case _SequenceTypeInfo():
            return array(of_type_info(info.elem_type))
        case MapTypeInfo():
            return map_of(of_type_info(info._key_type_info), of_type_info(info._value_type_info))
        case RowTypeInfo():
            return row(info.get_field_names(), [of_type_info(field) for field in info.get_field_types()])
        case TupleTypeInfo():
            fields = [of_type_info(field) for field in info.get_field_types()]
            return row(default_names(len(fields)), fields)
        case LocalTimeTypeInfo():
            return _OF_LOCAL[info._time_type]
    return _OF_CLASS.get(type(info)) or LogicalType("RAW", raw=info)


def as_decimal(of: LogicalType) -> LogicalType:
    """The DECIMAL that holds the values of an exact number."""
    return decimal(_INTEGERS[of.root], 0) if of.is_integer else of


def _adjusted(precision: int, scale: int) -> LogicalType:
    """A DECIMAL of these digits; if they are too many, digits behind the point are given up, but 6 of them."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    return decimal(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), min(scale, 6)))


def arithmetic(operator: str, left: LogicalType, right: LogicalType) -> LogicalType | None:
    """The type of ``left operator right``, of ``+ - * / %``; None: there is none."""
    if not (left.is_numeric and right.is_numeric):
        return None
    if not (left.is_decimal or right.is_decimal) or {left.root, right.root} & {"FLOAT", "DOUBLE"}:
        return right if operator == "%" and left.is_integer else common(left, right)
    (p1, s1), (p2, s2) = as_decimal(left).sizes, as_decimal(right).sizes
    scale = max(s1, s2)
    match operator:
        case "*":
            return _adjusted(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(6, s1 + p2 + 1)
            return _adjusted(p1 - s1 + s2 + scale, scale)
        case "%":
            return _adjusted(min(p1 - s1, p2 - s2) + scale, scale)
    return _adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)


def common(*types: LogicalType) -> LogicalType | None:
    """The type that values of all these types have beside each other (CASE, UNION ALL, ``=``); None: there is none.

    >>> str(common(INT, decimal(10, 2))), str(common(char(1), char(3))), common(INT, STRING)
    ('DECIMAL(12, 2)', 'VARCHAR(3)', None)
    """
    return reduce(lambda left, right: left and _common(left, right), types[1:], types[0] if types else None)


def _common(left: LogicalType, right: LogicalType) -> LogicalType | None:
    roots = {left.root, right.root}
    if left == right or NULL in (left, right):
        return right if left == NULL else left
    if left.is_numeric and right.is_numeric:
        return _common_number(left, right)
    if (left.is_text and right.is_text) or (left.is_binary and right.is_binary):
        same = left.root == right.root and left.sizes == right.sizes
        root = left.root if same else "VARCHAR" if left.is_text else "VARBINARY"
        return LogicalType(root, (max(left.precision, right.precision),))
    if (left.root == right.root and left.is_time_point and left.sizes) or roots == {"TIMESTAMP", "TIMESTAMP_LTZ"}:
        return LogicalType(left.root, (max(left.precision, right.precision),))
    if left.root == right.root and left.parts and len(left.parts) == len(right.parts):
        parts = tuple(filter(None, map(_common, left.parts, right.parts)))
        return left._replace(parts=parts) if len(parts) == len(left.parts) else None
    return None


def _common_number(left: LogicalType, right: LogicalType) -> LogicalType:
    roots = {left.root, right.root}
    if roots == {"FLOAT", "DOUBLE"}:  # the first, as it is
        return left
    if "DOUBLE" in roots or "FLOAT" in roots:
        return FLOAT if "DOUBLE" not in roots and "DECIMAL" not in roots else DOUBLE
    if "DECIMAL" in roots:
        (p1, s1), (p2, s2) = as_decimal(left).sizes, as_decimal(right).sizes
        scale = max(s1, s2)
        return decimal(min(MAX_PRECISION, max(p1 - s1, p2 - s2) + scale), scale)
    return max(left, right, key=lambda kind: _INTEGERS[kind.root])
