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
import functools
import pickle
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import chain
from operator import is_
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount
from zoneinfo import ZoneInfo

from flinkish.common.types import Row, _create_row

#: The classes of immutable instances. A subclass is one of them only if it adds no attributes (`_adds_nothing`).
_IMMUTABLE = (
    int, float, complex, str, bytes, range, type(None), type(...), type(NotImplemented), date, time, timedelta,
    timezone, ZoneInfo, Decimal, Fraction, uuid.UUID, PurePath, PurePosixPath, PureWindowsPath, re.Pattern,
)  # fmt: skip

#: The classes whose instances, and those of subclasses, are one object for the whole process, as members of enums are,
#: or stand for code. They are passed on as they are.
_UNIQUE = (Enum, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)

#: Immutable classes of libraries, as (module, names), with the classes that derive from them but can change.
_IMMUTABLE_OF_LIBRARIES = (
    ("numpy", ("generic",), ("void",)),
    ("pyarrow", ("DataType", "Field", "Schema", "Scalar"), ()),
)

#: The classes whose instances cannot change and run no code of the program, whatever is done with them.
SCALARS: frozenset[type] = frozenset(
    {int, float, complex, bool, str, bytes, type(None), Decimal, date, datetime, time, timedelta}
)

#: The classes whose instances cannot change, nor anything in them; it grows as classes are met. For hot paths, for
#: which a call of `detached` is too slow. Tuples and frozen sets are not among them: it depends on their elements.
SHARED: set[type] = set(SCALARS)

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

    An object in several places of the value is one object in the copy as well. What cannot be copied, such as a lock or
    a connection, is passed on as it is.

    >>> a = (1, [2]); detached(a) == a, detached(a)[1] is a[1], detached(("b", 1.5)), detached("c")
    (True, False, ('b', 1.5), 'c')
    """
    cls = type(value)
    if cls in SHARED:
        return value
    if cls is tuple:
        for item in value:
            if type(item) not in SHARED:
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
    return [value if type(value) in SHARED else _copied(value, {}) for value in values]


def cannot_change(values: list[Any]) -> bool:
    """Whether it is easily seen that nothing in the values can change.

    >>> cannot_change([("a", 1), ("b", 2)]), cannot_change([("a", 1), ("b", [])])
    (True, False)
    """
    kinds = set(map(type, values))
    return SHARED.issuperset(kinds) or kinds == {tuple} and SHARED.issuperset(map(type, chain.from_iterable(values)))


def _copied(value: Any, memo: _Memo) -> Any:
    """`detached` for a part of a value; ``memo`` holds the copies of its other parts, by `id`."""
    cls = type(value)
    if cls is tuple:
        for item in value:
            if type(item) not in SHARED:
                break
        else:
            return value
    if memo and id(value) in memo:
        return memo[id(value)]
    copier = _COPIERS[cls]
    return value if copier is None else copier(value, memo)


def _copied_tuple(value: Any, memo: _Memo) -> Any:
    items = [item if type(item) in SHARED else _copied(item, memo) for item in value]
    # a tuple is its own copy if its elements are
    if not all(map(is_, items, value)):
        value = memo[id(value)] = tuple.__new__(type(value), items)
    return value


def _copied_list(value: list[Any], memo: _Memo) -> list[Any]:
    copied = memo[id(value)] = value.copy()
    for position, item in enumerate(value):
        if type(item) not in SHARED:
            copied[position] = _copied(item, memo)
    return copied


def _copied_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    copied = memo[id(value)] = value.copy()
    for key, item in value.items():
        if type(key) is not str and type(key) not in SHARED:
            return _copied_dict_with_keys(value, memo)
        if type(item) not in SHARED:
            copied[key] = _copied(item, memo)
    return copied


def _copied_dict_with_keys(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    """`_copied_dict` for keys that may be objects that can change."""
    copied: dict[Any, Any] = memo[id(value)]
    copied.clear()
    for key, item in value.items():
        copied[_copied(key, memo)] = _copied(item, memo)
    return copied


def _copied_set(value: set[Any], memo: _Memo) -> set[Any]:
    copied = memo[id(value)] = value.copy()
    if not SHARED.issuperset(map(type, value)):
        copied.clear()
        copied.update([_copied(item, memo) for item in value])
    return copied


def _copied_frozenset(value: frozenset[Any], memo: _Memo) -> frozenset[Any]:
    if SHARED.issuperset(map(type, value)):
        return value
    items = {id(item): _copied(item, memo) for item in value}
    # a frozen set is its own copy if its elements are
    if any(id(item) != before for before, item in items.items()):
        value = memo[id(value)] = frozenset(items.values())
    return value


def _copied_row(value: Row, memo: _Memo) -> Row:
    copied = memo[id(value)] = _create_row(getattr(value, "_fields", None), value._values, value._row_kind)
    values = copied._values
    for position, item in enumerate(values):
        if type(item) not in SHARED:
            values[position] = _copied(item, memo)
    return copied


def _copied_instance(value: Any, memo: _Memo) -> Any:
    """A copy of an instance with attributes in ``__dict__`` alone."""
    copied = memo[id(value)] = object.__new__(type(value))
    for name, item in value.__dict__.items():
        # not through __dict__, which instances have only once it is asked for
        object.__setattr__(copied, name, item if type(item) in SHARED else _copied(item, memo))
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
        copied = copy.deepcopy(value, memo)
    except RecursionError:
        raise
    except Exception:
        # what cannot be copied could not be sent to another process either
        return value
    # a class of Python's may say that it needs no copy, which only its author knows, or copy as its own a derived one
    same = copied is value or type(copied) is not type(value)
    return _copied_by_pickle(value, memo) if same and type(value).__flags__ & HEAP_TYPE else copied


def _copied_with_attributes(value: Any, memo: _Memo) -> Any:
    """A copy of an instance of a class that adds attributes to an immutable one: those of a date, for example, are not
    in its pickle."""
    copied = _copied_otherwise(value, memo)
    if copied is not value:
        for name, item in getattr(value, "__dict__", {}).items():
            if name not in copied.__dict__:
                copied.__dict__[name] = _copied(item, memo)
    return copied


def _copied_by_pickle(value: Any, memo: _Memo) -> Any:
    """A copy as it arrives behind a shuffle: for what says to ``deepcopy`` that parts of it can be shared, as the cells
    of a data frame. If it cannot be pickled, ``deepcopy`` decides."""
    try:
        copied = memo[id(value)] = pickle.loads(pickle.dumps(value, 5))
    except RecursionError:
        raise
    except Exception:
        try:
            return copy.deepcopy(value, memo)
        except Exception:
            return value
    return copied


def _is_plain(cls: type) -> bool:
    """Whether instances are copied by copying their ``__dict__``: all classes are written in Python, without slots and
    without a way of their own to be copied or pickled."""
    for base in cls.__mro__[:-1]:
        own = vars(base)
        if "__slots__" in own or not base.__flags__ & HEAP_TYPE or base.__module__ == "builtins":
            return False
        if any(name in own for name in _WAYS_TO_COPY):
            return False
    return cls.__basicsize__ == _PLAIN_SIZE


#: the flag of classes that are made at run time, as all classes in Python are
HEAP_TYPE = 1 << 9
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
        if _is_immutable(cls):
            copier = None
            share(cls)
        elif issubclass(cls, tuple) and cls.__flags__ & HEAP_TYPE and _adds_nothing(cls, tuple):
            # a named tuple
            copier = _copied_tuple
        elif _is_plain(cls):
            copier = _copied_frozen if _is_frozen(cls) else _copied_instance
        elif issubclass(cls, _IMMUTABLE):
            copier = _copied_with_attributes
        elif any(base.__module__.partition(".")[0] == "pandas" for base in cls.__mro__):
            copier = _copied_by_pickle
        self[cls] = copier
        return copier


def _is_immutable(cls: type) -> bool:
    """Whether nothing in an instance of a class can change: an allow-list, since of other classes nobody knows."""
    if issubclass(cls, _UNIQUE):
        return True
    for base in _IMMUTABLE:
        if issubclass(cls, base):
            return _adds_nothing(cls, base)
    for library, names, excepted in _IMMUTABLE_OF_LIBRARIES:
        # a library that is not loaded has no instances
        module = sys.modules.get(library)
        found = [getattr(module, name, None) for name in names]
        bases = [base for base in found if isinstance(base, type) and issubclass(cls, base)]
        if bases:
            exceptions = tuple(getattr(module, name) for name in excepted)
            return not issubclass(cls, exceptions) and _adds_nothing(cls, bases[0])
    return False


def _adds_nothing(cls: type, base: type) -> bool:
    """Whether instances of a class have no attributes but those of ``base``."""
    return all(
        "__dict__" not in vars(added)
        and not (added.__flags__ & HEAP_TYPE and any(map(_is_attribute, vars(added).values())))
        for added in cls.__mro__
        if added not in base.__mro__
    )


def _is_attribute(member: Any) -> bool:
    return isinstance(member, types.MemberDescriptorType)


def _is_frozen(cls: type) -> bool:
    """Whether a plain class is a frozen dataclass that keeps nothing else in its instances: a subclass may have further
    attributes, and a cached property is one."""
    own = vars(cls)
    params = own.get("__dataclass_params__")
    members = (member for base in cls.__mro__ for member in vars(base).values())
    return (
        params is not None
        and params.frozen
        and not any(isinstance(member, functools.cached_property) for member in members)
        and "__setattr__" in own
    )


_COPIERS = _Copiers(
    {
        tuple: _copied_tuple,
        list: _copied_list,
        dict: _copied_dict,
        set: _copied_set,
        frozenset: _copied_frozenset,
        Row: _copied_row,
    }
)


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
    cls = type(result)
    if cls in SHARED:
        return result
    if cls is tuple:
        for item in result:
            if type(item) not in SHARED:
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
    if type(result) in _COUNTED and getrefcount(result) <= _OF_RESULT + references:
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
        # a set is the only one of these classes that can be found by a weak reference
        return SHARED.issuperset(map(type, value)) and not getweakrefcount(value)
    if cls is dict:
        for key in value:
            if type(key) is not str and type(key) not in SHARED:
                return False
    for part in value.values() if cls is dict else value._values if cls is Row else value:
        part_cls = type(part)
        if part_cls not in SHARED:
            if part_cls in _FROZEN and SHARED.issuperset(map(type, part)):
                continue
            if part_cls not in _COUNTED or getrefcount(part) > _OF_PART or not _nobody_holds_parts(part, part_cls):
                return False
    return True


_FROZEN = frozenset({tuple, frozenset})

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
