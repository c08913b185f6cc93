"""Copies values that pass between state and user code, so that neither sees later changes by the other.

In Flink a record or a state value passes through a serializer, so a function that changes an object later does not
change the value that it passed on before. Here objects are passed as they are. The rule: a mutable object is never both
in state and in the hands of user code (or of the next operator). One level is copied, as in ``copy.copy``: the elements
of a list in state are shared, the list is not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from flinkish.common.types import Row, _create_row

_IMMUTABLE = (
    int, float, complex, str, bytes, tuple, frozenset, type(None), date, time, timedelta, Decimal, Enum, type
)  # fmt: skip


def _copy_row(row: Row) -> Row:
    return _create_row(getattr(row, "_fields", None), row._values, row._row_kind)


class _Copiers(dict[type, Callable[[Any], Any] | None]):
    """Type -> function that copies its instances; None: they are immutable. Filled when a type is first looked up."""

    def __missing__(self, cls: type) -> Callable[[Any], Any] | None:
        copier: Callable[[Any], Any] | None = copy.copy
        if issubclass(cls, _IMMUTABLE) or cls.__module__ == "numpy" and cls.__name__ != "ndarray":
            copier = None
        elif cls is Row:
            copier = _copy_row
        elif cls in (list, dict, set):
            copier = cls.copy
        self[cls] = copier
        return copier


#: type -> function that copies its instances; None: they are immutable
COPIERS = _Copiers()

#: types of values that may be shared; for hot paths, for which a call of `detached` is too slow
SHARED = frozenset({int, float, str, bytes, bool, tuple, frozenset, type(None), Decimal})


def copier_of(value: Any) -> Callable[[Any], Any] | None:
    """The function that copies objects of the value's type; None: they are immutable."""
    return COPIERS[value.__class__]


def detached(value: Any) -> Any:
    """The value, or a copy if it is mutable.

    >>> a = [1]; detached(a) is a, detached(a) == a
    (False, True)
    """
    copier = COPIERS[value.__class__]
    return value if copier is None else copier(value)


def all_detached(values: list[Any]) -> list[Any]:
    """A new list of the values, of mutable ones copies.

    >>> a = [1]; all_detached([a, 2])[0] is a, all_detached([a, 2])
    (False, [[1], 2])
    """
    if any(map(COPIERS.__getitem__, set(map(type, values)))):
        return list(map(detached, values))
    return list(values)
