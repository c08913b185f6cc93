"""Detaches the objects that pass between user code, state, the operators and the branches of a stream.

The rule: a mutable object is in one place: in state, in the hands of user code, or on its way. Whoever hands it over
detaches it at that moment, so that neither side sees what the other does to it later. In Flink a record or a value of
state passes through a serializer, which has the same effect; here objects are passed as they are wherever nothing in
them can change, or nobody else refers to them, and copied otherwise. See "Objects that change" in docs/semantics.md.

* `detached` copies whatever can change, at any depth, and nothing else.
* `handed_over` copies only what somebody else still refers to. It is called once for each result of user code, before
  the next call, since later nobody can tell any more what the function has kept in between.
"""

from __future__ import annotations

import copy
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import chain
from operator import is_
from pathlib import PurePath
from sys import getrefcount
from typing import Any

from flinkish.common.types import Row, _create_row

#: What classes of immutable instances derive from. What a subclass adds in attributes counts as immutable, too.
_IMMUTABLE = (
    int, float, complex, str, bytes, range, slice, type(None), type(...), type(NotImplemented), date, time, timedelta,
    tzinfo, Decimal, Fraction, Enum, uuid.UUID, PurePath, re.Pattern, frozenset, type,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip

#: The classes whose instances cannot change, nor anything in them; it grows as classes are met. For hot paths, for
#: which a call of `detached` is too slow. Tuples are not among them: it depends on their elements.
SHARED: set[type] = {
    int, float, complex, bool, str, bytes, type(None), Decimal, date, time, timedelta, frozenset
}  # fmt: skip

#: `SHARED` for values of which it is known that tuples hold nothing that can change
SHARED_IF_FLAT: set[type] = {*SHARED, tuple}

_Memo = dict[int, Any]
_Copier = Callable[[Any, _Memo], Any]


def share(cls: type) -> None:
    """Declare that instances of a class cannot change."""
    SHARED.add(cls)
    SHARED_IF_FLAT.add(cls)


def detached(value: Any) -> Any:
    """The value if nothing in it can change, else a copy of all in it that can.

    An object in several places of the value is one object in the copy as well. Keys of dicts and elements of sets are
    shared. What cannot be copied, such as a lock or a connection, is passed on as it is.

    >>> a = (1, [2]); detached(a) == a, detached(a)[1] is a[1], detached(("b", 1.5)), detached("c")
    (True, False, ('b', 1.5), 'c')
    """
    cls = value.__class__
    if cls in SHARED:
        return value
    if cls is tuple:
        for item in value:
            if item.__class__ not in SHARED:
                break
        else:
            return value
    return _copied(value, {})


def all_detached(values: Iterable[Any]) -> list[Any]:
    """A new list of the values, each detached by itself: what two of them share, their copies do not.

    >>> a = [1]; b = all_detached([a, a, 2]); b, b[0] is a, b[0] is b[1]
    ([[1], [1], 2], False, False)
    """
    values = list(values)
    if cannot_change(values):
        return values
    return [value if value.__class__ in SHARED else _copied(value, {}) for value in values]


def cannot_change(values: list[Any]) -> bool:
    """Whether it is easily seen that nothing in the values can change.

    >>> cannot_change([("a", 1), ("b", 2)]), cannot_change([("a", 1), ("b", [])])
    (True, False)
    """
    kinds = set(map(type, values))
    return SHARED.issuperset(kinds) or kinds == {tuple} and SHARED.issuperset(map(type, chain.from_iterable(values)))


def _copied(value: Any, memo: _Memo) -> Any:
    """`detached` for a part of a value; ``memo`` holds the copies of its other parts, by `id`."""
    cls = value.__class__
    if cls is tuple:
        for item in value:
            if item.__class__ not in SHARED:
                break
        else:
            return value
    if memo and id(value) in memo:
        return memo[id(value)]
    copier = _COPIERS[cls]
    return value if copier is None else copier(value, memo)


def _copied_tuple(value: Any, memo: _Memo) -> Any:
    items = [item if item.__class__ in SHARED else _copied(item, memo) for item in value]
    # a tuple is its own copy if its elements are
    if not all(map(is_, items, value)):
        value = memo[id(value)] = tuple.__new__(value.__class__, items)
    return value


def _copied_list(value: list[Any], memo: _Memo) -> list[Any]:
    copied = memo[id(value)] = value.copy()
    for position, item in enumerate(value):
        if item.__class__ not in SHARED:
            copied[position] = _copied(item, memo)
    return copied


def _copied_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    copied = memo[id(value)] = value.copy()
    for key, item in value.items():
        if item.__class__ not in SHARED:
            copied[key] = _copied(item, memo)
    return copied


def _copied_set(value: set[Any], memo: _Memo) -> set[Any]:
    copied = memo[id(value)] = value.copy()
    return copied


def _copied_row(value: Row, memo: _Memo) -> Row:
    copied = memo[id(value)] = _create_row(getattr(value, "_fields", None), value._values, value._row_kind)
    values = copied._values
    for position, item in enumerate(values):
        if item.__class__ not in SHARED:
            values[position] = _copied(item, memo)
    return copied


def _copied_instance(value: Any, memo: _Memo) -> Any:
    """A copy of an instance with attributes in ``__dict__`` alone."""
    copied = memo[id(value)] = object.__new__(value.__class__)
    for name, item in value.__dict__.items():
        # not through __dict__, which instances have only once it is asked for
        object.__setattr__(copied, name, item if item.__class__ in SHARED else _copied(item, memo))
    return copied


def _copied_frozen(value: Any, memo: _Memo) -> Any:
    """`_copied_instance` for frozen dataclasses: one is its own copy if its fields are."""
    attributes = value.__dict__
    if SHARED.issuperset(map(type, attributes.values())):
        return value
    copied = _copied_instance(value, memo)
    if all(map(is_, copied.__dict__.values(), attributes.values())):
        copied = memo[id(value)] = value
    return copied


def _copied_otherwise(value: Any, memo: _Memo) -> Any:
    try:
        return copy.deepcopy(value, memo)
    except RecursionError:
        raise
    except Exception:
        # what cannot be copied could not be sent to another process either
        return value


def _is_plain(cls: type) -> bool:
    """Whether instances are copied by copying their ``__dict__``: all classes are written in Python, without slots and
    without a way of their own to be copied or pickled."""
    for base in cls.__mro__[:-1]:
        own = vars(base)
        if "__slots__" in own or not base.__flags__ & _HEAP_TYPE or base.__module__ == "builtins":
            return False
        if any(name in own for name in _WAYS_TO_COPY):
            return False
    return cls.__basicsize__ == _PLAIN_SIZE


_HEAP_TYPE = 1 << 9
_WAYS_TO_COPY = (
    "__deepcopy__", "__copy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__",
    "__getnewargs_ex__", "__getattribute__",
)  # fmt: skip


class _Plain:
    """A class like those that `_copied_instance` copies."""


_PLAIN_SIZE = _Plain.__basicsize__


class _Copiers(dict[type, "_Copier | None"]):
    """Class -> what copies its instances; None: they cannot change. Filled, as `SHARED` is, when a class is first
    met."""

    def __missing__(self, cls: type) -> _Copier | None:
        copier: _Copier | None = _copied_otherwise
        if issubclass(cls, _IMMUTABLE) or _is_immutable_of_library(cls):
            copier = None
            share(cls)
        elif issubclass(cls, tuple) and cls.__flags__ & _HEAP_TYPE and not cls.__dictoffset__:
            # a named tuple
            copier = _copied_tuple
        elif _is_plain(cls):
            params = getattr(cls, "__dataclass_params__", None)
            copier = _copied_frozen if params is not None and params.frozen else _copied_instance
        self[cls] = copier
        return copier


def _is_immutable_of_library(cls: type) -> bool:
    """Whether a class is that of numpy's scalars or of Arrow's data."""
    library = cls.__module__.partition(".")[0]
    return library == "numpy" and cls.__name__ not in ("ndarray", "void") or library == "pyarrow"


_COPIERS = _Copiers({tuple: _copied_tuple, list: _copied_list, dict: _copied_dict, set: _copied_set, Row: _copied_row})


def copies_attributes(cls: type) -> bool:
    """Whether `detached` copies instances of a class by copying their ``__dict__``."""
    return _COPIERS[cls] in (_copied_instance, _copied_frozen)


# --- reference counts ---------------------------------------------------------------------------------------------


def handed_over(result: Any, references: int = 0) -> Any:
    """What a function has emitted, as the next operator gets it: as it is if nothing in it can change or nobody else
    refers to what can, else a copy. To be called before the function is called again.

    The caller holds the result in one local variable, and nowhere else.

    Args:
        references: the number of further references to the result that the caller knows to be harmless.

    >>> kept = [1]; handed_over(kept) is kept
    False
    """
    cls = result.__class__
    if cls in SHARED:
        return result
    if cls is tuple:
        for item in result:
            if item.__class__ not in SHARED:
                # a further reference to a part would make it seem held
                del item
                break
        else:
            return result
    if cls in _COUNTED and getrefcount(result) <= _OF_RESULT + references and _nobody_holds_parts(result, cls):
        return result
    return _copied(result, {})


def flat_handed_over(result: Any, references: int = 0) -> Any:
    """`handed_over` for results whose parts cannot change, since their type is declared and checked afterwards."""
    if result.__class__ in _COUNTED and getrefcount(result) <= _OF_RESULT + references:
        return result
    return detached(result)


def handing_over(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, with its results handed over.

    >>> kept = []; list(map(handing_over(lambda n: kept.append(n) or kept), [1, 2]))
    [[1], [1, 2]]
    """

    def call(argument: Any) -> Any:
        result = function(argument)
        return handed_over(result)

    return call


def _nobody_holds_parts(value: Any, cls: type) -> bool:
    """Whether only the value refers to what can change in it. A list, dict, set, tuple or Row counts by its references;
    anything else that can change counts as held."""
    if cls is set:
        return True
    for part in value.values() if cls is dict else value._values if cls is Row else value:
        part_cls = part.__class__
        if part_cls not in SHARED:
            if part_cls is tuple and SHARED.issuperset(map(type, part)):
                continue
            if part_cls not in _COUNTED or getrefcount(part) > _OF_PART or not _nobody_holds_parts(part, part_cls):
                return False
    return True


#: the classes whose instances and parts `handed_over` counts references of
_COUNTED = frozenset({list, dict, set, tuple, Row})


def _references() -> tuple[int, int]:
    """The reference counts of a result and of a part of it that nobody else holds, measured by the same code, since
    they differ between versions of Python. Without a global interpreter lock counts mean nothing: then all is
    copied."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return -(2**30), -(2**30)

    def of_result(result: Any) -> int:
        return getrefcount(result)

    def of_part(value: Any) -> int:
        for part in value:
            return getrefcount(part)
        return 0

    result: list[Any] = [[]]
    return of_result(result), of_part(result)


_OF_RESULT, _OF_PART = _references()
