"""A failure at any phase of an epoch, then the same epoch again: results are those of a run without failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flinkish.common import Time
from flinkish.common.typeinfo import Types
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.core.source import SourceSplit, SplitEnumerator
from flinkish.datastream import (
    AsyncDataStream,
    AsyncFunction,
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from flinkish.datastream.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ManualClock, Phase, set_hook
from flinkish.testing import CrashOnce, End, SimulatedCrash, TestingSink, TestingSource
from tests.support.functions import Unprintable
from tests.support.profiles import examples

from .programs import bounded, environment, job_of, list_source, run

RECORDS = [(key, serial, serial * 7 % 50 + serial) for serial, key in enumerate("abcabdacbe" * 3)]

#: Those that a minicluster passes through; savepoints and restores are Spark's.
PHASES = [
    Phase.PLANNED,
    Phase.SOURCES_READ,
    Phase.LEVEL_PROCESSED,
    Phase.STATE_WRITTEN,
    Phase.COMMITTABLES_WRITTEN,
    Phase.EPOCH_PREPARED,
    Phase.COMMIT_BEGUN,
    Phase.SINK_COMMITTED,
    Phase.METADATA_COMMITTED,
    Phase.CLEANED_UP,
]


class Killed(BaseException):
    """What no handler of errors may swallow."""


class Stamped(MapFunction):
    """Counts per key in state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return value, self.count.value()


class Delayed(KeyedProcessFunction):
    """Emits each record 5 ms of processing time later, with both times."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> None:
        now = ctx.timer_service().current_processing_time()
        self.kept.update((self.kept.value() or ()) + ((value[1], now),))
        ctx.timer_service().register_processing_time_timer(now + 5)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        due = [kept for kept in self.kept.value() or () if kept[1] + 5 <= timestamp]
        self.kept.update(tuple(kept for kept in self.kept.value() or () if kept[1] + 5 > timestamp))
        for serial, since in due:
            yield ctx.get_current_key(), serial, since, timestamp


class BothStamped(Stamped, CoMapFunction):
    """Counts per key over two streams."""

    map1 = Stamped.map
    map2 = Stamped.map


KNOWN = MapStateDescriptor("known", Types.LONG(), Types.STRING())


class Known(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Emits each record 9 ms of event time later, with what was broadcast until then."""

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        ctx.timer_service().register_event_time_timer(value[2] + 9)

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(KNOWN).put(value[1], value[0])

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp, tuple(ctx.get_broadcast_state(KNOWN).items())


def program() -> tuple[JobDescriptor, list[TestingSink]]:
    env = environment()
    sinks = [TestingSink() for _ in range(8)]
    stream = env.from_source(list_source(RECORDS[::2], RECORDS[1::2]), bounded(60), "records")
    stream.filter(lambda r: r[1] % 2 == 0).sink_to(sinks[0])
    keyed = stream.key_by(lambda r: r[0])
    keyed.map(Stamped()).sink_to(sinks[1])
    windowed = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(20))).reduce(
        lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]))
    )
    windowed.union(stream).key_by(lambda r: r[1] % 2).map(Stamped()).sink_to(sinks[2])
    keyed.process(Delayed()).sink_to(sinks[3])
    keyed.map(Stamped()).rebalance().map(lambda r: r).sink_to(sinks[4])
    stream.shuffle().map(lambda r: r).rescale().map(lambda r: r).sink_to(sinks[5])
    others = env.from_source(list_source(RECORDS[::3]), bounded(60), "others")
    keyed.connect(others.key_by(lambda r: r[0])).map(BothStamped()).sink_to(sinks[6])
    keyed.connect(others.broadcast(KNOWN)).process(Known()).sink_to(sinks[7])
    return job_of(env), sinks


def run_with_failures(failures: dict[int, BaseException], new_worker: bool) -> tuple[list[Any], set[Phase]]:
    """Raise at the n-th passing of a phase; then go on, in the same worker or in another one."""
    job, sinks = program()
    store, clock = StateStore(), ManualClock(100)
    passed: set[Phase] = set()
    count = 0

    def hook(phase: Phase, details: dict[str, Any]) -> None:
        nonlocal count
        passed.add(phase)
        count += 1
        if count - 1 in failures:
            raise failures[count - 1]

    set_hook(hook)
    cluster = MiniCluster(job, clock, store, 5)
    while not store.finished:
        epoch = store.next_epoch
        try:
            cluster.run_epoch()
        except (Killed, Exception):
            if new_worker:
                cluster = MiniCluster(job, clock, store, 5)
            clock.advance(1)  # time goes on, but not that of the epoch that is tried again
            if store.next_epoch == epoch:
                continue
        clock.set(100 + 3 * store.next_epoch)
    return [sink.values for sink in sinks], passed


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    values, passed = run_with_failures({}, False)
    assert passed == set(PHASES)
    assert all(values)
    return values


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.integers(0, 500), st.sampled_from([Killed, OSError]), max_size=12),
    st.booleans(),
)
def test_results_are_exactly_once_whatever_fails_and_wherever_the_job_goes_on(
    undisturbed: list[Any], failures: dict[int, type[BaseException]], new_worker: bool
) -> None:
    made = {place: error("injected") for place, error in failures.items()}
    assert run_with_failures(made, new_worker)[0] == undisturbed


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("new_worker", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_every_phase_can_fail_in_every_epoch(undisturbed: list[Any], phase: Phase, new_worker: bool) -> None:
    job, sinks = program()
    store, failed = StateStore(), set[int]()

    def hook(passing: Phase, details: dict[str, Any]) -> None:
        if passing is phase and details["epoch"] not in failed:
            failed.add(details["epoch"])
            raise Killed

    set_hook(hook)
    clock = ManualClock(100)
    cluster = MiniCluster(job, clock, store, 5)
    while not store.finished:
        try:
            cluster.run_epoch()
        except Killed:
            if new_worker:
                cluster = MiniCluster(job, clock, store, 5)
        clock.set(100 + 3 * store.next_epoch)
    assert len(failed) == store.next_epoch
    assert [sink.values for sink in sinks] == undisturbed


CALLS: list[tuple[str, int]] = []


class Opened(MapFunction):
    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        CALLS.append((f"open {self.name}", self.subtask))

    def map(self, value: Any) -> Any:
        if value == "poison":
            raise ValueError("poisoned")
        return value

    def close(self) -> None:
        CALLS.append((f"close {self.name}", self.subtask))


def opened_and_closed(source: TestingSource, parallelism: int) -> JobDescriptor:
    env = environment(parallelism)
    stream = env.from_source(source, bounded(), "s").map(Opened("source")).uid("in-source")
    stream.key_by(lambda r: r).map(Opened("keyed")).sink_to(TestingSink())
    CALLS.clear()
    return job_of(env)


@pytest.mark.parametrize("splits", [1, 2, 3, 5])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_function_is_opened_and_closed_once(splits: int, parallelism: int) -> None:
    """Also in subtasks whose splits end before others do."""
    parts = [[("a", 1, t) for t in range(3 * split)] for split in range(splits)]
    run(opened_and_closed(list_source(*parts), parallelism), 2)
    opens = sorted(call for call in CALLS if call[0].startswith("open"))
    closes = sorted(call for call in CALLS if call[0].startswith("close"))
    assert [(name.removeprefix("open "), subtask) for name, subtask in opens] == [
        (name.removeprefix("close "), subtask) for name, subtask in closes
    ]
    assert len(set(opens)) == len(opens)
    assert ("open source", min(splits, parallelism) - 1) in opens


def test_after_a_failure_all_functions_are_closed() -> None:
    job = opened_and_closed(list_source([("a", 1, 1), "poison"]), 2)
    with pytest.raises((UserCodeError, TypeError, ValueError)):
        MiniCluster(job, ManualClock(), StateStore()).run()
    assert sum(1 for name, _ in CALLS if name.startswith("open")) == sum(
        1 for name, _ in CALLS if name.startswith("close")
    )


class FailsIn(MapFunction, AsyncFunction[Any, Any]):
    """Raises an exception in one of its methods."""

    def __init__(self, method: str, error: BaseException) -> None:
        self._method, self._error = method, error

    def _called(self, method: str) -> None:
        if method == self._method:
            raise self._error

    def open(self, runtime_context: RuntimeContext) -> None:
        self._called("open")

    def map(self, value: Any) -> Any:
        self._called("map")
        return value

    def get_key(self, value: Any) -> Any:
        self._called("get_key")
        return value[0]

    async def async_invoke(self, value: Any) -> list[Any]:
        self._called("async_invoke")
        return [value]

    def close(self) -> None:
        self._called("close")


class FailsInCommit(TestingSink):
    __test__ = False

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def create_committer(self) -> Any:
        return self

    def commit(self, batches: Any, context: Any) -> int:
        raise self._error


#: where a program fails -> how the error names it
FAILING_PLACES = {
    "open in-source": "uid in-source",
    "map in-source": "uid in-source",
    "close in-source": "uid in-source",
    "get_key in-source": "uid in-source",
    "open keyed": "uid keyed",
    "map keyed": "uid keyed",
    "async_invoke called": "uid called",
    "commit out": "sink 'Sink: out'",
}


@pytest.mark.parametrize("place", FAILING_PLACES)
@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError, GeneratorExit, Unprintable, KeyError])
def test_whatever_user_code_raises_is_told_with_the_operator_that_has_failed(
    place: str, kind: type[BaseException]
) -> None:
    method, uid = place.split()
    error = kind(Unprintable()) if kind is KeyError else kind()

    def function(of: str) -> FailsIn:
        return FailsIn(method if of == uid else "", error)

    env = environment(1)
    source = function("in-source")
    stream = env.from_source(list_source([("a", 1, 1)]), bounded(), "s").map(source).uid("in-source")
    keyed = stream.key_by(source.get_key).map(function("keyed")).uid("keyed")
    called = AsyncDataStream.ordered_wait(keyed, function("called"), Time.seconds(30)).uid("called")
    sink = FailsInCommit(error) if uid == "out" else TestingSink()
    called.sink_to(sink).uid("out").name("out")
    with pytest.raises(UserCodeError) as raised:
        MiniCluster(job_of(env), ManualClock(), StateStore()).run()
    assert FAILING_PLACES[place] in raised.value.where
    name = "RuntimeError" if (method, kind) == ("async_invoke", asyncio.CancelledError) else kind.__name__
    assert raised.value.what.startswith(f"{name} in user code: ")
    assert str(raised.value).startswith("Traceback (most recent call last):\n")


def test_the_text_of_an_error_is_cut_and_begins_with_the_users_traceback() -> None:
    def fail(value: Any) -> Any:
        raise ValueError("begin" + "x" * 3_000_000 + "end")

    env = environment(1)
    env.from_source(list_source([1]), bounded_none(), "s").map(fail).uid("failing").sink_to(TestingSink())
    with pytest.raises(UserCodeError) as raised:
        MiniCluster(job_of(env), ManualClock(), StateStore()).run()
    text = str(raised.value)
    assert text.startswith("Traceback (most recent call last):\n") and 'raise ValueError("begin"' in text
    assert "ValueError in user code: beginxxx" in text and "characters left out" in text and "xxxend" in text
    assert "uid failing" in text and len(text) < 20_000


def test_the_traceback_of_an_endless_recursion_is_cut() -> None:
    def down(value: Any) -> Any:
        return up(value)

    def up(value: Any) -> Any:
        return down(value)

    env = environment(1)
    env.from_source(list_source([1]), bounded_none(), "s").map(down).uid("failing").sink_to(TestingSink())
    with pytest.raises(UserCodeError, match="RecursionError in user code") as raised:
        MiniCluster(job_of(env), ManualClock(), StateStore()).run()
    assert "uid failing" in str(raised.value) and len(str(raised.value)) < 20_000


#: What has happened to the enumerators of a ConnectedSource.
ENUMERATORS: list[str] = []


class Connected:
    """An enumerator with a connection: it is of no use once it is closed."""

    def __init__(self, inner: SplitEnumerator) -> None:
        self._inner, self._closed = inner, False
        ENUMERATORS.append("created")

    def __getattr__(self, name: str) -> Any:
        assert not self._closed, f"{name} is called after close"
        return getattr(self._inner, name)

    def close(self) -> None:
        self._closed = True
        ENUMERATORS.append("closed")


class ConnectedSource(TestingSource):
    __test__ = False

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> Any:
        return Connected(super().create_enumerator(restored))


def test_after_a_failure_a_minicluster_plans_with_new_enumerators() -> None:
    ENUMERATORS.clear()
    env = environment(1)
    sink = TestingSink()
    source = ConnectedSource(1, CrashOnce(), 2, 3, End())
    env.from_source(source, WatermarkStrategy.no_watermarks(), "s").sink_to(sink)
    cluster = MiniCluster(job_of(env), ManualClock(), StateStore(), 1)
    with pytest.raises(SimulatedCrash):
        cluster.run()
    cluster.run()
    assert sink.values == [1, 2, 3]
    assert ENUMERATORS == ["created", "closed"] * 2


TOLD: list[dict[str, int]] = []


class ToldSource(TestingSource):
    __test__ = False

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        TOLD.append(dict(positions))
        if len(TOLD) == 1:
            raise ConnectionError("a source that cannot be told")


@pytest.mark.parametrize("phase", [None, Phase.EPOCH_PREPARED, Phase.METADATA_COMMITTED], ids=str)
def test_sources_are_told_up_to_where_they_are_read_for_good_also_of_splits_that_have_ended(
    phase: Phase | None, caplog: pytest.LogCaptureFixture
) -> None:
    TOLD.clear()
    env, sink = environment(1), TestingSink()
    source = ToldSource.of_splits(["a", "b", "c", End()], ["d", End()])
    env.from_source(source, WatermarkStrategy.no_watermarks(), "s").sink_to(sink)
    cluster, failures = MiniCluster(job_of(env), ManualClock(), StateStore(), 2), []

    def fail_once(passed: Phase, details: dict[str, Any]) -> None:
        if passed is phase and not failures:
            failures.append(details["epoch"])
            raise RuntimeError("on purpose")

    set_hook(fail_once)
    while not cluster.store.finished:
        try:
            cluster.run_epoch()
        except RuntimeError:
            assert TOLD == []
        else:
            # as at the end of an attempt, for which alone acknowledgements are waited
            cluster.dispose()
    assert sorted(sink.values) == ["a", "b", "c", "d"]
    assert [{"0": 1, "1": 1}, {"0": 3, "1": 1}][phase is Phase.METADATA_COMMITTED :] == TOLD
    assert "source uid" in caplog.text and "could not be told what is committed: a source that" in caplog.text


def test_a_run_of_some_epochs_goes_on_with_the_same_functions() -> None:
    job = opened_and_closed(list_source([("a", 1, t) for t in range(6)]), 1)
    cluster = MiniCluster(job, ManualClock(), StateStore(), 2)
    assert [report.epoch for report in cluster.run(max_epochs=2)] == [0, 1]
    assert [report.epoch for report in cluster.run()] == [2]
    assert sorted(CALLS) == [(f"{event} {name}", 0) for event in ("close", "open") for name in ("keyed", "source")]


def test_the_last_epoch_says_so_to_the_sinks() -> None:
    env, sink = environment(1), TestingSink()
    env.from_source(list_source([1, 2, 3]), bounded_none(), "s").sink_to(sink)
    run(job_of(env), 2)
    assert [context.end_of_input for context in sink.contexts] == [False, True]


def bounded_none() -> Any:
    from flinkish.common.watermark_strategy import WatermarkStrategy

    return WatermarkStrategy.no_watermarks()


def test_processing_time_timers_fire_by_the_epochs_clock() -> None:
    env, sink = environment(1), TestingSink()
    source = list_source([("a", 1, 0), ("b", 2, 0)], endless=True)
    env.from_source(source, bounded_none(), "s").key_by(lambda r: r[0]).process(Delayed()).sink_to(sink)
    clock = ManualClock(1000)
    cluster = MiniCluster(job_of(env), clock, StateStore(), 1)
    seen = []
    for _ in range(4):
        cluster.run_epoch()
        seen.append(list(sink.values))
        clock.advance(3)
    first, second = ("a", 1, 1000, 1005), ("b", 2, 1003, 1008)
    assert seen == [[], [], [first], [first, second]]
    cluster.dispose()
