"""What makes the values that stored values name: the constructors that flinkish owns, and the signatures of data.

Rule: no class and no function is ever a value of whoever reads. A name is the argument of a constructor, or stands for
one itself; what a reader holds for it has no attributes that could be set. Each constructor of data has a signature,
which is checked before it is called, so that it makes only as much as its arguments are long.

Names are ``module:Qualified.Name``, for data (`stored.names`) as for classes of the program (`ProgramClasses`).
"""

from __future__ import annotations

import builtins
import datetime
import math
import re
import sys
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from flinkish.common.types import RowKind
from flinkish.errors import FlinkishError, UnsafeStateError

#: This module in pickles, which hold its constructors by reference: it stays where it is.
OWN = "flinkish.runtime.stored_names"


# ------------------------------------------------------------------------------------- data with checked arguments


def refused(what: str, why: str) -> UnsafeStateError:
    """The error for a stored value that is, or holds, what no version of flinkish has stored."""
    return UnsafeStateError(
        f"it {what}"[:300] + f", which {why}",
        expected="data that this version of flinkish has stored",
        hint="do not use it unless you know where it comes from; nothing of it was executed",
    )


def refused_data(what: str) -> UnsafeStateError:
    return refused(f"holds {what}", "is neither data nor a class of the program")


class OldFormError(Exception):
    """A value has the form of former versions, with classes as values of the unpickler. `stored.reader` reads it."""


def refused_name(module: str, name: str) -> UnsafeStateError:
    """The error for a name that stands for nothing that is stored."""
    return refused_data(f"the name {module}.{name}")


def zone(key: str) -> Any:
    """The time zone of a name."""
    return zoneinfo.ZoneInfo(key)


def checked_dtype(layout: Any) -> Any:
    """The dtype of a numpy value. A dtype that holds pointers is refused, since stored bytes could make these point
    anywhere."""
    import numpy

    dtype = numpy.dtype(layout) if isinstance(layout, (str, list)) else None
    if dtype is None or dtype.hasobject:
        raise UnsafeStateError(f"{str(layout)[:100]} is not the layout of plain numbers or texts")
    return dtype


#: Elements without bytes, such as empty texts, are not bounded by the data of an array.
_EMPTY_ELEMENTS_MAX = 1_000


def array(layout: Any, shape: tuple[int, ...], data: bytes) -> Any:
    """The numpy array of this layout and shape, which has exactly these bytes."""
    import numpy

    dtype = checked_dtype(layout)
    elements = math.prod(shape)
    if elements * dtype.itemsize != len(data) or (not dtype.itemsize and elements > _EMPTY_ELEMENTS_MAX):
        raise UnsafeStateError(
            f"an array of {dtype} and shape {str(shape)[:100]} has {len(data)} bytes",
            expected=f"{elements * dtype.itemsize} bytes",
        )
    if not data:
        return numpy.zeros(shape, dtype)
    found = numpy.frombuffer(bytearray(data), dtype).reshape(shape)
    _check_texts(found)
    return found


def _check_texts(found: Any) -> None:
    """Refuse an array of texts with numbers in place of characters that are none."""
    import numpy

    for name in found.dtype.names or ():
        _check_texts(found[name])
    if found.dtype.kind == "U" and found.dtype.itemsize and found.size:
        numbers = numpy.ascontiguousarray(found).view(numpy.dtype("u4").newbyteorder(found.dtype.byteorder))
        if numbers.max() > sys.maxunicode:
            raise UnsafeStateError(f"an array of {found.dtype} has texts with numbers that are no characters")


def scalar(layout: Any, data: bytes) -> Any:
    """The numpy scalar of this layout."""
    import numpy

    dtype = checked_dtype(layout)
    # texts and bytes are made by their own types: numpy's buffers cannot hold empty ones, nor zeros at the end
    if dtype.kind == "S":
        return numpy.bytes_(data[: dtype.itemsize])
    if dtype.kind == "U":
        encoding = "utf-32-be" if dtype.str.startswith(">") else "utf-32-le"
        return numpy.str_(data[: dtype.itemsize].decode(encoding, "surrogatepass"))
    if len(data) != dtype.itemsize:
        raise UnsafeStateError(f"a number of {dtype} has {len(data)} bytes")
    return array(layout, (1,), data)[0] if data else dtype.type()


def objects(shape: tuple[int, ...], values: list[Any]) -> Any:
    """The numpy array of these objects."""
    import numpy

    found = numpy.empty(len(values), object)
    # one by one: all at once, numpy would look for elements in the objects
    for index, value in enumerate(values):
        found[index] = value
    return found.reshape(shape)


# -------------------------------------------------------------------------------------------------------- signatures

#: Whether a constructor takes these arguments.
Signature = Callable[[tuple[Any, ...]], bool]

_NONE = type(None)
_INT, _TEXT, _TEXT_OR_NONE, _BYTES = (int,), (str,), (str, _NONE), (bytes,)
#: What has its size in the text, and nothing inside.
ATOMS = frozenset({_NONE, bool, int, float, str, bytes})
_INT64 = range(-(2**63) + 1, 2**63)
#: Decimal numbers with larger exponents stand for numbers of any length once they are taken as integers. No operation
#: in the default context of ``decimal`` has such a result.
_EXPONENTS = range(-1_999_999, 1_000_000)


def of_types(*kinds: tuple[type, ...], least: int | None = None) -> Signature:
    """The signature of one argument of each of these types, of which the first ``least`` must be there."""
    fewest = len(kinds) if least is None else least

    def takes(arguments: tuple[Any, ...]) -> bool:
        return fewest <= len(arguments) <= len(kinds) and all(
            type(argument) in kind for argument, kind in zip(arguments, kinds)
        )

    return takes


def _fits(*checks: Callable[[Any], bool]) -> Signature:
    """The signature of one argument for each of these checks."""
    return lambda arguments: len(arguments) == len(checks) and all(check(a) for check, a in zip(checks, arguments))


def _is_number(found: Any) -> bool:
    return type(found) in (int, float) or (type(found).__module__ == "numpy" and type(found).__name__ != "ndarray")


def _is_bytes(found: Any) -> bool:
    return type(found) is bytes


def texts(arguments: tuple[Any, ...]) -> bool:
    return set(map(type, arguments)) <= {str}


def _moment(arguments: tuple[Any, ...]) -> bool:
    """The bytes of a point in time, and perhaps its time zone."""
    return 1 <= len(arguments) <= 2 and type(arguments[0]) is bytes and all(map(_is_zone, arguments[1:]))


def _is_zone(found: Any) -> bool:
    return issubclass(type(found), datetime.tzinfo)


def _decimal(arguments: tuple[Any, ...]) -> bool:
    # a number may be compared with an integer, which takes the square of its digits
    if not of_types(_TEXT)(arguments) or len(arguments[0]) > 100_000:
        return False
    return Decimal(arguments[0]).adjusted() in _EXPONENTS


def _fraction(arguments: tuple[Any, ...]) -> bool:
    # a text may have an exponent, and so stand for a number of any length; long numbers take long to be reduced
    return len(arguments) <= 2 and all(map(_is_ratio, arguments))


def _is_ratio(found: Any) -> bool:
    if type(found) is int:
        return found.bit_length() < 1 << 16
    return type(found) is str and len(found) < 20_000 and found.replace("-", "", 1).replace("/", "", 1).isdecimal()


def _factory(arguments: tuple[Any, ...]) -> bool:
    return len(arguments) <= 1 and all(found is None or isinstance(found, type) for found in arguments)


def _row(arguments: tuple[Any, ...]) -> bool:
    if not of_types((list, _NONE), (tuple, list), (RowKind,), least=2)(arguments):
        return False
    return arguments[0] is None or texts(arguments[0])


def _flinkish_error(arguments: tuple[Any, ...]) -> bool:
    cls, *rest = arguments or (None,)
    is_error = isinstance(cls, type) and issubclass(cls, FlinkishError)
    return is_error and of_types(*[_TEXT] * 4, (dict,))(tuple(rest)) and texts(rest[4])


def _array_array(arguments: tuple[Any, ...]) -> bool:
    cls, *rest = arguments or (None,)
    if not (isinstance(cls, type) and of_types(_TEXT, _INT, _BYTES)(tuple(rest))):
        return False
    typecode, form, data = rest
    if typecode in "uw" and form in (20, 21):  # texts in UTF-32, whose bytes are taken as they are
        data.decode("utf-32-be" if form == 21 else "utf-32-le", "surrogatepass")
    return form in range(22)


def _timedelta64(arguments: tuple[Any, ...]) -> bool:
    return of_types(_INT, _INT, least=1)(arguments) and arguments[0] in _INT64 and _are_units(arguments[1:])


def _timestamp64(arguments: tuple[Any, ...]) -> bool:
    if not 3 <= len(arguments) <= 4 or type(arguments[0]) is not int or arguments[1] is not None:
        return False
    # pandas calls methods of a zone when it makes the moment
    zone_module = type(arguments[2]).__module__.partition(".")[0]
    has_zone = arguments[2] is None or (_is_zone(arguments[2]) and zone_module in ("datetime", "pytz", "zoneinfo"))
    return arguments[0] in _INT64 and has_zone and _are_units(arguments[3:])


def _are_units(numbers: tuple[Any, ...]) -> bool:
    """Whether these are numpy's numbers for seconds to nanoseconds."""
    return all(type(number) is int and 7 <= number <= 10 for number in numbers)


def _shape(found: Any) -> bool:
    return type(found) is tuple and len(found) <= 32 and all(type(n) is int and 0 <= n < 2**40 for n in found)


_PLAIN_LAYOUT = re.compile(r"[<>|=]?[?biufcmMSUV]\d{0,9}(\[\d{0,9}\w{1,7}(/\d{1,9})?\])?")


def _layout(found: Any, levels: int = 8) -> bool:
    if type(found) is str:
        return _PLAIN_LAYOUT.fullmatch(found) is not None
    return type(found) is list and levels > 0 and all(_field(field, levels - 1) for field in found)


def _field(found: Any, levels: int) -> bool:
    if type(found) is not tuple or not 2 <= len(found) <= 3:
        return False
    names = found[0] if type(found[0]) is tuple else found[:1]
    return len(names) <= 2 and texts(names) and _layout(found[1], levels) and all(map(_shape, found[2:]))


def has_class(arguments: tuple[Any, ...]) -> bool:
    return any(isinstance(argument, type) for argument in arguments)


def of_error(cls: type) -> Signature:
    """The signature of an exception of Python."""
    if issubclass(cls, UnicodeDecodeError):
        return lambda arguments: of_types(_TEXT, _BYTES, _INT, _INT, _TEXT)(arguments) and _is_range(*arguments[2:4])
    if issubclass(cls, UnicodeEncodeError):
        return lambda arguments: of_types(_TEXT, _TEXT, _INT, _INT, _TEXT)(arguments) and _is_range(*arguments[2:4])
    if issubclass(cls, UnicodeTranslateError):
        return lambda arguments: of_types(_TEXT, _INT, _INT, _TEXT)(arguments) and _is_range(*arguments[1:3])
    if issubclass(cls, SyntaxError):
        # the second one is unpacked
        return lambda arguments: all(type(place) is tuple for place in arguments[1:2]) and not has_class(arguments)
    if issubclass(cls, OSError):
        return _os_error
    if issubclass(cls, getattr(builtins, "BaseExceptionGroup", ())):
        return of_types(_TEXT, (tuple, list))
    return lambda arguments: not has_class(arguments)


def _os_error(arguments: tuple[Any, ...]) -> bool:
    # the first of several is looked up in a dictionary, and a number is made of the third
    atoms = (*arguments[:1], *arguments[2:]) if len(arguments) > 1 else ()
    return len(arguments) <= 5 and set(map(type, atoms)) <= ATOMS and not has_class(arguments)


def _is_range(start: int, end: int) -> bool:
    # the text of such an error reads at its start, and CPython does not look whether that is within the object
    return 0 <= start <= end < 2**31


SIGNATURES: dict[str, Signature] = {
    "builtins:bytearray": of_types((bytes, bytearray), least=0),
    "builtins:complex": of_types((float,), (float,)),
    "builtins:frozenset": of_types((list, tuple)),
    "builtins:range": of_types(_INT, _INT, _INT),
    "builtins:set": of_types((list, tuple)),
    "builtins:slice": lambda arguments: len(arguments) == 3 and not has_class(arguments),
    "collections:Counter": of_types((dict,), least=0),
    "collections:OrderedDict": of_types(),
    "collections:defaultdict": _factory,
    "collections:deque": of_types((tuple, list), (int, _NONE), least=0),
    "datetime:date": of_types(_BYTES),
    "datetime:datetime": _moment,
    "datetime:time": _moment,
    "datetime:timedelta": of_types(_INT, _INT, _INT),
    "datetime:timezone": of_types((datetime.timedelta,), _TEXT, least=1),
    "decimal:Decimal": _decimal,
    "fractions:Fraction": _fraction,
    "types:EllipsisType": of_types(),
    "types:NotImplementedType": of_types(),
    "types:SimpleNamespace": of_types(),
    "flinkish.core.window.window:CountWindow": _fits(_is_number),
    "flinkish.core.window.window:GlobalWindow": of_types(),
    "flinkish.core.window.window:TimeWindow": _fits(_is_number, _is_number),
    "array:_array_reconstructor": _array_array,
    "flinkish.common.types:_create_row": _row,
    "flinkish.errors:_rebuild": _flinkish_error,
    "pandas._libs.tslibs.nattype:__nat_unpickle": of_types((_NONE,), least=0),
    "pandas._libs.tslibs.timedeltas:_timedelta_unpickle": _timedelta64,
    "pandas._libs.tslibs.timestamps:_unpickle_timestamp": _timestamp64,
    "pytz:_UTC": of_types(),
    "pytz:_p": of_types(_TEXT, _INT, _INT, _TEXT, least=1),
    "zone": of_types(_TEXT),
    "array": _fits(_layout, _shape, _is_bytes),
    "scalar": _fits(_layout, _is_bytes),
    "objects": _fits(_shape, lambda found: type(found) is list),
}


# ------------------------------------------------------------------------------------------- classes of the program


def _outside(name: str) -> UnsafeStateError:
    return UnsafeStateError(f"{name} is called outside of a reader", hint="please report this")


def make(name: str, *arguments: Any) -> Any:
    """Stands in pickles for `stored.calls.Constructors.make`."""
    raise _outside("make")


def make_with_names(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Stands in pickles for `stored.calls.Constructors.make_with_names`."""
    raise _outside("make_with_names")


def call(name: str, *arguments: Any) -> Any:
    """Stands in pickles for `stored.calls.Constructors.call`."""
    raise _outside("call")


def call_with_classes(name: str, at: tuple[int, ...], *arguments: Any) -> Any:
    """Stands in pickles for `stored.calls.Constructors.call_with_classes`."""
    raise _outside("call_with_classes")


def reconstruct(name: str, base: str, value: Any) -> Any:
    """Stands in pickles for `stored.calls.Constructors.reconstruct`."""
    raise _outside("reconstruct")


def member(name: str, value: Any) -> Any:
    """Stands in pickles for `stored.calls.Constructors.member`."""
    raise _outside("member")


#: The constructors of this module by the names that pickles have for them.
WITH_CLASSES: tuple[Callable[..., Any], ...] = (make, make_with_names, call, call_with_classes, reconstruct, member)
WITHOUT_CLASSES: tuple[Callable[..., Any], ...] = (zone, array, scalar, objects)
#: What the writer may hand to pickle as a function.
CONSTRUCTORS = frozenset({*WITH_CLASSES, *WITHOUT_CLASSES})
