"""The text of a record, as Flink writes it to text files and PyFlink's ``print()`` to the screen.

Rule upheld here: the declared type decides. Where a type is declared the text is that of Java's ``toString`` for the
object that PyFlink would hand to Java: ``+I[a, null]``, ``(a,1)``, ``{a=1}``, ``true``, ``1.0E10``, ``03:04:05.6``.
Where none is declared (``PICKLED_BYTE_ARRAY``), the record is a Python object and its text is ``str``; PyFlink's
``print()`` writes that, too, but its text files get the address of Java's array of bytes (``[B@1b2c``). A stream of
Rows has a form of its own on the screen, which PyFlink makes in Python: the row kind, then ``str`` of each field
(``+I[a,None]``).

Numbers: Java's text of a FLOAT or DOUBLE is the shortest one that is read back as the same number, and of those the
nearest to it, with at least two digits. So say the specifications of ``Float.toString`` and ``Double.toString`` since
Java 19, and so it is written here. Java 17, on which most Flink clusters run, writes more digits for some numbers,
mostly above 1e7 (``1.9999999999999998E23`` for ``2.0E23``; JDK-4511638). Both texts are read as the same number, and a
text that holds for newer versions of Java is worth more than the faults of an old one. Unlike Flink's, the texts of an
array that is a record itself and of arrays in lists and maps are their elements, and entries of maps stay in order.

Errors quote values in Python's form (``repr``), which shows what is a text and what is a number.
"""

from __future__ import annotations

import builtins
import datetime
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache, partial
from typing import Any, TextIO

from flinkish.common.arguments import abbreviated
from flinkish.common.time import Instant
from flinkish.common.typeinfo import ExternalTypeInfo, PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.basic import BasicType, BasicTypeInfo
from flinkish.common.typeinfo.collections import MapTypeInfo, PrimitiveArrayTypeInfo, _SequenceTypeInfo
from flinkish.common.typeinfo.composite import TupleTypeInfo
from flinkish.common.typeinfo.temporal import LocalTimeTypeInfo, TimestampTypeInfo, TimeTypeInfo
from flinkish.common.types import Row
from flinkish.errors import TypeMismatchError

ROW_SEPARATOR = ", "
# PyFlink's print() writes no blank between the fields of a Row
PRINT_ROW_SEPARATOR = ","

_Text = Callable[[Any], str]


def text_writer(type_info: TypeInformation | None, row_separator: str = ROW_SEPARATOR) -> _Text:
    """A function that returns the text of one record of a stream of this type.

    Args:
        type_info: type of the records; None for Python objects.
        row_separator: ``ROW_SEPARATOR`` for the text of Java's ``toString``, ``PRINT_ROW_SEPARATOR`` for that of
            ``print()``. They differ only for records that are Rows; Rows within other values have Java's form.

    >>> from flinkish.common.typeinfo import Types
    >>> rows = Types.ROW([Types.STRING(), Types.FLOAT()])
    >>> text_writer(rows)(Row(None, 1e10)), text_writer(rows, PRINT_ROW_SEPARATOR)(Row(None, 1e10))
    ('+I[null, 1.0E10]', '+I[None,10000000000.0]')
    >>> text_writer(None)(("a", None))
    "('a', None)"
    """
    type_info = _inner(type_info)
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return str
    if row_separator == PRINT_ROW_SEPARATOR and prints_python(type_info):
        return _printed_row
    return _or_null(_java_writer(type_info))


def prints_python(type_info: TypeInformation | None) -> bool:
    """Whether ``print()`` writes the fields of records of this type in Python's form: that of Rows."""
    return isinstance(_inner(type_info), RowTypeInfo)


def _inner(type_info: TypeInformation | None) -> TypeInformation | None:
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info._type_info
    return type_info


def _printed_row(row: Any) -> str:
    if not isinstance(row, (Row, tuple, list)):
        raise TypeMismatchError(
            f"the record {abbreviated(row)} is of type {type(row).__name__}",
            where="print()",
            expected="a Row, as the stream's type says",
            hint="declare the type that the function returns, or drop such records with filter",
        )
    kind = row.get_row_kind() if isinstance(row, Row) else "+I"
    return f"{kind}[{PRINT_ROW_SEPARATOR.join(map(str, row))}]"


def _java_writer(declared: TypeInformation) -> _Text:
    """The text of a value of this type that is not None."""
    declared = _inner(declared) or declared
    if isinstance(declared, RowTypeInfo):
        return partial(_row, _each(declared.get_field_types()))
    if isinstance(declared, TupleTypeInfo):
        return partial(_tuple, _each(declared.get_field_types()))
    if isinstance(declared, PrimitiveArrayTypeInfo) and declared.elem_type == BasicTypeInfo.BYTE_TYPE_INFO():
        return _bytes
    if isinstance(declared, _SequenceTypeInfo):
        return partial(_list, _or_null(_java_writer(declared.elem_type)))
    if isinstance(declared, MapTypeInfo):
        key_text, value_text = _each([declared._key_type_info, declared._value_type_info])
        return partial(_map, key_text, value_text)
    if isinstance(declared, BasicTypeInfo):
        return _BASIC.get(declared._basic_type, str)
    if isinstance(declared, LocalTimeTypeInfo):
        return _LOCAL[declared._time_type]
    return _OF_CLASS.get(type(declared), str)


def _each(types: Sequence[TypeInformation]) -> list[_Text]:
    return [_or_null(_java_writer(declared)) for declared in types]


def _or_null(text: _Text) -> _Text:
    return lambda value: "null" if value is None else text(value)


# ------------------------------------------------------------------------------------------------------ composites


def _row(texts: list[_Text], row: Any) -> str:
    kind = row.get_row_kind() if isinstance(row, Row) else "+I"
    return f"{kind}[{ROW_SEPARATOR.join([text(value) for text, value in zip(texts, row)])}]"


def _tuple(texts: list[_Text], values: Any) -> str:
    return f"({','.join([text(value) for text, value in zip(texts, values)])})"


def _list(text: _Text, values: Any) -> str:
    return f"[{', '.join(map(text, values))}]"


def _bytes(value: Any) -> str:
    return str(list(memoryview(value).cast("b")))


def _map(key_text: _Text, value_text: _Text, value: dict[Any, Any]) -> str:
    return f"{{{', '.join([f'{key_text(key)}={value_text(item)}' for key, item in value.items()])}}}"


# --------------------------------------------------------------------------------------------------------- numbers


def _truth(value: Any) -> str:
    return "true" if value else "false"


def _decimal(value: Decimal) -> str:
    return str(value if value else abs(value))  # Java has no negative zero here


def _double(value: float) -> str:
    """``Double.toString``.

    >>> [_double(x) for x in (1.0, 1234567.5, 1e7, 1.5e-5, 5e-324, float("nan"), float("-inf"))]
    ['1.0', '1234567.5', '1.0E7', '1.5E-5', '4.9E-324', 'NaN', '-Infinity']
    """
    # not repr(): for numpy's subclass of float it contains the name of that class
    return _in_javas_form(value, float.__repr__(value), float)


def _float(value: float) -> str:
    """``Float.toString``, for values that have been rounded to 32 bits.

    >>> list(map(_float, (0.10000000149011612, 16777216.0, 1.401298464324817e-45, float("inf"))))
    ['0.1', '1.6777216E7', '1.4E-45', 'Infinity']
    """
    float32, positional = _numpys_floats()
    return _in_javas_form(value, positional(float32(value), trim="0"), float32)


@cache
def _numpys_floats() -> tuple[Callable[[Any], Any], Callable[..., str]]:
    # not at the import of this module, which drivers need before anything of numpy
    from numpy import float32, format_float_positional

    return float32, format_float_positional


def _in_javas_form(value: float, shortest: str, read: Callable[[str], Any]) -> str:
    """Java's text of a number, from the shortest text that ``read`` takes for it."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        # Python's form is the same here: it is scientific below 1e-4 and from 1e16 only
        return shortest
    if shortest in _NO_NUMBERS:
        return _NO_NUMBERS[shortest]
    sign, digits, _ = (number := Decimal(shortest)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    if len(text) == 1 and read(two_digits := f"{abs(value):.1e}") == abs(value):
        # of two digits, which Java always writes, others may be nearer
        text, number = two_digits[0] + two_digits[2].replace("0", ""), Decimal(two_digits)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{number.adjusted()}"


_NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


# ------------------------------------------------------------------------------------------------------------ times


def _sql_time(value: datetime.time) -> str:
    return f"{value:%H:%M:%S}"


def _sql_timestamp(value: datetime.datetime) -> str:
    # java.sql.Timestamp is written in the local time zone, in which a naive datetime already is
    local = value if value.tzinfo is None else value.astimezone()
    return f"{_date(local)} {_sql_time(local.time())}.{f'{local.microsecond:06}'.rstrip('0') or '0'}"


def _date(value: datetime.date) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def _local_time(value: datetime.time) -> str:
    text = f"{value.hour:02}:{value.minute:02}"
    return (
        text + f":{value.second:02}{_fraction(value.microsecond * 1_000)}"
        if value.second or value.microsecond
        else text
    )


def _local_date_time(value: datetime.datetime) -> str:
    return f"{_date(value)}T{_local_time(value.time())}"


def _instant(value: Instant) -> str:
    # Python's dates end with the year 9999, so the year is counted in cycles of 400 years, which are equally long
    cycles, seconds = divmod(value.seconds, _SECONDS_OF_400_YEARS)
    at = _EPOCH + datetime.timedelta(seconds=seconds)
    year = at.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{at:%m-%dT%H:%M:%S}{_fraction(value.nanos)}Z"


def _fraction(nanos: int) -> str:
    """Three, six or nine digits, as many as are needed."""
    if not nanos:
        return ""
    text = f"{nanos:09}"
    return "." + (text[:3] if text.endswith("000000") else text[:6] if text.endswith("000") else text)


_EPOCH = datetime.datetime(1970, 1, 1)
_SECONDS_OF_400_YEARS = 146_097 * 86_400

_BASIC: dict[BasicType, _Text] = {
    BasicType.BOOLEAN: _truth,
    BasicType.FLOAT: _float,
    BasicType.DOUBLE: _double,
    BasicType.BIG_DEC: _decimal,
    BasicType.INSTANT: _instant,
}
_LOCAL: dict[LocalTimeTypeInfo.TimeType, _Text] = {
    LocalTimeTypeInfo.TimeType.LOCAL_DATE: _date,
    LocalTimeTypeInfo.TimeType.LOCAL_TIME: _local_time,
    LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME: _local_date_time,
}
#: SQL_DATE is written as Python does
_OF_CLASS: dict[type[TypeInformation], _Text] = {TimeTypeInfo: _sql_time, TimestampTypeInfo: _sql_timestamp}


def standard_stream(std_err: bool = False) -> TextIO:
    """The process's standard output, or its standard error, as for Flink's print: also if the program has put something
    else in the place of ``sys.stdout``. Only in notebooks and under pytest it is what stands there now, by which a cell
    or a test gets its output."""
    own, now = (sys.__stderr__, sys.stderr) if std_err else (sys.__stdout__, sys.stdout)
    replaced_by_host = hasattr(builtins, "__IPYTHON__") or "pytest" in sys.modules
    return now if own is None or replaced_by_host else own
