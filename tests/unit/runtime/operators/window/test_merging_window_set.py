"""Which windows of a key merge, and where their contents are kept."""

from __future__ import annotations

from typing import Any

from flinkish.core.window.assigner import MergingWindowAssigner
from flinkish.core.window.sessions import EventTimeSessionWindows
from flinkish.core.window.window import TimeWindow, Window
from flinkish.runtime.operators.window.merging_window_operator import MergingWindowSet

SESSIONS = EventTimeSessionWindows(5)


class Collect(MergingWindowAssigner.MergeCallback[TimeWindow]):
    def __init__(self) -> None:
        self.found: list[Any] = []

    def merge(self, to_be_merged: Any, merge_result: TimeWindow) -> None:
        self.found.append((list(to_be_merged), merge_result))


def test_windows_that_overlap_or_touch_are_merged_whatever_their_order() -> None:
    one, two, three, four = TimeWindow(0, 5), TimeWindow(5, 7), TimeWindow(6, 9), TimeWindow(20, 21)
    callback = Collect()
    TimeWindow.merge_windows([four, three, one, two], callback)
    assert callback.found == [([one, two, three], TimeWindow(0, 9))]
    callback = Collect()
    TimeWindow.merge_windows([four, one], callback)
    TimeWindow.merge_windows([one, one], callback)
    TimeWindow.merge_windows([], callback)
    assert callback.found == []


class Opened:
    """A set, and the merges that it asked for."""

    def __init__(self, assigner: Any = SESSIONS, *pairs: tuple[TimeWindow, TimeWindow]) -> None:
        self.windows = MergingWindowSet(assigner, pairs)
        self.merges: list[Any] = []

    def add(self, start: int, end: int) -> Window:
        return self.windows.add(TimeWindow(start, end), lambda *merge: self.merges.append(merge))


def test_a_window_apart_from_the_others_keeps_its_own_contents() -> None:
    opened = Opened()
    assert opened.add(0, 5) == TimeWindow(0, 5)
    assert opened.add(10, 15) == TimeWindow(10, 15)
    assert opened.windows.pairs() == [(TimeWindow(n, n + 5), TimeWindow(n, n + 5)) for n in (0, 10)]
    assert opened.merges == []


def test_a_window_that_grows_keeps_the_place_of_its_contents() -> None:
    opened = Opened()
    opened.add(0, 5)
    assert opened.add(3, 8) == TimeWindow(0, 8)
    assert opened.windows.state_window(TimeWindow(0, 8)) == TimeWindow(0, 5)
    assert opened.windows.state_window(TimeWindow(0, 5)) is None
    assert opened.merges == [(TimeWindow(0, 8), [TimeWindow(0, 5)], TimeWindow(0, 5), [])]


def test_a_window_between_two_makes_one_of_all_three_in_the_place_of_the_first() -> None:
    opened = Opened(SESSIONS, (TimeWindow(10, 15), TimeWindow(10, 15)), (TimeWindow(0, 7), TimeWindow(1, 6)))
    assert opened.add(6, 11) == TimeWindow(0, 15)
    assert opened.windows.pairs() == [(TimeWindow(0, 15), TimeWindow(1, 6))]
    assert opened.merges == [
        (TimeWindow(0, 15), [TimeWindow(0, 7), TimeWindow(10, 15)], TimeWindow(1, 6), [TimeWindow(10, 15)])
    ]


def test_a_window_inside_of_an_open_one_or_equal_to_it_changes_nothing() -> None:
    opened = Opened(SESSIONS, (TimeWindow(0, 15), TimeWindow(3, 8)))
    assert opened.add(4, 9) == TimeWindow(0, 15)
    assert opened.add(0, 15) == TimeWindow(0, 15)
    assert opened.windows.pairs() == [(TimeWindow(0, 15), TimeWindow(3, 8))]
    assert opened.merges == []


def test_a_retired_window_is_not_merged_any_more() -> None:
    opened = Opened()
    opened.add(0, 5)
    opened.windows.retire(TimeWindow(0, 5))
    assert opened.add(2, 7) == TimeWindow(2, 7)
    assert opened.merges == []


def test_an_assigner_may_merge_windows_that_the_new_one_has_nothing_to_do_with() -> None:
    class Pairs(EventTimeSessionWindows):
        """Merges what touches, and gives a window that was never open another place."""

        def merge_windows(self, windows: Any, callback: Any) -> None:
            super().merge_windows([window for window in windows if window.start < 100], callback)
            for window in windows:
                if window.start >= 100:
                    callback.merge([window], TimeWindow(1_000, 2_000))

    opened = Opened(Pairs(5), (TimeWindow(0, 5), TimeWindow(0, 5)), (TimeWindow(4, 9), TimeWindow(4, 9)))
    assert opened.add(100, 105) == TimeWindow(1_000, 2_000)
    assert opened.windows.pairs() == [
        (TimeWindow(0, 9), TimeWindow(0, 5)),
        (TimeWindow(1_000, 2_000), TimeWindow(1_000, 2_000)),
    ]
