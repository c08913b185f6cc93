"""Key selectors that the engine makes of those of the program, and which keys must travel with their records.

Rule: a key of a declared type is what Flink's serializer would make of it, or None: PyFlink's keys are fields of a Row,
which may be null whatever their type. Where the serializer would make one key of several, the key is an error. Most
keys are of that type already, so a whole batch is checked before any of its keys is converted.

Rule: the receiver of a record uses the key by which the sender has chosen the receiver, as in Flink. It calls the
selector again only if that is known to read fields and nothing else (`can_be_repeated`), and the classes of the records
are known to run no code of the program then (`Repetition`), which the sender finds out batch by batch. All other keys,
which may be random, depend on time or count calls, travel with the records. The receiver checks the keys of both kinds
(`flinkish.runtime.list_keys.ReceivedKeys`).
"""

from __future__ import annotations

import copyreg
from array import array
from collections import namedtuple
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter, itemgetter
from types import MemberDescriptorType
from typing import Any, Generic

from flinkish.common.arguments import result_of_each
from flinkish.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.base import Mismatch, nullable_list
from flinkish.common.types import Row
from flinkish.errors import InternalError
from flinkish.runtime.code_scan import FieldsRead, only_reads_fields

#: The declared types of nearly all keys, each with the class of its keys and, for numbers, the code of the `array` that
#: holds those within the bounds of the type: to make one takes half the time of finding the least and the greatest key.
_PLAIN: tuple[tuple[TypeInformation, type, str | None], ...] = (
    (Types.STRING(), str, None),
    (Types.INT(), int, "i"),
    (Types.LONG(), int, "q"),
)


class TypedKeySelector:
    """A key selector that converts what another one returns."""

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
