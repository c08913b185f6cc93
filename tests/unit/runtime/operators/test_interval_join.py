"""The interval join against two nested loops: pairs, order, late records, and what is left in the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.co_functions import ProcessJoinFunction
from flinkish.core.functions import OutputTag, RuntimeContext
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.errors import ProgramError
from flinkish.runtime.operators.interval_join import IntervalJoinFactory
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness, StreamRecord

SEEN = OutputTag("seen")
LATE = ("late left", "late right")


class Pair(ProcessJoinFunction):
    """(left, right) with both times; pairs of the same time also go to a side output."""

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left, right, ctx.get_left_timestamp(), ctx.get_right_timestamp()
        if ctx.get_left_timestamp() == ctx.get_right_timestamp():
            ctx.output(SEEN, ctx.get_timestamp())


def key_of(tagged: Any) -> Any:
    """Records are (key, number)."""
    return tagged[1][0]


def harness_of(
    lower_ms: int, upper_ms: int, body: bytes | None = None, function: Any = None, tags: Any = LATE
) -> KeyedOneInputStreamOperatorTestHarness:
    factory = IntervalJoinFactory(function or Pair(), lower_ms, upper_ms, tags)
    return KeyedOneInputStreamOperatorTestHarness(factory, key_of, side_outputs=("seen", *LATE), restored=body)


steps = st.one_of(
    st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(0, 30)),
    st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(0, 30)),
    st.tuples(st.integers(0, 30)),
)


@given(st.integers(-6, 6), st.integers(0, 8), st.lists(steps, max_size=40), st.integers(0, 40))
def test_pairs_are_those_of_two_nested_loops_also_across_a_restart(
    lower_ms: int, width_ms: int, events: list[Any], restart_at: int
) -> None:
    """Events are (side, key, time), or (watermark,)."""
    upper_ms = lower_ms + width_ms
    harness = harness_of(lower_ms, upper_ms)
    watermark = -(2**63)
    kept: list[tuple[int, str, int, int]] = []
    expected: list[Any] = []
    late: tuple[list[Any], list[Any]] = ([], [])
    found: list[Any] = []
    found_late: tuple[list[Any], list[Any]] = ([], [])

    def take() -> None:
        found.extend(tuple(event) for event in harness.take_output() if isinstance(event, StreamRecord))
        for side, tag in enumerate(LATE):
            found_late[side].extend(harness.take_side_output(tag))

    for number, event in enumerate([*events, (MAX_WATERMARK_MS,)]):
        if number == restart_at:
            take()
            body = harness.snapshot()
            harness = harness_of(lower_ms, upper_ms, body)
        if len(event) == 1:
            if event[0] > watermark:
                watermark = event[0]
                harness.process_watermark(watermark)
            continue
        side, key, time_ms = event
        harness.process_element((side, (key, number)), time_ms)
        if time_ms < watermark:
            late[side].append(((key, number), time_ms))
            continue
        matches = [other for other in kept if other[0] != side and other[1] == key]
        for _, _, other_ms, other in sorted(matches, key=lambda record: record[2]):
            left_ms, right_ms = (other_ms, time_ms) if side else (time_ms, other_ms)
            if left_ms + lower_ms <= right_ms <= left_ms + upper_ms:
                pair = ((key, other), (key, number)) if side else ((key, number), (key, other))
                expected.append(((*pair, left_ms, right_ms), max(left_ms, right_ms)))
        kept.append((side, key, time_ms, number))
    take()
    assert found == expected
    assert found_late == late
    assert harness.snapshot().keyed_state is None


def test_a_record_right_at_the_watermark_is_not_late_and_meets_what_lies_right_at_the_bound() -> None:
    with harness_of(0, 5) as harness:
        harness.process_element((0, ("a", 1)), 0)
        harness.process_watermark(5)
        harness.process_element((1, ("a", 2)), 5)
        assert harness.take_values() == [(("a", 1), ("a", 2), 0, 5)]
        harness.process_watermark(6)
        harness.process_element((1, ("a", 3)), 6)
        assert harness.take_values() == []


def test_late_records_without_a_side_output_are_counted() -> None:
    with harness_of(0, 5, tags=(None, None)) as harness:
        harness.process_watermark(10)
        harness.process_elements([(0, ("a", 1)), (1, ("a", 2)), (0, ("a", 3)), (1, ("a", 4))], [9, 8, 10, 10])
        assert harness.take_values() == [(("a", 3), ("a", 4), 10, 10)]
        assert harness.get_side_output("seen") == [(10, 10)]
        assert harness.metrics.snapshot()["numLateRecordsDropped"] == 2


def test_the_function_is_opened_and_closed_and_may_return_nothing() -> None:
    calls: list[str] = []

    class Silent(ProcessJoinFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            calls.append("open")

        def close(self) -> None:
            calls.append("close")

        def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> None:
            calls.append(f"{left[1]}-{right[1]}")

    with harness_of(0, 5, function=Silent()) as harness:
        harness.process_elements([(0, ("a", 1)), (1, ("a", 2)), (1, ("b", 3))], [0, 5, 5])
        assert harness.take_output() == []
    assert calls == ["open", "1-2", "close"]


@pytest.mark.parametrize("timestamps", [None, [-(2**63)]])
def test_a_record_without_timestamp_is_refused(timestamps: Any) -> None:
    with pytest.raises(ProgramError, match="did you forget to call assign_timestamps_and_watermarks"):
        harness_of(0, 5).process_elements([(0, ("a", 1))], timestamps)
