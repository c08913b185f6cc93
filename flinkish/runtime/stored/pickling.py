"""Pickles values that only travel between the processes of a running job, and makes the copies of functions that
operators and subtasks have for themselves. Stored values are written by `flinkish.runtime.stored.pickles` instead.

Values are written by plain pickle, protocol 5, which is by far the fastest. In a worker, plain pickle cannot write
instances of classes that the user's program defines in ``__main__``, because ``__main__`` is another module there. The
code that embeds the runtime may install a pickler that can (``use_fallback``); it is used only for values that plain
pickle refuses. Everything written this way is read with ``pickle.loads``.

Rule for functions: what an operator of a subtask is given is what it would have from a pickle of its own, as in
PyFlink, which sends functions by cloudpickle. So `own_copy` copies what cloudpickle would write by value: functions
that no module can name (lambdas, nested functions, those of the main script) with the variables that they capture,
their defaults, their attributes and the global variables that they use; and refuses what pickle refuses. It stays
within the process, so that modules, classes and code are not copied: the classes of the main script, their instances
and members of enumerations remain what they are, and debuggers find the code. PySpark's cloudpickle itself could not do
this. It writes the classes of the main script by value and overwrites the living ones when it reads them again, and the
minicluster runs where there is no PySpark.
"""

from __future__ import annotations

import builtins
import copyreg
import dis
import io
import pickle
import sys
import threading
import types
import typing
import weakref
from collections import ChainMap, OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from flinkish.errors import UnserializableFunctionError, message_of

_fallback: Callable[[Any], bytes] | None = None

T = TypeVar("T")


def use_fallback(dumps: Callable[[Any], bytes] | None) -> None:
    """Install a pickler for values that plain pickle cannot write, or remove it with None."""
    global _fallback
    _fallback = dumps


def to_worker(value: Any) -> bytes:
    """Pickle a value. If neither pickler can write it, the error of the last one tried propagates."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        if _fallback is None:
            raise
        return _fallback(value)


# --- copies of functions ------------------------------------------------------------------------------------------


def own_copy(value: T, where: str) -> T:
    """A copy of a function, or of an object that holds functions, which shares nothing that can change with the
    original. Instances of classes with a true ``travels_by_reference`` are not copied.

    >>> def counter(calls=[]):
    ...     calls.append(1)
    ...     return len(calls)
    >>> one, other = own_copy(counter, "here"), own_copy(counter, "here")
    >>> one(), one(), other(), counter()
    (1, 2, 1, 1)

    Args:
        where: names the place of the value in the program, for the error.

    Raises:
        UnserializableFunctionError: it holds something that cannot be pickled, or not be made from its pickle.
    """
    stream = io.BytesIO()
    pickler, before = _Copier(stream), _loading.held
    try:
        pickler.dump(value)
        _loading.held = pickler.held
        copied: T = pickle.loads(stream.getbuffer())
    except Exception as error:
        raise unserializable(error, where, value) from error
    finally:
        _loading.held = before
    return copied


def unserializable(error: BaseException, where: str, value: object = None) -> UnserializableFunctionError:
    """The error for a function that cannot be pickled, whatever was to be done with the pickle. ``value``: the
    function, or an object that holds it."""
    captured = _of_spark(value)
    if captured is not None:
        return UnserializableFunctionError(
            f"a function cannot be sent to the workers: it refers to {captured[0]}, a {captured[1]} of Spark",
            where=where,
            expected="functions that use no Spark: workers have no session, in open() neither",
            hint="read the data as a stream (env.from_spark(df)) and join or broadcast it; or collect what is small "
            "in the program, and let the function refer to the values",
        )
    return UnserializableFunctionError(
        f"a function cannot be sent to the workers: {message_of(error)}",
        where=where,
        expected="functions that capture only what can be pickled",
        hint="create connections, locks and files in open(), not where the function is defined",
    )


#: The most objects that are looked at in search of one of Spark's.
_MOST_SEARCHED = 2_000


def _of_spark(value: object) -> tuple[str, str] | None:
    """The name and the class of an object of Spark's that a function, or an object with functions, refers to; None if
    none is found."""
    found: list[tuple[str, Any]] = [("", value)]
    seen: set[int] = set()
    while found and len(seen) < _MOST_SEARCHED:
        name, one = found.pop(0)
        if id(one) in seen or isinstance(one, (type, types.ModuleType, str, bytes, int, float)):
            continue
        seen.add(id(one))
        kind = type(one)
        if kind.__module__.partition(".")[0] in ("pyspark", "py4j"):
            return f"'{name}'" if name else "an object", kind.__name__
        found += _references(one, name)
    return None


def _references(value: Any, name: str) -> list[tuple[str, Any]]:
    """What an object refers to, with the names of the variables and attributes."""
    if isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or ())
        captured = [(variable, cell.cell_contents) for variable, cell in cells if _is_filled(cell)]
        used = value.__globals__
        captured += [(variable, used[variable]) for variable in _global_names(value.__code__) if variable in used]
        return captured + [(name, default) for default in value.__defaults__ or ()]
    if isinstance(value, types.MethodType):
        return [(name, value.__func__), (name, value.__self__)]
    if isinstance(value, dict):
        return [(str(key)[:50], part) for key, part in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(name, part) for part in value]
    if isinstance(value, partial):
        return [(name, value.func), (name, value.args), (name, value.keywords)]
    return list(getattr(value, "__dict__", {}).items())


class _Loading(threading.local):
    """What the copy that is being made holds by reference."""

    held: list[Any] = []


_loading = _Loading()


def _held(place: int) -> Any:
    return _loading.held[place]


#: Objects of these classes cannot change, or are what a name in the program stands for: they are not copied.
_BY_REFERENCE = (
    types.ModuleType,
    types.CodeType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    property,
    classmethod,
    staticmethod,
    TypeVar,
    typing.ParamSpec,
)


def _bytes_of(view: memoryview) -> tuple[Any, ...]:
    return bytes, (view.tobytes(),)


def _set_of(references: weakref.WeakSet[Any]) -> tuple[Any, ...]:
    return weakref.WeakSet, (list(references),)


def _proxy_of(proxy: types.MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return types.MappingProxyType, (dict(proxy),)


def _view_of(kind: type[dict[Any, Any]], of: str, view: Iterable[Any]) -> tuple[Any, ...]:
    return _view, (kind.fromkeys(view) if of == "keys" else kind(view if of == "items" else enumerate(view)), of)


def _view(mapping: dict[Any, Any], of: str) -> Any:
    return getattr(mapping, of)()


def _contents_of(file: io.TextIOWrapper) -> tuple[Any, ...]:
    """As cloudpickle: the contents of a file that is open for reading."""
    if not file.readable() or not file.seekable():
        raise pickle.PicklingError(f"Cannot pickle files that are not opened for reading: {file.mode}")
    position = file.tell()
    file.seek(0)
    contents = file.read()
    file.seek(position)
    return _file, (contents, position)


def _file(contents: str, position: int) -> io.StringIO:
    file = io.StringIO(contents)
    file.seek(position)
    return file


_VIEWS: dict[type, Callable[[Any], Any]] = {
    type(getattr(kind(), of)()): partial(_view_of, kind, of)
    for kind in (dict, OrderedDict)
    for of in ("keys", "values", "items")
}


class _Copier(pickle.Pickler):
    """Pickles a value for `own_copy`, and collects in ``held`` what the pickle only refers to."""

    #: for what cannot be pickled as it is; a view becomes one of a dict of its own
    dispatch_table: Any = ChainMap(
        {
            memoryview: _bytes_of,
            weakref.WeakSet: _set_of,
            types.MappingProxyType: _proxy_of,
            io.TextIOWrapper: _contents_of,
            **_VIEWS,
        },
        copyreg.dispatch_table,
    )

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)
        self.held: list[Any] = []
        #: id of the global variables of a module -> the dict that its functions have instead
        self._globals: dict[int, dict[str, Any]] = {}

    def reducer_override(self, obj: Any) -> Any:
        """How to pickle an object of a class that is not built in; NotImplemented: as pickle does."""
        kind = type(obj)
        if kind is types.FunctionType:
            return NotImplemented if _has_a_name(obj) else self._function(obj)
        if kind is types.MethodType:
            return self._method(obj)
        if issubclass(kind, (type, _BY_REFERENCE)) or obj is sys.stdout or obj is sys.stderr:
            return self._hold(obj)
        if getattr(kind, "travels_by_reference", False) is True:
            return self._hold(obj)
        return NotImplemented

    def _hold(self, obj: Any) -> tuple[Any, ...]:
        self.held.append(obj)
        return _held, (len(self.held) - 1,)

    def _function(self, function: types.FunctionType) -> tuple[Any, ...]:
        """A function by value. What it refers to is set when it is there, since it may refer to itself."""
        used = function.__globals__
        names = _global_names(function.__code__)
        variables = self._globals.setdefault(
            id(used), {name: used[name] for name in ("__name__", "__package__", "__file__", "__path__") if name in used}
        )
        cells = function.__closure__ or ()
        state = (
            {name: used[name] for name in names if name in used},
            [(place, cell.cell_contents) for place, cell in enumerate(cells) if _is_filled(cell)],
            function.__defaults__,
            function.__kwdefaults__,
            function.__dict__,
        )
        self.held.append(function)
        return _new_function, (len(self.held) - 1, variables), state, None, None, _set_state

    def _method(self, method: types.MethodType) -> tuple[Any, ...]:
        """A method of the class of its object remains one; any other function is copied as such."""
        function, owner = method.__func__, method.__self__
        attribute = getattr(owner if isinstance(owner, type) else type(owner), function.__name__, None)
        if getattr(attribute, "__func__", attribute) is not function:
            return types.MethodType, (function, owner)
        self.held.append(function)
        return _bound, (len(self.held) - 1, owner)


def _has_a_name(function: types.FunctionType) -> bool:
    """Whether a function is an attribute of a module other than the main script, which names it in any process."""
    module = function.__module__
    found: Any = None if module == "__main__" else sys.modules.get(module)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


_names: weakref.WeakKeyDictionary[types.CodeType, tuple[str, ...]] = weakref.WeakKeyDictionary()

_GLOBAL = {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}


def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The names of the global variables that code uses, itself or in functions and classes that it defines."""
    names = _names.get(code)
    if names is None:
        found = [instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in _GLOBAL]
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                found.extend(_global_names(constant))
        names = _names[code] = tuple(dict.fromkeys(found))
    return names


def _new_function(place: int, variables: dict[str, Any]) -> types.FunctionType:
    original = _held(place)
    variables.setdefault("__builtins__", builtins.__dict__)
    cells = tuple(types.CellType() for _ in original.__closure__ or ())
    function = types.FunctionType(original.__code__, variables, original.__name__, None, cells)
    function.__qualname__, function.__module__ = original.__qualname__, original.__module__
    function.__doc__, function.__annotations__ = original.__doc__, original.__annotations__
    return function


def _set_state(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    variables, contents, function.__defaults__, function.__kwdefaults__, attributes = state
    function.__globals__.update(variables)
    function.__dict__.update(attributes)
    for place, content in contents:
        assert function.__closure__ is not None
        function.__closure__[place].cell_contents = content


def _bound(place: int, owner: Any) -> types.MethodType:
    return types.MethodType(_held(place), owner)
