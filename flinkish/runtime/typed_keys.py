"""Key selectors that the engine makes of those of the program, and which keys must travel with their records.

Rule: a key of a declared type is what Flink's serializer would make of it, or None: PyFlink's keys are fields of a Row,
which may be null whatever their type. Most keys are of that type already, so a
whole batch is checked before any of its keys is converted.

Rule: the receiver of a record uses the key by which the sender has chosen the receiver, as in Flink. It calls the
selector again only if that is known to read fields and nothing else (`can_be_repeated`). The keys of all other
selectors, which may be random, depend on time or count their calls, travel with the records.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

from flinkish.common.arguments import result_of_each
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.errors import InternalError
from flinkish.runtime.code_scan import only_reads_fields

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

    @property
    def can_be_repeated(self) -> bool:
        """Whether the selector is known to give the same key for the same record each time."""
        return can_be_repeated(self._select)

    def __call__(self, value: Any) -> Any:
        """The key of a record."""
        key = self._select(value)
        return None if key is None else self._key_type.convert(key, "the key")

    def of_batch(self, values: list[Any], where: str = "") -> list[Any]:
        """The keys of a batch of records."""
        keys = selected(self._select, values, where)
        if set(map(type, keys)) == {self._plain}:
            if self._bounds is None or self._bounds[0] <= min(keys) and max(keys) <= self._bounds[1]:
                return keys
        convert = self._key_type.convert
        return [None if key is None else convert(key, "the key") for key in keys]


class EitherKeySelector:
    """The key selector of records of two streams in one, as (0, record) and (1, record)."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._selectors = first, second

    @property
    def can_be_repeated(self) -> bool:
        """Whether both selectors are known to give the same key for the same record each time."""
        return all(map(can_be_repeated, self._selectors))

    def __call__(self, tagged: tuple[int, Any]) -> Any:
        """The key of a record."""
        side, value = tagged
        return self._selectors[side](value)


class SentKeys:
    """Stands for a key selector at a receiver whose records come with their keys: it is never called."""

    def __call__(self, value: Any) -> Any:
        raise InternalError("a record has come without its key", expected="the key that its sender has computed")


def can_be_repeated(selector: Callable[[Any], Any]) -> bool:
    """Whether a key selector is known to give the same key for the same record each time."""
    if isinstance(selector, (TypedKeySelector, EitherKeySelector)):
        return selector.can_be_repeated
    return type(selector) in (itemgetter, attrgetter) or only_reads_fields(selector)


def plain_selector(selector: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The program's own key selector, for messages."""
    return selector._select if isinstance(selector, TypedKeySelector) else selector


def selected(selector: Callable[[Any], Any], values: list[Any], where: str = "") -> list[Any]:
    """The keys of a batch of records; a `TypedKeySelector` computes them in one call. ``where`` names the operator in
    errors."""
    if isinstance(selector, TypedKeySelector):
        return selector.of_batch(values, where)
    return result_of_each(selector, values, "the key selector", where)
