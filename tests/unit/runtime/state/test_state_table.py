"""State tables: live dicts, and what was changed."""

from __future__ import annotations

import tempfile
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.limits import InlineLimit
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.state_table import StateTable


def test_a_namespace_gives_the_same_live_dict_each_time() -> None:
    table = StateTable("s", "value")
    table.namespace(None)["a"] = 1
    assert table.namespace(None) == {"a": 1}
    assert table.existing(None) is table.namespace(None)
    assert table.existing("other") is None


def test_one_and_one_point_zero_and_true_are_one_key() -> None:
    table = StateTable("s", "value")
    values = table.namespace(None)
    values[1] = "int"
    values[1.0] = "float"
    values[True] = "bool"
    assert values == {1: "bool"}
    table.mark_all(None, [1, 1.0, True])
    assert table.changed_keys() == {(None, 1)}


def test_changes_are_what_was_marked_until_they_are_forgotten() -> None:
    table = StateTable("s", "value")
    table.mark_all(None, [])
    assert not table.changed
    table.mark(None, "a")
    table.mark_all("w", ["b", "c", "b"])
    assert table.changed_keys() == {(None, "a"), ("w", "b"), ("w", "c")}
    table.forget_changes()
    assert not table.changed and table.changed_keys() == set()


def test_remove_marks_only_what_was_there() -> None:
    table = StateTable("s", "value")
    table.remove(None, "a")
    assert not table.changed
    table.namespace(None)["a"] = 1
    table.forget_changes()
    table.remove(None, "a")
    assert table.changed_keys() == {(None, "a")}
    assert table.namespace(None) == {}


def test_removing_all_keys_of_a_namespace_marks_them_and_leaves_others() -> None:
    table = StateTable("s", "value")
    for namespace in ("w1", "w2"):
        table.namespace(namespace).update(a=1, b=2)
    table.forget_changes()
    table.remove_all("w1", ["a", "b"])
    table.remove_all("w2", ["b", "c"])
    table.remove_all("never there", ["a"])
    assert table.changed_keys() == {("w1", "a"), ("w1", "b"), ("w2", "b")}
    assert dict(table.items()) == {"w2": {"a": 1}}


def test_a_namespace_that_comes_and_goes_in_an_epoch_is_no_change() -> None:
    table = StateTable("s", "value")
    for _ in range(2):
        table.namespace("w")["a"] = 1
        table.mark("w", "a")
        table.remove_all("w", ["a"])
        assert not table.changed
    table.namespace("w")["a"] = 1
    table.mark("w", "a")
    table.forget_changes()
    table.remove_all("w", ["a"])
    table.namespace("w")["a"] = 2
    table.remove_all("w", ["a"])
    assert table.changed_keys() == {("w", "a")}


def test_prune_forgets_empty_namespaces_only() -> None:
    table = StateTable("s", "value")
    held = table.namespace(None)
    table.namespace("empty")
    table.namespace("full")["a"] = 1
    table.prune()
    assert table.namespace(None) is held
    assert dict(table.items()) == {"full": {"a": 1}}


# --- Changes are stored with the task up to a limit; how large they are is estimated before they are encoded --------


LIMIT = 1_000


class Subtask:
    """A subtask whose changes, and the references to its files, have these encoded sizes."""

    def __init__(self, references: int = 0) -> None:
        self._limit = InlineLimit(LIMIT)
        self._references = references
        self._changes = 0
        #: what was done, in order
        self.calls: list[str] = []

    def barrier(self, changes: int, estimated: int, has_files: bool = False) -> list[str]:
        """What is done at the end of an epoch."""
        self.calls, self._changes = [], changes
        data = self._limit.encoded(self._encode, self._write_files, estimated, has_files)
        assert len(data or b"") == self._changes + self._references
        return self.calls

    def _encode(self) -> bytes:
        self.calls.append("encode")
        return bytes(self._changes + self._references)

    def _write_files(self) -> None:
        self.calls.append("write")
        self._changes = 0


TRIED, WRITTEN_AT_ONCE, IN_VAIN = ["encode"], ["write", "encode"], ["encode", "write", "encode"]


@pytest.mark.parametrize(("has_files", "limit"), [(False, LIMIT), (True, LIMIT // 4)])
def test_changes_up_to_the_limit_are_stored_with_the_task(has_files: bool, limit: int) -> None:
    subtask = Subtask()
    assert subtask.barrier(limit, limit, has_files) == TRIED
    assert subtask.barrier(limit + 1, limit, has_files) == IN_VAIN


def test_after_an_estimate_that_was_too_low_as_many_changes_are_not_encoded_in_vain_again() -> None:
    subtask = Subtask()
    assert subtask.barrier(3_000, estimated=1_500) == IN_VAIN
    assert subtask.barrier(3_000, estimated=1_500) == WRITTEN_AT_ONCE
    assert subtask.barrier(900, estimated=450) == TRIED


def test_changes_that_are_surely_too_large_are_written_at_once() -> None:
    assert Subtask().barrier(5_000, estimated=2 * LIMIT + 1) == WRITTEN_AT_ONCE


def test_references_to_files_count_for_the_limit_but_not_as_changes() -> None:
    subtask = Subtask(references=LIMIT)
    assert subtask.barrier(50, estimated=100) == IN_VAIN
    subtask._references = 100
    assert subtask.barrier(750, estimated=1_500) == TRIED


def test_without_changes_the_references_are_stored() -> None:
    subtask = Subtask(references=10)
    assert subtask.barrier(0, estimated=0) == TRIED


# --- Map state in ascending order, as the interval join reads it, against a plain dict ------------------------------


KEY = "user"
user_keys = st.integers(0, 12)
steps = st.one_of(
    st.tuples(st.just("put"), user_keys),
    st.tuples(st.just("put"), user_keys),
    st.tuples(st.just("between"), user_keys, user_keys),
    st.tuples(st.just("discard"), user_keys),
    st.tuples(st.just("discard_until"), user_keys),
    st.tuples(st.sampled_from(["barrier", "release", "begin", "undo", "commit"])),
)


@given(st.lists(steps, max_size=40), st.booleans())
@settings(deadline=None)
def test_entries_between_two_keys_are_those_of_a_dict_across_barriers_releases_and_undone_calls(
    events: list[Any], in_files: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = StateDirectory(folder) if in_files else None
        backend = KeyedStateBackend("tested", EpochInfo(), directory=directory, inline_bytes=0, undone=True)
        backend.restore(None)
        log = backend.undo_log
        assert log is not None
        expected: dict[int, int] = {}
        before: dict[int, int] | None = None
        for number, (what, *arguments) in enumerate(events):
            table = cast(MapTable, backend.table("map", "map"))
            if what == "put":
                table.put(None, KEY, {arguments[0]: number})
                expected[arguments[0]] = number
            elif what == "between":
                first, last = arguments
                wanted = sorted(item for item in expected.items() if first <= item[0] <= last)
                assert table.between(None, KEY, first, last) == wanted
            elif what == "discard":
                table.discard(None, KEY, arguments[0])
                expected.pop(arguments[0], None)
            elif what == "discard_until":
                left = table.discard_until(None, KEY, arguments[0])
                expected = {user_key: value for user_key, value in expected.items() if user_key > arguments[0]}
                assert left == min(expected, default=None)
            elif what == "begin" and before is None:
                log.begin()
                before = dict(expected)
            elif what == "undo" and before is not None:
                log.undo()
                expected, before = before, None
            elif what == "commit" and before is not None:
                log.commit()
                before = None
            elif what == "barrier" and before is None:
                backend.restore(backend.snapshot())
            elif what == "release" and before is None:
                backend.release()
        table = cast(MapTable, backend.table("map", "map"))
        assert table.between(None, KEY, 0, 12) == sorted(expected.items())
        whole = table.whole(None, KEY)
        assert (whole.pairs() if whole is not None else {}) == expected
