"""Reads the code of user functions, including the code of their helpers, for two questions. Where a scan cannot tell,
the answer is the safe one. A third question has a module of its own, `flinkish.runtime.keeps_nothing`.

* Which names a function mentions: this tells whether it registers processing-time timers, in which case epochs must run
  even without data.
* Whether a function only reads fields of its argument: it gives the same result each time, so the receiver of a record
  can call it again.
"""

from __future__ import annotations

import dis
import json
import json.decoder
import json.scanner
import types
from typing import Any

#: The scan visits at most this many functions and classes.
MAX_FUNCTIONS = 500

_OWN = "flinkish"

#: The instructions of a function that returns its argument, fields of it, constants, or tuples of these. The names are
#: those of all supported versions of Python.
_READING = frozenset(
    "RESUME NOP LOAD_CONST LOAD_SMALL_INT LOAD_ATTR BINARY_SUBSCR BUILD_TUPLE RETURN_VALUE RETURN_CONST".split()
)
_READING_ARGUMENT = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW"})


def only_reads_fields(function: Any) -> bool:
    """Whether a function of one argument, or a method of one, is known to return nothing but its argument, fields of it
    by constant names and positions, constants, or tuples of these.

    >>> only_reads_fields(lambda record: (record["user"], record[0].name)), only_reads_fields(lambda record: hash(1))
    (True, False)
    """
    arguments = 1
    if isinstance(function, types.MethodType):
        function, arguments = function.__func__, 2
    if not isinstance(function, types.FunctionType) or function.__code__.co_argcount != arguments:
        return False
    code = function.__code__
    argument = code.co_varnames[arguments - 1]
    return all(
        instruction.opname in _READING
        or instruction.opname in _READING_ARGUMENT
        and instruction.argval == argument
        or instruction.opname == "BINARY_OP"
        and instruction.argrepr == "[]"
        for instruction in dis.get_instructions(code)
    )


def mentioned_names(user_object: Any) -> set[str]:
    """All attribute and global names in the methods of an object's class and in the functions that they refer to.

    >>> def helper(ctx): ctx.timer_service().register_event_time_timer(5)
    >>> def function(ctx): helper(ctx)
    >>> "register_event_time_timer" in mentioned_names(function)
    True
    """
    names: set[str] = set()
    seen: set[int] = set()
    stack: list[Any] = [user_object if isinstance(user_object, types.FunctionType) else type(user_object)]
    while stack and len(seen) < MAX_FUNCTIONS:
        item = stack.pop()
        if id(item) in seen or (getattr(item, "__module__", None) or "").split(".")[0] == _OWN:
            continue
        seen.add(id(item))
        if isinstance(item, type):
            stack.extend(base for base in item.__mro__[1:] if base is not object)
            stack.extend(vars(item).values())
        elif isinstance(item, (staticmethod, classmethod)):
            stack.append(item.__func__)
        elif isinstance(item, types.FunctionType):
            stack.extend(_referenced(item, names))
    return names


def _referenced(function: types.FunctionType, names: set[str]) -> list[Any]:
    """Add the names in a function's code to ``names``, and return the functions and classes that it refers to."""
    codes = [function.__code__]
    for code in codes:  # the list grows during the iteration
        names.update(code.co_names)
        codes.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    globals_ = function.__globals__
    found = [globals_[name] for code in codes for name in code.co_names if name in globals_]
    found.extend(cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell))
    return [item for item in found if isinstance(item, (types.FunctionType, type))]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def is_function_of(function: Any, module: types.ModuleType) -> bool:
    """Whether a function was written in a module: its name and its module can be copied, what it reads cannot."""
    return type(function) is types.FunctionType and function.__globals__ is vars(module)


def decoder_of_json() -> json.JSONDecoder | None:
    """The decoder that ``json.loads`` uses; None if code of the program has a hand in it, through which it may hand out
    objects that it keeps."""
    cls, decoder = json.JSONDecoder, json._default_decoder  # type: ignore[attr-defined]
    scan: Any = getattr(decoder, "scan_once", None)
    if type(decoder) is not cls or type(scan) is not getattr(json.scanner, "c_make_scanner"):  # noqa: B009 - untyped
        return None
    is_original = is_function_of(cls.decode, json.decoder) and is_function_of(cls.raw_decode, json.decoder)
    has_hooks = scan.object_hook is not None or scan.object_pairs_hook is not None
    parsers = scan.parse_float, scan.parse_int, scan.parse_constant
    expected = float, int, json.decoder._CONSTANTS.__getitem__  # type: ignore[attr-defined]
    is_plain = not has_hooks and parsers == expected and not {"decode", "raw_decode"} & vars(decoder).keys()
    return decoder if is_original and is_plain else None
