"""Feeds random chains of opcodes to the two readers of stored values, and looks for what they change.

    python -m tests.support.fuzz_stored_values [--seed N] [--seconds S]

Each value is a chain: constructors whose results are arguments of others, attributes that are set on what constructors
returned, items, memo, opcodes that nobody writes, bytes cut or changed. A value may be read or refused with one of the
errors of this project. Wrong is any other error, a class, function or module of the process that has changed, a file
that appears, and, for texts of savepoints, a member or a zone that has changed, or much memory.
"""

from __future__ import annotations

import argparse
import enum
import gc
import importlib
import os
import pickle
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flinkish.errors import FlinkishError
from flinkish.runtime.program_classes import ProgramClasses
from flinkish.runtime.state.savepoint_rows import from_text
from flinkish.runtime.stored_names import CONSTRUCTORS, DATA_NAMES
from flinkish.runtime.stored_pickle import loads
from flinkish.runtime.stored_reader import read_value

VERSION = 2
#: Address space beyond what the process has at its start.
MEMORY_BYTES = 2 << 30

#: Values between two looks at what has changed.
CHECK_VALUES = 10

OWN = "flinkish.runtime.stored_names"
FORMER = "flinkish.runtime.stored_pickle:program_class"
FOREIGN = [
    "os:system",
    "subprocess:Popen",
    "builtins:eval",
    "builtins:getattr",
    "builtins:setattr",
    "builtins:type",
    "importlib:import_module",
    "functools:partial",
    "operator:attrgetter",
    f"{OWN}:importlib.import_module",
    f"{OWN}:Constructors.class_of",
    "copyreg:_reconstructor",
    "antigravity:x",
]
ATTRIBUTES = ["changed", "__class__", "__dict__", "__name__", "__call__", "__init__", "_value_", "data", "maps", "int"]


class Held:
    """A class of the program."""

    kept = "as it is"

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Colour(enum.Enum):
    RED = 1


def text(value: str) -> bytes:
    encoded = value.encode()
    return pickle.BINUNICODE + len(encoded).to_bytes(4, "little") + encoded


class Chains:
    """Random values as opcodes. ``random`` chooses everything."""

    def __init__(self, chosen: random.Random) -> None:
        self._random = chosen
        self._names = sorted(DATA_NAMES) + [f"{OWN}:{each.__name__}" for each in CONSTRUCTORS] + FOREIGN + [FORMER]
        self._memo = 0

    def value(self) -> bytes:
        """A value, with the opcode that ends it."""
        self._memo = 0
        data = pickle.PROTO + b"\x05" + self._push(self._random.randint(1, 6)) + pickle.STOP
        if self._random.random() < 0.2:
            at = self._random.randrange(2, len(data))
            return data[:at] + bytes([self._random.randrange(256)]) * self._random.randint(0, 2) + data[at + 1 :]
        return data

    def _push(self, depth: int) -> bytes:
        """Opcodes that mostly push one value."""
        choose = self._random
        if depth <= 0:
            return self._plain()
        makers: list[Callable[[int], bytes]] = [
            self._container,
            self._call,
            self._call,
            self._made,
            self._changed,
            self._changed,
            self._remembered,
        ]
        return choose.choice(makers)(depth - 1)

    def _plain(self) -> bytes:
        choose = self._random
        number = choose.choice([0, 1, 7, 255, 10**6, 10**11, -1])
        return choose.choice(
            [
                pickle.NONE,
                pickle.NEWTRUE,
                pickle.BININT1 + bytes([choose.randrange(256)]),
                pickle.LONG1 + b"\x08" + number.to_bytes(8, "little", signed=True),
                pickle.BINFLOAT + bytes(8),
                text(choose.choice(["", "a", "UTC", "<f8", "<U0", "S3", "1e999999999", "RED", "DELETE", "Held"])),
                text(choose.choice([*self._names, f"{__name__}:Held", f"{__name__}:Colour", "json:JSONDecoder"])),
                pickle.SHORT_BINBYTES + b"\x08" + bytes(8),
                pickle.EMPTY_TUPLE,
                pickle.EMPTY_LIST,
                pickle.EMPTY_DICT,
                pickle.EMPTY_SET,
                pickle.BINGET + bytes([choose.randrange(max(self._memo, 1))]),
                self._name(),
            ]
        )

    def _name(self) -> bytes:
        module, _, qualname = self._random.choice(self._names).partition(":")
        return text(module) + text(qualname) + pickle.STACK_GLOBAL

    def _arguments(self, depth: int) -> bytes:
        count = self._random.randint(0, 4)
        return pickle.MARK + b"".join(self._push(depth) for _ in range(count)) + pickle.TUPLE

    def _container(self, depth: int) -> bytes:
        choose = self._random
        items = b"".join(self._push(depth) for _ in range(2 * choose.randint(0, 2)))
        kind, end = choose.choice(
            [
                (b"", pickle.TUPLE),
                (b"", pickle.FROZENSET),
                (pickle.EMPTY_LIST, pickle.APPENDS),
                (pickle.EMPTY_DICT, pickle.SETITEMS),
                (pickle.EMPTY_SET, pickle.ADDITEMS),
                (self._push(depth), choose.choice([pickle.APPENDS, pickle.SETITEMS, pickle.ADDITEMS])),
            ]
        )
        return kind + pickle.MARK + items + end

    def _call(self, depth: int) -> bytes:
        called = self._name() if self._random.random() < 0.9 else self._push(depth)
        ends = [pickle.REDUCE, pickle.REDUCE, pickle.REDUCE, pickle.NEWOBJ, pickle.OBJ, pickle.BUILD]
        return called + self._arguments(depth) + self._random.choice(ends)

    def _made(self, depth: int) -> bytes:
        """A call of a constructor whose first argument is a name, as `stored_pickle` writes it."""
        choose = self._random
        name = choose.choice([f"{__name__}:Held", f"{__name__}:Colour", *self._names])
        constructor = choose.choice(["make", "call", "call_with_classes", "reconstruct", "member", "make_with_names"])
        arguments = text(name) + b"".join(self._push(depth) for _ in range(choose.randint(0, 3)))
        called = text(OWN) + text(constructor) + pickle.STACK_GLOBAL
        return called + pickle.MARK + arguments + pickle.TUPLE + pickle.REDUCE

    def _changed(self, depth: int) -> bytes:
        """Attributes set on whatever another part of the chain has pushed."""
        attribute = text(self._random.choice(ATTRIBUTES))
        state = pickle.EMPTY_DICT + attribute + self._push(depth) + pickle.SETITEM
        if self._random.random() < 0.5:
            state = pickle.NONE + state + pickle.TUPLE2
        return self._push(depth) + state + pickle.BUILD

    def _remembered(self, depth: int) -> bytes:
        pushed = self._push(depth) + pickle.MEMOIZE
        self._memo = min(self._memo + 1, 255)
        return pushed + self._random.choice([b"", b"", pickle.POP, pickle.DUP, pickle.BINGET + bytes([self._memo - 1])])


def everything_named() -> dict[str, Any]:
    """What names of data stand for, what makes it, and the classes of the program."""
    found: dict[str, Any] = {f"{OWN}:{each.__name__}": each for each in CONSTRUCTORS}
    for name in DATA_NAMES:
        module, _, path = name.partition(":")
        value: Any = importlib.import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
        found[name] = value
    return {**found, "Held": Held, "Colour": Colour}


def contents(found: dict[str, Any]) -> dict[str, Any]:
    """What may not change: the attributes of classes and functions, and the members of enums."""
    classes = {name: _attributes(value) for name, value in found.items()}
    members = {
        f"{name}.{each.name}": repr(sorted(vars(each).items(), key=lambda item: item[0]))
        for name, value in found.items()
        if isinstance(value, enum.EnumMeta)
        for each in value
    }
    return {"classes": classes, "members": members}


def _attributes(value: Any) -> dict[str, int]:
    # what Python adds to a class when it is first used, and that an OutputTag was made
    own = {"__abstractmethods__", "_abc_impl", "__annotations__", "__annotations_cache__", "__doc__", "exists"}
    return {key: id(held) for key, held in getattr(value, "__dict__", {}).items() if key not in own}


def run(seed: int, seconds: float, report: Callable[[str], None] = print) -> int:
    """Feed values for some seconds; return how many were wrong."""
    chains = Chains(random.Random(seed))
    main = sys.modules[__name__]
    classes = ProgramClasses({}, frozenset({main.__name__}))
    named = everything_named()
    before = contents(named)
    modules = set(sys.modules)
    values = wrong = accepted = 0
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        working = os.getcwd()
        os.chdir(folder)
        try:
            while time.monotonic() < end:
                value = chains.value()
                values += 1
                problems = []
                for way, reader in (("text", read_value), ("state", _read_state)):
                    try:
                        reader(value, classes)
                        accepted += 1
                    except FlinkishError:
                        pass
                    except (Exception, RecursionError) as error:
                        # the readers of texts wrap what constructors raise about wrong arguments
                        if way == "state" or isinstance(error, (MemoryError, RecursionError, SystemError)):
                            problems.append(f"{way}: {type(error).__name__}: {error}")
                    if values % CHECK_VALUES:
                        continue
                    now = contents(named)
                    if now["classes"] != before["classes"]:
                        changed = [name for name, held in now["classes"].items() if held != before["classes"][name]]
                        problems.append(f"{way}: {changed[:5]} has changed")
                    if way == "text" and now["members"] != before["members"]:
                        problems.append("text: a member of an enum has changed")
                    if now != before:
                        # reading the job's own state may change members; begin again from what they are now
                        before = now
                    if set(sys.modules) - modules - {module.partition(":")[0] for module in DATA_NAMES}:
                        new = set(sys.modules) - modules
                        modules |= new
                        if {module.partition(".")[0] for module in new} & {"antigravity", "json", "subprocess"}:
                            problems.append(f"{way}: modules were imported: {sorted(new)[:5]}")
                    if list(Path(folder).iterdir()):
                        problems.append(f"{way}: a file has appeared")
                for problem in problems:
                    wrong += 1
                    report(
                        f"value {values} of seed {seed}, or one of the {CHECK_VALUES} before: {problem}: {value!r:.300}"
                    )
                if values % 5_000 == 0:
                    gc.collect()
        finally:
            os.chdir(working)
    report(f"{wrong} of {values} values are wrong ({accepted} times a value was read)")
    return wrong


def _read_state(value: bytes, classes: ProgramClasses) -> Any:
    return loads(bytes((0xF1, VERSION)) + value, VERSION, "a value", "", classes)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to run (default: 10)")
    options = parser.parse_args()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    assert from_text("1") == 1
    sys.exit(1 if run(options.seed, options.seconds) else 0)


if __name__ == "__main__":
    # under its own name the module is one of the program's, as that of a user is
    importlib.import_module("tests.support.fuzz_stored_values").main()
