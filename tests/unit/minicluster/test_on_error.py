"""``on_error``: a record that fails is skipped or a dead letter, and counted; how many may fail is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Row, Time, Types
from flinkish.common.accumulators import IntCounter
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.datastream import (
    AsyncDataStream,
    AsyncFunction,
    DeadLetter,
    OnError,
    OutputTag,
    RuntimeExecutionMode,
)
from flinkish.datastream.functions import (
    CoMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from flinkish.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from flinkish.errors import ErrorBudgetError, OperationError, ProgramError
from flinkish.minicluster import StateStore
from flinkish.runtime.job.accumulators import counts_of, results_of
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.support.functions import AtTimestamp, Unprintable
from tests.support.profiles import examples

from .dead_letters import DEAD, LOOSE, results, stream_of
from .programs import bounded, environment, job_of, run


def invert(value: int) -> float:
    return 1 / value


def test_a_record_that_fails_becomes_a_dead_letter_that_says_all_about_it() -> None:
    env = environment(1)
    stream = stream_of(env, [1, 0, 2]).key_by(lambda v: v % 2).map(Inverts()).uid("invert").on_error(LOOSE)
    main, dead = results(stream)
    run(job_of(env))
    assert sorted(main.values) == [0.5, 1.0]
    (letter,) = dead.values
    assert isinstance(letter, DeadLetter)
    assert letter[:3] == (0, "ZeroDivisionError", "division by zero")
    assert "return 1 / value" in letter.traceback
    assert (letter.operator_uid, letter.key, letter.timestamp, letter.epoch) == ("invert", 0, None, 0)
    assert not letter.is_timer


def test_a_dead_letter_of_an_exception_that_has_no_text_says_so() -> None:
    def fail(value: Any) -> Any:
        raise Unprintable

    env = environment(1)
    _, dead = results(stream_of(env, [1]).map(fail).on_error(LOOSE))
    run(job_of(env))
    (letter,) = dead.values
    assert letter[:2] == (1, "Unprintable") and "__str__ or __repr__ raised RuntimeError" in letter[2]
    assert "raise Unprintable" in letter.traceback


def test_a_dead_letter_has_the_record_as_it_was_before_the_call() -> None:
    env = environment(1)
    stream = stream_of(env, [("a", [1]), ("b", {"numbers": [1, 2]})])
    main, dead = results(stream.map(spoil).on_error(LOOSE))
    _, dead_calls = results(AsyncDataStream.ordered_wait(stream, Spoils(), Time.seconds(30)).on_error(LOOSE))
    run(job_of(env))
    assert not main.values
    for letters in (dead.values, dead_calls.values):
        assert [letter.record for letter in letters] == [("a", [1]), ("b", {"numbers": [1, 2]})]


def spoil(record: Any) -> Any:
    inner = record[1]
    (inner if isinstance(inner, list) else inner["numbers"]).clear()
    raise ValueError("spoilt")


class Spoils(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [spoil(value)]


class Inverts(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        pass

    def map(self, value: int) -> float:
        return 1 / value


def test_dead_letters_of_a_declared_type_are_rows() -> None:
    env = environment(1)
    tag = OutputTag("dead", DeadLetter.type_info(Types.INT()))
    stream = stream_of(env, [1, 0]).map(invert).on_error(OnError.dead_letter(tag))
    _, dead = results(stream, tag)
    run(job_of(env))
    (letter,) = dead.values
    assert isinstance(letter, Row)
    assert (letter.record, letter.error_type, letter.is_timer) == (0, "ZeroDivisionError", False)


def test_what_is_skipped_is_counted_and_nothing_else_is_lost() -> None:
    env, store = environment(1), StateStore()
    stream = stream_of(env, [1, 0, 2, 0]).map(invert).uid("invert").on_error(OnError.skip())
    main, _ = results(stream, None)
    run(job_of(env), store=store)
    assert main.values == [1.0, 0.5]
    assert counts_of(store.accumulators)["invert"] == {
        "numRecordsIn": 4,
        "numRecordsConsumed": 2,
        "numRecordsSkipped": 2,
        "numTimersFailed": 0,
    }


def test_a_result_that_does_not_fit_the_declared_type_is_a_failure_of_the_operator_that_gave_it() -> None:
    env = environment(1)
    stream = stream_of(env, [1, "x", 2]).map(lambda v: v, Types.INT()).on_error(LOOSE)
    main, dead = results(stream)
    run(job_of(env))
    assert main.values == [1, 2]
    assert [letter.error_type for letter in dead.values] == ["TypeMismatchError"]


@pytest.mark.parametrize("chaining", [True, False])
def test_an_operator_is_not_blamed_for_the_one_behind_it(chaining: bool) -> None:
    env = environment(1)
    results(stream_of(env, [1, 0]).map(lambda v: v).on_error(LOOSE))
    env = environment(1)
    stream = stream_of(env, [1, 0]).map(lambda v: v).uid("before").on_error(LOOSE)
    main, dead = results(stream)
    stream.map(invert).uid("behind").print()
    with pytest.raises(ProgramError, match="ZeroDivisionError.*uid behind"):
        run(job_of(env, chaining))
    assert not dead.values


@pytest.mark.parametrize("chaining", [True, False])
def test_each_of_two_chained_operators_has_its_own_dead_letters(chaining: bool) -> None:
    env, store = environment(1), StateStore()
    second = OutputTag("second")
    first = stream_of(env, ["1", "x", "0"]).map(int).uid("parse").on_error(LOOSE)
    _, dead = results(first)
    inverted = first.map(invert).uid("invert").on_error(OnError.dead_letter(second))
    main, dead2 = results(inverted, second)
    run(job_of(env, chaining), store=store)
    assert main.values == [1.0]
    assert [letter.record for letter in dead.values] == ["x"]
    assert [letter.record for letter in dead2.values] == [0]
    counts = counts_of(store.accumulators)
    assert [counts[uid]["numRecordsIn"] for uid in ("parse", "invert")] == [3, 2]


# -------------------------------------------------------------------------------------------------- other operators


class Both(CoMapFunction):
    def map1(self, value: int) -> Any:
        return 1 / value

    def map2(self, value: int) -> Any:
        return int(value)


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: s.map(invert),
    "keyed map": lambda s: s.key_by(lambda v: v % 2).map(invert),
    "flat_map": lambda s: s.flat_map(lambda v: [1 / v]),
    "lazy flat_map": lambda s: s.flat_map(lambda v: (x / v for x in (0, 1) if x / v)),
    "filter": lambda s: s.filter(invert),
    "co_map": lambda s: s.connect(s.filter(lambda v: False)).map(Both()),
    "reduce": lambda s: s.key_by(lambda v: v).reduce(lambda a, b: a / b),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("per_epoch", [1, 3, 100])
def test_every_operator_that_calls_a_function_per_record_may_have_it(name: str, per_epoch: int) -> None:
    env = environment(1)
    values = [1, 0, 2, 0, 4]
    stream = OPERATORS[name](stream_of(env, values)).on_error(LOOSE)
    main, dead = results(stream)
    run(job_of(env), per_epoch)
    failed = 1 if name == "reduce" else 2
    assert len(main.values) == 5 - failed
    assert [letter.record for letter in dead.values] == [0] * failed


@pytest.mark.parametrize("per_epoch", [1, 100])
def test_a_reduce_in_batch_mode_gives_the_final_result_of_the_records_that_did_not_fail(per_epoch: int) -> None:
    env = environment(1)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    values = [("a", 8), ("a", 0), ("b", 5), ("a", 2), ("b", 0)]
    reduced = stream_of(env, values).key_by(lambda v: v[0]).reduce(lambda a, b: (a[0], a[1] // b[1]))
    main, dead = results(reduced.on_error(LOOSE))
    run(job_of(env), per_epoch, restart_every=1)
    assert main.values == [("a", 4), ("b", 5)]
    assert [letter.record for letter in dead.values] == [("a", 0), ("b", 0)]


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
@pytest.mark.parametrize("per_epoch", [1, 2, 100])
def test_a_rolling_sum_goes_on_without_the_records_that_cannot_be_added(
    mode: RuntimeExecutionMode, per_epoch: int
) -> None:
    env = environment(1)
    env.set_runtime_mode(mode)
    values: list[Any] = [("a", 1), ("a", "x"), ("b",), ("a", 2), ("b", 5), ("a", None), ("b", 1)]
    main, dead = results(stream_of(env, values).key_by(lambda v: v[0]).sum(1).on_error(LOOSE))
    run(job_of(env), per_epoch, restart_every=1)
    rolling = [("a", 1), ("a", 3), ("b", 5), ("b", 6)]
    assert main.values == (rolling if mode is RuntimeExecutionMode.STREAMING else [("a", 3), ("b", 6)])
    assert [(letter.record, letter.error_type) for letter in dead.values] == [
        (("a", "x"), "TypeError"),
        (("b",), "TypeMismatchError"),
        (("a", None), "TypeError"),
    ]


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "source": (lambda s: s, "a source reads"),
    "batches": (
        lambda s: s.map(lambda v: v, Types.INT()).map_batches(lambda batch: batch, Types.INT()),
        "many records at once",
    ),
    "watermarks": (lambda s: s.assign_timestamps_and_watermarks(bounded()), "no place in time"),
    "union": (lambda s: s.union(s), "no operator's output"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_that_cannot_have_it_refuses(name: str) -> None:
    make, why = REFUSED[name]
    with pytest.raises(ProgramError, match=why):
        make(stream_of(environment(1), [1])).on_error(OnError.skip())


def test_dead_letters_that_nobody_reads_are_refused_when_the_job_is_submitted() -> None:
    env = environment(1)
    stream_of(env, [1]).map(invert).uid("invert").on_error(LOOSE).print()
    with pytest.raises(ProgramError, match=r"nobody reads the dead letters.*uid invert.*get_side_output"):
        job_of(env)


@pytest.mark.parametrize("wrong", [{"max_failures": 0}, {"max_failures": 1.5}, {"max_rate": 0.6}, {"max_rate": "x"}])
def test_a_budget_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=next(iter(wrong))):
        OnError.skip(**wrong)
    with pytest.raises(ProgramError, match="OutputTag"):
        OnError.dead_letter("dead")  # type: ignore[arg-type]


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abx"), st.integers(0, 40)), max_size=40),
    st.integers(1, 40),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
)
def test_every_record_is_in_a_window_late_or_a_dead_letter(
    values: list[Any], per_epoch: int, restart_every: int | None, sessions: bool
) -> None:
    """In = consumed + late + dead letters, over two operators: one in which records fail, and windows behind it."""
    env, store, in_windows = environment(2), StateStore(), TestingSink()

    def known(value: Any) -> Any:
        return {"a": 1, "b": 2}[value[0]], 1, value[-1]

    checked = stream_of(env, values, times=True).map(known).uid("check").on_error(LOOSE)
    _, dead = results(checked)
    assigner: Any = EventTimeSessionWindows.with_gap(Time.milliseconds(2))
    if not sessions:
        assigner = TumblingEventTimeWindows.of(Time.milliseconds(5))
    counted = checked.key_by(lambda v: v[0]).window(assigner).reduce(lambda a, b: (a[0], a[1] + b[1], b[2]))
    counted.uid("windows").sink_to(in_windows)
    run(job_of(env), per_epoch, store=store, restart_every=restart_every)
    counts = counts_of(store.accumulators)
    late = counts.get("windows", {}).get("numLateRecordsDropped", 0)
    assert sum(count for _, count, _ in in_windows.values) + late + len(dead.values) == len(values)
    if values:
        assert counts["check"]["numRecordsIn"] == len(values)
        assert counts["check"]["numDeadLetters"] == sum(1 for key, _ in values if key == "x") == len(dead.values)


# -------------------------------------------------------------------------------------------------- the budget


@pytest.mark.parametrize(
    ("per_epoch", "restart_every"),
    [
        (1, 1),
        (7, None),
        (1000, None),
        *(pytest.param(*way, marks=pytest.mark.nightly) for way in [(1, None), (7, 1), (1000, 1)]),
    ],
)
@pytest.mark.parametrize(("max_failures", "max_rate", "fails_at"), [(3, 0.0, 30), (3, 0.1, None), (3, 0.05, 40)])
def test_the_budget_is_the_same_whatever_the_size_of_epochs(
    per_epoch: int, restart_every: int | None, max_failures: int, max_rate: float, fails_at: int | None
) -> None:
    """Every tenth record fails, from the first one on."""
    env, store = environment(1), StateStore()
    values = [0 if i % 10 == 0 else i for i in range(200)]
    stream = stream_of(env, [(i, v) for i, v in enumerate(values)]).map(lambda pair: (pair[0], 1 / pair[1]))
    main, dead = results(stream.uid("invert").on_error(OnError.dead_letter(DEAD, max_failures, max_rate)))
    if fails_at is None:
        run(job_of(env), per_epoch, store=store, restart_every=restart_every)
        assert len(dead.values) == 20
        return
    with pytest.raises(ErrorBudgetError) as failure:
        run(job_of(env), per_epoch, store=store, restart_every=restart_every)
    error = failure.value
    assert "too many calls of the function fail, the last one with ZeroDivisionError" in error.what
    assert (
        "(uid invert)" in error.where and "key None" in error.where and f"epoch {fails_at // per_epoch}" in error.where
    )
    assert "1 / pair[1]" in error.user_traceback
    assert not error.retryable
    assert all(letter.record[0] < fails_at for letter in dead.values)


def test_errors_of_the_environment_are_no_poison() -> None:
    def unreachable(value: int) -> int:
        raise OperationError("the server is away")

    env = environment(1)
    results(stream_of(env, [1]).map(unreachable).on_error(LOOSE))
    with pytest.raises(OperationError, match="the server is away"):
        run(job_of(env))


class Counts(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls = IntCounter()
        runtime_context.add_accumulator("calls", self.calls)

    def map(self, value: int) -> float:
        self.calls.add(1)
        return 1 / value


def test_accumulators_of_failed_calls_count() -> None:
    env, store = environment(1), StateStore()
    results(stream_of(env, [1, 0, 2]).map(Counts()).on_error(LOOSE))
    run(job_of(env), store=store)
    assert results_of(store.accumulators) == {"calls": 3}


class FailsByTheClock(KeyedProcessFunction):
    """Its timers of processing time raise for every second key; the tag of the dead letters is its own as well."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_processing_time_timer(1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield DEAD, (ctx.get_current_key(), timestamp)
        if ctx.get_current_key() % 2:
            raise ValueError("odd")


def test_what_timers_of_processing_time_give_has_no_timestamp_dead_letters_included() -> None:
    env = environment(1)
    stream = stream_of(env, [0, 1, 2, 3], times=False).key_by(lambda v: v).process(FailsByTheClock())
    sink = TestingSink()
    stream.on_error(LOOSE).get_side_output(DEAD).process(AtTimestamp()).sink_to(sink)
    run(job_of(env), clock=ManualClock(1_000))
    letters = [value for value, _ in sink.values if isinstance(value, DeadLetter)]
    assert sorted(value for value, _ in sink.values if not isinstance(value, DeadLetter)) == [(0, 1), (2, 1)]
    assert sorted((letter.key, letter.timestamp) for letter in letters) == [(1, 1), (3, 1)]
    assert {timestamp for _, timestamp in sink.values} == {MIN_TIMESTAMP_MS}
