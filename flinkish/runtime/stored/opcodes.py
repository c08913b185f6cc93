"""Parses the pickles of stored values: the opcodes that pickle writes in protocol 5, and no others, become nodes.

Nothing of what a text names exists afterwards: parts without parts are Python's own numbers, texts and bytes, all
others are nodes (`NODES`). What they become, and whether they may, is decided by `reader`. A name is a node that
stands only where a name is called, or in place of a class among the arguments of a call. Items and attributes are put
only into containers, and into objects that are new once they are made (`GROWING`).

It also parses the form of former versions, which named the classes of objects by `program_class`.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

from flinkish.errors import UnsafeStateError
from flinkish.runtime import stored_names
from flinkish.runtime.stored.calls import GROWING, Constructors
from flinkish.runtime.stored.names import DATA_NAMES
from flinkish.runtime.stored_names import CONSTRUCTORS, OWN, WITHOUT_CLASSES

#: The module of constructors in pickles of former versions.
FORMER = "flinkish.runtime.stored_pickle"
_PROGRAM_CLASS = f"{FORMER}:program_class"
_OWN_NAMES = {f"{OWN}:{function.__name__}": function.__name__ for function in CONSTRUCTORS}
_OWN_NAMES["copyreg:_reconstructor"] = "reconstruct"
#: Constructors whose arguments are values alone.
PLAIN = {function.__name__: function for function in WITHOUT_CLASSES}
#: Constructors whose results others have as well, or that are whole when they are made.
_SHARED = frozenset({"member", *PLAIN})


def refused(what: str) -> UnsafeStateError:
    """The error for a text that nobody has stored."""
    return stored_names.refused(what, "no stored value does")


# ------------------------------------------------------------------------------------------------------------ nodes

#: The parts of a container that has none yet; never changed.
NOTHING: list[Any] = []
#: In place of the depth of a node: it was not visited, and its parts are being visited.
NEW, OPEN = 0, -1


class Node:
    """A part of a value that has parts itself. ``value`` is what it becomes; ``recurs``: it holds itself, or a part
    that does."""

    __slots__ = ("parts", "depth", "weight", "value", "recurs")

    def __init__(self, parts: list[Any] = NOTHING) -> None:
        self.parts = parts
        self.depth = NEW
        self.weight = 0
        self.value: Any = None
        self.recurs = False


class TupleNode(Node):
    """A tuple of its parts."""

    __slots__ = ()


class ListNode(Node):
    """A list of its parts."""

    __slots__ = ()


class DictNode(Node):
    """A dictionary; its parts are keys and values in turn."""

    __slots__ = ()


class SetNode(Node):
    """A set of its parts."""

    __slots__ = ()


class FrozenSetNode(Node):
    """A frozenset of its parts."""

    __slots__ = ()


class BytearrayNode(Node):
    """A bytearray; its part are the bytes."""

    __slots__ = ()


class NameNode(Node):
    """A name, ``module:Qualified.Name``, and whether it is that of a class of the program."""

    __slots__ = ("text", "is_program")

    def __init__(self, text: str, is_program: bool = False) -> None:
        super().__init__()
        self.text = text
        self.is_program = is_program


class ObjectNode(Node):
    """What a constructor makes: ``how`` is its name, ``name`` that of a class or function; ``parts`` are the other
    arguments, where a `NameNode` stands for a class. Then it gets items, pairs of keys and values, and its state."""

    __slots__ = ("how", "name", "items", "pairs", "states")

    def __init__(self, how: str, name: str, arguments: list[Any]) -> None:
        super().__init__(arguments)
        self.how = how
        self.name = name
        self.items = self.pairs = self.states = NOTHING


NODES = frozenset({TupleNode, ListNode, DictNode, SetNode, FrozenSetNode, BytearrayNode, NameNode, ObjectNode})


# ------------------------------------------------------------------------------------------------------------ parse

#: Texts up to this size may be shared: an opcode that refers to one has two bytes or more.
_SHORT = 64
_SIZES = {size: struct.Struct(form).unpack_from for size, form in ((1, "<B"), (4, "<I"), (8, "<Q"))}
_TEXT, _SMALL, _MEMOIZE, _STOP = (
    ord(code) for code in (pickle.SHORT_BINUNICODE, pickle.BININT1, pickle.MEMOIZE, pickle.STOP)
)


class Parser:
    """The opcodes of a value, the stack of its parts, and the parts that it remembers. Each operation gets the place of
    what follows its code, and returns that of the next code."""

    def __init__(self, data: bytes, constructors: Constructors) -> None:
        self.data = data
        self.constructors = constructors
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        #: whether a part, or a long text, may occur more than once
        self.shares = False

    def parse(self) -> Any:
        data, stack, memo = self.data, self.stack, self.memo
        at = 0
        try:
            while (code := data[at]) != _STOP:
                at += 1
                if code == _MEMOIZE:
                    memo.append(stack[-1])
                elif code == _TEXT:
                    end = at + 1 + data[at]
                    stack.append(str(data[at + 1 : end], "utf-8", "surrogatepass"))
                    at = end
                elif code == _SMALL:
                    stack.append(data[at])
                    at += 1
                else:
                    operation = _OPERATIONS.get(code)
                    if operation is None:
                        raise refused(f"has the opcode {bytes((code,))!r}")
                    at = operation(self, at)
        except IndexError:
            raise refused("ends too early, or takes a value that is not there") from None
        except struct.error:
            raise refused("ends too early") from None
        if len(stack) != 1 or self.marks or at + 1 != len(data):
            raise refused("is not exactly one value")
        return stack[0]

    # ------------------------------------------------------------------------------------------- stack, memo

    def taken(self, count: int | None) -> list[Any]:
        """The topmost values: this many, or those above the last mark."""
        stack = self.stack
        begin = self.marks.pop() if count is None else len(stack) - count
        if begin < 0:
            raise IndexError
        values = stack[begin:]
        del stack[begin:]
        return values

    def get(self, index: int) -> None:
        value = self.memo[index]
        if type(value) is not str or len(value) > _SHORT:
            self.shares = True
        self.stack.append(value)

    # -------------------------------------------------------------------------------------------- containers

    def append(self, count: int | None) -> None:
        values = self.taken(count)
        target = self.stack[-1]
        if type(target) is ListNode:
            target.parts = _extended(target.parts, values)
        else:
            grown = self._growing(target)
            grown.items = _extended(grown.items, values)

    def set_items(self, count: int | None) -> None:
        values = self.taken(count)
        if len(values) % 2:
            raise refused("has a key without a value")
        target = self.stack[-1]
        if type(target) is DictNode:
            target.parts = _extended(target.parts, values)
        else:
            grown = self._growing(target)
            grown.pairs = _extended(grown.pairs, values)

    def add_items(self) -> None:
        values = self.taken(None)
        target = self.stack[-1]
        if type(target) is not SetNode:
            raise refused(f"adds to a {_described(target)} as to a set")
        target.parts = _extended(target.parts, values)

    def build(self) -> None:
        state = self.taken(1)
        grown = self._growing(self.stack[-1])
        if grown.states:
            raise refused(f"gives a {_described(grown)} its state twice")
        grown.states = state

    @staticmethod
    def _growing(target: Any) -> ObjectNode:
        """An object that is new, and so may get items and attributes."""
        if (
            type(target) is not ObjectNode
            or target.how in _SHARED
            or (target.name in DATA_NAMES and target.name not in GROWING)
        ):
            raise refused(f"changes a {_described(target)} that it has not made")
        return target

    # ----------------------------------------------------------------------------------------- names, objects

    def global_name(self) -> None:
        module, name = self.taken(2)
        if type(module) is not str or type(name) is not str:
            raise refused("has a name that is no text")
        text = f"{module}:{name}"
        if module == FORMER and text != _PROGRAM_CLASS:
            text = f"{OWN}:{name.removeprefix('_')}"
        if not (text in _OWN_NAMES or text in DATA_NAMES or text == _PROGRAM_CLASS):
            raise stored_names.refused_name(module, name)
        self.stack.append(NameNode(text))

    def _callee(self, what: str) -> tuple[NameNode, list[Any]]:
        """The name and the arguments on top of the stack."""
        name, arguments = self.taken(2)
        if type(name) is not NameNode or type(arguments) is not TupleNode:
            raise refused(f"{what} something that is no name")
        return name, arguments.parts

    def reduce(self) -> None:
        name, arguments = self._callee("calls")
        if name.text == _PROGRAM_CLASS and not name.is_program:
            text = arguments[0] if len(arguments) == 1 else None
            if type(text) is not str:
                raise refused("names a class by something that is no text")
            self.constructors.class_of(text)
            self.stack.append(NameNode(text, True))
            return
        how = None if name.is_program else _OWN_NAMES.get(name.text)
        if how is None:
            self.stack.append(ObjectNode("call", name.text, arguments))
        elif how in PLAIN:
            self.stack.append(ObjectNode(how, name.text, arguments))
        else:
            self.stack.append(_made_by(how, arguments))

    def new_object(self) -> None:
        name, arguments = self._callee("makes an object of")
        self.stack.append(ObjectNode("make", name.text, arguments))

    def new_object_with_names(self) -> None:
        name, arguments, named = self.taken(3)
        if type(name) is not NameNode:
            raise refused("makes an object of something that is no name")
        self.stack.append(ObjectNode("make_with_names", name.text, [arguments, named]))


def _made_by(how: str, arguments: list[Any]) -> ObjectNode:
    """What a constructor makes of the name of a class, and of further arguments."""
    name, rest = _text_of(arguments[0] if arguments else None), arguments[1:]
    if how == "reconstruct":
        rest[:1] = map(_text_of, rest[:1])
    if how != "call_with_classes":
        return ObjectNode(how, name, rest)
    at: Any = rest[0] if rest else None
    if type(at) is not TupleNode or not all(type(index) is int for index in at.parts):
        raise refused("has classes among arguments at places that are no numbers")
    places = set(at.parts)
    return ObjectNode(
        "call", name, [NameNode(_text_of(part)) if index in places else part for index, part in enumerate(rest[1:])]
    )


def _text_of(name: Any) -> str:
    """The name of a class, for a constructor that gets it as an argument."""
    text: Any = name.text if type(name) is NameNode else name
    # an object of another class could be equal to one text and be read as another
    if type(text) is not str:
        raise stored_names.refused_data(f"a {_described(text)} in place of the name of a class")
    return text


def _described(part: Any) -> str:
    if type(part) is ObjectNode:
        return part.name.rpartition(":")[2]
    return type(part).__name__.lstrip("_").lower()


def _extended(parts: list[Any], values: list[Any]) -> list[Any]:
    if not parts:
        return values
    parts.extend(values)
    return parts


# ------------------------------------------------------------------------------------------------------- operations


def _value(value: Any) -> Callable[[Parser, int], int]:
    def operation(parser: Parser, at: int) -> int:
        parser.stack.append(value)
        return at

    return operation


def _unpacked(unpack: Callable[[bytes, int], tuple[Any, ...]], size: int) -> Callable[[Parser, int], int]:
    def operation(parser: Parser, at: int) -> int:
        parser.stack.append(unpack(parser.data, at)[0])
        return at + size

    return operation


def _sized(make: Callable[[bytes], Any], size_bytes: int) -> Callable[[Parser, int], int]:
    """A value made of bytes, before which their number stands."""
    unpack = _SIZES[size_bytes]

    def operation(parser: Parser, at: int) -> int:
        begin = at + size_bytes
        end = begin + unpack(parser.data, at)[0]
        if end > len(parser.data):
            raise IndexError
        parser.stack.append(make(parser.data[begin:end]))
        return int(end)

    return operation


def _part(make: Callable[[list[Any]], Node], count: int | None = 0) -> Callable[[Parser, int], int]:
    """A container of this many values, or of those above the last mark."""

    def operation(parser: Parser, at: int) -> int:
        parser.stack.append(make(parser.taken(count)) if count != 0 else make(NOTHING))
        return at

    return operation


def _step(step: Callable[[Parser], Any], size: int = 0) -> Callable[[Parser, int], int]:
    """An operation that takes nothing from the text, and leaves out this many bytes of it."""

    def operation(parser: Parser, at: int) -> int:
        step(parser)
        return at + size

    return operation


def _get(size: int) -> Callable[[Parser, int], int]:
    unpack = _SIZES[size]

    def operation(parser: Parser, at: int) -> int:
        parser.get(unpack(parser.data, at)[0])
        return at + size

    return operation


def _text(data: bytes) -> str:
    return str(data, "utf-8", "surrogatepass")


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


_OPERATIONS: dict[int, Callable[[Parser, int], int]] = {
    ord(code): operation
    for code, operation in {
        pickle.PROTO: _step(lambda parser: None, 1),
        pickle.FRAME: _step(lambda parser: None, 8),
        pickle.NONE: _value(None),
        pickle.NEWTRUE: _value(True),
        pickle.NEWFALSE: _value(False),
        pickle.BININT: _unpacked(struct.Struct("<i").unpack_from, 4),
        pickle.BININT2: _unpacked(struct.Struct("<H").unpack_from, 2),
        pickle.LONG1: _sized(_integer, 1),
        pickle.LONG4: _sized(_integer, 4),
        pickle.BINFLOAT: _unpacked(struct.Struct(">d").unpack_from, 8),
        pickle.BINUNICODE: _sized(_text, 4),
        pickle.BINUNICODE8: _sized(_text, 8),
        pickle.SHORT_BINBYTES: _sized(bytes, 1),
        pickle.BINBYTES: _sized(bytes, 4),
        pickle.BINBYTES8: _sized(bytes, 8),
        pickle.BYTEARRAY8: _sized(lambda data: BytearrayNode([data]), 8),
        pickle.EMPTY_TUPLE: _part(TupleNode),
        pickle.TUPLE1: _part(TupleNode, 1),
        pickle.TUPLE2: _part(TupleNode, 2),
        pickle.TUPLE3: _part(TupleNode, 3),
        pickle.TUPLE: _part(TupleNode, None),
        pickle.EMPTY_LIST: _part(ListNode),
        pickle.APPEND: _step(lambda parser: parser.append(1)),
        pickle.APPENDS: _step(lambda parser: parser.append(None)),
        pickle.EMPTY_DICT: _part(DictNode),
        pickle.SETITEM: _step(lambda parser: parser.set_items(2)),
        pickle.SETITEMS: _step(lambda parser: parser.set_items(None)),
        pickle.EMPTY_SET: _part(SetNode),
        pickle.ADDITEMS: _step(Parser.add_items),
        pickle.FROZENSET: _part(FrozenSetNode, None),
        pickle.MARK: _step(lambda parser: parser.marks.append(len(parser.stack))),
        pickle.POP: _step(lambda parser: parser.taken(1)),
        pickle.POP_MARK: _step(lambda parser: parser.taken(None)),
        pickle.BINGET: _get(1),
        pickle.LONG_BINGET: _get(4),
        pickle.STACK_GLOBAL: _step(Parser.global_name),
        pickle.REDUCE: _step(Parser.reduce),
        pickle.NEWOBJ: _step(Parser.new_object),
        pickle.NEWOBJ_EX: _step(Parser.new_object_with_names),
        pickle.BUILD: _step(Parser.build),
    }.items()
}
