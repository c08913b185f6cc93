"""Reads the pickles of stored values without an unpickler: texts of savepoints, which anybody may have edited.

It knows the opcodes that pickle writes in protocol 5, and no others. Names are no values: a name is called, or is the
class of a new object, through `Constructors`; nowhere else may it appear. Attributes are set only on objects that this
reader has just made. What a text of some bytes can cost is bounded: sizes are those of the text, nesting is limited
(comparing and hashing values that are nested deeply ends the process), and so is how often one object may occur
(stored state has no shared objects, so each occurrence is written there). It takes about a microsecond per opcode.

It also reads the form of former versions, which named the classes of objects by `program_class`.
"""

from __future__ import annotations

import gc
import io
import pickle
import struct
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from flinkish.errors import UnsafeStateError
from flinkish.runtime import stored_names
from flinkish.runtime.program_classes import ProgramClasses
from flinkish.runtime.stored_names import Constructors

#: The depth of nesting at which reading stops; pickle itself writes about 950 levels.
DEPTH_MAX = 1_000
#: How many objects a value may hold if each is counted as often as it occurs, beyond one per byte of the text.
OCCURRENCES_MAX = 10_000_000

_FORMER = "flinkish.runtime.stored_pickle"
_PROGRAM_CLASS = f"{_FORMER}:program_class"
_OWN = stored_names.__name__


class _Name(NamedTuple):
    """A name on the stack, ``module:Qualified.Name``, and whether it is that of a class of the program."""

    text: str
    is_program: bool = False


#: In place of the depth of a value: a name, and a tuple that holds names, the arguments of a constructor.
_NAME, _NAMES = -1, -2


def _refused(what: str) -> UnsafeStateError:
    return stored_names.refused(what, "no stored value does")


def read_value(pickled: bytes, classes: ProgramClasses) -> Any:
    """The value of a pickle that `stored_pickle.dumps_data` has written.

    Raises:
        StoredClassError: it names a class that the program does not have.
        UnsafeStateError: it is nothing that was stored; nothing but data was made of it.
        ValueError, TypeError or another error of a constructor: it is damaged.
    """
    return _Reader(pickled, Constructors(classes)).read()


class _Reader:
    def __init__(self, pickled: bytes, constructors: Constructors) -> None:
        self._stream = io.BytesIO(pickled)
        self._length = len(pickled)
        self._constructors = constructors
        self._stack: list[Any] = []
        self._depths: list[int] = []
        self._marks: list[int] = []
        self._memo: list[tuple[Any, int]] = []
        # containers and objects that may still change: id -> (the object, its depth)
        self._open: dict[int, tuple[Any, int]] = {}
        self._occurs_again = False

    def read(self) -> Any:
        step = self._stream.read
        while (code := step(1)) != pickle.STOP:
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise _refused(f"has the opcode {code!r}" if code else "ends too early")
            operation(self)
        if len(self._stack) != 1 or self._depths[0] < 0 or self._marks:
            raise _refused("is not exactly one value")
        (value,) = self._stack
        if self._occurs_again:
            _check_occurrences(value, OCCURRENCES_MAX + self._length)
        return value

    # ------------------------------------------------------------------------------------------------ stack

    def _bytes(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) != count:
            raise _refused("ends too early")
        return data

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _push(self, value: Any, depth: int = 0) -> None:
        if depth > DEPTH_MAX:
            raise _refused(f"is nested more than {DEPTH_MAX} levels deep")
        self._stack.append(value)
        self._depths.append(depth)

    def _pop(self) -> tuple[Any, int]:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise _refused("takes a value that is not there")
        return self._stack.pop(), self._depths.pop()

    def _pop_values(self, count: int | None = None) -> tuple[list[Any], list[int]]:
        """The topmost values and their depths: this many, or those above the last mark."""
        if count is None:
            if not self._marks:
                raise _refused("goes back to a mark that is not there")
            begin = self._marks.pop()
        else:
            begin = len(self._stack) - count
            if begin < (self._marks[-1] if self._marks else 0):
                raise _refused("takes a value that is not there")
        values, depths = self._stack[begin:], self._depths[begin:]
        del self._stack[begin:], self._depths[begin:]
        return values, depths

    def _push_open(self, value: Any, depth: int = 1) -> None:
        self._push(value, depth)
        self._open[id(value)] = value, depth

    def _grow(self, depths: list[int]) -> Any:
        """The topmost value, which gets parts of these depths."""
        if min(depths, default=0) < 0:
            raise _refused("has a name among its values")
        value, _ = self._pop()
        found = self._open.get(id(value))
        if found is None:
            raise _refused(f"changes a {type(value).__name__} that it has not made")
        self._push_open(value, max(found[1], 1 + max(depths, default=0)))
        return value

    # ------------------------------------------------------------------------------------------- containers

    def tuple_of(self, count: int | None) -> None:
        values, depths = self._pop_values(count)
        lowest = min(depths, default=0)
        if lowest == _NAMES:
            raise _refused("has a name inside of a value")
        self._push(tuple(values), _NAMES if lowest == _NAME else 1 + max(depths, default=0))

    def frozenset_of(self) -> None:
        values, depths = self._pop_values()
        if min(depths, default=0) < 0:
            raise _refused("has a name among its values")
        self._push(frozenset(values), 1 + max(depths, default=0))

    def append(self, count: int | None) -> None:
        values, depths = self._pop_values(count)
        grown = self._grow(depths)
        if hasattr(grown, "extend"):
            grown.extend(values)
        else:
            for value in values:
                grown.append(value)

    def set_items(self, count: int | None) -> None:
        values, depths = self._pop_values(count)
        grown = self._grow(depths)
        for key, value in zip(values[::2], values[1::2], strict=True):
            grown[key] = value

    def add_items(self) -> None:
        values, depths = self._pop_values()
        grown = self._grow(depths)
        if type(grown) is not set:
            raise _refused(f"adds to a {type(grown).__name__} as to a set")
        grown.update(values)

    # --------------------------------------------------------------------------------------- names, objects

    def global_name(self) -> None:
        (module, name), _ = self._pop_values(2)
        if type(module) is not str or type(name) is not str:
            raise _refused("has a name that is no text")
        text = f"{module}:{name}"
        if module == _FORMER:
            text = text if text == _PROGRAM_CLASS else f"{_OWN}:{name.removeprefix('_')}"
        known = text in stored_names.DATA_NAMES or text in (_PROGRAM_CLASS, "copyreg:_reconstructor")
        if not known and self._constructors.named(text) is None:
            raise stored_names.refused_name(module, name)
        self._push(_Name(text), _NAME)

    def _callee(self, what: str) -> tuple[_Name, list[Any], list[int]]:
        """The name and the arguments on top of the stack."""
        (name, arguments), (kind, depth) = self._pop_values(2)
        if kind != _NAME or type(arguments) is not tuple or depth == _NAME:
            raise _refused(f"{what} something that is no name")
        return name, list(arguments), [max(depth, 1)]

    def reduce(self) -> None:
        name, arguments, depths = self._callee("calls")
        if name.text == _PROGRAM_CLASS:
            if len(arguments) != 1 or type(arguments[0]) is not str:
                raise _refused("names a class by something that is no text")
            self._constructors.class_of(arguments[0])
            self._push(_Name(arguments[0], True), _NAME)
            return
        if name.text == "copyreg:_reconstructor":
            name, by_name = _Name(f"{_OWN}:reconstruct"), True
        else:
            by_name = name.text.startswith(f"{_OWN}:")
        arguments = [self._argument(argument, by_name) for argument in arguments]
        found = None if name.is_program else self._constructors.named(name.text)
        made = found(*arguments) if found else self._constructors.call(name.text, *arguments)
        self._push_made(name.text, made, depths)

    def _argument(self, argument: Any, by_name: bool) -> Any:
        if type(argument) is not _Name:
            return argument
        return argument.text if by_name else self._constructors.class_of(argument.text)

    def _push_made(self, name: str, made: Any, depths: list[int]) -> None:
        if self._constructors.is_fresh(name):
            self._push_open(made, 1 + max(depths))
        else:
            self._push(made, 1)

    def new_object(self) -> None:
        name, arguments, depths = self._callee("makes an object of")
        if any(type(argument) is _Name for argument in arguments):
            raise _refused("has a name inside of a value")
        self._push_made(name.text, self._constructors.make(name.text, *arguments), depths)

    def new_object_with_names(self) -> None:
        named, depth = self._pop()
        name, arguments, depths = self._callee("makes an object of")
        if type(named) is not dict or any(type(argument) is _Name for argument in arguments):
            raise _refused("has a name inside of a value")
        made = self._constructors.make_with_names(name.text, tuple(arguments), named)
        self._push_made(name.text, made, [*depths, depth])

    def build(self) -> None:
        state, depth = self._pop()
        grown = self._grow([depth])
        if hasattr(type(grown), "__setstate__"):
            grown.__setstate__(state)
            return
        attributes, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
        for part in (attributes, slots):
            if part is not None and (type(part) is not dict or not set(map(type, part)) <= {str}):
                raise _refused("has attributes that are no names")
        if attributes:
            vars(grown).update(attributes)
        for attribute, value in (slots or {}).items():
            if type(getattr(type(grown), attribute, None)) is not MemberDescriptorType:
                raise _refused(f"sets {attribute} of a {type(grown).__name__}, which is no slot")
            object.__setattr__(grown, attribute, value)

    # ------------------------------------------------------------------------------------------------- memo

    def memoize(self) -> None:
        value, depth = self._pop()
        self._push(value, depth)
        self._memo.append((value, depth))

    def get(self, index: int) -> None:
        if index >= len(self._memo):
            raise _refused(f"refers to the value {index}, which is not there")
        value, depth = self._memo[index]
        if depth != 0:
            self._occurs_again = True
        found = self._open.get(id(value))
        self._push(value, depth if found is None else found[1])

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def skip(self, count: int) -> None:
        self._bytes(count)

    def pop(self) -> None:
        self._pop()

    def pop_to_mark(self) -> None:
        self._pop_values()

    def text(self, form: str) -> None:
        self._push(str(self._bytes(self._number(form)), "utf-8", "surrogatepass"))

    def integer(self, form: str) -> None:
        self._push(int.from_bytes(self._bytes(self._number(form)), "little", signed=True))


def _check_occurrences(value: Any, at_most: int) -> None:
    """Refuse a value of more objects than this, where an object is counted as often as it occurs."""
    sizes: dict[int, int] = {}
    # (object, its children once they are counted); the objects themselves keep their ids in use
    todo: list[tuple[Any, list[Any] | None]] = [(value, None)]
    while todo:
        found, children = todo.pop()
        if children is not None:
            sizes[id(found)] = 1 + sum(sizes[id(child)] for child in children)
            if sizes[id(found)] > at_most:
                raise _refused(f"has objects that together occur more than {at_most:,} times")
        elif id(found) not in sizes:
            sizes[id(found)] = 1
            children = [child for child in gc.get_referents(found) if not isinstance(child, _NO_PARTS)]
            todo.append((found, children))
            todo.extend((child, None) for child in children)


#: What values refer to without holding it.
_NO_PARTS = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def _sized_bytes(kind: Callable[[bytes], Any], form: str) -> Callable[[_Reader], None]:
    def operation(reader: _Reader) -> None:
        value = kind(reader._bytes(reader._number(form)))
        if kind is bytes:
            reader._push(value)
        else:
            reader._push_open(value)

    return operation


_OPERATIONS: dict[bytes, Callable[[_Reader], None]] = {
    pickle.FRAME: lambda reader: reader.skip(8),
    pickle.NONE: lambda reader: reader._push(None),
    pickle.NEWTRUE: lambda reader: reader._push(True),
    pickle.NEWFALSE: lambda reader: reader._push(False),
    pickle.BININT: lambda reader: reader._push(reader._number("<i")),
    pickle.BININT1: lambda reader: reader._push(reader._number("<B")),
    pickle.BININT2: lambda reader: reader._push(reader._number("<H")),
    pickle.LONG1: lambda reader: reader.integer("<B"),
    pickle.LONG4: lambda reader: reader.integer("<I"),
    pickle.BINFLOAT: lambda reader: reader._push(reader._number(">d")),
    pickle.SHORT_BINUNICODE: lambda reader: reader.text("<B"),
    pickle.BINUNICODE: lambda reader: reader.text("<I"),
    pickle.BINUNICODE8: lambda reader: reader.text("<Q"),
    pickle.SHORT_BINBYTES: _sized_bytes(bytes, "<B"),
    pickle.BINBYTES: _sized_bytes(bytes, "<I"),
    pickle.BINBYTES8: _sized_bytes(bytes, "<Q"),
    pickle.BYTEARRAY8: _sized_bytes(bytearray, "<Q"),
    pickle.EMPTY_TUPLE: lambda reader: reader._push((), 1),
    pickle.TUPLE1: lambda reader: reader.tuple_of(1),
    pickle.TUPLE2: lambda reader: reader.tuple_of(2),
    pickle.TUPLE3: lambda reader: reader.tuple_of(3),
    pickle.TUPLE: lambda reader: reader.tuple_of(None),
    pickle.EMPTY_LIST: lambda reader: reader._push_open([]),
    pickle.APPEND: lambda reader: reader.append(1),
    pickle.APPENDS: lambda reader: reader.append(None),
    pickle.EMPTY_DICT: lambda reader: reader._push_open({}),
    pickle.SETITEM: lambda reader: reader.set_items(2),
    pickle.SETITEMS: lambda reader: reader.set_items(None),
    pickle.EMPTY_SET: lambda reader: reader._push_open(set()),
    pickle.ADDITEMS: lambda reader: reader.add_items(),
    pickle.FROZENSET: lambda reader: reader.frozenset_of(),
    pickle.MARK: lambda reader: reader.mark(),
    pickle.POP: lambda reader: reader.pop(),
    pickle.POP_MARK: lambda reader: reader.pop_to_mark(),
    pickle.MEMOIZE: lambda reader: reader.memoize(),
    pickle.BINGET: lambda reader: reader.get(reader._number("<B")),
    pickle.LONG_BINGET: lambda reader: reader.get(reader._number("<I")),
    pickle.STACK_GLOBAL: lambda reader: reader.global_name(),
    pickle.REDUCE: lambda reader: reader.reduce(),
    pickle.NEWOBJ: lambda reader: reader.new_object(),
    pickle.NEWOBJ_EX: lambda reader: reader.new_object_with_names(),
    pickle.BUILD: lambda reader: reader.build(),
    pickle.PROTO: lambda reader: reader.skip(1),
}
