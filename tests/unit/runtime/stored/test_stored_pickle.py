"""Stored values hold data and names of the program's classes; reading them executes nothing."""

from __future__ import annotations

import array
import base64
import collections
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import json
import math
import pathlib
import pickle
import sys
import tracemalloc
import types
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import pytz
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish import errors
from flinkish.common.time import Duration, Instant
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row, RowKind
from flinkish.core.functions import OutputTag
from flinkish.core.time import TimeDomain
from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow
from flinkish.errors import ProgramError, StoredClassError, UserCodeError
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.report import TaskPlace, TaskReport
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.saved.operator_states import StoredOperatorStates
from flinkish.runtime.state.state_table import InlineState, StateTable
from flinkish.runtime.state.stored_state import StoredState
from flinkish.runtime.state.timer_queue import StoredTimers, TimerQueue
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses, checked_alias
from flinkish.runtime.stored.pickles import dumps, dumps_all, dumps_groups, loads
from flinkish.runtime.stored.texts import from_text, to_text
from tests.support.profiles import examples

VERSION = 2


class Colour(enum.Enum):
    RED = 1
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Money:
    units: int
    currency: str = "EUR"

    def text(self) -> str:
        return f"{self.units} {self.currency}"


class Point(NamedTuple):
    x: int
    y: int


class Cart:
    class Line:
        def __init__(self, count: int) -> None:
            self.count = count

    def __init__(self) -> None:
        self.lines = [Cart.Line(2)]


class Slotted:
    __slots__ = ("a",)


class Words(list):  # type: ignore[type-arg]
    pass


class ReducedToFunction:
    def __reduce__(self) -> Any:
        return (made_by_function, ())


def made_by_function() -> ReducedToFunction:
    return ReducedToFunction()


@dataclass
class Node:
    next: Any = field(default=None, compare=False)


def inline_of(table: StateTable) -> InlineState:
    inline = table.inline()
    assert inline is not None
    return inline


def stored_of(queue: TimerQueue) -> StoredTimers:
    stored = queue.stored()
    assert stored is not None
    return stored


@pytest.fixture(scope="module")
def program() -> ProgramClasses:
    return ProgramClasses.of_this_process()


def there_and_back(value: Any, classes: ProgramClasses) -> Any:
    return loads(dumps(value, VERSION, classes), VERSION, "a value", "", classes)


# --- what can be stored -------------------------------------------------------------------------------------------

DATA: list[Any] = [
    None,
    {"a": [1, 2.5, (True, b"x")], "s": {1}, "f": frozenset({2})},
    bytearray(b"abc"),
    1 + 2j,
    range(3),
    dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc),
    dt.datetime(2024, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    dt.date(2024, 1, 2),
    dt.time(1, 2),
    dt.timedelta(days=1),
    decimal.Decimal("1.50"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=7),
    ipaddress.ip_address("10.0.0.1"),
    ipaddress.ip_network("10.0.0.0/8"),
    pathlib.PurePosixPath("/a/b"),
    collections.OrderedDict(a=1),
    collections.defaultdict(list, a=[1]),
    collections.deque([1, 2], 3),
    collections.Counter("aab"),
    types.SimpleNamespace(a=1),
    Row("a", 1),
    Row(name="a", n=1),
    Row.of_kind(RowKind.DELETE, "a"),
    TimeWindow(0, 10),
    TimeDomain.EVENT_TIME,
    CountWindow(3),
    GlobalWindow.get(),
    Instant(1, 2),
    Duration(5),
    pd.Timestamp("2024-01-02", tz="Europe/Berlin"),
    pd.Timedelta(3),
    np.float64(1.5),
    np.datetime64("2024-01-02"),
    np.str_("äb"),
    np.str_("a\0"),
    np.str_("\ud800"),
    np.str_(""),
    np.bytes_(b"a\0"),
    np.bytes_(b""),
    np.bool_(True),
]


@pytest.mark.parametrize("value", DATA, ids=lambda value: type(value).__name__)
def test_data_is_stored_without_a_program(value: Any) -> None:
    for read in ways_back(value, NO_CLASSES):
        assert read == value
        assert type(read) is type(value)


def ways_back(value: Any, classes: ProgramClasses) -> list[Any]:
    """The value as the two readers find it: in the state of a job, and in the text of a savepoint."""
    return [there_and_back(value, classes), from_text(to_text(value, classes), "", classes)]


class Queue(collections.deque[Any]):
    pass


class Checked(list[Any]):
    """A list that notes what is added: not when it is read from a text."""

    added: int = 0

    def extend(self, values: Any) -> None:
        Checked.added += 1
        super().extend(values)


class Failure(Exception):
    """An error whose arguments are not those of its class."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class Price(decimal.Decimal):
    pass


class Moment(dt.datetime):
    pass


class OrderId(uuid.UUID):
    pass


class Address(ipaddress.IPv4Address):
    pass


class Counts(collections.Counter[str]):
    def update(self, *counts: Any, **named: Any) -> None:
        raise AssertionError("nothing is counted while a value is read")


class Numbers(array.array):  # type: ignore[type-arg]
    pass


class Parcel:
    """A class that says itself how it is made."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def __reduce__(self) -> Any:
        return Parcel, (self.weight,)


def _with(value: Any, **attributes: Any) -> Any:
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def _counts() -> Counts:
    counts = Counts.__new__(Counts)
    dict.update(counts, {"a": 2})
    return counts


MORE: list[Callable[[], Any]] = [
    lambda: _with(Queue([1, 2], 3), name="q"),
    lambda: Failure(3, "late"),
    lambda: _with(ValueError("x"), place="here"),
    lambda: ImportError("x", name="n", path="p"),
    lambda: FileNotFoundError(2, "no", "f"),
    lambda: UnicodeDecodeError("utf-8", b"xx", 0, 1, "bad"),
    lambda: SyntaxError("bad", ("f", 1, 2, "t")),
    lambda: Price("1.50"),
    lambda: Moment(2024, 1, 2),
    lambda: OrderId(int=3),
    lambda: Address("10.0.0.1"),
    _counts,
    lambda: Numbers("d", [1.5]),
    lambda: Parcel(3),
    lambda: array.array("u", "äb"),
    lambda: _with(collections.OrderedDict(a=1), name="o"),
    lambda: collections.defaultdict(Parcel, a=Parcel(1)),
    lambda: collections.UserString("x"),
    lambda: collections.UserDict(a=1),
    lambda: slice(1, None, 2),
    lambda: np.array([[1, 2], [3, 4]], dtype=">i2"),
    lambda: np.array([(1, "ä")], dtype=[("a", "i4"), ("b", "U3")]),
    lambda: np.array([], dtype="M8[25s]"),
    lambda: np.array(["a", None, [1, 2]], dtype=object),
    lambda: pd.NaT,
    lambda: pd.Timestamp("2024-07-02", tz=pytz.timezone("Europe/Berlin")),
    lambda: pytz.utc,
    lambda: pytz.timezone("Europe/Berlin").localize(dt.datetime(2024, 7, 1)),
    lambda: {frozenset({1}): [(), set(), {}], (1, (2, b"x")): 10**300, None: Row(a=Row(1))},
]


@pytest.mark.parametrize("make", MORE)
def test_whatever_was_stored_is_read_by_both_readers(make: Callable[[], Any], program: ProgramClasses) -> None:
    value = make()
    for read in ways_back(value, program):
        assert type(read) is type(value)
        assert repr(read) == repr(value) or "object at" in repr(value)
        if not type(value).__module__.startswith(("pytz", "pandas")):
            assert str(getattr(read, "__dict__", None)) == str(getattr(value, "__dict__", None)) or "object at" in repr(
                value
            )


def test_a_list_with_methods_of_its_own_is_read_from_texts_without_them(program: ProgramClasses) -> None:
    text, before = to_text(Checked([1, 2]), program), Checked.added
    read = from_text(text, "", program)
    assert (type(read), list(read), Checked.added) == (Checked, [1, 2], before)


def test_a_tag_that_nobody_reads_is_data_with_whatever_type_it_has() -> None:
    for declared in (Types.INT(), Types.LIST(Types.STRING()), Types.ROW([Types.SQL_DATE(), Types.INSTANT()])):
        tag, value = there_and_back((OutputTag("late", declared), 5), NO_CLASSES)
        assert (tag, tag.type_info, value) == (OutputTag("late"), declared, 5)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(), st.text(st.characters(exclude_categories=()), max_size=300) | st.integers()
        )
    )
)
def test_a_column_of_groups_is_read_as_pickle_reads_it(groups: list[tuple[Any, Any]]) -> None:
    import pyarrow as pa

    ids = pa.array(dumps_all(groups), pa.large_binary())
    for column in (ids, ids.slice(1), ids.cast(pa.binary())):
        expected = groups[1:] if len(column) < len(groups) else groups
        found = StoredState().decoded_groups(column)
        assert [tuple(group) for group in found] == expected
        assert [type(key) for _, key in found] == [type(key) for _, key in expected]


_text = st.text(st.characters(exclude_categories=()), max_size=300)
_namespace = st.one_of(
    st.none(), st.tuples(st.integers(), st.integers()), _text, st.just("x" * 40_000), st.tuples(st.floats(), _text)
)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(_namespace, st.one_of(_text, _text, st.integers()))), _namespace)
def test_groups_of_texts_are_written_as_pickle_writes_them(groups: list[tuple[Any, Any]], one: Any) -> None:
    keys = [key for _, key in groups]
    assert dumps_groups([namespace for namespace, _ in groups], keys) == dumps_all(groups)
    assert dumps_groups([one], keys) == dumps_all([(one, key) for key in keys])
    # as many keys for each namespace as make another way worth it
    assert dumps_groups([namespace for namespace, _ in groups] * 8, keys * 8) == dumps_all(groups * 8)
    assert dumps_groups([one], keys * 8) == dumps_all([(one, key) for key in keys * 8])


_part = st.one_of(
    st.none(), st.integers(), st.floats(), _text, st.lists(st.integers(), max_size=2), st.just("x" * 40_000)
)


@settings(max_examples=examples(100))
@given(st.lists(st.lists(_part, min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 3), st.booleans())
def test_rows_are_written_as_pickle_writes_them(rows: list[list[Any]], size: int, deleted: bool) -> None:
    made = [Row(*row[:size]) for row in rows]
    # rows of one batch share their names
    names, named = [f"f{number}" for number in range(size)], [Row(*row[:size]) for row in rows]
    for row in named:
        row.set_field_names(names)
    for some in (made, named, [*made, *named]):
        for row in some:
            row.set_row_kind(RowKind.DELETE if deleted else RowKind.INSERT)
        alone = [data for row in some for data in dumps_all([row])]
        assert dumps_all(some * 150) == alone * 150


def test_what_is_kept_to_write_groups_is_not_more_than_they_are_when_each_has_a_namespace_of_its_own() -> None:
    groups = [((number, number + 1), f"u{number}") for number in range(1_000)]
    tracemalloc.start()
    try:
        found = dumps_groups([namespace for namespace, _ in groups], [key for _, key in groups])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == dumps_all(groups)
    assert peak_bytes < 10 * sum(map(sys.getsizeof, found))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.array(["a", "bc"]),
        np.array([]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["a", None, 3], dtype=object),
        np.array("2024-01-02", dtype="M8[D]"),
    ],
)
def test_arrays_are_stored_by_their_layout_and_can_be_changed(array: Any) -> None:
    read = there_and_back(array, NO_CLASSES)
    assert read.dtype == array.dtype
    assert read.shape == array.shape
    assert read.tolist() == array.tolist()
    assert read.flags.writeable


def test_objects_of_the_program_are_made_of_its_own_classes(program: ProgramClasses) -> None:
    slotted = Slotted()
    slotted.a = 5  # type: ignore[attr-defined]
    value = [Money(3), Point(1, 2), Cart(), slotted, Words("ab"), ValueError("x"), Cart.Line(3)]
    read = there_and_back(value, program)
    assert read[:2] == value[:2]
    assert type(read[1]) is Point
    assert read[2].lines[0].count == 2
    assert read[3].a == 5
    assert (type(read[4]), read[4]) == (Words, ["a", "b"])
    assert read[5].args == ("x",)
    assert read[6].count == 3


def test_members_of_enums_are_the_members(program: ProgramClasses) -> None:
    read = there_and_back([Colour.RED, Colour.GREEN, Size.SMALL, Rights.READ | Rights.WRITE, Rights(0)], program)
    assert read[0] is Colour.RED
    assert read[1] is Colour.GREEN
    assert read[2] is Size.SMALL
    assert read[3] is Rights.READ | Rights.WRITE
    assert read[4] is Rights(0)


def test_what_refers_to_itself_and_what_is_shared_stays_so(program: ProgramClasses) -> None:
    node = Node()
    node.next = node
    read, again = there_and_back([node, node], program)
    assert read is again
    assert read.next is read


def test_a_stored_value_names_a_class_and_holds_none_of_its_code(program: ProgramClasses) -> None:
    data = dumps(Money(3), VERSION, program)
    assert b"test_stored_pickle:Money" in data
    assert b"text" not in data


# --- the program's classes ----------------------------------------------------------------------------------------


def main_of(source: str) -> dict[str, type]:
    """The classes of a program's main module, as another process with the same source would have them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("import enum, dataclasses\n" + source, names)
    return {name: value for name, value in names.items() if isinstance(value, type)}


SCRIPT = """
class Colour(enum.Enum):
    RED = 1

class Shop:
    @dataclasses.dataclass(frozen=True)
    class Money:
        units: int
        def text(self):
            return f"OLD {self.units}"
"""


def test_classes_of_the_main_module_are_found_in_the_program_that_runs_now_with_its_code() -> None:
    before, now = ProgramClasses(main_of(SCRIPT)), ProgramClasses(main_of(SCRIPT.replace("OLD", "NEW")))
    data = dumps((before.main["Colour"].RED, before.main["Shop"].Money(3)), VERSION, before)  # type: ignore[attr-defined]
    colour, money = loads(data, VERSION, "a value", "", now)
    assert colour is now.main["Colour"].RED  # type: ignore[attr-defined]
    assert money.text() == "NEW 3"


def test_a_class_that_is_gone_says_how_to_name_its_successor() -> None:
    before, now = ProgramClasses(main_of(SCRIPT)), ProgramClasses(main_of(SCRIPT.replace("Money", "Price")))
    data = dumps(before.main["Shop"].Money(3), VERSION, before)  # type: ignore[attr-defined]
    with pytest.raises(StoredClassError) as caught:
        loads(data, VERSION, "the state", "operator uid counts", now)
    assert "the stored class __main__.Shop.Money is not in the program" in str(caught.value)
    assert 'env.register_class_alias("__main__.Shop.Money", TheClassNow)' in str(caught.value)
    assert "operator uid counts" in str(caught.value)
    renamed = ProgramClasses(now.main, aliases={"__main__.Shop.Money": now.main["Shop"].Price})  # type: ignore[attr-defined]
    money = loads(data, VERSION, "the state", "", renamed)
    assert type(money).__qualname__ == "Shop.Price"
    again = dumps(money, VERSION, renamed)
    assert b"Shop.Price" in again
    assert b"Shop.Money" not in again


def test_a_program_that_was_a_script_and_is_a_module_now_needs_an_alias_and_the_other_way_round(
    program: ProgramClasses,
) -> None:
    script = ProgramClasses(main_of("class Colour(enum.Enum):\n    RED = 1\n"))
    data = dumps(script.main["Colour"].RED, VERSION, script)  # type: ignore[attr-defined]
    with pytest.raises(StoredClassError, match="__main__.Colour"):
        loads(data, VERSION, "a value", "", program)
    moved = ProgramClasses(program.main, program.modules, dict([checked_alias("__main__.Colour", Colour)]))
    assert loads(data, VERSION, "a value", "", moved) is Colour.RED
    back = ProgramClasses(script.main, aliases=dict([checked_alias(Colour, script.main["Colour"])]))
    stored = dumps(Colour.RED, VERSION, program)
    assert loads(stored, VERSION, "a value", "", back) is script.main["Colour"].RED  # type: ignore[attr-defined]


def test_a_member_that_is_gone_or_has_another_name_is_missed() -> None:
    before = ProgramClasses(main_of("class Colour(enum.Enum):\n    RED = 1\n"))
    data = dumps(before.main["Colour"].RED, VERSION, before)  # type: ignore[attr-defined]
    for members in ("ROUGE = 1", "ROUGE = 1\n    RED = 1"):
        now = ProgramClasses(main_of(f"class Colour(enum.Enum):\n    {members}\n"))
        with pytest.raises(StoredClassError, match="the stored member RED is not in the enum __main__.Colour"):
            loads(data, VERSION, "a value", "", now)


@pytest.mark.parametrize("old", ["Cart", "", "a:b", 7])
def test_an_alias_names_a_module_and_a_class(old: Any) -> None:
    with pytest.raises(TypeError, match="'shop.model.Cart'"):
        checked_alias(old, Cart)


def test_an_alias_leads_to_a_class_that_can_be_found() -> None:
    class Local:
        pass

    with pytest.raises(TypeError, match="expected a class of the program"):
        checked_alias("a.B", "C")  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="a class inside a function"):
        checked_alias("a.B", Local)


def test_modules_of_the_program_are_those_that_are_neither_pythons_nor_installed(program: ProgramClasses) -> None:
    assert __name__ in program.modules
    for module in ("subprocess", "os", "numpy", "pandas.core.frame", "pyspark", "flinkish.runtime.task.task", "pytest"):
        assert module not in program.modules
    assert "pandas.core.frame" in ProgramClasses.of_this_process(packages=["pandas"]).modules


# --- what cannot be stored ----------------------------------------------------------------------------------------


def _local() -> Any:
    class Local:
        pass

    return Local()


def _other_of_the_same_name() -> Any:
    return type("Money", (), {"__module__": __name__, "__qualname__": "Money"})()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "local class": (_local, "_local.<locals>.Local is defined inside a function.*move the class"),
    "lambda": (lambda: lambda: 1, "the function .*<lambda> cannot be stored"),
    "function": (lambda: made_by_function, "the function .*made_by_function cannot be stored"),
    "builtin": (lambda: len, "the function builtins.len cannot be stored"),
    "class of the program": (
        lambda: [Cart.Line],
        "the class .*Cart.Line cannot be stored as a value",
    ),
    "class of data": (lambda: [dt.datetime(2024, 1, 1), dt.datetime], "the class datetime.datetime cannot be stored"),
    "method": (lambda: Money(1).text, "the function .*Money.text cannot be stored"),
    "reduced to a function": (ReducedToFunction, "made_by_function cannot be stored.*__reduce__"),
    "standard library": (lambda: json.JSONDecoder, "json.decoder.JSONDecoder could not be found again"),
    "installed package": (
        lambda: pd.DataFrame({"a": [1]}),
        "pandas.core.frame.DataFrame could not be found again.*flinkish.state.packages: pandas",
    ),
    "other class of that name": (_other_of_the_same_name, "the program has another class of that name"),
    "default of a dictionary": (lambda: collections.defaultdict(lambda: 0), "<lambda> cannot be stored"),
    "pattern": (lambda: __import__("re").compile("a"), "the function re._compile cannot be stored"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_not_be_read_again_is_refused_when_it_is_stored(case: str, program: ProgramClasses) -> None:
    make, message = REFUSED[case]
    with pytest.raises(StoredClassError, match=message):
        dumps(["x", make()], VERSION, program)


def test_a_class_that_nobody_has_deployed_is_refused() -> None:
    with pytest.raises(StoredClassError, match="import it at the top of the program"):
        dumps(Money(1), VERSION, NO_CLASSES)


def test_state_says_which_entry_is_refused(program: ProgramClasses) -> None:
    table = StateTable("carts", "value")
    table.namespace(None).update(a=1, b=_local())
    with pytest.raises(StoredClassError, match=r"state 'carts', the value of key 'b': .*Local.*\[uid 'u'\]"):
        KeyedBody({"carts": inline_of(table)}).encode("uid 'u'", program)
    keys = StateTable("carts", "value")
    keys.namespace(None)[_local()] = 1
    with pytest.raises(StoredClassError, match=r"state 'carts', the key of key <.*Local"):
        KeyedBody({"carts": inline_of(keys)}).encode("uid 'u'", program)
    windows = StateTable("carts", "value")
    windows.namespace(_local())["k"] = 1
    with pytest.raises(StoredClassError, match=r"state 'carts', the namespace of key 'k': .*Local"):
        KeyedBody({"carts": inline_of(windows)}).encode("uid 'u'", program)
    timers = TimerQueue()
    timers.register(TimeDomain.EVENT_TIME, 5, _local(), None)
    with pytest.raises(StoredClassError, match=r"timers 'mine', the key of key <.*Local.*uid 'u'"):
        KeyedBody({}, {"mine": stored_of(timers)}).encode("uid 'u'", program)


def test_operator_state_says_which_value_is_refused(program: ProgramClasses) -> None:
    state = OperatorState()
    state.put("rules", {"a": _local()})
    with pytest.raises(StoredClassError, match=r"operator state 'rules': .*Local.*operator uid u7"):
        StoredOperatorStates({"u7": state}, classes=program).snapshot(0)


# --- texts of savepoints, reports ---------------------------------------------------------------------------------


def test_texts_of_savepoints_hold_objects_of_the_program(program: ProgramClasses) -> None:
    value = (Colour.RED, {"m": Money(3)}, dt.date(2024, 1, 2))
    assert from_text(to_text(value, program), "", program) == value
    with pytest.raises(StoredClassError, match="not in the program.*row 7"):
        from_text(to_text(Money(3), program), "row 7", NO_CLASSES)


def test_data_in_texts_of_earlier_savepoints_is_read() -> None:

    for value in (dt.datetime(2024, 1, 2), decimal.Decimal(3), uuid.UUID(int=3), {1, 2}):
        text = json.dumps({"$pickle": base64.b64encode(pickle.dumps(value, 5)).decode()})
        assert from_text(text) == value


def test_reports_and_errors_go_through_files() -> None:
    place = TaskPlace("h", "1", 2, 3, 0, 4, 5)
    report = TaskReport(1, 2, 3, metrics={"a": math.inf}, place=place)
    epoch = EpochReport(1, 2, 3, 4, None, False, {"a": 1}, tasks=(report,))
    assert there_and_back((epoch, [b"x"]), NO_CLASSES) == (epoch, [b"x"])
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.FlinkishError) and not issubclass(kind, UserCodeError):
            error = kind("what", where="w", expected="e", hint="h")
            error.epoch = 7
            read = there_and_back(error, NO_CLASSES)
            assert (type(read), str(read), read.epoch) == (kind, str(error), 7)
    error = UserCodeError("what", user_traceback="trace")
    assert str(there_and_back(error, NO_CLASSES)) == str(error)
