"""Key groups: the unit in which keyed state is placed and moved (Flink's KeyGroupRangeAssignment)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import filterfalse
from typing import TYPE_CHECKING, Any

from flinkish.errors import InvalidKeyError
from flinkish.runtime.stable_hash import stable_hash

if TYPE_CHECKING:
    from flinkish.runtime.state.files.hashes import Hashes

#: Number of distinct keys whose place a cache holds. Hashing a key costs ten times as much as a look-up.
KEY_CACHE_SIZE = 200_000

#: After so many keys of a batch that a cache does not know, it computes the places of all others at once.
_MANY_KEYS = 64


def key_group_of(key: Any, max_parallelism: int) -> int:
    """The key group of a key, ``0 <= group < max_parallelism``."""
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

    from flinkish.runtime.state.files.hashes import stable_hashes

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
