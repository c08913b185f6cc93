"""The stored form of operator state: what lies with the task and what in files, and what an epoch writes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.errors import CorruptStateError, MissingFileError
from flinkish.runtime.state.files.directory import OpenFiles, StateDirectory
from flinkish.runtime.state.files.references import delete_unneeded
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.saved.operator_states import StoredOperatorStates, decode_operator_states
from flinkish.runtime.state.state_rows import LIST_STATE_KIND, UNION_STATE_KIND
from tests.support.profiles import examples

INLINE = 2_000


class Subtask:
    """The operator states of a subtask, and the files of it."""

    def __init__(self, path: Path, inline_bytes: int = INLINE) -> None:
        self.path = path
        self.inline_bytes = inline_bytes
        self.body: bytes | None = None
        self.begin()

    def begin(self) -> None:
        """In another process."""
        self.directory = StateDirectory(str(self.path), open_files=OpenFiles())
        self.states = {"first": OperatorState(), "second": OperatorState()}
        self.stored = StoredOperatorStates(self.states, self.directory, self.inline_bytes, "task 't'")
        self.stored.restore(self.body)
        self.stored.take_in()

    def put_entries(self, name: str, entries: dict[Any, Any]) -> None:
        self.states["first"].broadcast(name).update(entries)
        self.states["first"].mark_broadcast(name)

    def barrier(self, epoch: int) -> None:
        self.body = self.stored.snapshot(epoch)

    def files(self) -> set[str]:
        return {path.name for path in self.path.iterdir()} if self.path.exists() else set()


@pytest.fixture
def subtask(tmp_path: Path) -> Subtask:
    return Subtask(tmp_path / "state")


LARGE = {key: f"{key:0100}" for key in range(10_000)}


def test_small_state_never_becomes_a_file(subtask: Subtask) -> None:
    subtask.put_entries("rules", {1: "one"})
    subtask.states["second"].set_list(LIST_STATE_KIND, "held", [], [1, 2])
    subtask.barrier(1)
    assert subtask.files() == set()


def test_of_a_broadcast_state_of_a_megabyte_the_body_of_the_task_holds_a_reference(subtask: Subtask) -> None:
    subtask.put_entries("rules", LARGE)
    subtask.states["second"].put("count", 0)
    subtask.barrier(1)
    assert subtask.stored.bytes_in_files > 1_000_000
    for epoch in range(2, 6):
        subtask.states["second"].put("count", epoch)
        subtask.barrier(epoch)
        assert subtask.body is not None and len(subtask.body) < 500
    assert len(subtask.files()) == 1, "it has not changed since"


def test_one_changed_state_does_not_rewrite_the_others(subtask: Subtask) -> None:
    subtask.put_entries("rules", LARGE)
    subtask.put_entries("names", LARGE)
    subtask.states["second"].set_list(UNION_STATE_KIND, "seen", [], range(5_000))
    subtask.barrier(1)
    before = subtask.stored.file_names()
    assert len(before) == 3
    subtask.put_entries("names", {"another": 1})
    subtask.barrier(2)
    after = subtask.stored.file_names()
    assert len(after - before) == len(before - after) == 1


def test_a_state_that_is_set_to_what_it_was_keeps_its_file(subtask: Subtask) -> None:
    for epoch in (1, 2, 3):
        # as a function does that sets its lists at each barrier
        subtask.states["first"].set_list(LIST_STATE_KIND, "held", [], range(5_000))
        subtask.barrier(epoch)
        subtask.begin()
    assert len(subtask.files()) == 1


def test_many_small_states_do_not_make_a_large_body(subtask: Subtask) -> None:
    for number in range(100):
        subtask.put_entries(f"rules {number}", {0: "x" * 10 * number})
    subtask.barrier(1)
    inline = [len(data) for data in subtask.stored._stored.values() if isinstance(data, bytes)]
    assert 0 < sum(inline) <= INLINE
    assert max(inline) < min(file.size_bytes for file in subtask.stored.files()), "the largest ones lie in files"


def test_a_state_that_becomes_small_goes_back_to_the_task(subtask: Subtask) -> None:
    subtask.put_entries("rules", LARGE)
    subtask.barrier(1)
    subtask.states["first"].broadcast("rules").clear()
    subtask.put_entries("rules", {1: 2})
    subtask.barrier(2)
    assert not subtask.stored.files() and len(subtask.stored.dropped) == 1
    delete_unneeded(subtask.directory, [subtask.stored], 2, 1)
    assert subtask.files() == set()


KINDS = st.sampled_from(["value", "broadcast", LIST_STATE_KIND, UNION_STATE_KIND])
STEPS = st.lists(st.tuples(st.sampled_from(["first", "second"]), KINDS, st.sampled_from("xy"), st.integers(0, 4_000)))


def change(state: OperatorState, kind: str, name: str, size: int) -> None:
    """To a value of so many bytes; none: it is gone."""
    if kind == "value":
        if size:
            state.put(name, "v" * size)
        else:
            state.remove(name)
    elif kind == "broadcast":
        entries = state.broadcast(name)
        entries.clear()
        entries.update({size: "b" * size} if size else {})
        state.mark_broadcast(name)
    else:
        state.set_list(kind, name, [], ["l" * size] if size else [])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(STEPS, st.sampled_from(["goes on", "begins anew", "fails"])), max_size=40),
    st.sampled_from([0, 500, INLINE, 256 * 1024]),
    st.integers(1, 4),
)
def test_whatever_lies_in_files_all_retained_epochs_can_be_read_and_nothing_else_stays(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[Any], inline_bytes: int, retained_epochs: int
) -> None:
    subtask = Subtask(tmp_path_factory.mktemp("files") / "state", inline_bytes)
    #: body -> what it stands for, and the files that it refers to
    retained: list[tuple[bytes | None, Any, frozenset[str]]] = []
    for epoch, (steps, then) in enumerate(epochs):
        for uid, kind, name, size in steps:
            change(subtask.states[uid], kind, name, size)
        if then == "fails":
            subtask.stored.snapshot(epoch)
            subtask.begin()
        if subtask.stored.changed:
            subtask.barrier(epoch)
        states = {uid: copy.deepcopy(state.stored()) for uid, state in subtask.states.items() if state.stored()}
        retained = [*retained, (subtask.body, states, subtask.stored.file_names())][-retained_epochs:]
        if then == "begins anew":
            subtask.begin()
        delete_unneeded(subtask.directory, [subtask.stored], epoch, retained_epochs)
        for body, expected, _ in retained:
            assert decode_operator_states(body, subtask.directory) == expected
        needed = frozenset[str]().union(*(names for _, _, names in retained))
        left_over = {name for name in subtask.files() - needed if int(name.split("-")[0]) <= epoch - retained_epochs}
        assert not left_over, "a failed epoch's files go when it can not be under way any more"


@pytest.mark.parametrize("damage", ["missing", "truncated", "changed"])
def test_a_file_that_is_damaged_or_missing_is_named(subtask: Subtask, damage: str) -> None:
    subtask.put_entries("rules", LARGE)
    subtask.barrier(1)
    (path,) = subtask.path.iterdir()
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[:-100] if damage == "truncated" else data[:5_000] + b"!" + data[5_001:])
    with pytest.raises(MissingFileError if damage == "missing" else CorruptStateError) as found:
        subtask.begin()
    assert found.value.file == str(path)
    with pytest.raises(CorruptStateError, match=path.name):
        decode_operator_states(subtask.body, StateDirectory(str(subtask.path), open_files=OpenFiles()))


def test_what_is_no_operator_state_is_refused(subtask: Subtask) -> None:
    subtask.states["first"].put("x", 1)
    subtask.barrier(1)
    assert subtask.body is not None
    for body in (subtask.body[:-5], b"\xf1\x04" + b"\x80\x05K\x01."):
        with pytest.raises(CorruptStateError, match="operator state of a subtask"):
            decode_operator_states(body, None, "task 't'")
