"""Copies of what can change, and of nothing else; hand-overs without a copy where nobody else holds the object."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import ref
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common import Row, RowKind
from flinkish.common.detach import all_detached, detached, flat_handed_over, handed_over, handing_over
from flinkish.core.functions import OutputTag

Pair = namedtuple("Pair", "name items")


class Colour(Enum):
    RED = 1


@dataclass
class Plain:
    name: str
    items: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    name: str
    items: Any = 0


@dataclass(slots=True)
class Slots:
    name: str
    items: list[Any] = field(default_factory=list)


class Code(str):
    """A text of another name."""

    __slots__ = ()


class Level(IntEnum):
    HIGH = 1


class Attributed(str):
    """A text with room for attributes."""


class AttributedTime(datetime):
    """A time with room for attributes."""


class Zone(tzinfo):
    """A time zone with room for attributes."""

    def __init__(self) -> None:
        self.cache: list[Any] = []

    def __repr__(self) -> str:
        return "Zone()"


class Extended(Frozen):
    """A frozen dataclass with another attribute, which can change."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__["cache"] = []


@dataclass(frozen=True)
class Caching:
    name: str

    @cached_property
    def parts(self) -> list[str]:
        return [self.name]


class Shallow:
    """Says to `copy.deepcopy` that it needs no copy."""

    def __init__(self) -> None:
        self.items = [1]

    def __deepcopy__(self, memo: dict[int, Any]) -> Shallow:
        return self

    def __repr__(self) -> str:
        return f"Shallow({self.items})"


class Hashed:
    """An object that can change and be a key."""

    def __init__(self) -> None:
        self.items = [1]

    def __repr__(self) -> str:
        return f"Hashed({self.items})"


def _with(value: Any, **attributes: Any) -> Any:
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


class _Random:
    def __repr__(self) -> str:
        return "Random()"


def _cells(*cells: Any) -> Any:
    """numpy's array of objects."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


STRUCT = np.dtype([("a", object), ("b", int)])


class OwnCopy:
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnCopy:
        return OwnCopy([*self.items, "copied"])


class Counted(dict[str, Any]):
    """A dict with an attribute."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.items_seen = [1]


IMMUTABLE: list[Any] = [
    None, True, 1, 1.5, 1j, "a", b"a", Decimal("1.5"), datetime(2026, 1, 1, tzinfo=timezone.utc),
    Colour.RED, RowKind.DELETE, int, len, (), ("a", 1), ("a", (1, ("b",))), frozenset({1}), Frozen("a"),
    Frozen("a", (1, "b")), (Frozen("a"), 1), OutputTag("late"), np.int64(1), np.float32(1.5), np.str_("a"),
    np.datetime64("2026-01-01"), np.bool_(True), pa.scalar(1), pa.int64(), Pair("a", 1), range(3), Code("a"),
    ZoneInfo("Europe/Berlin"), PurePosixPath("a"), frozenset({("a", 1)}), Level.HIGH,
]  # fmt: skip


@pytest.mark.parametrize("value", IMMUTABLE, ids=lambda value: type(value).__name__)
def test_what_cannot_change_is_shared(value: Any) -> None:
    kept = value
    assert detached(value) is value
    assert handed_over(value) is kept
    assert all_detached([value])[0] is value


MUTABLE: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
    ("list", lambda: [1, [2]], lambda v: v[1]),
    ("dict", lambda: {"a": {"b": []}}, lambda v: v["a"]["b"]),
    ("set in list", lambda: [{1}], lambda v: v[0]),
    ("tuple with a list", lambda: ("a", [1]), lambda v: v[1]),
    ("tuple of tuples", lambda: ("a", ("b", ({},))), lambda v: v[1][1][0]),
    ("named tuple", lambda: Pair("a", [1]), lambda v: v.items),
    ("Row", lambda: Row("a", [1]), lambda v: v[1]),
    ("Row with names", lambda: Row(name="a", items=[1]), lambda v: v["items"]),
    ("Row in Row", lambda: Row(1, Row(2)), lambda v: v[1]),
    ("dataclass", lambda: Plain("a", [1]), lambda v: v.items),
    ("frozen dataclass", lambda: Frozen("a", [1]), lambda v: v.items),
    ("dataclass with slots", lambda: Slots("a", [1]), lambda v: v.items),
    ("defaultdict", lambda: defaultdict(list, a=[1]), lambda v: v["a"]),
    ("OrderedDict", lambda: OrderedDict(a=[1]), lambda v: v["a"]),
    ("subclass of dict", lambda: Counted({"a": [1]}), lambda v: v.items_seen),
    ("deque", lambda: deque([[1]]), lambda v: v[0]),
    ("bytearray", lambda: [bytearray(b"a")], lambda v: v[0]),
    ("array", lambda: [np.zeros(2)], lambda v: v[0]),
    ("set of objects", lambda: {Hashed()}, lambda v: next(iter(v))),
    ("frozen set of objects", lambda: frozenset({Hashed()}), lambda v: next(iter(v))),
    ("dict with objects as keys", lambda: {Hashed(): 1}, lambda v: next(iter(v))),
    ("part of a key", lambda: {(1, Hashed()): 1}, lambda v: next(iter(v))[1]),
    ("text with attributes", lambda: _with(Attributed("a"), items=[1]), lambda v: v.items),
    ("text without attributes yet", lambda: [Attributed("a")], lambda v: v[0]),
    ("time with attributes", lambda: _with(AttributedTime(2026, 1, 1), items=[1]), lambda v: v.items),
    ("time zone with attributes", lambda: [Zone()], lambda v: v[0].cache),
    ("frozen dataclass with another attribute", lambda: Extended("a"), lambda v: v.cache),
    ("frozen dataclass with a cached property", lambda: [Caching("a")], lambda v: v[0].parts),
    ("slice", lambda: slice([1], 2), lambda v: v.start),
    ("own copy that is the object itself", lambda: Shallow(), lambda v: v.items),
    ("array of objects", lambda: _cells([1], None), lambda v: v[0]),
    ("structured array", lambda: np.array([([1], 1)], dtype=STRUCT), lambda v: v["a"][0]),
    ("structured scalar", lambda: np.array([([1], 1)], dtype=STRUCT)[0], lambda v: v["a"]),
    ("record array", lambda: np.array([([1], 1)], dtype=STRUCT).view(np.recarray), lambda v: v["a"][0]),
    ("record", lambda: np.array([([1], 1)], dtype=STRUCT).view(np.recarray)[0], lambda v: v["a"]),
    ("masked array", lambda: [np.ma.array([1, 2], mask=[0, 1])], lambda v: v[0].data),
    ("matrix", lambda: [np.ones((1, 1)).view(np.matrix)], lambda v: v[0]),
    ("random numbers", lambda: _with(_Random(), generator=np.random.default_rng(1)), lambda v: v.generator),
    ("data frame", lambda: pd.DataFrame({"a": [[1]]}), lambda v: v["a"][0]),
    ("series", lambda: pd.Series([[1]]), lambda v: v[0]),
    ("index", lambda: pd.Index([[1]], tupleize_cols=False), lambda v: v[0]),
    ("attributes of a data frame", lambda: _with(pd.DataFrame({"a": [1]}), attrs={"b": [1]}), lambda v: v.attrs["b"]),
]


@pytest.mark.parametrize(("make", "part"), [row[1:] for row in MUTABLE], ids=[row[0] for row in MUTABLE])
def test_what_can_change_is_copied_at_any_depth(make: Callable[[], Any], part: Callable[[Any], Any]) -> None:
    value = held = make()
    copies = detached(value), handed_over(value), all_detached([value])[0]
    for copied in copies:
        assert type(copied) is type(value) and repr(copied) == repr(value)
        assert copied is not held and part(copied) is not part(value)


def test_a_row_keeps_names_and_kind() -> None:
    row = Row.of_kind(RowKind.DELETE, name="a", items=[1])
    copied = detached(row)
    assert copied == row and copied.get_row_kind() is RowKind.DELETE and copied.as_dict() == row.as_dict()
    copied.set_field_names(["n", "i"])
    copied["i"].append(2)
    assert row == Row.of_kind(RowKind.DELETE, name="a", items=[1])
    row.get_fields_by_names(["name", "items"])[0] = "b"
    assert row["name"] == "a", "values that are asked for by name are a list of their own"


def test_one_object_in_two_places_is_one_object_in_the_copy_but_not_in_the_copies_of_two_records() -> None:
    shared: list[Any] = [1]
    copied = detached({"a": shared, "b": (shared, Row(shared), Plain("p", shared))})
    copied["a"].append(2)
    assert repr(copied) == "{'a': [1, 2], 'b': ([1, 2], <Row([1, 2])>, Plain(name='p', items=[1, 2]))}"
    first, second = all_detached([(1, shared), (2, shared)])
    first[1].append(2)
    assert second == (2, [1]) and shared == [1]


def test_an_object_that_holds_itself_is_copied_what_cannot_be_is_passed_on_and_a_way_of_its_own_is_used() -> None:
    value: list[Any] = [1]
    value.append({"self": value})
    copied = detached(value)
    assert copied is not value and copied[1]["self"] is copied
    lock = threading.Lock()
    assert detached({"lock": lock, "items": [1]})["lock"] is lock
    assert detached([OwnCopy([1])])[0].items == [1, "copied"]


@given(
    st.recursive(
        st.one_of(st.integers(), st.text(), st.none(), st.floats(allow_nan=False), st.binary()),
        lambda part: st.one_of(
            st.lists(part),
            st.dictionaries(st.text(), part),
            st.tuples(part, part),
            st.builds(Row, part, part),
            st.builds(Plain, st.text(), st.lists(part)),
            st.builds(Frozen, st.text(), part),
            st.builds(Pair, st.text(), part),
        ),
        max_leaves=8,
    )
)
def test_copies_are_those_of_deepcopy(value: Any) -> None:
    before = copy.deepcopy(value)
    for copied in (detached(value), handed_over(value)):
        assert repr(copied) == repr(before)
        _change(copied)
        assert repr(value) == repr(before)


def _change(value: Any) -> None:
    """Change all in a value that can change."""
    if isinstance(value, dict):
        for part in value.values():
            _change(part)
        value["changed"] = True
    elif isinstance(value, (list, tuple, Row)):
        for part in value:
            _change(part)
        if isinstance(value, list):
            value.append("changed")
        elif isinstance(value, Row):
            value[0] = "changed"
    elif isinstance(value, Plain):
        _change(value.items)
        value.name = "changed"
    elif isinstance(value, Frozen):
        _change(value.items)


# --- hand-over ------------------------------------------------------------------------------------------------------

FRESH: list[Callable[[], Any]] = [
    lambda: [1, [2], {"a": (1, [2])}],
    lambda: {"a": {"b": [1, {"c": 1}]}},
    lambda: Row("a", [1]),
    lambda: (1, [2]),
    list,
]


@pytest.mark.parametrize("hand_over", [handed_over, flat_handed_over])
@pytest.mark.parametrize("make", FRESH)
def test_what_nobody_else_holds_is_handed_over_as_it_is(make: Callable[[], Any], hand_over: Any) -> None:
    result = make()
    address = id(result)
    result = hand_over(result)
    assert id(result) == address


HELD: list[Callable[[list[Any]], Any]] = [
    lambda kept: kept,
    lambda kept: {"a": kept},
    lambda kept: [kept],
    lambda kept: (1, kept),
    lambda kept: Row(1, kept),
    lambda kept: {"a": ({"b": kept},)},
]


@pytest.mark.parametrize("make", HELD)
def test_what_somebody_holds_a_part_of_is_copied(make: Callable[[list[Any]], Any]) -> None:
    kept: list[Any] = [1]
    result = make(kept)
    result = handed_over(result)
    before = repr(result)
    kept.append(2)
    assert repr(result) == before
    held = (kept,)
    result = handed_over({"a": held})
    kept.append(3)
    assert result == {"a": ([1, 2],)}, "a tuple that somebody holds, since a part of it can change"


def test_an_arrow_array_that_is_a_view_of_an_array_and_an_array_in_a_file_are_copied(tmp_path: Path) -> None:
    array = np.zeros(1)
    copied = detached([pa.array(array)])[0]
    array[0] = 1
    assert copied.to_pylist() == [0]
    in_file = np.memmap(tmp_path / "array", dtype=int, mode="w+", shape=2)
    assert not np.shares_memory(detached([in_file])[0], in_file)


def test_a_set_that_is_found_by_a_weak_reference_is_copied() -> None:
    result = {1}
    found = ref(result)
    result = handed_over(result)
    kept = found()
    assert kept is not result


def test_results_are_handed_over_before_the_next_call() -> None:
    kept: list[int] = []

    def call(number: int) -> list[int]:
        kept.append(number)
        return kept

    assert list(map(handing_over(call), range(3))) == [[0], [0, 1], [0, 1, 2]]
