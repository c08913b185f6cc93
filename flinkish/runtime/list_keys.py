"""The keys of a batch, and the form in which state is looked up by keys that are lists, or tuples with lists in them.

A list has no hash, so inside the engine a key that holds one is a `ListKey` or a `TupleKey`: equal to what the key
selector returned, with the hash of the tuple of its elements. User code gets what the selector returned (`thawed`), as
a list of its own, which it may change. Keys that are hashable themselves stay as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.errors import InvalidKeyError
from flinkish.runtime.key_groups import subtask_of_key
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


class OwnKeys:
    """Checks that keys belong to a subtask, each key once: state of a key that is used in two subtasks would be wrong
    without a word.

    A key that has come with its record, and consists of Python's own immutable values, is the one by which the record
    was sent, and so is one that can be found again (`typed_keys.Repetition`). So once there are more than
    ``limit`` keys, too many to remember, only a sample of such keys is checked.
    """

    def __init__(self, subtask: int, parallelism: int, max_parallelism: int, where: str, limit: int = 2_048) -> None:
        self._subtask = subtask
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._where = where
        self._limit = limit
        #: the keys that were checked; None: they are too many
        self._checked: set[Any] | None = set()

    def check(self, keys: list[Any]) -> None:
        """Check a batch of keys.

        Raises:
            InvalidKeyError: a key belongs to another subtask.
        """
        checked = self._checked
        if checked is None:
            self._check(keys[::_SAMPLE] if _are_values(keys) else set(keys))
        elif not checked.issuperset(keys):
            new = set(keys).difference(checked)
            self._check(new)
            if len(checked) + len(new) > self._limit:
                self._checked = None
            else:
                checked.update(new)

    def _check(self, keys: Collection[Any]) -> None:
        for key in keys:
            if subtask_of_key(key, self._parallelism, self._max_parallelism) != self._subtask:
                raise InvalidKeyError(
                    f"the key {abbreviated(thawed(key))} belongs to another subtask than the one that got it "
                    f"({self._subtask + 1}/{self._parallelism}): the key selector gave another key the second time, or "
                    "the key has changed on its way",
                    where=self._where,
                    expected="the same key, with the same hash, each time and in every process",
                    hint="compute the key once, in a map() before key_by(), as a text, a number or a tuple of these",
                )


#: Of keys that are known to be right, and too many to be remembered, one in so many is checked.
_SAMPLE = 64
#: Python's own immutable values, which pickling does not change.
_VALUES = frozenset({str, int, float, bool, bytes, type(None)})


def _are_values(keys: list[Any]) -> bool:
    """Whether all keys are Python's own immutable values, or tuples of these."""
    classes = set(map(type, keys))
    if tuple in classes:
        classes.remove(tuple)
        classes.update(map(type, chain.from_iterable(key for key in keys if key.__class__ is tuple)))
    return classes <= _VALUES


class ReceivedKeys:
    """The key selector of a keyed task, as operators get it: it checks the keys of the records that have arrived."""

    def __init__(self, selector: Callable[[Any], Any], own: OwnKeys) -> None:
        self._selector = selector
        self._own = own

    def __call__(self, value: Any) -> Any:
        """The key of a record, for a message."""
        return self._selector(value)

    def of_batch(self, values: list[Any]) -> list[Any]:
        """The keys of a batch of records. Raises InvalidKeyError if one belongs to another subtask."""
        keys = keys_of(self._selector, values)
        self._own.check(keys)
        return keys


def keys_of(selector: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """The keys of a batch of records: those that have come with the records, or else what the selector returns."""
    if selector.__class__ is ReceivedKeys:
        return selector.of_batch(values)
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
