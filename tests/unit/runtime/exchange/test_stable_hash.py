"""The stable hash: equality implies an equal hash, in every process; what cannot be a key is refused."""

from __future__ import annotations

import datetime as dt
import enum
import os
import subprocess
import sys
import uuid
import zoneinfo
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.types import Row
from flinkish.errors import InvalidKeyError
from flinkish.runtime.exchange.keys import frozen
from flinkish.runtime.exchange.stable_hash import stable_hash
from tests.support.profiles import examples

UTC = dt.timezone.utc
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
Pair = namedtuple("Pair", "a b")


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Number(enum.IntEnum):
    ONE = 1


class Text(str, enum.Enum):
    A = "a"


class Real(float, enum.Enum):
    HALF = 0.5


class Point(tuple, enum.Enum):
    ORIGIN = (0, 0)


class Day(dt.date, enum.Enum):
    FIRST = 2024, 1, 1


@dataclass(frozen=True)
class Place:
    city: str
    code: Any
    note: str = field(default="", compare=False)


class AnyCase(str):
    """A text that is equal in upper and lower case."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class ById(NamedTuple):
    id: int
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True)
class PlaceById:
    id: int
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlaceById) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True)
class QuickPlace:
    """Its equality follows from its fields; only the hash is its own."""

    id: int
    name: str

    def __hash__(self) -> int:
        return hash(self.id)


class Told(str):
    """A text that defines anew what it inherits."""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def twins_of_number(value: int | float) -> list[Any]:
    """Everything that equals a number."""
    twins: list[Any] = [value, Fraction(value), Decimal(value), complex(value)]
    if value == int(value):
        twins += [int(value), float(value), Decimal(f"{int(value)}.00")]
        if -128 <= value < 128:
            twins += [np.int8(value), np.float16(value)]
        if -(2**63) <= value < 2**63:
            twins += [np.int64(int(value))]
        if 0 <= value < 2**64:
            twins += [np.uint64(int(value))]
    if value in (0, 1):
        twins += [bool(value), np.bool_(value)]
    twins += [np.float64(value), np.longdouble(value), np.array(value)[()]]
    return [twin for twin in twins if twin == value]


numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.integers(-2, 2))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.text(max_size=8),
    st.binary(max_size=8),
    st.dates(),
    st.datetimes(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([*Color, *Number, *Text]),
)
keys = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.frozensets(inner, max_size=4),
        st.lists(inner, min_size=1, max_size=4).map(lambda values: Row(*values)),
        st.dictionaries(st.sampled_from("abcdef"), inner, min_size=1).map(lambda values: Row(**values)),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(50))
@given(numbers)
def test_equal_numbers_of_all_types_have_one_hash(value: int | float) -> None:
    assert {stable_hash(twin) for twin in twins_of_number(value)} == {stable_hash(value)}


@settings(max_examples=examples(75))
@given(st.lists(keys, min_size=2, max_size=6))
def test_equal_keys_have_equal_hashes(values: list[Any]) -> None:
    for one, other in combinations(values, 2):
        if one == other and hash(one) == hash(other):
            assert stable_hash(one) == stable_hash(other), (one, other)


@settings(max_examples=examples(50))
@given(keys)
def test_a_hash_is_a_non_negative_number_of_31_bits(key: Any) -> None:
    assert 0 <= stable_hash(key) < 2**31


@settings(max_examples=examples(50))
@given(st.lists(numbers, max_size=5))
def test_numbers_inside_of_containers_have_their_twins_hashes(values: list[Any]) -> None:
    others = [twins_of_number(value)[-1] for value in values]
    assert stable_hash(tuple(values)) == stable_hash(tuple(others))
    assert stable_hash(frozenset(values)) == stable_hash(frozenset(others))
    assert stable_hash(Row(*values)) == stable_hash(Row(*others))


@settings(max_examples=examples(50))
@given(st.dictionaries(st.text(max_size=3).filter(bool), scalars, min_size=1, max_size=6), st.randoms())
def test_rows_with_names_are_one_key_in_any_order_of_their_fields(fields: dict[str, Any], random: Any) -> None:
    shuffled = list(fields.items())
    random.shuffle(shuffled)
    assert Row(**fields) == Row(**dict(shuffled))
    assert stable_hash(Row(**fields)) == stable_hash(Row(**dict(shuffled)))


def test_a_row_whose_names_are_numbers_is_read_by_its_names() -> None:
    one, other = Row(0, 1)("a", "b"), Row(1, 0)("b", "a")
    assert one == other
    assert stable_hash(one) == stable_hash(other)


def test_a_row_with_more_names_than_values_has_a_hash() -> None:
    assert stable_hash(Row("a", "b")(1)) == stable_hash(Row("a", "b")(1))


@settings(max_examples=examples(50))
@given(
    st.datetimes(min_value=dt.datetime(1950, 1, 1), max_value=dt.datetime(2100, 1, 1)),
    st.lists(st.integers(-14 * 60, 14 * 60), min_size=1, max_size=3),
)
def test_one_instant_in_several_zones_is_one_key(naive: dt.datetime, offsets: list[int]) -> None:
    instant = naive.replace(tzinfo=UTC)
    for minutes in offsets:
        same = instant.astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
        assert same == instant
        assert stable_hash(same) == stable_hash(instant)
    assert stable_hash(pd.Timestamp(instant)) == stable_hash(instant)


@settings(max_examples=examples(50))
@given(st.times(), st.integers(-600, 600), st.integers(-600, 600))
def test_equal_times_of_day_with_zones_have_one_hash(time: dt.time, minutes: int, other: int) -> None:
    one = time.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
    total = time.hour * 60 + time.minute - minutes + other
    if 0 <= total < 24 * 60:
        same = time.replace(hour=total // 60, minute=total % 60, tzinfo=dt.timezone(dt.timedelta(minutes=other)))
        assert one == same
        assert stable_hash(one) == stable_hash(same)


def test_the_repeated_hour_of_a_zone_is_one_key_as_equality_says() -> None:
    first = dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
    second = first.replace(fold=1)
    assert first == second
    assert stable_hash(first) == stable_hash(second)
    naive = dt.datetime(2024, 10, 27, 2, 30)
    assert stable_hash(naive) == stable_hash(naive.replace(fold=1))


def test_the_first_and_the_last_moment_have_a_hash_in_every_zone() -> None:
    for hours in (-14, 0, 14):
        zone = dt.timezone(dt.timedelta(hours=hours))
        for edge in (dt.datetime.min, dt.datetime.max):
            assert stable_hash(edge.replace(tzinfo=zone)) >= 0


@settings(max_examples=examples(50))
@given(
    st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999)),
)
def test_times_of_numpy_are_one_key_in_every_unit_and_with_pythons(moment: dt.datetime, delta: dt.timedelta) -> None:
    moments = [np.datetime64(moment, "us"), np.datetime64(moment, "ns"), pd.Timestamp(moment)]
    assert {stable_hash(twin) for twin in moments} == {stable_hash(moment)}
    deltas = [np.timedelta64(delta, "us"), np.timedelta64(delta, "ns"), pd.Timedelta(delta)]
    assert {stable_hash(twin) for twin in deltas} == {stable_hash(delta)}
    assert stable_hash(np.datetime64("2020-01-01", "D")) == stable_hash(np.datetime64("2020-01-01", "s"))


@pytest.mark.parametrize(
    ("member", "value"),
    [(Number.ONE, 1), (Text.A, "a"), (Real.HALF, 0.5), (Point.ORIGIN, (0, 0)), (Day.FIRST, dt.date(2024, 1, 1))],
)
def test_an_enum_member_that_is_a_value_is_one_key_with_it(member: Any, value: Any) -> None:
    assert member == value
    assert stable_hash(member) == stable_hash(value)


def test_members_of_a_plain_enum_are_keys_of_their_own() -> None:
    assert stable_hash(Color.RED) != stable_hash(Color.GREEN)
    assert stable_hash(Color.RED) != stable_hash(1)


def test_a_frozen_dataclass_is_a_key_by_the_fields_that_it_compares() -> None:
    assert stable_hash(Place("a", 1, "x")) == stable_hash(Place("a", 1.0, "y"))
    assert stable_hash(Place("a", 1)) != stable_hash(Place("a", 2))


@pytest.mark.parametrize(
    ("key", "equal"),
    [(AnyCase("A"), AnyCase("a")), (ById(1, "a"), ById(1, "b")), (PlaceById(1, "a"), PlaceById(1, "b"))],
)
def test_a_key_whose_equality_is_its_own_is_refused_since_equal_keys_would_be_apart(key: Any, equal: Any) -> None:
    assert {key: 1}[equal]
    with pytest.raises(InvalidKeyError, match="whose equality is its own"):
        stable_hash(key)
    with pytest.raises(InvalidKeyError, match="whose equality is its own"):
        stable_hash(("nested", key))


def test_a_key_that_only_has_a_hash_of_its_own_is_a_key_by_its_content() -> None:
    assert stable_hash(QuickPlace(1, "a")) == stable_hash((1, "a")) != stable_hash(QuickPlace(1, "b"))
    assert stable_hash(Told("a")) == stable_hash("a")


def test_a_named_tuple_is_one_key_with_the_tuple() -> None:
    assert stable_hash(Pair(1, "b")) == stable_hash((1, "b"))


def test_strings_of_numpy_are_one_key_with_pythons() -> None:
    assert stable_hash(np.str_("é")) == stable_hash("é")
    assert stable_hash(np.bytes_(b"x")) == stable_hash(b"x")
    assert stable_hash(np.str_("a\0")) == stable_hash("a\0")
    assert stable_hash(np.bytes_(b"a\0")) == stable_hash(b"a\0")
    assert stable_hash("\ud800") >= 0


@pytest.mark.parametrize(
    "nan",
    [
        float("nan"),
        np.float64("nan"),
        np.float32("nan"),
        Decimal("NaN"),
        Decimal("sNaN"),
        complex(float("nan"), 0),
        np.datetime64("NaT"),
        np.timedelta64("NaT"),
        pd.NaT,
        (1, float("nan")),
        frozenset([float("nan")]),
        Row(a=float("nan")),
    ],
)
def test_a_key_that_does_not_equal_itself_is_refused(nan: Any) -> None:
    with pytest.raises(InvalidKeyError, match="NaN"):
        stable_hash(nan)


@pytest.mark.parametrize(
    "key", [[{1}], {1: 2}, {1}, object(), lambda: 1, np.array([1, 2]), bytearray(b"a"), pd.Series([1])]
)
def test_a_key_without_a_hash_that_all_processes_agree_on_is_refused(key: Any) -> None:
    with pytest.raises(InvalidKeyError, match="no hash that is the same in every process"):
        stable_hash(key)


def test_keys_of_similar_values_are_spread_evenly() -> None:
    for make in (lambda i: i, lambda i: f"user-{i}", lambda i: (i, "a"), lambda i: i * 0.25, lambda i: i << 20):
        counts = [0] * 8
        for i in range(8000):
            counts[stable_hash(make(i)) % 8] += 1
        assert min(counts) > 800, counts


SAMPLE = """
import datetime as dt, enum, uuid
from decimal import Decimal
from flinkish.common.types import Row
from flinkish.runtime.exchange.keys import frozen
from flinkish.runtime.exchange.stable_hash import stable_hash
class E(enum.Enum):
    A = 1
keys = ["x", "é" * 9, b"abc", 5, -1, 2**70, 1.5, None, True, Decimal("2.5"), ("a", 1), frozenset("abcdefgh"),
        Row(b="1", a=2), Row("p"), E.A, dt.date(2020, 1, 2), dt.datetime(2020, 1, 2, 3), dt.timedelta(5),
        uuid.UUID(int=7), dt.datetime(2020, 1, 2, 3, tzinfo=dt.timezone.utc), dt.time(4, 5),
        frozenset([("q", 1), None, 2.5])]
print([stable_hash(k) for k in keys])
"""


def test_another_process_with_another_hash_seed_finds_the_same_hashes() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SAMPLE],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1


#: of the keys of the next test
PLACED = [757642707, 885181228, 1572931693, 1481115009, 1460740449, 1061755796, 878106139]


def test_hashes_never_change_because_stored_state_is_placed_by_them() -> None:
    assert [stable_hash(key) for key in ("user", 1, 2.5, None, ("a", 1), b"x", uuid.UUID(int=1))] == PLACED


def test_a_list_has_the_hash_of_the_tuple_of_its_elements() -> None:
    for key, as_tuple in (([], ()), ([1, "a"], (1, "a")), ((1, [2, [3]]), (1, (2, (3,))))):
        assert stable_hash(key) == stable_hash(frozen(key)) == stable_hash(as_tuple)
    for key in ({1}, {1: 2}, [{1}], [1, {}]):
        with pytest.raises(InvalidKeyError, match="has no hash that is the same in every process"):
            stable_hash(key)
