"""Functions that keep nothing: what they return is handed over to the next operator without a look at it.

The rule of hand-overs (`flinkish.common.detach`) costs a look at each result. It can be spared if a function leaves no
reference to its record, nor to what it returns, anywhere else. This has two parts. The code is followed once, before
the first record (`keeps_nothing`), and what depends on the program's data is observed for each batch (`Proof`): the
classes of the records, since those of the program run code of their own when they are read or added, and the variables
that were read, since any code may bind them anew. Where either cannot tell, the results are looked at.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import json
import math
import operator
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import repeat
from typing import Any, NamedTuple

from flinkish.common.detach import HEAP_TYPE, SCALARS
from flinkish.common.types import Row
from flinkish.runtime.stored.code_scan import decoder_of_json, is_function_of


@dataclass(frozen=True)
class Proof:
    """That calls of a function leave no reference to their records, nor to what they return, outside of what they
    return, and that no two of them return one object that can change. It holds for a batch of records (`holds`), since
    records may bring classes of the program with them, and as long as no variable is bound anew (`stands`).

    Args:
        needs: the keys of the parts of a record that the function operates on (`_ITSELF`: the record). These must be
            scalars. Whatever else is in a record is only passed on.
        facts: (variables, name, value): the variables that the function reads.
        functions: (function, what it consists of): the functions that it calls.
        reads_json: whether ``json.loads`` is one of them.
    """

    needs: set[Any]
    facts: Sequence[tuple[dict[str, Any], str, Any]] = ()
    functions: Sequence[tuple[types.FunctionType, tuple[Any, ...]]] = ()
    reads_json: bool = False

    def stands(self) -> bool:
        """Whether all variables and functions are those that were read."""
        return (
            all(variables.get(name, _ABSENT) is value for variables, name, value in self.facts)
            and all(all(map(operator.is_, _consists_of(function), parts)) for function, parts in self.functions)
            and (not self.reads_json or decoder_of_json() is not None)
        )

    def holds(self, values: list[Any]) -> bool:
        """Whether the function keeps nothing when it is called with these records."""
        kinds = set(map(type, values))
        if SCALARS.issuperset(kinds):
            return self.stands()
        kind = kinds.pop()
        if kinds or kind not in _OF_OTHERS or _OF_OTHERS[kind] & self.needs or not self.stands():
            return False
        keys = self.needs - {_IS_DICT, _IS_SEQUENCE}
        parts: Iterable[Iterable[Any]]
        if kind is Row:
            parts = [row._values for row in values] if keys else ()
        elif kind is dict:
            parts = (map(dict.get, values, repeat(key)) for key in keys)
        else:
            parts = (map(operator.itemgetter(key), values) for key in keys)
        try:
            return all(SCALARS.issuperset(map(type, part)) for part in parts)
        except (TypeError, IndexError):
            # a record has no such part: the function raises, or will not get there
            return False


def _consists_of(function: types.FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__


def keeps_nothing(call: Callable[..., Any]) -> Proof | None:
    """The proof that a function of one argument keeps nothing; None if that cannot be seen. To be called when nothing
    but records is to come: a variable may be filled when the function is opened.

    The byte code is followed from instruction to instruction, with what each value may be: a constant, a scalar or
    something that was made of scalars, the record, a part of the record, or something new that holds such parts. Only
    what is known counts. ``self``, and global and captured variables that can change, must not be read.

    >>> keeps_nothing(lambda r: (r[0], r[1] + 1)).holds([("a", 1)]), keeps_nothing([].append)
    (True, None)
    """
    scan = _Scan()
    try:
        if type(call) is operator.itemgetter:
            return Proof(set()) if all(map(_is_constant, call.__reduce__()[1])) else None
        if type(call) is types.MethodDescriptorType and _is_known(call.__objclass__):
            return Proof({_ITSELF})
        if type(call) is types.MethodType and type(call.__func__) is types.FunctionType:
            # ``self`` has no value, so that it cannot be read
            scan.returned(call.__func__, [None, _RECORD], 0)
        else:
            scan.called(scan.known(call), [_RECORD])
    except (_CannotTell, TypeError, ValueError, AttributeError, KeyError, IndexError):
        # code of a form that is not known
        return None
    return Proof(scan.needs, scan.facts, scan.functions, scan.reads_json)


class _CannotTell(Exception):
    """The scan has met something that it does not know."""


_ABSENT, _UNKNOWN = object(), object()
#: not every release of mypy knows the attribute
_builtins_of = operator.attrgetter("__builtins__")

#: instead of the key of a part: the record itself; something new that holds parts of the record
_ITSELF, _HELD = object(), object()
#: what a function needs that asks the record for a part by ``get``, or takes it apart
_IS_DICT, _IS_SEQUENCE = object(), object()

#: The classes of records whose parts can be read without running code of the program -> the needs that they do not meet
_OF_OTHERS = {dict: {_ITSELF, _IS_SEQUENCE}, **dict.fromkeys((tuple, list, Row), {_ITSELF, _IS_DICT})}


class _Value(NamedTuple):
    """What a value is known to be.

    Args:
        parts: the keys of the parts of the record that it may be; none of them: it is made of scalars only.
        constant: the value, if it is a constant.
        callee: the known function, class or module, or (object, name of its method).
    """

    parts: frozenset[Any] = frozenset()
    constant: Any = _UNKNOWN
    callee: Any = None


def _holding(*parts: _Value) -> _Value:
    """A new object that holds these values."""
    return _NEW if any(part.parts for part in parts) else _DATA


_Variables = dict[str, _Value]
_State = tuple[list[_Value], _Variables]

_DATA, _RECORD, _NEW = _Value(), _Value(frozenset({_ITSELF})), _Value(frozenset({_HELD}))
#: what the byte code puts beside a callee, and before the call behind arguments with names
_NULL, _NAMES = _Value(callee="NULL"), _Value(callee="KW_NAMES")

#: how deep the scan follows helpers
_DEPTH = 5

#: of generators, coroutines and functions of any number of arguments
_FLAGS = (
    inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
)  # fmt: skip


def _is_original(known: Any) -> bool:
    """Whether a callable is that of the library, and not one of the program in its place."""
    if isinstance(known, type):
        return known is Row or not known.__flags__ & HEAP_TYPE
    return type(known) is types.BuiltinFunctionType or is_function_of(known, json)


_BY_ID: dict[int, Any] = {
    id(known): known
    for known in (
        *(
            getattr(builtins, name)
            for name in "abs all any bool bytes chr dict divmod enumerate float format frozenset hash hex int len list "
            "max min oct ord pow range repr reversed round set sorted str sum tuple zip isinstance complex".split()
        ),
        *(error for error in vars(builtins).values() if isinstance(error, type) and issubclass(error, Exception)),
        *vars(math).values(),
        json.loads, Row, date, datetime, time, timedelta, Decimal,
    )
    if _is_original(known)
}  # fmt: skip


def _is_known(call: Any) -> bool:
    """Whether a callable is one of the known ones: by identity, since names and modules of functions can be copied."""
    return _BY_ID.get(id(call), _ABSENT) is call


def _is_constant(value: Any) -> bool:
    """Whether a value is a scalar, or a tuple, frozen set or slice of such."""
    cls = type(value)  # not ``__class__``, which a class may define
    if cls is slice:
        return all(map(_is_constant, (value.start, value.stop, value.step)))
    return cls in SCALARS or cls in (tuple, frozenset) and all(map(_is_constant, value))


#: instructions that do nothing
_NOTHING = frozenset("RESUME NOP NOT_TAKEN EXTENDED_ARG CACHE PRECALL".split())

#: instructions that replace so many operands by the result of an operation
_OPERATIONS = {
    "UNARY_NEGATIVE": 1, "UNARY_NOT": 1, "UNARY_INVERT": 1, "UNARY_POSITIVE": 1, "TO_BOOL": 1, "FORMAT_SIMPLE": 1,
    "CONVERT_VALUE": 1, "BINARY_OP": 2, "COMPARE_OP": 2, "CONTAINS_OP": 2, "FORMAT_WITH_SPEC": 2,
}  # fmt: skip


class _Scan:
    """Follows the code of a function and of its helpers. All methods raise _CannotTell, KeyError or the like for
    code of a form that is not known."""

    def __init__(self) -> None:
        self.needs: set[Any] = set()
        self.facts: list[tuple[dict[str, Any], str, Any]] = []
        self.functions: list[tuple[types.FunctionType, tuple[Any, ...]]] = []
        self.reads_json = False
        #: what was stored in the record: it may be in any part of it
        self._stored: frozenset[Any] = frozenset()

    def returned(self, function: types.FunctionType, arguments: list[_Value | None], depth: int) -> _Value:
        """What a call with these arguments returns."""
        code = function.__code__
        # what is behind ``except`` is reached without a jump
        if code.co_flags & _FLAGS or code.co_freevars or getattr(code, "co_exceptiontable", None) or depth > _DEPTH:
            raise _CannotTell
        self.functions.append((function, _consists_of(function)))
        stack: list[_Value] | None = []
        variables = self._variables(function, arguments)
        #: offset -> what the stack and the variables are after the jumps to it
        arriving: dict[int, _State] = {}
        results = []
        for instruction in dis.get_instructions(code):
            if instruction.offset in arriving:
                state = arriving.pop(instruction.offset)
                stack, variables = state if stack is None else _joined((stack, variables), state)
            if stack is None:
                continue
            name, argument = instruction.opname, instruction.argval
            if name in ("RETURN_VALUE", "RETURN_CONST"):
                results.append(_pop(stack) if name == "RETURN_VALUE" else _DATA)
                stack = None
            elif name == "RAISE_VARARGS":
                self._operate(*_popped(stack, argument))
                stack = None
            elif "JUMP" in name:
                if argument <= instruction.offset:
                    raise _CannotTell
                state = self._jump(name, stack), variables
                arriving[argument] = _joined(arriving.get(argument, state), state)
                if name == "JUMP_FORWARD":
                    stack = None
            else:
                self._step(instruction, stack, variables, function, depth)
        parts = frozenset().union(*(result.parts for result in results))
        return results[0] if len(results) == 1 else _Value(parts)

    def _variables(self, function: types.FunctionType, arguments: list[_Value | None]) -> _Variables:
        """The local variables at the beginning of a call."""
        code, defaults = function.__code__, function.__defaults__ or ()
        missing = code.co_argcount - len(arguments)
        if not 0 <= missing <= len(defaults) or code.co_kwonlyargcount or not all(map(_is_constant, defaults)):
            raise _CannotTell
        given = zip(code.co_varnames, [*arguments, *[_DATA] * missing])
        return {name: value for name, value in given if value is not None}

    def _operate(self, *values: _Value) -> _Value:
        """An operation on values, of which nothing is known but that it is harmless if they are made of scalars."""
        for value in values:
            if _HELD in value.parts:
                raise _CannotTell
            self.needs |= value.parts
        return _DATA

    def _jump(self, name: str, stack: list[_Value]) -> list[_Value]:
        """Take the condition of a jump from the stack. Returns the stack after the jump."""
        if name == "JUMP_FORWARD":
            return list(stack)
        if not name.startswith(("POP_JUMP_", "JUMP_IF_")) or name == "JUMP_IF_NOT_EXC_MATCH":
            raise _CannotTell
        stays = list(stack)
        condition = _pop(stack)
        if "NONE" not in name:
            self._operate(condition)
        return stays if name.endswith("_OR_POP") else list(stack)

    def _step(
        self, instruction: dis.Instruction, stack: list[_Value], variables: _Variables, function: Any, depth: int
    ) -> None:
        """An instruction that neither jumps nor returns."""
        name, argument = instruction.opname, instruction.argval
        # "NULL + name" or "name + NULL"; there is no space in a name
        is_called = name == "LOAD_METHOD" or " + " in instruction.argrepr and "NULL" in instruction.argrepr
        if name in _NOTHING:
            pass
        elif "_FAST" in name:
            _move(name, argument, stack, variables)
        elif name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            if not _is_constant(argument):
                raise _CannotTell
            stack.append(_Value(constant=argument))
        elif name == "LOAD_GLOBAL":
            stack.extend([_NULL] * is_called)
            stack.append(self.known(self._variable(function, argument)))
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            value = self._attribute(stack.pop(), argument, is_called)
            stack.extend([_NULL, value] if is_called else [value])
        elif name == "PUSH_NULL":
            stack.append(_NULL)
        elif name == "KW_NAMES":
            stack.append(_NAMES)
        elif name in ("CALL", "CALL_KW"):
            keywords = name == "CALL_KW" or stack[-1] is _NAMES
            del stack[len(stack) - keywords :]
            given = _popped(stack, argument)
            stack.append(self.called(_callee(stack), given, keywords, depth))
        elif name in ("BINARY_SUBSCR", "BINARY_SLICE") or name == "BINARY_OP" and instruction.argrepr == "[]":
            owner, *keys = _popped(stack, 3 if name == "BINARY_SLICE" else 2)
            stack.append(self._part(owner, keys))
        elif name in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            *stored, owner, key = _popped(stack, 3 if name == "STORE_SUBSCR" else 2)
            self._operate(key)
            if owner == _RECORD:
                self._stored = self._stored.union(*(part.parts for part in stored))
            elif owner != _NEW:
                self._operate(owner, *stored)
        elif name in _OPERATIONS:
            stack.append(self._operate(*_popped(stack, _OPERATIONS[name])))
        elif name == "FORMAT_VALUE":
            stack.append(self._operate(*_popped(stack, 2 if instruction.arg & 4 else 1)))  # type: ignore[operator]
        elif name == "IS_OP":
            stack[-2:] = [_DATA]
        elif name == "POP_TOP":
            stack.pop()
        elif name == "COPY":
            stack.append(stack[-argument])
        elif name == "SWAP":
            stack[-argument], stack[-1] = stack[-1], stack[-argument]
        elif name == "UNPACK_SEQUENCE":
            owner = _pop(stack)
            self.needs |= {_IS_SEQUENCE} if owner == _RECORD else set()
            stack.extend(self._part(owner, [_Value(constant=index)]) for index in reversed(range(argument)))
        elif name.startswith("BUILD_"):
            stack.append(self._built(name, argument, stack))
        elif name in ("LIST_EXTEND", "LIST_APPEND", "DICT_UPDATE"):
            added = _pop(stack)
            if added != _RECORD and name != "LIST_APPEND":
                self._operate(added)
            elif name == "DICT_UPDATE":
                self.needs.add(_IS_DICT)
            if added.parts:
                stack[-argument] = _NEW
        else:
            raise _CannotTell

    def _built(self, name: str, count: int, stack: list[_Value]) -> _Value:
        """A new object of the values on the stack."""
        # a map has keys and values; constant keys are one more value
        parts = _popped(stack, {"BUILD_MAP": 2 * count, "BUILD_CONST_KEY_MAP": count + 1}.get(name, count))
        if name in ("BUILD_SET", "BUILD_STRING", "BUILD_SLICE"):
            self._operate(*parts)
            constants = [part.constant for part in parts]
            is_constant = name == "BUILD_SLICE" and _UNKNOWN not in constants
            return _Value(constant=slice(*constants)) if is_constant else _DATA
        if name == "BUILD_MAP":
            self._operate(*parts[::2])
        elif name not in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_CONST_KEY_MAP"):
            raise _CannotTell
        return _holding(*parts)

    def _variable(self, function: types.FunctionType, name: str) -> Any:
        """The value of a global variable."""
        globals_, builtins_ = function.__globals__, vars(builtins)
        value = globals_.get(name, _ABSENT)
        self.facts.append((globals_, name, value))
        if value is _ABSENT:
            if _builtins_of(function) is not builtins_:
                raise _CannotTell
            value = builtins_[name]
            self.facts.append((builtins_, name, value))
        return value

    def known(self, value: Any) -> _Value:
        """The value of a global variable, which must be a constant, a module or a function that can be followed."""
        if _is_constant(value):
            return _Value(constant=value)
        if type(value) is types.ModuleType:
            return _Value(callee=value)
        if not _is_known(value) and type(value) is not types.FunctionType:
            raise _CannotTell
        if is_function_of(value, json):
            self.reads_json = True
            self.functions.append((value, _consists_of(value)))
        return _Value(callee=value)

    def _attribute(self, owner: _Value, name: str, is_called: bool) -> _Value:
        """An attribute of a value: a variable of a module, a method, or a field of the record."""
        # a time zone may be of a class of the program
        if name.startswith("_") or name == "tzinfo":
            raise _CannotTell
        if isinstance(owner.callee, types.ModuleType):
            value = vars(owner.callee)[name]
            self.facts.append((vars(owner.callee), name, value))
            return self.known(value)
        if owner.callee is not None and not _is_movable(owner.callee):
            raise _CannotTell
        if is_called:
            return _Value(callee=(owner, name))
        if owner == _RECORD:
            return _Value(frozenset({name}) | self._stored)
        return self._operate(owner)

    def called(self, callee: _Value, given: list[_Value], keywords: bool = False, depth: int = -1) -> _Value:
        """The result of a call."""
        target = callee.callee
        if isinstance(target, tuple):
            owner, method = target
            key = given[0].constant if given else _UNKNOWN
            if owner == _RECORD and method == "get" and key is not _UNKNOWN and len(given) < 3 and not keywords:
                self.needs.add(_IS_DICT)
                return _Value(frozenset({key}).union(self._stored, *(value.parts for value in given)))
            return self._operate(owner, *given)
        if target is Row:
            return _holding(*given)
        if type(target) is types.FunctionType and not _is_known(target):
            if keywords:
                raise _CannotTell
            return self.returned(target, list(given), depth + 1)
        return self._operate(callee, *given)

    def _part(self, owner: _Value, keys: list[_Value]) -> _Value:
        """A part of a value, or several parts of it in a new object."""
        constants = [key.constant for key in keys]
        if owner != _RECORD or _UNKNOWN in constants:
            return self._operate(owner, *keys)
        if len(keys) > 1 or isinstance(constants[0], slice):
            return _NEW
        return _Value(frozenset({constants[0]}) | self._stored)


def _move(name: str, argument: Any, stack: list[_Value], variables: _Variables) -> None:
    """Move values between local variables and the stack. The name of the instruction says what is done with each of its
    variables, such as STORE_FAST_LOAD_FAST."""
    acts = [act for act in name.split("_") if act in ("LOAD", "STORE", "DELETE", "CLEAR", "MAYBE")]
    names = argument if isinstance(argument, tuple) else (argument,)
    for act, variable in zip(acts, names, strict=True):
        if act == "LOAD":
            stack.append(variables[variable])
        elif act == "STORE":
            variables[variable] = _pop(stack)
        else:
            raise _CannotTell


def _pop(stack: list[_Value]) -> _Value:
    """Take a value from the stack that may be moved anywhere. A module, a method and what is written in Python, which
    may have attributes, must be called at once."""
    value = stack.pop()
    if value.callee is not None and not _is_movable(value.callee):
        raise _CannotTell
    return value


def _is_movable(callee: Any) -> bool:
    return _is_known(callee) and not is_function_of(callee, json) and callee is not Row


def _popped(stack: list[_Value], count: int) -> list[_Value]:
    return [_pop(stack) for _ in range(count)][::-1]


def _callee(stack: list[_Value]) -> _Value:
    """What is called: one of two values, of which the other is none. Their order depends on the version of Python."""
    first, second = stack.pop(), stack.pop()
    if (first is _NULL) is (second is _NULL):
        raise _CannotTell
    return second if first is _NULL else first


def _joined(first: _State, second: _State) -> _State:
    """What is known where two ways through the code meet."""
    stack = [_either(a, b) for a, b in zip(first[0], second[0], strict=True)]
    both = first[1].keys() & second[1].keys()
    return stack, {name: _either(first[1][name], second[1][name]) for name in both}


def _either(first: _Value, second: _Value) -> _Value:
    if first is second or first == second:
        return first
    if first.callee is not None or second.callee is not None:
        raise _CannotTell
    return _Value(first.parts | second.parts)
