"""What a program keeps in state is refused in the first epoch if it could not be found again; else it comes back."""

from __future__ import annotations

import enum
import re
import zlib
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark import cloudpickle
from sortedcontainers import SortedKeyList

from flinkish.common import Types
from flinkish.core.functions import KeyedProcessFunction
from flinkish.core.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.errors import IncompatibleJobError, StoredClassError, UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.stored.pickling import use_fallback
from flinkish.testing import End, Pause, ProgramTestHarness, TestingSink, TestingSource
from tests.unit.minicluster.programs import environment, job_of


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


@dataclass(frozen=True)
class User:
    name: str
    colour: Colour


class Tally:
    def __init__(self) -> None:
        self.count = 0


class Count(KeyedProcessFunction):
    def __init__(self, make: Any) -> None:
        self.make = make

    def open(self, context: Any) -> None:
        self.tally = context.get_state(ValueStateDescriptor("tally", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, context: Any) -> Any:
        tally = self.tally.value() or self.make()
        tally.count += 1
        self.tally.update(tally)
        yield value, tally.count


def counting(make: Any, key: Any, values: list[Any], results: list[Any]) -> Any:
    env = environment(parallelism=2)

    def keep(value: Any) -> Any:
        results.append(value)
        return value

    env.from_collection(values).key_by(key).process(Count(make)).uid("counts").map(keep).print()
    return job_of(env, share_functions=True)


def test_objects_as_keys_and_values_are_found_again_by_another_cluster() -> None:
    users = [User("ann", Colour.RED), User("ann", Colour.GREEN), User("ann", Colour.RED)]
    results: list[Any] = []
    job = counting(Tally, lambda user: user, users, results)
    store = StateStore()
    MiniCluster(job, store=store, max_records_per_epoch=1).run(2)
    assert [count for _, count in results] == [1, 1]
    MiniCluster(job, store=store, max_records_per_epoch=1).run(1)
    assert results[-1] == (User("ann", Colour.RED), 2)


def local_class() -> Any:
    class Local:
        count = 0

    return Local


def test_a_local_class_is_refused_in_the_first_epoch_and_names_operator_and_state() -> None:
    store = StateStore()
    job = counting(local_class(), lambda user: user.name, [User("ann", Colour.RED)], [])
    message = r"state 'tally', the value of key 'ann': .*<locals>.Local .*move the"
    with pytest.raises(StoredClassError, match=message) as caught:
        MiniCluster(job, store=store).run_epoch()
    assert "operator uid counts" in caught.value.where
    assert not store.tasks


@pytest.mark.parametrize("sender_can_pickle_it", [False, True])
def test_a_key_of_a_local_class_is_refused_in_the_first_epoch(sender_can_pickle_it: bool) -> None:
    """Plain pickle cannot send such a key; the pickler of Spark's workers can."""
    job = counting(Tally, lambda user: frozen_local(user.name), [User("ann", Colour.RED)], [])
    use_fallback(cloudpickle.dumps if sender_can_pickle_it else None)
    try:
        with pytest.raises((StoredClassError, UserCodeError)) as caught:
            MiniCluster(job).run_epoch()
    finally:
        use_fallback(None)
    in_state, at_the_sender = r"state 'tally', the key of key .*<locals>.Frozen .*move the", r"local object .*Frozen"
    assert re.search(in_state if sender_can_pickle_it else at_the_sender, str(caught.value))


def frozen_local(name: str) -> Any:
    return FROZEN(name)


def _frozen() -> Any:
    @dataclass(frozen=True)
    class Frozen:
        name: str

    return Frozen


FROZEN = _frozen()


def test_a_function_in_a_map_state_is_refused() -> None:
    class Keep(KeyedProcessFunction):
        def open(self, context: Any) -> None:
            self.rules = context.get_map_state(MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY()))

        def process_element(self, value: Any, context: Any) -> Any:
            self.rules.put("double", lambda n: 2 * n)
            yield value

    env = environment(parallelism=1)
    env.from_collection([1]).key_by(lambda n: n).process(Keep()).uid("rules").print()
    with pytest.raises(StoredClassError, match="state 'rules', the value of key 1: the function .*<lambda> cannot be"):
        MiniCluster(job_of(env)).run_epoch()


class Filter:
    """As filters of libraries are: it holds the function that it was made with."""

    def __init__(self, function: Any = zlib.crc32) -> None:
        self.bits = bytearray(64)
        self.function = function
        self.count = 0

    def holds(self, text: str) -> bool:
        place, known = self.function(text.encode()) % 64, self.bits[self.function(text.encode()) % 64]
        self.bits[place] = 1
        return bool(known)


class StoredFilter(Filter):
    """The form that the error tells: the function is left out, and set again."""

    def __getstate__(self) -> Any:
        return {name: value for name, value in vars(self).items() if name != "function"}

    def __setstate__(self, state: Any) -> None:
        vars(self).update(state, function=zlib.crc32)


class ByLength(SortedKeyList):
    """An object of a library that reduces itself to a call with its key function, with a call of its own instead."""

    def __new__(cls, *arguments: Any) -> Any:
        return super().__new__(cls, key=len)

    def __init__(self, values: Any = ()) -> None:
        super().__init__(values, key=len)

    def __reduce__(self) -> Any:
        return ByLength, (list(self),)


class Unique(KeyedProcessFunction):
    """Emits for what has not come before, as far as a filter can tell, all that has come in the order of its length."""

    def __init__(self, make_filter: Any) -> None:
        self.make_filter = make_filter

    def open(self, context: Any) -> None:
        untyped = Types.PICKLED_BYTE_ARRAY()
        self.seen = context.get_state(ValueStateDescriptor("seen", untyped))
        self.ordered = context.get_state(ValueStateDescriptor("ordered", untyped))

    def process_element(self, value: Any, context: Any) -> Any:
        seen, ordered = self.seen.value() or self.make_filter(), self.ordered.value() or ByLength()
        is_new = not seen.holds(value)
        ordered.add(value)
        self.seen.update(seen)
        self.ordered.update(ordered)
        if is_new:
            yield list(ordered)


def unique(make_filter: Any, *steps: Any) -> tuple[Any, TestingSink]:
    env, sink = environment(parallelism=1), TestingSink()
    stream = env.add_source(TestingSource(*steps)).uid("source").key_by(lambda text: 0)
    stream.process(Unique(make_filter)).uid("unique").sink_to(sink).uid("out")
    return env, sink


def test_an_object_that_holds_a_function_is_refused_and_the_error_says_how_to_keep_it() -> None:
    env, _ = unique(Filter, "three", End())
    with pytest.raises(StoredClassError, match="state 'seen'.* the function zlib.crc32 cannot be") as caught:
        MiniCluster(job_of(env)).run_epoch()
    assert "__getstate__" in caught.value.hint and "a class of your own that is derived from it" in caught.value.hint


def test_what_the_error_says_keeps_objects_with_functions_over_restarts_and_savepoints() -> None:
    steps = ["three", Pause(), "a", Pause(), "three", "to", End()]
    env, sink = unique(StoredFilter, *steps)
    store, job = StateStore(), job_of(env)
    for _ in range(3):
        MiniCluster(job, store=store).run(1)
    assert sink.values == [["three"], ["a", "three"], ["a", "to", "three", "three"]]

    env, _ = unique(StoredFilter, "three", Pause())
    with ProgramTestHarness(env) as harness:
        harness.run_epoch()
        saved = harness.savepoint()
    env, sink = unique(StoredFilter, "three", Pause(), "three", "a", End())
    with ProgramTestHarness(env, restored=saved) as harness:
        harness.run()
    assert sink.values == [["a", "three", "three"]]


def test_a_store_of_before_is_refused_in_words() -> None:
    job = counting(Tally, lambda user: user, [User("ann", Colour.RED)] * 2, [])
    store = StateStore()
    MiniCluster(job, store=store, max_records_per_epoch=1).run(1)
    store.tasks = {place: (b"\x80\x05" + header[2:], body) for place, (header, body) in store.tasks.items()}
    with pytest.raises(IncompatibleJobError, match="header of a subtask's state has a format of before.*new job"):
        MiniCluster(job, store=store, max_records_per_epoch=1).run(1)
