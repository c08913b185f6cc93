"""Keys that are lists, or tuples with lists in them, in the form in which state is looked up.

A list has no hash, so inside of the engine a key that holds one is a `ListKey` or a `TupleKey`: equal to what the key
selector returned, with the hash of the tuple of its elements. User code is shown what the selector returned
(`thawed`): a list of its own, which it may change. Keys that can be hashed as they are stay as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from flinkish.runtime.typed_keys import selected


class ListKey(list[Any]):
    """A list that is a key: nobody changes it."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


class TupleKey(tuple[Any, ...]):
    """A tuple that is a key and holds a ListKey, at whatever depth."""

    __slots__ = ()


#: The types whose values may have to be frozen, and those of frozen values. Exactly these: what a subclass of list or
#: tuple adds would be lost, so with a list in it it is refused like any other key without a hash.
SEQUENCES = frozenset({list, tuple})
FROZEN = frozenset({ListKey, TupleKey})


def frozen(key: Any) -> Any:
    """The key in a form that has a hash, if it has one.

    >>> frozen([1, ["a"]]), hash(frozen([1, ["a"]])) == hash((1, ("a",))), frozen("a")
    ([1, ['a']], True, 'a')
    """
    if key.__class__ is list:
        return ListKey(map(frozen, key))
    if key.__class__ is tuple:
        items = tuple(map(frozen, key))
        return TupleKey(items) if any(item.__class__ in FROZEN for item in items) else key
    return key


def thawed(key: Any) -> Any:
    """What the key selector has returned for a key; a list that nobody else holds.

    >>> type(thawed(frozen([1]))), thawed(frozen(("a", [1])))
    (<class 'list'>, ('a', [1]))
    """
    if key.__class__ not in FROZEN:
        return key
    return list(map(thawed, key)) if key.__class__ is ListKey else tuple(map(thawed, key))


def keys_of(selector: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """The keys of a batch of records."""
    keys = selected(selector, values)
    if not SEQUENCES.isdisjoint(map(type, keys)):
        try:
            # hashing tells what must be frozen, and costs less than to look into each tuple
            deque(map(hash, keys), maxlen=0)
        except TypeError:
            return list(map(frozen, keys))
    return keys
