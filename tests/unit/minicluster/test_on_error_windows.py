"""``on_error`` of windows, joins and asynchronous calls: only what has failed is missing, and it is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Time, Types
from flinkish.datastream import AsyncDataStream, OnError, OutputTag
from flinkish.datastream.functions import (
    AsyncFunction,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from flinkish.datastream.state import ListStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from flinkish.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from flinkish.errors import ErrorBudgetError, ProgramError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.accumulators import counts_of
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.state.state_rows import WATERMARK
from flinkish.testing import TestingSink
from flinkish.testing.program import take_savepoint
from tests.support.functions import ListOf
from tests.support.profiles import examples

from .dead_letters import DEAD, LOOSE, results, stream_of
from .programs import environment, job_of, run

SIDE = OutputTag("side")
MS = Time.milliseconds
ASSIGNERS: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: TumblingEventTimeWindows.of(MS(5)),
    "sliding": lambda: SlidingEventTimeWindows.of(MS(6), MS(2)),
    "sessions": lambda: EventTimeSessionWindows.with_gap(MS(2)),
}


class PoisonedList(ListOf):
    """Changes its accumulator, then raises for records that say so."""

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        super().add(value[:2], accumulator)
        if value[2]:
            raise ValueError(value)
        return accumulator


class Everything(ProcessWindowFunction[Any, Any, Any, Any]):
    """Writes to state, emits to both outputs, then raises for each third window; ``model``: leaves that one out."""

    def __init__(self, model: bool, merging: bool, fails_in_clear: bool = False) -> None:
        self.model, self.merging, self.fails_in_clear = model, merging, fails_in_clear
        self.seen = ListStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY())
        self.fired = ValueStateDescriptor("fired", Types.LONG())

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        fails = sum(element[1] for element in elements) % 3 == 0
        if fails and self.model:
            return
        seen = context.global_state().get_list_state(self.seen)
        seen.add(context.window().start)
        fired = 0
        if not self.merging:
            state = context.window_state().get_state(self.fired)
            fired = (state.value() or 0) + 1
            state.update(fired)
        yield SIDE, (key, context.window().start)
        context.output(OutputTag("other"), (key, fired))
        yield key, context.window().start, sorted(elements), repr(seen.get()), fired
        if fails:
            raise ValueError("each third window")

    def clear(self, context: Any) -> None:
        if not self.merging:
            context.window_state().get_state(self.fired).clear()
        if self.fails_in_clear:
            raise ValueError("clear")


def windows(
    function: Any,
    records: list[Any],
    assigner: str,
    lateness_ms: int,
    per_epoch: int,
    restart_every: int | None,
    passes: Callable[[Any], bool] = lambda value: True,
) -> tuple[list[Any], list[Any], list[Any], dict[str, int]]:
    env, store, side, other = environment(2), StateStore(), TestingSink(), TestingSink()
    keyed = stream_of(env, records, times=True).filter(passes).key_by(lambda v: v[0])
    windowed = keyed.window(ASSIGNERS[assigner]()).allowed_lateness(lateness_ms)
    if isinstance(function, ProcessWindowFunction):
        stream = windowed.process(function)
    else:
        stream = windowed.aggregate(function, AsItIs())
    main, dead = results(stream.uid("windows").on_error(LOOSE))
    stream.get_side_output(SIDE).sink_to(side)
    stream.get_side_output(OutputTag("other")).sink_to(other)
    run(job_of(env), per_epoch, store=store, restart_every=restart_every)
    counts = counts_of(store.accumulators).get("windows", {})
    return sorted(main.values), sorted(side.values) + sorted(other.values), dead.values, counts


class AsItIs(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        return [(key, context.window().start, sorted(element)) for element in elements]


RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.booleans(), st.integers(0, 25)), max_size=25)
HOW = (RECORDS, st.sampled_from(sorted(ASSIGNERS)), st.sampled_from([0, 4]), st.integers(1, 30))


@settings(max_examples=examples(40), deadline=None)
@given(*HOW, st.sampled_from([None, 1, 2]))
def test_records_that_fail_are_in_no_window_and_all_others_are_consumed_or_late(
    records: list[Any], assigner: str, lateness_ms: int, per_epoch: int, restart_every: int | None
) -> None:
    """In = consumed + late + dead letters. The model is the same program without the records that fail."""
    how = assigner, lateness_ms, per_epoch, restart_every
    found, _, dead, counts = windows(PoisonedList(), records, *how)
    model, _, none, _ = windows(PoisonedList(), records, *how, passes=lambda value: not value[2])
    assert (found, none) == (model, [])
    assert all(letter.record[2] and not letter.is_timer for letter in dead)
    late = counts.get("numLateRecordsDropped", 0)
    if records:
        assert counts["numRecordsIn"] == len(records)
        assert counts["numRecordsConsumed"] + late + counts["numDeadLetters"] == len(records)
        assert counts["numDeadLetters"] == len(dead)
    if lateness_ms == 0 and assigner != "sliding":
        assert sum(len(elements) for _, _, elements in found) == counts.get("numRecordsConsumed", 0)


@settings(max_examples=examples(40), deadline=None)
@given(*HOW, st.sampled_from([None, 1, 2]))
def test_windows_that_fail_leave_nothing_behind_but_dead_letters(
    records: list[Any], assigner: str, lateness_ms: int, per_epoch: int, restart_every: int | None
) -> None:
    merging = assigner == "sessions"
    how = assigner, 0, per_epoch, restart_every
    found, sides, dead, counts = windows(Everything(False, merging), records, *how)
    model, model_sides, none, model_counts = windows(Everything(True, merging), records, *how)
    assert (found, sides, none) == (model, model_sides, [])
    for letter in dead:
        assert (letter.record, letter.is_timer, letter.operator_uid) == (None, True, "windows")
        assert letter.key in ("a", "b")
        assert letter.window.endswith(f"end={letter.timestamp + 1})")
    assert counts.get("numTimersFailed", 0) == len(dead)
    assert counts.get("numRecordsConsumed") == model_counts.get("numRecordsConsumed")


@pytest.mark.parametrize("fails_in_clear", [False, True])
@pytest.mark.parametrize("assigner", sorted(ASSIGNERS))
def test_a_window_that_fails_at_its_end_leaves_no_state(assigner: str, fails_in_clear: bool) -> None:
    env, store = environment(1), StateStore()
    records = [("a", 3, False, 1), ("a", 30, False, 2), ("b", 1, False, 40)]
    windowed = stream_of(env, records, times=True).key_by(lambda v: v[0]).window(ASSIGNERS[assigner]())
    function = Everything(False, assigner == "sessions", fails_in_clear)
    main, dead = results(windowed.process(function).uid("windows").on_error(LOOSE))
    job = job_of(env)
    run(job, 1, store=store)
    assert dead.values
    assert {value[0] for value in main.values if isinstance(value[0], str)} <= ({"a"} if fails_in_clear else {"b"})
    # the state of the key is there, and nothing of its windows
    assert {row.state for row in take_savepoint(job, store).rows("windows") if row.kind != WATERMARK} <= {"seen"}


class Fickle(Trigger[Any, Any]):
    """Fires with each second record, by its own state; then raises for records that say so, and for some timers."""

    def __init__(self) -> None:
        self.count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        ctx.register_event_time_timer(timestamp + 1)
        ctx.register_event_time_timer(window.max_timestamp())
        if element[2]:
            raise ValueError(element)
        if count.get() == 2:
            count.clear()
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        if time % 2:
            ctx.register_event_time_timer(time + 1)
            ctx.get_partitioned_state(self.count).add(5)
            raise ValueError(time)
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None:
        pass

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.count).clear()


def test_a_trigger_that_fails_has_changed_neither_its_state_nor_its_timers() -> None:
    env = environment(1)
    records = [("a", 1, False, 1), ("a", 2, True, 2), ("a", 3, False, 5), ("a", 4, False, 7), ("b", 0, False, 50)]
    keyed = stream_of(env, records, times=True).key_by(lambda v: v[0])
    windowed = keyed.window(TumblingEventTimeWindows.of(MS(100))).trigger(Fickle())
    main, dead = results(windowed.aggregate(PoisonedOnly()).on_error(LOOSE))
    run(job_of(env))
    # record 3 is the second one; the timer at 2 purges; that at 8 finds 4; 2 has left no timer at 3
    assert main.values == [[1, 3], [1, 3], [4]]
    assert [letter.record for letter in dead.values if not letter.is_timer] == [("a", 2, True, 2)]
    timers = [(letter.key, letter.timestamp) for letter in dead.values if letter.is_timer]
    assert timers == [("b", 51), ("a", 99), ("b", 99)]


class PoisonedOnly(ListOf):
    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        return super().add(value[1], accumulator)


class AllOf(ProcessAllWindowFunction[Any, Any, Any]):
    def process(self, context: Any, elements: Iterable[Any]) -> Any:
        yield sum(1 / element[1] for element in elements)


def inverse(a: Any, b: Any) -> Any:
    return a[0], b[1] // b[1], b[2]


PAIRS = [("a", 1, 1), ("a", 0, 2), ("a", 4, 3)]


@pytest.mark.parametrize("per_epoch", [1, 100])
def test_every_kind_of_window_may_have_it(per_epoch: int) -> None:
    kinds: dict[str, tuple[Callable[[Any], Any], int, int]] = {
        # (how, results, dead letters)
        "window_all": (lambda s: s.window_all(TumblingEventTimeWindows.of(MS(9))).process(AllOf()), 0, 1),
        "count": (lambda s: s.key_by(lambda v: v[0]).count_window(2).reduce(inverse), 1, 1),
        "count_all": (lambda s: s.count_window_all(2).reduce(inverse), 1, 1),
        "global": (
            lambda s: (
                s.key_by(lambda v: v[0]).window(GlobalWindows.create()).trigger(CountTrigger.of(1)).reduce(inverse)
            ),
            2,
            1,
        ),
        "evicted": (
            lambda s: (
                s.key_by(lambda v: v[0])
                .window(TumblingEventTimeWindows.of(MS(9)))
                .evictor(CountEvictor.of(1))
                .process(Inverses())
            ),
            1,
            0,
        ),
        "processing time": (
            lambda s: s.key_by(lambda v: v[0]).window(TumblingProcessingTimeWindows.of(MS(9))).reduce(inverse),
            0,
            1,
        ),
    }
    for name, (how, consumed, failed) in kinds.items():
        env = environment(1)
        main, dead = results(how(stream_of(env, PAIRS, times=True)).uid("windows").on_error(LOOSE))
        run(job_of(env), per_epoch)
        assert (name, len(main.values), len(dead.values)) == (name, consumed, failed)


class Inverses(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        return [1 / element[1] for element in elements]


class Divides(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any:
        ctx.output(SIDE, left)
        yield left[1], right[1]
        if right[1] == 0:
            raise ValueError("zero")


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.tuples(st.just("k"), st.integers(0, 3), st.integers(0, 12)), max_size=12),
    st.lists(st.tuples(st.just("k"), st.integers(0, 3), st.integers(0, 12)), max_size=12),
    st.integers(1, 30),
    st.sampled_from([None, 1]),
)
def test_a_pair_of_an_interval_join_that_fails_takes_the_record_that_came_last_with_it(
    left: list[Any], right: list[Any], per_epoch: int, restart_every: int | None
) -> None:
    env, store, side = environment(1), StateStore(), TestingSink()
    streams = [stream_of(env, sorted(values, key=lambda v: v[2]), times=True) for values in (left, right)]
    streams[1].uid("right")
    by_key = [stream.key_by(lambda v: v[0]) for stream in streams]
    joined = by_key[0].interval_join(by_key[1]).between(MS(-2), MS(2)).process(Divides()).uid("join").on_error(LOOSE)
    main, dead = results(joined)
    joined.get_side_output(SIDE).sink_to(side)
    run(job_of(env), per_epoch, store=store, restart_every=restart_every)
    assert all(pair[1] for pair in main.values)
    assert len(side.values) == len(main.values)
    counts = counts_of(store.accumulators).get("join", {})
    assert counts.get("numDeadLetters", 0) == len(dead.values)
    if left or right:
        late = counts.get("numLateRecordsDropped", 0)
        assert counts["numRecordsIn"] == len(left) + len(right)
        assert counts["numRecordsConsumed"] + late + len(dead.values) == len(left) + len(right)
    failed = [letter.record for letter in dead.values]
    kept = [[v for v in values if (index, v) not in failed] for index, values in enumerate((left, right))]
    expected = [(one[1], two[1]) for one in kept[0] for two in kept[1] if abs(one[2] - two[2]) <= 2]
    if all(len(set(values)) == len(values) for values in (left, right)):
        assert sorted(main.values) == sorted(expected)


@pytest.mark.parametrize("kind", ["join", "co_group"])
def test_a_window_of_a_join_that_fails_names_its_key(kind: str) -> None:
    env = environment(1)
    left, right = (stream_of(env, [("a", 0, 1), ("b", 1, 2)], times=True) for _ in range(2))
    right.uid("right")
    both = getattr(left, kind)(right).where(lambda v: v[0]).equal_to(lambda v: v[0])
    windowed = both.window(TumblingEventTimeWindows.of(MS(10)))
    if kind == "join":
        stream = windowed.apply(lambda a, b: a[1] // b[1])
    else:
        stream = windowed.apply(lambda first, second: [a[1] // b[1] for a in first for b in second])
    main, dead = results(stream.on_error(LOOSE))
    run(job_of(env))
    assert main.values == [1]
    (letter,) = dead.values
    assert (letter.key, letter.window, letter.error_type) == ("a", "TimeWindow(start=0, end=10)", "ZeroDivisionError")


# -------------------------------------------------------------------------------------------------- asynchronous calls


class Asks(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        value.append("changed")
        await asyncio.sleep(0.001 * (value[0] % 3))
        if value[0] % 4 == 1:
            raise ValueError(value[0])
        if value[0] % 4 == 2:
            await asyncio.sleep(60)
        return [value[0]]

    def timeout(self, value: Any) -> list[Any]:
        value.append("changed")
        return super().timeout(value)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("per_epoch", [1, 5, 100])
def test_calls_that_fail_or_time_out_become_dead_letters(ordered: bool, per_epoch: int) -> None:
    env, store = environment(1), StateStore()
    records = stream_of(env, [[n] for n in range(12)])
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    main, dead = results(wait(records, Asks(), Time.milliseconds(150), 4).uid("ask").on_error(LOOSE))
    run(job_of(env), per_epoch, store=store, restart_every=2)
    in_order = main.values if ordered else sorted(main.values)
    assert in_order == [n for n in range(12) if n % 4 in (0, 3)]
    letters = {letter.record[0]: letter.error_type for letter in dead.values}
    assert all(len(letter.record) == 1 for letter in dead.values)
    assert letters == {n: "ValueError" if n % 4 == 1 else "TimeoutError" for n in range(12) if n % 4 in (1, 2)}
    counts = counts_of(store.accumulators)["ask"]
    assert (counts["numRecordsIn"], counts["numRecordsConsumed"], counts["numDeadLetters"]) == (12, 6, 6)


def test_a_call_whose_result_does_not_fit_its_type_fails_alone() -> None:
    class Echo(AsyncFunction[Any, Any]):
        async def async_invoke(self, value: Any) -> list[Any]:
            return [value]

    env = environment(1)
    stream = AsyncDataStream.ordered_wait(stream_of(env, [1, "x", 2]), Echo(), Time.seconds(60), 4, Types.INT())
    main, dead = results(stream.on_error(LOOSE))
    run(job_of(env))
    assert main.values == [1, 2]
    assert [letter.record for letter in dead.values] == ["x"]


def test_more_failing_calls_and_windows_than_the_budget_allows_fail_the_job() -> None:
    strict = OnError.dead_letter(DEAD, max_failures=1, max_rate=0)
    env = environment(1)
    results(AsyncDataStream.ordered_wait(stream_of(env, [[1], [5]]), Asks(), Time.seconds(60)).on_error(strict))
    with pytest.raises(ErrorBudgetError, match="ValueError: 5"):
        run(job_of(env))
    env = environment(1)
    windowed = stream_of(env, PAIRS[1:2] + [("b", 0, 5)], times=True).key_by(lambda v: v[0])
    results(windowed.window(TumblingEventTimeWindows.of(MS(2))).process(Inverses()).on_error(strict))
    with pytest.raises(ErrorBudgetError, match="ZeroDivisionError"):
        run(job_of(env))


def test_an_operator_behind_windows_answers_for_its_own_errors() -> None:
    env = environment(1)
    windowed = stream_of(env, PAIRS, times=True).key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(MS(1)))
    guarded = windowed.reduce(lambda a, b: b).on_error(LOOSE)
    _, dead = results(guarded)
    guarded.map(lambda v: 1 / v[1]).uid("behind").print()
    with pytest.raises(ProgramError, match="ZeroDivisionError.*uid behind"):
        run(job_of(env))
    assert not dead.values


@pytest.mark.parametrize("assigner", sorted(ASSIGNERS))
@pytest.mark.parametrize("guarded_first", [False, True])
def test_a_program_may_get_on_error_or_lose_it_between_two_runs(assigner: str, guarded_first: bool) -> None:
    values = [("ab"[n % 2], 1, n * 7 % 40) for n in range(30)]

    def job(guarded: bool) -> tuple[Any, TestingSink]:
        env, sink = environment(1), TestingSink()
        windowed = stream_of(env, values, times=True).key_by(lambda v: v[0]).window(ASSIGNERS[assigner]())
        summed = windowed.allowed_lateness(5).reduce(lambda a, b: (a[0], a[1] + b[1], b[2])).uid("windows")
        (summed.on_error(OnError.skip()) if guarded else summed).sink_to(sink)
        return job_of(env), sink

    def results_of(first: bool, then: bool) -> list[Any]:
        store, found = StateStore(), []
        before, sink = job(first)
        cluster = MiniCluster(before, ManualClock(), store, 7)
        cluster.run(max_epochs=2)
        cluster.dispose()
        found += sink.values
        behind, sink = job(then)
        run(behind, 7, store=store)
        return sorted(found + sink.values)

    assert results_of(guarded_first, not guarded_first) == results_of(False, False)
