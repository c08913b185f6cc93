"""The keys of a batch, and the form in which state is looked up by keys that are lists, or tuples with lists in them.

A list has no hash, so inside the engine a key that holds one is a `ListKey` or a `TupleKey`: equal to what the key
selector returned, with the hash of the tuple of its elements. User code gets what the selector returned (`thawed`), as
a list of its own, which it may change. Keys that are hashable themselves stay as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from flinkish.runtime.typed_keys import TypedKeySelector, selected


class ListKey(list[Any]):
    """A list as a key; it must never be changed."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


class TupleKey(tuple[Any, ...]):
    """A tuple as a key that holds a ListKey at any depth."""

    __slots__ = ()


#: The types whose values may have to be frozen, and the types of frozen values. Subclasses are not among them, because
#: what a subclass of list or tuple adds would be lost: one that holds a list is refused like any other unhashable key.
SEQUENCES = frozenset({list, tuple})
FROZEN = frozenset({ListKey, TupleKey})


def frozen(key: Any) -> Any:
    """The key with its lists, and the tuples that hold lists, in hashable form; any other key as it is.

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
    """The inverse of `frozen`: the key as the key selector has returned it, in lists that nothing else refers to.

    >>> type(thawed(frozen([1]))), thawed(frozen(("a", [1])))
    (<class 'list'>, ('a', [1]))
    """
    if key.__class__ not in FROZEN:
        return key
    return list(map(thawed, key)) if key.__class__ is ListKey else tuple(map(thawed, key))


class KeyedBatch(list[Any]):
    """The records of a batch that have come with their keys."""

    __slots__ = ("keys",)

    def __init__(self, values: list[Any], keys: list[Any]) -> None:
        super().__init__(values)
        self.keys = keys

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return KeyedBatch(found, self.keys[index]) if index.__class__ is slice else found

    def extend(self, others: Iterable[Any]) -> None:
        """Append the records of another such batch, with their keys."""
        assert isinstance(others, KeyedBatch), "records without keys are appended to records with keys"
        super().extend(others)
        self.keys.extend(others.keys)


def keys_of(selector: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """The keys of a batch of records: those that have come with the records, or else what the selector returns."""
    keys = values.keys if values.__class__ is KeyedBatch else selected(selector, values)
    if isinstance(selector, TypedKeySelector) and selector.gives_plain_keys:
        return keys
    if not SEQUENCES.isdisjoint(map(type, keys)):
        try:
            # hashing all keys shows whether any must be frozen, which costs less than looking into each tuple
            deque(map(hash, keys), maxlen=0)
        except TypeError:
            return list(map(frozen, keys))
    return keys
