"""The text of a record, as Flink's ``toString`` gives it to ``print()`` and to text files.

Rule upheld here: where a type is declared the text is Java's (``+I[a, 1]``, ``(a,1)``, ``null``, ``true``); where none
is declared the record is a Python object and its text is ``str``. PyFlink has the same two faces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.common.typeinfo import ExternalTypeInfo, PickledBytesTypeInfo, TypeInformation
from flinkish.common.types import Row

ROW_SEPARATOR = ", "
# print() of PyFlink writes Rows without a blank
PRINT_ROW_SEPARATOR = ","


def text_writer(type_info: TypeInformation | None, row_separator: str = ROW_SEPARATOR) -> Callable[[Any], str]:
    """The function that gives the text of one record of a stream of this type.

    >>> from flinkish.common.typeinfo import Types
    >>> text_writer(Types.ROW([Types.STRING(), Types.INT()]))(Row("a", None))
    '+I[a, null]'
    >>> text_writer(None)(("a", None))
    "('a', None)"
    """
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info._type_info
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return str
    return lambda value: _java_text(value, row_separator)


def _java_text(value: Any, row_separator: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{row_separator.join(_java_text(item, row_separator) for item in value)}]"
    if isinstance(value, tuple):
        return f"({','.join(_java_text(item, row_separator) for item in value)})"
    if isinstance(value, list):
        return f"[{', '.join(_java_text(item, row_separator) for item in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_java_text(key, row_separator)}={_java_text(item, row_separator)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return str(value)
