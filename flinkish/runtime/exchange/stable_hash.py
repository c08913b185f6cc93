"""A hash of keys that is the same in every process and agrees with Python's equality.

State is looked up with ``==`` in the process that owns the key group, so two equal keys must be in the same key group:
``1``, ``1.0``, ``True``, ``Decimal(1)`` and their numpy counterparts are one key. Python's own hash of numbers agrees
with equality and is not randomised; that of strings and bytes is randomised per process, so those are hashed here. The
name of a key's class is not part of the hash, so that keys stay in their groups when the class is renamed. A key that
is not equal to itself (NaN) could never be found again and is refused. A list has the hash of the tuple of its
elements, though it is not equal to that tuple.
"""

from __future__ import annotations

import datetime as dt
import enum
import numbers
import uuid
import zlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from typing import Any

from flinkish.common.types import Row
from flinkish.errors import InvalidKeyError

#: `stable_hash` has these bits of the mixed raw hash.
STABLE_HASH_MASK = 0x7FFFFFFF
_MASK = (1 << 64) - 1
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def stable_hash(key: Any) -> int:
    """The hash of a key, a non-negative integer of 31 bits.

    >>> stable_hash(1) == stable_hash(1.0) == stable_hash(True)
    True
    """
    return _mix(raw_hash(key)) & STABLE_HASH_MASK


def raw_hash(key: Any) -> int:
    """The raw hash of a value: any int, not spread evenly over a range. Equal values have equal raw hashes."""
    hasher = _HASHERS.get(type(key))
    if hasher is not None:
        return hasher(key)
    return _raw_of_other(key)


def _raw_of_other(key: Any) -> int:
    """The raw hash of a value whose type is a subclass or rare; the most specific kinds are tried first."""
    # a member of an enum that is also a number, a string, ... equals that value, so it is handled below
    if isinstance(key, enum.Enum) and type(key).__hash__ is enum.Enum.__hash__:
        return _number(key.value) if isinstance(key, enum.Flag) else _text(key.name)
    if hasattr(key, "dtype") and hasattr(key, "item") and not isinstance(key, (str, bytes)):
        return _numpy(key)
    if isinstance(key, (numbers.Number, Decimal)):
        return _number(key)
    for kind, hasher in _HASHERS.items():
        if kind is not type(None) and isinstance(key, kind):
            if kind in _COMPARED_BY_CONTENT:
                _check_own_hash(key, kind)
            return hasher(key)
    if is_dataclass(key) and not isinstance(key, type) and type(key).__hash__ not in (None, object.__hash__):
        return _combine(*(raw_hash(getattr(key, name)) for name in _compared_fields(type(key))))
    raise _no_hash(key)


def _check_own_hash(key: Any, kind: Any) -> None:
    """Refuse a key whose class has an equality of its own, which shows in a hash that is not that of the content."""
    if type(key).__hash__ is not kind.__hash__ and hash(key) != kind.__hash__(key):
        raise _own_equality(type(key), f"a plain {kind.__name__}")


@lru_cache
def _compared_fields(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass by which its instances are equal; a class with an ``__eq__`` of its own is refused."""
    code = getattr(cls.__eq__, "__code__", None)
    if code is not None and code.co_filename != _GENERATED:
        raise _own_equality(
            cls, "a dataclass whose equality follows from its fields; field(compare=False) leaves one out"
        )
    return tuple(f.name for f in fields(cls) if f.compare)


def _own_equality(cls: type, expected: str) -> InvalidKeyError:
    return InvalidKeyError(
        f"a key is of type {cls.__name__}, whose equality is its own, so that equal keys could get different subtasks",
        expected=expected,
        hint="return from the key selector what decides whether two keys are equal, such as a lower-case text or an id",
    )


def _no_hash(key: Any) -> InvalidKeyError:
    return InvalidKeyError(
        f"a key of type {type(key).__name__} has no hash that is the same in every process",
        expected="None, bool, int, float, Decimal, str, bytes, date, time, datetime, timedelta, UUID, Enum, "
        "or a list, tuple, frozenset, Row or frozen dataclass of these",
        hint="return such a value from the key selector, for example tuple(sorted(key)) for a set",
    )


def _number(key: Any) -> int:
    # Decimal's signaling NaN refuses to be compared
    if isinstance(key, Decimal) and key.is_nan() or key != key:
        raise _unequal_to_itself()
    return hash(key)


def _unequal_to_itself() -> InvalidKeyError:
    return InvalidKeyError(
        "a key is NaN", expected="a key that equals itself", hint="filter such records out or give them another key"
    )


def _numpy(key: Any) -> int:
    """The raw hash of a numpy scalar, which equals its Python counterpart."""
    if getattr(key, "ndim", None) != 0:
        raise _no_hash(key)
    if key.dtype.kind in "mM":
        return _numpy_time(key)
    value = key.item()
    # long doubles have no Python counterpart: their item is of their own type
    return _number(value) if isinstance(value, numbers.Number) else raw_hash(value)


def _numpy_time(key: Any) -> int:
    """The raw hash of a ``datetime64`` or ``timedelta64``, which equals the same time in other units, and in Python's
    types if these can represent it."""
    if key != key:
        raise _unequal_to_itself()
    micros = key.astype(f"{key.dtype.kind}8[us]")
    value = micros.item()
    if isinstance(value, int):
        # a year that Python's datetime does not have
        return value
    return raw_hash(value)


def _text(key: str) -> int:
    data = key.encode("utf-8", "surrogatepass")
    return zlib.crc32(data) | zlib.adler32(data) << 32


def _bytes(key: bytes) -> int:
    return zlib.crc32(key, 0x5BD1E995) | len(key) << 32


def _combine(*parts: int) -> int:
    result = 0x345678 + len(parts)
    for part in parts:
        result = _mix(result * 1000003 ^ (part & _MASK))
    return result


def _sequence(key: Any) -> int:
    return _combine(*map(raw_hash, key))


def _row(key: Row) -> int:
    """The raw hash of a Row; Rows with field names are equal in any order of their fields."""
    names = getattr(key, "_fields", None)
    if not names:
        return _combine(*map(raw_hash, key))
    return _combine(*(raw_hash(value) for _, value in sorted(zip(names, key), key=itemgetter(0))))


def _set(key: frozenset[Any]) -> int:
    return _combine(*sorted(map(_mix, map(raw_hash, key))))


def _datetime(key: dt.datetime) -> int:
    if key != key:
        # pandas' NaT
        raise _unequal_to_itself()
    # as in Python's own hash, because equality within one zone ignores the fold
    key = key.replace(fold=0)
    if key.utcoffset() is None:
        return _text(key.replace(tzinfo=None).isoformat())
    delta = key - _EPOCH
    return _combine(delta.days, delta.seconds, delta.microseconds)


def _time(key: dt.time) -> int:
    offset = key.replace(fold=0).utcoffset()
    if offset is None:
        return _text(key.replace(tzinfo=None, fold=0).isoformat())
    seconds = (key.hour * 60 + key.minute) * 60 + key.second
    return _combine(seconds - offset // dt.timedelta(seconds=1), key.microsecond)


_HASHERS: dict[type, Callable[[Any], int]] = {
    str: _text,
    int: hash,
    bool: hash,
    float: _number,
    type(None): lambda _: 0x6E756C6C,
    tuple: _sequence,
    list: _sequence,
    bytes: _bytes,
    frozenset: _set,
    dt.datetime: _datetime,
    dt.date: lambda key: _combine(0xDA7E, key.toordinal()),
    dt.time: _time,
    dt.timedelta: lambda key: _combine(0xDE17A, key.days, key.seconds, key.microseconds),
    uuid.UUID: lambda key: _combine(0x1D, key.int & _MASK, key.int >> 64),
    Row: _row,
}

#: The types of keys whose subclasses may have an equality of their own; times of pandas do, and agree with Python's.
_COMPARED_BY_CONTENT = frozenset({str, bytes, tuple, frozenset, Row})

#: The file of the code that `dataclasses` generates.
_GENERATED = "<string>"


def _mix(value: int) -> int:
    """The 64-bit finalizer of MurmurHash3: spreads keys that differ in few bits."""
    value &= _MASK
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
