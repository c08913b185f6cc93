"""Hashes of many keys at once, with numpy: `stable_hashes`, and the 64-bit hashes that order rows of state in files.

Rule: equal values have equal hashes in every process, even when their encodings differ (``1 == True == 1.0``). Unequal
values may share a hash: a caller that finds a row by its hash compares the value itself.

The raw hash of a value is the one of `flinkish.runtime.stable_hash`. It is mixed with the name of the state and the
namespace, so that the groups of a subtask are spread evenly over the range of 64 bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flinkish.core.window.window import Window
from flinkish.errors import InvalidKeyError
from flinkish.runtime.stable_hash import STABLE_HASH_MASK, raw_hash

Hashes = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: the raw hash of all values that have no hash which is the same in every process
_NO_HASH = 0x6E6F68617368
_WHOLE_NUMBERS = frozenset({int, bool})
_TEXTS = frozenset({str})


def stable_hashes(values: Sequence[Any]) -> Hashes:
    """`stable_hash` of each value, for lists of integers or of strings in a sixth of the time.

    Raises:
        InvalidKeyError: a value cannot be a key.
    """
    hashes: Hashes = mix(raw_hashes(values)) & np.uint64(STABLE_HASH_MASK)
    return hashes


def raw_hashes(values: Sequence[Any]) -> Hashes:
    """`raw_hash` of each value, computed for lists of integers or of strings without a Python call per value."""
    kinds = set(map(type, values))
    if kinds <= _WHOLE_NUMBERS:
        return np.fromiter(map(hash, values), np.int64, len(values)).view(np.uint64)
    if kinds == _TEXTS:
        data = [value.encode("utf-8", "surrogatepass") for value in values]
        crc = np.fromiter(map(zlib.crc32, data), np.uint64, len(data))
        raw: Hashes = crc | np.fromiter(map(zlib.adler32, data), np.uint64, len(data)) << np.uint64(32)
        return raw
    return np.fromiter((raw_hash(value) & _MASK for value in values), np.uint64, len(values))


def mix(values: Hashes) -> Hashes:
    """The 64-bit finalizer of MurmurHash3, over an array: spreads values that differ in few bits."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    mixed: Hashes = values ^ (values >> np.uint64(33))
    return mixed


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
