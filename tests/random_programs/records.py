"""The classes of the records of random programs: a record has a key, a number and a part with mutable contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


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


CLASSES = {cls.__name__: cls for cls in (Plain, Slots, Frozen, Named, PlainPart, SlotsPart, FrozenPart, NamedPart)}
