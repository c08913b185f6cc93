"""The keys of records: the selectors that the engine makes of those of the program, which keys must travel with their
records, the form in which state is looked up by them, and the key groups that place them in subtasks.

Rule: the receiver of a record uses the key by which the sender has chosen the receiver, as in Flink. It calls the
selector again only if that is known to read fields and nothing else (`can_be_repeated`), and the classes of the records
are known to run no code of the program then (`Repetition`), which the sender finds out batch by batch. All other keys,
which may be random, depend on time or count calls, travel with the records. The receiver checks the keys of both kinds
(`ReceivedKeys`).
"""

from __future__ import annotations

import copyreg
from array import array
from collections import deque, namedtuple
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain, filterfalse
from operator import attrgetter, itemgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic

from flinkish.common.arguments import abbreviated, result_of_each
from flinkish.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.base import Mismatch, nullable_list
from flinkish.common.types import Row
from flinkish.errors import InternalError, InvalidKeyError
from flinkish.runtime.exchange.stable_hash import stable_hash
from flinkish.runtime.stored.code_scan import FieldsRead, only_reads_fields

if TYPE_CHECKING:
    from flinkish.runtime.exchange.hashes import Hashes


#: Number of distinct keys whose place a cache holds. Hashing a key costs ten times as much as a look-up.
KEY_CACHE_SIZE = 200_000

#: After so many keys of a batch that a cache does not know, it computes the places of all others at once.
_MANY_KEYS = 64


def key_group_of(key: Any, max_parallelism: int) -> int:
    """The key group of a key, ``0 <= group < max_parallelism``: the unit in which keyed state is placed and moved
    (Flink's KeyGroupRangeAssignment)."""
    return stable_hash(key) % max_parallelism


def subtask_of(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key group, as in Flink.

    >>> [subtask_of(group, 2, 5) for group in range(5)]
    [0, 0, 0, 1, 1]
    """
    return key_group * parallelism // max_parallelism


def subtask_of_key(key: Any, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key."""
    return subtask_of(key_group_of(key, max_parallelism), parallelism, max_parallelism)


def subtasks_of_keys(keys: Sequence[Any], parallelism: int, max_parallelism: int) -> Hashes:
    """`subtask_of_key` of each key, as an array of numpy."""
    import numpy as np

    from flinkish.runtime.exchange.hashes import stable_hashes

    key_groups = stable_hashes(keys) % np.uint64(max_parallelism)
    subtasks: Hashes = key_groups * np.uint64(parallelism) // np.uint64(max_parallelism)
    return subtasks


def key_groups_of(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups that a subtask owns, as in Flink.

    >>> key_groups_of(0, 2, 5), key_groups_of(1, 2, 5)
    (range(0, 3), range(3, 5))
    """
    first = -(-subtask * max_parallelism // parallelism)
    end = -(-(subtask + 1) * max_parallelism // parallelism)
    return range(first, end)


#: Bounds of the default maximum parallelism, as in Flink's KeyGroupRangeAssignment.
_LOWER_BOUND_MAX_PARALLELISM = 1 << 7
_UPPER_BOUND_MAX_PARALLELISM = 1 << 15


def default_max_parallelism(parallelism: int) -> int:
    """One and a half times the parallelism, rounded up to a power of two, within 128 and 32,768 (Flink's rule).

    >>> [default_max_parallelism(parallelism) for parallelism in (1, 85, 86, 100_000)]
    [128, 128, 256, 32768]
    """
    wanted = parallelism + parallelism // 2
    power_of_two = 1 << max(0, wanted - 1).bit_length()
    return min(max(power_of_two, _LOWER_BOUND_MAX_PARALLELISM), _UPPER_BOUND_MAX_PARALLELISM)


class KeyCache(dict[Any, Any]):
    """A cache of key -> ``place(subtask that owns the key)``, which is emptied when it holds ``limit`` keys.
    ``cache[key]`` computes a missing value; `places` places a whole batch without a Python call per known key."""

    def __init__(
        self, parallelism: int, max_parallelism: int, place: Callable[[int], Any], limit: int = KEY_CACHE_SIZE
    ) -> None:
        super().__init__()
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._place = place
        self._limit = limit
        #: the batch that is being placed, and how many of its keys were unknown so far
        self._batch: Sequence[Any] = ()
        self._unknown = 0

    def places(self, keys: Sequence[Any]) -> list[Any]:
        """The place of each key of a batch.

        Raises:
            TypeError: a key cannot stand in a dict.
            InvalidKeyError: a key has no hash that is the same in every process.
        """
        self._batch, self._unknown = keys, 0
        try:
            return list(map(self.__getitem__, keys))
        finally:
            self._batch = ()

    def __missing__(self, key: Any) -> Any:
        self._unknown += 1
        if self._unknown == _MANY_KEYS:
            self._place_batch()
            if key in self:
                return self[key]
        if len(self) >= self._limit:
            self.clear()
        place = self._place(subtask_of_key(key, self._parallelism, self._max_parallelism))
        self[key] = place
        return place

    def _place_batch(self) -> None:
        """Place all unknown keys of the batch at once, unless they are more than the cache holds."""
        # set.difference would iterate over the whole cache, because it is no plain dict
        unknown = set(filterfalse(self.__contains__, self._batch))
        if len(self) + len(unknown) > self._limit:
            self.clear()
            unknown = set(self._batch)
        if len(unknown) > self._limit:
            return
        keys = list(unknown)
        # a key without a stable hash is refused when its turn comes
        with suppress(InvalidKeyError):
            subtasks = subtasks_of_keys(keys, self._parallelism, self._max_parallelism).tolist()
            places = {subtask: self._place(subtask) for subtask in set(subtasks)}
            self.update(zip(keys, map(places.__getitem__, subtasks)))


def unhashable_key(key_type: str, where: str) -> InvalidKeyError:
    """The error for a key that has no hash, such as a set or a dict."""
    return InvalidKeyError(
        f"a key of type {key_type} cannot be hashed",
        where=where,
        expected="a key that can stand in a dict",
        hint="return a tuple, a list, a string or a number from the key selector",
    )


#: The declared types of nearly all keys, each with the class of its keys and, for numbers, the code of the `array` that
#: holds those within the bounds of the type: to make one takes half the time of finding the least and the greatest key.
_PLAIN: tuple[tuple[TypeInformation, type, str | None], ...] = (
    (Types.STRING(), str, None),
    (Types.INT(), int, "i"),
    (Types.LONG(), int, "q"),
)


class TypedKeySelector:
    """A key selector that converts what another one returns to the declared type of the keys.

    Rule: a key of a declared type is what Flink's serializer would make of it, or None: PyFlink's keys are fields of a
    Row, which may be null whatever their type. Where the serializer would make one key of several, the key is an error.
    Most keys are of that type already, so a whole batch is checked before any of its keys is converted.
    """

    def __init__(self, select: Callable[[Any], Any], key_type: TypeInformation) -> None:
        self._select = select
        self._key_type = key_type.for_keys()
        self._convert_list = nullable_list(self._key_type)
        #: a key of this class that fits into such an array needs no conversion; if the class is None, every key does
        self._plain: type | None = None
        self._array: str | None = None
        for plain_type, plain, code in _PLAIN:
            if key_type == plain_type:
                self._plain, self._array = plain, code

    @property
    def gives_plain_keys(self) -> bool:
        """Whether all keys are texts or numbers, which can be looked up as they are."""
        return self._plain is not None

    @property
    def fields_read(self) -> FieldsRead | None:
        """See `fields_read`. Only basic types convert a key without a look at attributes of its parts."""
        fields = self._key_type.get_field_types() if isinstance(self._key_type, TupleTypeInfo) else [self._key_type]
        basic = not any(isinstance(field, (TupleTypeInfo, RowTypeInfo)) or not field.is_flat for field in fields)
        return fields_read(self._select) if basic else None

    def __call__(self, value: Any) -> Any:
        """The key of a record."""
        key = self._select(value)
        return None if key is None else self._key_type.convert(key, "the key")

    def of_batch(self, values: list[Any], where: str = "") -> list[Any]:
        """The keys of a batch of records."""
        keys = selected(self._select, values, where)
        if set(map(type, keys)) == {self._plain}:
            if self._array is None:
                return keys
            with suppress(OverflowError):
                array(self._array, keys)
                return keys
        if self._convert_list is None:
            return keys
        try:
            return self._convert_list(keys)
        except Mismatch as mismatch:
            for key in keys:
                if key is not None:
                    self._key_type.convert(key, "the key")
            raise InternalError("a key fits its type, and its batch does not") from mismatch


class EitherKeySelector:
    """The key selector of records of two streams in one, as (0, record) and (1, record)."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._selectors = first, second

    @property
    def fields_read(self) -> FieldsRead | None:
        """The fields that the selectors read of the records of both streams (`fields_read`)."""
        first, second = map(fields_read, self._selectors)
        if first is None or second is None:
            return None
        return FieldsRead(first.attributes | second.attributes, first.items or second.items)

    def __call__(self, tagged: tuple[int, Any]) -> Any:
        """The key of a record."""
        side, value = tagged
        return self._selectors[side](value)


class SentKeys:
    """Stands for a key selector at a receiver whose records come with their keys: it is never called."""

    def __call__(self, value: Any) -> Any:
        raise InternalError("a record has come without its key", expected="the key that its sender has computed")


def can_be_repeated(selector: Callable[[Any], Any]) -> bool:
    """Whether a key selector only reads fields of a record, so that it gives the same key for the same record each
    time if reading them runs no code of the program (`Repetition`)."""
    return fields_read(selector) is not None


def fields_read(selector: Callable[[Any], Any]) -> FieldsRead | None:
    """The fields of a record that a key selector reads, if it is known to do nothing else."""
    if isinstance(selector, (TypedKeySelector, EitherKeySelector)):
        return selector.fields_read
    if type(selector) is itemgetter:
        plain = set(map(type, selector.__reduce__()[1])) <= {int, str}
        return FieldsRead(frozenset(), True) if plain else None
    if type(selector) is attrgetter:
        names = selector.__reduce__()[1]
        return None if any("." in name for name in names) else FieldsRead(frozenset(names), False)
    return only_reads_fields(selector)


class Repetition:
    """Tells for each batch of records whether its receiver can call a key selector again and gets the same keys."""

    def __init__(self, selector: Callable[[Any], Any]) -> None:
        self._fields = fields_read(selector)
        typed = selector._select if isinstance(selector, TypedKeySelector) else selector
        #: whether a record is one of two streams in one, as (0, record) and (1, record)
        self._tagged = isinstance(typed, EitherKeySelector)
        #: class of records -> whether reading the fields runs no code of the program
        self._plain: dict[type, bool] = {}

    def holds_for(self, values: list[Any]) -> bool:
        """Whether the keys of these records need not travel with them."""
        fields, plain = self._fields, self._plain
        if fields is None:
            return False
        if not fields.attributes and not fields.items:
            return True
        classes = set(map(type, map(itemgetter(1), values) if self._tagged else values))
        for cls in classes.difference(plain):
            plain[cls] = _reads_plainly(cls, fields)
        return all(map(plain.__getitem__, classes))


#: Classes of which ``[...]`` runs no code of the program, if the index is a number or a text.
_WITH_ITEMS = frozenset({tuple, list, dict, str, bytes, Row})
#: Methods by which a class can give its fields otherwise than it holds them, here or after pickling.
_OWN_ACCESS = frozenset(
    "__getattribute__ __getattr__ __getitem__ __missing__ __reduce__ __reduce_ex__ __getstate__ __setstate__ "
    "__getnewargs__ __getnewargs_ex__ __new__".split()
)


def _reads_plainly(cls: type, fields: FieldsRead) -> bool:
    """Whether reading these fields of instances of a class runs no code of the program, before and after pickling:
    those of a Row, a named tuple or a dataclass, slots, and the elements of Python's own sequences and dicts."""
    if cls is Row:
        return True
    if cls in _WITH_ITEMS:
        return not fields.attributes
    named_tuple = issubclass(cls, tuple) and "_fields" in dir(cls)
    if fields.items and not named_tuple or cls in copyreg.dispatch_table:
        return False
    for owner in cls.__mro__:
        if owner in (object, tuple, Generic):
            continue
        if not all(_is_generated(vars(owner)[name]) for name in _OWN_ACCESS.intersection(vars(owner))):
            return False
    return all(_is_plain_attribute(cls, name) for name in fields.attributes)


def _is_generated(method: Any) -> bool:
    """Whether a method comes from `dataclasses` or `collections.namedtuple`, which give the fields as they are."""
    function = method.__func__ if isinstance(method, staticmethod) else method
    module = getattr(function, "__globals__", {}).get("__name__", "")
    return module in ("dataclasses", "collections") or module.startswith("namedtuple_")


def _is_plain_attribute(cls: type, name: str) -> bool:
    """Whether an attribute is a field that instances of the class hold: a slot, a field of a named tuple, or one of a
    dataclass whose class has no descriptor of that name."""
    found = next((vars(owner)[name] for owner in cls.__mro__ if name in vars(owner)), None)
    if type(found) in (MemberDescriptorType, _FIELD_OF_NAMED_TUPLE):
        return True
    return name in getattr(cls, "__dataclass_fields__", ()) and not hasattr(type(found), "__get__")


_FIELD_OF_NAMED_TUPLE = type(vars(namedtuple("_Sample", "field"))["field"])


def plain_selector(selector: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The program's own key selector, for messages."""
    return selector._select if isinstance(selector, TypedKeySelector) else selector


def selected(selector: Callable[[Any], Any], values: list[Any], where: str = "") -> list[Any]:
    """The keys of a batch of records; a `TypedKeySelector` computes them in one call. ``where`` names the operator in
    errors."""
    if isinstance(selector, TypedKeySelector):
        return selector.of_batch(values, where)
    return result_of_each(selector, values, "the key selector", where)


class ListKey(list[Any]):
    """A list as a key; it must never be changed.

    A list has no hash, so inside the engine a key that holds one is a `ListKey` or a `TupleKey`: equal to what the key
    selector returned, with the hash of the tuple of its elements. User code gets what the selector returned (`thawed`),
    as a list of its own, which it may change. Keys that are hashable themselves stay as they are.
    """

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
    was sent, and so is one that can be found again (`Repetition`). So once there are more than ``limit`` keys, too many
    to remember, only a sample of such keys is checked.
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
