"""Reads the code of user functions, including the code of their helpers, for two questions. Where a scan cannot tell,
the answer is the safe one.

* Whether a function only reads fields of its argument: it gives the same result each time, so the receiver of a record
  can call it again.
* Whether a function keeps nothing: what it returns is then handed over without a look at it.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import json
import math
import operator
import types
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

from flinkish.common.detach import SHARED
from flinkish.common.types import Row

#: The instructions of a function that returns its argument, fields of it, constants, or tuples of these. The names are
#: those of all supported versions of Python.
_READING = frozenset("RESUME NOP LOAD_CONST LOAD_SMALL_INT BUILD_TUPLE RETURN_VALUE RETURN_CONST".split())
_READING_ARGUMENT = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW"})


class FieldsRead(NamedTuple):
    """The fields of its argument that a function reads: attributes by name, and whether it reads any by ``[...]``."""

    attributes: frozenset[str]
    items: bool


def only_reads_fields(function: Any) -> FieldsRead | None:
    """The fields that a function of one argument, or a method of one, reads, if it is known to return nothing but its
    argument, fields of it by constant names and positions, constants, or tuples of these. Else None.

    Whether reading a field runs code of the program depends on the class of the argument. Fields of fields do not
    count, as their classes are not known even if that of the argument is.

    >>> only_reads_fields(lambda record: (record["user"], record[0])), only_reads_fields(lambda record: hash(1))
    (FieldsRead(attributes=frozenset(), items=True), None)
    """
    arguments = 1
    if isinstance(function, types.MethodType):
        function, arguments = function.__func__, 2
    if not isinstance(function, types.FunctionType) or function.__code__.co_argcount != arguments:
        return None
    code = function.__code__
    argument = code.co_varnames[arguments - 1]
    attributes, items = set(), False
    #: the instructions that have put the values on the stack, as far as a field may be read of them
    before: list[dis.Instruction | None] = [None, None]
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name == "LOAD_ATTR" and _is_argument(before[-1], argument):
            attributes.add(instruction.argval)
        elif name == "BINARY_SUBSCR" or name == "BINARY_OP" and instruction.argrepr == "[]":
            index = before[-1]
            if index is None or not _is_argument(before[-2], argument):
                return None
            if index.opname not in ("LOAD_CONST", "LOAD_SMALL_INT") or type(index.argval) not in (int, str):
                return None
            items = True
        elif name not in _READING and not _is_argument(instruction, argument):
            return None
        if name not in ("RESUME", "NOP"):
            before = [before[-1], instruction]
    return FieldsRead(frozenset(attributes), items)


def _is_argument(instruction: dis.Instruction | None, argument: str) -> bool:
    """Whether an instruction loads the argument."""
    return instruction is not None and instruction.opname in _READING_ARGUMENT and instruction.argval == argument


# --- functions that keep nothing ----------------------------------------------------------------------------------


def keeps_nothing(call: Callable[..., Any]) -> bool:
    """Whether a call of the function can be seen to leave no reference to its arguments, nor to what it returns,
    outside of what it returns. The functions that are changed, replaced or called by way of a record do not count.

    Only what is known counts: the byte code may hold no other instructions than those of `_HARMLESS` and calls of
    known functions and methods. So it stores nothing outside of its frame but into its arguments, and reads neither
    ``self`` nor global or captured variables that can change.

    >>> keeps_nothing(lambda r: (r[0], r[1] + 1)), keeps_nothing(json.loads), keeps_nothing([].append)
    (True, True, False)
    """
    try:
        return _keeps_nothing(call, 0)
    except (TypeError, ValueError, AttributeError, KeyError, IndexError):
        # no code, or code of a form that is not known
        return False


#: how deep the scan follows helpers
_DEPTH = 5

#: functions and classes that keep nothing
_KNOWN = frozenset(
    {
        *(
            getattr(builtins, name)
            for name in "abs all any bool bytes chr dict divmod enumerate float format frozenset hash hex int len list "
            "max min oct ord pow range repr reversed round set sorted str sum tuple zip isinstance complex".split()
        ),
        *(value for value in vars(math).values() if callable(value)),
        json.loads, json.dumps, Row, date, datetime, time, timedelta, timezone, Decimal,
    }
)  # fmt: skip

#: classes whose methods keep nothing but in the object itself
_KNOWN_CLASSES = (str, bytes, int, float, list, dict, set, tuple, date, datetime, time, timedelta, Decimal, Row)

#: names of such methods: an object with a method of such a name is taken for one of these classes
_METHODS = frozenset(
    name for cls in _KNOWN_CLASSES for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))
)

#: instructions that neither read nor store anything outside of the frame, by name up to Python 3.14
_HARMLESS = frozenset(
    """
    LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_BORROW LOAD_FAST_LOAD_FAST
    LOAD_FAST_BORROW_LOAD_FAST_BORROW STORE_FAST STORE_FAST_STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_MAYBE_NULL
    DELETE_FAST LOAD_CONST LOAD_SMALL_INT RETURN_CONST RETURN_VALUE
    RESUME NOP NOT_TAKEN EXTENDED_ARG CACHE PRECALL PUSH_NULL KW_NAMES POP_TOP COPY SWAP DUP_TOP DUP_TOP_TWO ROT_TWO
    ROT_THREE ROT_FOUR ROT_N
    BINARY_OP BINARY_SUBSCR BINARY_SLICE STORE_SUBSCR STORE_SLICE DELETE_SUBSCR BINARY_ADD BINARY_SUBTRACT
    BINARY_MULTIPLY BINARY_TRUE_DIVIDE BINARY_FLOOR_DIVIDE BINARY_MODULO BINARY_POWER BINARY_AND BINARY_OR BINARY_XOR
    BINARY_LSHIFT BINARY_RSHIFT INPLACE_ADD INPLACE_SUBTRACT INPLACE_MULTIPLY INPLACE_TRUE_DIVIDE INPLACE_FLOOR_DIVIDE
    INPLACE_MODULO INPLACE_POWER INPLACE_AND INPLACE_OR INPLACE_XOR UNARY_NEGATIVE UNARY_NOT UNARY_INVERT UNARY_POSITIVE
    COMPARE_OP IS_OP CONTAINS_OP TO_BOOL GET_LEN
    BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP BUILD_STRING BUILD_SLICE LIST_APPEND LIST_EXTEND
    LIST_TO_TUPLE SET_ADD SET_UPDATE MAP_ADD DICT_UPDATE DICT_MERGE UNPACK_SEQUENCE UNPACK_EX
    FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE
    GET_ITER FOR_ITER END_FOR POP_ITER
    JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_ABSOLUTE JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP
    POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_FALSE
    POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_FALSE
    POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
    SETUP_FINALLY POP_BLOCK PUSH_EXC_INFO CHECK_EXC_MATCH JUMP_IF_NOT_EXC_MATCH POP_EXCEPT RERAISE RAISE_VARARGS
    """.split()
)
_CALLS = frozenset({"CALL", "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW", "CALL_KW"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _keeps_nothing(call: Any, depth: int) -> bool:
    if call in _KNOWN or isinstance(call, (operator.itemgetter, operator.attrgetter)):
        return True
    if isinstance(call, types.MethodDescriptorType):
        return call.__objclass__ in _KNOWN_CLASSES
    if isinstance(call, types.BuiltinFunctionType):
        return call.__self__ in _KNOWN_CLASSES
    if isinstance(call, type):
        # a named tuple; what other classes do when they are called is not looked at
        return issubclass(call, tuple) and hasattr(call, "_fields") and call.__init__ is object.__init__
    method = isinstance(call, types.MethodType)
    function = call.__func__ if method else call
    if type(function) is not types.FunctionType or depth > _DEPTH:
        return False
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    code = function.__code__
    return (
        not code.co_flags & _GENERATORS
        and not code.co_freevars
        and SHARED.issuperset(map(type, defaults))
        and _is_harmless(code, function.__globals__, code.co_varnames[:1] if method else (), depth)
    )


def _is_harmless(code: types.CodeType, variables: dict[str, Any], hidden: tuple[str, ...], depth: int) -> bool:
    """Whether code of a function with these global variables keeps nothing. It must not read the local variables
    ``hidden``."""
    instructions = iter(dis.get_instructions(code))
    #: calls, and what is called
    calls, called = 0, 0
    for instruction in instructions:
        name, argument = instruction.opname, instruction.argval
        if name in _CALLS:
            calls += 1
        elif name == "LOAD_GLOBAL":
            value = _value_of(argument, variables, instructions)
            if value.__class__ in SHARED and not callable(value):
                continue
            if not (isinstance(value, type) and issubclass(value, BaseException)):
                called += 1
                if not _keeps_nothing(value, depth + 1):
                    return False
        elif name in _ATTRIBUTES:
            if argument.startswith("_"):
                return False
            if name == "LOAD_METHOD" or "NULL" in instruction.argrepr:
                called += 1
                if argument not in _METHODS:
                    return False
        elif name not in _HARMLESS:
            return False
        elif hidden and (argument in hidden or isinstance(argument, tuple) and hidden[0] in argument):
            return False
    return calls == called and not any(isinstance(constant, types.CodeType) for constant in code.co_consts)


def _value_of(name: str, variables: dict[str, Any], instructions: Iterator[dis.Instruction]) -> Any:
    """The value of a global name, or of the attributes of a module or class that are read of it next.

    Raises:
        KeyError, AttributeError: there is none.
        ValueError: a module or a class is used otherwise.
    """
    value = variables[name] if name in variables else vars(builtins)[name]
    while isinstance(value, types.ModuleType):
        following = next(instructions)
        if following.opname not in _ATTRIBUTES:
            raise ValueError(name)
        value = getattr(value, following.argval)
    return value
