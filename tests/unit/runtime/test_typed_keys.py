"""Which key selectors the receiver of a record may call again, and whose keys must travel."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.core.functions import KeySelector
from flinkish.errors import InternalError
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
