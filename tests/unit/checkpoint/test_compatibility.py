"""What becomes of each state of a savepoint, as a report."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.checkpoint.compatibility import POSITION, ProgramOutline, StateStatus, compare
from flinkish.common.typeinfo import Types
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates, StoredState

OUTLINE = ProgramOutline("job", frozenset({"a", "b", "in"}), frozenset({"in"}))
PROGRAM = ProgramStates(
    {"a": {"n": ProgramState("value", None, Types.LONG()), "m": ProgramState("map", Types.STRING(), Types.LONG())}},
    {"b": "open() raised OSError: no"},
)


def report(
    *stored: StoredState, positions: Any = ("in",), outline: ProgramOutline = OUTLINE, allow: bool = False
) -> Any:
    return compare("/sp", False, stored, positions, outline, PROGRAM, allow)


def status(result: Any, uid: str, state: str) -> StateStatus:
    return next(entry.status for entry in result.states if (entry.uid, entry.state) == (uid, state))


def test_each_state_is_restored_new_dropped_incompatible_or_unknown() -> None:
    result = report(
        StoredState("a", "n", "value", 5),
        StoredState("a", "old", "value", 2),
        StoredState("b", "x", "list", 1),
        StoredState("gone", "y", "value", 3),
        StoredState("a", "__watermark__", "__watermark__", 4),
    )
    assert status(result, "a", "n") is StateStatus.RESTORED
    assert status(result, "a", "m") is StateStatus.NEW
    assert status(result, "a", "old") is StateStatus.RESTORED
    assert "did not ask for it" in next(s.reason for s in result.states if s.state == "old")
    assert status(result, "b", "x") is StateStatus.UNKNOWN
    assert status(result, "gone", "y") is StateStatus.DROPPED
    assert status(result, "in", POSITION) is StateStatus.RESTORED
    assert "__watermark__" not in {entry.state for entry in result.states}


def test_dropping_needs_permission() -> None:
    stored = StoredState("gone", "y", "value", 3)
    refused = report(stored, positions=("in", "old-in"))
    assert not refused.compatible
    assert refused.problems == ("the savepoint holds state of operators that the program does not have: gone, old-in",)
    assert "--allowNonRestoredState" in refused.text()
    assert report(stored, allow=True).compatible


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (StoredState("a", "n", "list", 5), "it is list state, the program declares value state"),
        (StoredState("a", "n", "value", 5, 2, "the row of key 1: bad"), "2 of 5 rows; the row of key 1: bad"),
        (StoredState("b", "x", "value", 5, 1, "the row of key 1: bad"), "1 of 5 rows; the row of key 1: bad"),
    ],
)
def test_kinds_and_values_must_fit(stored: StoredState, reason: str) -> None:
    result = report(stored)
    assert [entry.reason for entry in result.of(StateStatus.INCOMPATIBLE)] == [reason]
    assert not result.compatible and "register_state_migration" in result.text()


def test_stateful_operators_without_uid_are_a_problem() -> None:
    outline = ProgramOutline("job", OUTLINE.operators, OUTLINE.sources, ("'Reduce' (reduce-3)",))
    result = report(outline=outline)
    assert result.problems == ("stateful operators of the program have no uid: 'Reduce' (reduce-3)",)
    assert "uid(...)" in result.hints[0]


def test_the_report_is_a_table_for_people() -> None:
    lines = report(StoredState("a", "n", "value", 5)).text().splitlines()
    assert lines[0] == "savepoint /sp"
    assert lines[1] == "job 'job': compatible"
    assert lines[3].split() == ["a", "m", "map", "0", "new"]
    assert lines[4].split() == ["a", "n", "value", "5", "restored"]
