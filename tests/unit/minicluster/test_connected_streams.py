"""Connected and broadcast streams over many epochs, with several subtasks and new workers in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.time import Duration, Time
from flinkish.common.typeinfo import Types
from flinkish.datastream import (
    BroadcastProcessFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    OnError,
    RuntimeContext,
)
from flinkish.datastream.functions import ProcessJoinFunction
from flinkish.datastream.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.errors import UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.testing import Pause, TestingSink, TestingSource
from tests.support.profiles import examples

from .programs import bounded, environment, job_of, list_source, run

ANY = Types.PICKLED_BYTE_ARRAY()
RULES = MapStateDescriptor("rules", ANY, ANY)

#: (key, number, time)
Event = tuple[str, int, int]


def key_of(value: Event) -> str:
    return value[0]


class Collect(KeyedCoProcessFunction):
    """Collects what both inputs give for a key in 10 ms, and emits it sorted when they have passed on both inputs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.got = runtime_context.get_map_state(MapStateDescriptor("got", ANY, ANY))

    def process_element1(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._take("left", value, ctx)

    def process_element2(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._take("right", value, ctx)

    def _take(self, side: str, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        end = ctx.timestamp() // 10 * 10 + 9
        ctx.timer_service().register_event_time_timer(end)
        self.got.put(end, (*(self.got.get(end) or ()), (side, value[1])))

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp, tuple(sorted(self.got.get(timestamp)))
        self.got.remove(timestamp)


def collected(sides: dict[str, list[Event]]) -> Counter[Any]:
    """What `Collect` must give, however the records of the two inputs follow each other."""
    groups: dict[Any, list[Any]] = {}
    for side, events in sides.items():
        for key, number, time in events:
            groups.setdefault((key, time // 10 * 10 + 9), []).append((side, number))
    return Counter((key, end, tuple(sorted(got))) for (key, end), got in groups.items())


_events = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 6)), max_size=25).map(
    lambda steps: [
        (key, number, sum(gap for _, _, gap in steps[: at + 1])) for at, (key, number, _) in enumerate(steps)
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(_events, _events, st.integers(1, 3), st.integers(1, 12), st.booleans())
def test_two_inputs_are_aligned_in_time_whatever_the_epochs_and_the_parallelism(
    left: list[Event], right: list[Event], parallelism: int, per_epoch: int, restart: bool
) -> None:
    env, sink = environment(parallelism), TestingSink()
    streams = [env.from_source(list_source(events), bounded(0), "s").key_by(key_of) for events in (left, right)]
    streams[0].connect(streams[1]).process(Collect()).sink_to(sink)
    run(job_of(env), per_epoch, restart_every=1 if restart else None)
    assert Counter(sink.values) == collected({"left": left, "right": right})


class Marks(CoProcessFunction):
    """The watermark that each record sees."""

    def process_element1(self, value: Event, ctx: CoProcessFunction.Context) -> Any:
        yield 1, value[-1], ctx.timer_service().current_watermark()

    def process_element2(self, value: Event, ctx: CoProcessFunction.Context) -> Any:
        yield 2, value[-1], ctx.timer_service().current_watermark()


def test_the_watermark_is_the_lower_one_of_both_inputs() -> None:
    env, sink = environment(1), TestingSink()
    fast = list_source([("a", 0, time) for time in (0, 50, 100)])
    slow = list_source([("b", 0, time) for time in (0, 10, 20)], pauses=(1,))
    first, second = (env.from_source(source, bounded(0), "s") for source in (fast, slow))
    first.connect(second).process(Marks()).sink_to(sink)
    run(job_of(env))
    seen = {(number, time): watermark for number, time, watermark in sink.values}
    nothing_yet = -(2**63)
    assert [seen[1, time] for time in (0, 50, 100)] == [nothing_yet] * 3, "nothing is known of the second input"
    assert [seen[2, time] for time in (0, 10, 20)] == [nothing_yet, -1, 9], "the first input is far ahead"


def _with_pauses(times: list[int | None], name: str) -> TestingSource:
    """One record at each time, one an epoch; None is an epoch without a record."""
    return TestingSource.of_splits([Pause(1) if time is None else (name, 0, time) for time in times])


A_TIMES: list[int | None] = [10, 100, 200, 300, 400]
B_TIMES: list[int | None] = [10, None, 20, 150, 160]


@pytest.mark.parametrize("restart_every_epoch", [False, True])
@pytest.mark.parametrize("shuffled", [True, False])
def test_an_idle_input_that_resumes_behind_holds_back_the_other_input(
    shuffled: bool, restart_every_epoch: bool
) -> None:
    env, sink = environment(2), TestingSink()
    strategy = bounded().with_idleness(Duration.of_millis(50))
    sources = _with_pauses(A_TIMES, "a"), _with_pauses(B_TIMES, "b")
    streams = [env.from_source(source, strategy, "s") for source in sources]
    if shuffled:
        streams = [stream.rebalance().map(lambda value: value) for stream in streams]
    keyed = [stream.key_by(lambda value: 0) for stream in streams]
    keyed[0].connect(keyed[1]).process(Marks()).sink_to(sink)
    job, clock, store = job_of(env), ManualClock(), StateStore()
    cluster = MiniCluster(job, clock, store, 1)
    for _ in range(5):
        cluster.run_epoch()
        clock.advance(100)
        if restart_every_epoch:
            cluster.dispose()
            cluster = MiniCluster(job, clock, store, 1)
    cluster.dispose()
    seen = {(number, time): watermark for number, time, watermark in sink.values}
    assert [seen[2, time] for time in (20, 150, 160)] == [99, 99, 149]
    assert [seen[1, time] for time in (300, 400)] == [149, 159], "the input that is behind is read first"


class Times(ProcessJoinFunction):
    def process_element(self, left: Event, right: Event, ctx: ProcessJoinFunction.Context) -> Any:
        yield left[-1], right[-1]


@pytest.mark.parametrize("restart_every_epoch", [False, True])
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(("idle_after_ms", "expected"), [(50, []), (10_000, [(50, 52), (51, 52)])])
def test_if_both_streams_of_an_interval_join_are_idle_what_is_behind_the_faster_one_is_late(
    idle_after_ms: int, expected: list[Any], guarded: bool, restart_every_epoch: bool
) -> None:
    env, sink = environment(2), TestingSink()
    strategy = bounded().with_idleness(Duration.of_millis(idle_after_ms))
    sources = _with_pauses([40, 44, None, 50, 51], "a"), _with_pauses([72, None, None, None, 52], "b")
    first, second = (
        env.from_source(source, strategy, "s").rebalance().map(lambda value: value).key_by(lambda value: 0)
        for source in sources
    )
    joined = first.interval_join(second).between(Time.milliseconds(-5), Time.milliseconds(5)).process(Times())
    (joined.on_error(OnError.skip()) if guarded else joined).sink_to(sink)
    job, clock, store = job_of(env), ManualClock(), StateStore()
    cluster = MiniCluster(job, clock, store, 1)
    for _ in range(5):
        cluster.run_epoch()
        clock.advance(100)
        if restart_every_epoch:
            cluster.dispose()
            cluster = MiniCluster(job, clock, store, 1)
    cluster.dispose()
    assert sorted(sink.values) == expected


class Number(CoMapFunction):
    """Numbers the records of a key over both inputs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", ANY))

    def map1(self, value: Event) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return value[0], self.count.value()

    map2 = map1


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_state_is_shared_by_the_inputs_over_epochs_and_workers(parallelism: int) -> None:
    env, sink = environment(parallelism), TestingSink()
    records = [("abcde"[i % 5], i, i) for i in range(40)]
    sources = [list_source(records[0::4], records[1::4]), list_source(records[2::4], records[3::4])]
    streams = [env.from_source(source, bounded(100), "s") for source in sources]
    streams[0].connect(streams[1]).key_by(key_of, key_of).map(Number()).sink_to(sink)
    run(job_of(env), 6, restart_every=1)
    assert sorted(sink.values) == [(key, number) for key in "abcde" for number in range(1, 9)]


# --- broadcast ------------------------------------------------------------------------------------------------------


class Order(BroadcastProcessFunction[Any, Any, Any]):
    """Each subtask keeps the broadcast elements in the order in which it has seen them; records show it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
        yield "record", self.subtask, value, tuple(ctx.get_broadcast_state(RULES).keys())

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        rules.put(value, len(list(rules)))
        yield "rule", self.subtask, value


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(_events, min_size=1, max_size=3), st.integers(2, 4), st.integers(1, 7), st.booleans(), st.booleans())
def test_all_subtasks_see_the_broadcast_elements_in_one_order(
    splits: list[list[Event]], parallelism: int, per_epoch: int, restart: bool, times: bool
) -> None:
    env, sink = environment(parallelism), TestingSink()
    rules = [[(*event, split, at) for at, event in enumerate(events)] for split, events in enumerate(splits)]
    source = list_source(*[[(k, n, s, at, time) for k, n, time, s, at in events] for events in rules])
    broadcast = env.from_source(source, bounded(5), "rules") if times else env.add_source(source, "rules")
    records = env.from_source(list_source([("x", i, 3 * i) for i in range(20)]), bounded(0), "records")
    function = Order()
    records.rebalance().connect(broadcast.map(lambda v: v).rebalance().map(lambda v: v).broadcast(RULES)).process(
        function
    ).sink_to(sink)
    run(job_of(env), per_epoch, restart_every=1 if restart else None)
    seen: dict[int, list[Any]] = {subtask: [] for subtask in range(parallelism)}
    for kind, subtask, *rest in sink.values:
        if kind == "rule":
            seen[subtask].append(rest[0])
    assert len({tuple(order) for order in seen.values()}) == 1
    assert Counter(seen[0]) == Counter((k, n, s, at, time) for events in rules for k, n, time, s, at in events)
    final: dict[int, int] = {}
    for kind, subtask, *rest in sink.values:
        if kind == "record":
            known = rest[1]
            assert list(known) == seen[subtask][: len(known)], "the state is what was seen so far, in its order"
            assert len(known) >= final.get(subtask, 0)
            final[subtask] = len(known)


class Rated(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Sums per key, in time order: numbers are multiplied by the factor that holds at their time. Rules are
    ``(name, factor, time)``."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", ANY))
        self.waiting = runtime_context.get_map_state(MapStateDescriptor("waiting", ANY, ANY))

    def process_element(self, value: Event, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
        self.waiting.put(value[2], (self.waiting.get(value[2]) or 0) + value[1])
        ctx.timer_service().register_event_time_timer(value[2])

    def process_broadcast_element(self, value: Event, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
        ctx.get_broadcast_state(RULES).put(value[2], value[1])

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        past = [time for time in rules if time <= timestamp]
        factor = rules[max(past)] if past else 1
        self.sum.update((self.sum.value() or 0) + factor * self.waiting.get(timestamp))
        self.waiting.remove(timestamp)
        yield ctx.get_current_key(), timestamp, self.sum.value()


def rated(records: list[Event], rules: list[Event]) -> Counter[Any]:
    """What `Rated` must give."""
    factors = {time: factor for _, factor, time in rules}
    numbers: Counter[tuple[int, str]] = Counter()
    for key, number, time in records:
        numbers[time, key] += number
    sums: dict[str, int] = {}
    results: Counter[Any] = Counter()
    for time, key in sorted({(time, key) for key, _, time in records}):
        past = [at for at in factors if at <= time]
        sums[key] = sums.get(key, 0) + (factors[max(past)] if past else 1) * numbers[time, key]
        results[key, time, sums[key]] += 1
    return results


@settings(max_examples=examples(60), deadline=None)
@given(_events, _events, st.integers(1, 3), st.integers(1, 12), st.booleans())
def test_keyed_state_timers_and_broadcast_state_give_what_a_model_gives(
    records: list[Event], rules: list[Event], parallelism: int, per_epoch: int, restart: bool
) -> None:
    env, sink = environment(parallelism), TestingSink()
    first = env.from_source(list_source(records), bounded(0), "records").key_by(key_of)
    second = env.from_source(list_source(rules), bounded(0), "rules")
    first.connect(second.broadcast(RULES)).process(Rated()).sink_to(sink)
    run(job_of(env), per_epoch, restart_every=1 if restart else None)
    assert Counter(sink.values) == rated(records, rules)


def test_a_failed_epoch_leaves_broadcast_state_as_it_was() -> None:
    class Fails(Order):
        def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
            ctx.get_broadcast_state(RULES).put(value, 1)
            if value[1] == 3 and not failed:
                failed.append(value)
                raise ValueError("once")

    failed: list[Any] = []
    env, sink = environment(2), TestingSink()
    rules = env.from_source(list_source([("r", i, i) for i in range(6)]), bounded(0), "rules")
    records = env.from_source(list_source([("x", i, i) for i in range(40)]), bounded(0), "records").rebalance()
    records.connect(rules.broadcast(RULES)).process(Fails()).sink_to(sink)
    store, raised = StateStore(), 0
    job = job_of(env)
    while not store.finished:
        cluster = MiniCluster(job, ManualClock(), store, 2)
        try:
            cluster.run_epoch()
        except UserCodeError as error:
            raised += 1
            assert "Co-Process-Broadcast" in str(error) and "input 2" in str(error)
        cluster.dispose()
    assert raised == 1
    last = [value[-1] for value in sink.values][-1]
    assert last == tuple(("r", i, i) for i in range(6))


def test_a_silent_stream_of_rules_holds_event_time_back_until_it_is_idle_and_again_when_it_speaks() -> None:
    env, sink = environment(2), TestingSink()
    records = env.from_source(list_source([("a", 1, 10 * i) for i in range(40)], endless=True), bounded(0), "records")
    # the second rule comes in the 25th epoch, for a time that is not reached yet
    rules = list_source([("r", 5, 3)], [("r", 7, 10_000)], pauses=(0, 24), endless=True)
    silent = env.from_source(rules, bounded(0).with_idleness(Duration.of_millis(100)), "rules")
    records.key_by(key_of).connect(silent.broadcast(RULES)).process(Rated()).sink_to(sink)
    clock = ManualClock(1_000)
    cluster = MiniCluster(job_of(env), clock, StateStore(), 1)
    seen = []
    for _ in range(30):
        cluster.run_epoch()
        seen.append(len(sink.values))
        clock.advance(10)
    cluster.dispose()
    assert seen[9] <= 1, "90 ms of silence are not enough"
    assert seen[11] >= 10, "an idle stream of rules holds nothing back"
    assert sink.values[:3] == [("a", 0, 1), ("a", 10, 6), ("a", 20, 11)]
    assert seen[29] > seen[20] > seen[11]
