"""Where watermarks stand between the records of a batch: only where one is needed, whatever the size of batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import ProgramError
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksOperator


class Recorder:
    """An output that notes records, and rising watermarks as ("watermark", ms)."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.watermark_ms = MIN_TIMESTAMP_MS

    def collect(self, values: list[Any], timestamps: list[int]) -> None:
        assert len(values) == len(timestamps) > 0
        self.seen.extend(timestamps)

    def emit_watermark(self, watermark_ms: int) -> None:
        if watermark_ms > self.watermark_ms:
            self.watermark_ms = watermark_ms
            self.seen.append(("watermark", watermark_ms))

    emit_interim_watermark = emit_watermark


def operator(bound_ms: int, interval_ms: int | None = None, before_next: bool = False, every_records: int = 0) -> Any:
    made: Any = TimestampsAndWatermarksOperator(
        lambda value, _: value, bound_ms, interval_ms, before_next, every_records
    )
    made.output, made.context = Recorder(), SimpleNamespace(name="x", uid="u")
    return made


def as_the_rules_say(batches: list[list[int]], bound_ms: int, interval_ms: int | None, before_next: bool) -> list[Any]:
    """Record by record, as the module of the operator says it."""
    seen: list[Any] = []
    reached_ms = emitted_ms = MIN_TIMESTAMP_MS
    for batch in batches:
        before_ms = reached_ms
        for position, timestamp in enumerate(batch):
            behind = timestamp <= reached_ms + before_next
            entered = interval_ms and position and reached_ms // interval_ms != before_ms // interval_ms
            if (behind or entered) and reached_ms > emitted_ms:
                emitted_ms = reached_ms
                seen.append(("watermark", emitted_ms))
            seen.append(timestamp)
            before_ms, reached_ms = reached_ms, max(reached_ms, timestamp - bound_ms - 1, MIN_TIMESTAMP_MS)
        if reached_ms > emitted_ms:
            emitted_ms = reached_ms
            seen.append(("watermark", emitted_ms))
    return seen


TIMES = st.one_of(
    st.integers(-50, 400), st.integers(-2000, 4000), st.sampled_from([MIN_TIMESTAMP_MS, MIN_TIMESTAMP_MS + 5])
)


@given(
    st.lists(st.lists(TIMES, min_size=1, max_size=30), max_size=4),
    st.integers(0, 60),
    st.sampled_from([None, 1, 7, 200]),
    st.booleans(),
)
def test_watermarks_stand_where_the_rules_say(
    batches: list[list[int]], bound_ms: int, interval_ms: int | None, before_next: bool
) -> None:
    made = operator(bound_ms, interval_ms, before_next)
    for batch in batches:
        made.process_batch(list(batch), None)
    assert made.output.seen == as_the_rules_say(batches, bound_ms, interval_ms, before_next)


def _records_and_what_is_late(seen: list[Any]) -> list[tuple[int, bool]]:
    found, watermark_ms = [], MIN_TIMESTAMP_MS
    for one in seen:
        if isinstance(one, tuple):
            assert one[1] > watermark_ms
            watermark_ms = one[1]
        else:
            found.append((one, one <= watermark_ms))
    return found


@given(
    st.lists(st.lists(TIMES, min_size=1, max_size=30), max_size=6),
    st.integers(0, 60),
    st.booleans(),
    st.integers(2, 100),
)
def test_records_are_late_alike_where_watermarks_come_less_often(
    batches: list[list[int]], bound_ms: int, before_next: bool, every_records: int
) -> None:
    often, seldom = operator(bound_ms, None, before_next), operator(bound_ms, None, before_next, every_records)
    for batch in batches:
        for made in (often, seldom):
            made.process_batch(list(batch), None)
    for made in (often, seldom):
        made.snapshot_state()
    assert _records_and_what_is_late(often.output.seen) == _records_and_what_is_late(seldom.output.seen)
    watermarks = [[one for one in made.output.seen if isinstance(one, tuple)] for made in (often, seldom)]
    assert set(watermarks[1]) <= set(watermarks[0])
    assert watermarks[1][-1:] == watermarks[0][-1:]


def test_watermarks_come_when_enough_records_came_and_at_the_end_of_a_split_and_an_epoch() -> None:
    made = operator(0, every_records=4)
    for first in (0, 10, 20):
        made.process_batch([first, first + 1], None)
    assert made.output.seen == [0, 1, 10, 11, ("watermark", 10), 20, 21]
    made.end_split()
    assert made.output.seen[-1] == ("watermark", 20)
    made.process_batch([30], None)
    made.snapshot_state()
    assert made.output.seen[-2:] == [30, ("watermark", 29)]
    made.process_batch([40], None)
    made.process_batch([50], None)
    made.process_watermark(MAX_WATERMARK_MS)
    made.snapshot_state()
    assert made.output.seen[-4:] == [40, ("watermark", 39), 50, ("watermark", MAX_WATERMARK_MS)]


def test_the_ends_of_time_are_timestamps_and_a_bound_may_be_as_long_as_time() -> None:
    made = operator(0)
    made.process_batch([MIN_TIMESTAMP_MS, MAX_WATERMARK_MS, 0], None)
    last = ("watermark", MAX_WATERMARK_MS - 1)
    assert made.output.seen == [MIN_TIMESTAMP_MS, MAX_WATERMARK_MS, last, 0]
    made = operator(MAX_WATERMARK_MS)
    made.process_batch([5, -5], None)
    assert made.output.seen[:2] == [5, -5]


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1])
def test_a_timestamp_beyond_64_bits_is_an_error_that_names_it(timestamp: int) -> None:
    with pytest.raises(ProgramError, match=f"the timestamp {timestamp}.*operator 'x'.*64 bits"):
        operator(0).process_batch([1, timestamp], None)
