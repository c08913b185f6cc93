"""A value of every kind that Python and the libraries have, to be stored, and what a value consists of, to be compared.

Each row makes its value anew. A value may be refused when it is stored, or must be equal when it is read.
"""

from __future__ import annotations

import abc
import array
import ast
import asyncio
import builtins
import collections
import collections.abc
import contextvars
import copyreg
import ctypes
import dataclasses
import datetime as dt
import decimal
import email.message
import enum
import fractions
import functools
import io
import ipaddress
import itertools
import json
import logging
import operator
import pathlib
import queue
import random
import re
import socket
import sqlite3
import string
import struct
import sys
import tempfile
import threading
import time
import types
import typing
import urllib.parse
import uuid
import weakref
import zoneinfo
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytz

from flinkish.common.time import Duration, Instant, Time
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row, RowKind
from flinkish.core.functions import OutputTag
from flinkish.core.time import TimeDomain
from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow

# ---------------------------------------------------------------------------------------------- classes of a program


class Plain:
    """Attributes in a dictionary."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def method(self) -> int:
        """A method."""
        return 1

    @classmethod
    def of_class(cls) -> None:
        """A method of the class."""

    @property
    def computed(self) -> int:
        """A property."""
        return 2

    class Nested:
        """A class within."""

        level = 2


class Slots:
    """Attributes in slots, of which one has no value."""

    __slots__ = ("a", "b", "__weakref__")

    def __init__(self) -> None:
        self.a = 1


class SlotsAndDict(Slots):
    """Both."""

    def __init__(self) -> None:
        super().__init__()
        self.c = 3


class PrivateSlot:
    """A slot whose name is mangled."""

    __slots__ = ("__hidden",)

    def __init__(self) -> None:
        self.__hidden = 1


@dataclasses.dataclass
class Data:
    """A dataclass."""

    a: int = 1
    parts: list[Any] = dataclasses.field(default_factory=list)
    parent: Any = dataclasses.field(default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A frozen one."""

    a: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    """One with slots that are made by it."""

    a: int = 1
    b: str = "b"


@dataclasses.dataclass
class Ordered(Data):
    """One that counts its instances, and makes something of its fields."""

    made: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.made = self.a + 1


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int = 0


Pair = collections.namedtuple("Pair", "left right")
Renamed = collections.namedtuple("Elsewhere", "a")


class Typed(typing.TypedDict):
    """A dict for type checkers."""

    a: int


class Colour(enum.Enum):
    """An enum."""

    RED = 1
    CRIMSON = 1  # noqa: PIE796 - another name of the same member
    GREEN = ("green", 2)
    BLUE = 3

    def text(self) -> str:
        """A method of members."""
        return self.name


class Level(enum.IntEnum):
    """Numbers."""

    LOW = 1


class Word(str, enum.Enum):
    """Texts."""

    A = "a"


class Rights(enum.Flag):
    """Flags."""

    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    """Flags that are numbers, of which more may be set than have names."""

    ONE = 1


class Planet(enum.Enum):
    """Members that are made of arguments."""

    EARTH = (1, 2.5)

    def __init__(self, mass: int, radius: float) -> None:
        self.mass, self.radius = mass, radius


Dynamic = enum.Enum("Dynamic", "A B")
Misplaced = enum.Enum("Misnamed", "A")


class OwnInt(int):
    """A subclass of each class that is built in."""


class OwnFloat(float):
    """See `OwnInt`."""


class OwnComplex(complex):
    """See `OwnInt`."""


class OwnStr(str):
    """See `OwnInt`."""


class OwnBytes(bytes):
    """See `OwnInt`."""


class OwnBytearray(bytearray):
    """See `OwnInt`."""


class OwnList(list[Any]):
    """See `OwnInt`."""


class OwnTuple(tuple[Any, ...]):
    """See `OwnInt`."""


class OwnDict(dict[Any, Any]):
    """See `OwnInt`."""


class OwnSet(set[Any]):
    """See `OwnInt`."""


class OwnFrozenset(frozenset[Any]):
    """See `OwnInt`."""


class OwnDeque(collections.deque[Any]):
    """See `OwnInt`."""


class OwnDefaultdict(collections.defaultdict[Any, Any]):
    """See `OwnInt`."""


class OwnOrdered(collections.OrderedDict[Any, Any]):
    """See `OwnInt`."""


class OwnCounter(collections.Counter[Any]):
    """See `OwnInt`."""


class OwnDate(dt.date):
    """See `OwnInt`."""


class OwnDatetime(dt.datetime):
    """See `OwnInt`."""


class OwnTime(dt.time):
    """See `OwnInt`."""


class OwnTimedelta(dt.timedelta):
    """See `OwnInt`."""


class OwnDecimal(decimal.Decimal):
    """See `OwnInt`."""


class OwnFraction(fractions.Fraction):
    """See `OwnInt`."""


class OwnUUID(uuid.UUID):
    """See `OwnInt`."""


class OwnPath(pathlib.PurePosixPath):
    """See `OwnInt`."""


class OwnAddress(ipaddress.IPv4Address):
    """See `OwnInt`."""


class OwnNamespace(types.SimpleNamespace):
    """See `OwnInt`."""


class OwnArray(array.array):  # type: ignore[type-arg]
    """See `OwnInt`."""


class OwnNdarray(np.ndarray):
    """See `OwnInt`."""


class OwnRow(Row):
    """See `OwnInt`."""


class OwnWindow(TimeWindow):
    """See `OwnInt`."""


class OwnError(Exception):
    """An error whose arguments are not those of its class."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class OwnOSError(OSError):
    """An error of the system."""


#: Python 3.10 has none.
Group: Any = getattr(builtins, "ExceptionGroup", Exception)


class OwnGroup(Group):  # type: ignore[misc]
    """A group of errors."""


class OwnZone(dt.tzinfo):
    """A time zone of the program."""

    def __init__(self, hours: int = 1) -> None:
        self.hours = hours

    def utcoffset(self, moment: dt.datetime | None) -> dt.timedelta:
        """So many hours."""
        return dt.timedelta(hours=self.hours)

    def dst(self, moment: dt.datetime | None) -> dt.timedelta:
        """None."""
        return dt.timedelta()

    def tzname(self, moment: dt.datetime | None) -> str:
        """A name."""
        return "own"


class ByCall:
    """Made by a call of its class, and then given a state."""

    def __init__(self, kind: Any, amount: int) -> None:
        self.kind, self.amount = kind, amount

    def __reduce__(self) -> Any:
        return ByCall, (self.kind, self.amount), {"amount": self.amount}


class BySetter:
    """Given its state by a function among what it is reduced to."""

    def __reduce__(self) -> Any:
        return BySetter, (), {"a": 1}, None, None, operator.setitem


class ByFunction:
    """Made by a function."""

    def __reduce__(self) -> Any:
        return made_by_function, (1,)


def made_by_function(number: int) -> ByFunction:
    """Make one."""
    return ByFunction()


class ByClassMethod:
    """Made by a method of its class."""

    @classmethod
    def make(cls) -> ByClassMethod:
        """Make one."""
        return cls()

    def __reduce__(self) -> Any:
        return ByClassMethod.make, ()


class ByText:
    """Reduced to the name of a global variable."""

    def __reduce__(self) -> str:
        return "THE_ONE"


THE_ONE = ByText()


class ByOther:
    """Reduced to a call of another class."""

    def __reduce__(self) -> Any:
        return Plain, ()


class ByData:
    """Reduced to a call of a class of data."""

    def __reduce__(self) -> Any:
        return dict, ()


class ByMethodOfObject:
    """Made by a method of another object."""

    def __reduce__(self) -> Any:
        return "abc".upper, ()


class ByAttribute:
    """Reduced to `getattr`, as bound methods are."""

    def __reduce__(self) -> Any:
        return getattr, (Plain(), "method")


class ByNewObj:
    """Reduced to pickle's own function for making an object, with arguments that the class does not declare."""

    def __new__(cls, *arguments: Any) -> ByNewObj:
        made = super().__new__(cls)
        made.arguments = arguments
        return made

    arguments: tuple[Any, ...]

    def __reduce__(self) -> Any:
        return copyreg.__newobj__, (ByNewObj, 1, 2), {"a": 1}  # type: ignore[attr-defined]


class ByNewObjOfOther:
    """Reduced to the making of an instance of another class."""

    def __reduce__(self) -> Any:
        return copyreg.__newobj__, (OwnInt, 5)  # type: ignore[attr-defined]


class ByObjectNew:
    """Reduced to the `__new__` of its base class."""

    def __reduce__(self) -> Any:
        return object.__new__, (ByObjectNew,)


class ByReconstructor(float):
    """Reduced as by pickle's first protocols."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return super().__reduce_ex__(1)


class PlainByReconstructor:
    """Reduced as by pickle's first protocols, without a class that is built in."""

    def __init__(self) -> None:
        self.a = 1

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copyreg._reconstructor, (PlainByReconstructor, object, None), {"a": 1}  # type: ignore[attr-defined]


class ReconstructedOfOther:
    """Reduced as by pickle's first protocols, to a class that it is not derived from."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copyreg._reconstructor, (ReconstructedOfOther, dt.date, None)  # type: ignore[attr-defined]


class NewArguments(tuple[Any, ...]):
    """Made by ``__new__`` of arguments."""

    def __new__(cls, a: int, b: int) -> NewArguments:
        return super().__new__(cls, (a, b))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self[0], self[1]


class NewNames:
    """Made by ``__new__`` of named arguments."""

    def __new__(cls, *more: Any, **named: Any) -> NewNames:
        made = super().__new__(cls)
        made.named, made.more = named, more
        return made

    named: dict[str, Any]
    more: tuple[Any, ...]

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.more, self.named


class ClassInNewArguments(NewNames):
    """Made of a class."""


class GetState:
    """Keeps a part of its attributes, and sets the rest again."""

    def __init__(self) -> None:
        self.kept, self.lock = 1, threading.Lock()

    def __getstate__(self) -> Any:
        return (self.kept,)

    def __setstate__(self, state: Any) -> None:
        (self.kept,), self.lock = state, threading.Lock()


class FalseState:
    """A state that is false, which is not set."""

    def __getstate__(self) -> Any:
        return 0

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("pickle does not set a state that is None")


class StateIsList:
    """A state that is neither a dict nor a pair, without ``__setstate__``."""

    def __getstate__(self) -> Any:
        return [1, 2]


class StateHasNumbers:
    """Attributes whose names are no texts."""

    def __init__(self) -> None:
        vars(self)[1] = 2


class StateHasDunder:
    """An attribute with a name of Python's."""

    def __init__(self) -> None:
        vars(self)["__call__"] = 2


class Items:
    """Reduced with items, without being a list."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def append(self, item: int) -> None:
        """Add one."""
        self.items.append(item)

    def __reduce__(self) -> Any:
        return Items, (), None, iter(self.items)


class Pairs(Items):
    """Reduced with pairs, without being a dict."""

    def __reduce__(self) -> Any:
        return Pairs, (), None, None, iter([(1, 2)])


class Finalizer:
    """A class with a finalizer."""

    def __del__(self) -> None:
        pass


class Meta(type):
    """A metaclass."""

    def __call__(cls, *arguments: Any) -> Any:
        return super().__call__(*arguments)


class OfMeta(metaclass=Meta):
    """A class of a metaclass."""


class Abstract(abc.ABC):
    """An abstract class."""


class Concrete(Abstract):
    """A class derived from an abstract one."""


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    """A generic class."""

    def __init__(self, item: T) -> None:
        self.item = item


class Iterator:
    """An iterator of the program."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> int:
        raise StopIteration


class Callable_:
    """An object that can be called."""

    def __call__(self) -> int:
        return 1


class Keyed:
    """Equal and hashed by what it holds."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and other.name == self.name


class Singleton:
    """A class with one instance."""

    _only: Singleton | None = None

    def __new__(cls) -> Singleton:
        cls._only = cls._only or super().__new__(cls)
        return cls._only


class SingletonWithState(Singleton):
    """One with an attribute."""

    _only: SingletonWithState | None = None  # type: ignore[assignment]
    a = 1


class Registered:
    """A class with a function in the table of `copyreg`."""

    def __init__(self, a: int = 1) -> None:
        self.a = a


class RegisteredByFunction(Registered):
    """One that is made by a function."""


copyreg.pickle(Registered, lambda one: (Registered, (one.a,)))
copyreg.pickle(RegisteredByFunction, lambda one: (made_by_function, (one.a,)))


class Proxy:
    """Says that it is of another class."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int


class Refusing:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("not this one")


class WeirdReduce:
    """Reduced to something else than pickle takes."""

    def __reduce__(self) -> Any:
        return 7


class Descends(Keyed):
    """Overrides `__eq__` without `__hash__`."""

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


class Cached:
    """A property that is computed once."""

    @functools.cached_property
    def once(self) -> int:
        """The value."""
        return 1


class SetsAttributes:
    """``__setattr__`` of its own."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("read only")


class Tree:
    """A node that knows its parent."""

    def __init__(self, name: str, parent: Tree | None = None) -> None:
        self.name, self.parent, self.children = name, parent, list[Tree]()
        if parent:
            parent.children.append(self)


class Tracked(dict[Any, Any]):
    """Notes what is set, which is asked for before the notes are there."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Any] = []

    def __setitem__(self, key: Any, value: Any) -> None:
        self.order.append(key)
        super().__setitem__(key, value)


class Limited(list[Any]):
    """Takes only so many items, which are put in before the limit is there."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 3

    def extend(self, items: Any) -> None:
        """Add some."""
        super().extend(list(items)[: self.limit])


class Summed(collections.deque[Any]):
    """Sums what is appended."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def append(self, item: Any) -> None:
        """Add one."""
        self.total += item
        super().append(item)

    extend = Limited.extend  # type: ignore[assignment]


class Positive:
    """Takes no negative amount when it is made."""

    def __init__(self, amount: int) -> None:
        if amount < 0:
            raise ValueError("negative")
        self.amount = amount

    def __reduce__(self) -> Any:
        return Positive, (self.amount,)


class PositiveState(Plain):
    """Takes no negative state."""

    def __setstate__(self, state: Any) -> None:
        Positive(state["amount"])
        vars(self).update(state)


class FewArguments:
    """Takes one argument when it is made, whatever it holds."""

    def __new__(cls, *arguments: Any) -> FewArguments:
        if len(arguments) > 1:
            raise TypeError("too many")
        return super().__new__(cls)

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __getnewargs__(self) -> Any:
        return self.arguments


class GuardedSlot:
    """A slot that is never set to None by a name."""

    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        object.__setattr__(self, "a", a)

    def __setattr__(self, name: str, value: Any) -> None:
        if value is None:
            raise AttributeError(name)
        super().__setattr__(name, value)


class HashedPairs(dict[Any, Any]):
    """A dictionary with a hash of what it holds."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self["name"])

    def __eq__(self, other: object) -> bool:
        return self is other


class Open(enum.IntEnum):
    """Makes members of numbers that it does not know."""

    KNOWN = 0

    @classmethod
    def _missing_(cls, value: object) -> Open:
        made: Any = int.__new__(cls, value)  # type: ignore[call-overload]
        made._name_, made._value_ = f"UNKNOWN_{value}", value
        return made  # type: ignore[no-any-return]


class Shown(enum.Enum):
    """Shows other names than its members have."""

    A = 1

    @property
    def name(self) -> str:
        """A name."""
        return "shown as " + self._name_


def function(a: int = 1) -> int:
    """A function at the top level."""
    return a


async def coroutine_function() -> None:
    """A coroutine function."""


def generator() -> Any:
    """A generator."""
    yield 1


async def async_generator() -> Any:
    """An asynchronous one."""
    yield 1


# ------------------------------------------------------------------------------------------------------ the values


def local_class() -> Any:
    """An instance of a class of a function."""

    class Local:
        pass

    return Local()


def holding_itself(kind: str) -> Any:
    """A value that holds itself, in each way that there is."""
    found: Any
    if kind == "list":
        found = []
        found.append(found)
    elif kind == "dict":
        found = {}
        found["self"] = found
    elif kind == "tuple":
        found = ([],)
        found[0].append(found)
    elif kind == "dataclass":
        found = Data(parts=[Data()])
        found.parts[0].parent = found
    elif kind == "set":
        found = Plain()
        found.all = {found}
    elif kind == "key":
        found = Plain()
        found.by = {found: 1}
    elif kind == "deque":
        found = collections.deque()
        found.append(found)
    elif kind == "defaultdict":
        found = collections.defaultdict(list)
        found["a"].append(found)
    elif kind == "slots":
        found = Slots()
        found.b = (found, 1)
    elif kind == "list of the program":
        found = OwnList()
        found.append({"a": found})
    elif kind == "state":
        found = GetState()
        found.kept = [found]
    elif kind == "error":
        found = OwnError(1, "x")
        found.first = found
    elif kind == "row":
        found = Row([1], 2)
        found[0].append(found)
    elif kind == "ring":
        first, second = Plain(), Plain()
        first.next, second.next = second, first
        found = [first, second, first]
    elif kind == "array of objects":
        found = np.empty(1, object)
        found[0] = [found]
    elif kind == "called":
        found = ByCall([], 1)
        found.kind.append(found)
    elif kind == "keyed by content":
        found = Keyed("a")
        found.by = {found: 1}
    elif kind == "namespace":
        found = types.SimpleNamespace()
        found.me = found
    elif kind == "hashed pairs":
        found = HashedPairs(name="a")
        found["by"] = {found: 1}
    else:
        found = Tree("root")
        for name in "ab":
            Tree(name + "1", Tree(name, found))
    return found


def shared(times: int) -> Any:
    """A list that holds a list twice, which holds a list twice, and so on."""
    found: Any = [1]
    for _ in range(times):
        found = [found, found]
    return found


def nested(levels: int, of: Callable[[Any], Any]) -> Any:
    """A value in a value, and so on."""
    found: Any = None
    for _ in range(levels):
        found = of(found)
    return found


def uuid_without(*fields: str) -> uuid.UUID:
    """A UUID that lacks what it consists of."""
    found = uuid.UUID(int=7)
    for field in fields:
        object.__delattr__(found, field)
    return found


def uuid_of(number: Any) -> uuid.UUID:
    """A UUID of something that is no number of 128 bits."""
    found = uuid.UUID(int=7)
    object.__setattr__(found, "int", number)
    return found


def with_(value: Any, **attributes: Any) -> Any:
    """A value with attributes."""
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def raised() -> BaseException:
    """An error with a cause and a traceback."""
    try:
        try:
            raise KeyError("a")
        except KeyError as error:
            raise ValueError("b") from error
    except ValueError as error:
        error.add_note("n") if hasattr(error, "add_note") else None
        return error


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
MOMENT = dt.datetime(2024, 10, 27, 2, 30, 5, 6)
_PLAIN_OBJECT = Plain()

_SINGLETONS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "Ellipsis as an attribute": lambda: Plain(unset=...),
    "Ellipsis as a key": lambda: {...: NotImplemented},
    "Ellipsis in a set": lambda: {...},
    "Ellipsis as an argument": lambda: ByCall(..., 1),
    "Ellipsis in an error": lambda: ValueError(...),
    "Ellipsis in a slice": lambda: slice(..., NotImplemented),
    "Ellipsis in an array": lambda: np.array([..., None], object),
    "typing.Any": lambda: Any,
    "dataclasses.MISSING": lambda: dataclasses.MISSING,
    "inspect's empty": lambda: __import__("inspect").Parameter.empty,
    "sentinel": lambda: object(),
}
_NUMBERS: dict[str, Callable[[], Any]] = {
    "int": lambda: 7,
    "negative int": lambda: -(2**63) - 1,
    "int of 100,000 bits": lambda: 1 << 100_000,
    "int of 5,000 digits as a key": lambda: {10**5000: 1},
    "int of 10,000 digits as a key": lambda: {10**10_000: 1},
    "float": lambda: 1.5,
    "nan": lambda: math_nan(),
    "-0.0": lambda: -0.0,
    "infinity": lambda: [float("inf"), float("-inf")],
    "smallest float": lambda: 5e-324,
    "nan as a key": lambda: {float("nan"): 1},
    "complex": lambda: complex(-0.0, float("nan")),
    "1, True and 1.0": lambda: [1, True, 1.0, {1: "a"}, {True: "b"}],
    "Decimal": lambda: decimal.Decimal("1.500"),
    "Decimal NaN": lambda: decimal.Decimal("sNaN12"),
    "Decimal -0": lambda: decimal.Decimal("-0E+5"),
    "Decimal infinity": lambda: decimal.Decimal("-Infinity"),
    "Decimal of 1,000 digits": lambda: decimal.Decimal("1." + "3" * 1000),
    "Decimal of 200,000 digits": lambda: decimal.Decimal("3" * 200_000),
    "Decimal with a large exponent": lambda: decimal.Decimal("1E+999999"),
    "Decimal with a larger exponent": lambda: decimal.Decimal("1E+9999999"),
    "Decimal with a small exponent": lambda: decimal.Decimal("1E-2999999"),
    "Fraction": lambda: fractions.Fraction(-1, 3),
    "Fraction of long numbers": lambda: fractions.Fraction(1 << 70_000, 3),
    "decimal context": lambda: decimal.Context(prec=5),
}
_TEXTS: dict[str, Callable[[], Any]] = {
    "str": lambda: "ä😀",
    "empty str": lambda: "",
    "str with zeros and lines": lambda: "\0\n\r\u2028",
    "half of a surrogate pair": lambda: "a\ud83d",
    "half of a surrogate pair as a key": lambda: {"\ud83d": 1},
    "both halves": lambda: "\ud83d" + "\ude00",
    "str of 100,000": lambda: "x" * 100_000,
    "keys that begin with $": lambda: {"$pickle": "x", "$tuple": [1]},
    "bytes": lambda: b"a\0\xff",
    "bytes of 100,000": lambda: b"x" * 100_000,
    "bytearray": lambda: bytearray(b"ab"),
    "empty bytearray": lambda: bytearray(),
    "memoryview": lambda: memoryview(b"ab"),
    "interned str": lambda: sys.intern("interned"),
    "string.Template": lambda: string.Template("$a"),
    "pattern": lambda: re.compile("a+", re.I),
    "match": lambda: re.match("a", "a"),
}
_CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, [2, []]],
    "tuple": lambda: (1, (2, ())),
    "tuple of five": lambda: (1, 2, 3, 4, 5),
    "dict": lambda: {"b": 1, "a": {2: (3,)}},
    "set": lambda: {1, "a", (2,)},
    "empty set": lambda: set(),
    "frozenset": lambda: frozenset({1, frozenset({2})}),
    "range": lambda: range(1, 9, 2),
    "range of long numbers": lambda: range(10**30),
    "slice": lambda: slice(1, None, 2),
    "slice of texts": lambda: slice("a", "b"),
    "slice of a list": lambda: slice([1], {2: 3}),
    "dict keys": lambda: {1: 2}.keys(),
    "dict values": lambda: {1: 2}.values(),
    "dict items": lambda: {1: 2}.items(),
    "deque": lambda: collections.deque([1, 2], 3),
    "deque without bound": lambda: collections.deque([1]),
    "defaultdict of list": lambda: collections.defaultdict(list, a=[1]),
    "defaultdict without factory": lambda: collections.defaultdict(None, a=1),
    "defaultdict of a lambda": lambda: collections.defaultdict(lambda: 0),
    "defaultdict of a function": lambda: collections.defaultdict(function),
    "defaultdict of a class": lambda: collections.defaultdict(Plain),
    "defaultdict of a partial": lambda: collections.defaultdict(functools.partial(list)),
    "defaultdict of a bound method": lambda: collections.defaultdict("a".upper),
    "defaultdict of a library's class": lambda: collections.defaultdict(json.JSONDecoder),
    "defaultdict of an enum": lambda: collections.defaultdict(Colour),
    "defaultdict of object": lambda: collections.defaultdict(object),
    "defaultdict of an object that can be called": lambda: collections.defaultdict(Callable_()),
    "defaultdict of NoneType": lambda: collections.defaultdict(type(None)),
    "OrderedDict": lambda: collections.OrderedDict(b=1, a=2),
    "Counter": lambda: collections.Counter(aab=2, c=-1),
    "ChainMap": lambda: collections.ChainMap({"a": 1}, {"b": 2}),
    "ChainMap of OrderedDict": lambda: collections.ChainMap(collections.OrderedDict(a=1)),
    "ChainMap of a tuple of maps": lambda: with_(collections.ChainMap(), maps=({"a": 1},)),
    "UserDict": lambda: collections.UserDict(a=1),
    "UserDict of a dict of the program": lambda: with_(collections.UserDict(), data=OwnDict(a=1)),
    "UserList": lambda: collections.UserList([1]),
    "UserString": lambda: collections.UserString("a"),
    "UserString of a text of the program": lambda: with_(collections.UserString(""), data=OwnStr("a")),
    "mappingproxy": lambda: types.MappingProxyType({1: 2}),
    "SimpleNamespace": lambda: types.SimpleNamespace(a=1, b=[2]),
    "SimpleNamespace without attributes": lambda: types.SimpleNamespace(),
    "array of numbers": lambda: array.array("d", [1.5]),
    "array of characters": lambda: array.array("u", "ä"),
    "TypedDict": lambda: Typed(a=1),
    "shared parts": lambda: (lambda one: [one, one, (one,)])([1]),
    "lists in lists": lambda: shared(5),
    "lists in lists, very often": lambda: shared(9),
    "a long text often": lambda: ["x" * 10_000] * 1_000,
    "nested tuples": lambda: nested(90, lambda found: (found,)),
    "deeply nested lists": lambda: nested(300, lambda found: [found]),
    "very deeply nested lists": lambda: nested(5_000, lambda found: [found]),
    "deeply nested dicts": lambda: nested(150, lambda found: {"a": found}),
    "deeply nested key": lambda: {nested(150, lambda found: (found,)): 1},
    "deeply nested element": lambda: {nested(150, lambda found: (found,))},
    "deeply nested frozenset": lambda: nested(120, lambda found: frozenset({found})),
    "deeply nested objects": lambda: nested(150, lambda found: Plain(next=found)),
    "many numbers of one hash": lambda: {n * (2**61 - 1): n for n in range(1, 400)},
    "many elements of one hash": lambda: {n * (2**61 - 1) for n in range(1, 400)},
    "many counts": lambda: collections.Counter(range(1100)),
    "many items": lambda: list(range(1100)) + [(n,) for n in range(1100)],
    "many entries": lambda: {n: str(n) for n in range(1100)},
    "many elements": lambda: set(range(1100)),
}
_TIMES: dict[str, Callable[[], Any]] = {
    "date": lambda: dt.date.min,
    "datetime": lambda: MOMENT,
    "datetime with fold": lambda: MOMENT.replace(fold=1),
    "datetime in UTC": lambda: MOMENT.replace(tzinfo=dt.timezone.utc),
    "datetime with an offset": lambda: MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=-3, seconds=1), "x")),
    "datetime in a zone": lambda: MOMENT.replace(tzinfo=BERLIN, fold=1),
    "datetime in a zone of pytz": lambda: pytz.timezone("Europe/Berlin").localize(MOMENT),
    "datetime in UTC of pytz": lambda: MOMENT.replace(tzinfo=pytz.utc),
    "datetime with an offset of pytz": lambda: MOMENT.replace(tzinfo=pytz.FixedOffset(90)),
    "datetime in a zone of dateutil": lambda: MOMENT.replace(
        tzinfo=__import__("dateutil.tz").tz.gettz("Europe/Berlin")
    ),
    "datetime in UTC of dateutil": lambda: MOMENT.replace(tzinfo=__import__("dateutil.tz").tz.UTC),
    "datetime in a zone of the program": lambda: MOMENT.replace(tzinfo=OwnZone(3)),
    "time": lambda: dt.time(1, 2, 3, 4, fold=1),
    "time with an offset": lambda: dt.time(1, tzinfo=dt.timezone.utc),
    "time in a zone": lambda: dt.time(1, tzinfo=BERLIN),
    "timedelta": lambda: dt.timedelta(-1, 2, 3),
    "timezone": lambda: dt.timezone(dt.timedelta(minutes=1)),
    "timezone with half a surrogate": lambda: dt.timezone(dt.timedelta(minutes=1), "\ud83d"),
    "ZoneInfo": lambda: BERLIN,
    "ZoneInfo without cache": lambda: zoneinfo.ZoneInfo.no_cache("Europe/Berlin"),
    "ZoneInfo of a file": lambda: zoneinfo.ZoneInfo.from_file(zone_file(), key="Mine/Own"),
    "ZoneInfo without a name": lambda: zoneinfo.ZoneInfo.from_file(zone_file()),
    "zone of the program": lambda: OwnZone(2),
    "struct_time": lambda: time.gmtime(0),
    "calendar": lambda: __import__("calendar").Calendar(),
    "IsoCalendarDate": lambda: dt.date(2024, 1, 2).isocalendar(),
}
_OF_THE_LIBRARY: dict[str, Callable[[], Any]] = {
    "UUID": lambda: uuid.UUID(int=7),
    "UUID that is safe": lambda: uuid.UUID(int=7, is_safe=uuid.SafeUUID.safe),
    "UUID of a time": lambda: uuid.UUID("c15c2d60-cb1b-11ee-8001-000000000001"),
    "UUID without its field": lambda: uuid_without("int"),
    "UUID without fields": lambda: uuid_without("int", "is_safe"),
    "UUID of a text": lambda: uuid_of("7"),
    "UUID of a large number": lambda: uuid_of(1 << 128),
    "UUID of a bool": lambda: uuid_of(True),
    "UUID without its field in a set": lambda: [uuid_without("int")],
    "SafeUUID": lambda: uuid.SafeUUID.unsafe,
    "IPv4Address": lambda: ipaddress.ip_address("10.0.0.1"),
    "IPv6Address with a scope": lambda: ipaddress.ip_address("fe80::1%eth0"),
    "IPv4Network": lambda: ipaddress.ip_network("10.0.0.0/8"),
    "IPv6Interface": lambda: ipaddress.ip_interface("fe80::1/64"),
    "Path": lambda: pathlib.Path("/a/b"),
    "PurePosixPath": lambda: pathlib.PurePosixPath("a", "b"),
    "PureWindowsPath": lambda: pathlib.PureWindowsPath("c:\\a"),
    "Path with half a surrogate": lambda: pathlib.PurePosixPath("a\udc80"),
    "random.Random": lambda: random.Random(1),
    "Struct": lambda: struct.Struct("<i"),
    "StringIO": lambda: io.StringIO("a"),
    "BytesIO": lambda: io.BytesIO(b"a"),
    "ParseResult": lambda: urllib.parse.urlparse("http://a/b"),
    "Message": lambda: email.message.Message(),
    "tree of Python's syntax": lambda: ast.parse("1"),
    "Logger": lambda: logging.getLogger("a"),
    "LogRecord": lambda: logging.makeLogRecord({"msg": "x"}),
    "stat_result": lambda: __import__("os").stat("/"),
    "ctypes number": lambda: ctypes.c_int(1),
    "JSONDecoder": lambda: json.JSONDecoder(),
    "sqlite3.Row": lambda: sqlite3.connect(":memory:").execute("select 1"),
    "string formatter": lambda: string.Formatter(),
    "date of email": lambda: email.message.EmailMessage(),
}
_ERRORS: dict[str, Callable[[], Any]] = {
    "Exception": lambda: Exception("a", 1),
    "error with attributes": lambda: with_(ValueError("a"), place="here"),
    "error with a cause and a traceback": raised,
    "error with a note": lambda: with_(ValueError("a"), __notes__=["n"]),
    "KeyError": lambda: KeyError(("a", 1)),
    "OSError": lambda: FileNotFoundError(2, "no", "f"),
    "OSError with two names": lambda: OSError(2, "no", "f", None, "g"),
    "OSError of one argument": lambda: OSError([1]),
    "OSError with a list": lambda: OSError([1], "x"),
    "OSError of a file of bytes": lambda: OSError(2, "no", b"f"),
    "BlockingIOError": lambda: BlockingIOError(11, "no", 5),
    "ImportError": lambda: ImportError("x", name="n", path="p"),
    "AttributeError": lambda: AttributeError("x", name="n", obj=1),
    "NameError": lambda: NameError("x", name="n"),
    "StopIteration": lambda: StopIteration(5),
    "SystemExit": lambda: SystemExit(3),
    "SyntaxError": lambda: SyntaxError("bad", ("f", 1, 2, "t")),
    "SyntaxError of a list": lambda: SyntaxError("bad", ["f", 1, 2, "t"]),
    "SyntaxError with attributes": lambda: with_(SyntaxError("bad"), lineno=7),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"xx", 0, 1, "bad"),
    "UnicodeEncodeError with a range that is none": lambda: UnicodeEncodeError("utf-8", "xx", 5, -1, "bad"),
    "UnicodeDecodeError of a bytearray": lambda: UnicodeDecodeError("utf-8", bytearray(b"xx"), 0, 1, "bad"),
    "ExceptionGroup": lambda: Group("g", [ValueError(1)]),
    "ExceptionGroup of a tuple": lambda: Group("g", (ValueError(1), TypeError())),
    "error with a class": lambda: TypeError(int),
    "error with a function": lambda: TypeError(len),
    "error with an error": lambda: ValueError(ValueError("a")),
    "error with a lock": lambda: ValueError(threading.Lock()),
    "error of the program": lambda: OwnError(1, "x"),
    "error of the system of the program": lambda: OwnOSError(2, "no", "f"),
    "group of the program": lambda: OwnGroup("g", [ValueError(1)]),
    "JSONDecodeError": lambda: json.JSONDecodeError("x", "doc", 0),
    "subprocess error": lambda: __import__("subprocess").CalledProcessError(1, "x"),
    "error of flinkish": lambda: __import__("flinkish.errors").errors.SavepointError("x", where="w"),
    "error whose arguments were changed": lambda: with_(UnicodeDecodeError("u", b"x", 0, 1, "r"), args=(1,)),
    "ValueError without text": lambda: with_(ValueError("a"), args=()),
}
_CODE: dict[str, Callable[[], Any]] = {
    "class of Python": lambda: int,
    "class of the program": lambda: Plain,
    "class of a library": lambda: dt.datetime,
    "class of an enum": lambda: Colour,
    "NoneType": lambda: type(None),
    "metaclass": lambda: Meta,
    "nested class": lambda: Plain.Nested,
    "function": lambda: function,
    "lambda": lambda: lambda: 1,
    "function of Python": lambda: len,
    "bound method": lambda: Plain().method,
    "bound method of a class": lambda: Plain.of_class,
    "method of Python": lambda: str.upper,
    "bound method of Python": lambda: "a".upper,
    "bound method of a list": lambda: [1].append,
    "slot of a method": lambda: object.__init__,
    "bound slot": lambda: (1).__add__,
    "class method of Python": lambda: dict.fromkeys,
    "partial": lambda: functools.partial(int, base=2),
    "partialmethod": lambda: functools.partialmethod(int),
    "cached function": lambda: functools.lru_cache(function),
    "singledispatch": lambda: functools.singledispatch(function),
    "cmp_to_key": lambda: functools.cmp_to_key(lambda a, b: 0)(1),
    "itemgetter": lambda: operator.itemgetter(1),
    "attrgetter": lambda: operator.attrgetter("a"),
    "methodcaller": lambda: operator.methodcaller("a", 1),
    "property": lambda: property(function),
    "classmethod": lambda: classmethod(function),
    "staticmethod": lambda: staticmethod(function),
    "member of slots": lambda: vars(Slots)["a"],
    "getset descriptor": lambda: vars(Plain)["__dict__"],
    "super": lambda: super(OwnInt, OwnInt(1)),
    "code": lambda: function.__code__,
    "cell": lambda: (lambda x: lambda: x)(1).__closure__[0],  # type: ignore[index]
    "frame": lambda: sys._getframe(),
    "traceback": lambda: raised().__traceback__,
    "module": lambda: json,
    "module of the program": lambda: sys.modules[__name__],
    "generator": generator,
    "coroutine": lambda: with_closed(coroutine_function()),
    "asynchronous generator": async_generator,
    "ufunc": lambda: np.add,
    "function of numpy": lambda: np.sum,
    "object that can be called": Callable_,
    "weak reference": lambda: weakref.ref(_PLAIN_OBJECT),
    "weak proxy": lambda: weakref.proxy(_PLAIN_OBJECT),
    "WeakSet": lambda: weakref.WeakSet([_PLAIN_OBJECT]),
    "WeakKeyDictionary": lambda: weakref.WeakKeyDictionary({_PLAIN_OBJECT: 1}),
    "builtins' dict": lambda: {"f": print},
}
_TYPING: dict[str, Callable[[], Any]] = {
    "list[int]": lambda: list[int],
    "typing.List[int]": lambda: typing.List[int],  # noqa: UP006
    "int | None": lambda: int | None,
    "typing.Optional": lambda: typing.Optional[int],  # noqa: UP045
    "typing.Union": lambda: typing.Union[int, str],  # noqa: UP007
    "Callable type": lambda: collections.abc.Callable[[int], str],
    "Literal": lambda: typing.Literal["a"],
    "TypeVar": lambda: T,
    "generic of the program": lambda: Box[int],
    "instance of a generic": lambda: Box(1),
    "instance of a generic of a type": lambda: Box[int](1),
    "ForwardRef": lambda: typing.ForwardRef("int"),
    "NewType": lambda: typing.NewType("Id", int),
    "field of a dataclass": lambda: dataclasses.fields(Data)[0],
    "typing.NoReturn": lambda: typing.NoReturn,
}
_ITERATORS: dict[str, Callable[[], Any]] = {
    "iterator of a list": lambda: iter([1]),
    "iterator of a tuple": lambda: iter((1,)),
    "iterator of a dict": lambda: iter({1: 2}),
    "iterator of a set": lambda: iter({1}),
    "iterator of a range": lambda: iter(range(3)),
    "iterator of a long range": lambda: iter(range(10**30)),
    "iterator of a text": lambda: iter("ab"),
    "iterator of bytes": lambda: iter(b"ab"),
    "iterator of a bytearray": lambda: iter(bytearray(b"ab")),
    "iterator of a deque": lambda: iter(collections.deque([1])),
    "iterator of an array": lambda: iter(array.array("i", [1])),
    "iterator of an OrderedDict": lambda: iter(collections.OrderedDict(a=1)),
    "iterator of a function": lambda: iter(function, 2),
    "reversed": lambda: reversed([1]),
    "reversed tuple": lambda: reversed((1,)),
    "enumerate": lambda: enumerate([1]),
    "zip": lambda: zip([1], [2]),
    "map": lambda: map(str, [1]),
    "filter": lambda: filter(None, [1]),
    "itertools.count": lambda: itertools.count(1),
    "itertools.repeat": lambda: itertools.repeat(1, 2),
    "itertools.chain": lambda: itertools.chain([1], [2]),
    "itertools.islice": lambda: itertools.islice([1], 1),
    "iterator of the program": Iterator,
    "iterator of numpy": lambda: np.array([1]).flat,
    "groupby": lambda: itertools.groupby([1]),
}
_RESOURCES: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "RLock": threading.RLock,
    "Event": threading.Event,
    "local of a thread": threading.local,
    "thread": lambda: threading.Thread(target=print),
    "queue": queue.Queue,
    "SimpleQueue": queue.SimpleQueue,
    "socket": lambda: closed(socket.socket()),
    "file": lambda: closed(open(__file__)),
    "temporary file": lambda: closed(tempfile.TemporaryFile()),
    "connection": lambda: closed(sqlite3.connect(":memory:")),
    "ContextVar": lambda: contextvars.ContextVar("a"),
    "Context": contextvars.copy_context,
    "asyncio.Lock": lambda: asyncio.Lock(),
    "standard output": lambda: sys.stdout,
}
_OF_NUMPY: dict[str, Callable[[], Any]] = {
    **{
        f"numpy.{name}": functools.partial(getattr(np, name), 1)
        for name in "int8 uint16 int64 uint64 float16 float32 float64 longdouble complex64 complex128 bool_".split()
    },
    "numpy float64 nan": lambda: np.float64("nan"),
    "numpy array of longlong": lambda: np.array([1, 2], np.longlong),
    "numpy.longdouble of many digits": lambda: np.longdouble(1) / 3,
    "numpy.clongdouble": lambda: np.clongdouble(1 + 2j),
    "numpy.str_": lambda: np.str_("ä\0"),
    "numpy.str_ with half a surrogate": lambda: np.str_("\ud800"),
    "numpy.bytes_": lambda: np.bytes_(b"a\0"),
    "numpy.datetime64": lambda: np.datetime64("2024-01-02", "25s"),
    "numpy.datetime64 NaT": lambda: np.datetime64("NaT"),
    "numpy.datetime64 without unit": lambda: np.datetime64("NaT", "generic"),
    "numpy.timedelta64": lambda: np.timedelta64(3, "D"),
    "numpy.void": lambda: np.void(b"ab"),
    "numpy record": lambda: np.array([(1, "a")], [("a", "i4"), ("b", "U3")])[0],
    "numpy record of objects": lambda: np.array([(1, "a")], [("a", "i4"), ("b", "O")])[0],
    "numpy recarray": lambda: np.rec.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "numpy.record": lambda: np.rec.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])[0],
    "numpy array": lambda: np.arange(6, dtype=">i2").reshape(2, 3),
    "numpy array in Fortran's order": lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
    "numpy array that is a view": lambda: np.arange(10)[::-2],
    "numpy array that is read-only": lambda: np.broadcast_to(np.int64(1), (2, 2)),
    "numpy array without shape": lambda: np.array(1.5),
    "numpy array without elements": lambda: np.empty((0, 3)),
    "numpy array of texts": lambda: np.array(["a", "bc"]),
    "numpy array of empty texts": lambda: np.array(["", ""]),
    "numpy array of many empty texts": lambda: (
        np.array([""] * 5_000, "U0") if np.dtype("U0").itemsize else np.zeros(5_000, "V0")
    ),
    "numpy array of bytes": lambda: np.array([b"a", b"bc"]),
    "numpy array of objects": lambda: np.array(["a", None, [1]], object),
    "numpy array of objects without shape": lambda: np.array(None, object),
    "numpy array of objects in two dimensions": lambda: np.array([["a", None], [1, 2.5]], object),
    "numpy array of functions": lambda: np.array([len], object),
    "numpy structured array": lambda: np.array([(1, "ä")], [("a", "i4"), ("b", "U3")]),
    "numpy structured array with padding": lambda: np.zeros(2, np.dtype([("a", "i1"), ("b", "i8")], align=True)),
    "numpy structured array with titles": lambda: np.zeros(2, [(("t", "a"), "i4")]),
    "numpy structured array with offsets": lambda: np.zeros(
        2, np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4], "itemsize": 12})
    ),
    "numpy structured array with arrays": lambda: np.zeros(2, [("a", "i4", (2, 3)), ("b", [("c", "f8")])]),
    "numpy structured array of objects": lambda: np.zeros(2, [("a", "O")]),
    "numpy array of timedelta64": lambda: np.array([1, 2], "m8[ms]"),
    "numpy array of variable texts": lambda: np.array(["a", "bcd"], np.dtypes.StringDType()),
    "numpy array with metadata": lambda: np.zeros(2, np.dtype("i4", metadata={"a": 1})),
    "numpy masked array": lambda: np.ma.masked_array([1, 2], [True, False]),
    "numpy masked": lambda: np.ma.masked,
    "numpy matrix": lambda: np.asmatrix([[1, 2]]),
    "numpy memmap": lambda: np.memmap(tempfile.TemporaryFile(), "i4", shape=(2,)),
    "numpy array of the program": lambda: np.zeros(2).view(OwnNdarray),
    "numpy dtype": lambda: np.dtype("i4"),
    "numpy structured dtype": lambda: np.dtype([("a", "i4")]),
    "numpy Generator": lambda: np.random.default_rng(1),
    "numpy RandomState": lambda: np.random.RandomState(1),
    "numpy poly1d": lambda: np.poly1d([1, 2]),
    "numpy nditer": lambda: np.nditer(np.zeros(2)),
}
_OF_PANDAS: dict[str, Callable[[], Any]] = {
    "pandas.Timestamp": lambda: pd.Timestamp("2024-01-02 03:04:05.123456789"),
    "pandas.Timestamp in a zone": lambda: pd.Timestamp("2024-01-02", tz="Europe/Berlin"),
    "pandas.Timestamp in a zone of pytz": lambda: pd.Timestamp("2024-07-02", tz=pytz.timezone("Europe/Berlin")),
    "pandas.Timestamp in a zone of the program": lambda: pd.Timestamp("2024-07-02", tz=OwnZone(3)),
    "pandas.Timestamp in a zone of dateutil": lambda: pd.Timestamp("2024-07-02", tz="dateutil/Europe/Berlin"),
    "pandas.Timestamp in seconds": lambda: pd.Timestamp("2024-01-02").as_unit("s"),
    "pandas.Timestamp with fold": lambda: pd.Timestamp(MOMENT.replace(fold=1, tzinfo=BERLIN)),
    "pandas.Timedelta": lambda: pd.Timedelta(3),
    "pandas.Timedelta in seconds": lambda: pd.Timedelta(3, "s").as_unit("s"),
    "pandas.NaT": lambda: pd.NaT,
    "pandas.NA": lambda: pd.NA,
    "pandas.Period": lambda: pd.Period("2024-01"),
    "pandas.Interval": lambda: pd.Interval(0, 1),
    "pandas.DataFrame": lambda: pd.DataFrame({"a": [1]}),
    "pandas.Series": lambda: pd.Series([1]),
    "pandas.Index": lambda: pd.Index([1]),
    "pandas.Categorical": lambda: pd.Categorical(["a"]),
    "pandas.offsets": lambda: pd.offsets.Day(1),
    "pandas array": lambda: pd.array([1, None], "Int64"),
}
_OF_ARROW: dict[str, Callable[[], Any]] = {
    "pyarrow.Scalar": lambda: pa.scalar(1),
    "pyarrow.Array": lambda: pa.array([1, None]),
    "pyarrow.Table": lambda: pa.table({"a": [1]}),
    "pyarrow.RecordBatch": lambda: pa.record_batch({"a": [1]}),
    "pyarrow.DataType": lambda: pa.int32(),
    "pyarrow.Schema": lambda: pa.schema([("a", pa.int32())]),
    "pyarrow.Buffer": lambda: pa.py_buffer(b"ab"),
    "pyarrow.ChunkedArray": lambda: pa.chunked_array([[1]]),
}
_OF_FLINKISH: dict[str, Callable[[], Any]] = {
    "Row": lambda: Row("a", 1),
    "Row with names": lambda: Row(name="a", n=[1]),
    "Row of a kind": lambda: Row.of_kind(RowKind.DELETE, "a", None),
    "Row without fields": lambda: Row(),
    "Row with names that are no texts": lambda: named_row([1, 2]),
    "Row with half a surrogate as a name": lambda: named_row(["\ud83d", "b"]),
    "Row with a name of a text of the program": lambda: named_row([OwnStr("a"), "b"]),
    "Row with a tuple of names": lambda: named_row(("a", "b")),
    "Row in a Row": lambda: Row(Row(1), [Row(a=2)]),
    "Row of the program": lambda: OwnRow(1, 2),
    "RowKind": lambda: RowKind.UPDATE_BEFORE,
    "Instant": lambda: Instant(1, 2),
    "Duration": lambda: Duration.of_millis(5),
    "Time": lambda: Time.seconds(5),
    "TimeWindow": lambda: TimeWindow(0, 10),
    "TimeWindow of numbers of numpy": lambda: TimeWindow(np.int64(0), np.int64(10)),
    "window of the program": lambda: OwnWindow(0, 10),
    "CountWindow": lambda: CountWindow(3),
    "GlobalWindow": GlobalWindow.get,
    "TimeDomain": lambda: TimeDomain.EVENT_TIME,
    "type information": lambda: Types.ROW_NAMED(["a"], [Types.MAP(Types.STRING(), Types.LONG())]),
    "OutputTag": lambda: OutputTag("late", Types.INT()),
}
_OF_THE_PROGRAM: dict[str, Callable[[], Any]] = {
    "object": lambda: Plain(a=1, b=[2]),
    "object without attributes": Plain,
    "object of a nested class": Plain.Nested,
    "object with slots": Slots,
    "object with slots and attributes": SlotsAndDict,
    "object with a private slot": PrivateSlot,
    "object with a function": lambda: Plain(f=function),
    "object with a bound method of itself": lambda: (lambda one: with_(one, m=one.method))(Plain()),
    "object with a class": lambda: Plain(kind=int),
    "object with a lock": lambda: Plain(lock=threading.Lock()),
    "dataclass": lambda: Data(2, [Data()]),
    "frozen dataclass": lambda: Frozen(2),
    "frozen dataclass with slots": lambda: FrozenSlots(2),
    "dataclass with a field that is made": lambda: Ordered(2),
    "NamedTuple": lambda: Point(1, 2),
    "namedtuple": lambda: Pair(1, [2]),
    "namedtuple under another name": lambda: Renamed(1),
    "member of an enum": lambda: Colour.GREEN,
    "member by its other name": lambda: Colour.CRIMSON,
    "member of an IntEnum": lambda: Level.LOW,
    "member of an enum of texts": lambda: Word.A,
    "flag": lambda: Rights.READ,
    "flags": lambda: Rights.READ | Rights.WRITE,
    "no flags": lambda: Rights(0),
    "flags without a name": lambda: Bits(1 | 8),
    "negative flags": lambda: ~Bits.ONE,
    "flags of 1,000 bits": lambda: Bits(1 << 1000),
    "member that is made of arguments": lambda: Planet.EARTH,
    "member of an enum that is made by a call": lambda: Dynamic.A,
    "member of an enum under another name": lambda: Misplaced.A,
    "member of an enum of Python": lambda: re.I,
    "members as keys": lambda: {Colour.RED: 1, Rights.READ: 2},
    **{
        f"{kind.__name__} of the program": functools.partial(kind, *arguments)
        for kind, *arguments in (
            (OwnInt, 5), (OwnFloat, 1.5), (OwnComplex, 1j), (OwnStr, "a"), (OwnBytes, b"a"), (OwnBytearray, b"a"),
            (OwnList, [1]), (OwnTuple, (1, 2)), (OwnDict, {1: 2}), (OwnSet, {1}), (OwnFrozenset, {1}),
            (OwnDeque, [1], 3), (OwnDefaultdict, list, {1: []}), (OwnOrdered, {1: 2}), (OwnCounter, "aab"),
            (OwnDate, 2024, 1, 2), (OwnDatetime, 2024, 1, 2), (OwnTime, 1), (OwnTimedelta, 1), (OwnDecimal, "1.5"),
            (OwnFraction, 1, 3), (OwnPath, "a/b"), (OwnAddress, "10.0.0.1"), (OwnArray, "d", [1.5]),
        )
    },  # fmt: skip
    **{
        f"{type(make()).__name__} of the program with an attribute": lambda make=make: with_(make(), extra=[1])
        for make in (
            lambda: OwnInt(5), lambda: OwnStr("a"), lambda: OwnTuple((1,)), lambda: OwnList([1]),
            lambda: OwnDict(a=1), lambda: OwnSet({1}), lambda: OwnFrozenset({1}), lambda: OwnDeque([1]),
            lambda: OwnDefaultdict(list, a=[1]), lambda: OwnOrdered(a=1), lambda: OwnCounter("a"),
            lambda: OwnBytearray(b"a"), lambda: OwnDate(2024, 1, 2), lambda: OwnDatetime(2024, 1, 2),
            lambda: OwnTimedelta(1), lambda: OwnDecimal(1), lambda: OwnFraction(1, 3), lambda: OwnArray("d", [1.5]),
        )
    },  # fmt: skip
    "Counter of the program with an error": lambda: OwnError(2, "y"),
    "UUID of the program": lambda: OwnUUID(int=3),
    "UUID of the program without its field": lambda: (
        lambda one: object.__delattr__(one, "int") or one  # type: ignore[func-returns-value]
    )(OwnUUID(int=3)),
    "SimpleNamespace of the program": lambda: OwnNamespace(a=1),
    "object made by a call": lambda: ByCall("a", 2),
    "object made by a call with a class": lambda: ByCall(Plain, 2),
    "object made by a call with a class of Python": lambda: ByCall(int, 2),
    "object made by a call with a class of a library": lambda: ByCall(json.JSONDecoder, 2),
    "object made by a call with classes in a list": lambda: ByCall([Plain], 2),
    "object with a function that sets its state": BySetter,
    "object made by a function": ByFunction,
    "object made by a method of its class": ByClassMethod,
    "object reduced to the name of a variable": lambda: THE_ONE,
    "object reduced to a call of another class": ByOther,
    "object reduced to a call of a class of data": ByData,
    "object made by a method of another object": ByMethodOfObject,
    "object reduced to getattr": ByAttribute,
    "object reduced to pickle's own function": lambda: ByNewObj(1, 2),
    "object reduced to another class of the program": ByNewObjOfOther,
    "object reduced to object.__new__": ByObjectNew,
    "float reduced as by the first protocols": lambda: ByReconstructor(1.5),
    "object reduced as by the first protocols": PlainByReconstructor,
    "object reduced to a class that it is not of": ReconstructedOfOther,
    "object with __getnewargs__": lambda: NewArguments(1, 2),
    "object with __getnewargs_ex__": lambda: NewNames(1, a=2),
    "object with __getnewargs_ex__ without names": lambda: NewNames(1),
    "object with a class in __getnewargs_ex__": lambda: ClassInNewArguments(a=int),
    "object with __getstate__": GetState,
    "object with a false state": FalseState,
    "object with a list as its state": StateIsList,
    "object with numbers as names of attributes": StateHasNumbers,
    "object with a name of Python's as an attribute": StateHasDunder,
    "object with half a surrogate as an attribute": lambda: (
        lambda one: vars(one).update({"\ud83d": 1}) or one  # type: ignore[func-returns-value]
    )(Plain()),
    "object with items": lambda: with_(Items(), items=[1]),
    "object with pairs": Pairs,
    "object with a finalizer": Finalizer,
    "object of a metaclass": OfMeta,
    "object of an abstract class": Concrete,
    "object with __eq__ and __hash__": lambda: Keyed("a"),
    "object with __eq__ and __hash__ as a key": lambda: {Keyed("a"): 1},
    "object with __eq__ alone": lambda: Descends("a"),
    "object by identity as a key": lambda: {Plain(a=1): 1},
    "only object of its class": Singleton,
    "only object of its class with an attribute": lambda: with_(SingletonWithState(), a=2),
    "object in copyreg's table": lambda: Registered(2),
    "object in copyreg's table with a function": RegisteredByFunction,
    "object that says it is an int": Proxy,
    "object that refuses": Refusing,
    "object that is reduced to a number": WeirdReduce,
    "object with a cached property": lambda: (lambda one: [one, one.once][0])(Cached()),
    "object with __setattr__": SetsAttributes,
    "object of a class of a function": local_class,
    "object of a class of the same name": lambda: type("Plain", (), {"__module__": __name__})(),
    "object of a class that is gone": lambda: type("Gone", (), {"__module__": __name__})(),
    "object of a class of no module": lambda: type("Plain", (), {"__module__": None})(),
    # of each class first one that can be read, then one that cannot
    "pairs that are noted, none": Tracked,
    "pairs that are noted: refused": lambda: filled(Tracked()),
    "items of a limit, none": Limited,
    "items of a limit: refused": lambda: filled(Limited()),
    "items that are summed, none": Summed,
    "items that are summed: refused": lambda: filled(Summed()),
    "amount": lambda: Positive(1),
    "negative amount: refused": lambda: with_(Positive(1), amount=-1),
    "state of an amount": lambda: PositiveState(amount=1),
    "state of a negative amount: refused": lambda: PositiveState(amount=-1),
    "one argument": lambda: FewArguments(1),
    "two arguments: refused": lambda: with_(FewArguments(1), arguments=(1, 2)),
    "guarded slot": lambda: GuardedSlot(1),
    "guarded slot of None: refused": lambda: GuardedSlot(None),
    "error of a place": lambda: SyntaxError("a", ("f", 1, 2, "t")),
    "error of half a place: refused": lambda: with_(SyntaxError("a"), args=("a", ("f",))),
    "pairs that are hashed": lambda: HashedPairs(name="a"),
    "known member of an open enum": lambda: Open.KNOWN,
    "unknown member of an open enum: refused": lambda: Open(5),
    "member of an enum with names of its own": lambda: Shown.A,
    **{
        f"holds itself: {kind}": functools.partial(holding_itself, kind)
        for kind in (
            "list", "dict", "tuple", "dataclass", "set", "key", "deque", "defaultdict", "slots", "list of the program",
            "state", "error", "row", "ring", "array of objects", "called", "keyed by content", "namespace", "tree",
            "hashed pairs",
        )
    },
}  # fmt: skip


def filled(made: Any) -> Any:
    """With what is put in by the methods of the program."""
    for item in (1, 2):
        if isinstance(made, dict):
            made[item] = item
        else:
            made.append(item)
    return made


def math_nan() -> float:
    """Not a number."""
    return float("nan")


def zone_file() -> Any:
    """A file with a time zone."""
    for root in zoneinfo.TZPATH:
        path = pathlib.Path(root, "Europe/Berlin")
        if path.exists():
            return io.BytesIO(path.read_bytes())
    return io.BytesIO(__import__("importlib.resources").resources.read_binary("tzdata.zoneinfo.Europe", "Berlin"))


def named_row(names: Any) -> Row:
    """A Row with these names."""
    row = Row("x", "y")
    row.set_field_names(names)
    return row


def closed(one: Any) -> Any:
    """One that needs no closing any more."""
    one.close()
    return one


def with_closed(one: Any) -> Any:
    """A coroutine that nobody waits for."""
    one.close()
    return one


#: Kind of value -> makes one.
VALUES: dict[str, Callable[[], Any]] = {
    **_SINGLETONS, **_NUMBERS, **_TEXTS, **_CONTAINERS, **_TIMES, **_OF_THE_LIBRARY, **_ERRORS, **_CODE, **_TYPING,
    **_ITERATORS, **_RESOURCES, **_OF_NUMPY, **_OF_PANDAS, **_OF_ARROW, **_OF_FLINKISH, **_OF_THE_PROGRAM,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------ comparison


def content(value: Any) -> Any:
    """What a value consists of, down to numbers and texts, as a tree: of what occurs again within itself the way up."""
    return _content(value, {})


def _content(value: Any, above: dict[int, int]) -> Any:
    kind = type(value)
    if kind in (int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented)):
        return kind.__name__, hex(value) if kind is int else repr(value)
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
        return "code", repr(value)
    if id(value) in above:
        return "above", len(above) - above[id(value)]
    above = {**above, id(value): len(above)}
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, enum.Enum):
        return name, value.name, repr(value.value)
    if kind is zoneinfo.ZoneInfo:
        return name, value.key
    if kind is np.ndarray:
        return name, value.dtype.descr, value.shape, _content(value.tolist(), above)
    if isinstance(value, np.generic):
        return name, value.dtype.descr, repr(value)
    if kind in (list, tuple):
        return name, [_content(part, above) for part in value]
    if kind in (set, frozenset):
        return name, sorted((_content(part, above) for part in value), key=repr)
    if kind is dict:
        return name, [(_content(key, above), _content(one, above)) for key, one in value.items()]
    reduce = copyreg.dispatch_table.get(kind)
    reduced = reduce(value) if reduce is not None else value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return name, reduced
    made = [list(part) if hasattr(part, "__next__") else part for part in reduced]
    if isinstance(value, BaseException) and not isinstance(value, OSError):
        made = [kind, value.args, vars(value)]
    return name, [_content(part, above) for part in made]
