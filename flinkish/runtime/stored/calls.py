"""Makes what stored values name: data, by the signatures of `stored_names`, and instances of the program's classes.

Rules: of a program's class runs at most what `docs/security.md` lists. An instance is made by ``__new__``, and
``__init__`` is called only for a class that reduces its instances to a call itself. What a class has from Python (a
list, a datetime, an exception) is made by Python's own methods. No class is an argument but where a signature says so,
or where a class of the program asks for it by the call to which it reduces its instances.
"""

from __future__ import annotations

import collections
import datetime
import enum
import importlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any

from flinkish.common.time import Duration, Instant, Time
from flinkish.core.functions import OutputTag
from flinkish.errors import StoredClassError, UnsafeStateError
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.names import ARGUMENTS, CALLABLE, CALLED, DATA_NAMES, ENUMS, MADE, data_name, lookup
from flinkish.runtime.stored_names import (
    OWN,
    SIGNATURES,
    WITH_CLASSES,
    WITHOUT_CLASSES,
    OldFormError,
    Signature,
    has_class,
    of_error,
    of_types,
    refused,
    refused_data,
    texts,
)

# -------------------------------------------------------------------------------------------------------------- keys

#: How many keys of a dictionary, or elements of a set, may have one hash: each of them is compared with all others.
SAME_HASH_MAX = 256
#: The bits of an integer that may be hashed and compared: as many as decimal digits that any process reads.
_KEY_BITS = 1 << 15


def check_keys(keys: Sequence[Any]) -> None:
    """Refuse keys of a dictionary, or elements of a set, that take more time than their size explains.

    Raises:
        UnsafeStateError: an integer is too long, or too many different keys have one hash.
        TypeError: a key has no hash.
    """
    if are_short(keys):
        return
    check_key_numbers(keys)
    if crowded(keys):
        raise refused(f"has over {SAME_HASH_MAX} different keys of one hash", "no stored value has")


def check_key_numbers(keys: Sequence[Any]) -> None:
    """Refuse keys that are integers, or tuples that hold some, which take long to be compared.

    Raises:
        UnsafeStateError: an integer is too long.
    """
    while keys:
        kinds = set(map(type, keys))
        if int in kinds:
            numbers = keys if len(kinds) == 1 else [key for key in keys if type(key) is int]
            bits = max(max(numbers), -min(numbers)).bit_length()
            if bits > _KEY_BITS:
                raise refused(f"has an integer of {bits:,} bits in a key", "no stored value has")
        keys = list(chain.from_iterable(key for key in keys if type(key) is tuple)) if tuple in kinds else ()


def are_short(keys: Sequence[Any]) -> bool:
    """Whether keys are plain values that have a hash, and of which only a few have the same one. Texts and bytes have
    random hashes."""
    kinds = set(map(type, keys))
    if kinds == {int}:
        return bool(min(keys) > -_PRIME and max(keys) < _PRIME)
    return kinds <= _SHORT_KEYS


#: The integers from 0 to this one have different hashes.
_PRIME = 2**61 - 1
_SHORT_KEYS = frozenset({str, float, bytes, bool, type(None)})


def crowded(keys: Sequence[Any]) -> set[int]:
    """The hashes that too many different keys have: each of these is compared with all others. Raises TypeError if a
    key has no hash."""
    if are_short(keys):
        return set()
    hashes = list(map(hash, keys))
    if len(set(hashes)) == len(hashes):
        return set()
    often: dict[int, set[Any]] = {found: set() for found, times in Counter(hashes).items() if times > SAME_HASH_MAX}
    for key, found in zip(keys, hashes) if often else ():
        if found in often and len(often[found]) <= SAME_HASH_MAX:
            often[found].add(key)
    return {found for found, different in often.items() if len(different) > SAME_HASH_MAX}


# -------------------------------------------------------------------------------------------------------------- data


@cache
def _signature(name: str) -> Signature:
    """The signature of a class or function of data that may be called."""
    found = SIGNATURES.get(name)
    if found is not None:
        return found
    module = name.partition(":")[0]
    if module == "ipaddress":
        return of_types((str, int))
    if module == "pathlib":
        return texts
    cls = lookup(name)
    if not issubclass(cls, BaseException):
        raise AssertionError(f"{name} has no signature")
    return of_error(cls)


def check_arguments(name: str, arguments: tuple[Any, ...]) -> None:
    """Refuse arguments that a class or function of data, or a constructor without classes, does not take.

    Raises:
        UnsafeStateError: it does not take them.
    """
    if not _signature(name)(arguments):
        kinds = ", ".join(type(argument).__name__ for argument in arguments[:6])
        raise refused_data(f"a call of {name} with ({kinds}), which it does not take so")
    if name in _SETS:
        check_keys(arguments[0])


_SETS = ("builtins:set", "builtins:frozenset")


def _pytz_zone(name: str, *place: Any) -> Any:
    """The time zone of a name, as pytz has it: its own function would add an offset that the zone does not have."""
    pytz: Any = importlib.import_module("pytz")
    found: Any = pytz.timezone(name)
    if not place:
        return found
    offset, summer, short = place
    known = getattr(found, "_tzinfos", {})
    key = datetime.timedelta(seconds=offset), datetime.timedelta(seconds=summer), short
    if key not in known:
        raise UnsafeStateError(f"the time zone {name} has no offset of {offset} s, of which {summer} s, named {short}")
    return known[key]


def _defaultdict(*arguments: Any) -> Any:
    if any(found is not None and not isinstance(found, type) for found in arguments):
        raise OldFormError
    return defaultdict(*arguments)


_OTHER_WAYS: dict[str, Callable[..., Any]] = {"pytz:_p": _pytz_zone, "collections:defaultdict": _defaultdict}


# ------------------------------------------------------------------------------------------- classes of the program

#: For classes that are derived from these: the types of the arguments of ``__new__``.
_NEW: dict[type, Signature] = {
    object: lambda arguments: True,  # it leaves them to `__init__`, which does not run
    list: of_types(),
    dict: of_types(),
    set: of_types(),
    tuple: of_types((tuple,)),
    frozenset: of_types((frozenset, list, tuple), least=0),
    str: of_types((str,)),
    bytes: of_types((bytes,)),
    int: of_types((int,)),
    float: of_types((float,)),
    complex: of_types((float,), (float,)),
}
#: For ``reconstruct``: these make an instance of another class from one of their own.
_KINDS = (int, float, complex, str, bytes, tuple, frozenset, list, dict, set)


def defining(cls: type, *names: str) -> type | None:
    """The class, of those that a class is derived from, that defines one of these names first; None if only `object`
    does. No method of the classes runs."""
    for base in cls.__mro__[:-1]:
        if any(name in vars(base) for name in names):
            return base
    return None


@lru_cache(1_000)
def data_base(cls: type) -> str | None:
    """The name of the class of data that says how instances of a class are reduced to a call; None if that is the
    class itself, or one of the program or of a library, or if they are not."""
    owner = defining(cls, "__reduce_ex__", "__reduce__")
    for base in cls.__mro__[:-1] if owner is not None else ():
        name = data_name(base)
        if name is not None:
            return name
        if base is owner:
            return None
    return None


#: What keeps attributes, or items of a subclass's own, beyond the arguments that it is called with.
_WITH_ATTRIBUTES = frozenset(
    {
        "array:array",
        "builtins:bytearray",
        "builtins:frozenset",
        "builtins:set",
        "collections:OrderedDict",
        "collections:defaultdict",
        "collections:deque",
        "types:SimpleNamespace",
    }
)
#: The names of data that a pickle may give attributes or items once they are made.
GROWING = (
    MADE
    | (_WITH_ATTRIBUTES & CALLED)
    | {"array:_array_reconstructor"}
    | {name for name in CALLED if issubclass(lookup(name), BaseException)}
)
#: The attributes that methods of data count with, and their types.
_ATTRIBUTES: dict[type, dict[str, tuple[type, ...]]] = {
    uuid.UUID: {"int": (int,)},
    Duration: {"nanos": (int,)},
    Instant: {"seconds": (int,), "nanos": (int,)},
    Time: {"_milliseconds": (int,)},
    OutputTag: {"tag_id": (str,)},
    collections.ChainMap: {"maps": (list,)},
    collections.UserDict: {"data": (dict, collections.OrderedDict, defaultdict, Counter)},
    collections.UserList: {"data": (list,)},
    collections.UserString: {"data": (str,)},
}


def keeps_attributes(cls: type) -> bool:
    """Whether instances of a class are stored with attributes, beyond the arguments of the call that makes them."""
    base = data_base(cls)
    return base is None or base in _WITH_ATTRIBUTES or issubclass(cls, BaseException)


@lru_cache(1_000)
def decides(cls: type, *also: str) -> bool:
    """Whether methods of the program run when an instance is read, which may take one and refuse another."""
    for name in (*"__new__ __reduce__ __reduce_ex__ __setstate__ __setitem__ append extend".split(), *also):
        owner = defining(cls, name)
        method: Any = None if owner is None or data_name(owner) else vars(owner)[name]
        # those that dataclasses and named tuples are given are of another module
        if method and owner and getattr(getattr(method, "__func__", method), "__module__", "") == owner.__module__:
            return True
    return False


def attribute_types(bases: tuple[type, ...]) -> dict[str, tuple[type, ...]]:
    """The attributes that an object of these classes must have, and the types of each."""
    return next((_ATTRIBUTES[base] for base in bases if base in _ATTRIBUTES), {})


class Constructors:
    """The constructors that a reader has for the names in stored values, and what the writer names objects.

    Args:
        classes: the classes of the program.
    """

    def __init__(self, classes: ProgramClasses) -> None:
        self._program = classes
        self._classes: dict[str, type] = {}
        self._by_name: dict[str, Callable[..., Any]] = {}
        self._made: dict[str, type] = {}
        self._names: dict[type, str] = {}
        #: type -> what reduces its instances for the writer
        self.reducers: dict[type, Any] = {}
        #: what was read again: how objects are reduced, and classes whose instances were read from a text
        self.read_again: set[Any] = set()

    def are_of(self, classes: ProgramClasses) -> bool:
        """Whether these are the constructors for the classes of this program."""
        return self._program is classes

    def name_of(self, cls: type) -> str:
        """The name of a class of data or of the program.

        Raises:
            StoredClassError: the class could not be found again under its name, or has a finalizer.
        """
        name = self._names.get(cls)
        if name is None:
            name = self._names[cls] = data_name(cls) or self._name_of(cls)
        return name

    def _name_of(self, cls: type) -> str:
        if defining(cls, "__del__") is not None:
            raise StoredClassError(
                f"the class {cls.__module__}.{cls.__qualname__} has a method __del__, which would run whenever a "
                "stored value is dropped",
                expected="classes of data",
                hint="release what it holds in close() of the function, and keep only data in state",
            )
        return self._program.name_of(cls)

    def named(self, name: Any) -> Callable[..., Any] | None:
        """What the unpickler of the job's own state calls for a name; None if it stands for no constructor."""
        if not self._by_name:
            for function in WITHOUT_CLASSES:
                self._by_name[f"{OWN}:{function.__name__}"] = function
            for own in (function.__name__ for function in WITH_CLASSES):
                self._by_name[f"{OWN}:{own}"] = getattr(self, own)
        found = self._by_name.get(name)
        if found is None and name in CALLABLE:
            found = self._by_name[name] = _OTHER_WAYS.get(name) or lookup(name)
        return found

    def class_of(self, name: Any) -> type:
        """The class of data or of the program that has a name. It is never given to a stored value.

        Raises:
            UnsafeStateError: the name is no text.
            StoredClassError: the program has no class of that name.
        """
        # an object of another class could be equal to one text and read as another
        if type(name) is not str:
            raise refused_data(f"a {type(name).__name__} in place of the name of a class")
        found = self._classes.get(name)
        if found is None:
            if name in ARGUMENTS or name in ENUMS:
                found = lookup(name)
                assert isinstance(found, type)
            else:
                found = self._program.find(name)
                if defining(found, "__del__") is not None:
                    raise refused_data(f"an instance of {name}, which has a method __del__")
            self._classes[name] = found
        return found

    def make(self, name: str, *arguments: Any) -> Any:
        """A new instance of a class, made without calling ``__init__``."""
        cls: Any = self._makeable(name)
        if not arguments:
            return cls.__new__(cls)
        if defining(cls, "__getnewargs__", "__getnewargs_ex__") is None:
            raise refused_data(f"an instance of {name} with arguments that the class does not store")
        takes = _NEW.get(defining(cls, "__new__") or object)
        if has_class(arguments) or not (takes is None or takes(arguments)):
            raise refused_data(f"an instance of {name} of arguments that it is not made of")
        return cls.__new__(cls, *arguments)

    def make_with_names(self, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """`make` for a class with ``__getnewargs_ex__``."""
        cls = self._makeable(name)
        if defining(cls, "__getnewargs_ex__") is None or type(arguments) is not tuple or type(named) is not dict:
            raise refused_data(f"an instance of {name} with arguments that the class does not store")
        if has_class((*arguments, *named.values())) or not texts(tuple(named)):
            raise refused_data(f"an instance of {name} of arguments that it is not made of")
        return cls.__new__(cls, *arguments, **named)

    def _makeable(self, name: str) -> type:
        found = self._made.get(name) if type(name) is str else None
        if found is not None:
            return found
        cls = self.class_of(name)
        if name in DATA_NAMES and name not in MADE:
            raise refused_data(f"an instance of {name} that was not made by calling it")
        if isinstance(cls, enum.EnumMeta) or data_base(cls) is not None:
            raise refused_data(f"an instance of {name}, which is made in another way")
        self._made[name] = cls
        return cls

    def call(self, name: str, *arguments: Any) -> Any:
        """What calling a class or function of data returns, or a class of the program that reduces its instances so.
        Whether data takes the arguments is known to `check_arguments`, which readers of texts ask first."""
        if type(name) is str and name in CALLABLE:
            found: Any = self.named(name)
            return found(*arguments)
        cls = self.class_of(name)
        if name in DATA_NAMES or isinstance(cls, enum.EnumMeta):
            raise refused_data(f"a call of {name}")
        if defining(cls, "__reduce_ex__", "__reduce__") is None:
            raise refused_data(f"a call of {name}, whose instances are not made by calls")
        base = data_base(cls)
        if base is not None:
            return _called_as(cls, base, arguments)
        # what a metaclass adds to calls of its classes is left out
        return type.__call__(cls, *arguments)

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
        if kind not in _KINDS or type(value) is not kind:
            raise refused_data(f"an instance of {name} that is made of a {type(value).__name__}")
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
            if type(value) is not int or value.bit_length() > 256:
                raise refused_data(f"flags of {name} that are no number of at most 256 bits")
            return cls(value)
        members: dict[str, Any] = vars(cls)["_member_map_"]
        found = members.get(value) if type(value) is str else None
        if found is None or found._name_ != value:
            text = value[:100] if type(value) is str else f"by a {type(value).__name__}"
            raise StoredClassError(
                f"the stored member {text} is not in the enum {cls.__module__}.{cls.__qualname__}",
                expected=", ".join(members),
                hint="bring it back under its name: as a key it lies in the key group of its name",
            )
        return found


def constructors_of(classes: ProgramClasses) -> Constructors:
    """The constructors for a program. Those of the last one are kept, and those for data alone, as reports are."""
    for found in _last:
        if found.are_of(classes):
            return found
    made = Constructors(classes)
    _last[:] = [made, *_last[:1]]  # another thread may do the same for another program
    return made


_last: list[Constructors] = []


def _called_as(cls: Any, base: str, arguments: tuple[Any, ...]) -> Any:
    """An instance of a class that is reduced as a class of data is. That one makes it: no ``__init__`` of the program
    runs."""
    if base not in CALLED and base not in _SETS:
        raise refused_data(f"a call of {cls.__qualname__}, which is made in another way")
    check_arguments(base, arguments)
    kind = lookup(base)
    if kind is Counter:
        made: Any = cls.__new__(cls)
        for counts in arguments:
            dict.update(made, counts)
        return made
    made = cls.__new__(cls, *arguments)
    if kind.__init__ is not object.__init__ and isinstance(made, kind):
        kind.__init__(made, *arguments)
    return made
