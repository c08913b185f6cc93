"""Sets of keys that were changed, and functions on the keys and values of state tables."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any


class Marks(set[Any]):
    """The keys of a namespace that were changed in an epoch. If it is ``whole``, all keys that have a value count as
    changed as well, and need not be added."""

    __slots__ = ("whole",)

    def __init__(self) -> None:
        self.whole = False


#: marks of which none is kept: every change is to be reported
NONE_MARKED = Marks()


def present(values: dict[Any, Any], wanted: set[Any]) -> tuple[list[Any], list[Any]]:
    """The wanted keys that have a value, and their values."""
    if 2 * len(wanted) > len(values):
        # to iterate over a dict is faster than to look up most of its keys
        there = [key for key in values if key in wanted]
    else:
        there = list(wanted)
        with suppress(KeyError):
            return there, list(map(values.__getitem__, there))
        there = [key for key in wanted if key in values]
    return there, list(map(values.__getitem__, there))


def spread(by_namespace: dict[Hashable, list[Any]]) -> tuple[list[Hashable], list[Any]]:
    """Flatten keys by namespace to (the namespace of each key, or a single one for all, the keys)."""
    if len(by_namespace) == 1:
        return list(by_namespace), next(iter(by_namespace.values()))
    namespaces = [namespace for namespace, keys in by_namespace.items() for _ in keys]
    return namespaces, [key for keys in by_namespace.values() for key in keys]
