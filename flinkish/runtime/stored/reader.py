"""Reads the pickles of stored values without an unpickler: texts of savepoints, which anybody may have edited.

There are three steps. `opcodes` *parses* a text into nodes, of which nothing exists yet. Then the graph of
nodes, as it is after the last opcode, is *judged*: it is not nested deeply (hashing values that are nested deeply ends
the process), and its weight is bounded by the size of the text even if each node and each text counts as often as it
occurs, since it is stored again like this. At last each node is *built*, after all that it holds, so that nothing
changes once it is part of something else. Only what holds itself is made, empty, before its parts: a container, or an
object that is made of nothing else.

Items and attributes are given only to objects that the build has just made, by the methods of Python's own containers.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from types import MemberDescriptorType, NoneType
from typing import Any
from uuid import UUID

from flinkish.runtime.stored.calls import (
    Constructors,
    attribute_types,
    check_arguments,
    check_keys,
    constructors_of,
    defining,
    keeps_attributes,
)
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.names import CALLABLE, DATA_NAMES
from flinkish.runtime.stored.opcodes import (
    FORMER,
    NEW,
    NODES,
    OPEN,
    PLAIN,
    BytearrayNode,
    DictNode,
    FrozenSetNode,
    ListNode,
    NameNode,
    Node,
    ObjectNode,
    Parser,
    SetNode,
    TupleNode,
    refused,
)
from flinkish.runtime.stored_names import OldFormError, refused_name

#: The depth of nesting at which reading stops; pickle itself writes about 950 levels.
DEPTH_MAX = 1_000
#: What a value may weigh: so much, and so much more per byte of its text.
WEIGHT_MIN, WEIGHT_PER_BYTE = 1 << 14, 64
#: What an element of a set or a key of a dictionary may weigh, and how deeply it may be nested: it is hashed.
HASHED_WEIGHT_MAX, HASHED_DEPTH_MAX = 1 << 20, 100


def read_value(pickled: bytes, classes: ProgramClasses = NO_CLASSES) -> Any:
    """The value of a pickle that `pickles.dumps_data` has written.

    Raises:
        StoredClassError: it names a class that the program does not have.
        UnsafeStateError: it is nothing that was stored; nothing but data was made of it.
        ValueError, TypeError or another error of a constructor: it is damaged.
    """
    constructors = constructors_of(classes)
    root, nodes, recurring = _judged(pickled, constructors)
    for node in recurring:
        node.value = _MAKERS[type(node)](node, constructors)
    for node in nodes:
        if node.value is None:
            node.value = _MAKERS[type(node)](node, constructors)
        if type(node) in _FILLERS:
            _FILLERS[type(node)](node.value, node)
    return root.value if nodes else root


def weight_max(size: int) -> int:
    """What the value of a text of this many bytes may weigh."""
    return WEIGHT_MIN + WEIGHT_PER_BYTE * size


# ------------------------------------------------------------------------------------------------------------ judge


def _judged(pickled: bytes, constructors: Constructors) -> tuple[Any, list[Node], list[Node]]:
    """The root of a value; its nodes, each of them after its parts, none if the value has no parts; and those of them
    that some part of theirs holds.

    Raises:
        UnsafeStateError: it is nothing that was stored, or takes more than its size explains.
    """
    parser = Parser(pickled, constructors)
    root = parser.parse()
    nodes, recurring = list[Node](), list[Node]()
    todo: list[Node] = [root] if type(root) in NODES else []
    at_most = weight_max(len(pickled)) if parser.shares else None
    while todo:
        node = todo[-1]
        if node.depth == NEW:
            node.depth = OPEN
            if type(node) is NameNode:
                raise refused("has a name among its values")
            for part in _parts_of(node):
                if type(part) in NODES and part.depth <= NEW:
                    if part.depth == NEW:
                        todo.append(part)
                    elif not part.recurs:
                        # what it is made of is not there yet
                        made_of = set(map(type, part.parts)) - {NameNode} if type(part) is ObjectNode else ()
                        if type(part) not in _FILLERS or not NODES.isdisjoint(made_of):
                            raise refused("holds itself among what it is made of")
                        part.recurs = True
                        recurring.append(part)
            continue
        todo.pop()
        if node.depth == OPEN:
            _measure(node, at_most)
            nodes.append(node)
    return root, nodes, recurring


def _measure(node: Node, at_most: int | None) -> None:
    """Measure a node whose parts are measured. Without a limit its weight is not needed: no part occurs twice."""
    parts = _parts_of(node)
    inner = [part for part in parts if type(part) in NODES]
    node.depth = depth = 1 + max([part.depth for part in inner], default=0)
    if depth > DEPTH_MAX:
        raise refused(f"is nested more than {DEPTH_MAX} levels deep")
    node.recurs = node.recurs or any(part.recurs for part in inner)
    node.weight = 0
    if at_most is not None:
        node.weight = len(parts) + sum([part.weight for part in inner]) + sum(map(_size, parts))
        if node.weight > at_most:
            raise refused(f"has parts that together occur as {at_most:,} and more would")
    for part in _hashed(node) if inner else ():
        if type(part) in NODES and (part.depth > HASHED_DEPTH_MAX or part.weight > HASHED_WEIGHT_MAX):
            raise refused(f"has a key of more than {HASHED_DEPTH_MAX} levels or {HASHED_WEIGHT_MAX:,} parts")


def _size(part: Any) -> int:
    """What a part without parts weighs, beyond that it is one."""
    kind = type(part)
    if kind is str or kind is bytes:
        return len(part)
    return part.bit_length() >> 3 if kind is int else 0


def _parts_of(node: Node) -> Sequence[Any]:
    if type(node) is not ObjectNode:
        return node.parts
    arguments = [part for part in node.parts if type(part) is not NameNode]
    return [*arguments, *node.items, *node.pairs, *node.states]


def _hashed(node: Node) -> Sequence[Any]:
    """The parts whose hash is taken when a node is built."""
    if type(node) is ObjectNode:
        return node.pairs[::2]
    if type(node) is DictNode:
        return node.parts[::2]
    return node.parts if type(node) in (SetNode, FrozenSetNode) else ()


# ------------------------------------------------------------------------------------------------------------ build


def _values(parts: Iterable[Any]) -> list[Any]:
    return [part.value if type(part) in NODES else part for part in parts]


def _dict_of(pairs: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(_keys(pairs[::2]), _values(pairs[1::2])))


def _keys(parts: Sequence[Any]) -> list[Any]:
    """Values that are hashed, by what they are and not by what they will hold."""
    for part in parts:
        if type(part) in NODES and part.recurs and defining(type(part.value), "__hash__"):
            raise refused("has a key that holds itself")
    keys = _values(parts)
    check_keys(keys)
    return keys


def _object(node: ObjectNode, constructors: Constructors) -> Any:
    arguments = _values(constructors.class_of(part.text) if type(part) is NameNode else part for part in node.parts)
    plain = PLAIN.get(node.how)
    if plain is not None:
        check_arguments(node.how, tuple(arguments))
        return plain(*arguments)
    if node.how == "call" and node.name in CALLABLE:
        check_arguments(node.name, tuple(arguments))
    made = getattr(constructors, node.how)(node.name, *arguments)
    # one reference is that of this variable, another that of the call: nobody else has what was made
    if (node.items or node.pairs or node.states) and sys.getrefcount(made) > 2:
        raise refused(f"changes a {type(made).__name__} that it has not made")
    return made


def _grow(made: Any, node: ObjectNode) -> None:
    bases = type(made).__mro__
    if node.items:
        if list not in bases and deque not in bases:
            raise refused(f"appends to a {type(made).__name__}")
        items = _values(node.items)
        list.extend(made, items) if list in bases else deque.extend(made, items)
    if node.pairs:
        if dict not in bases:
            raise refused(f"sets items of a {type(made).__name__}")
        pairs = _dict_of(node.pairs)
        if OrderedDict in bases:
            for key, value in pairs.items():
                OrderedDict.__setitem__(made, key, value)
        else:
            dict.update(made, pairs)
    if not node.states and node.how != "call" and attribute_types(bases):
        raise refused(f"has a {type(made).__name__} without its attributes")
    for state in _values(node.states):
        _set_state(made, state)


def _set_state(made: Any, state: Any) -> None:
    """Give an object that was just made its state: by its own ``__setstate__``, or as attributes."""
    cls = type(made)
    if not keeps_attributes(cls):
        raise refused(f"changes a {cls.__name__} that has no attributes")
    setter = defining(cls, "__setstate__")
    attributes, slots = attributes_in(cls, state, setter)
    if setter is not None and setter is not BaseException:
        vars(setter)["__setstate__"].__get__(made, cls)(state)
        return
    if attributes:
        _set_attributes(made, attributes, setter)
    for attribute, value in (slots or {}).items():
        _set_slot(made, attribute, value)


def attributes_in(cls: type, state: Any, setter: type | None) -> tuple[Any, Any]:
    """The attributes in the state of an object, in its dictionary and in slots, which a text may give to it. None: its
    class sets the state itself. ``setter``: the class that defines ``__setstate__``. Raises UnsafeStateError."""
    if setter is UUID and not _is_state_of_uuid(state):
        raise refused("has a UUID that is no number of 128 bits")
    if setter is not None and setter is not BaseException:
        return None, None
    attributes, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    for part in (attributes, slots):
        if part is None:
            continue
        if type(part) is not dict or not all(map(is_attribute, part)):
            raise refused("has attributes that are no names")
    for attribute, kinds in attribute_types(cls.__mro__).items():
        value = {**(attributes or {}), **(slots or {})}.get(attribute)
        if type(value) not in kinds:
            raise refused(f"has a {type(value).__name__} as {attribute} of a {cls.__name__}")
    return attributes, slots


def _is_state_of_uuid(state: Any) -> bool:
    if type(state) is not dict or not {"int"} <= set(state) <= {"int", "is_safe"}:
        return False
    return (
        type(state["int"]) is int and 0 <= state["int"] < 1 << 128 and type(state.get("is_safe", 0)) in (int, NoneType)
    )


def is_attribute(name: Any) -> bool:
    # methods of Python's protocols are looked up on some objects, too, such as `__reduce_ex__` and `__deepcopy__`
    return type(name) is str and (not name.startswith("__") or not name.endswith("__") or name == "__notes__")


def _set_attributes(made: Any, attributes: dict[str, Any], setter: type | None) -> None:
    if setter is BaseException:
        # what an error of Python keeps outside of its dictionary
        for name in ("name", "path"):
            if type(attributes.get(name)) is str and defining(type(made), name) is not None:
                object.__setattr__(made, name, attributes[name])
                attributes = {other: value for other, value in attributes.items() if other != name}
    object.__getattribute__(made, "__dict__").update(attributes)


def _set_slot(made: Any, attribute: str, value: Any) -> None:
    owner = defining(type(made), attribute)
    descriptor = None if owner is None else vars(owner)[attribute]
    if (
        owner is None
        or type(descriptor) is not MemberDescriptorType
        or "__slots__" not in vars(owner)
        or owner.__module__.partition(".")[0] in sys.stdlib_module_names
    ):
        raise refused(f"sets {attribute} of a {type(made).__name__}, which is no slot")
    descriptor.__set__(made, value)


_MAKERS: dict[type, Callable[[Any, Constructors], Any]] = {
    TupleNode: lambda node, _: tuple(_values(node.parts)),
    ListNode: lambda *_: [],
    DictNode: lambda *_: {},
    SetNode: lambda *_: set(),
    FrozenSetNode: lambda node, _: frozenset(_keys(node.parts)),
    BytearrayNode: lambda node, _: bytearray(node.parts[0]),
    ObjectNode: _object,
}
#: What puts the parts into what was made without them.
_FILLERS: dict[type, Callable[[Any, Any], Any]] = {
    ListNode: lambda made, node: made.extend(_values(node.parts)),
    DictNode: lambda made, node: made.update(_dict_of(node.parts)),
    SetNode: lambda made, node: made.update(_keys(node.parts)),
    ObjectNode: _grow,
}


# -------------------------------------------------------------------------------------------- the state of the job


class Unpickler(pickle.Unpickler):
    """An unpickler that knows only constructors, for what the job itself has stored."""

    def __init__(self, stream: io.BytesIO, classes: ProgramClasses) -> None:
        super().__init__(stream)
        self._constructors = constructors_of(classes)
        self._found: dict[tuple[str, str], Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        """What is on the stack for a name: an object without attributes that could be set, which makes data.

        Raises:
            OldFormError: the name is one of data, or `program_class`, and no constructor.
            UnsafeStateError: the name is not in the list of data.
        """
        found = self._found.get((module, name))
        if found is None:
            text = f"{module}:{name}"
            function: Any = self._constructors.named(text)
            if function is None:
                if text in DATA_NAMES or module in (FORMER, "copyreg"):
                    raise OldFormError(text)
                raise refused_name(module, name)
            # a wrapper of C without a __dict__: pickle would set attributes of a class or a function
            found = self._found[module, name] = (
                _CALL_OF_A_CLASS(function) if isinstance(function, type) else function.__call__
            )
        return found


_CALL_OF_A_CLASS: Any = vars(type)["__call__"].__get__
