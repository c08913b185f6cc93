"""The copies that operators and subtasks have of their functions, against those that Spark's pickler makes."""

from __future__ import annotations

import enum
import functools
import io
import json
import logging
import pickle
import socket
import sqlite3
import sys
import threading
import types
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from pyspark import cloudpickle

from flinkish.datastream import MapFunction
from flinkish.errors import UnserializableFunctionError, message_of
from flinkish.runtime.stored.pickling import own_copy
from tests.support.programs import new_environment


class Colour(enum.Enum):
    RED = 1


class Holder(MapFunction):
    """Holds something, as a user's function does."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def map(self, value: Any) -> Any:
        return self.held


class Tracing(Holder):
    def map(self, value: Any) -> Any:
        return super().map(value)

    def __private(self) -> Any:
        return self.held

    def bound_privately(self) -> Callable[[], Any]:
        return self.__private


class Singleton:
    _only: Singleton | None = None

    def __new__(cls) -> Singleton:
        cls._only = cls._only or super().__new__(cls)
        return cls._only


def copied(value: Any) -> Any:
    return own_copy(value, "here")


def by_closure() -> Callable[[], int]:
    calls: list[int] = []
    return lambda: calls.append(1) or len(calls)  # type: ignore[func-returns-value]


def by_nonlocal() -> Callable[[], int]:
    count = 0

    def call() -> int:
        nonlocal count
        count += 1
        return count

    return call


def by_default() -> Callable[[], int]:
    def call(calls: list[int] = []) -> int:  # noqa: B006
        calls.append(1)
        return len(calls)

    return call


def by_keyword() -> Callable[[], int]:
    def call(*, calls: list[int] = []) -> int:  # noqa: B006
        calls.append(1)
        return len(calls)

    return call


def by_attribute() -> Callable[[], int]:
    def call() -> int:
        call.count = getattr(call, "count", 0) + 1  # type: ignore[attr-defined]
        return call.count  # type: ignore[attr-defined]

    return call


def by_helper() -> Callable[[], int]:
    helper = by_closure()
    return lambda: helper()


def by_bound_method() -> Callable[[], int]:
    calls = [0]
    return functools.partial(lambda held: held.append(1) or len(held) - 1, calls)


def by_bound_builtin() -> Callable[[], int]:
    return iter(range(1, 9)).__next__


def by_instance() -> Callable[[], int]:
    class Counter:
        def __init__(self) -> None:
            self.calls = 0

        def count(self) -> int:
            self.calls += 1
            return self.calls

    return Counter().count


def by_decorator() -> Callable[[], int]:
    def counted(function: Callable[[int], int]) -> Callable[[], int]:
        count = [0]

        @functools.wraps(function)
        def call() -> int:
            count[0] += 1
            return function(count[0])

        return call

    return counted(lambda count: count)


def in_main_script(text: str) -> dict[str, Any]:
    """The names of a program that runs as the main script."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(text, names)
    return names


def by_global_of_main_script() -> Any:
    return in_main_script("calls = []\ndef call():\n    calls.append(1)\n    return len(calls)")["call"]


MEMORIES = [
    by_closure,
    by_nonlocal,
    by_default,
    by_keyword,
    by_attribute,
    by_helper,
    by_bound_method,
    by_bound_builtin,
    by_instance,
    by_decorator,
    by_global_of_main_script,
]


@pytest.mark.parametrize("make", MEMORIES, ids=lambda make: make.__name__)
def test_a_function_and_its_copies_share_no_memory(make: Callable[[], Callable[[], int]]) -> None:
    function = make()
    one, other = copied(function), copied(function)
    assert [one(), one(), other(), one(), function()] == [1, 2, 1, 3, 1]
    assert copied(one)() == 4, "a copy goes on from where the original is"


def test_functions_of_one_object_share_what_they_shared() -> None:
    names = in_main_script("seen = []\ndef see(x): seen.append(x)\ndef count(): return len(seen)")
    see, count = copied((names["see"], names["count"]))
    see(1)
    assert (count(), names["count"]()) == (1, 0)


@pytest.mark.parametrize(
    "value",
    [
        json, types.MappingProxyType({1: [2]}), {1: 2}.keys(), {1: 2}.items(), OrderedDict(a=1).keys(), 1.5, None,
        OrderedDict(a=1).items(), Colour.RED, Colour, Singleton(), MapFunction, int, json.loads, len, str.upper,
        logging.getLogger("a.b"), logging.getLogger(), NotImplemented, ..., sys.stderr, namedtuple("P", "x")(1),
        TypeVar("T"), (), frozenset({1}), range(3), functools.partial(max, 1), list[int], Any,
    ],
    ids=lambda value: getattr(value, "__name__", f"{value!r:.40}"),
)  # fmt: skip
def test_what_a_function_holds_is_there_in_its_copy(value: Any) -> None:
    def call() -> Any:
        return value

    for found in (copied(Holder(value)).map(0), copied(call)(), copied(lambda kept=value: kept)()):
        assert type(found) is type(value)
        if not isinstance(value, functools.partial):
            assert found == value
    same = isinstance(value, (type, types.ModuleType, enum.Enum, Singleton, logging.Logger, TypeVar))
    assert not same or copied(Holder(value)).map(0) is value


def test_views_of_values_memory_weak_sets_and_files_are_copied() -> None:
    assert list(copied({1: 2}.values())) == list(copied(OrderedDict(a=2).values())) == [2]
    assert copied(memoryview(b"abc")) == b"abc"
    kept = Holder(1)
    weak, found = copied((weakref.WeakSet([kept]), kept))
    assert set(weak) == {found}
    with open(__file__) as file:
        file.readline()
        read, rest = copied(file), file.read()
    assert isinstance(read, io.StringIO) and read.read() == rest


def test_classes_code_and_annotations_are_those_of_the_program() -> None:
    def call(value: int) -> Colour:
        """Documented."""
        return Colour(value)

    again = copied(call)
    assert again is not call and again.__code__ is call.__code__ and again(1) is Colour.RED
    assert (again.__doc__, again.__qualname__, again.__annotations__) == (
        "Documented.", call.__qualname__, call.__annotations__
    )  # fmt: skip
    again = copied(Tracing([1]))
    assert isinstance(again, Tracing) and again.map(0) == [1] and again.bound_privately()() == [1]
    private = Tracing([1]).bound_privately()
    assert copied(private)() == [1]


def test_functions_that_a_module_names_are_that_function() -> None:
    assert copied(Holder(copied)).map(0) is copied
    assert copied(json.JSONEncoder().default).__func__ is json.JSONEncoder.default


def test_functions_that_call_each_other_are_copied_with_each_other() -> None:
    names = in_main_script(
        "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\n"
        "def first(n): return [m for m in range(n) if even(m)]"
    )
    assert copied(names["first"])(5) == [0, 2, 4]

    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n else 1

    assert copied(factorial)(5) == 120


def test_a_variable_that_is_bound_later_is_still_unbound() -> None:
    def function() -> int:
        return later

    again = copied(function)
    with pytest.raises(NameError):
        again()
    later = 1
    assert copied(function)() == later


class Unloadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


REFUSED: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "event": threading.Event,
    "thread-local": threading.local,
    "file for writing": lambda: open("/dev/null", "w"),
    "binary file": lambda: open("/dev/null", "rb"),
    "socket": socket.socket,
    "connection": lambda: sqlite3.connect(":memory:"),
    "generator": lambda: (n for n in [1]),
    "iterator of a thread": lambda: threading.Thread(target=print),
    "weak reference": lambda: weakref.ref(Colour),
    "frame": lambda: sys._getframe(),
    "env": new_environment,
    "stream": lambda: new_environment().from_collection([1]),
    "class of a function": lambda: types.SimpleNamespace(held=threading.RLock()),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("capture", ["attribute", "closure", "default"])
def test_what_sparks_pickler_refuses_is_refused_in_the_same_words(make: Callable[[], Any], capture: str) -> None:
    held = make()
    function = {"attribute": Holder(held), "closure": lambda: held, "default": lambda kept=held: kept}[capture]
    with pytest.raises((TypeError, pickle.PicklingError)) as refused:
        cloudpickle.dumps(function)
    with pytest.raises(UnserializableFunctionError) as caught:
        copied(function)
    what = message_of(refused.value)
    assert str(caught.value).startswith(f"a function cannot be sent to the workers: {what} [here]; expected")
    if hasattr(held, "close") and not isinstance(held, types.GeneratorType):
        held.close()


class SparkSession:
    """Stands for that of Spark, which only says so by its module; it needs a JVM."""

    def __reduce__(self) -> Any:
        raise RuntimeError("[CONTEXT_ONLY_VALID_ON_DRIVER] ...")


SparkSession.__module__ = "pyspark.sql.session"


@pytest.mark.parametrize("capture", ["attribute", "closure", "default", "global", "within", "method"])
def test_a_captured_object_of_spark_is_named_with_what_to_do_instead(
    capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = SparkSession()
    monkeypatch.setitem(globals(), "SESSION", spark)
    function = {
        "attribute": Holder(spark),
        "closure": lambda: spark,
        "default": lambda held=spark: held,
        "global": eval("lambda: SESSION", globals()),  # as a function of the main script
        "within": Holder({"a": [(1, spark)]}),
        "method": Holder(Holder(spark)).__init__,
    }[capture]
    if capture == "global":
        function.__module__ = "__main__"
    with pytest.raises(UnserializableFunctionError) as caught:
        copied(function)
    assert "a SparkSession of Spark [here]" in caught.value.message
    assert "env.from_spark(df)" in caught.value.hint and "open()" not in caught.value.hint


def test_what_cannot_be_made_from_its_pickle_is_refused_too() -> None:
    with pytest.raises(UnserializableFunctionError, match="invalid literal for int"):
        copied(Holder(Unloadable()))
