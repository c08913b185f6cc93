"""Looks at functions for two questions; where it cannot tell, the answer is the safe one. A third question has a module
of its own, `flinkish.runtime.stored.keeps_nothing`.

* Whether a function only reads fields of its argument: it gives the same result each time, so the receiver of a record
  can call it again.
* Whether ``json.loads`` and its decoder are Python's own.
"""

from __future__ import annotations

import dis
import json
import json.decoder
import json.scanner
import types
from typing import Any, NamedTuple

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
