"""Hashes of many values at once, with numpy: `stable_hashes`, the 64-bit hashes that order rows of state in files, and
those by which a savepoint's table is recognized, which Spark computes as well (`row_hashes`).

Rule: equal values have equal hashes in every process, even when their encodings differ (``1 == True == 1.0``). Unequal
values may share a hash: a caller that finds a row by its hash compares the value itself.

The raw hash of a value is the one of `stable_hash`. It is mixed with the name of the state and the namespace, so that
the groups of a subtask are spread evenly over the range of 64 bits.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flinkish.core.window.window import Window
from flinkish.errors import InvalidKeyError
from flinkish.runtime.exchange.stable_hash import STABLE_HASH_MASK, raw_hash

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
    return group_hashes_of(state, [namespace], raw_hashes(keys))


def group_hashes_in(state: str, namespaces: Sequence[Hashable], keys: Sequence[Any]) -> Hashes:
    """`group_hashes` with one namespace for each key, or a single one for all keys; the hashes are the same."""
    return group_hashes_of(state, namespaces, raw_hashes(keys))


def group_hashes_of(state: str, namespaces: Sequence[Hashable], raw: Hashes) -> Hashes:
    """`group_hashes_in` for keys of which the raw hashes are known."""
    return mix((raw ^ _scope(state, namespaces)) * _MULTIPLIER)


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


#: The constants of xxHash's XXH64.
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
#: The seed of Spark's ``xxhash64``.
_SEED = 42


def row_hashes(columns: Sequence[Sequence[str | None]]) -> list[int]:
    """The hash of each row of text columns, as Spark's ``xxhash64`` computes it: the hash of one column is the seed of
    the next one, and null changes nothing."""
    hashes: Hashes = np.full(len(columns[0]) if columns else 0, _SEED, np.uint64)
    for column in columns:
        numbers: dict[int, list[int]] = defaultdict(list)
        data = [None if text is None else text.encode() for text in column]
        for number, value in enumerate(data):
            if value is not None:
                numbers[len(value)].append(number)
        for size, some in numbers.items():
            together = b"".join(value for number in some if (value := data[number]) is not None)
            hashes[some] = _xxh64(np.frombuffer(together, np.uint8).reshape(len(some), size), hashes[some])
    signed: list[int] = hashes.view(np.int64).tolist()
    return signed


def _xxh64(data: npt.NDArray[np.uint8], seeds: Hashes) -> Hashes:
    """XXH64 of rows of bytes that have the same length, each with a seed of its own."""
    size = data.shape[1]
    striped = size // 32 * 32
    if striped:
        lanes = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
        for at in range(0, striped, 32):
            lanes = [_round(lane, _words(data, at + 8 * n, 8)) for n, lane in enumerate(lanes)]
        hashes = sum((_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18))), np.zeros_like(seeds))
        for lane in lanes:
            hashes = (hashes ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
    else:
        hashes = seeds + _P5
    hashes = hashes + np.uint64(size)
    for at in range(striped, size - 7, 8):
        hashes = _rotated(hashes ^ _round(np.zeros_like(hashes), _words(data, at, 8)), 27) * _P1 + _P4
    if size % 8 >= 4:
        hashes = _rotated(hashes ^ _words(data, size // 8 * 8, 4) * _P1, 23) * _P2 + _P3
    for at in range(size // 4 * 4, size):
        hashes = _rotated(hashes ^ data[:, at].astype(np.uint64) * _P5, 11) * _P1
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    mixed: Hashes = hashes ^ (hashes >> np.uint64(32))
    return mixed


def _words(data: npt.NDArray[np.uint8], at: int, size: int) -> Hashes:
    """The number that the bytes from ``at`` on stand for, in each row."""
    words: Hashes = np.ascontiguousarray(data[:, at : at + size]).view(f"<u{size}")[:, 0].astype(np.uint64)
    return words


def _round(lane: Hashes, words: Hashes) -> Hashes:
    mixed: Hashes = _rotated(lane + words * _P2, 31) * _P1
    return mixed


def _rotated(values: Hashes, turn: int) -> Hashes:
    rotated: Hashes = (values << np.uint64(turn)) | (values >> np.uint64(64 - turn))
    return rotated
