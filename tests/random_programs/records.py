"""The classes of the records of random programs: a record has a key, a number and a part with mutable contents."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple


@dataclass
class Plain:
    k: str
    n: int
    p: Any


@dataclass(slots=True)
class Slots:
    k: str
    n: int
    p: Any


@dataclass(frozen=True)
class Frozen:
    k: str
    n: int
    p: Any


class Named(NamedTuple):
    k: str
    n: int
    p: Any


@dataclass
class PlainPart:
    a: int
    c: Any


@dataclass(slots=True)
class SlotsPart:
    a: int
    c: Any


@dataclass(frozen=True)
class FrozenPart:
    a: int
    c: Any


class NamedPart(NamedTuple):
    a: int
    c: Any


class NamedWithDefault(NamedTuple):
    """All that are made without contents have one list."""

    k: str
    n: int
    c: Any = []


class Holder:
    """What it hands out is one list."""

    contents: ClassVar[list[int]] = []

    def get(self) -> list[int]:
        return self.contents


class Asked:
    """A record whose key is the result of code that gives another one when it is asked a second time. The key that was
    sent is the right one."""

    _answered: ClassVar[set[str]] = set()

    def __init__(self, k: str, n: int) -> None:
        self.k, self.n, self.id = k, n, uuid.uuid4().hex

    @property
    def key(self) -> str:
        asked_before = self.id in self._answered
        self._answered.add(self.id)
        return self.k + "?" * asked_before


class AskedByName(Asked):
    """The same by `__getattr__` and `__getitem__`."""

    def __getattr__(self, name: str) -> str:
        if name == "found":
            return self.key
        raise AttributeError(name)

    def __getitem__(self, name: str) -> str:
        return self.key


_ALL = (Plain, Slots, Frozen, Named, PlainPart, SlotsPart, FrozenPart, NamedPart)
CLASSES = {cls.__name__: cls for cls in (*_ALL, NamedWithDefault, Holder, Asked, AskedByName)}
