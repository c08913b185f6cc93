"""Long lists of splits: written once, read where they are needed, and shown in short."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.source import SourceSplit
from flinkish.runtime.sources import split_list
from flinkish.runtime.sources.progress import SourceProgress, encode_position, shown_position
from flinkish.runtime.sources.split_list import SegmentsInMemory, SplitList


class CountingSegments(SegmentsInMemory):
    """Segments in memory, with the number of splits that were written to them."""

    written = 0

    def write(self, entries: list[list[Any]]) -> str:
        self.written += len(entries)
        return super().write(entries)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 5), st.data())
def test_splits_of_a_list_are_read_by_their_numbers(added: list[int], segments: int, data: Any) -> None:
    store, splits, every = SegmentsInMemory(), SplitList(), list[SourceSplit]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_list, "MAX_TAIL", 3)
        patch.setattr(split_list, "MAX_SEGMENTS", segments)
        for count in added:
            every += [SourceSplit(f"s{len(every) + number}", 0, 1) for number in range(count)]
            splits = splits.with_splits(every, 0, frozenset(), store)
            assert len(splits.segments) <= segments and len(splits.tail) <= 3
    assert splits.splits(store) == every
    numbers = data.draw(st.lists(st.integers(0, len(every) - 1), max_size=10)) if every else []
    assert splits.at(numbers, store) == {number: every[number] for number in numbers}


def test_no_split_is_written_again_more_often_than_their_list_has_doubled() -> None:
    store, splits, every = CountingSegments(), SplitList(), list[SourceSplit]()
    for count in (1_000, 4_000, 16_000):
        while len(every) < count:
            every += [SourceSplit(f"s{len(every) + number}", 0, 1) for number in range(100)]
            splits = splits.with_splits(every, len(every), frozenset(), store)
        assert store.written <= count * math.log2(count / 100), count


@pytest.mark.parametrize(
    "position", ["{}", '{"clicks": {"0": 7}}', '{"complete": true, "ended": ["a"], "splits": [["b", 1, 3, null]]}']
)
def test_position_is_shown_as_it_is_if_it_is_short_or_not_of_splits(position: str) -> None:
    assert shown_position(position) == position


def test_position_of_a_source_with_many_splits_is_shown_with_the_newest_that_have_ended_and_their_number() -> None:
    splits = SplitList(tail=tuple(SourceSplit(f"s{number}", 0, 9) for number in range(5_000)))
    position = encode_position(SourceProgress(splits, next=3_000), SegmentsInMemory())
    shown = json.loads(shown_position(position))
    assert shown["ended"] == [f"s{number}" for number in range(2_990, 3_000)]
    assert [split[0] for split in shown["splits"]] == [f"s{number}" for number in range(3_000, 4_000)]
    assert (shown["ended_count"], shown["splits_count"], shown["complete"]) == (3_000, 2_000, False)
