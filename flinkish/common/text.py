"""The text of a record, as Flink's ``toString`` writes it to text files and PyFlink's ``print()`` to the screen.

Rule upheld here: where a type is declared the text is Java's (``+I[a, 1]``, ``(a,1)``, ``null``, ``true``, ``1.0E10``);
where none is declared the record is a Python object and its text is ``str``. PyFlink has the same two forms, and a
third one for ``print()`` of a stream of Rows, which it makes in Python: the row kind, then ``str`` of each field
(``+I[a,None]``).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from flinkish.common.typeinfo import ExternalTypeInfo, PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from flinkish.common.types import Row

ROW_SEPARATOR = ", "
# PyFlink's print() writes no blank between the fields of a Row
PRINT_ROW_SEPARATOR = ","


def text_writer(type_info: TypeInformation | None, row_separator: str = ROW_SEPARATOR) -> Callable[[Any], str]:
    """A function that returns the text of one record of a stream of this type.

    Args:
        type_info: type of the records; None for Python objects.
        row_separator: ``ROW_SEPARATOR`` for the text of Java's ``toString``, ``PRINT_ROW_SEPARATOR`` for that of
            ``print()``. They differ only for records that are Rows; Rows within other values have Java's form.

    >>> from flinkish.common.typeinfo import Types
    >>> rows = Types.ROW([Types.STRING(), Types.DOUBLE()])
    >>> text_writer(rows)(Row(None, 1e10)), text_writer(rows, PRINT_ROW_SEPARATOR)(Row(None, 1e10))
    ('+I[null, 1.0E10]', '+I[None,10000000000.0]')
    >>> text_writer(None)(("a", None))
    "('a', None)"
    """
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info._type_info
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return str
    if isinstance(type_info, RowTypeInfo) and row_separator == PRINT_ROW_SEPARATOR:
        return _printed_row
    return _java_text


def _printed_row(row: Any) -> str:
    kind = row.get_row_kind() if isinstance(row, Row) else "+I"
    return f"{kind}[{PRINT_ROW_SEPARATOR.join(map(str, row))}]"


def _java_text(value: Any) -> str:
    """The text that Java's ``String.valueOf`` gives."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{ROW_SEPARATOR.join(map(_java_text, value))}]"
    if isinstance(value, tuple):
        return f"({','.join(map(_java_text, value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(_java_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_java_text(key)}={_java_text(item)}' for key, item in value.items())}}}"
    return str(value)


def _java_double(value: float) -> str:
    """``Double.toString``: decimal from 1e-3 to below 1e7, else the scientific form; always a digit after the point.

    >>> [_java_double(x) for x in (1.0, 1234567.5, 1e7, 1.5e-5, float("nan"), float("-inf"))]
    ['1.0', '1234567.5', '1.0E7', '1.5E-5', 'NaN', '-Infinity']
    """
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    # not repr(): for numpy's subclass of float it contains the name of that class
    python = float.__repr__(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        # Python's form is the same here: it is scientific below 1e-4 and from 1e16 only
        return python
    sign, digits, exponent = Decimal(python).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"
