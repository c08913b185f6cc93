"""Whoever edits a text of a savepoint chooses values: not how long reading takes, nor what changes, nor what runs."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import hashlib
import importlib
import pickle
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import flinkish
from flinkish.common.typeinfo import Types
from flinkish.common.types import RowKind
from flinkish.errors import SavepointError, StoredClassError, UnsafeStateError
from flinkish.runtime.state.saved.texts import SavepointRow, to_savepoint_row, watermark_of
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates, RowReader
from flinkish.runtime.state.state_rows import StateRow
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.texts import from_text, to_text
from tests.support.rows import hold
from tests.support.written_opcodes import (
    OWN,
    Opcodes,
    after,
    called,
    frozenset_of,
    got,
    name,
    own,
    pushed,
    read_in_child,
    remembered,
    savepoint_text,
    set_of,
    slots,
    with_elements,
    with_items,
    with_state,
)

CHECKOUT = Path(flinkish.__file__).parents[1]
#: Names of methods that ran.
RAN: list[str] = []
#: What runs of an object in place of a value of another type that the program declares.
OF_OTHER_TYPES = {"__index__", "__repr__"}


class Held:
    """A class of the program."""

    def __repr__(self) -> str:
        return "Held"


class Shared:
    """A class of which there is one instance."""

    one: ClassVar[Any] = None

    def __new__(cls) -> Any:
        if Shared.one is None:
            Shared.one = object.__new__(cls)
        return Shared.one


class Colour(enum.Enum):
    RED = 1


class Words(list[Any]):
    pass


class Keyed:
    """A class whose instances are keys by what they hold."""

    def __hash__(self) -> int:
        return hash(self.__dict__["name"])


@pytest.fixture(scope="module")
def program() -> ProgramClasses:
    return ProgramClasses.of_this_process()


HELD, KEYED = f"{__name__}:Held", f"{__name__}:Keyed"
IN_ITSELF: Any = ([],)
IN_ITSELF[0].append(IN_ITSELF)
#: A prime: all multiples of it have the hash 0.
PRIME = 2**61 - 1
RANGE = called("builtins:range", 0, 10**11, 1)
ROW, ERROR = "flinkish.common.types:_create_row", "builtins:ValueError"
BIG = "collections:deque"


def towers(levels: int, depth: int = 900) -> Opcodes:
    """UUIDs that were put into tuples of this depth, and got the next tuple as their number afterwards."""
    made, body, memo = own("make", "uuid:UUID"), b"", 1
    body += made + pickle.MEMOIZE
    for _ in range(levels):
        body += made + pickle.MEMOIZE + pickle.TUPLE1 * depth + pickle.MEMOIZE + pickle.POP
        body += pushed({"int": got(memo + 1)}) + pickle.BUILD + pickle.POP + got(memo)
        memo += 2
    return after(body, value=got(0))


def doubled(kind: type, levels: int = 60) -> Opcodes:
    """A tuple or list that holds the one before twice."""
    inner = [remembered(pushed(kind()))]
    inner += [remembered(pushed(kind([got(level), got(level)]))) for level in range(levels)]
    return after(*inner, value=got(levels))


def nested_by_memo(levels: int) -> Opcodes:
    """A tuple that is remembered and put into the next one, and so on."""
    inner = [remembered(pushed(()))] + [remembered(pushed((got(level),))) for level in range(levels)]
    return after(*inner, value=got(levels))


def multiples(count: int = 30_000) -> list[int]:
    return [PRIME * factor for factor in range(1, count)]


PAIRS = [(factor, None) for factor in multiples()]
ADDRESS = called("ipaddress:IPv4Address", "1.2.3.4")
LONG = called("decimal:Decimal", "1e99999999")
EVERY = pushed([got(0)] * 30_000)

#: What is refused: texts that took hours, gigabytes, or the process, and what is one step before.
REFUSED: dict[str, Any] = {
    # --- ranges, in place of what has a size
    "a range as the values of a Row": called(ROW, None, RANGE),
    "a range as the fields of a Row": called(ROW, RANGE, ()),
    "a range as the objects of an array": own("objects", (10**11,), RANGE),
    "a range as the shape of an array": own("array", "<f8", RANGE, b""),
    "a range for a slice of a list": with_items(pushed([]), [(called("builtins:slice", 0, 0, None), RANGE)]),
    "a range for a slice of a Row": with_items(called(ROW, None, ()), [(called("builtins:slice", 0, 0, None), RANGE)]),
    "a range that is appended": Opcodes(pushed([]) + RANGE + pickle.APPENDS),
    "a range as the place of a syntax error": called("builtins:SyntaxError", "x", RANGE),
    "a range as the errors of a group": called("builtins:ExceptionGroup", "x", RANGE),
    "a range in place of a tuple": own("make", "flinkish.runtime.list_keys:TupleKey", RANGE),
    "a range in place of the items of a deque": called(BIG, RANGE),
    "a range in place of the items of a dictionary": called("collections:OrderedDict", RANGE),
    "a range as the names of attributes": with_state(own("make", HELD), (RANGE, None)),
    "a range as the items of a set of a class": own("call", f"{__name__}:Words", RANGE),
    # --- numbers that stand for more than their digits
    "a long Decimal in an address": set_of(with_state(ADDRESS, slots(_ip=LONG))),
    "a Decimal with a long exponent": LONG,
    "a Fraction of long integers": called("fractions:Fraction", 1, 10**100_000),
    "a Fraction with an exponent": called("fractions:Fraction", "1e999999999"),
    "a bytearray of a number": called("builtins:bytearray", 10**11),
    "a UUID without a number": with_state(own("make", "uuid:UUID"), {}),
    "a UUID of nothing": own("make", "uuid:UUID"),
    "an Instant of nothing": own("make", "flinkish.common.time:Instant"),
    "an Instant without its nanoseconds": with_state(own("make", "flinkish.common.time:Instant"), {"seconds": 1}),
    "a map of nothing": own("make", "collections:UserDict"),
    "a UUID of a long number": with_state(own("make", "uuid:UUID"), {"int": 1 << 200_000}),
    "flags of a long number": own("member", f"{__name__}:Rights", 1 << 200_000),
    "a window of texts": called("flinkish.core.window.window:TimeWindow", "a", "b"),
    # --- shapes and layouts
    "a shape that names one long number often": after(
        remembered(pushed(2**160_000)), value=own("array", "<f8", tuple([got(0)] * 20_000), b"")
    ),
    "a shape without data": own("array", "<f8", (10**11,), b""),
    "a shape of empty texts": own("array", "<U0", (10**6,), b""),
    "a negative shape": own("array", "<f8", (-1, -1), bytes(8)),
    "a shape of floats": own("array", "<f8", (1.0,), bytes(8)),
    "a layout of lists": own("array", doubled(list), (1,), b"\0"),
    "a layout with a shape in its text": own("array", "(1000000000,)f8", (0,), b""),
    "a layout of pointers": own("array", "|O", (1,), bytes(8)),
    "a layout of fields without names": own("array", [("a", [("b", RANGE)])], (1,), bytes(8)),
    "characters that are none": own("array", "<U1", (1,), b"\xff" * 4),
    "items of an array of no known form": called("array:_array_reconstructor", name("array:array"), "d", 99, bytes(8)),
    "a moment of a unit that there is not": called(
        "pandas._libs.tslibs.timestamps:_unpickle_timestamp", 1, None, None, 99
    ),
    "a moment in a time zone of the program": called(
        "pandas._libs.tslibs.timestamps:_unpickle_timestamp", 1, None, own("make", f"{__name__}:Zone"), 10
    ),
    "a duration of more than 64 bits": called("pandas._libs.tslibs.timedeltas:_timedelta_unpickle", 10**30, 10),
    # --- errors whose text reads outside of what they hold
    "a place before the begin": called("builtins:UnicodeDecodeError", "utf-8", b"x", -(2**40), -(2**40) + 1, "r"),
    "a place before the begin of a text": called(
        "builtins:UnicodeEncodeError", "utf-8", "x", -(2**40), -(2**40) + 1, "r"
    ),
    "a place before the begin of a translation": called(
        "builtins:UnicodeTranslateError", "x", -(2**40), -(2**40) + 1, "r"
    ),
    # --- depth and cycles, as they are at the end
    "objects that grow after they were put": set_of(towers(200)),
    "objects that grow and are no keys": towers(200),
    "depth by what is remembered": nested_by_memo(100_000),
    "depth of lists": Opcodes(pickle.EMPTY_LIST * 200_000 + pickle.APPEND * 199_999),
    "a key of many levels": set_of(nested_by_memo(900)),
    "a tuple in itself": Opcodes(pickle.dumps(IN_ITSELF, 5)[2:-1]),
    "an object among its elements": with_state(remembered(own("make", KEYED)), {"me": set_of(got(0)), "name": "x"}),
    "an object among its keys": with_state(
        remembered(own("make", KEYED)), {"name": "x", "me": with_items(pushed({}), [(got(0), None)])}
    ),
    "a key that is in its object": with_state(remembered(own("make", HELD)), {"me": set_of((got(0),))}),
    # --- what occurs often
    "tuples of shared tuples in a set": set_of(doubled(tuple)),
    "tuples of shared tuples as a key": with_items(pushed({}), [(doubled(tuple), None)]),
    "lists of shared lists": doubled(list),
    "a shared text": after(remembered(pushed("x" * 40_000)), value=EVERY),
    "shared bytes": after(remembered(pushed(b"x" * 40_000)), value=EVERY),
    "a shared integer": after(remembered(pushed(1 << 320_000)), value=EVERY),
    "a text that is short, and shared often": after(remembered(pushed("x" * 1_000)), value=pushed([got(0)] * 1_000)),
    "a shared list": after(remembered(pushed([0] * 10_000)), value=EVERY),
    # --- keys that have one hash, or take long
    "multiples of a prime as keys": with_items(pushed({}), PAIRS),
    "multiples of a prime in a set": set_of(*multiples()),
    "multiples of a prime in a frozenset": frozenset_of(*multiples()),
    "multiples of a prime in tuples": set_of(*[(factor, "a") for factor in multiples()]),
    "multiples of a prime as counts": called("collections:Counter", with_items(pushed({}), PAIRS)),
    "multiples of a prime in an OrderedDict": with_items(called("collections:OrderedDict"), PAIRS),
    "a long integer as a key": pushed({1 << 200_000: 1}),
    # --- classes as values
    "a class in an error": called(ERROR, name("builtins:list")),
    "a class in an error by its name": own("call_with_classes", ERROR, (0,), HELD),
    "a class in a slice": own("call_with_classes", "builtins:slice", (0, 1, 2), HELD, HELD, HELD),
    "a class as a field of a Row": called(ROW, [name("builtins:list")], (1,)),
    "classes as the fields of a Row": own("call_with_classes", ROW, (0,), HELD, (1,)),
    "a class as the values of a Row": own("call_with_classes", ROW, (1,), None, HELD),
    "a class in a list": pushed([name("builtins:list")]),
    "a class in a state": with_state(own("make", HELD), {"a": name("builtins:list")}),
    "a class as the arguments of a new object": own("make", f"{__name__}:Taker", name(f"{OWN}:call")),
    # --- what would run a program's class
    "a dictionary with a factory as the values of a Row": called(
        ROW, None, own("call_with_classes", "collections:defaultdict", (0,), HELD)
    ),
    "a dictionary with an object as its factory": called("collections:defaultdict", own("make", HELD)),
    "the size of a deque is an object": called(BIG, (), own("make", HELD)),
    "the number of an error is an object": called("builtins:BlockingIOError", 1, "x", own("make", HELD)),
    "a method in place of an attribute": with_state(own("make", HELD), {"__reduce_ex__": own("make", HELD)}),
    # --- what was not made by the value itself
    "a constructor that is called": own("call", f"{OWN}:member", "flinkish.common.types:RowKind", "DELETE"),
    "an enum that is called": own("call", f"{__name__}:Colour", 1),
    "an enum that is made": own("make", f"{__name__}:Colour"),
    "a time zone with another offset": called("pytz:_p", "Europe/Berlin", 60, 0, "X"),
}


class Rights(enum.Flag):
    READ = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        RAN.append("_missing_")
        return cls.READ


class Taker:
    def __new__(cls, *taken: Any) -> Any:
        return object.__new__(cls)

    def __getnewargs__(self) -> Any:
        return ()


def test_what_a_text_takes_and_changes_is_bounded_before_it_is_built(program: ProgramClasses) -> None:
    """In a process of their own, with 5 seconds of processor time for each and 1 GiB of memory."""

    def check(case: str, said: str) -> None:
        assert re.match("refused: (UnsafeStateError|StoredClassError).*row 7", said, re.S), said

    said = read_in_child(map(savepoint_text, REFUSED.values()), program, lambda value: str(value)[:100])
    hold(check, zip(REFUSED, said, strict=True))


class Shown(str):
    """What a value is shown as."""

    def __repr__(self) -> str:
        return str(self)


#: What is read, and takes little, though it looks like what is refused.
READ: dict[str, tuple[Any, Any]] = {
    "a list in itself": (with_elements(remembered(pushed([])), got(0), got(0)), Shown("[[...], [...]]")),
    "a dictionary in itself": (with_items(remembered(pushed({})), [("a", got(0))]), Shown("{'a': {...}}")),
    "a deque in what it holds": (
        with_elements(remembered(pushed([])), with_elements(called(BIG), got(0))),
        Shown("[deque([[...]])]"),
    ),
    "an object that is found by itself": (
        with_elements(pushed([]), with_state(remembered(own("make", HELD)), {"me": set_of(got(0)), "a": 1})),
        Shown("[Held]"),
    ),
    "a range": (RANGE, range(10**11)),
    "a range in an array of objects": (own("objects", (1,), [RANGE]), [range(10**11)]),
    "lists in an array of objects": (own("objects", (2,), [[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "a shared text that is short": (after(remembered(pushed("x")), value=pushed([got(0)] * 3)), ["x"] * 3),
    "a list that is shared": (after(remembered(pushed([1])), value=pushed((got(0), got(0)))), ([1], [1])),
    "as many keys of one hash as may be": (set_of(*multiples(250)), set(multiples(250))),
    "one key that occurs often": (pushed([{PRIME: 1}] * 300), [{PRIME: 1}] * 300),
    "an attribute of an error that Python has itself": (
        with_state(called(ERROR, "x"), {"args": RANGE}),
        ValueError("x"),
    ),
}


def test_what_only_looks_expensive_is_read(program: ProgramClasses) -> None:
    def look(value: Any) -> str:
        return _hashed(repr(value.tolist() if hasattr(value, "tolist") else value))

    texts = (savepoint_text(stored) for stored, _ in READ.values())
    expected = [f"read: {_hashed(repr(value))}" for _, value in READ.values()]
    assert dict(zip(READ, read_in_child(texts, program, look))) == dict(zip(READ, expected))


def _hashed(shown: str) -> str:
    """As it is if it is short."""
    return shown if len(shown) < 100 else hashlib.sha256(shown.encode()).hexdigest()


def test_json_of_another_shape_is_an_error_of_the_row(program: ProgramClasses) -> None:
    texts = {
        "keys of one hash": '{"$dict": [' + ", ".join(f"[{number}, 0]" for number in multiples()) + "]}",
        "fields that are numbers": '{"$row": [[1], [2]]}',
        "fields that are a text": '{"$row": ["ab", [1, 2]]}',
        "fields by name": '{"$row": [{"a": 1}, [2]]}',
        "depth": '{"$dict": [[{"$tuple": [' * 400 + "]}]]}" * 400,
    }
    for case, said in zip(texts, read_in_child(texts.values(), program), strict=True):
        assert re.match("refused: .*row 7", said), (case, said)


@pytest.mark.parametrize("stored", [savepoint_text(called("decimal:Decimal", "1e999999")), '"5"', "true", "1.5"])
def test_a_watermark_is_a_whole_number(stored: str) -> None:
    """Another number would be made one, which takes as long as it has digits."""
    with pytest.raises(SavepointError, match="is no watermark.*row of uid u"):
        watermark_of(stored, "row of uid u")


# --- what changes ---------------------------------------------------------------------------------------------------


def _pandas_nat() -> Any:
    return vars(importlib.import_module("pandas").NaT).copy()


def _pytz_utc() -> Any:
    return importlib.import_module("pytz").utc.zone


NAT, UTC = "pandas._libs.tslibs.nattype:__nat_unpickle", "pytz:_UTC"
#: Changes to what others have as well: the value, and how to see that it has changed.
CHANGES: dict[str, tuple[Opcodes, Any, Callable[[], Any]]] = {
    "a member of an enum": (
        own("member", "flinkish.common.types:RowKind", "DELETE"),
        {"_value_": 0},
        lambda: RowKind.DELETE.value,
    ),
    "a member through a call": (
        own("call", f"{OWN}:member", "flinkish.common.types:RowKind", "DELETE"),
        {"_value_": 0},
        lambda: RowKind.DELETE.value,
    ),
    "a member through a call with classes": (
        own("call_with_classes", f"{OWN}:member", (), "flinkish.common.types:RowKind", "DELETE"),
        {"_value_": 0},
        lambda: RowKind.DELETE.value,
    ),
    "a member of the program": (own("call", f"{__name__}:Colour", 1), {"_value_": 9}, lambda: repr(Colour.RED)),
    "a member that is made": (own("make", f"{__name__}:Colour", 1), {"_value_": 9}, lambda: repr(Colour.RED)),
    "pandas.NaT": (called(NAT, None), {"value": 7}, _pandas_nat),
    "pandas.NaT through a call": (own("call", NAT, None), {"value": 7}, _pandas_nat),
    "pytz.utc": (called(UTC), {"zone": "Mars"}, _pytz_utc),
    "pytz.utc through a call": (own("call", UTC), {"zone": "Mars"}, _pytz_utc),
    "a zone": (own("zone", "UTC"), {"key": "Mars"}, lambda: str(importlib.import_module("zoneinfo").ZoneInfo("UTC"))),
    "the one instance of a class": (own("make", f"{__name__}:Shared"), {"a": 1}, lambda: dict(vars(Shared()))),
    "a small integer of a class": (called("datetime:timedelta", 0, 0, 0), {"a": 1}, lambda: dt.timedelta(0).days),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_others_have_as_well_is_never_changed(case: str, program: ProgramClasses) -> None:
    pushes, attributes, seen = CHANGES[case]
    for state in (attributes, slots(**attributes)):
        before = seen()
        with pytest.raises((UnsafeStateError, StoredClassError)):
            from_text(savepoint_text(with_state(pushes, state)), "", program)
        assert seen() == before


# --- what runs ------------------------------------------------------------------------------------------------------


def watched(*bases: type, name: str, **more: Any) -> type:
    """A class of the program of which each method of Python's protocols says that it ran."""

    def method(of: str) -> Callable[..., Any]:
        def run(self: Any, *arguments: Any, **named: Any) -> Any:
            RAN.append(of)
            found = next((vars(base)[of] for base in type(self).__mro__[1:] if of in vars(base)), None)
            return None if found is None else found(self, *arguments, **named)

        return run

    methods = "__init__ __call__ __del__ __hash__ __eq__ __setstate__ __setattr__ __setitem__ __len__ __iter__ __bool__"
    methods += " __index__ __getitem__ __contains__ __missing__ __iadd__ __repr__ __getattr__ append extend update add"
    attributes = {of: method(of) for of in methods.split() if of not in more.get("without", ())}
    attributes |= more.get("attributes", {})

    def new(cls: Any, *arguments: Any, **named: Any) -> Any:
        RAN.append("__new__")
        found = bases[0].__new__ if bases else object.__new__
        return found(cls, *arguments) if found is not object.__new__ else found(cls)

    return type(name, bases, {"__module__": __name__, "__new__": new, **attributes})


class _Reduced:
    def __reduce__(self) -> Any:
        return (type(self), ())


_STATE = ("__del__", "__getattr__", "__setstate__")
Plain = watched(name="Plain", without=("__del__", "__getattr__", "__eq__", "__setattr__", "__setstate__"))
Stateful = watched(name="Stateful", without=("__del__", "__getattr__"))
Finalized = watched(name="Finalized", without=("__getattr__", "__setstate__"))
ListOf = watched(list, name="ListOf", without=_STATE)
DictOf = watched(dict, name="DictOf", without=_STATE)
SetOf = watched(set, name="SetOf", without=_STATE)
DequeOf = watched(collections.deque, name="DequeOf", without=_STATE)
CounterOf = watched(collections.Counter, name="CounterOf", without=_STATE)
DefaultOf = watched(collections.defaultdict, name="DefaultOf", without=_STATE)
ErrorOf = watched(Exception, name="ErrorOf", without=_STATE)
Equal = watched(
    name="Equal",
    without=_STATE,
    attributes={
        "__hash__": lambda self: RAN.append("__hash__") or 1,
        "__eq__": lambda self, other: RAN.append("__eq__") or True,
    },
)
Unhashable = watched(name="Unhashable", without=_STATE, attributes={"__hash__": None})


class Zone(dt.tzinfo):
    def utcoffset(self, moment: Any) -> dt.timedelta:
        RAN.append("utcoffset")
        return dt.timedelta(0)

    def __reduce__(self) -> Any:
        return object.__reduce_ex__(self, 2)


OwnCall = watched(_Reduced, name="OwnCall", without=_STATE)


def _made(cls: type) -> Opcodes:
    return own("make", f"{__name__}:{cls.__name__}")


def _call(cls: type, *arguments: Any) -> Opcodes:
    return own("call", f"{__name__}:{cls.__name__}", *arguments)


#: Values, and the methods of the program's classes that may run while they are read.
RUNS: dict[str, tuple[Any, set[str]]] = {
    "an object": (with_state(_made(Plain), {"a": 1}), {"__new__"}),
    "an object with a state": (with_state(_made(Stateful), {"a": 1}), {"__new__", "__setstate__"}),
    "an object as a key": (pushed({_made(Plain): 1}), {"__new__", "__hash__"}),
    "equal objects": (set_of(_made(Equal), _made(Equal)), {"__new__", "__hash__", "__eq__"}),
    "a list": (with_elements(_made(ListOf), 1, 2), {"__new__"}),
    "a dictionary": (with_items(_made(DictOf), [("a", 1)]), {"__new__"}),
    "a set": (_call(SetOf, [1, 2]), {"__new__"}),
    "a deque": (with_elements(_call(DequeOf, (), 3), 1, 2), {"__new__"}),
    "counts": (_call(CounterOf, {"a": 1}), {"__new__"}),
    "a dictionary with a factory": (
        with_items(own("call_with_classes", f"{__name__}:DefaultOf", (0,), f"{__name__}:Plain"), [("a", 1)]),
        {"__new__"},
    ),
    "an error": (with_state(_call(ErrorOf, "x"), {"a": 1}), {"__new__"}),
    "an object that is made by a call": (_call(OwnCall), {"__new__", "__init__"}),
    "flags that are no member": (own("member", f"{__name__}:Rights", 8), {"_missing_"}),
    "a datetime with a time zone of the program, as a key": (
        set_of(called("datetime:datetime", bytes((7, 232, 1, 2, 0, 0, 0, 0, 0, 0)), _made(Zone))),
        {"utcoffset"},
    ),
    "an object without a hash": (_made(Unhashable), {"__new__"}),
}


def test_an_object_with_a_finalizer_is_neither_read_nor_stored(program: ProgramClasses) -> None:
    RAN.clear()
    with pytest.raises(UnsafeStateError, match="Finalized, which has a method __del__"):
        from_text(savepoint_text(_made(Finalized)), "", program)
    assert not RAN
    with pytest.raises(StoredClassError, match="__del__, which would run.*release what it holds in close"):
        to_text(Finalized(), program)


@pytest.mark.parametrize("case", RUNS)
def test_of_a_programs_class_runs_only_what_the_page_lists(case: str, program: ProgramClasses) -> None:
    stored, may_run = RUNS[case]
    for key, value in (("1", savepoint_text(stored)), (savepoint_text(stored), "1")):
        RAN.clear()
        reader = RowReader(ProgramStates({}), {}, False, program)
        reader.read(SavepointRow("u", "s", "value", key, "null", value))
        assert set(RAN) <= may_run | {"__hash__"}  # of the key itself
    RAN.clear()
    value = from_text(savepoint_text(stored), "", program)
    ran = set(RAN)
    del value
    assert ran == may_run


DECLARED = [
    *[getattr(Types, name)() for name in "BOOLEAN LONG DOUBLE BIG_INT BIG_DEC STRING SQL_DATE INSTANT".split()],
    Types.LIST(Types.INT()),
    Types.MAP(Types.STRING(), Types.INT()),
    Types.TUPLE([Types.INT()]),
    Types.ROW([Types.INT()]),
]


def test_a_value_of_another_type_than_the_declared_one_is_asked_for_a_number_and_shown(program: ProgramClasses) -> None:
    ran = set()
    for declared in DECLARED:
        RAN.clear()
        reader = RowReader(ProgramStates({"u": {"s": ProgramState("value", None, declared)}}), {}, True, program)
        assert reader.read(SavepointRow("u", "s", "value", "1", "null", savepoint_text(_made(Plain)))) is None
        ran.update(RAN)
    assert ran == {"__new__"} | OF_OTHER_TYPES


class Bag:
    """A class that is neither a list nor a dictionary, and is reduced to elements all the same."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def append(self, value: Any) -> None:
        self.held.append(value)

    def __reduce__(self) -> Any:
        return Bag, (), None, iter(self.held)


class Node:
    def __init__(self) -> None:
        self.parent: Any = None
        self.children: list[Any] = []


class Tree(Node):
    """A tree whose nodes know where they hang, which is left out of what is stored."""

    def __getstate__(self) -> Any:
        return self.children

    def __setstate__(self, state: Any) -> None:
        self.parent, self.children = None, state
        for child in state:
            child.parent = self


def _child(kind: type[Node]) -> Node:
    parent, child = kind(), kind()
    child.parent = parent
    parent.children.append(child)
    return parent


def _often() -> Any:
    value: Any = "x" * 100
    for _ in range(20):
        value = (value, value)
    return types.SimpleNamespace(all=value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IN_ITSELF, "a tuple cannot be a text of a savepoint: it holds itself among what it is made of"),
        (_often, "a SimpleNamespace cannot be a text of a savepoint: it has parts that together occur"),
        (Bag, "a Bag cannot be stored: its __reduce__ returns items, but it is no list and no dict"),
    ],
    ids=["a value that holds itself", "a value that holds another one often", "elements of what is no list"],
)
def test_what_no_text_can_hold_is_refused_when_it_is_written(
    make: Callable[[], Any], message: str, program: ProgramClasses
) -> None:
    """Before anything of the savepoint is committed, with the place."""
    with pytest.raises(StoredClassError, match=f"{message}.*uid u7, state carts, key 'k'"):
        to_savepoint_row("u7", StateRow("carts", "value", None, "k", make()), program)


@pytest.mark.parametrize("kind", [Node, Tree])
def test_a_tree_with_references_back_is_written_and_read(kind: type[Node], program: ProgramClasses) -> None:
    read = from_text(to_text(_child(kind), program), "", program)
    assert read.children[0].parent is read


def test_the_page_lists_what_may_run_of_a_programs_class() -> None:
    page = CHECKOUT / "docs" / "security.md"
    (listed,) = re.findall(r"What may run of a program's class while a text is read: (.*?)\.\n", page.read_text(), re.S)
    may_run = set().union(*(may_run for _, may_run in RUNS.values()))
    assert may_run | OF_OTHER_TYPES == set(re.findall(r"`(\w+)`", listed)) - {"__reduce__"}


def test_the_tests_that_the_page_names_beside_its_promises_are_there() -> None:
    page = (CHECKOUT / "docs" / "security.md").read_text()
    section = page.partition("## Stored values\n")[2].partition("\n## ")[0]
    (table,) = re.findall(r"\| promise \| test \|\n(.*?)\n\n", section, re.S)
    named = re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", table)
    assert len(named) >= 10
    for module, test in named:
        (file,) = (CHECKOUT / "tests" / "unit").rglob(module or Path(__file__).name)
        assert f"def {test}(" in file.read_text(), test
