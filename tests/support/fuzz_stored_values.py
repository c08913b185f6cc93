"""Feeds random values to the two readers of stored values, and looks for what they change, and what they take.

    python -m tests.support.fuzz_stored_values [--seed N] [--seconds S]

A value is made by the grammar of the reader, not of bytes: constructors with arguments that fit, or nearly so, whose
results are arguments of others; shared parts, doubled or in long chains; objects that grow after they were put into
others; keys of one hash and elements that are nested; slices and ranges; names in place of values. Some values have a
byte cut or changed. A value may be read, or refused with one of the errors of this project.

Wrong is any other error, a class, function or module of the process that has changed, and a file that appears. For
texts of savepoints wrong are also a member, a zone or a singleton that has changed, processor time or memory beyond
what the size of a value explains, and a value that was read, and cannot be written and read again.
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
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.names import DATA_NAMES, lookup
from flinkish.runtime.stored.pickles import loads
from flinkish.runtime.stored.reader import read_value
from flinkish.runtime.stored.texts import from_text, to_text
from flinkish.runtime.stored_names import CONSTRUCTORS
from tests.support.written_opcodes import (
    OWN,
    Opcodes,
    called,
    frozenset_of,
    got,
    name,
    own,
    pushed,
    set_of,
    text,
    with_elements,
    with_items,
    with_state,
)

VERSION = 2
#: Address space beyond what the process has at its start.
MEMORY_BYTES = 2 << 30
#: Processor time of one value: so much, and so much more per byte.
CPU_S, CPU_S_PER_BYTE = 2.0, 2e-4
#: Values between two looks at what has changed.
CHECK_VALUES = 200

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
ATTRIBUTES = (
    "changed __class__ __dict__ __name__ __call__ __init__ __reduce_ex__ _value_ _name_ data maps int args start nanos "
    "tag_id zone key _ip _fields name path"
).split()


class Held:
    """A class of the program."""

    kept = "as it is"

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Colour(enum.Enum):
    RED = 1


class Words(list[Any]):
    """A list of the program."""


class Pair(tuple[Any, ...]):
    """A tuple of the program."""


class Failure(Exception):
    """An error of the program."""


class Keyed(Held):
    """A class whose instances are keys, by what they hold."""

    def __hash__(self) -> int:
        return hash(vars(self).get("value"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and vars(self) == vars(other)


PROGRAM = [f"{__name__}:{cls.__name__}" for cls in (Held, Colour, Words, Pair, Failure, Keyed)]
#: What constructors take, by the kinds of their arguments (the methods of `Values`); others get random arguments.
FITTING: dict[str, str] = {
    "builtins:range": "number number number",
    "builtins:slice": "number any any",
    "builtins:complex": "real real",
    "builtins:ValueError": "any",
    "builtins:UnicodeDecodeError": "word data number number word",
    "builtins:SyntaxError": "word tuple",
    "builtins:ExceptionGroup": "word list",
    "builtins:OSError": "any any any",
    "collections:Counter": "dict",
    "collections:OrderedDict": "",
    "collections:defaultdict": "any",
    "collections:deque": "tuple number",
    "datetime:date": "data",
    "datetime:datetime": "data any",
    "datetime:timedelta": "number number number",
    "decimal:Decimal": "word",
    "fractions:Fraction": "number number",
    "ipaddress:IPv4Address": "number",
    "types:SimpleNamespace": "",
    "flinkish.common.types:_create_row": "any tuple",
    "flinkish.core.window.window:TimeWindow": "number number",
    "flinkish.errors:_rebuild": "any word word word word dict",
    "array:_array_reconstructor": "any word number data",
    "pandas._libs.tslibs.timestamps:_unpickle_timestamp": "number any any number",
    "pytz:_p": "word number number word",
    "pytz:_UTC": "",
}
OWN_FITTING = {
    "array": "word tuple data",
    "scalar": "word data",
    "objects": "tuple list",
    "zone": "word",
    "make": "named",
    "call": "named any",
    "call_with_classes": "named tuple any any",
    "reconstruct": "named named any",
    "member": "named any",
    "make_with_names": "named tuple dict",
}
WORDS = ["", "a", "UTC", "Europe/Berlin", "<f8", "<U0", "S3", "|O", "1e999999999", "1/3", "RED", "DELETE", "Held", "d"]
NUMBERS = [0, 1, 2, 7, 10, 255, 10**6, 10**11, -1, 2**61 - 1, 2 * (2**61 - 1), 1 << 5_000, -(2**63)]


#: What pushes a value and remembers it, and what pushes it again. The class has methods of the names of builtins.
_Remembered = tuple[bytes, Opcodes]
_Arguments = list[Opcodes]


class Values:
    """Random values as opcodes. ``random`` chooses everything.

    Args:
        chosen: what chooses.
        bounded: whether the reader is one that bounds what reading takes; otherwise numbers are small, and nothing is
            shared.
    """

    def __init__(self, chosen: random.Random, bounded: bool) -> None:
        self._random = chosen
        self._bounded = bounded
        self._names = sorted(DATA_NAMES) + [f"{OWN}:{each.__name__}" for each in CONSTRUCTORS] + FOREIGN + [FORMER]
        self._memo = 0
        self._makers: list[Callable[[int], bytes]] = [
            *[self._container] * 3,
            *[self._fitting] * 3,
            self._own,
            self._call,
            self._object,
            *[self._changed] * 2,
            self._hashed,
        ]
        if bounded:
            self._makers += [self._doubled, self._chain, self._late, self._often, self._shared]

    def value(self) -> bytes:
        """A value, with the opcode that ends it."""
        self._memo = 0
        data = pickle.PROTO + b"\x05" + self.any(self._random.randint(1, 5)) + pickle.STOP
        if self._random.random() < 0.1:
            at = self._random.randrange(2, len(data))
            return data[:at] + bytes([self._random.randrange(256)]) * self._random.randint(0, 2) + data[at + 1 :]
        return data

    # ---------------------------------------------------------------------------------- parts, by their kind

    def any(self, depth: int) -> Opcodes:
        """Opcodes that mostly push one value."""
        if depth <= 0:
            return self._plain()
        return Opcodes(self._random.choice(self._makers)(depth - 1))

    def number(self, depth: int) -> Opcodes:
        if not self._bounded:
            return pushed(self._random.randrange(256))
        return pushed(self._random.choice(NUMBERS)) if self._random.random() < 0.9 else self.any(depth)

    def word(self, depth: int) -> Opcodes:
        return pushed(self._random.choice(WORDS)) if self._random.random() < 0.9 else self.any(depth)

    def real(self, depth: int) -> Opcodes:
        return pushed(self._random.choice([0.0, -1.5, float("nan"), float("inf")]))

    def data(self, depth: int) -> Opcodes:
        return pushed(self._random.randbytes(self._random.choice([0, 4, 6, 8, 10])))

    def named(self, depth: int) -> Opcodes:
        return text(self._random.choice(PROGRAM if self._random.random() < 0.7 else self._names))

    def tuple(self, depth: int) -> Opcodes:
        return pushed(tuple(self.any(depth) for _ in range(self._random.randint(0, 3))))

    def list(self, depth: int) -> Opcodes:
        return pushed([self.any(depth) for _ in range(self._random.randint(0, 3))])

    def dict(self, depth: int) -> Opcodes:
        pairs = [(self.word(0), self.any(depth)) for _ in range(self._random.randint(0, 3))]
        return with_items(Opcodes(pickle.EMPTY_DICT), pairs)

    def _plain(self) -> Opcodes:
        choose = self._random
        kind = choose.randrange(9)
        if kind < 2:
            return self.number(0)
        if kind < 4:
            return self.word(0)
        if kind == 4:
            return self.data(0)
        if kind == 5 and self._memo and self._bounded:
            return got(choose.randrange(self._memo))
        if kind == 6:
            return self._name() if choose.random() < 0.3 else self.real(0)
        return pushed(choose.choice([None, True, (), [], {}, "x" * 200]))

    def _name(self) -> Opcodes:
        return name(self._random.choice(self._names))

    def _remembered(self, value: bytes) -> _Remembered:
        """The opcodes that remember a value, and those that push it again."""
        self._memo += 1
        return value + pickle.MEMOIZE, got(self._memo - 1)

    # -------------------------------------------------------------------------------- values with parts

    def _container(self, depth: int) -> bytes:
        kind = self._random.randrange(6)
        if kind == 0:
            return self.tuple(depth)
        if kind == 1:
            return self.list(depth)
        if kind == 2:
            return self.dict(depth)
        parts = [self.any(depth) for _ in range(2 * self._random.randint(0, 2))]
        if kind == 3:
            return with_elements(self.any(depth), *parts)
        if kind == 4:
            return with_items(self.any(depth), zip(parts[::2], parts[1::2]))
        return (set_of if self._random.random() < 0.5 else frozenset_of)(*parts)

    def _arguments(self, kinds: str, depth: int) -> _Arguments:
        found = [getattr(self, kind)(depth) for kind in kinds.split()]
        if self._random.random() < 0.2:
            found = found[:-1] if self._random.random() < 0.5 else [*found, self.any(depth)]
        return found

    def _fitting(self, depth: int) -> bytes:
        of = self._random.choice(list(FITTING))
        arguments = self._arguments(FITTING[of], depth)
        if self._random.random() < 0.5:
            return called(of, *arguments)
        return own("call", of, *arguments)

    def _own(self, depth: int) -> bytes:
        constructor = self._random.choice(list(OWN_FITTING))
        return own(constructor, *self._arguments(OWN_FITTING[constructor], depth))

    def _call(self, depth: int) -> bytes:
        """A call of any name, or of a value."""
        target = self._name() if self._random.random() < 0.9 else self.any(depth)
        ends = [pickle.REDUCE, pickle.REDUCE, pickle.NEWOBJ, pickle.OBJ, pickle.BUILD]
        return target + self.tuple(depth) + self._random.choice(ends)

    def _object(self, depth: int) -> bytes:
        """An instance of a class of the program, perhaps with elements, items and a state."""
        made = own("make" if self._random.random() < 0.7 else "call", self._random.choice(PROGRAM))
        if self._random.random() < 0.4:
            made = with_elements(made, self.any(depth))
        return with_state(made, pushed({"value": self.any(depth)})) if self._random.random() < 0.7 else made

    def _changed(self, depth: int) -> bytes:
        """Attributes set on whatever another part of the value has pushed."""
        state = pushed({self._random.choice(ATTRIBUTES): self.any(depth)})
        return with_state(self.any(depth), pushed((None, state)) if self._random.random() < 0.5 else state)

    def _hashed(self, depth: int) -> bytes:
        """Keys, or elements of a set, some of them of one hash."""
        if self._bounded and self._random.random() < 0.05:
            keys = [pushed((2**61 - 1) * factor) for factor in range(self._random.choice([10, 300, 1_000]))]
        else:
            keys = [self.any(depth) for _ in range(self._random.randint(1, 3))]
        if self._random.random() < 0.5:
            return set_of(*keys)
        return with_items(Opcodes(pickle.EMPTY_DICT), [(key, None) for key in keys])

    # ---------------------------------------------------------------------- shared parts, depth, late growth

    def _wrapped(self, inner: Opcodes, depth: int) -> Opcodes:
        kind = self._random.randrange(5)
        if kind == 0:
            return pushed([inner])
        if kind == 1:
            return frozenset_of(inner)
        if kind == 2:
            return called("flinkish.common.types:_create_row", None, pushed((inner,)))
        if kind == 3:
            return with_state(own("make", PROGRAM[-1]), pushed({"value": inner}))
        return pushed((inner,))

    def _doubled(self, depth: int) -> bytes:
        """Parts that hold the one before twice."""
        opcodes, again = self._remembered(self.any(depth))
        for _ in range(self._random.choice([2, 5, 20, 60])):
            pair = pushed((again, again)) if self._random.random() < 0.5 else pushed([again, again])
            more, again = self._remembered(pair)
            opcodes += pickle.POP + more
        return self._random.choice([opcodes, opcodes + pickle.POP + set_of(again)])

    def _chain(self, depth: int) -> bytes:
        """Parts in parts, each of them remembered or not."""
        inner = self.any(depth)
        levels = self._random.choice([3, 50, 300, 1_200])
        if self._random.random() < 0.5:
            return inner + pickle.TUPLE1 * levels
        opcodes, again = self._remembered(inner)
        for _ in range(min(levels, 120)):
            more, again = self._remembered(self._wrapped(again, depth))
            opcodes += pickle.POP + more
        return self._random.choice([opcodes, opcodes + pickle.POP + set_of(again)])

    def _late(self, depth: int) -> bytes:
        """A part that grows once it was put into another one, perhaps by that one."""
        made = self._random.choice(
            [own("make", PROGRAM[0]), own("make", PROGRAM[2]), pushed([]), own("make", "uuid:UUID")]
        )
        opcodes, again = self._remembered(made)
        holder, holds = self._remembered(self._wrapped(again, depth))
        grown = holds if self._random.random() < 0.3 else self.any(depth)
        later = self._random.choice(
            [
                with_elements(again, grown),
                with_state(again, pushed({"value": grown})),
                with_state(again, pushed({"int": grown})),
            ]
        )
        return opcodes + pickle.POP + holder + later + pickle.POP

    def _often(self, depth: int) -> bytes:
        """A part, or a text, that occurs often."""
        opcodes, again = self._remembered(self.any(depth) if self._random.random() < 0.5 else pushed("x" * 2_000))
        times = self._random.choice([10, 100, 1_000])
        return opcodes + pickle.POP + pushed([again] * times)

    def _shared(self, depth: int) -> bytes:
        opcodes, again = self._remembered(self.any(depth))
        return self._random.choice([opcodes, opcodes + pickle.POP, opcodes + pickle.POP + pushed([again, again])])


def everything_named() -> dict[str, Any]:
    """What names of data stand for, what makes it, and the classes of the program."""
    found: dict[str, Any] = {f"{OWN}:{each.__name__}": each for each in CONSTRUCTORS}
    for data_name in DATA_NAMES:
        found[data_name] = lookup(data_name)
    return {**found, **{path: getattr(sys.modules[__name__], path.partition(":")[2]) for path in PROGRAM}}


def contents(found: dict[str, Any]) -> dict[str, Any]:
    """What may not change: the attributes of classes and functions, the members of enums, zones and singletons."""
    classes = {name: _attributes(value) for name, value in found.items()}
    enums: dict[str, Any] = {name: value for name, value in found.items() if isinstance(value, enum.EnumMeta)}
    members = {
        f"{name}.{each.name}": repr(sorted(vars(each).items(), key=lambda item: item[0]))
        for name, value in enums.items()
        for each in value
    }
    pandas, pytz = importlib.import_module("pandas"), importlib.import_module("pytz")
    berlin = pytz.timezone("Europe/Berlin")
    members |= {"NaT": repr(vars(pandas.NaT)), "utc": pytz.utc.zone, "zone": repr((berlin.zone, len(berlin._tzinfos)))}
    return {"classes": classes, "members": members}


def _attributes(value: Any) -> dict[str, int]:
    # what Python adds to a class when it is first used, and that an OutputTag was made
    own = {
        "__abstractmethods__",
        "_abc_impl",
        "__annotations__",
        "__annotations_cache__",
        "__doc__",
        "exists",
        "__slotnames__",
    }
    return {key: id(held) for key, held in getattr(value, "__dict__", {}).items() if key not in own}


class Fuzzer:
    """Feeds values to the readers, and counts what is wrong."""

    def __init__(self, seed: int, report: Callable[[str], None]) -> None:
        self.values = self.wrong = self.read = 0
        self._seed = seed
        self._report = report
        chosen = random.Random(seed)
        self._bounded, self._small = Values(chosen, True), Values(chosen, False)
        self._classes = ProgramClasses({}, frozenset({__name__}))
        self._named = everything_named()
        self._before = contents(self._named)
        self._modules = set(sys.modules)

    def feed(self) -> None:
        """Feed one value: one of 200 to the reader of the job's own state, which bounds nothing."""
        self.values += 1
        if self.values % CHECK_VALUES:
            value = self._bounded.value()
            problem = self._text(value)
        else:
            value = self._small.value()
            problem = self._state(value)
        if not problem and self.values % CHECK_VALUES in (0, CHECK_VALUES - 1):
            problem = self._changes(self.values % CHECK_VALUES == 0)
        if problem:
            self.wrong += 1
            self._report(f"value {self.values} of seed {self._seed}: {problem}: {value!r:.300}")

    def _text(self, value: bytes) -> str:
        started = time.process_time()
        try:
            found = read_value(value, self._classes)
            self.read += 1
            if self.read % 5 == 0:
                self._again(found)
        except FlinkishError:
            pass
        except (MemoryError, RecursionError, SystemError) as error:
            return f"{type(error).__name__}: {error}"
        except Exception:
            # the readers of texts wrap what constructors raise about wrong arguments
            pass
        spent = time.process_time() - started
        return f"took {spent:.1f} s" if spent > CPU_S + CPU_S_PER_BYTE * len(value) else ""

    def _again(self, found: Any) -> None:
        """Write what was read, and read it again."""
        try:
            written = to_text(found, self._classes)
        except FlinkishError:
            return  # such as a value that is too deep for pickle
        from_text(written, "", self._classes)

    def _state(self, value: bytes) -> str:
        try:
            loads(bytes((0xF1, VERSION)) + value, VERSION, "a value", "", self._classes)
        except FlinkishError:
            pass
        except Exception as error:
            return f"state: {type(error).__name__}: {error}"
        return ""

    def _changes(self, by_state: bool) -> str:
        now, before = contents(self._named), self._before
        self._before = now
        # reading the job's own state may change members
        parts = ["classes"] if by_state else ["classes", "members"]
        changed = [key for part in parts for key in now[part] if now[part][key] != before[part].get(key)]
        if changed:
            return f"has changed, by this value or one of the {CHECK_VALUES} before: {changed[:5]}"
        new = set(sys.modules) - self._modules
        self._modules |= new
        if {module.partition(".")[0] for module in new} & {"antigravity", "subprocess"}:
            return f"modules were imported: {sorted(new)[:5]}"
        return "a file has appeared" if list(Path.cwd().iterdir()) else ""


def run(seed: int, seconds: float, report: Callable[[str], None] = print) -> int:
    """Feed values for some seconds; return how many were wrong."""
    fuzzer = Fuzzer(seed, report)
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        working = os.getcwd()
        os.chdir(folder)
        try:
            while time.monotonic() < end:
                fuzzer.feed()
                if fuzzer.values % 5_000 == 0:
                    gc.collect()
        finally:
            os.chdir(working)
    report(f"{fuzzer.wrong} of {fuzzer.values} values are wrong ({fuzzer.read} were read from a text)")
    return fuzzer.wrong


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
