"""A backfill in one epoch gives what many small epochs, a plain model and a job that was restarted give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Time
from flinkish.common.typeinfo import Types
from flinkish.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.functions import ProcessWindowFunction
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.testing import TestingSink, TestingSource
from tests.support.profiles import examples
from tests.support.window_model import AlignedModel, Element, Watermark

from .programs import bounded, environment, job_of, list_source, run

LATE = OutputTag("late")

#: (key, serial number, event time)
records = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 1_000_000), st.integers(0, 300)), max_size=60)
Records = list[tuple[str, int, int]]


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window().start, tuple(elements)


def windows(
    env: StreamExecutionEnvironment, source: TestingSource, delay_ms: int, lateness_ms: int, **kwargs: Any
) -> Any:
    fired, late = TestingSink(), TestingSink()
    stream = env.from_source(source, bounded(delay_ms), "records")
    windowed = (
        stream.key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
        .allowed_lateness(lateness_ms)
        .side_output_late_data(LATE)
        .process(Contents())
    )
    windowed.sink_to(fired)
    windowed.get_side_output(LATE).sink_to(late)
    return job_of(env, **kwargs), fired, late


def model_of(values: Records, delay_ms: int, lateness_ms: int) -> AlignedModel:
    """A watermark rises behind every record, as Flink's punctuated generators let it."""
    model = AlignedModel(20, 20, 0, lateness_ms)
    events: list[Any] = []
    highest = -1
    for record in values:
        events.append(Element(record[0], record, record[2]))
        highest = max(highest, record[2])
        events.append(Watermark(highest - delay_ms - 1))
    model.run([*events, Watermark(2**63 - 1)])
    return model


@settings(max_examples=examples(60), deadline=None)
@given(records, st.integers(0, 60), st.integers(0, 60), st.sampled_from([1, 3, 7, 1000]), st.sampled_from([None, 1, 4]))
def test_windows_over_one_split_are_those_of_the_model_in_any_number_of_epochs(
    values: Records, delay_ms: int, lateness_ms: int, per_epoch: int, restart_every: int | None
) -> None:
    values = [(key, serial, time) for serial, (key, _, time) in enumerate(values)]
    job, fired, late = windows(environment(), list_source(values), delay_ms, lateness_ms)
    run(job, per_epoch, restart_every=restart_every)
    model = model_of(values, delay_ms, lateness_ms)
    assert Counter(fired.values) == Counter((f.key, f.start, f.elements) for f in model.fired)
    assert Counter(late.values) == Counter(e.value for e in model.late)


@settings(max_examples=examples(40), deadline=None)
@given(records, st.sampled_from([1, 3, 7]), st.integers(1, 9), st.sampled_from([1, 2, 5]))
def test_the_size_of_batches_and_buffers_changes_nothing(
    values: Records, batch: int, buffer: int, parallelism: int
) -> None:
    values = [(key, serial, time) for serial, (key, _, time) in enumerate(values)]
    job, fired, late = windows(
        environment(parallelism), list_source(values), 10, 15, source_batch_size=batch, buffer_max_records=buffer
    )
    run(job, 11)
    model = model_of(values, 10, 15)
    assert Counter(fired.values) == Counter((f.key, f.start, f.elements) for f in model.fired)
    assert Counter(late.values) == Counter(e.value for e in model.late)


@settings(max_examples=examples(80), deadline=None)
@given(
    records, st.integers(1, 4), st.sampled_from([1, 2, 5, 1000]), st.lists(st.integers(0, 3), min_size=4, max_size=4)
)
def test_several_splits_lose_nothing_as_long_as_each_keeps_to_the_bound(
    values: Records, splits: int, per_epoch: int, pauses: list[int]
) -> None:
    """Each split is in order; they start in different epochs and go at different speeds."""
    values = sorted(((k, serial, t) for serial, (k, _, t) in enumerate(values)), key=lambda r: r[2])
    parts = [values[i::splits] for i in range(splits)]
    job, fired, late = windows(environment(), list_source(*parts, pauses=tuple(pauses[:splits])), 0, 0)
    run(job, per_epoch)
    expected: dict[tuple[str, int], set[Any]] = {}
    for record in values:
        expected.setdefault((record[0], record[2] // 20 * 20), set()).add(record)
    assert late.values == []
    assert len(fired.values) == len(expected)
    assert {(key, start): set(elements) for key, start, elements in fired.values} == expected


@settings(max_examples=examples(60), deadline=None)
@given(records, st.sampled_from([1, 4, 1000]), st.integers(0, 2), st.booleans())
def test_a_stream_united_with_parts_of_itself_and_another_source_loses_nothing(
    values: Records, per_epoch: int, pause: int, chaining: bool
) -> None:
    values = sorted(((k, serial, t) for serial, (k, _, t) in enumerate(values)), key=lambda r: r[2])
    env, sink = environment(), TestingSink()
    one = env.from_source(list_source(values), bounded(), "one")
    two = env.from_source(list_source(values[::2], values[1::2], pauses=(pause, 0)), bounded(), "two")
    even = one.filter(lambda r: r[1] % 2 == 0)
    odd = one.filter(lambda r: r[1] % 2 == 1)
    united = one.union(even, odd, two).key_by(lambda r: r[0])
    united.window(TumblingEventTimeWindows.of(Time.milliseconds(20))).process(Contents()).sink_to(sink)
    run(job_of(env, chaining), per_epoch)
    counted = Counter(record for _, _, elements in sink.values for record in elements)
    assert counted == Counter(dict.fromkeys(values, 3))
    places = [(key, start) for key, start, _ in sink.values]
    assert len(places) == len(set(places))


class Session(KeyedProcessFunction):
    """Counts records until 10 ms after the last one; a timer ends it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.end = runtime_context.get_state(ValueStateDescriptor("end", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        time = ctx.timestamp()
        if time <= ctx.timer_service().current_watermark():
            yield "late", value
            return
        end = self.end.value()
        if end is None or time + 10 > end:
            if end is not None:
                ctx.timer_service().delete_event_time_timer(end)
            self.end.update(time + 10)
            ctx.timer_service().register_event_time_timer(time + 10)
        self.count.update((self.count.value() or 0) + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), self.end.value(), self.count.value(), timestamp
        self.count.clear()
        self.end.clear()


def session_model(values: Records, delay_ms: int) -> list[Any]:
    results: list[Any] = []
    state: dict[str, list[int]] = {}
    highest, watermark = -1, -(2**63)

    def rise(to: int) -> None:
        for key in sorted(state, key=lambda k: state[k][0]):
            if state[key][0] <= to:
                end, count = state.pop(key)
                results.append((key, end, count, end))

    for key, serial, time in values:
        if time <= watermark:
            results.append(("late", (key, serial, time)))
        else:
            session = state.setdefault(key, [time + 10, 0])
            session[0] = max(session[0], time + 10)
            session[1] += 1
        highest = max(highest, time)
        if highest - delay_ms - 1 > watermark:
            watermark = highest - delay_ms - 1
            rise(watermark)
    rise(2**63 - 1)
    return results


@settings(max_examples=examples(60), deadline=None)
@given(records, st.integers(0, 40), st.sampled_from([1, 2, 5, 1000]), st.sampled_from([None, 1, 3]))
def test_event_time_timers_fire_at_their_place_in_any_number_of_epochs(
    values: Records, delay_ms: int, per_epoch: int, restart_every: int | None
) -> None:
    values = [(key, serial, time) for serial, (key, _, time) in enumerate(values)]
    env, sink = environment(2), TestingSink()
    env.from_source(list_source(values), bounded(delay_ms), "s").key_by(lambda r: r[0]).process(Session()).sink_to(sink)
    run(job_of(env), per_epoch, restart_every=restart_every)
    assert Counter(sink.values) == Counter(session_model(values, delay_ms))


@settings(max_examples=examples(60), deadline=None)
@given(records, st.sampled_from([1, 4, 1000]), st.sampled_from([1, 3]), st.booleans())
def test_three_keyed_operators_in_a_row_with_union_side_output_and_three_sinks(
    values: Records, per_epoch: int, parallelism: int, chaining: bool
) -> None:
    values = [(key, serial % 7, time) for serial, (key, _, time) in enumerate(sorted(values, key=lambda r: r[2]))]
    env = environment(parallelism)
    all_of, sums, extremes = TestingSink(), TestingSink(), TestingSink()
    stream = env.from_source(list_source(values[::2], values[1::2]), bounded(), "records")
    stream.sink_to(all_of)
    windowed = (
        stream.key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
        .reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
    )
    again = windowed.union(windowed.map(lambda r: (r[0], -r[1], r[2]))).key_by(lambda r: r[1] % 3)
    totals = again.window(TumblingEventTimeWindows.of(Time.milliseconds(40))).reduce(
        lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]))
    )
    totals.sink_to(sums)
    totals.key_by(lambda r: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(80))).reduce(
        lambda a, b: a if a[2] >= b[2] else b
    ).map(lambda r: r[2]).sink_to(extremes)
    run(job_of(env, chaining), per_epoch)
    assert Counter(all_of.values) == Counter(values)
    first: dict[Any, tuple[int, int]] = {}
    for key, number, time in values:
        total, latest = first.get((key, time // 20), (0, 0))
        first[key, time // 20] = (total + number, max(latest, time))
    second: dict[Any, tuple[int, int]] = {}
    for (_, window), (total, latest) in first.items():
        for value in (total, -total):
            before = second.get((value % 3, window // 2), (0, 0))
            second[value % 3, window // 2] = (before[0] + value, max(before[1], latest))
    assert Counter((v[1], v[2]) for v in sums.values) == Counter(second.values())
    third: dict[int, int] = {}
    for (_, window), (_, latest) in second.items():
        third[window // 2] = max(third.get(window // 2, 0), latest)
    assert sorted(extremes.values) == sorted(third.values())


@pytest.mark.parametrize("chaining", [True, False])
@pytest.mark.parametrize("per_epoch", [1, 1000])
def test_the_results_of_a_window_are_in_time_for_the_next_one(chaining: bool, per_epoch: int) -> None:
    values = [("a", 1, t) for t in range(0, 200, 5)]
    env, sink = environment(), TestingSink()
    (
        env.from_source(list_source(values), bounded(), "s")
        .key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
        .reduce(lambda a, b: (a[0], a[1] + b[1], b[2]))
        .map(lambda r: r)
        .key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        .reduce(lambda a, b: (a[0], a[1] + b[1], b[2]))
        .sink_to(sink)
    )
    run(job_of(env, chaining), per_epoch)
    assert sink.values == [("a", 20, 95), ("a", 20, 195)]
