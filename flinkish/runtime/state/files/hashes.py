"""The 64-bit hashes by which rows of state are ordered and found in files.

Rule: equal values have equal hashes in every process, even when their encodings differ (``1 == True == 1.0``). Unequal
values may share a hash: a caller that finds a row by its hash compares the value itself.

The raw hash of a value is the one of `flinkish.runtime.stable_hash`. It is mixed with the name of the state and the
namespace, so that the groups of a subtask are spread evenly over the range of 64 bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from flinkish.core.window.window import Window
from flinkish.errors import InvalidKeyError
from flinkish.runtime.stable_hash import raw_hash
from flinkish.runtime.stable_hashes import Hashes, mix, raw_hashes

_MASK = (1 << 64) - 1
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: the raw hash of all values that have no hash which is the same in every process
_NO_HASH = 0x6E6F68617368


def group_hashes(state: str, namespace: Hashable, keys: Sequence[Any]) -> Hashes:
    """The hashes of the groups (state, namespace, key) of many keys.

    Raises:
        InvalidKeyError: a value cannot be a key.
    """
    return mix((raw_hashes(keys) ^ _scope(state, [namespace])) * _MULTIPLIER)


def group_hashes_in(state: str, namespaces: Sequence[Hashable], keys: Sequence[Any]) -> Hashes:
    """`group_hashes` with one namespace for each key, or a single one for all keys; the hashes are the same."""
    return mix((raw_hashes(keys) ^ _scope(state, namespaces)) * _MULTIPLIER)


def entry_hashes(user_keys: Sequence[Any]) -> Hashes:
    """The hashes of the user keys of maps. A key without a stable hash (an object of an ordinary class, NaN) is
    allowed, as it is in a dict; all such keys share one hash, so that a map with many of them is slow but correct."""
    try:
        raw = raw_hashes(user_keys)
    except InvalidKeyError:
        raw = np.fromiter(map(_any_raw, user_keys), np.uint64, len(user_keys))
    return mix(raw * _MULTIPLIER)


def _scope(state: str, namespaces: Sequence[Hashable]) -> Hashes:
    """The part of the hashes that comes from the name of the state and the namespaces."""
    name = np.array([raw_hash(state) & _MASK], np.uint64)
    # many keys share a window or the void namespace: each distinct namespace is hashed once
    known = {namespace: _namespace_raw(namespace) for namespace in dict.fromkeys(namespaces)}
    raw = np.fromiter(map(known.__getitem__, namespaces), np.uint64, len(namespaces))
    return mix(mix(name) ^ raw * _MULTIPLIER)


def _namespace_raw(namespace: Hashable) -> int:
    """The raw hash of a namespace; of a window, of its end, because windows of any class are equal only if they end at
    the same time."""
    return _any_raw(namespace.max_timestamp() if isinstance(namespace, Window) else namespace)


def _any_raw(value: Any) -> int:
    try:
        return raw_hash(value) & _MASK
    except InvalidKeyError:
        return _NO_HASH
