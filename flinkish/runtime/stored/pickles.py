"""The stored form of values: pickles that hold data and names of classes, never code.

Rule: reading executes nothing that the stored bytes choose. It builds plain data and instances of the program's classes
(`stored_names`), and refuses every other name that a pickle holds: functions, modules, classes of the standard library
or of installed packages. `dumps` refuses the same, so that whatever was written can be read.

There are two readers. The state of a job, which only the job itself writes, is read by the unpickler of C, which holds
constructors in place of classes and functions. Texts of savepoints, which anybody may edit, are read by `reader`, which
also bounds what reading costs.

A stored value begins with two bytes, a mark and the version of its format. Values that were written by another version,
or before there was a mark, are refused with an error that says so.

Values that only travel between the processes of a running job are pickled by `flinkish.runtime.stored.pickling`
instead.
"""

from __future__ import annotations

import copy
import copyreg
import enum
import io
import pickle
import types
import zoneinfo
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import accumulate, repeat
from typing import Any

from flinkish.common.types import Row
from flinkish.errors import CorruptStateError, FlinkishError, IncompatibleJobError, StoredClassError, UnsafeStateError
from flinkish.runtime import stored_names
from flinkish.runtime.stored.calls import Constructors, check_arguments, constructors_of, data_base, decides, defining
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses, dotted, stored_name
from flinkish.runtime.stored.names import data_name
from flinkish.runtime.stored.reader import Unpickler, read_value
from flinkish.runtime.stored_names import CONSTRUCTORS, OldFormError

#: The first byte of every stored value. The pickles that were stored before there was a mark begin with 0x80.
_MARK = 0xF1
_ALONE = bytes((_MARK,))
_PICKLE = 0x80


def dumps(value: Any, version: int, classes: ProgramClasses = NO_CLASSES) -> bytes:
    """Encode a value for storage, with the mark and this version.

    Raises:
        StoredClassError: the value holds a function, or an instance of a class that could not be found again.
        Exception: any error of pickle or of the value's own methods.
    """
    return bytes((_MARK, version)) + dumps_data(value, classes)


def loads(data: bytes, version: int, what: str, where: str = "", classes: ProgramClasses = NO_CLASSES) -> Any:
    """Decode a stored value. ``what`` describes it in errors, such as ``the state of a subtask``.

    Raises:
        IncompatibleJobError: another version of flinkish has written the value.
        StoredClassError: the value names a class that the program does not have.
        UnsafeStateError: the value names something that is neither data nor a class of the program.
        CorruptStateError: the value is damaged.
    """
    _check_version(data, version, what, where)
    with _reading(f"{what} ({len(data)} bytes)", where):
        return _loaded(data[2:], classes)


def _loaded(pickled: bytes, classes: ProgramClasses) -> Any:
    """What the job itself has stored."""
    try:
        return Unpickler(io.BytesIO(pickled), classes).load()
    except OldFormError:
        return read_value(pickled, classes)


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


def dumps_data(value: Any, classes: ProgramClasses = NO_CLASSES) -> bytes:
    """A pickle without a mark, as the texts of savepoints hold it, for `read_value`. Raises what `dumps` raises."""
    stream = io.BytesIO()
    pickler = Pickler(stream, classes)
    try:
        pickler.dump(value)
    except RecursionError:
        raise StoredClassError(
            f"a {type(value).__qualname__} is nested too deeply to be stored",
            expected="values of at most a few hundred levels",
            hint="store its parts as entries of a list or map state, or flatten it",
        ) from None
    if pickler.may_lack:
        _read_again(value, stream.getvalue(), classes)
    return stream.getvalue()


def _read_again(value: Any, data: bytes, classes: ProgramClasses) -> None:
    """Refuse a value that its reader refuses, or reads as one of another class."""
    try:
        made = _loaded(data, classes)
        if type(made) is not type(value):
            raise TypeError(f"it would be a {type(made).__qualname__}")
    except Exception as error:
        raise unreadable(value, error) from error


def unreadable(value: Any, why: Exception) -> StoredClassError:
    """The error for a value that its reader would refuse."""
    return StoredClassError(
        f"a {type(value).__qualname__} could not be read again: {getattr(why, 'what', why)}",
        expected="data, and instances of the program's classes that are made again by what they are pickled to",
        hint="change how its class is pickled (__reduce__, __getstate__, __setstate__), or store what it consists of",
    )


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
    values = list(values)
    if len(values) > _FEW_ROWS and set(map(type, values)) == {Row}:
        rows = _dumps_rows(values, classes)
        if rows is not None:
            return b"".join(rows), list(accumulate(map(len, rows)))
    return _dumps_joined(values, classes)


def _dumps_joined(values: list[Any], classes: ProgramClasses) -> tuple[bytes, list[int]]:
    stream = io.BytesIO()
    pickler = Pickler(stream, classes)
    # without a memo, so that one unpickler can read the concatenated pickles; this is also four times as fast
    pickler.fast = True
    dump, tell = pickler.dump, stream.tell
    ends = []
    try:
        for value in values:
            dump(value)
            ends.append(tell())
    except (ValueError, RecursionError):
        # a value that contains itself needs the memo
        if len(values) == 1:
            alone = [_ALONE + dumps_data(values[0], classes)]
        else:
            alone = [_dumps_joined([value], classes)[0] for value in values]
        return b"".join(alone), list(accumulate(map(len, alone)))
    data = stream.getvalue()
    for value, start, end in zip(values, (0, *ends), ends) if pickler.may_lack else ():
        _read_again(value, data[start:end], classes)
    return data, ends


#: So few rows are encoded one by one.
_FEW_ROWS = 100


def _dumps_rows(rows: list[Any], classes: ProgramClasses) -> list[bytes] | None:
    """The pickles of many Rows that differ in their values only, made of those of their values: in half of the time.
    None: they differ otherwise, too, or have more than one frame."""
    fields, kind = getattr(rows[0], "_fields", None), rows[0]._row_kind
    if any(getattr(row, "_fields", None) is not fields or row._row_kind is not kind for row in rows):
        return None
    data, ends = _dumps_joined([tuple(row._values) for row in rows], classes)
    sample = copy.copy(rows[0])
    sample._values = [SAMPLE]
    (whole,), (part,) = (dumps_all([one], classes) for one in (sample, (SAMPLE,)))
    begin = len(FRAME_BEGIN) + 8
    before, found, behind = whole[begin:].partition(part[begin:-1])
    if not found or not whole.startswith(FRAME_BEGIN):
        return None
    encoded, heads, start = [], dict[int, bytes](), 0
    for end in ends:
        # a short pickle has no frame
        values = data[start + begin : end - 1] if data.startswith(FRAME_BEGIN, start) else data[start + 2 : end - 1]
        size, start = len(values), end
        head = heads.get(size)
        if head is None:
            length = len(before) + size + len(behind)
            if length > FRAMED_BYTES:
                return None
            head = heads[size] = FRAME_BEGIN + length.to_bytes(8, "little") + before
        encoded.append(head + values + behind)
    return encoded


#: A value that nothing else in the pickle of a Row looks like.
SAMPLE = 0x5AFE_C0DE_5AFE_C0DE
#: The bytes between the frame header and the size of the text in the pickle of (None, short text).
TEXT_BEGINS = pickle.NONE + pickle.SHORT_BINUNICODE
FRAME_BEGIN = pickle.PROTO + b"\x05" + pickle.FRAME
_AFTER_TEXT = pickle.TUPLE2 + pickle.STOP
#: Begin and end of the text in such a pickle. Its size comes right before it, and `TEXT_BEGINS` before that.
TEXT_PLACE = (len(FRAME_BEGIN) + 8 + len(TEXT_BEGINS) + 1, -len(_AFTER_TEXT))
#: The sizes of texts that pickle writes with SHORT_BINUNICODE.
_SHORT_TEXT_BYTES = range(256)
#: The number of keys that must share a namespace on average for the work per namespace to pay off: each session window,
#: for example, is a namespace of its own.
_KEYS_OF_A_NAMESPACE = 8
#: Longer pickles have no frame, or more than one.
FRAMED_BYTES = 32 * 1024


class _BeforeTexts(dict[Hashable, list[bytes]]):
    """A cache of namespace -> list of prefixes: at index n the pickle of (namespace, text of n bytes) up to the text,
    for n below ``sizes``. The list is empty if the pickle of the namespace has no single frame."""

    def __init__(self, sizes: int, classes: ProgramClasses) -> None:
        self._sizes = range(sizes)
        self._classes = classes

    def __missing__(self, namespace: Hashable) -> list[bytes]:
        (data,) = dumps_all([(namespace, "")], self._classes)
        end = -len(pickle.SHORT_BINUNICODE) - 1 - len(_AFTER_TEXT)
        framed = data.startswith(FRAME_BEGIN) and len(data) <= FRAMED_BYTES
        begins = data[len(FRAME_BEGIN) + 8 : end] + pickle.SHORT_BINUNICODE
        behind = len(begins) + 1 + len(_AFTER_TEXT)
        found = self[namespace] = (
            [FRAME_BEGIN + (behind + size).to_bytes(8, "little") + begins + bytes((size,)) for size in self._sizes]
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


def loads_all(
    stored: Sequence[bytes], what: str = "a stored value", where: str = "", classes: ProgramClasses = NO_CLASSES
) -> list[Any]:
    """Decode the results of `dumps_all`; raises what `loads` raises."""
    if any(data[:1] == _ALONE for data in stored):
        with _reading(what, where):
            return [_loaded(data.removeprefix(_ALONE), classes) for data in stored]
    load = Unpickler(io.BytesIO(b"".join(stored)), classes).load
    with _reading(what, where):
        try:
            return [load() for _ in stored]
        except OldFormError:
            return [read_value(data, classes) for data in stored]


@contextmanager
def _reading(what: str, where: str) -> Iterator[None]:
    """Convert errors of reading into typed errors that say what was read, and from where."""
    try:
        yield
    except FlinkishError as error:
        error.where = "; ".join(part for part in (f"{what}, {where}" if where else what, error.where) if part)
        raise
    except MemoryError as error:
        raise CorruptStateError(
            f"{what} cannot be decoded: it needs more memory than there is",
            where=where,
            hint="give the process more memory, or go back to the last completed checkpoint",
        ) from error
    except Exception as error:
        raise CorruptStateError(
            f"{what} cannot be decoded: {type(error).__name__}: {error}",
            where=where,
            hint="go back to the last completed checkpoint",
        ) from error


# ---------------------------------------------------------------------------------------------------- writing


class Pickler(pickle.Pickler):
    """A pickler that reduces all objects but numbers, texts and containers to calls of constructors, in which classes
    are names. Plain values stay as fast as in plain pickle."""

    def __init__(self, stream: Any, classes: ProgramClasses) -> None:
        super().__init__(stream, protocol=5)
        self.constructors = constructors_of(classes)
        self.constructors.reducers = self._reducers = self.constructors.reducers or _Reducers(self.constructors)
        self.classes = classes
        #: the class or function of data that the next name stands for
        self.called: Any = None
        #: whether only the reader can tell: something may be hashed before it has its attributes, or refuse them
        self.may_lack = False

    def reducer_override(self, obj: Any) -> Any:
        """The reduced form of an object; NotImplemented if pickle's own is used."""
        reducer = self._reducers[type(obj)]
        try:
            return NotImplemented if reducer is None else reducer(obj, self)
        except (UnsafeStateError, pickle.PicklingError) as error:
            raise unreadable(obj, error) from error


_Reducer = Callable[[Any, Pickler], Any]


class _Reducers(dict[type, "_Reducer | None"]):
    """A cache of type -> function that reduces its instances, or None if pickle's own reduction is used."""

    def __init__(self, constructors: Constructors) -> None:
        self.constructors = constructors

    def __missing__(self, cls: type) -> _Reducer | None:
        reducer = self[cls] = _reducer_of(cls, self.constructors)
        return reducer


def _reducer_of(cls: type, constructors: Constructors) -> _Reducer | None:
    if issubclass(cls, enum.Enum):
        return partial(_reduce_member, constructors.name_of(cls), "_value_" if issubclass(cls, enum.Flag) else "_name_")
    if issubclass(cls, type):
        return _reduce_class
    if issubclass(cls, (types.FunctionType, types.BuiltinFunctionType)) or cls.__name__ == "cython_function_or_method":
        return _reduce_function
    if issubclass(cls, types.MethodType):
        return _refuse_function
    if cls is zoneinfo.ZoneInfo:
        return _reduce_zone
    if cls.__module__ == "numpy" or cls.__module__.startswith("numpy."):
        import numpy

        if cls is numpy.ndarray or issubclass(cls, numpy.generic):
            return _reduce_array if cls is numpy.ndarray else _reduce_scalar
    if cls in _SINGLETONS:
        return lambda *_: (stored_names.call, (_SINGLETONS[cls],))
    if cls in (type(None), types.ModuleType):  # pickle has opcodes for it, or refuses it itself
        return None
    return _reduce_data if data_name(cls) in _WITHOUT_CLASSES else _reduce


#: Classes with one instance -> their names.
_SINGLETONS = {type(Ellipsis): "types:EllipsisType", type(NotImplemented): "types:NotImplementedType"}


#: Frequent data that is made by one call, with no class among its arguments.
_WITHOUT_CLASSES = frozenset(
    {
        *(f"datetime:{name}" for name in ("date", "datetime", "time", "timedelta")),
        "decimal:Decimal",
        "flinkish.common.types:Row",
        "flinkish.core.window.window:TimeWindow",
    }
)


def _reduce_data(obj: Any, pickler: Pickler) -> Any:
    reduced = obj.__reduce_ex__(5)
    if not pickler.fast:
        name = data_name(reduced[0]) if len(reduced) == 2 else None
        if name is None:
            return _by_names(obj, reduced, pickler)
        return stored_names.call, (name, *reduced[1])
    # without a memo this is the shortest form, and the next object that pickle saves is the function
    pickler.called = reduced[0]
    return reduced


def _reduce(obj: Any, pickler: Pickler) -> Any:
    by_table = copyreg.dispatch_table.get(type(obj))
    return _by_names(obj, obj.__reduce_ex__(5) if by_table is None else by_table(obj), pickler)


def _by_names(obj: Any, reduced: Any, pickler: Pickler) -> Any:
    """`_named` of an object that can be read again. The reader says so: it gets the first object that is reduced in
    this way, to arguments and a state of these classes."""
    named = _named(obj, reduced, pickler)
    cls: type = type(obj)
    state, known = reduced[2] if len(reduced) > 2 else None, pickler.constructors.read_again
    way = cls, reduced[0], frozenset(map(type, reduced[1])), type(state)
    if way not in known:
        known.add(way)  # it may hold others of its kind
        try:
            _read_again(obj, dumps_data(obj, pickler.classes), pickler.classes)
        except BaseException:
            known.discard(way)
            raise
    if decides(cls, *["__setattr__"] * (type(state) is tuple)) or issubclass(cls, BaseException):
        pickler.may_lack = True
    elif not (pickler.fast or len(reduced) < 3 or cls.__hash__ is None) and defining(cls, "__hash__") is not None:
        # in a key of what it holds itself it is hashed too early
        atoms = type(state) is dict and stored_names.ATOMS.issuperset(map(type, state.values()))
        pickler.may_lack |= not (state is None or atoms) or any(part is not None for part in reduced[3:])
    return named


def _named(obj: Any, reduced: Any, pickler: Pickler) -> Any:
    """The reduced form of an object with a constructor in place of what makes it, and names in place of classes."""
    if not isinstance(reduced, tuple) or len(reduced) > 5:
        raise StoredClassError(
            f"a {type(obj).__qualname__} cannot be stored: its __reduce__ returns {str(reduced)[:100]}",
            expected="a class, its arguments and the state of the object",
        )
    function, arguments, *rest = reduced
    if not _are_of_python(type(obj), *rest[1:]):
        raise StoredClassError(
            f"a {type(obj).__qualname__} cannot be stored: its __reduce__ returns items, but it is no list and no dict",
            hint="return them among the arguments, or in the state that its __setstate__ gets",
        )
    constructors = pickler.constructors
    if function is _NEW_OBJECT:
        cls, *arguments = arguments
        return (stored_names.make, (constructors.name_of(cls), *arguments), *rest)
    if function is _NEW_OBJECT_EX:
        cls, arguments, named = arguments
        return (stored_names.make_with_names, (constructors.name_of(cls), arguments, named), *rest)
    if function is _RECONSTRUCTOR:
        cls, base, value = arguments
        return (stored_names.reconstruct, (constructors.name_of(cls), constructors.name_of(base), value), *rest)
    name = data_name(function)
    at = tuple(index for index, argument in enumerate(arguments) if isinstance(argument, type))
    if name is None:
        if not isinstance(function, type):
            _refuse_function(function, pickler)
        name = constructors.name_of(function)
        if (base := data_base(function)) is not None:
            check_arguments(base, arguments)
    elif pickler.fast and not at and constructors.named(stored_name(function)) is not None:
        pickler.called = function
        return reduced
    if not at:
        return (stored_names.call, (name, *arguments), *rest)
    named_arguments = [
        constructors.name_of(argument) if index in at else argument for index, argument in enumerate(arguments)
    ]
    return (stored_names.call_with_classes, (name, at, *named_arguments), *rest)


def _are_of_python(cls: type, items: Any = None, pairs: Any = None) -> bool:
    """Whether items of an object are those of the list or dictionary that it is; readers call no methods of others."""
    return (items is None or issubclass(cls, (list, deque))) and (pairs is None or issubclass(cls, dict))


_NEW_OBJECT: Any = vars(copyreg)["__newobj__"]
_NEW_OBJECT_EX: Any = vars(copyreg)["__newobj_ex__"]
_RECONSTRUCTOR: Any = vars(copyreg)["_reconstructor"]


def _reduce_class(cls: type, pickler: Pickler) -> Any:
    called, pickler.called = pickler.called, None
    if cls is called:
        return NotImplemented
    name = pickler.constructors.name_of(cls)
    raise StoredClassError(
        f"the class {dotted(name)} cannot be stored as a value: stored values hold no code",
        expected="data, and instances of the program's classes",
        hint="store the name of the class",
    )


def _reduce_function(function: Any, pickler: Pickler) -> Any:
    called, pickler.called = pickler.called, None
    return NotImplemented if function is called or function in CONSTRUCTORS else _refuse_function(function, pickler)


def _refuse_function(function: Any, _: Pickler) -> Any:
    raise StoredClassError(
        f"the function {getattr(function, '__module__', None)}.{getattr(function, '__qualname__', function)} cannot "
        "be stored: stored values hold no code",
        expected="data, and instances of the program's classes",
        hint="if an object holds it, leave it out in __getstate__ and set it again in __setstate__ of its class, or "
        "give the class a __reduce__ that returns the class and its other arguments (for a class of a library: in a "
        "class of your own that is derived from it); else store what the function needs",
    )


def _reduce_member(name: str, told_by: str, found: enum.Enum, pickler: Pickler) -> Any:
    value = getattr(found, told_by)
    pickler.constructors.member(name, value)  # refuses one that the class does not have
    return stored_names.member, (name, value)


def _reduce_zone(found: zoneinfo.ZoneInfo, _: Pickler) -> Any:
    found.__reduce__()  # refuses one of a file
    return stored_names.zone, (found.key,)


def _reduce_array(found: Any, _: Pickler) -> Any:
    if found.dtype.char == "O":
        return stored_names.objects, (found.shape, found.ravel().tolist())
    layout = _layout(found.dtype, found.dtype.type)
    if not found.nbytes:
        stored_names.array(layout, found.shape, b"")  # refuses many elements without bytes
    return stored_names.array, (layout, found.shape, found.tobytes())


def _reduce_scalar(found: Any, _: Pickler) -> Any:
    return stored_names.scalar, (_layout(found.dtype, found.dtype.type), found.tobytes())


@lru_cache(1_000)
def _layout(dtype: Any, kind: Any) -> Any:
    """The layout that makes the dtype again, whose scalars are of this class."""
    layout = dtype.str if dtype.names is None else dtype.descr
    made = None if dtype.hasobject else stored_names.checked_dtype(layout)
    if made is None or made != dtype or (dtype.names and made.type is not kind):
        expected = "layouts of numbers and texts, without padding, offsets, objects or a class of their own"
        raise StoredClassError(f"numpy values of {dtype} cannot be stored", expected=expected, hint="store tuples")
    return layout
