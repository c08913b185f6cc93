"""Lists the texts under which an entry of state may lie in a table: the text of its key, and those of all equal keys.

Python's ``1``, ``True`` and ``1.0`` are one key, but three texts; and equal objects need not have the same pickle. So
an incremental checkpoint deletes the rows of all texts of a key, and is impossible if they cannot be listed.
"""

from __future__ import annotations

import datetime
from itertools import product
from typing import Any

from flinkish.runtime.exchange.keys import ListKey, TupleKey
from flinkish.runtime.stored.texts import to_text

#: The limit of texts per key, because a tuple of many zeros and ones has too many equal tuples.
_MAX_TEXTS = 16

#: Equal values of these types have the same text, and no value of another type is equal to them.
_PLAIN_KEYS = {str, bytes, type(None), datetime.date}


def key_texts(key: Any) -> list[str] | None:
    """The texts of all keys or namespaces that equal this one; None: they cannot be listed.

    >>> key_texts("a"), key_texts(1), key_texts(2.0)
    (['"a"'], ['1', 'true'], None)
    """
    twins = _twins(key)
    return None if twins is None else [to_text(twin) for twin in twins]


def can_be_told(key: Any) -> bool:
    """Whether the texts of all keys that equal this one can be listed."""
    return type(key) in _PLAIN_KEYS or type(key) is int or _twins(key) is not None


def _twins(key: Any) -> list[Any] | None:
    kind = type(key)
    if kind in _PLAIN_KEYS:
        return [key]
    if kind is int or kind is bool:
        return [int(key), bool(key)] if key in (0, 1) else [key]
    if kind not in (tuple, ListKey, TupleKey):
        return None
    twins = [_twins(item) for item in key]
    if any(item is None for item in twins):
        return None
    of_kind: type[Any] = list if kind is ListKey else tuple
    combined = [of_kind(items) for items in product(*(item or [] for item in twins))]
    return combined if len(combined) <= _MAX_TEXTS else None
