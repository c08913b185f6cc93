"""The stored form of values: pickles that hold data and names of classes, never code.

Rule: reading executes nothing that the stored bytes choose. `loads` builds plain data (the list below) and instances of
the program's classes (`ProgramClasses`), and refuses every other name that a pickle holds: functions, modules, classes
of the standard library or of installed packages. `dumps` refuses the same, so that whatever was written can be read.

A stored value begins with two bytes, a mark and the version of its format. Values that were written by another version,
or before there was a mark, are refused with an error that says so.

Values that only travel between the processes of a running job are pickled by `flinkish.runtime.pickling` instead.
"""

from __future__ import annotations

import builtins
import datetime
import enum
import importlib
import io
import pickle
import types
import zoneinfo
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, repeat
from typing import Any

from flinkish import errors
from flinkish.common import typeinfo
from flinkish.errors import CorruptStateError, FlinkishError, IncompatibleJobError, StoredClassError, UnsafeStateError
from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses

#: The first byte of every stored value. The pickles that were stored before there was a mark begin with 0x80.
_MARK = 0xF1
_ALONE = bytes((_MARK,))
_PICKLE = 0x80

_NUMBERS_AND_TEXTS = "bool bytearray bytes complex dict float frozenset int list object range set slice str tuple"


def _subclasses_in(module: types.ModuleType, base: type) -> dict[str, set[str]]:
    """The subclasses of ``base`` that a module holds, as defining module -> names."""
    found: dict[str, set[str]] = {}
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, base):
            found.setdefault(value.__module__, set()).add(value.__qualname__)
    return found


#: Module -> names in it that a stored pickle may hold: types of data, and functions that only make data.
_DATA: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "builtins": f"{_NUMBERS_AND_TEXTS}",
        "array": "array _array_reconstructor",
        "collections": "ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque",
        # these three make an instance of a class that the pickle has named before
        "copyreg": "__newobj__ __newobj_ex__ _reconstructor",
        "datetime": "date datetime time timedelta timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "ipaddress": "IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network",
        "pathlib": "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath",
        "types": "SimpleNamespace",
        "uuid": "SafeUUID UUID",
        "pandas._libs.tslibs.nattype": "__nat_unpickle _nat_unpickle",
        "pandas._libs.tslibs.timedeltas": "_timedelta_unpickle",
        "pandas._libs.tslibs.timestamps": "_unpickle_timestamp",
        "pytz": "_UTC _p",
        "flinkish.common.time": "Duration Instant Time",
        "flinkish.common.accumulators": (
            "AverageAccumulator DoubleCounter Histogram IntCounter ListAccumulator LongCounter"
        ),
        "flinkish.core.error_handling": "DeadLetter",
        "flinkish.core.output_tag": "OutputTag",
        "flinkish.common.typeinfo.basic": "BasicType",
        "flinkish.common.typeinfo.temporal": "LocalTimeTypeInfo.TimeType",
        "flinkish.common.types": "Row RowKind _create_row",
        "flinkish.core.time_domain": "TimeDomain",
        "flinkish.core.window.window": "CountWindow GlobalWindow TimeWindow",
        # errors, reports and other values that the processes of a job exchange through files
        "flinkish.errors": "_rebuild",
        "flinkish.runtime.list_keys": "ListKey TupleKey",
        "flinkish.runtime.committing": "CommitReport",
        "flinkish.runtime.epoch_report": "EpochReport",
        "flinkish.runtime.report": "TaskPlace TaskReport",
        "flinkish.runtime.state.state_rows": "StateRow",
        "flinkish.runtime.state.declared_state": "DeclaredState",
        "flinkish.runtime.state.stored_values": "StoredState",
        __name__: "_member _zone _array _objects _scalar",
    }.items()
}
for _found in (
    _subclasses_in(builtins, BaseException),
    _subclasses_in(errors, FlinkishError),
    _subclasses_in(typeinfo, typeinfo.TypeInformation),
):
    for _module, _names in _found.items():
        _DATA[_module] = _DATA.get(_module, frozenset()) | _names


def dumps(value: Any, version: int, classes: ProgramClasses = NO_CLASSES) -> bytes:
    """Encode a value for storage, with the mark and this version.

    Raises:
        StoredClassError: the value holds a function, or an instance of a class that could not be found again.
        Exception: any error of pickle or of the value's own methods.
    """
    stream = io.BytesIO()
    stream.write(bytes((_MARK, version)))
    _Pickler(stream, classes).dump(value)
    return stream.getvalue()


def loads(data: bytes, version: int, what: str, where: str = "", classes: ProgramClasses = NO_CLASSES) -> Any:
    """Decode a stored value. ``what`` describes it in errors, such as ``the state of a subtask``.

    Raises:
        IncompatibleJobError: another version of flinkish has written the value.
        StoredClassError: the value names a class that the program does not have.
        UnsafeStateError: the value names something that is neither data nor a class of the program.
        CorruptStateError: the value is damaged.
    """
    _check_version(data, version, what, where)
    stream = io.BytesIO(data)
    stream.seek(2)
    with _reading(f"{what} ({len(data)} bytes)", where):
        return _Unpickler(stream, classes).load()


def _check_version(data: bytes, version: int, what: str, where: str) -> None:
    if len(data) > 2 and data[0] == _MARK and data[1] == version:
        return
    if len(data) > 2 and data[0] in (_MARK, _PICKLE):
        found = f"format version {data[1]}" if data[0] == _MARK else "a format of before version 2, which may hold code"
        raise IncompatibleJobError(
            f"{what} has {found}",
            where=where,
            expected=f"format version {version}",
            hint="start in a new job directory: from the beginning, or from a savepoint with declared types",
        )
    raise CorruptStateError(
        f"{what} ({len(data)} bytes) cannot be decoded: it does not begin as stored values do",
        where=where,
        hint="go back to the last completed checkpoint",
    )


def loads_data(pickled: bytes, classes: ProgramClasses = NO_CLASSES) -> Any:
    """Decode a pickle without a mark, as the texts of savepoints hold it. Raises what `loads` raises, except that
    pickle's own errors for damaged data are not converted."""
    return _Unpickler(io.BytesIO(pickled), classes).load()


def dumps_data(value: Any, classes: ProgramClasses = NO_CLASSES) -> bytes:
    """The inverse of `loads_data`."""
    stream = io.BytesIO()
    _Pickler(stream, classes).dump(value)
    return stream.getvalue()


def dumps_all(values: Iterable[Any], classes: ProgramClasses = NO_CLASSES) -> list[bytes]:
    """Encode each value on its own, to be read by `loads_all`; raises what `dumps` raises. An object that occurs twice
    in a value is read as two objects.

    >>> loads_all(dumps_all([1, ("a", [2])]))
    [1, ('a', [2])]
    """
    data, ends = dumps_joined(values, classes)
    return [data[start:end] for start, end in zip((0, *ends), ends)]


def dumps_joined(values: Iterable[Any], classes: ProgramClasses = NO_CLASSES) -> tuple[bytes, list[int]]:
    """The results of `dumps_all` concatenated, and the offset at which each of them ends."""
    stream = io.BytesIO()
    pickler = _Pickler(stream, classes)
    # without a memo, so that one unpickler can read the concatenated pickles; this is also four times as fast
    pickler.fast = True
    dump, tell = pickler.dump, stream.tell
    ends = []
    values = list(values)
    try:
        for value in values:
            dump(value)
            ends.append(tell())
    except (ValueError, RecursionError):
        # a value that contains itself needs the memo
        alone = [_dumped_alone(value, classes) for value in values]
        return b"".join(alone), list(accumulate(map(len, alone)))
    return stream.getvalue(), ends


#: The bytes between the frame header and the size of the text in the pickle of (None, short text).
TEXT_BEGINS = pickle.NONE + pickle.SHORT_BINUNICODE
_FRAME = pickle.PROTO + b"\x05" + pickle.FRAME
_AFTER_TEXT = pickle.TUPLE2 + pickle.STOP
#: Begin and end of the text in such a pickle. Its size comes right before it, and `TEXT_BEGINS` before that.
TEXT_PLACE = (len(_FRAME) + 8 + len(TEXT_BEGINS) + 1, -len(_AFTER_TEXT))
#: The sizes of texts that pickle writes with SHORT_BINUNICODE.
_SHORT_TEXT_BYTES = range(256)
#: The number of keys that must share a namespace on average for the work per namespace to pay off: each session window,
#: for example, is a namespace of its own.
_KEYS_OF_A_NAMESPACE = 8
#: Longer pickles have no frame, or more than one.
_FRAMED_BYTES = 32 * 1024


class _BeforeTexts(dict[Hashable, list[bytes]]):
    """A cache of namespace -> list of prefixes: at index n the pickle of (namespace, text of n bytes) up to the text,
    for n below ``sizes``. The list is empty if the pickle of the namespace has no single frame."""

    def __init__(self, sizes: int, classes: ProgramClasses) -> None:
        self._sizes = range(sizes)
        self._classes = classes

    def __missing__(self, namespace: Hashable) -> list[bytes]:
        (data,) = dumps_all([(namespace, "")], self._classes)
        end = -len(pickle.SHORT_BINUNICODE) - 1 - len(_AFTER_TEXT)
        framed = data.startswith(_FRAME) and len(data) <= _FRAMED_BYTES
        begins = data[len(_FRAME) + 8 : end] + pickle.SHORT_BINUNICODE
        behind = len(begins) + 1 + len(_AFTER_TEXT)
        found = self[namespace] = (
            [_FRAME + (behind + size).to_bytes(8, "little") + begins + bytes((size,)) for size in self._sizes]
            if framed
            else []
        )
        return found


def dumps_groups(
    namespaces: Sequence[Hashable], keys: Sequence[Any], classes: ProgramClasses = NO_CLASSES
) -> list[bytes]:
    """The result of `dumps_all` for (namespace, key) of each key. ``namespaces`` holds one namespace for all keys, or
    one for each. Keys are mostly texts, for which this takes a quarter of the time.

    >>> dumps_groups([None], ["a", "b"]) == dumps_all([(None, "a"), (None, "b")])
    True
    """
    of_keys = namespaces if len(namespaces) == len(keys) else repeat(namespaces[0], len(keys))
    different = set(namespaces)
    if len(different) * _KEYS_OF_A_NAMESPACE <= len(keys) and set(map(type, keys)) == {str}:
        texts = [text.encode("utf-8", "surrogatepass") for text in keys]
        longest = max(map(len, texts))
        before = _BeforeTexts(longest + 1, classes)
        if longest in _SHORT_TEXT_BYTES and all(map(before.__getitem__, different)):
            return [before[of][len(text)] + text + _AFTER_TEXT for of, text in zip(of_keys, texts)]
    return dumps_all(zip(of_keys, keys), classes)


def _dumped_alone(value: Any, classes: ProgramClasses) -> bytes:
    stream = io.BytesIO()
    pickler = _Pickler(stream, classes)
    pickler.fast = True
    try:
        pickler.dump(value)
    except (ValueError, RecursionError):
        return bytes((_MARK,)) + dumps_data(value, classes)
    return stream.getvalue()


def loads_all(
    stored: Sequence[bytes], what: str = "a stored value", where: str = "", classes: ProgramClasses = NO_CLASSES
) -> list[Any]:
    """Decode the results of `dumps_all`; raises what `loads` raises."""
    if any(data[:1] == _ALONE for data in stored):
        return [_loaded_alone(data, what, where, classes) for data in stored]
    load = _Unpickler(io.BytesIO(b"".join(stored)), classes).load
    with _reading(what, where):
        return [load() for _ in stored]


def _loaded_alone(data: bytes, what: str, where: str, classes: ProgramClasses) -> Any:
    with _reading(what, where):
        return loads_data(data.removeprefix(_ALONE), classes)


@contextmanager
def _reading(what: str, where: str) -> Iterator[None]:
    """Convert errors of reading into typed errors that say what was read, and from where."""
    try:
        yield
    except FlinkishError as error:
        error.where = "; ".join(part for part in (f"{what}, {where}" if where else what, error.where) if part)
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise CorruptStateError(
            f"{what} cannot be decoded: {type(error).__name__}: {error}",
            where=where,
            hint="go back to the last completed checkpoint",
        ) from error


# ---------------------------------------------------------------------------------------------------- writing


class _Pickler(pickle.Pickler):
    """A pickler that checks all objects but numbers, texts and containers, which stay as fast as in plain pickle."""

    def __init__(self, stream: io.BytesIO, classes: ProgramClasses) -> None:
        super().__init__(stream, protocol=5)
        self._classes = classes
        self._reducers = _Reducers()

    def reducer_override(self, obj: Any) -> Any:
        """The reduced form of an object; NotImplemented if pickle's own is used."""
        reducer = self._reducers[type(obj)]
        return NotImplemented if reducer is None else reducer(obj, self._classes)


_Reducer = Callable[[Any, ProgramClasses], Any]


class _Reducers(dict[type, "_Reducer | None"]):
    """A cache of type -> function that reduces its instances, or None if pickle's own reduction is used."""

    def __missing__(self, cls: type) -> _Reducer | None:
        reducer = self[cls] = _reducer_of(cls)
        return reducer


def _reducer_of(cls: type) -> _Reducer | None:
    if issubclass(cls, enum.Enum):
        return _reduce_flag if issubclass(cls, enum.Flag) else _reduce_member
    if issubclass(cls, type):
        return _reduce_class
    if issubclass(cls, (types.FunctionType, types.BuiltinFunctionType)) or cls.__name__ == "cython_function_or_method":
        return _reduce_function
    if issubclass(cls, types.MethodType):
        return _refuse_function
    if cls is zoneinfo.ZoneInfo:
        return _reduce_zone
    if cls.__module__ == "numpy" or cls.__module__.startswith("numpy."):
        return _reducer_of_numpy(cls)
    return None


def _reducer_of_numpy(cls: type) -> _Reducer | None:
    import numpy

    if cls is numpy.ndarray:
        return _reduce_array
    return _reduce_scalar if issubclass(cls, numpy.generic) else None


def _reduce_class(cls: type, classes: ProgramClasses) -> Any:
    if _is_data(cls):
        return NotImplemented
    return program_class, (classes.name_of(cls),)


def _reduce_function(function: Any, _: ProgramClasses) -> Any:
    return NotImplemented if function is program_class or _is_data(function) else _refuse_function(function, _)


def _refuse_function(function: Any, _: ProgramClasses) -> Any:
    raise StoredClassError(
        f"the function {getattr(function, '__module__', None)}.{getattr(function, '__qualname__', function)} cannot "
        "be stored: stored values hold no code",
        expected="data, and instances of the program's classes",
        hint="store what the function needs, or give the class a __reduce__ that returns the class and its arguments",
    )


def _is_data(found: Any) -> bool:
    """Whether a class or function is in the list of data, and not just one of the same name."""
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    return name in _DATA.get(str(module), ()) and getattr(importlib.import_module(str(module)), str(name)) is found


def _reduce_member(member: enum.Enum, _: ProgramClasses) -> Any:
    return _member, (type(member), member.name)


def _reduce_flag(flags: enum.Flag, _: ProgramClasses) -> Any:
    return _member, (type(flags), flags.value)


def _reduce_zone(zone: zoneinfo.ZoneInfo, _: ProgramClasses) -> Any:
    if zone.key is None:
        raise StoredClassError("a time zone without a name cannot be stored", hint="use ZoneInfo('Area/City')")
    return _zone, (zone.key,)


def _reduce_array(array: Any, _: ProgramClasses) -> Any:
    if array.dtype.hasobject:
        if array.dtype.names is not None:
            raise StoredClassError(
                "a structured numpy array of objects cannot be stored", hint="store a list of tuples"
            )
        return _objects, (array.shape, array.ravel().tolist())
    return _array, (_layout(array.dtype), array.shape, array.tobytes())


def _reduce_scalar(scalar: Any, _: ProgramClasses) -> Any:
    if scalar.dtype.hasobject:
        raise StoredClassError("a numpy scalar of objects cannot be stored", hint="store a tuple")
    return _scalar, (_layout(scalar.dtype), scalar.tobytes())


def _layout(dtype: Any) -> Any:
    return dtype.str if dtype.names is None else dtype.descr


# ---------------------------------------------------------------------------------------------------- reading


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows only the names in the list of data and those of the program's classes."""

    def __init__(self, stream: io.BytesIO, classes: ProgramClasses) -> None:
        super().__init__(stream)
        self._classes = classes

    def find_class(self, module: str, name: str) -> Any:
        """The object that a name stands for.

        Raises:
            UnsafeStateError: the name is not in the list of data.
        """
        if module == __name__ and name == program_class.__name__:
            return self._classes.find
        if name not in _DATA.get(module, ()):
            raise UnsafeStateError(
                f"it holds the name {module}.{name}"[:300] + ", which is neither data nor a class of the program",
                expected="data that this version of flinkish has stored",
                hint="do not use it unless you know where it comes from; nothing of it was executed",
            )
        return getattr(importlib.import_module(module), name)


def program_class(name: str) -> type:
    """The placeholder in pickles for the class of that name; `_Unpickler` replaces it by `ProgramClasses.find`."""
    raise UnsafeStateError(f"the class {name} is looked for outside of a program", hint="please report this")


def _member(cls: Any, value: Any) -> Any:
    """The member of an enum with that name, or the flags with that value."""
    if type(cls) is type or not isinstance(cls, enum.EnumMeta):
        raise UnsafeStateError(f"{cls!r} is no enum")
    if issubclass(cls, enum.Flag):
        return cls(value)
    members: dict[str, Any] = dict(vars(cls)["_member_map_"])
    member = members.get(value)
    if member is None or member.name != value:
        raise StoredClassError(
            f"the stored member {value} is not in the enum {cls.__module__}.{cls.__qualname__}",
            expected=", ".join(members),
            hint="bring it back under its name: as a key it lies in the key group of its name",
        )
    return member


def _zone(key: str) -> datetime.tzinfo:
    return zoneinfo.ZoneInfo(key)


def _checked_dtype(layout: Any) -> Any:
    """The dtype of a numpy value. A dtype that holds pointers is refused, since stored bytes could make these point
    anywhere."""
    import numpy

    dtype = numpy.dtype(layout) if isinstance(layout, (str, list)) else None
    if dtype is None or dtype.hasobject:
        raise UnsafeStateError(f"{str(layout)[:100]} is not the layout of plain numbers or texts")
    return dtype


def _array(layout: Any, shape: tuple[int, ...], data: bytes) -> Any:
    import numpy

    dtype = _checked_dtype(layout)
    if not data:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(bytearray(data), dtype).reshape(shape)


def _scalar(layout: Any, data: bytes) -> Any:
    import numpy

    dtype = _checked_dtype(layout)
    # texts and bytes are made by their own types: numpy's buffers cannot hold empty ones, nor zeros at the end
    if dtype.kind == "S":
        return numpy.bytes_(data[: dtype.itemsize])
    if dtype.kind == "U":
        encoding = "utf-32-be" if dtype.str.startswith(">") else "utf-32-le"
        return numpy.str_(data[: dtype.itemsize].decode(encoding, "surrogatepass"))
    return numpy.frombuffer(data, dtype)[0] if data else dtype.type()


def _objects(shape: tuple[int, ...], values: list[Any]) -> Any:
    import numpy

    array = numpy.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)
