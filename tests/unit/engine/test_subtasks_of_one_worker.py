"""Several subtasks of one operator live in one worker without sharing anything; each hears of every split's end."""

from __future__ import annotations

import bdb
import colorsys
import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from flinkish.common import Configuration, RestartStrategies, Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import DataStream, FilterFunction, MapFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import UnserializableFunctionError, UserCodeError
from tests.support.functions import TimeOf
from tests.support.programs import new_environment


def environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    return new_environment(parallelism, flinkish__progress="never", flinkish__epoch__max_records_per_source="10")


class Counting(MapFunction):
    """Counts in an attribute and in keyed state."""

    def __init__(self) -> None:
        self.seen = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: int) -> Any:
        self.seen += 1
        self._count.update((self._count.value() or 0) + 1)
        return self._subtask, value % 5, self._count.value(), self.seen


def test_each_subtask_has_a_function_of_its_own() -> None:
    env = environment()
    numbers = env.from_source(DataGeneratorSource(lambda i: i, 40), WatermarkStrategy.no_watermarks(), "numbers")
    rows = list(numbers.key_by(lambda n: n % 5).map(Counting()).execute_and_collect())
    assert sorted({key: count for _, key, count, _ in rows}.items()) == [(key, 8) for key in range(5)]
    per_subtask = {subtask: seen for subtask, _, _, seen in rows}
    assert len(per_subtask) == 2
    assert sum(per_subtask.values()) == 40


class OnceByAttribute(FilterFunction):
    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def filter(self, value: Any) -> bool:
        return value not in self.seen and not self.seen.add(value)  # type: ignore[func-returns-value]


class OnceByMap(MapFunction):
    """Emits a value the first time, None afterwards. ``module``: may be held like anything else."""

    def __init__(self, module: Any) -> None:
        self.check, self.module = first_time(), module

    def map(self, value: Any) -> Any:
        return value if self.check(value) else None


def first_time() -> Callable[[Any], bool]:
    seen: set[Any] = set()
    return lambda value: value not in seen and not seen.add(value)  # type: ignore[func-returns-value]


def by_default() -> Callable[[Any], bool]:
    def check(value: Any, seen: list[Any] = []) -> bool:  # noqa: B006
        seen.append(value)
        return seen.count(value) == 1

    return check


#: how a function remembers -> makes from a stream one with the values that the function has not had before
ONCE: dict[str, Callable[[], Callable[[DataStream], DataStream]]] = {
    "closure": lambda: partial(_filtered, first_time()),
    "default argument": lambda: partial(_filtered, by_default()),
    "attribute": lambda: partial(_filtered, OnceByAttribute()),
    "method": lambda: partial(_filtered, OnceByAttribute().filter),
    "map that holds a module": lambda: partial(_mapped, OnceByMap(json)),
    "flat_map": lambda: partial(_flat, first_time()),
    "key selector": lambda: partial(_keyed, first_time()),
    "partitioner": lambda: partial(_partitioned, first_time()),
}


def _filtered(check: Any, stream: DataStream) -> DataStream:
    return stream.filter(check)


def _mapped(once: OnceByMap, stream: DataStream) -> DataStream:
    return stream.map(once).filter(lambda value: value is not None)


def _flat(check: Any, stream: DataStream) -> DataStream:
    return stream.flat_map(lambda value: [value] if check(value) else [])


def _keyed(check: Any, stream: DataStream) -> DataStream:
    return stream.key_by(lambda value: check(value)).map(Keyed()).filter(lambda value: value is not None)


def _partitioned(check: Any, stream: DataStream) -> DataStream:
    routed = stream.partition_custom(lambda key, n: 0 if check(key) else 1, lambda value: value)
    return routed.map(Placed()).filter(lambda value: value is not None)


class Keyed(MapFunction):
    """Emits the values of the first key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._key = runtime_context.get_state(ValueStateDescriptor("key", Types.LONG()))

    def map(self, value: Any) -> Any:
        before = self._key.value()
        self._key.update(value)
        return value if before is None else None


class Placed(MapFunction):
    """Emits the values that come to the first subtask."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._here = runtime_context.get_index_of_this_subtask() == 0

    def map(self, value: Any) -> Any:
        return value if self._here else None


@pytest.mark.parametrize("make", ONCE.values(), ids=ONCE)
def test_operators_and_later_jobs_that_are_given_one_function_share_no_memory(make: Any) -> None:
    once = make()
    for _ in range(2):
        stream = environment().from_collection([7])
        branches = [once(stream).map(partial(_named, name)) for name in "ab"]
        assert sorted(branches[0].union(branches[1]).execute_and_collect()) == [("a", 7), ("b", 7)]


def _named(name: str, value: Any) -> Any:
    return name, value


@pytest.mark.parametrize("make", [ONCE[name] for name in ("closure", "default argument", "attribute", "flat_map")])
def test_subtasks_that_are_given_one_function_share_no_memory(make: Any) -> None:
    stream = environment().from_collection([7, 7]).rebalance()
    assert list(make()(stream).execute_and_collect()) == [7, 7]


def test_what_the_program_does_with_its_variables_later_on_changes_nothing() -> None:
    factor = [10]
    with environment().from_collection([1, 2]).map(lambda value: value * factor[0]).execute_and_collect() as results:
        factor[0] = 0
        assert list(results) == [10, 20]


def test_sources_that_are_given_one_function_share_no_memory() -> None:
    check, env = first_time(), environment()
    streams = [
        env.from_source(
            DataGeneratorSource(lambda index: check(index), 2), WatermarkStrategy.no_watermarks(), f"source {number}"
        )
        for number in range(2)
    ]
    assert list(streams[0].union(streams[1]).execute_and_collect()) == [True] * 4


def test_after_a_failure_functions_are_those_that_have_not_run() -> None:
    env = environment(1)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 1))
    left = [1]

    def fails_once(value: int) -> int:
        if left:
            left.pop()
            raise ValueError("once for each instance")
        return value

    env.from_collection([1]).map(fails_once).print()
    with pytest.raises(UserCodeError, match="after 2 restarts"):
        env.execute()
    assert left == [1]


def test_functions_are_those_of_the_program_if_it_is_asked_for() -> None:
    seen = list[int]()
    env = environment()
    env.configure(Configuration().set_string("flinkish.minicluster.share-functions", "true"))
    env.from_collection([1, 2]).map(seen.append).print()
    env.execute()
    assert seen == [1, 2]


#: A program as the main script: what of it must stay what it is.
MAIN = """
import enum, json
from flinkish.datastream import MapFunction

class Colour(enum.Enum):
    RED = 1
    GREEN = 2

class Click:
    made = 0

    def __init__(self, colour):
        type(self).made += 1
        self.colour = colour

class Base(MapFunction):
    def map(self, value):
        return Click(Colour.RED)

class Function(Base):
    def map(self, value):
        click = super().map(value)
        assert type(click) is Click
        return click

seen, helper_calls = [], []

def helper(click):
    helper_calls.append(click)
    return isinstance(click, Click) and click.colour is Colour.RED

def check(click):
    seen.append(click)
    return helper(click) and len(seen) == 1

def build(stream):
    return stream.map(Function()).filter(check).map(lambda click: (click.colour is Colour.RED, json.dumps(len(seen))))
"""


def test_classes_of_the_main_script_are_themselves_and_its_globals_are_copied() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(MAIN, names)
    stream = environment(1).from_collection([1])
    one, other = names["build"](stream), names["build"](stream)
    assert list(one.union(other).execute_and_collect()) == [(True, "0")] * 2
    assert (names["seen"], names["helper_calls"], names["Click"].made) == ([], [], 2)


def test_functions_of_modules_are_called_as_the_program_has_replaced_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colorsys, "rgb_to_hsv", lambda value: f"replaced {value}")
    monkeypatch.setitem(globals(), "_named", lambda name, value: (name, "replaced"))
    stream = environment(1).from_collection([1]).map(lambda value: (colorsys.rgb_to_hsv(value), _named("a", value)))
    assert list(stream.execute_and_collect()) == [("replaced 1", ("a", "replaced"))]


def test_a_debugger_stops_in_a_copied_function() -> None:
    stops: list[Any] = []

    class Debugger(bdb.Bdb):
        def user_line(self, frame: Any) -> None:
            if self.break_here(frame):
                stops.append(frame.f_locals["value"])
            self.set_continue()

    def traced(value: int) -> int:
        return value + 1

    debugger = Debugger()
    debugger.set_break(__file__, traced.__code__.co_firstlineno + 1)

    stream = environment(1).from_collection([1, 2]).map(traced)
    threading.settrace(debugger.trace_dispatch)
    try:
        debugger.reset()
        assert list(stream.execute_and_collect()) == [2, 3]
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
        debugger.clear_all_breaks()
    assert stops == [1, 2]


class WithLock(MapFunction):
    """Cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def map(self, value: Any) -> Any:
        return value


def lock_of_main_script(base: str) -> Any:
    """A function of the main script whose class or method refers to a lock."""
    names: dict[str, Any] = {"__name__": "__main__", "MapFunction": MapFunction, "threading": threading}
    exec(base, names)
    return names["Function"]()


IN_CLASS = """
class Function(MapFunction):
    lock = threading.Lock()

    def map(self, value):
        return value
"""
IN_METHOD = """
lock = threading.Lock()

class Function(MapFunction):
    def map(self, value):
        with lock:
            return value
"""


def with_lock(stream: DataStream) -> DataStream:
    lock = threading.Lock()
    return stream.filter(lambda value: lock.locked())


def with_environment(stream: DataStream) -> DataStream:
    env = stream.get_execution_environment()
    return stream.filter(lambda value: value < env.get_parallelism())


@pytest.mark.parametrize("with_pyspark", [True, False])
@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda stream: stream.map(WithLock()), "_thread.lock"),
        (with_lock, "_thread.lock"),
        (with_environment, "StreamExecutionEnvironment"),
        (None, None),
        (lambda stream: stream.map(lock_of_main_script(IN_CLASS)), "_thread.lock"),
        (lambda stream: stream.map(lock_of_main_script(IN_METHOD)), "_thread.lock"),
    ],
    ids=["attribute", "closure", "environment", "nothing", "class of the main script", "method of the main script"],
)
def test_what_spark_would_refuse_is_refused_before_the_job_runs(
    build: Any, what: str | None, with_pyspark: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    stream = environment().from_collection([1])
    build(stream).uid("refused").print() if what else stream.map(str).uid("refused").print()
    if not with_pyspark:
        monkeypatch.setitem(sys.modules, "pyspark", None)
        if "main script" in request.node.callspec.id:
            # only PySpark's pickler looks into classes
            what = None
    if what is None:
        stream.get_execution_environment().execute()
        return
    expected = rf"cannot be sent to the workers: cannot pickle '{what}' object \[.*uid refused.*in open\(\)"
    with pytest.raises(UnserializableFunctionError, match=expected):
        stream.get_execution_environment().execute_async()


def test_a_key_selector_that_spark_would_refuse_is_refused_by_the_name_of_the_operator_before_it() -> None:
    lock = threading.Lock()
    before = environment().from_collection([1]).map(str).uid("refused")
    before.key_by(lambda value: lock.locked()).reduce(lambda one, other: one).uid("behind").print()
    with pytest.raises(UnserializableFunctionError, match=r"cannot be sent to the workers: .*lock.*uid refused"):
        before.get_execution_environment().execute_async()


@pytest.mark.parametrize("splits", [(1, 1), (2, 1), (5, 2)])
def test_windows_behind_a_union_fire_whatever_the_numbers_of_splits_and_subtasks_are(splits: tuple[int, int]) -> None:
    env = environment(3)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(lambda n: n * 1000))
    first, second = (
        env.from_source(DataGeneratorSource(lambda i: i, 25, splits=count), strategy, "numbers") for count in splits
    )
    counts = (
        first.union(second)
        .map(lambda n: (n // 10, 1))
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    assert sorted(counts.execute_and_collect()) == [(0, 20), (1, 20), (2, 10)]
