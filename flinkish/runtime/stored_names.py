"""What the names in stored values stand for: constructors of data, and of instances of the program's classes.

Rule: no class and no function is ever a value of whoever reads. A name is the argument of a constructor of this module,
or stands for a constructor itself; what a reader holds for it has no attributes that could be set. So stored bytes can
change nothing but the objects that are made from them.

A constructor makes only as much as its arguments are long. Names are ``module:Qualified.Name``, for data as for classes
of the program (`ProgramClasses`).
"""

from __future__ import annotations

import builtins
import enum
import importlib
import math
import types
import zoneinfo
from collections.abc import Callable
from typing import Any

from flinkish import errors
from flinkish.common import typeinfo
from flinkish.errors import FlinkishError, StoredClassError, UnsafeStateError
from flinkish.runtime.program_classes import ProgramClasses, stored_name


def _subclasses_in(module: types.ModuleType, base: type) -> set[str]:
    """The names of the subclasses of ``base`` that a module holds."""
    return {
        stored_name(value) for value in vars(module).values() if isinstance(value, type) and issubclass(value, base)
    }


def _names(named: dict[str, str]) -> frozenset[str]:
    return frozenset(f"{module}:{name}" for module, names in named.items() for name in names.split())


#: Classes whose instances are made by calling the class with what it has been reduced to.
_CALLED = _names(
    {
        "builtins": "bytearray complex range slice",
        "collections": "Counter OrderedDict defaultdict deque",
        "datetime": "date datetime time timedelta timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "ipaddress": "IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network",
        "pathlib": "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath",
        "types": "SimpleNamespace",
        "flinkish.core.window.window": "CountWindow GlobalWindow TimeWindow",
    }
) | _subclasses_in(builtins, BaseException)

#: Classes whose instances are made empty, and then get attributes or items.
_MADE = _names(
    {
        "builtins": "object",
        "collections": "ChainMap UserDict UserList UserString",
        "uuid": "UUID",
        "flinkish.common.time": "Duration Instant Time",
        "flinkish.common.accumulators": (
            "AverageAccumulator DoubleCounter Histogram IntCounter ListAccumulator LongCounter"
        ),
        "flinkish.core.error_handling": "DeadLetter",
        "flinkish.core.output_tag": "OutputTag",
        "flinkish.runtime.list_keys": "ListKey TupleKey",
        "flinkish.runtime.committing": "CommitReport",
        "flinkish.runtime.epoch_report": "EpochReport",
        "flinkish.runtime.report": "TaskPlace TaskReport",
        "flinkish.runtime.state.state_rows": "StateRow",
        "flinkish.runtime.state.declared_state": "DeclaredState",
        "flinkish.runtime.state.stored_values": "StoredState",
    }
) | _subclasses_in(typeinfo, typeinfo.TypeInformation)

_ENUMS = _names(
    {
        "uuid": "SafeUUID",
        "flinkish.common.types": "RowKind",
        "flinkish.common.typeinfo.basic": "BasicType",
        "flinkish.common.typeinfo.temporal": "LocalTimeTypeInfo.TimeType",
        "flinkish.core.time_domain": "TimeDomain",
    }
)

#: Functions by which classes reduce their instances, and which only make data.
_FUNCTIONS = _names(
    {
        "array": "_array_reconstructor",
        "flinkish.common.types": "_create_row",
        "flinkish.errors": "_rebuild",
        "pandas._libs.tslibs.nattype": "__nat_unpickle",
        "pandas._libs.tslibs.timedeltas": "_timedelta_unpickle",
        "pandas._libs.tslibs.timestamps": "_unpickle_timestamp",
        "pytz": "_UTC _p",
    }
)

#: Classes that a constructor may get as an argument, such as the factory of a ``defaultdict``.
_ARGUMENTS = (
    _names(
        {
            "builtins": "bool bytes dict float frozenset int list set str tuple",
            "array": "array",
        }
    )
    | _subclasses_in(errors, FlinkishError)
    | _CALLED
    | _MADE
)

#: All names of data; a test looks each of them up.
DATA_NAMES = _ARGUMENTS | _ENUMS | _FUNCTIONS | {"flinkish.common.types:Row"}


def _lookup(name: str) -> Any:
    """What a name of data stands for; such a module may be imported."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def data_name(found: Any) -> str | None:
    """The name of data that a class or function has; None if it is none, or just one of the same name."""
    name = f"{getattr(found, '__module__', None)}:{getattr(found, '__qualname__', None)}"
    # since Python 3.13 paths say that they are defined in a private module
    name = name.replace("pathlib._local:", "pathlib:")
    return name if name in DATA_NAMES and _lookup(name) is found else None


# ------------------------------------------------------------------------------------- data with checked arguments


def refused(what: str, why: str) -> UnsafeStateError:
    """The error for a stored value that is, or holds, what no version of flinkish has stored."""
    return UnsafeStateError(
        f"it {what}"[:300] + f", which {why}",
        expected="data that this version of flinkish has stored",
        hint="do not use it unless you know where it comes from; nothing of it was executed",
    )


def _refused(what: str) -> UnsafeStateError:
    return refused(f"holds {what}", "is neither data nor a class of the program")


class OldFormError(Exception):
    """A value has the form of former versions, with classes as values of the unpickler. `stored_reader` reads it."""


def _sized(kinds: tuple[type, ...], function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A constructor whose first argument, if it has one, is of one of these types: of what has its size in the stored
    value, and not of numbers or ranges, which stand for much more."""

    def construct(*arguments: Any) -> Any:
        if arguments and type(arguments[0]) not in kinds:
            raise _refused(f"{name} of a {type(arguments[0]).__name__}")
        return function(*arguments)

    return construct


def _fraction(*arguments: Any) -> Any:
    from fractions import Fraction

    # a text may have an exponent, and so stand for a number of any length
    if any(type(argument) is not int and not _is_ratio(argument) for argument in arguments):
        raise _refused("a Fraction that is no ratio of integers")
    return Fraction(*arguments)


def _is_ratio(text: Any) -> bool:
    return type(text) is str and text.replace("-", "", 1).replace("/", "", 1).isdecimal()


def _error(cls: Any, what: Any, where: Any, expected: Any, hint: Any, attributes: Any) -> Any:
    texts = (what, where, expected, hint)
    if not (isinstance(cls, type) and issubclass(cls, FlinkishError)) or set(map(type, texts)) != {str}:
        raise _refused("an error of a form that errors do not have")
    if type(attributes) is not dict or not set(map(type, attributes)) <= {str}:
        raise _refused("attributes of an error that are no names")
    return errors._rebuild(cls, what, where, expected, hint, attributes)


def _defaultdict(*arguments: Any) -> Any:
    from collections import defaultdict

    if arguments and not (arguments[0] is None or isinstance(arguments[0], type)):
        raise OldFormError
    return defaultdict(*arguments)


_CHECKED: dict[str, Callable[..., Any]] = {
    "builtins:bytearray": _sized((bytes, bytearray), bytearray, "a bytearray"),
    "collections:Counter": _sized((dict,), _lookup("collections:Counter"), "a Counter"),
    "collections:defaultdict": _defaultdict,
    "collections:OrderedDict": _sized((list, tuple), _lookup("collections:OrderedDict"), "an OrderedDict"),
    "collections:deque": _sized((list, tuple), _lookup("collections:deque"), "a deque"),
    "fractions:Fraction": _fraction,
    "flinkish.errors:_rebuild": _error,
}


def refused_name(module: str, name: str) -> UnsafeStateError:
    """The error for a name that stands for nothing that is stored."""
    return _refused(f"the name {module}.{name}")


def zone(key: str) -> Any:
    """The time zone of a name."""
    return zoneinfo.ZoneInfo(key)


def _checked_dtype(layout: Any) -> Any:
    """The dtype of a numpy value. A dtype that holds pointers is refused, since stored bytes could make these point
    anywhere."""
    import numpy

    dtype = numpy.dtype(layout) if isinstance(layout, (str, list)) else None
    if dtype is None or dtype.hasobject:
        raise UnsafeStateError(f"{str(layout)[:100]} is not the layout of plain numbers or texts")
    return dtype


#: Elements without bytes, such as empty texts, are not bounded by the data of an array.
_EMPTY_ELEMENTS_MAX = 1_000_000


def array(layout: Any, shape: tuple[int, ...], data: bytes) -> Any:
    """The numpy array of this layout and shape, which has exactly these bytes."""
    import numpy

    dtype = _checked_dtype(layout)
    elements = math.prod(shape)
    if elements * dtype.itemsize != len(data) or (not dtype.itemsize and elements > _EMPTY_ELEMENTS_MAX):
        raise UnsafeStateError(
            f"an array of {dtype} and shape {str(shape)[:100]} has {len(data)} bytes",
            expected=f"{elements * dtype.itemsize} bytes",
        )
    if not data:
        return numpy.zeros(shape, dtype)
    return numpy.frombuffer(bytearray(data), dtype).reshape(shape)


def scalar(layout: Any, data: bytes) -> Any:
    """The numpy scalar of this layout."""
    import numpy

    dtype = _checked_dtype(layout)
    # texts and bytes are made by their own types: numpy's buffers cannot hold empty ones, nor zeros at the end
    if dtype.kind == "S":
        return numpy.bytes_(data[: dtype.itemsize])
    if dtype.kind == "U":
        encoding = "utf-32-be" if dtype.str.startswith(">") else "utf-32-le"
        return numpy.str_(data[: dtype.itemsize].decode(encoding, "surrogatepass"))
    if len(data) != dtype.itemsize:
        raise UnsafeStateError(f"a number of {dtype} has {len(data)} bytes")
    return numpy.frombuffer(data, dtype)[0] if data else dtype.type()


def objects(shape: tuple[int, ...], values: list[Any]) -> Any:
    """The numpy array of these objects."""
    import numpy

    found = numpy.empty(len(values), object)
    found[:] = values
    return found.reshape(shape)


# ------------------------------------------------------------------------------------------- classes of the program


def _outside(name: str) -> UnsafeStateError:
    return UnsafeStateError(f"{name} is called outside of a reader", hint="please report this")


def make(name: str, *arguments: Any) -> Any:
    """Stands in pickles for `Constructors.make`."""
    raise _outside("make")


def make_with_names(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Stands in pickles for `Constructors.make_with_names`."""
    raise _outside("make_with_names")


def call(name: str, *arguments: Any) -> Any:
    """Stands in pickles for `Constructors.call`."""
    raise _outside("call")


def call_with_classes(name: str, at: tuple[int, ...], *arguments: Any) -> Any:
    """Stands in pickles for `Constructors.call_with_classes`."""
    raise _outside("call_with_classes")


def reconstruct(name: str, base: str, value: Any) -> Any:
    """Stands in pickles for `Constructors.reconstruct`."""
    raise _outside("reconstruct")


def member(name: str, value: Any) -> Any:
    """Stands in pickles for `Constructors.member`."""
    raise _outside("member")


#: The constructors of this module by the names that pickles have for them.
_WITH_CLASSES: tuple[Callable[..., Any], ...] = (make, make_with_names, call, call_with_classes, reconstruct, member)
_WITHOUT_CLASSES: tuple[Callable[..., Any], ...] = (zone, array, scalar, objects)
#: What the writer may hand to pickle as a function.
CONSTRUCTORS = frozenset({*_WITH_CLASSES, *_WITHOUT_CLASSES})

_SINGLETONS = frozenset({"pandas._libs.tslibs.nattype:__nat_unpickle", "pytz:_UTC", "pytz:_p"})
_SINGLETON_FUNCTIONS = frozenset({f"{__name__}:{function.__name__}" for function in (zone, member)})


class Constructors:
    """The constructors that a reader has for the names in stored values, and what the writer names objects.

    Args:
        classes: the classes of the program.
    """

    def __init__(self, classes: ProgramClasses) -> None:
        self._program = classes
        self._classes: dict[str, type] = {}
        self._by_name: dict[str, Callable[..., Any]] = {}
        for function in _WITHOUT_CLASSES:
            self._by_name[f"{__name__}:{function.__name__}"] = function
        for name in (function.__name__ for function in _WITH_CLASSES):
            self._by_name[f"{__name__}:{name}"] = getattr(self, name)

    def name_of(self, cls: type) -> str:
        """The name of a class of data or of the program.

        Raises:
            StoredClassError: the class could not be found again under its name.
        """
        return data_name(cls) or self._program.name_of(cls)

    def named(self, name: Any) -> Callable[..., Any] | None:
        """The constructor that a name of data stands for, None if it stands for none."""
        found = self._by_name.get(name)
        if found is None and (name in _CALLED or name in _FUNCTIONS):
            found = self._by_name[name] = _CHECKED.get(name) or _lookup(name)
        return found

    @staticmethod
    def is_fresh(name: str) -> bool:
        """Whether what a constructor returns is new, and nobody else has it."""
        return name not in _SINGLETONS and name not in _SINGLETON_FUNCTIONS

    def class_of(self, name: Any) -> type:
        """The class of data or of the program that has a name. It is never given to a stored value.

        Raises:
            UnsafeStateError: the name is no text.
            StoredClassError: the program has no class of that name.
        """
        # an object of another class could be equal to one text and read as another
        if type(name) is not str:
            raise _refused(f"a {type(name).__name__} in place of the name of a class")
        found = self._classes.get(name)
        if found is None:
            if name in _ARGUMENTS or name in _ENUMS:
                found = _lookup(name)
                assert isinstance(found, type)
            else:
                found = self._program.find(name)
            self._classes[name] = found
        return found

    def make(self, name: str, *arguments: Any) -> Any:
        """A new instance of a class, made without calling ``__init__``."""
        cls = self._makeable(name)
        if arguments and not (hasattr(cls, "__getnewargs__") or hasattr(cls, "__getnewargs_ex__")):
            raise _refused(f"an instance of {name} with arguments that the class does not store")
        if issubclass(cls, bytes) and any(type(argument) is not bytes for argument in arguments):
            raise _refused(f"an instance of {name} that is not made of bytes")
        return cls.__new__(cls, *arguments)

    def make_with_names(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """`make` for a class with ``__getnewargs_ex__``."""
        cls = self._makeable(name)
        if not hasattr(cls, "__getnewargs_ex__"):
            raise _refused(f"an instance of {name} with arguments that the class does not store")
        return cls.__new__(cls, *arguments, **named)

    def _makeable(self, name: str) -> type:
        cls = self.class_of(name)
        if name in DATA_NAMES and name not in _MADE:
            raise _refused(f"an instance of {name} that was not made by calling it")
        return cls

    def call(self, name: str, *arguments: Any) -> Any:
        """What calling a class or function of data returns, or a class of the program that reduces its instances so."""
        if type(name) is str:
            found = self.named(name)
            if found is not None:
                return found(*arguments)
        cls = self.class_of(name)
        if name in DATA_NAMES:
            raise _refused(f"a call of {name}")
        if not reduces_itself(cls):
            raise _refused(f"a call of {name}, whose instances are not made by calls")
        return cls(*arguments)

    def call_with_classes(self, name: str, at: tuple[int, ...], *arguments: Any) -> Any:
        """`call` with arguments of which those at some indexes are classes."""
        return self.call(
            name,
            *[self.class_of(argument) if index in at else argument for index, argument in enumerate(arguments)],
        )

    def reconstruct(self, name: str, base: str, value: Any) -> Any:
        """A new instance of a class that reduces itself as in pickle's first protocols."""
        cls, kind = self._makeable(name), self.class_of(base)
        if base == "builtins:object":
            return object.__new__(cls)
        if kind not in (int, float, complex, str, bytes, tuple, frozenset, list, dict, set) or type(value) is not kind:
            raise _refused(f"an instance of {name} that is made of a {type(value).__name__}")
        found: Any = kind.__new__(cls, value)
        if kind.__init__ is not object.__init__:
            kind.__init__(found, value)
        return found

    def member(self, name: str, value: Any) -> Any:
        """The member of an enum with that name, or the flags with that value."""
        cls = self.class_of(name)
        if not isinstance(cls, enum.EnumMeta):
            raise UnsafeStateError(f"{cls!r} is no enum")
        if issubclass(cls, enum.Flag):
            return cls(value)
        members: dict[str, Any] = dict(vars(cls)["_member_map_"])
        found = members.get(value) if type(value) is str else None
        if found is None or found.name != value:
            raise StoredClassError(
                f"the stored member {value} is not in the enum {cls.__module__}.{cls.__qualname__}",
                expected=", ".join(members),
                hint="bring it back under its name: as a key it lies in the key group of its name",
            )
        return found


def reduces_itself(cls: type) -> bool:
    """Whether a class says itself what its instances are made of, so that they may be made by calling it."""
    return any(getattr(cls, name) is not getattr(object, name) for name in ("__reduce_ex__", "__reduce__"))
