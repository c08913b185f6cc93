"""Which functions can be seen to keep nothing of what they return: a wrong yes is a wrong result, a no costs time."""

from __future__ import annotations

import json
import math
import operator
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest

from flinkish.common import Row
from flinkish.runtime.code_scan import keeps_nothing

Point = namedtuple("Point", "x y")
LIMIT = 3
SEEN: list[Any] = []


def parsed(line: str) -> Any:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    record["parsed"] = True
    record["n"] += LIMIT
    return record


def long_words(line: str) -> list[Any]:
    found = []
    for word in line.split():
        if len(word) > LIMIT:
            found.append((word.lower(), 1))
    return found


class Functions:
    def __init__(self) -> None:
        self.items: list[Any] = []

    def pure(self, value: Any) -> Any:
        return value["a"], 1

    def stores(self, value: Any) -> Any:
        self.last = value
        return value

    def reads(self, value: Any) -> Any:
        return self.items

    def calls(self, value: Any) -> Any:
        return self.pure(value)


def with_default(value: Any, items: list[Any] = []) -> list[Any]:  # noqa: B006 - that is the point
    items.append(value)
    return items


def with_global(value: Any) -> Any:
    global LAST
    LAST = value  # type: ignore[name-defined]
    return value


def with_import(value: Any) -> Any:
    import tests

    tests.last = value  # type: ignore[attr-defined]
    return value


def without_end(value: Any) -> Any:
    return without_end(value)


def capturing() -> Callable[[Any], Any]:
    items: list[Any] = []
    return lambda value: [items, value]


def generating(value: Any) -> Any:
    record = {"n": value}
    yield record
    record["n"] += 1
    yield record


@pytest.mark.parametrize(
    "function",
    [
        lambda r: (r[0], r[1] + 1),
        lambda r: r["user"],
        lambda r: r.user,
        lambda a, b: (a[0], a[1] + b[1]),
        lambda r: {**r, "x": 1},
        lambda r: [*r, 1],
        lambda r: f"{r['a']}-{r['b']!r}",
        lambda r: r if r > LIMIT else None,
        lambda r: Point(r[0], 1),
        lambda r: Row(r[0], r[1] + 1),
        lambda r: math.sqrt(r),
        lambda line: json.loads(line),
        lambda line: line.strip().split(","),
        lambda line: parsed(line),
        json.loads,
        parsed,
        long_words,
        Functions().pure,
        str.upper,
        int,
        operator.itemgetter(0),
    ],
)
def test_functions_that_keep_nothing(function: Any) -> None:
    assert keeps_nothing(function)


@pytest.mark.parametrize(
    "function",
    [
        Functions().stores,
        Functions().reads,
        Functions().calls,
        Functions,
        with_default,
        with_global,
        with_import,
        without_end,
        capturing(),
        generating,
        [].append,
        print,
        lambda r: SEEN,
        lambda r: SEEN.append(r),
        lambda r: [SEEN, r],
        lambda r: r.__class__.cache,
        lambda r: r.remember(r),
        lambda r: r["callback"](r),
        lambda r: sorted(r, key=SEEN.append),
        lambda r: setattr(r, "a", SEEN),
        lambda r: Functions(),
        lambda r: next(r),
    ],
)
def test_functions_of_which_that_cannot_be_seen(function: Any) -> None:
    assert not keeps_nothing(function)
