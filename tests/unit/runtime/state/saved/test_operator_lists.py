"""Lists of operator state: what checkpoints, incremental ones too, and restores make of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.errors import StoredClassError
from flinkish.runtime.state.changelog import apply_changes, decode_changes, encode_changes, operator_changes
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.saved.operator_states import StoredOperatorStates, decode_operator_states
from flinkish.runtime.state.saved.restore import SavepointRows, operator_state_rows, subtasks_of_row
from flinkish.runtime.state.saved.texts import SavepointRow
from flinkish.runtime.state.saved.values import ProgramStates, RowReader
from flinkish.runtime.state.state_rows import LIST_STATE_KIND, UNION_STATE_KIND, StateColumns, StateRow
from tests.support.profiles import examples

KINDS = st.sampled_from([LIST_STATE_KIND, UNION_STATE_KIND])
STEPS = st.lists(st.tuples(KINDS, st.sampled_from("xy"), st.booleans(), st.lists(st.integers(0, 9), max_size=4)))


def change(state: OperatorState, steps: list[Any]) -> None:
    for kind, name, appends, elements in steps:
        state.set_list(kind, name, state.elements(kind, name) if appends else [], elements)


@settings(max_examples=examples(50), deadline=None)
@given(STEPS, STEPS, st.integers(0, 2))
def test_the_changes_of_an_epoch_lead_from_its_rows_to_those_of_the_next(
    before: list[Any], after: list[Any], subtask: int
) -> None:
    state = OperatorState()
    rows: dict[tuple[Any, ...], tuple[StateRow, ...]] = {}
    for steps in (before, after):
        change(state, steps)
        changes = list(operator_changes("op", subtask, 3, state))
        assert bool(changes) == state.changed == bool(steps)
        apply_changes(rows, decode_changes(encode_changes(1, changes))[1])
        stored = state.snapshot()
    expected = list(operator_state_rows(subtask, 3, stored))
    assert sorted((row for entry in rows.values() for row in entry), key=repr) == sorted(expected, key=repr)
    again = OperatorState()
    again.restore(decode_operator_states(StoredOperatorStates({"op": state}).snapshot(0)).get("op", {}))
    assert again.stored() == stored


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.lists(st.integers(), max_size=9), min_size=1, max_size=5), st.integers(1, 7), st.randoms())
def test_lists_are_dealt_out_evenly_and_union_lists_go_to_all(lists: list[list[int]], after: int, rng: Any) -> None:
    for kind in (LIST_STATE_KIND, UNION_STATE_KIND):
        rows = []
        for subtask, elements in enumerate(lists):
            rows += list(operator_state_rows(subtask, len(lists), {kind: {"x": elements}}))
        rng.shuffle(rows)
        states = [OperatorState() for _ in range(after)]
        for subtask, state in enumerate(states):
            taken = SavepointRows({"op": state}, "op", None, subtask)
            for row in rows:
                if subtask in subtasks_of_row(row.kind, row.key, row.namespace, row.value, after):
                    taken.take_in("op", StateColumns(row.state, row.kind, [row.namespace], [row.key], [row.value]))
            taken.end()
        found = [state.elements(kind, "x") for state in states]
        everything = [element for elements in lists for element in elements]
        if kind == UNION_STATE_KIND:
            assert found == [everything] * after
        elif after == len(lists):
            assert found == lists
        else:
            assert sorted(element for elements in found for element in elements) == sorted(everything)
            sizes = list(map(len, found))
            assert max(sizes) - min(sizes) <= len([elements for elements in lists if elements])


def test_rows_that_nobody_wrote_are_dealt_out_too() -> None:
    rows = [StateRow("x", LIST_STATE_KIND, None, None, (place, place)) for place in range(4)]
    targets = [tuple(subtasks_of_row(r.kind, r.key, r.namespace, r.value, 3)) for r in rows]
    assert targets == [(0,), (1,), (2,), (0,)]


@pytest.mark.parametrize(
    ("key", "namespace", "value", "problem"),
    [
        ("1", "1", "[0, 5]", "1 of 1 is no list of operator state"),
        ("0", "1", '["a", 5]', "0 of 1 is no list of operator state"),
        ("0", "1", "5", "5 is no entry of a map"),
    ],
)
def test_rows_that_are_no_element_are_found_before_anything_runs(
    key: str, namespace: str, value: str, problem: str
) -> None:
    reader = RowReader(ProgramStates(), {}, convert=True)
    assert reader.read(SavepointRow("op", "x", LIST_STATE_KIND, key, namespace, value)) is None
    (found,) = reader.found.values()
    assert problem in found.problem


def test_an_element_that_cannot_be_stored_is_named() -> None:
    state = OperatorState()
    state.set_list(LIST_STATE_KIND, "x", [], [lambda: 1])
    with pytest.raises(StoredClassError, match="operator_list state 'x'.*operator uid op"):
        StoredOperatorStates({"op": state}).snapshot(0)
