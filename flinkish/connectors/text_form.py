"""How ``print()`` writes a value, by its type: the text that PyFlink's print gives, which is not always Python's.

* untyped values: ``str(value)``
* ROW: ``+I[a,1]``: the row kind, then ``str`` of each field (PyFlink makes this text in Python)
* everything else: Java's ``toString``: ``(a,1)``, ``null``, ``true``, ``1.0E10``, ``[a, b]``, ``{k=v}``
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from flinkish.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from flinkish.common.types import Row


def text_of(type_info: TypeInformation | None) -> Callable[[Any], str]:
    """The function that writes values of that type."""
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return str
    if isinstance(type_info, RowTypeInfo):
        return row_text
    return java_text


def row_text(row: Any) -> str:
    """``+I[a,1]``.

    >>> row_text(Row("a", 1))
    '+I[a,1]'
    """
    kind = str(row.get_row_kind()) if isinstance(row, Row) else "+I"
    return f"{kind}[{','.join(map(str, row))}]"


def java_text(value: Any) -> str:
    """What ``String.valueOf`` writes in Java.

    >>> java_text(("a", None, True, 1e10, [1, 2])), java_text({"k": 0.5})
    ('(a,null,true,1.0E10,[1, 2])', '{k=0.5}')
    """
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{', '.join(map(java_text, value))}]"
    if isinstance(value, tuple):
        return f"({','.join(map(java_text, value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(java_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{java_text(key)}={java_text(item)}" for key, item in value.items()) + "}"
    return str(value)


def java_double(value: float) -> str:
    """``Double.toString``: decimal from 1e-3 to below 1e7, else the scientific form; always a digit after the point.

    >>> [java_double(x) for x in (1.0, 1234567.5, 1e7, 1.5e-5, float("nan"), float("-inf"))]
    ['1.0', '1234567.5', '1.0E7', '1.5E-5', 'NaN', '-Infinity']
    """
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f") if "." in repr(value) else repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"
