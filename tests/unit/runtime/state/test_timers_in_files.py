"""Timers, some of which lie in files, against a dict, however watermarks, barriers and registrations alternate."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time import TimeDomain
from flinkish.runtime.state import timers_in_files
from flinkish.runtime.state.files import timer_files
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.timer_files import Timers
from flinkish.runtime.state.timer_queue import TimerQueue
from flinkish.runtime.state.timers_in_files import ServiceTimers, TimersInFiles
from tests.support.profiles import examples

EVENT_TIME, SERVICE = TimeDomain.EVENT_TIME, "user-timers"

_ms, _key = st.integers(-3, 60), st.sampled_from("abc")
actions = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.lists(st.tuples(_ms, _key), min_size=1, max_size=12)),
        st.tuples(st.just("delete"), _ms, _key),
        st.tuples(st.just("advance"), st.integers(1, 9)),
        st.tuples(st.just("barrier")),
        st.tuples(st.just("compact")),
    ),
    max_size=40,
)


class Subtask:
    """A timer queue, and the files to which it writes."""

    def __init__(self, folder: str) -> None:
        self.files = TimersInFiles(StateDirectory(folder), self._numbers)
        self.queue = TimerQueue(ServiceTimers(self.files, SERVICE))
        self._epoch = self._written = 0

    def _numbers(self, count: int) -> range:
        self._written += count
        return range(self._written - count, self._written)

    def barrier(self) -> None:
        self._epoch += 1
        self.files.write({SERVICE: self.queue}, self._epoch)

    def compact(self) -> None:
        self.files.compact({SERVICE: self.queue}, self._epoch)

    def fired(self, watermark_ms: int) -> list[tuple[int, Any]]:
        """The timers that fire when the watermark rises."""
        if not self.queue.may_be_due(EVENT_TIME, watermark_ms):
            return []
        return [(ms, key) for ms, key, _ in self.queue.pop_due(EVENT_TIME, watermark_ms)]


def run(work: list[Any], folder: str) -> None:
    subtask, model, watermark_ms = Subtask(folder), dict[tuple[int, str], None](), -5
    for action, *arguments in work:
        if action == "register":
            for timer in arguments[0]:
                subtask.queue.register(EVENT_TIME, *timer)
                model[timer] = None
        elif action == "delete":
            subtask.queue.delete(EVENT_TIME, *arguments)
            model.pop(tuple(arguments), None)
        elif action == "barrier":
            subtask.barrier()
        elif action == "compact":
            subtask.compact()
        else:
            watermark_ms += arguments[0]
            due = [timer for timer in sorted(model, key=lambda timer: timer[0]) if timer[0] <= watermark_ms]
            assert subtask.fired(watermark_ms) == due
            for timer in due:
                del model[timer]
    assert subtask.fired(1_000) == sorted(model, key=lambda timer: timer[0])


@given(actions, st.sampled_from([1, 200, 64 * 1024]), st.sampled_from([1, 5, 20_000]))
@settings(max_examples=examples(150), deadline=None)
def test_timers_fire_as_those_of_a_dict(work: list[Any], scan_bytes: int, due_timers: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(timer_files, "FIRST_SCAN_BYTES", scan_bytes)
        patch.setattr(timers_in_files, "DUE_TIMERS", due_timers)
        run(work, folder)


@pytest.mark.parametrize(
    "between", [[], [("barrier",)], [("barrier",), ("compact",)]], ids=["at once", "later", "compacted"]
)
def test_a_timer_that_lies_in_a_file_and_was_deleted_does_not_fire(between: list[Any], tmp_path: Path) -> None:
    registered = [("register", [(5, "a"), (6, "b"), (7, "a")]), ("barrier",)]
    run([*registered, ("delete", 6, "b"), *between, ("advance", 20)], str(tmp_path))


def test_watermarks_that_rise_in_small_steps_do_not_search_the_files_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = []
    due, earliest = timer_files.TimerFiles.due, timer_files.TimerFiles.earliest
    monkeypatch.setattr(timer_files.TimerFiles, "due", lambda *args: searches.append("due") or due(*args))
    monkeypatch.setattr(timer_files.TimerFiles, "earliest", lambda *args: searches.append("first") or earliest(*args))
    subtask = Subtask(str(tmp_path))
    for ms in range(5_000):
        subtask.queue.register(EVENT_TIME, ms, "a")
    subtask.barrier()
    assert [subtask.fired(ms) for ms in range(5_000)] == [[(ms, "a")] for ms in range(5_000)]
    assert len(searches) < 100


def test_a_single_step_reads_no_more_timers_than_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subtask = Subtask(str(tmp_path))
    for ms in range(5_000):
        subtask.queue.register(EVENT_TIME, ms, "a")
    subtask.barrier()
    read: list[int] = []
    due = timer_files.TimerFiles.due

    def told(*args: Any) -> Iterator[Timers]:
        for timers in due(*args):
            read.append(len(timers.timestamps_ms))
            yield timers

    monkeypatch.setattr(timer_files.TimerFiles, "due", told)
    assert len(subtask.fired(9)) == 10
    assert sum(read) == 10
