"""Key selectors whose keys are converted to a declared type.

Rule: a key of a declared type is what Flink's serializer would make of it, at the sender and at the receiver alike.
Most keys are of that type already, so a whole batch is checked before any of its keys is converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.common.typeinfo import TypeInformation, Types

#: The declared types of nearly all keys, each with the class of its keys and, for numbers, their bounds.
_PLAIN: tuple[tuple[TypeInformation, type, tuple[int, int] | None], ...] = (
    (Types.STRING(), str, None),
    (Types.INT(), int, (-(2**31), 2**31 - 1)),
    (Types.LONG(), int, (-(2**63), 2**63 - 1)),
)


class TypedKeySelector:
    """A key selector that converts what another one returns."""

    def __init__(self, select: Callable[[Any], Any], key_type: TypeInformation) -> None:
        self._select = select
        self._key_type = key_type
        #: a key of this class and within these bounds needs no conversion; if the class is None, every key does
        self._plain: type | None = None
        self._bounds: tuple[int, int] | None = None
        for plain_type, plain, bounds in _PLAIN:
            if key_type == plain_type:
                self._plain, self._bounds = plain, bounds

    @property
    def gives_plain_keys(self) -> bool:
        """Whether all keys are texts or numbers, which can be looked up as they are."""
        return self._plain is not None

    def __call__(self, value: Any) -> Any:
        """The key of a record."""
        return self._key_type.convert(self._select(value), "the key")

    def of_batch(self, values: list[Any]) -> list[Any]:
        """The keys of a batch of records."""
        keys = list(map(self._select, values))
        if set(map(type, keys)) == {self._plain}:
            if self._bounds is None or self._bounds[0] <= min(keys) and max(keys) <= self._bounds[1]:
                return keys
        return [self._key_type.convert(key, "the key") for key in keys]


def selected(selector: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """The keys of a batch of records; a `TypedKeySelector` computes them in one call."""
    return selector.of_batch(values) if isinstance(selector, TypedKeySelector) else list(map(selector, values))
