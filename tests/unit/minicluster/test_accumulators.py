"""Accumulators: one value for the whole job, exact however its epochs are cut, replayed and restarted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import WatermarkStrategy
from flinkish.common.accumulators import (
    Accumulator,
    AverageAccumulator,
    DoubleCounter,
    Histogram,
    IntCounter,
    ListAccumulator,
    LongCounter,
)
from flinkish.core.sink import NO_FENCE
from flinkish.datastream.functions import MapFunction, RuntimeContext
from flinkish.errors import ProgramError, UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.accumulators import OF_THE_JOB, AccumulatorFiles, encode_accumulators, merged, results_of
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.stored.classes import NO_CLASSES
from flinkish.testing import TestingSink
from tests.support.profiles import examples

from .programs import environment, job_of, list_source, run

FAIL_AT: set[int] = set()


class Longest(Accumulator[str, str]):
    """One of the program's own: the longest text, of several the greatest one."""

    def __init__(self) -> None:
        self.text = ""

    def add(self, value: str) -> None:
        self.text = max(self.text, value, key=lambda text: (len(text), text))

    def get_local_value(self) -> str:
        return self.text

    def reset_local(self) -> None:
        self.text = ""

    def merge(self, other: Accumulator[str, str]) -> None:
        self.add(other.get_local_value())


class Adds(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.all: dict[str, Accumulator[Any, Any]] = {
            "average": AverageAccumulator(),
            "list": ListAccumulator(),
            "longest": Longest(),
        }
        for name, accumulator in self.all.items():
            runtime_context.add_accumulator(name, accumulator)
        self.int = runtime_context.get_int_counter("int")
        self.long = runtime_context.get_long_counter("long")
        self.double = runtime_context.get_double_counter("double")
        self.histogram = runtime_context.get_histogram("histogram")
        assert runtime_context.get_int_counter("int") is self.int
        assert runtime_context.get_accumulator("list") is self.all["list"]
        assert runtime_context.get_accumulator("absent") is None

    def map(self, value: int) -> int:
        self.all["average"].add(value)
        self.all["list"].add(value)
        self.all["longest"].add(str(value))
        self.int.add(1)
        self.long.add(value)
        self.double.add(0.5)
        self.histogram.add(value % 3)
        if value in FAIL_AT:
            FAIL_AT.discard(value)
            raise ValueError(value)
        return value


def program(values: list[int], keyed: bool) -> Any:
    env = environment(2)
    stream = env.from_source(list_source(values, values), WatermarkStrategy.no_watermarks(), "source")
    if keyed:
        stream = stream.key_by(lambda value: value)  # type: ignore[assignment]
    stream.map(Adds()).map(Adds()).sink_to(TestingSink())
    return job_of(env)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=20),
    st.integers(1, 30),
    st.sampled_from([None, 1, 2]),
    st.sets(st.integers(0, 20), max_size=3),
    st.booleans(),
)
def test_they_are_exact_whatever_the_epochs_the_failures_and_the_chains(
    values: list[int], per_epoch: int, restart_every: int | None, fail_at: set[int], keyed: bool
) -> None:
    """Two operators in two subtasks each read both splits."""
    FAIL_AT.clear()
    FAIL_AT.update(fail_at)
    job, store = program(values, keyed), StateStore()
    cluster, epochs = MiniCluster(job, ManualClock(), store, per_epoch), 0
    while not store.finished:
        epochs += 1
        if restart_every and epochs % restart_every == 0:
            cluster.dispose()
            cluster = MiniCluster(job, ManualClock(), store, per_epoch)
        try:
            cluster.run_epoch()
        except UserCodeError:
            continue
    found = results_of(store.accumulators, job.classes)
    times = 4
    assert found["int"] == times * len(values)
    assert found["long"] == times * sum(values)
    assert found["double"] == times * len(values) / 2
    assert found["average"] == pytest.approx(sum(values) / len(values))
    assert found["histogram"] == {n: c * times for n, c in sorted(Counter(v % 3 for v in values).items())}
    assert sorted(found["list"]) == sorted(values * times)
    assert found["longest"] == str(max(values))


def test_one_that_nothing_is_added_to_is_there_all_the_same() -> None:
    env, store = environment(1), StateStore()
    source = env.from_source(list_source([1]), WatermarkStrategy.no_watermarks(), "source")
    source.filter(lambda v: False).map(Adds()).sink_to(TestingSink())
    job = job_of(env)
    run(job, store=store)
    found = results_of(store.accumulators, job.classes)
    assert (found["int"], found["list"]) == (0, [])


class AddsTwice(MapFunction):
    def __init__(self, *accumulators: Any) -> None:
        self.accumulators = accumulators

    def open(self, runtime_context: RuntimeContext) -> None:
        for accumulator in self.accumulators:
            runtime_context.add_accumulator("n", accumulator)

    def map(self, value: int) -> int:
        return value


def test_misuse_is_refused_in_words() -> None:
    def run_with(*functions: MapFunction) -> None:
        env = environment(1)
        stream = env.from_source(list_source([1]), WatermarkStrategy.no_watermarks(), "source")
        for function in functions:
            stream = stream.map(function)
        stream.sink_to(TestingSink())
        run(job_of(env))

    with pytest.raises(ProgramError, match="The accumulator 'n' already exists and cannot be added"):
        run_with(AddsTwice(IntCounter(), IntCounter()))
    with pytest.raises(ProgramError, match="got a int.*expected an Accumulator"):
        run_with(AddsTwice(1))
    with pytest.raises(ProgramError, match="'n' is of class IntCounter in one function, and of class Histogram"):
        run_with(AddsTwice(IntCounter()), AddsTwice(Histogram()))


def test_totals_of_an_epoch_that_is_delivered_again_are_the_same(tmp_path: Any) -> None:
    def adding(number: int) -> bytes:
        counter = LongCounter()
        counter.add(number)
        return encode_accumulators({(OF_THE_JOB, "n"): counter})

    files = AccumulatorFiles(str(tmp_path / "accumulators"))
    assert files.before(None) == b""
    for epoch in (0, 1, 1, 2, 5, 5, 6):
        files.write(epoch, merged(files.before(epoch), [adding(10**epoch)]), NO_FENCE)
    assert results_of(files.before(None)) == {"n": 1100111}
    assert results_of(files.before(6)) == {"n": 100111}
    assert len(list((tmp_path / "accumulators").iterdir())) == 3


def test_a_query_that_repeats_epochs_begins_with_the_totals_of_its_checkpoint(tmp_path: Any) -> None:
    def adding(number: int) -> bytes:
        counter = LongCounter()
        counter.add(number)
        return encode_accumulators({(OF_THE_JOB, "n"): counter})

    path = str(tmp_path / "accumulators")
    first, second = AccumulatorFiles(path), AccumulatorFiles(path, 4)
    for epoch in range(4):
        first.write(epoch, first.after(epoch, [adding(10**epoch)], NO_CLASSES), NO_FENCE)
    for _ in range(2):  # a fallback that is interrupted begins anew
        first.begin(4, merged(b"", [adding(11)]))
    # as long as the job's query is the first one nothing has changed
    assert results_of(first.before(None)) == results_of(first.before(4)) == {"n": 1111}
    assert results_of(second.before(None)) == results_of(second.before(4)) == {"n": 11}
    for epoch in (4, 5, 6, 7):
        second.write(epoch, second.after(epoch, [adding(100)], NO_CLASSES), NO_FENCE)
    assert results_of(second.before(None)) == {"n": 411}
    # another query goes on behind it, and repeats nothing
    assert results_of(AccumulatorFiles(path, 8).before(8)) == {"n": 411}


def test_average_of_nothing_and_sums_of_floats() -> None:
    assert AverageAccumulator().get_local_value() == 0.0
    double = DoubleCounter()
    double.add(1)
    assert repr(double) == "DoubleCounter 1.0"
