"""GROUP BY with a window, on columns."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.errors import ProgramError
from flinkish.runtime.columns.described import AggregateCall, WindowAssigner
from flinkish.runtime.columns.windows import WindowFactory
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.keyed_body import KeyedBody
from tests.support.column_operators import Driven, batch_of
from tests.support.profiles import examples

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("ms")), ("amount", pa.float64())])
CALLS = (
    AggregateCall("COUNT", "n", None, pa.int64()),
    AggregateCall("SUM", "total", "amount", pa.float64()),
    AggregateCall("MAX", "most", "amount", pa.float64()),
)
NEVER = -(1 << 62)
WINDOWS = {
    "TUMBLE": WindowAssigner("TUMBLE", 10, time="ts"),
    "TUMBLE with an offset": WindowAssigner("TUMBLE", 10, offset_ms=3, time="ts"),
    "HOP": WindowAssigner("HOP", 10, 5, time="ts"),
    "HOP, uneven": WindowAssigner("HOP", 10, 4, time="ts"),
    "HOP with gaps": WindowAssigner("HOP", 4, 10, time="ts"),
    "CUMULATE": WindowAssigner("CUMULATE", 12, 4, time="ts"),
}


def windows_of(window: WindowAssigner, time: int) -> list[tuple[int, int]]:
    """The windows that hold a time, one by one."""
    size, step, offset = window.size_ms, window.step_ms or window.size_ms, window.offset_ms
    if window.kind == "CUMULATE":
        start = time - (time - offset) % size
        return [(start, start + end) for end in range(step, size + 1, step) if start + end > time]
    last = time - (time - offset) % step
    return [(start, start + size) for start in range(last, time - size, -step) if start + size > time]


class Model:
    """The rows one by one."""

    def __init__(self, window: WindowAssigner) -> None:
        self.window, self.open, self.late, self.watermark = window, dict[Any, dict[Any, list[Any]]](), 0, NEVER

    def row(self, user: Any, time: int, amount: Any) -> None:
        windows = windows_of(self.window, time)
        if windows and all(end - 1 <= self.watermark for _, end in windows):
            self.late += 1
        for window in windows:
            if window[1] - 1 > self.watermark:
                found = self.open.setdefault(window, {}).setdefault(user, [0, None, None])
                found[0] += 1
                if amount is not None:
                    found[1] = amount if found[1] is None else found[1] + amount
                    found[2] = amount if found[2] is None else max(found[2], amount)

    def rise(self, watermark: int) -> list[tuple[Any, ...]]:
        self.watermark = watermark
        fired = []
        for window in sorted(self.open, key=lambda one: (one[1], one[0])):
            if window[1] - 1 <= watermark:
                fired += [(0, user, *found, *window, window[1] - 1) for user, found in self.open.pop(window).items()]
        return fired


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None, "c"]), st.integers(-15, 60), st.sampled_from([None, 0.1, 0.7, 1e15, 3.0])
    ),
    max_size=12,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("rise"), st.integers(1, 12)),
        st.tuples(st.just("barrier"), st.sampled_from([0, 1, 2, 3])),
    ),
    max_size=14,
)


@pytest.mark.parametrize("name", WINDOWS)
@given(steps=STEPS, parallelism=st.integers(1, 2))
@settings(max_examples=examples(25), deadline=None)
def test_windows_are_those_of_the_rows_one_by_one(name: str, steps: list[Any], parallelism: int) -> None:
    window = WINDOWS[name]
    model, driven = Model(window), Driven(WindowFactory(("user",), CALLS, window, SCHEMA), parallelism)
    watermark, dropped = -10, 0
    # of merged slices, and of rescaled subtasks, keys come in another order
    ordered = parallelism == 1 and name.startswith("TUMBLE")
    for what, how in [*steps, ("rise", MAX_WATERMARK_MS)]:
        if what == "rows":
            if not name.startswith("TUMBLE"):
                # sums of slices are added up in another order
                how = [(user, time, amount and float(round(amount))) for user, time, amount in how]
            driven.feed(batch_of(SCHEMA, how))
            for row in how:
                model.row(*row)
        elif what == "barrier":
            dropped += 0 if how == 0 else driven.late()
            ordered = ordered and how < 2
            driven.barrier(restore=how > 0, parallelism=how or None)
        else:
            watermark = min(watermark + how, MAX_WATERMARK_MS)
            driven.watermark(watermark)
            expected, found = model.rise(watermark), driven.take()
            if not ordered:
                expected, found = sorted(expected, key=repr), sorted(found, key=repr)
            assert found == expected
    assert dropped + driven.late() == model.late


class SessionModel:
    """Sessions, row by row."""

    def __init__(self, gap: int) -> None:
        self.gap, self.open, self.late, self.watermark = gap, list[list[Any]](), 0, NEVER

    def row(self, user: Any, time: int, amount: Any) -> None:
        start, end, found = time, time + self.gap, [0, None, None]
        joined = [one for one in self.open if one[0] == user and one[1] <= end and start <= one[2]]
        if not joined and end - 1 <= self.watermark:
            self.late += 1
            return
        for one in joined:
            self.open.remove(one)
            start, end = min(start, one[1]), max(end, one[2])
            found = merged(found, one[3])
        amounts = [1, amount, amount]
        self.open.append([user, start, end, merged(found, amounts)])

    def rise(self, watermark: int) -> list[tuple[Any, ...]]:
        self.watermark = watermark
        fired = [one for one in self.open if one[2] - 1 <= watermark]
        self.open = [one for one in self.open if one[2] - 1 > watermark]
        return [(0, user, *found, start, end, end - 1) for user, start, end, found in fired]


def merged(one: list[Any], other: list[Any]) -> list[Any]:
    """The results over the rows of both."""
    sums = [x for x in (one[1], other[1]) if x is not None]
    most = [x for x in (one[2], other[2]) if x is not None]
    return [one[0] + other[0], sum(sums) if sums else None, max(most, default=None)]


@given(steps=STEPS, parallelism=st.integers(1, 2))
@settings(max_examples=examples(60), deadline=None)
def test_sessions_are_those_of_the_rows_one_by_one(steps: list[Any], parallelism: int) -> None:
    window = WindowAssigner("SESSION", 5, time="ts")
    model, driven = SessionModel(5), Driven(WindowFactory(("user",), CALLS, window, SCHEMA), parallelism)
    watermark, dropped = -10, 0
    for what, how in [*steps, ("rise", MAX_WATERMARK_MS)]:
        if what == "rows":
            # sums of sessions that are merged are added up in another order
            how = [(user, time, amount and float(round(amount))) for user, time, amount in how]
            driven.feed(batch_of(SCHEMA, how))
            for row in how:
                model.row(*row)
        elif what == "barrier":
            dropped += 0 if how == 0 else driven.late()
            driven.barrier(restore=how > 0, parallelism=how or None)
        else:
            watermark = min(watermark + how, MAX_WATERMARK_MS)
            driven.watermark(watermark)
            assert sorted(driven.take(), key=repr) == sorted(model.rise(watermark), key=repr)
    assert dropped + driven.late() == model.late


COUNT = (AggregateCall("COUNT", "n", None, pa.int64()),)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (WindowAssigner("TUMBLE", 10), [(0, "a", 2, 0, 10, 9), (0, "a", 1, 20, 30, 29)]),
        (
            WindowAssigner("HOP", 20, 10),
            [(0, "a", 2, -10, 10, 9), (0, "a", 2, 0, 20, 19), (0, "a", 1, 10, 30, 29), (0, "a", 1, 20, 40, 39)],
        ),
        (WindowAssigner("SESSION", 10), [(0, "a", 2, 4, 15, 14), (0, "a", 1, 20, 30, 29)]),
    ],
    ids=lambda value: value.kind if isinstance(value, WindowAssigner) else "",
)
def test_windows_of_processing_time_fire_by_the_clock(window: WindowAssigner, expected: list[Any]) -> None:
    driven = Driven(WindowFactory(("user",), COUNT, window, SCHEMA))
    for time in range(4, 60):
        driven.time(time)
        if time in (4, 5, 20):
            driven.feed(batch_of(SCHEMA, [("a", 0, None)]))
        if time % 3 == 0:
            driven.barrier()
    assert driven.take() == expected
    assert WindowFactory(("user",), COUNT, window, SCHEMA).uses_processing_time


HOUR = 3_600_000


def moment(text: str) -> int:
    """The milliseconds of a time with its offset."""
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def local(text: str) -> int:
    """The milliseconds of a local time."""
    return moment(f"{text}+00:00")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # the clock goes back from 3:00 to 2:00: that hour is there twice, and its window fires after the second one
        (
            ["2021-10-31T01:30:00+02:00", "2021-10-31T02:30:00+02:00", "2021-10-31T02:30:00+01:00"],
            [
                ("2021-10-31T01:00:00", 1, "2021-10-31T01:59:59.999+02:00"),
                ("2021-10-31T02:00:00", 2, "2021-10-31T02:59:59.999+01:00"),
            ],
        ),
        # the clock goes forward from 2:00 to 3:00
        (
            ["2021-03-28T01:30:00+01:00", "2021-03-28T03:30:00+02:00"],
            [
                ("2021-03-28T01:00:00", 1, "2021-03-28T01:59:59.999+01:00"),
                ("2021-03-28T03:00:00", 1, "2021-03-28T03:59:59.999+02:00"),
            ],
        ),
    ],
    ids=["back", "forward"],
)
def test_windows_begin_in_the_local_time_of_their_zone(times: list[str], expected: list[Any]) -> None:
    schema = pa.schema([("ts", pa.timestamp("ms", "UTC"))])
    driven = Driven(WindowFactory((), COUNT, WindowAssigner("TUMBLE", HOUR, time="ts", zone="Europe/Berlin"), schema))
    driven.feed(batch_of(schema, [(moment(time),) for time in times]))
    for start, count, last in expected:
        driven.watermark(moment(last) - 1)
        assert driven.take() == []
        driven.watermark(moment(last))
        begin = local(start)
        assert driven.take() == [(0, count, begin, begin + HOUR, begin + HOUR - 1)]


@pytest.mark.parametrize("name", [*WINDOWS, "SESSION"])
def test_windows_that_are_not_used_leave_the_memory(name: str, tmp_path: Path) -> None:
    window = WINDOWS.get(name, WindowAssigner("SESSION", 5, time="ts"))
    factory, rng = WindowFactory(("user",), CALLS, window, SCHEMA), random.Random(name)
    plain, driven = Driven(factory), Driven(factory, directory=StateDirectory(str(tmp_path)))
    fired = 0
    for step in range(40):
        rows = [(rng.choice("abcdefgh"), step * 3 + rng.randrange(-6, 40), rng.choice([0.5, 2.0])) for _ in range(5)]
        for one in (plain, driven):
            one.feed(batch_of(SCHEMA, rows))
            one.watermark(step * 3)
        expected = plain.take()
        fired += len(expected)
        assert sorted(driven.take(), key=repr) == sorted(expected, key=repr)
        backend = driven.harnesses[0].backend
        assert backend is not None
        backend.release()
        if step % 4 == 0:
            backend.spill()
        if step % 7 == 0:
            driven.barrier(restore=step % 2 == 0)
    assert fired > 30
    if name != "SESSION":
        backend = driven.harnesses[0].backend
        driven.watermark(MAX_WATERMARK_MS)
        driven.barrier(restore=False)
        assert driven.harnesses[0].num_keyed_state_entries("aggregates") == 0


def test_the_state_of_a_window_is_that_of_a_row_operator() -> None:
    driven = Driven(WindowFactory(("user",), COUNT, WINDOWS["TUMBLE"], SCHEMA))
    driven.feed(batch_of(SCHEMA, [("a", 12, 1.0), ("b", 15, 1.0), ("a", 3, 1.0)]))
    snapshot = driven.harnesses[0].snapshot()
    assert snapshot.keyed_state is not None
    body = KeyedBody.decode(snapshot.keyed_state)
    rows = {
        (namespace, key): row.as_dict()
        for namespace, (keys, values) in body.states["aggregates"].present.items()
        for key, row in zip(keys, values, strict=True)
    }
    assert rows == {((10, 20), "a"): {"n": 1}, ((10, 20), "b"): {"n": 1}, ((0, 10), "a"): {"n": 1}}
    # by a timer for each window the task knows that it waits
    assert body.timers["window-timers"].runs == {"EVENT_TIME": [(9, (0, 10), ["a"]), (19, (10, 20), ["a"])]}


def test_a_row_without_a_time_is_an_error() -> None:
    driven = Driven(WindowFactory(("user",), COUNT, WINDOWS["TUMBLE"], SCHEMA))
    with pytest.raises(ProgramError, match="the event time 'ts' of a row is NULL.*uid tested"):
        driven.feed(batch_of(SCHEMA, [("a", None, 1.0)]))
