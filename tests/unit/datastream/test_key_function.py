"""Keys have the form that their declared type gives them."""

from __future__ import annotations

import pickle
from operator import itemgetter
from typing import Any

import pytest
from pyspark import cloudpickle

from flinkish.common import Row, TypeInformation, Types
from flinkish.datastream.streams.key_function import key_function
from flinkish.errors import TypeMismatchError
from flinkish.runtime.exchange.keys import keys_of

select = itemgetter(0)


@pytest.mark.parametrize(
    ("key_type", "key", "expected"),
    [
        (Types.STRING(), "a", "a"),
        (Types.INT(), 2**31 - 1, 2**31 - 1),
        (Types.INT(), -(2**31), -(2**31)),
        (Types.LONG(), 2**31, 2**31),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ["a", 1], ("a", 1)),
        (Types.ROW([Types.STRING()]), ("a",), Row(f0="a")),
        (Types.PICKLED_BYTE_ARRAY(), ("any", 1), ("any", 1)),
    ],
)
def test_a_key_is_what_its_type_makes_of_it(key_type: TypeInformation, key: Any, expected: Any) -> None:
    get = key_function(select, key_type)
    assert get((key,)) == expected
    assert type(get((key,))) is type(expected)
    travelled = pickle.loads(cloudpickle.dumps(get))
    assert travelled((key,)) == expected
    batch = keys_of(get, [(key,), (expected,)])
    assert batch == [expected, expected]
    assert [type(each) for each in batch] == [type(expected)] * 2


@pytest.mark.parametrize(("key_type", "good"), [(Types.STRING(), "a"), (Types.INT(), 1), (Types.DOUBLE(), 1.0)])
def test_a_key_that_does_not_fit_is_refused_also_among_others(key_type: TypeInformation, good: Any) -> None:
    get = key_function(select, key_type)
    with pytest.raises(TypeMismatchError, match="the key"):
        get(([1],))
    with pytest.raises(TypeMismatchError, match="the key"):
        keys_of(get, [(good,), ([1],)])


def test_a_key_without_a_type_is_taken_as_it_is() -> None:
    assert key_function(select) is select
