"""Writes the opcodes of values that no pickler would write, and reads them as a text of a savepoint."""

from __future__ import annotations

import base64
import functools
import gc
import json
import os
import pickle
import resource
import struct
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flinkish.errors import FlinkishError
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.texts import from_text

OWN = "flinkish.runtime.stored_names"
#: What a child process may take to read one text: processor time, and memory beyond what its parent has.
CPU_S, MEMORY_BYTES = 5, 1 << 30


class Opcodes(bytes):
    """Opcodes that push one value."""


def text(value: str) -> Opcodes:
    """A text."""
    encoded = value.encode()
    return Opcodes(pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded)


def pushed(value: Any) -> Opcodes:
    """The opcodes of a plain value, or of a tuple, list or dict of such, or of opcodes."""
    if isinstance(value, Opcodes):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return Opcodes(pickle.BINBYTES + struct.pack("<I", len(value)) + value)
    if value is None or isinstance(value, bool):
        return Opcodes({None: pickle.NONE, True: pickle.NEWTRUE, False: pickle.NEWFALSE}[value])
    if isinstance(value, int):
        data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
        return Opcodes(pickle.LONG4 + struct.pack("<I", len(data)) + data)
    if isinstance(value, float):
        return Opcodes(pickle.BINFLOAT + struct.pack(">d", value))
    if isinstance(value, tuple):
        return Opcodes(pickle.MARK + b"".join(map(pushed, value)) + pickle.TUPLE)
    if isinstance(value, list):
        return Opcodes(pickle.EMPTY_LIST + pickle.MARK + b"".join(map(pushed, value)) + pickle.APPENDS)
    if isinstance(value, dict):
        return with_items(Opcodes(pickle.EMPTY_DICT), value.items())
    raise TypeError(value)


def with_items(target: Opcodes, items: Any) -> Opcodes:
    """A value of which items are set, as of a dictionary."""
    pairs = b"".join(pushed(key) + pushed(value) for key, value in items)
    return Opcodes(target + pickle.MARK + pairs + pickle.SETITEMS)


def with_elements(target: Opcodes, *elements: Any) -> Opcodes:
    """A value to which elements are appended, as to a list."""
    return Opcodes(target + pickle.MARK + b"".join(map(pushed, elements)) + pickle.APPENDS)


def set_of(*elements: Any) -> Opcodes:
    """A set."""
    return Opcodes(pickle.EMPTY_SET + pickle.MARK + b"".join(map(pushed, elements)) + pickle.ADDITEMS)


def frozenset_of(*elements: Any) -> Opcodes:
    """A frozenset."""
    return Opcodes(pickle.MARK + b"".join(map(pushed, elements)) + pickle.FROZENSET)


def name(of: str) -> Opcodes:
    """A name, ``module:Qualified.Name``."""
    module, _, qualname = of.partition(":")
    return Opcodes(text(module) + text(qualname) + pickle.STACK_GLOBAL)


def called(of: str, *arguments: Any) -> Opcodes:
    """A call of what a name stands for."""
    return Opcodes(name(of) + pushed(arguments) + pickle.REDUCE)


def own(constructor: str, *arguments: Any) -> Opcodes:
    """A call of a constructor of flinkish."""
    return called(f"{OWN}:{constructor}", *arguments)


def with_state(target: Opcodes, state: Any) -> Opcodes:
    """An object that gets a state."""
    return Opcodes(target + pushed(state) + pickle.BUILD)


def slots(**values: Any) -> Opcodes:
    """The state of an object with slots."""
    return pushed((None, values))


def remembered(value: Opcodes) -> Opcodes:
    """A value that `got` refers to, by how many were remembered before it."""
    return Opcodes(value + pickle.MEMOIZE)


def got(index: int) -> Opcodes:
    """A value that was remembered."""
    return Opcodes(pickle.LONG_BINGET + struct.pack("<I", index))


def after(*forgotten: bytes, value: Opcodes) -> Opcodes:
    """A value, before which others are pushed, remembered, and dropped."""
    return Opcodes(b"".join(each + pickle.POP for each in forgotten) + value)


def savepoint_text(value: Any) -> str:
    """The text of a savepoint that holds these opcodes."""
    return json.dumps({"$pickle": base64.b64encode(pickle.PROTO + b"\x05" + pushed(value) + pickle.STOP).decode()})


def in_child(*actions: Callable[[], str]) -> list[str]:
    """What each action says in a process of their own, or how it ended that process, in which the rest is not tried.

    Memory is bounded for all of them, and processor time for each.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the test process are not needed
        child = os.fork()
    if child == 0:
        try:
            gc.freeze()
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for action in actions:
                until_s = int(sum(os.times()[:2])) + CPU_S
                resource.setrlimit(resource.RLIMIT_CPU, (until_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
                os.write(writing, json.dumps(action()[:60_000]).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = [json.loads(line) for line in stream]
    _, status = os.waitpid(child, 0)
    if len(said) < len(actions):
        said.append(f"ended by signal {os.waitstatus_to_exitcode(status)}")
    return said + ["not tried"] * (len(actions) - len(said))


def read_in_child(
    texts: Iterable[str], classes: ProgramClasses, look: Callable[[Any], Any] = lambda value: type(value).__name__
) -> list[str]:
    """``refused: ...`` or ``read: ...``, with what a look at the value finds, for each text of a savepoint."""

    def action(stored: str) -> str:
        try:
            value = from_text(stored, "row 7", classes)
        except FlinkishError as error:
            out_of_memory = isinstance(error.__cause__, MemoryError)
            return f"{'MemoryError' if out_of_memory else 'refused'}: {type(error).__name__}: {error}"
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        return f"read: {look(value)}"

    return in_child(*(functools.partial(action, stored) for stored in texts))
