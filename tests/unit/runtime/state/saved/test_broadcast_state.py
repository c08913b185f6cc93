"""Broadcast state on its way through savepoints: every subtask gets one of the copies, whatever the parallelism is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.core.state import MapStateDescriptor
from flinkish.errors import CorruptStateError, TypeMismatchError
from flinkish.runtime.state.changelog import operator_changes
from flinkish.runtime.state.operator_state import BroadcastHandle, BroadcastStates, OperatorState
from flinkish.runtime.state.saved.operator_states import StoredOperatorStates, decode_operator_states
from flinkish.runtime.state.saved.restore import SavepointRows, operator_state_rows, subtasks_of_row
from flinkish.runtime.state.saved.texts import SavepointColumns, SavepointRow, to_savepoint_row
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates, RowReader
from flinkish.runtime.state.state_rows import DeclaredState, StateColumns, StateRow
from flinkish.runtime.stored.classes import NO_CLASSES
from flinkish.runtime.task.stateful_task import DeclarationsOfTask
from flinkish.spark.worker import DeployedClasses
from flinkish.state.rows import NativeToTexts
from tests.support.profiles import examples

RULES = MapStateDescriptor("rules", Types.STRING(), Types.TUPLE([Types.INT(), Types.INT()]))
PROGRAM = ProgramStates({"op": {"rules": ProgramState("broadcast", *RULES.entry_types())}})


def written(copies: list[dict[Any, Any]]) -> list[SavepointRow]:
    """The rows of a savepoint of so many subtasks."""
    rows = []
    for subtask, copy in enumerate(copies):
        state = OperatorState()
        state.broadcast("rules").update(copy)
        state.mark_broadcast("rules")
        stored = decode_operator_states(StoredOperatorStates({"op": state}).snapshot(0)).get("op", {})
        rows += [to_savepoint_row("op", row) for row in operator_state_rows(subtask, len(copies), stored)]
    return rows


def restored(rows: list[SavepointRow], parallelism: int, edited: bool = False) -> list[dict[Any, Any]]:
    """The copies of the subtasks of a job that begins with such rows."""
    keys, namespaces, values = (list(column) for column in zip(*(row[3:] for row in rows)))
    columns = SavepointColumns("op", "rules", "broadcast", keys, namespaces, values)
    reader = RowReader(PROGRAM, {}, convert=edited)
    found = reader.read_columns(columns)
    assert not sum(state.bad_rows for state in reader.found.values()), reader.found
    states = [OperatorState() for _ in range(parallelism)]
    for row in found.rows():
        for subtask in subtasks_of_row(row.kind, row.key, row.namespace, row.value, parallelism):
            taken = SavepointRows({"op": states[subtask]}, "op", None, subtask)
            taken.take_in("op", StateColumns(row.state, row.kind, [row.namespace], [row.key], [row.value]))
    return [dict(state.broadcast("rules")) for state in states]


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 6), st.integers(1, 9))
def test_each_subtask_gets_its_own_copy_and_those_that_are_new_one_round_robin(before: int, after: int) -> None:
    copies = [{f"of {subtask}": (subtask, 1), "of all": (0, 0)} for subtask in range(before)]
    assert restored(written(copies), after) == [copies[subtask % before] for subtask in range(after)]


def test_entries_of_basic_types_take_the_form_of_the_declared_type_or_are_refused() -> None:
    state, descriptor = OperatorState(), MapStateDescriptor("limits", Types.STRING(), Types.INT())
    states = BroadcastStates(state, (descriptor,), "operator 'rules'")
    states.writable = True
    limits = BroadcastHandle(states, state, descriptor)
    limits.put("a", 9147483648)
    limits.put_all({"b": True, "c": None})
    for wrong in (lambda: limits.put("d", "x"), lambda: limits.put(1, 1), lambda: limits.put_all({"e": 5, "f": 1.5})):
        with pytest.raises(TypeMismatchError, match="does not fit.*broadcast state 'limits', operator 'rules'"):
            wrong()
    assert list(limits.items()) == [("a", 557549056), ("b", 1), ("c", None)]
    numbers = BroadcastHandle(states, state, MapStateDescriptor("numbers", Types.INT(), Types.INT()))
    numbers.put(1, 5)
    with pytest.raises(TypeMismatchError, match="the value 4294967297 of type int does not fit"):
        numbers.put_all({2**32 + 1: 6})


def test_rows_without_a_subtask_go_into_every_copy() -> None:
    everywhere = SavepointRow("op", "rules", "broadcast", "null", "null", '["new", [1, 2]]')
    rows = written([{"a": (1, 1)}, {"a": (1, 1)}])
    assert restored([*rows, everywhere], 3, edited=True) == [{"a": (1, 1), "new": (1, 2)}] * 3


def test_two_rows_for_one_entry_of_a_copy_are_refused() -> None:
    rows = written([{"a": (1, 1)}])
    with pytest.raises(CorruptStateError, match="broadcast state 'rules' has two rows for map key 'a' in one copy"):
        restored([*rows, rows[0]._replace(key="null", namespace="null")], 1)


@pytest.mark.parametrize(
    ("key", "namespace", "value", "problem"),
    [
        ("2", "2", '["a", [1, 2]]', "2 of 2 is no copy of a broadcast state"),
        ("0", "null", '["a", [1, 2]]', "0 of None is no copy"),
        ('"0"', "1", '["a", [1, 2]]', "'0' of 1 is no copy"),
        ("0", "1", "7", "7 is no entry of a map"),
        ("0", "1", '["a", "b"]', "'b'"),
    ],
)
def test_rows_that_are_no_entry_of_a_copy_are_found_before_anything_runs(
    key: str, namespace: str, value: str, problem: str
) -> None:
    reader = RowReader(PROGRAM, {}, convert=True)
    assert reader.read(SavepointRow("op", "rules", "broadcast", key, namespace, value)) is None
    (found,) = reader.found.values()
    assert problem in found.problem


def test_migrations_change_the_values_of_the_entries() -> None:
    reader = RowReader(PROGRAM, {("op", "rules"): lambda value: (value, 0)}, convert=False)
    row = to_savepoint_row("op", StateRow("rules", "broadcast", 1, 0, ("a", 5)))
    read = reader.read(row)
    assert read is not None and read.value == ("a", (5, 0))


def test_a_changed_broadcast_state_is_a_change_of_all_of_its_entries() -> None:
    state = OperatorState()
    state.broadcast("rules").update(a=1, b=2)
    state.mark_broadcast("rules")
    (change,) = operator_changes("op", 1, 3, state)
    assert list(change.rows()) == [
        StateRow("rules", "broadcast", 3, 1, ("a", 1)),
        StateRow("rules", "broadcast", 3, 1, ("b", 2)),
    ]
    state.broadcast("rules").clear()
    (change,) = operator_changes("op", 1, 3, state)
    assert list(change.rows()) == []


def test_tasks_tell_which_broadcast_states_there_are_and_of_which_types() -> None:
    state = OperatorState()
    BroadcastStates(state, [RULES, MapStateDescriptor("any", Types.STRING(), Types.PICKLED_BYTE_ARRAY())], "")
    told = DeclarationsOfTask("op", Types.STRING(), None, {"op": state}).new()
    assert told == (
        DeclaredState("op", "rules", "broadcast", "STRUCT<`f0`: INT, `f1`: INT>", "STRING", "BIGINT"),
        DeclaredState("op", "any", "broadcast", None, "STRING", "BIGINT"),
    )


def test_rows_of_a_data_frame_become_entries_of_every_copy() -> None:
    columns = {
        "uid": ["op", "op"],
        "state": ["rules", "rules"],
        "kind": ["broadcast", "broadcast"],
        "key": pa.array([None, None], pa.string()),
        "map_key": ["a", "b"],
        "value": [{"f0": 1, "f1": 2}, {"f0": 3, "f1": 4}],
    }
    batch = pa.RecordBatch.from_pydict(columns)
    types = {("op", "rules"): RULES.entry_types()[1]}
    convert = NativeToTexts(tuple(columns), types, False, DeployedClasses.of(NO_CLASSES))
    (texts,) = convert(iter([batch]))
    rows = [SavepointRow(**row) for row in texts.to_pylist()]
    assert {(row.kind, row.key, row.namespace) for row in rows} == {("broadcast", "null", "null")}
    assert restored(rows, 2, edited=True) == [{"a": (1, 2), "b": (3, 4)}] * 2
