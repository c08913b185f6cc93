"""The text of a stored value, which people can read and edit with SQL: JSON for what JSON expresses exactly, else a
tagged pickle of data (`pickles`).

    "u42"                               a string
    42, 1.5, true, null                 numbers, booleans, None
    [1, 2]                              a list
    {"a": 1}                            a dict whose keys are strings that do not begin with "$"
    {"$dict": [[1, "one"]]}             any other dict, as pairs of key and value
    {"$tuple": ["a", 1]}                a tuple
    {"$row": [["id"], [1]]}             a Row of kind INSERT: its field names (or []) and its values
    {"$pickle": "gASV..."}              anything else

Rule: every value has a text, unless `read_value` would refuse it, as what is too large where each part counts as often
as it occurs; and every text is UTF-8. So a text that holds half of a surrogate pair, which Python allows and UTF-8 does
not, is pickled. So is a number with more digits than every Python process reads, and a value that is nested so deeply
that JSON could not be read back.
"""

from __future__ import annotations

import base64
import json
import sys
import types
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from flinkish.common.detach import copies_attributes
from flinkish.common.types import Row
from flinkish.core.window.window import TimeWindow
from flinkish.errors import FlinkishError, SavepointError, StoredClassError, UnsafeStateError
from flinkish.runtime import stored_names
from flinkish.runtime.stored.calls import are_short, check_arguments, check_keys, defining
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.names import data_name
from flinkish.runtime.stored.pickles import Pickler, dumps_data
from flinkish.runtime.stored.reader import attributes_in, is_attribute, read_value, weight_max
from flinkish.runtime.stored_names import CONSTRUCTORS, SIGNATURES

#: `json.dumps` would make an encoder for each value.
_JSON = json.JSONEncoder(ensure_ascii=False)


#: Types whose values JSON expresses exactly, but for the few texts and integers that `has_json` says.
PLAIN = (str, int, float, bool, type(None))


#: The number of digits of an integer that any process reads, whatever limit is set for it.
DIGITS_MAX = sys.int_info.str_digits_check_threshold


_INTEGER_END = 10**DIGITS_MAX


#: Values that are nested more deeply are pickled. A dict or tuple takes two levels of JSON.
DEPTH_MAX = 100


class _TooDeepError(Exception):
    """A value is nested more deeply than `DEPTH_MAX`."""


def to_text(value: Any, classes: ProgramClasses = NO_CLASSES) -> str:
    """The text of a value.

    >>> to_text(("a", 1)), to_text([1, None]), to_text({"a": 1})
    ('{"$tuple": ["a", 1]}', '[1, null]', '{"a": 1}')
    """
    try:
        return _JSON.encode(_encode(value, classes, 0))
    except (_TooDeepError, UnsafeStateError):
        return _JSON.encode(_pickled(value, classes))


def has_json(value: Any) -> bool:
    """Whether JSON in UTF-8 expresses a plain value.

    >>> has_json("ä"), has_json("\\ud83d"), has_json(10**1000)
    (True, False, False)
    """
    if type(value) is str:
        return is_unicode(value)
    return type(value) is not int or -_INTEGER_END < value < _INTEGER_END


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded in UTF-8: whether it holds no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def from_text(text: str, where: str = "", classes: ProgramClasses = NO_CLASSES) -> Any:
    """The inverse of :func:`to_text`.

    Raises:
        SavepointError: the text is not the text of a value, for example after an edit.
        StoredClassError: the program does not have a class that it names.
        UnsafeStateError: it names something that is neither data nor a class of the program.
    """
    try:
        return decode_json(json.loads(text), classes)
    except FlinkishError as error:
        error.where = error.where or where
        raise
    except Exception as error:
        raise SavepointError(
            f"the text {text[:200]!r} is not a value: {str(error)[:300]}",
            where=where,
            expected='JSON, with {"$tuple": [...]} for tuples',
            hint="mend the row in the savepoint's table",
        ) from error


def _encode(value: Any, classes: ProgramClasses, depth: int) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value if has_json(value) else _pickled(value, classes)
    depth += 1
    if depth > DEPTH_MAX:
        raise _TooDeepError
    if kind is list:
        return [_encode(item, classes, depth) for item in value]
    if kind is tuple:
        return {"$tuple": [_encode(item, classes, depth) for item in value]}
    if kind is dict and all(type(key) is str and not key.startswith("$") and is_unicode(key) for key in value):
        return {key: _encode(item, classes, depth) for key, item in value.items()}
    if kind is dict:
        check_keys(list(value))
        pairs = value.items()
        return {"$dict": [[_encode(key, classes, depth), _encode(item, classes, depth)] for key, item in pairs]}
    if kind is Row and not _has_kind(value) and all(type(n) is str and is_unicode(n) for n in _field_names(value)):
        return {"$row": [_field_names(value), [_encode(item, classes, depth) for item in value]]}
    return _pickled(value, classes)


def _pickled(value: Any, classes: ProgramClasses) -> dict[str, str]:
    return {"$pickle": base64.b64encode(_dumps_readable(value, classes)).decode()}


def _dumps_readable(value: Any, classes: ProgramClasses) -> bytes:
    """`dumps_data` for texts, of which `read_value` takes only what is bounded.

    Raises:
        StoredClassError: it would be refused, as what is too large if each part counts as often as it occurs.
    """
    data = dumps_data(value, classes)
    judge = _Judge(_Bounded(weight_max(len(data))), classes)
    if not judge.is_flat(value):
        judge.fast = True  # without a memo, so that each object is written as often as it occurs
        try:
            judge.dump(value)
        except Exception:  # it cannot tell
            try:
                read_value(data, classes)
            except Exception as error:
                raise StoredClassError(
                    f"a {type(value).__qualname__} cannot be a text of a savepoint: {getattr(error, 'what', error)}",
                    expected="values that hold little more than once, and do not hold themselves in a tuple or a key",
                    hint="leave a reference back out in __getstate__, and set it in __setstate__ of what it leads to",
                ) from None
    return data


class _Bounded:
    """A stream that takes at most so many bytes, and keeps none."""

    def __init__(self, at_most: int) -> None:
        self._left = at_most

    def write(self, data: Any) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("too many bytes")


#: Types whose values hold no others.
_SIMPLE = frozenset({bool, bytes, bytearray, complex, date, float, int, str, TimeWindow, type(None)})


class _Judge(Pickler):
    """A pickler for what nobody reads, which passes what `read_value` takes for certain: by the checks of the reader,
    which gets the first object of each class. It raises an error where only the reader itself can tell."""

    def is_flat(self, value: Any) -> bool:
        """Whether a value, as most objects, only has attributes that hold no others."""
        cls = type(value)
        if cls in _SIMPLE or (cls is datetime and value.tzinfo is None):
            return True
        if cls is Decimal:
            return SIGNATURES["decimal:Decimal"]((str(value),))
        if cls not in self.constructors.read_again or not copies_attributes(cls):
            return False
        attributes = vars(value)
        return _SIMPLE.issuperset(map(type, attributes.values())) and all(map(is_attribute, attributes))

    def persistent_id(self, obj: Any) -> Any:
        """What stands for a constructor, whose name need not be looked up."""
        cls = type(obj)
        if cls in (dict, set, frozenset) and not are_short(list(obj)):
            raise ValueError("keys that take long, or are nested")
        return 0 if cls is types.FunctionType and obj in CONSTRUCTORS else None

    def reducer_override(self, obj: Any) -> Any:
        reduced, cls = super().reducer_override(obj), type(obj)
        if reduced is NotImplemented or reduced[0] is stored_names.member:
            return reduced
        function, arguments, *more = reduced
        if function is stored_names.make and more[1:] in ([], [None, None]):
            if cls not in self.constructors.read_again:
                read_value(dumps_data(obj, self.classes), self.classes)
                self.constructors.read_again.add(cls)
            attributes_in(cls, more[0] if more else None, defining(cls, "__setstate__"))
        elif any(part is not None for part in more):
            raise ValueError("a container of another class")
        else:
            name = function.__name__ if function in CONSTRUCTORS else data_name(function) or ""
            if function is stored_names.call:
                name, *arguments = arguments
            check_arguments(name, tuple(arguments))
        return reduced


def decode_json(value: Any, classes: ProgramClasses) -> Any:
    """The value that parsed JSON stands for. May raise any exception if it stands for none."""
    if isinstance(value, list):
        return [decode_json(item, classes) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        tag, content = next(iter(value.items()))
        if tag in _DECODERS:
            return _DECODERS[tag](content, classes)
    return {key: decode_json(item, classes) for key, item in value.items()}


def _decode_row(content: Any, classes: ProgramClasses) -> Row:
    names, values = content
    if type(names) is not list or not set(map(type, names)) <= {str}:
        raise ValueError("the names of the fields of a Row are no texts")
    row = Row(*[decode_json(item, classes) for item in values])
    if names:
        row.set_field_names(names)
    return row


def _decode_dict(content: Any, classes: ProgramClasses) -> dict[Any, Any]:
    pairs = [(decode_json(key, classes), decode_json(item, classes)) for key, item in content]
    check_keys([key for key, _ in pairs])
    return dict(pairs)


def _field_names(row: Row) -> list[str]:
    return list(getattr(row, "_fields", None) or [])


def _has_kind(row: Row) -> bool:
    return row.get_row_kind().value != 0


_DECODERS: dict[str, Callable[[Any, ProgramClasses], Any]] = {
    "$tuple": lambda content, classes: tuple(decode_json(item, classes) for item in content),
    "$dict": _decode_dict,
    "$row": _decode_row,
    "$pickle": lambda content, classes: read_value(base64.b64decode(content), classes),
}
