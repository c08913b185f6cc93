"""Which key selectors the receiver of a record may call again, and whose keys must travel."""

from __future__ import annotations

import collections
import functools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, NamedTuple

import numpy as np
import pytest

from flinkish.common.typeinfo import ExternalTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.types import Row
from flinkish.core.functions import KeySelector
from flinkish.errors import InternalError, InvalidKeyError, TypeMismatchError
from flinkish.runtime.exchange.keys import (
    EitherKeySelector,
    KeyedBatch,
    OwnKeys,
    ReceivedKeys,
    Repetition,
    SentKeys,
    TypedKeySelector,
    can_be_repeated,
    keys_of,
    subtask_of_key,
    thawed,
)


class Field(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value["user"]


class Changing(KeySelector):
    def __init__(self) -> None:
        self.salt = 0

    def get_key(self, value: Any) -> Any:
        return value[0], self.salt


class Called:
    def __call__(self, value: Any) -> Any:
        return value


def first_field(value: Any) -> Any:
    """The first field."""
    return value[0]


def random_key(value: Any) -> Any:
    return random.random()


SALT = 3
captured = [0]


@pytest.mark.parametrize(
    ("selector", "repeated"),
    [
        (lambda value: value, True),
        (lambda value: value[0], True),
        (lambda value: value[-1], True),
        (lambda value: value["user"]["id"], False),
        (lambda value: value.user.id, False),
        (lambda value: value[value[0]], False),
        (lambda value: value[None], False),
        (attrgetter("user.id"), False),
        (itemgetter(slice(0, 1)), False),
        (methodcaller("key"), False),
        (TypedKeySelector(first_field, Types.TUPLE([Types.LONG(), Types.STRING()])), True),
        (TypedKeySelector(first_field, Types.ROW([Types.LONG()])), False),
        (TypedKeySelector(first_field, Types.LIST(Types.LONG())), False),
        (lambda value: (value[0], value.user), True),
        (lambda value: 0, True),
        (lambda _: None, True),
        (itemgetter(0, 1), True),
        (attrgetter("user"), True),
        (first_field, True),
        (Field().get_key, True),
        (TypedKeySelector(first_field, Types.LONG()), True),
        (EitherKeySelector(first_field, itemgetter(0)), True),
        (random_key, False),
        (lambda value: random_key(value), False),
        (lambda value: hash(value[0]), False),
        (lambda value: value[0].lower(), False),
        (lambda value: f"{value[0]}", False),
        (lambda value: (value[0], SALT), False),
        (lambda value, salt=[0]: (value[0], salt[0]), False),
        ((lambda salt: lambda value: (value[0], salt[0]))(captured), False),
        (lambda value: value[0] if value[1] else captured.append(value), False),
        (Changing().get_key, False),
        (Called(), False),
        (functools.partial(random_key), False),
        (str, False),
        (TypedKeySelector(random_key, Types.DOUBLE()), False),
        (EitherKeySelector(first_field, random_key), False),
        (EitherKeySelector(random_key, first_field), False),
    ],
)
def test_only_a_selector_that_reads_fields_and_nothing_else_may_be_called_again(
    selector: Callable[[Any], Any], repeated: bool
) -> None:
    assert can_be_repeated(selector) is repeated


class Pair(NamedTuple):
    user: str
    n: int = 0


class SaltedPair(Pair):
    @property
    def user(self) -> Any:  # type: ignore[override]
        return random.random()


class OwnItems(Pair):
    def __getitem__(self, index: Any) -> Any:
        return random.random()


class MadeAnew(Pair):
    def __new__(cls, user: str, n: int = 0) -> MadeAnew:
        return super().__new__(cls, f"{user}{random.random()}", n)


@dataclass
class Click:
    user: str = ""

    @property
    def salted(self) -> Any:
        return random.random()

    @functools.cached_property
    def cached(self) -> Any:
        return random.random()


class Salt:
    def __get__(self, instance: Any, owner: Any) -> Any:
        return random.random()

    def __set__(self, instance: Any, value: Any) -> None:
        pass


@dataclass
class Described:
    user: Any = Salt()


@dataclass
class Shadowing(Click):
    @property
    def user(self) -> Any:  # type: ignore[override]
        return random.random()

    @user.setter
    def user(self, value: Any) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Slotted:
    user: str


class Slots:
    __slots__ = ("user",)


class ReadAnew(Slots):
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        return random.random()


@dataclass
class Missing:
    user: str = ""

    def __getattr__(self, name: str) -> Any:
        return random.random()


@dataclass
class ChangedByPickle:
    user: str = ""

    def __reduce__(self) -> Any:
        return ChangedByPickle, (f"{self.user}{random.random()}",)


@dataclass
class ChangedState(Click):
    def __setstate__(self, state: Any) -> None:
        self.user = f"{random.random()}"


class Plain:
    def __init__(self) -> None:
        self.user = ""


class OwnDict(dict[str, Any]):
    def __missing__(self, key: Any) -> Any:
        return random.random()


class OwnList(list[Any]):
    pass


class OwnTuple(tuple[Any, ...]):
    pass


class OwnRow(Row):
    def __getattr__(self, name: str) -> Any:
        return random.random()


@pytest.mark.parametrize(
    ("records", "by_attribute", "by_item"),
    [
        ([(1, 2)], False, True),
        ([{"user": 1}], False, True),
        (["text", [1], b"b"], False, True),
        ([Row(user=1), Row(user=2)], True, True),
        ([Pair("a")], True, True),
        ([collections.namedtuple("Made", "user")(1)], True, True),
        ([Click("a")], True, False),
        ([Slotted("a")], True, False),
        ([Slots()], True, False),
        ([Click("a"), Row(user=1), Pair("a")], True, False),
        ([(1,), Row(user=1)], False, True),
        ([], True, True),
        ([SaltedPair("a")], False, True),
        ([OwnItems("a")], False, False),
        ([MadeAnew("a")], False, False),
        ([Described()], False, False),
        ([Shadowing()], False, False),
        ([ReadAnew()], False, False),
        ([Missing()], False, False),
        ([ChangedByPickle()], False, False),
        ([ChangedState()], False, False),
        ([Plain()], False, False),
        ([OwnDict()], False, False),
        ([collections.defaultdict(int)], False, False),
        ([collections.Counter()], False, False),
        ([OwnList()], False, False),
        ([OwnTuple()], False, False),
        ([OwnRow(user=1)], False, False),
        ([np.zeros(3)], False, False),
        ([None, 5, object()], False, False),
        ([Click("a"), Plain()], False, False),
    ],
)
def test_keys_are_found_again_only_in_records_whose_classes_give_their_fields_as_they_hold_them(
    records: list[Any], by_attribute: bool, by_item: bool
) -> None:
    for selector, found in (
        (lambda record: record.user, by_attribute),
        (attrgetter("user"), by_attribute),
        (lambda record: record[0], by_item),
        (itemgetter(0), by_item),
        (lambda record: (record[0], record.user), by_item and by_attribute),
        (lambda record: record, True),
        (random_key, False),
    ):
        assert Repetition(selector).holds_for(records) is found
        typed = TypedKeySelector(selector, Types.STRING())
        assert Repetition(typed).holds_for(records) is found
        either = TypedKeySelector(EitherKeySelector(selector, first_field), Types.STRING())
        tagged = [(0, record) for record in records]
        assert Repetition(either).holds_for(tagged) is (found and by_item)
    for other in ("salted", "cached", "method"):
        assert Repetition(attrgetter(other)).holds_for([Click("a")]) is False


def subtask_keys(subtask: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(i) for i in range(2_000) if subtask_of_key(make(i), 3, 128) == subtask]


@dataclass(frozen=True)
class Key:
    n: int


@pytest.mark.parametrize("make", [int, str, Key, lambda i: (i, str(i)), lambda i: Row(i), lambda i: [i]])
@pytest.mark.parametrize("limit", [10_000, 5])
def test_a_key_of_another_subtask_is_an_error_that_names_it(make: Callable[[int], Any], limit: int) -> None:
    own, strange = subtask_keys(1, make), subtask_keys(2, make)[0]
    for came_along in (False, True):
        received = ReceivedKeys(itemgetter(0), OwnKeys(1, 3, 128, "operator 'count' (uid c)", limit))

        def keys(of: list[Any], received: ReceivedKeys = received, came_along: bool = came_along) -> list[Any]:
            records = [(key,) for key in of]
            return keys_of(received, KeyedBatch(records, of) if came_along else records)

        assert list(map(thawed, keys(own))) == own
        assert list(map(thawed, keys(own[5:9]))) == own[5:9]
        with pytest.raises(InvalidKeyError) as caught:
            keys([strange])
        assert f"the key {strange!r}" in str(caught.value) and "operator 'count' (uid c)" in str(caught.value)
        assert "the key selector gave another key the second time" in str(caught.value)


@dataclass
class Place:
    x: int
    y: int


@dataclass
class Marked(Place):
    mark: str = ""


@pytest.mark.parametrize(
    ("key", "key_type"),
    [
        (2**32 + 1, Types.INT()),
        (2**64 + 1, Types.LONG()),
        (257, Types.BYTE()),
        (2**16 + 1, Types.SHORT()),
        (np.int64(2**32 + 1), Types.INT()),
        (2, Types.BOOLEAN()),
        (1.5, Types.BIG_INT()),
        (0.1, Types.FLOAT()),
        (1e300, Types.FLOAT()),
        (2**24 + 1, Types.FLOAT()),
        (2**53 + 1, Types.DOUBLE()),
        (10**400, Types.DOUBLE()),
        (Decimal("0.1"), Types.DOUBLE()),
        (Decimal("1.999"), DecimalTypeInfo(10, 2)),
        (Decimal(10**9), DecimalTypeInfo(10, 2)),
        (("a", 2**32 + 1), Types.TUPLE([Types.STRING(), Types.INT()])),
        (("a", (0.1,)), Types.ROW([Types.STRING(), Types.TUPLE([Types.FLOAT()])])),
        (Row(a=2), Types.ROW_NAMED(["a"], [Types.BOOLEAN()])),
        (Marked(1, 2, "m"), Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])),
        ([1, 2**32 + 1], Types.LIST(Types.INT())),
        ([1, 2**32 + 1], Types.PRIMITIVE_ARRAY(Types.INT())),
        ([1, 255], Types.PRIMITIVE_ARRAY(Types.BYTE())),
        ([None, 300], Types.BASIC_ARRAY(Types.BYTE())),
        ([(300,)], Types.OBJECT_ARRAY(Types.TUPLE([Types.BYTE()]))),
        ({2**32 + 1: "a"}, Types.MAP(Types.INT(), Types.STRING())),
        ({"a": 2**32 + 1}, Types.MAP(Types.STRING(), Types.INT())),
        (2**32 + 1, ExternalTypeInfo(Types.INT())),
    ],
)
def test_a_key_that_its_type_would_make_another_one_is_an_error_with_the_value_and_the_type(
    key: Any, key_type: TypeInformation
) -> None:
    selector = TypedKeySelector(first_field, key_type)
    for keys_of_records in (selector, lambda record: selector.of_batch([(None,), record])):
        with pytest.raises(TypeMismatchError, match=rf"does not fit the declared type {re.escape(repr(key_type))} "):
            keys_of_records((key,))


@pytest.mark.parametrize(
    ("key", "key_type", "converted"),
    [
        (True, Types.INT(), 1),
        (np.int32(5), Types.LONG(), 5),
        (1, Types.BOOLEAN(), True),
        (0.5, Types.FLOAT(), 0.5),
        (2**24, Types.FLOAT(), 2.0**24),
        (Decimal("1.5"), DecimalTypeInfo(10, 2), Decimal("1.50")),
        (["a", None], Types.ROW([Types.STRING(), Types.INT()]), Row(f0="a", f1=None)),
        (Place(1, 2), Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()]), Row(x=1, y=2)),
        ((1, 2), Types.LIST(Types.INT()), [1, 2]),
        ([-1, 127], Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\xff\x7f"),
        (2**64 + 1, Types.PICKLED_BYTE_ARRAY(), 2**64 + 1),
        (None, Types.INT(), None),
    ],
)
def test_a_key_that_stays_itself_gets_the_form_of_its_type(key: Any, key_type: TypeInformation, converted: Any) -> None:
    selector = TypedKeySelector(first_field, key_type)
    assert selector((key,)) == converted
    assert selector.of_batch([(key,), (key,)]) == [converted, converted]
    assert type(selector((key,))) is type(converted)


def test_records_that_have_come_with_their_keys_keep_them_in_parts_and_joined() -> None:
    batch = KeyedBatch(["a", "b", "c"], [1, 2, 3])
    joined = batch[1:]
    joined.extend(batch[:1])
    assert list(joined) == ["b", "c", "a"]
    assert keys_of(SentKeys(), joined) == [2, 3, 1]
    assert batch[0] == "a"


def test_a_record_that_has_come_without_its_key_is_an_error() -> None:
    with pytest.raises(InternalError, match="a record has come without its key"):
        keys_of(SentKeys(), ["a"])
