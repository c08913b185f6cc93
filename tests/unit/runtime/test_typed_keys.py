"""Which key selectors the receiver of a record may call again, and whose keys must travel."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pytest

from flinkish.common.typeinfo import ExternalTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.types import Row
from flinkish.core.functions import KeySelector
from flinkish.errors import InternalError, TypeMismatchError
from flinkish.runtime.list_keys import KeyedBatch, keys_of
from flinkish.runtime.typed_keys import EitherKeySelector, SentKeys, TypedKeySelector, can_be_repeated


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
        (lambda value: value["user"]["id"], True),
        (lambda value: value.user.id, True),
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
