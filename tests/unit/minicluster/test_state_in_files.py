"""Whether keyed state lies with the task or in files must not matter: random programs with every kind of state, epochs
that fail, workers that come and go, much memory and next to none; and files that nobody needs any more go."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.common.typeinfo import Types
from flinkish.datastream import KeyedProcessFunction, ProcessWindowFunction, RuntimeContext
from flinkish.datastream.functions import ProcessJoinFunction
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
from flinkish.runtime.clock import ManualClock
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.phases import Phase, set_hook
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.retention import epoch_of
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.managed_memory import DEFAULT_BYTES
from flinkish.runtime.state.stored_columns import stored_rows
from flinkish.runtime.state.task_body import TaskBody
from flinkish.runtime.task import CLEAN_UP_EPOCHS, RETAINED_EPOCHS
from flinkish.testing import TestingSink

from .programs import bounded, environment, job_of, list_source
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


def state_of(job: JobDescriptor, store: StateStore) -> list[str]:
    """All entries of keyed state."""
    found = []
    for (vertex, subtask), (_, body) in store.tasks.items():
        path = os.path.join(store.keyed_state, str(vertex), str(subtask))
        directory = StateDirectory(path) if store.keyed_state else None
        found += [repr((vertex, row)) for row in stored_rows(TaskBody.decode(body).keyed, directory)]
    return sorted(found)


def referenced(store: StateStore) -> set[str]:
    names: set[str] = set()
    for (vertex, subtask), (_, body) in store.tasks.items():
        keyed = KeyedBody.decode(TaskBody.decode(body).keyed)
        files = keyed.files.names | (keyed.timer_files.names if keyed.timer_files is not None else frozenset())
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


@pytest.fixture(autouse=True)
def _no_hook() -> Iterator[None]:
    yield
    set_hook(None)


@pytest.mark.parametrize("program", [program, windows])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
