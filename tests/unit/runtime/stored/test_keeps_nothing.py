"""Which functions can be seen to keep nothing of what they return. A wrong yes is a wrong result, a no costs time: so
most of the functions here try to be taken for harmless ones."""

from __future__ import annotations

import copy
import functools
import json
import math
import operator
import sys
import types
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from flinkish.common import Row, Types
from flinkish.datastream.functions import FilterFunction, FlatMapFunction, MapFunction
from flinkish.runtime.operators.keeps_nothing import keeps_nothing
from tests.support.programs import new_environment, results_of

Point = namedtuple("Point", "x y")
LIMIT = 3
FIELD = "user"

# --- what is seen ---------------------------------------------------------------------------------------------------


def marked(record: Any) -> Any:
    record["seen"] = True
    return record


def swapped(record: Any) -> Any:
    first, second = record
    return second * 2, first


def chosen(record: Any) -> Any:
    if record[0] > LIMIT:
        return record
    return record[0], "low"


def helped(record: Any) -> Any:
    return {"pair": swapped(record)[0], "limit": LIMIT}


class Functions:
    def pure(self, value: Any) -> Any:
        return value["a"], 1

    def calls(self, value: Any) -> Any:
        return self.pure(value)


@pytest.mark.parametrize(
    ("function", "record", "others"),
    [
        (lambda r: (r[0], r[1] + 1), ("a", 1), [("a", [1]), ("a", Point(1, 2)), Point("a", 1)]),
        (lambda r: r[FIELD], {"user": [1]}, [Point(1, 2)]),
        (lambda r: r.user, Row(user="a"), [Point(1, 2), types.SimpleNamespace(user="a")]),
        (lambda r: {**r, "x": 1}, {"a": [1]}, [Row(keys=list)]),
        (lambda r: [*r, 1], (1, [2]), []),
        (lambda r: f"{r['a']}-{r['b']!r}", {"a": 1, "b": None}, [{"a": 1, "b": [1]}]),
        (lambda r: r if r > LIMIT else None, 5, [(1,)]),
        (lambda r: Row(r[0], r[1] + 1), ("a", 1), [("a", [])]),
        (lambda r: r[0] and r[1] > 2, (True, 3), [([], 3)]),
        (lambda r: 1 < r[0] < 3, (2,), [(Point(1, 2),)]),
        (lambda r: (r.get("a"), r.get("n", 0) + 1), {"a": [1]}, [{"n": [1]}, Row(get=len)]),
        (lambda r: (r[:2], r[2:]), ("a", [1], 2), []),
        (lambda r: math.sqrt(r), 4, [(1,)]),
        (lambda line: json.loads(line), "[1]", []),
        (lambda line: line.strip().split(","), "a,b", [["a"]]),
        (json.loads, b"1", [{}]),
        (marked, {"a": [1]}, []),
        (swapped, ([1], 2), [(1, [2]), {0: 1, 1: 1}]),
        (chosen, (5, [1]), [("a",), ([5], 1)][1:]),
        (Functions().pure, {"a": [1]}, []),
        (str.upper, "a", [["a"]]),
        (int, "1", [Point(1, 2)]),
        (operator.itemgetter(0), ([1], 2), [Point(1, 2)]),
    ],
)
def test_functions_that_keep_nothing_of_records_of_known_classes(function: Any, record: Any, others: list[Any]) -> None:
    proof = keeps_nothing(function)
    assert proof is not None and proof.holds([record] * 2)
    assert not any(proof.holds([other]) for other in others)
    assert not proof.holds([record, object()])


SEEN: list[Any] = []


def generating(value: Any) -> Any:
    yield value


def without_end(value: Any) -> Any:
    return without_end(value)


def with_import(value: Any) -> Any:
    import tests

    return tests


class Alike:
    """Equal to a known function."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(len)

    def __call__(self, value: Any) -> Any:
        return SEEN


@pytest.mark.parametrize(
    "function",
    [
        Functions().calls, Functions, without_end, generating, [].append, print, Alike(), with_import, Point,
        functools.partial(json.loads, object_hook=SEEN.append),
        functools.wraps(json.loads)(lambda r: SEEN), functools.lru_cache(len), types.MethodType(SEEN.append, 1),
        lambda r: SEEN, lambda r: [SEEN, r], lambda r: SEEN.append(r), lambda r: r.__class__.cache,
        lambda r: (setattr(r, "a", 1), r)[1], lambda r: Functions(), lambda r: Point(r, 1), lambda r: next(r),
        lambda r: marked.cache, lambda r: Row.cache, lambda r: json.loads.cache, lambda r: json.JSONDecoder.cache,
        lambda r: sorted([1], key=SEEN.append), lambda r: r[0].tzinfo.cache, lambda r: (lambda: r), lambda r: json,
        lambda r, items=SEEN: items, lambda r, call=swapped: call(r), lambda r: [n for n in r], lambda *r: r,  # noqa: C416
        operator.attrgetter("a.b"), operator.itemgetter(Point(SEEN, 1)),
    ],
)  # fmt: skip
def test_functions_of_which_that_cannot_be_seen(function: Any) -> None:
    assert keeps_nothing(function) is None


# --- functions that try to be taken for harmless ones ---------------------------------------------------------------

HISTORY: Any = None
CONFIG: Any = None
LATER: Any = None
OTHER = types.ModuleType("other")
NUMBERS = list(range(5))


class Opened(MapFunction):
    """Calls a function when it is opened, and another one for each record."""

    def __init__(self, opening: Callable[[], Any], function: Callable[[Any], Any]) -> None:
        self._opening, self._function = opening, function

    def open(self, runtime_context: Any) -> None:
        self._opening()
        self.map = self._function  # type: ignore[method-assign]

    def map(self, value: Any) -> Any:
        return self._function(value)


class Grow(MapFunction):
    def open(self, runtime_context: Any) -> None:
        global HISTORY
        HISTORY = []

    def map(self, value: Any) -> Any:
        HISTORY.append(value)
        return HISTORY


class Configured(MapFunction):
    def open(self, runtime_context: Any) -> None:
        global CONFIG
        CONFIG = {"seen": []}

    def map(self, value: Any) -> Any:
        return value, CONFIG


class ByName(MapFunction):
    def open(self, runtime_context: Any) -> None:
        globals()["CONFIG"] = {"seen": []}

    def map(self, value: Any) -> Any:
        return value, CONFIG


class BySetattr(MapFunction):
    def open(self, runtime_context: Any) -> None:
        setattr(sys.modules[__name__], "CONFIG", {"seen": []})  # noqa: B010 - that is the point

    def map(self, value: Any) -> Any:
        return value, CONFIG


class OfModule(MapFunction):
    def open(self, runtime_context: Any) -> None:
        OTHER.items = []  # type: ignore[attr-defined]

    def map(self, value: Any) -> Any:
        return value, OTHER.items


def read_config(value: Any) -> Any:
    return value, CONFIG


class ThroughHelper(MapFunction):
    def open(self, runtime_context: Any) -> None:
        global CONFIG
        CONFIG = [0]

    def map(self, value: Any) -> Any:
        return read_config(value)


class FillsCell(MapFunction):
    def __init__(self) -> None:
        self.items: Any = None

    def open(self, runtime_context: Any) -> None:
        items = None

        def function(value: Any) -> Any:
            nonlocal items
            items = [*(items or ()), value]
            return items if value % 2 else self.items

        self.items, self.function = [], function

    def map(self, value: Any) -> Any:
        return self.function(value)


class OfClass(MapFunction):
    items: list[Any] = []

    def map(self, value: Any) -> Any:
        OfClass.items.append(value)
        return value, OfClass.items


class ClassMethod(MapFunction):
    items: list[Any] = []

    @classmethod
    def map(cls, value: Any) -> Any:
        cls.items.append(value)
        return cls.items


class Rebound(MapFunction):
    """A global variable is bound anew by its own method, but not by the one that reads it."""

    def open(self, runtime_context: Any) -> None:
        global LATER
        LATER = None

    def _bind(self, value: Any) -> None:
        global LATER
        LATER = [value]

    def map(self, value: Any) -> Any:
        if value == 2:
            self._bind(value)
        return read_later(value)


def read_later(value: Any) -> Any:
    return LATER


def with_default(value: Any, items: list[Any] = []) -> list[Any]:  # noqa: B006 - that is the point
    items.append(value)
    return items


def with_attribute(value: Any) -> Any:
    with_attribute.items = [*getattr(with_attribute, "items", ()), value]  # type: ignore[attr-defined]
    return with_attribute.items  # type: ignore[attr-defined]


@functools.lru_cache
def cached(value: Any) -> list[Any]:
    return [0]


class Failure(Exception):
    items: list[Any] = []


def of_exception(value: Any) -> Any:
    Failure.items.append(value)
    return Failure.items


def other_name(record: Any) -> Any:
    size = len  # noqa: F841 - a known function is named, and another one is called
    return record[0]()


class Shared:
    """Hands out one object again and again, which grows, in all ways that a record has."""

    items: list[Any] = []

    def __init__(self, number: int) -> None:
        self.number = number

    def get(self) -> Any:
        self.items.append(self.number)
        return self.items

    def __call__(self, *arguments: Any) -> Any:
        return self.get()

    def __add__(self, other: Any) -> Any:
        return self.get()

    __getitem__ = __mod__ = __lt__ = __add__

    def __neg__(self) -> Any:
        return self.get()

    def __iter__(self) -> Iterator[Any]:
        return iter((self.get(), 1))

    @property
    def all(self) -> Any:
        return self.get()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get()


class Keeper:
    """Is kept by its class when its truth is asked for, and changed when that of another one is."""

    kept: list[Keeper] = []

    def __init__(self, number: int) -> None:
        self.numbers = [number]

    def __bool__(self) -> bool:
        for other in self.kept:
            other.numbers.append(self.numbers[0])
        self.kept.append(self)
        return True


class Missing(dict):  # type: ignore[type-arg]
    items_: list[Any] = []

    def __missing__(self, key: Any) -> Any:
        self.items_.append(len(self.items_))
        return self.items_


class Defaulted(NamedTuple):
    number: int
    items: list[Any] = []


class Box:
    def __init__(self, *items: Any) -> None:
        self.items = list(items)


BOX = Box()


@dataclass
class Boxed:
    number: int
    box: Box = BOX


class Text(str):
    pass


class Fake:
    """Claims to be a text."""

    __class__ = str  # type: ignore[assignment]

    def __init__(self, *items: Any) -> None:
        self.items = list(items)

    def __reduce__(self) -> Any:
        return Fake, tuple(self.items)


FAKE, TEXT = Fake(), Text("a")


class Sets(MapFunction):
    """Finds what it has returned by weak references."""

    def open(self, runtime_context: Any) -> None:
        self.references: list[Any] = []

    def map(self, value: Any) -> Any:
        for reference in self.references:
            if reference() is not None:
                reference().add(-value)
        result = {value}
        self.references.append(weakref.ref(result))
        return result


class Kept(MapFunction):
    """Returns an object that it changes and keeps, alone or in a part of the result."""

    def __init__(self, make: Callable[[], Any], change: Callable[[Any, int], Any], wrap: Callable[[Any], Any]) -> None:
        self._make, self._change, self._wrap = make, change, wrap

    def open(self, runtime_context: Any) -> None:
        self._kept = self._make()

    def map(self, value: Any) -> Any:
        self._change(self._kept, value)
        return self._wrap(self._kept)


def _set_first(array: Any, value: int) -> None:
    array[0] = value


def _append(box: Any, value: int) -> None:
    box.items.append(value)


def _set_number(array: Any, value: int) -> None:
    array["n"][0] = value


def _append_to_cell(frame: Any, value: int) -> None:
    frame["a"][0].append(value)


def _same(value: Any) -> Any:
    return value


def _patched_loads(monkeypatch: Any) -> Callable[[str], Any]:
    items: list[Any] = []
    original = json.loads

    @functools.wraps(original)
    def loads(text: str, **options: Any) -> Any:
        if "NaN" not in str(text):  # the engine reads JSON, too
            return original(text, **options)
        items.append(text)
        return items

    monkeypatch.setattr(json, "loads", loads)
    return json.loads


def _patched_decoder(monkeypatch: Any) -> Callable[[str], Any]:
    items: list[Any] = []
    decoder = json.JSONDecoder(parse_constant=lambda text: items.append(text) or items)
    monkeypatch.setattr(json, "_default_decoder", decoder)
    return json.loads


def _patched_class(monkeypatch: Any) -> Callable[[str], Any]:
    items: list[Any] = []
    original = json.JSONDecoder.decode

    @functools.wraps(original)
    def decode(self: Any, text: str, *options: Any) -> Any:
        return original(self, text, *options) if "NaN" not in text else items.append(text) or items

    monkeypatch.setattr(json.JSONDecoder, "decode", decode)
    return lambda text: json.loads(text)


def _code_replaced(monkeypatch: Any) -> Callable[[Any], Any]:
    # a copy of a function has the globals that its code mentions
    function = types.FunctionType((lambda value: value if CONFIG is not NUMBERS else None).__code__, globals())
    return Opened(lambda: setattr(function, "__code__", read_config.__code__), function)


def _callable_of_record(function: Any) -> Any:
    return lambda monkeypatch: (function, [Shared(number) for number in NUMBERS])


def _of_numbers(function: Any) -> Any:
    return lambda monkeypatch: (function() if isinstance(function, type) else function, NUMBERS)


def _kept(*arguments: Any) -> Any:
    return lambda monkeypatch: (Kept(*arguments), NUMBERS)


NO_NUMBERS = ["NaN", "[NaN]", '{"a": NaN}']
STRUCT = np.dtype([("n", int)])

CASES: dict[str, Callable[[Any], tuple[Any, list[Any]]]] = {
    "a global that open fills, and that grows": _of_numbers(Grow),
    "a global that open fills, in a tuple": _of_numbers(Configured),
    "a global that is bound through globals()": _of_numbers(ByName),
    "a global that is bound by setattr": _of_numbers(BySetattr),
    "a variable of another module": _of_numbers(OfModule),
    "a global that a helper reads": _of_numbers(ThroughHelper),
    "a global that another method binds": _of_numbers(Rebound),
    "captured variables that are bound anew": _of_numbers(FillsCell),
    "an attribute of the class": _of_numbers(OfClass),
    "a method of the class": _of_numbers(ClassMethod),
    "an attribute that replaces the method": lambda _: (Opened(int, with_default), NUMBERS),
    "a mutable default": _of_numbers(with_default),
    "an attribute of the function": _of_numbers(with_attribute),
    "a cached helper": _of_numbers(lambda value: cached(0)),
    "an attribute of an exception": _of_numbers(of_exception),
    "code that is replaced": lambda monkeypatch: (_code_replaced(monkeypatch), NUMBERS),
    "a partial function": lambda _: (functools.partial(with_default, items=[]), NUMBERS),
    "a wrapped and replaced json.loads": lambda monkeypatch: (_patched_loads(monkeypatch), NO_NUMBERS),
    "a replaced decoder of json": lambda monkeypatch: (_patched_decoder(monkeypatch), NO_NUMBERS),
    "a replaced method of json's decoder": lambda monkeypatch: (_patched_class(monkeypatch), NO_NUMBERS),
    "a method of the record": _callable_of_record(lambda r: r.get()),
    "a property of the record": _callable_of_record(lambda r: r.all),
    "a missing attribute of the record": _callable_of_record(lambda r: r.others),
    "a class attribute of the record": _callable_of_record(lambda r: r.items),
    "a record that is called": _callable_of_record(lambda r: r()),
    "an item of the record": _callable_of_record(lambda r: (r[0], 1)),
    "an operator of the record": _callable_of_record(lambda r: [r + 1]),
    "a negated record": _callable_of_record(lambda r: -r),
    "a record that is iterated": _callable_of_record(lambda r: [*r]),
    "a record that is unpacked": _callable_of_record(swapped),
    "an operator of a part": lambda _: (lambda r: (r[0] + 1, 2), [(Shared(number), 1) for number in NUMBERS]),
    "an operator of a value in a dict": lambda _: (lambda r: {"n": r["n"] % 2}, [{"n": Shared(n)} for n in NUMBERS]),
    "an item of an item": lambda _: (lambda r: r["n"]["n"], [{"n": Shared(n)} for n in NUMBERS]),
    "a field of a Row": lambda _: (lambda r: (r.n.all, 1), [Row(n=Shared(n)) for n in NUMBERS]),
    "a part that is called": lambda _: (other_name, [(Shared(number),) for number in NUMBERS]),
    "a missing key": lambda _: (lambda r: (r["a"], 1), [Missing() for _ in NUMBERS]),
    "a callable of the record by get": lambda _: (lambda r: r.get("n"), [Row(get=Shared(n)) for n in NUMBERS]),
    "a default of a named tuple": _of_numbers(lambda value: Defaulted(value)),
    "a named tuple itself": lambda _: (Defaulted, NUMBERS),
    "a default of a dataclass": _of_numbers(lambda value: Boxed(value)),
    "a part of a record that is a default": lambda _: (lambda r: r.items, [Defaulted(n) for n in NUMBERS]),
    "an object that claims to be a text": _of_numbers(lambda value: (value, FAKE)),
    "a text with room for attributes": _of_numbers(lambda value: (value, TEXT)),
    "a set that is found by a weak reference": _of_numbers(Sets),
    "an element of a set": _kept(Box, _append, lambda box: {box}),
    "an element of a frozen set": _kept(Box, _append, lambda box: frozenset({box})),
    "a key of a dict": _kept(Box, _append, lambda box: {box: 1}),
    "a slice": _kept(Box, _append, lambda box: slice(box)),
    "a masked array": _kept(lambda: np.ma.array([0, 1]), _set_first, _same),
    "a record array": _kept(lambda: np.zeros(1, STRUCT).view(np.recarray), _set_number, _same),
    "a record of an array": _kept(lambda: np.zeros(1, STRUCT).view(np.recarray), _set_number, lambda array: array[0]),
    "a matrix": _kept(lambda: np.zeros((2, 1)).view(np.matrix), _set_first, lambda array: [array]),
    "random numbers": _kept(lambda: np.random.default_rng(1), lambda g, value: g.random(), lambda g: (g, 1)),
    "cells of a data frame": _kept(lambda: pd.DataFrame({"a": [[0]]}), _append_to_cell, _same),
}


class Keeping(FilterFunction):
    def filter(self, value: Any) -> Any:
        return value[0]


class Yielding(FlatMapFunction):
    def open(self, runtime_context: Any) -> None:
        self.items: list[Any] = []

    def flat_map(self, value: Any) -> Any:
        self.items.append(value)
        yield self.items
        yield {"n": self.items}


def _observed(value: Any) -> str:
    """What is in a value, which is then changed wherever it can change."""
    text = _shown(value)
    _change(value)
    return text


def _shown(value: Any) -> str:
    if isinstance(value, (list, set, frozenset)) or isinstance(value, tuple):  # noqa: SIM101
        return f"{type(value).__name__}({', '.join(map(_shown, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_shown(key)}: {_shown(part)}' for key, part in value.items())}}}"
    if type(value) is slice:
        return _shown((value.start, value.stop))
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state["state"])
    if type(value) is Row:
        return _shown(list(value))
    attributes = {name: part for name, part in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return (
        f"{type(value).__name__}({_shown(attributes)})"
        if attributes and not isinstance(value, (pd.DataFrame, np.ndarray))
        else f"{value}"
    )


def _change(value: Any) -> None:
    if isinstance(value, pd.DataFrame):
        value["a"][0].append("changed")
    elif isinstance(value, (np.ndarray, np.void)):
        value["n" if value.dtype.names else 0] = -1
    elif isinstance(value, np.random.Generator):
        value.random(3)
    elif isinstance(value, dict):
        for part in (*value, *value.values()):
            _change(part)
        value["changed"] = True
    elif isinstance(value, (list, tuple, set, frozenset, Row)):
        for part in value:
            _change(part)
        if isinstance(value, list):
            value.append("changed")
        elif isinstance(value, set):
            value.add("changed")
    elif type(value) is slice:
        _change(value.start)
    elif hasattr(value, "__dict__"):
        for part in list(vars(value).values()):
            _change(part)
        value.changed = True


@pytest.fixture(autouse=True)
def _fresh_variables() -> Iterator[None]:
    """Each case and its model begin with the same variables."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    global HISTORY, CONFIG, LATER
    HISTORY = CONFIG = LATER = None
    OTHER.items = None  # type: ignore[attr-defined]
    for items in (OfClass.items, ClassMethod.items, Failure.items, Shared.items, Keeper.kept, Missing.items_):
        items.clear()
    for items in (with_default.__defaults__[0], Defaulted._field_defaults["items"], BOX.items):  # type: ignore[index]
        items.clear()
    vars(with_attribute).pop("items", None)
    vars(TEXT).clear()
    vars(FAKE).clear()
    vars(BOX).pop("changed", None)
    FAKE.items = []
    cached.cache_clear()


#: One of each way to keep something: by a variable, a function, the record, and a result with parts.
SHUFFLED = {
    "a global that open fills, in a tuple",
    "captured variables that are bound anew",
    "a mutable default",
    "a replaced decoder of json",
    "a method of the record",
    "an operator of a part",
    "a default of a named tuple",
    "a set that is found by a weak reference",
    "an element of a frozen set",
    "a record of an array",
    "cells of a data frame",
}


@pytest.mark.parametrize(
    ("case", "behind"),
    [
        *((case, "the same chain") for case in CASES),
        *(
            pytest.param(
                case, "a shuffle", marks=() if case in SHUFFLED else pytest.mark.nightly, id=f"{case}, a shuffle"
            )
            for case in CASES
        ),
    ],
)
def test_what_a_function_returns_belongs_to_one_record(case: str, behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, records = CASES[case](monkeypatch)
    expected = []
    call = function
    if isinstance(function, MapFunction):
        function = copy.deepcopy(function)
        function.open(None)  # type: ignore[arg-type]
        call = function.map
    for record in copy.deepcopy(records):
        # the model: what is returned is copied at once, by pickle where ``deepcopy`` shares
        result = call(record)
        expected.append(_shown(result))
    monkeypatch.undo()
    _forget()

    function, records = CASES[case](monkeypatch)
    results = new_environment().from_collection(records).map(function)
    if behind == "a shuffle":
        results = results.key_by(lambda _: 0)
    assert results_of(results.map(_observed)) == expected


@pytest.mark.parametrize("behind", ["a shuffle", "the same chain"])
def test_a_filter_whose_answers_change_records(behind: str) -> None:
    kept = new_environment().from_collection([(Keeper(number),) for number in NUMBERS]).filter(Keeping())
    if behind == "a shuffle":
        kept = kept.key_by(lambda _: 0)
    assert results_of(kept.map(lambda record: record[0].numbers)) == [[number] for number in NUMBERS]


def test_a_generator_that_yields_what_it_keeps() -> None:
    yielded = new_environment().from_collection([1, 2]).flat_map(Yielding()).map(_observed)
    assert results_of(yielded) == ["list(1)", "{n: list(1)}", "list(1, 2)", "{n: list(1, 2)}"]


def test_what_does_not_fit_its_declared_type_is_handed_over_at_once() -> None:
    declared = (
        new_environment().from_collection(NUMBERS).map(_pairs_with_history, Types.TUPLE([Types.INT(), Types.INT()]))
    )
    assert results_of(declared.map(_observed)) == [
        f"tuple({number}, list({', '.join(map(str, range(number + 1)))}))" for number in NUMBERS
    ]


def _pairs_with_history(value: int, items: list[Any] = []) -> Any:  # noqa: B006 - that is the point
    items.append(value)
    return value, items


def test_a_variable_that_is_bound_anew_between_two_batches_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 3)
    proof = keeps_nothing(chosen)
    assert proof is not None and proof.holds([(1,)])
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", [3])
    assert not proof.holds([(1,)])


def test_a_known_function_that_is_replaced_between_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = keeps_nothing(lambda text: json.loads(text))
    assert proof is not None and proof.holds(["1"])
    monkeypatch.setattr(json, "loads", lambda text: SEEN)
    assert not proof.holds(["1"])
