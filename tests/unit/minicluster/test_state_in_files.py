"""Whether state lies with the task or in files must not matter: random programs with every kind of state, epochs
that fail, workers that come and go, much memory and next to none; and files that nobody needs any more go."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.common.typeinfo import Types
from flinkish.datastream import (
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from flinkish.datastream.functions import CheckpointedFunction, ProcessJoinFunction
from flinkish.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from flinkish.runtime.phases import ManualClock, Phase, set_hook
from flinkish.runtime.state.files.references import epoch_of
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.limits import DEFAULT_BYTES
from flinkish.runtime.state.saved.columns import TaskBody, rows_of_task
from flinkish.runtime.state.saved.operator_states import StoredOperatorStates
from flinkish.runtime.task.task import CLEAN_UP_EPOCHS, RETAINED_EPOCHS
from flinkish.testing import TestingSink
from flinkish.testing.program import restore_savepoint, take_savepoint
from tests.support.profiles import examples

from .programs import bounded, environment, job_of, list_source, run
from .test_failures import Killed

ANY = Types.PICKLED_BYTE_ARRAY()


class Everything(KeyedProcessFunction):
    """Every kind of state, with and without time-to-live, and timers that are registered, deleted and fire."""

    def open(self, runtime_context: RuntimeContext) -> None:
        expiring = ValueStateDescriptor("expiring", ANY)
        # expired values leave files when these are compacted, and what lies with the task at each barrier
        config = StateTtlConfig.new_builder(Time.milliseconds(3)).disable_cleanup_in_background().build()
        expiring.enable_time_to_live(config)
        self.expiring = runtime_context.get_state(expiring)
        self.count = runtime_context.get_state(ValueStateDescriptor("count", ANY))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", ANY))
        self.by_digit = runtime_context.get_map_state(MapStateDescriptor("by digit", ANY, ANY))
        self.total = runtime_context.get_reducing_state(ReducingStateDescriptor("total", lambda a, b: a + b, ANY))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        _, number, time_ms = value
        before = self.expiring.value()
        self.expiring.update(number)
        self.count.update((self.count.value() or 0) + 1)
        self.total.add(number)
        if number % 7 == 0:
            self.seen.clear()
        elif number % 5 == 0:
            self.seen.update([number])
        else:
            self.seen.add(number)
        if number % 11 == 0:
            self.by_digit.clear()
        elif number % 3 == 0:
            self.by_digit.remove(number % 10)
        else:
            self.by_digit.put(number % 10, time_ms)
        timers = ctx.timer_service()
        timers.register_event_time_timer(time_ms + number % 13)
        if number % 2:
            timers.delete_event_time_timer(time_ms + (number + 1) % 13)
        yield "element", value, before, self.count.value(), self.total.get(), list(self.seen.get()), self._map()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "timer", ctx.get_current_key(), timestamp, self.count.value(), self._map()
        if timestamp % 4 == 0:
            self.count.clear()

    def _map(self) -> list[Any]:
        return list(self.by_digit.items())


def program(seed: int, records: int, **more: Any) -> tuple[JobDescriptor, list[TestingSink]]:
    chance = random.Random(seed)
    values = [(f"user-{chance.randrange(12)}", chance.randrange(1000), serial) for serial in range(records)]
    env = environment()
    sinks = [TestingSink(), TestingSink(), TestingSink()]
    keyed = env.from_source(list_source(values[::2], values[1::2]), bounded(4), "records").key_by(lambda r: r[0])
    keyed.process(Everything()).uid("everything").sink_to(sinks[0])
    keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(9))).reduce(
        lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]))
    ).uid("windows").sink_to(sinks[1])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1], b[2])).uid("sums").sink_to(sinks[2])
    return job_of(env, **more), sinks


class Numbers(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key, the numbers in the window, how many windows of the key have fired)."""

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterator[Any]:
        fired = context.global_state().get_state(ValueStateDescriptor("fired", ANY))
        fired.update((fired.value() or 0) + 1)
        yield key, [number for _, number, _ in elements], fired.value()


class Pair(ProcessJoinFunction):
    """Both numbers."""

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left[0], left[1], right[1]


def windows(seed: int, records: int, **more: Any) -> tuple[JobDescriptor, list[TestingSink]]:
    """Windows of every kind, and an interval join."""
    chance = random.Random(seed)
    values = [(f"user-{chance.randrange(12)}", chance.randrange(1000), serial) for serial in range(records // 2)]
    env = environment()
    sinks = [TestingSink() for _ in range(6)]
    keyed = env.from_source(list_source(values[::2], values[1::2]), bounded(4), "records").key_by(lambda r: r[0])
    sliding = keyed.window(SlidingEventTimeWindows.of(Time.milliseconds(9), Time.milliseconds(4)))
    sliding.max_by(1).uid("sliding").sink_to(sinks[0])
    early = keyed.window(SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10)))
    early = early.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(3)))
    early.process(Numbers()).uid("early").sink_to(sinks[1])
    sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(14))).allowed_lateness(20)
    sessions.process(Numbers()).uid("sessions").sink_to(sinks[2])
    keyed.count_window(3, 2).process(Numbers()).uid("counts").sink_to(sinks[3])
    evicted = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(3))
    evicted.process(Numbers()).uid("evicted").sink_to(sinks[4])
    near = keyed.interval_join(keyed).between(Time.milliseconds(1), Time.milliseconds(15))
    near.process(Pair()).uid("near").sink_to(sinks[5])
    return job_of(env, **more), sinks


class Rates(KeyedBroadcastProcessFunction):
    """Two broadcast states, of which one grows and the other changes as a whole, beside keyed state."""

    GROWING = MapStateDescriptor("growing", ANY, ANY)
    SMALL = MapStateDescriptor("small", ANY, ANY)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", ANY))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        growing, small = ctx.get_broadcast_state(self.GROWING), ctx.get_broadcast_state(self.SMALL)
        yield value, self.count.value(), list(growing.items()), list(small.items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        key, number, _ = value
        growing, small = ctx.get_broadcast_state(self.GROWING), ctx.get_broadcast_state(self.SMALL)
        if number % 17 == 0:
            growing.clear()
        elif number % 5 == 0:
            growing.remove(number // 2 % 40)
        else:
            growing.put(number % 40, f"{key} {number}")
        if number % 3 == 0:
            small.clear()
            small.put("last", number)


class HoldsBack(FlatMapFunction, CheckpointedFunction):
    """Holds some records back in a list, and keeps a union list that only grows and a broadcast state of its own."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.held = store.get_list_state(ListStateDescriptor("held", ANY))
        self.seen = store.get_union_list_state(ListStateDescriptor("seen", ANY))
        self.always = store.get_broadcast_state(MapStateDescriptor("always", ANY, ANY))
        self.buffer = list(self.held.get())

    def flat_map(self, value: Any) -> list[Any]:
        self.buffer.append(value)
        if value[1] % 4 == 0:
            out, self.buffer = self.buffer, []
            return out
        if value[1] % 9 == 0:
            self.seen.add(value)
        self.always.put("greeting", "hello" * 20)
        return []

    def snapshot_state(self, context: Any) -> None:
        self.held.update(self.buffer)


def rules(seed: int, records: int, parallelism: int = 2, **more: Any) -> tuple[JobDescriptor, list[TestingSink]]:
    """Broadcast state and lists of operators, beside keyed state and without any."""
    chance = random.Random(seed)
    values = [(f"user-{chance.randrange(12)}", chance.randrange(1000), serial) for serial in range(records // 2)]
    env = environment(parallelism)
    sinks = [TestingSink(), TestingSink()]
    numbers = env.from_source(list_source(values[::2], values[1::2]), bounded(4), "records").uid("records")
    numbers.set_parallelism(2)
    changes = env.from_source(list_source(values[::-1]), bounded(4), "rules").uid("rules").set_parallelism(1)
    both = numbers.key_by(lambda r: r[0]).connect(changes.broadcast(Rates.GROWING, Rates.SMALL))
    both.process(Rates()).uid("rates").sink_to(sinks[0])
    numbers.rebalance().flat_map(HoldsBack()).uid("holds").sink_to(sinks[1])
    return job_of(env, **more), sinks


def state_of(job: JobDescriptor, store: StateStore) -> list[str]:
    """All rows of a savepoint."""
    stored = [rows_of_task(header, body, store.keyed_state, job.classes) for header, body in store.tasks.values()]
    return sorted(repr(row) for task in stored for columns in task for row in columns.rows())


def referenced(store: StateStore) -> set[str]:
    names: set[str] = set()
    for (vertex, subtask), (_, body) in store.tasks.items():
        keyed = KeyedBody.decode(TaskBody.decode(body).keyed)
        files = keyed.files.names | (keyed.timer_files.names if keyed.timer_files is not None else frozenset())
        operators = StoredOperatorStates({})
        operators.restore(TaskBody.decode(body).operators)
        files |= operators.file_names()
        names |= {f"{vertex}/{subtask}/{name}" for name in files}
    return names


def lying_in(directory: str) -> set[str]:
    return {str(path.relative_to(directory)) for path in Path(directory).rglob("*.arrow")}


class Files:
    """What must lie in a directory of files of state, from epoch to epoch."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._history: list[set[str]] = []

    def check(self) -> None:
        """Nothing that a retained epoch refers to is gone; nothing else stays for longer than it may."""
        self._history.append(referenced(self._store))
        there = lying_in(self._store.keyed_state)
        assert set().union(*self._history[-RETAINED_EPOCHS:]) <= there
        last = RETAINED_EPOCHS + CLEAN_UP_EPOCHS
        young = {
            name for name in there if (epoch_of(name.rpartition("/")[2]) or 0) >= self._store.next_epoch - 1 - last
        }
        assert there <= set().union(*self._history[-last:]) | young


@pytest.mark.parametrize("program", [program, windows, rules])
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 10**6),
    st.integers(3, 12),
    st.integers(0, 120),
    st.sampled_from([0, 300, 2_000]),
    st.sampled_from([1_000, 100_000, DEFAULT_BYTES]),
)
def test_output_and_state_are_the_same_with_state_in_files_whatever_fails(
    tmp_path_factory: pytest.TempPathFactory,
    program: Callable[..., tuple[JobDescriptor, list[TestingSink]]],
    seed: int,
    per_epoch: int,
    records: int,
    inline_bytes: int,
    memory_bytes: int,
) -> None:
    job, expected = program(seed, records)
    plain = StateStore()
    clock = ManualClock()
    cluster = MiniCluster(job, clock, plain, per_epoch)
    while not plain.finished:
        cluster.run_epoch()
        clock.advance(1)

    chance = random.Random(seed)
    job, sinks = program(seed, records, inline_state_bytes=inline_bytes, managed_memory_bytes=memory_bytes)
    store = StateStore(keyed_state=str(tmp_path_factory.mktemp("state")))
    files, clock = Files(store), ManualClock()

    def hook(phase: Phase, details: dict[str, Any]) -> None:
        if phase in (Phase.LEVEL_PROCESSED, Phase.STATE_WRITTEN, Phase.EPOCH_PREPARED) and chance.random() < 0.02:
            raise Killed

    set_hook(hook)
    cluster = MiniCluster(job, clock, store, per_epoch)
    while not store.finished:
        try:
            cluster.run_epoch()
        except Killed:
            continue
        clock.advance(1)
        files.check()
        if chance.random() < 0.2:
            cluster.dispose()
            cluster = MiniCluster(job, clock, store, per_epoch)
    set_hook(None)
    assert [sink.values for sink in sinks] == [sink.values for sink in expected]
    assert state_of(job, store) == state_of(job, plain)
    assert bool(referenced(store)) or inline_bytes or not records


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 10**6),
    st.integers(3, 12),
    st.sampled_from([0, 300, JobSettings().inline_state_bytes]),
    st.integers(0, 12),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_a_savepoint_of_operator_state_in_files_is_that_of_state_with_the_task_at_any_parallelism(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    per_epoch: int,
    inline_bytes: int,
    epochs: int,
    before: int,
    after: int,
) -> None:
    found = []
    for in_files in (False, True):
        folder = str(tmp_path_factory.mktemp("state")) if in_files else ""
        more = {"inline_state_bytes": inline_bytes} if in_files else {}
        job, sinks = rules(seed, 100, before, **more)
        store, clock = StateStore(keyed_state=folder), ManualClock()
        cluster = MiniCluster(job, clock, store, per_epoch)
        cluster.run_epoch()
        for _ in range(epochs):
            if not store.finished:
                cluster.run_epoch()
        cluster.dispose()
        savepoint = take_savepoint(job, store)
        saved = state_of(job, store)
        job, again = rules(seed, 100, after, **more)
        next_store = StateStore(keyed_state=f"{folder}/next" if in_files else "")
        job = restore_savepoint(savepoint, job, {}, False, next_store)
        run(job, per_epoch, store=next_store, restart_every=3)
        outputs = [sorted(map(repr, sink.values)) for sink in (*sinks, *again)]
        found.append((saved, outputs, state_of(job, next_store)))
        if in_files and inline_bytes == 0:
            assert referenced(next_store)
    assert found[0] == found[1]


def test_an_epoch_that_is_replayed_reads_operator_state_from_files_and_leaves_them_as_they_are(tmp_path: Path) -> None:
    job, sinks = rules(1, 100, inline_state_bytes=0)
    store = StateStore(keyed_state=str(tmp_path))
    cluster = MiniCluster(job, ManualClock(), store, 5)
    for _ in range(6):
        cluster.run_epoch()
    before, files = [len(sink.values) for sink in sinks], lying_in(store.keyed_state)
    replayed = replace(store, tasks=dict(store.tasks), offset=copy.deepcopy(store.offset), read_only=True)
    again, same = rules(1, 100, inline_state_bytes=2**62)
    MiniCluster(again, ManualClock(), replayed, 5).run_epoch()
    assert lying_in(store.keyed_state) == files
    cluster.run_epoch()
    assert [sink.values[start:] for sink, start in zip(sinks, before)] == [sink.values for sink in same]
    assert any(sink.values for sink in same)
    assert state_of(again, replayed) == state_of(job, store)
