"""What becomes of each state of a savepoint, as a report. Tasks tell each state that they declare once, with its types;
the job's directory keeps what they told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.compatibility import POSITION, ProgramOutline, StateCatalog, StateStatus, compare, read_states
from flinkish.common.typeinfo import Types
from flinkish.datastream import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from flinkish.graph.job_graph import stateful_without_uid, warn_of_missing_uids
from flinkish.jobdir.directory import JobDirectory
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates, StoredState
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.runtime.task.tasks import states_of_program
from tests.support.epoch_reports import execute_observed, reports_of
from tests.support.programs import job_of, new_environment

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
    assert refused.problems == ("there is state of operators that the program does not have: gone, old-in",)
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


class Counter(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = runtime_context
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        runtime_context.get_map_state(MapStateDescriptor("m", Types.STRING(), Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._context.get_list_state(ListStateDescriptor("late", Types.INT()))
        self._n.update(value)
        yield value


class Refusing(Counter):
    def open(self, runtime_context: RuntimeContext) -> None:
        raise ConnectionError("away")


EXPECTED = [
    DeclaredState("counter", "late", "list", "INT", None, "BIGINT"),
    DeclaredState("counter", "m", "map", None, "STRING", "BIGINT"),
    DeclaredState("counter", "n", "value", "BIGINT", None, "BIGINT"),
]


def environment(function: Any = None, uid: str | None = "counter") -> StreamExecutionEnvironment:
    env = new_environment(2, flinkish__progress="never")
    numbers = env.from_collection([1, 2, 3, 4], Types.LONG())
    counted = numbers.key_by(lambda n: n, Types.LONG()).process(function or Counter())
    (counted if uid is None else counted.uid(uid)).print()
    return env


def test_tasks_tell_their_states_once_and_the_directory_keeps_them(tmp_path: Path) -> None:
    client = execute_observed(environment(), "job")
    client.get_job_execution_result().result()
    told = [state for report in reports_of(client.run) for task in report.tasks for state in task.declared]
    assert sorted(set(told), key=lambda state: state.name) == EXPECTED
    tasks = {(task.vertex, task.subtask) for report in reports_of(client.run) for task in report.tasks if task.declared}
    assert len(told) <= len(tasks) * len(EXPECTED)
    directory = JobDirectory(str(tmp_path))
    catalog = StateCatalog(directory)
    for report in reports_of(client.run):
        catalog.epoch_done(report)
    assert list(read_states(directory)) == EXPECTED
    retyped = DeclaredState("counter", "n", "value", "STRING", None, "BIGINT")
    StateCatalog(directory).add((retyped,))
    assert list(read_states(directory)) == [*EXPECTED[:2], retyped]


def test_what_a_program_asks_for_is_known_once_its_operators_are_opened() -> None:
    found = states_of_program(job_of(environment()))
    assert {name: (state.kind, state.value_type) for name, state in found.states["counter"].items()} == {
        "n": ("value", Types.LONG()),
        "m": ("map", Types.PICKLED_BYTE_ARRAY()),
    }
    refused = states_of_program(job_of(environment(Refusing())))
    assert refused.unknown == {"counter": "open() raised ConnectionError: away"}


def test_stateful_operators_without_a_uid_are_told_at_submit(caplog: pytest.LogCaptureFixture) -> None:
    job = job_of(environment(uid=None))
    names = stateful_without_uid(job)
    assert [name.split("'")[1] for name in names] == ["Source: Collection Source", "KEYED PROCESS"]
    with caplog.at_level(logging.WARNING):
        warn_of_missing_uids(job)
    assert "uid(...)" in caplog.text and "KEYED PROCESS" in caplog.text


def test_broadcast_states_are_known_with_their_types_and_without_a_call_of_user_code() -> None:
    rules = MapStateDescriptor("rules", Types.STRING(), Types.INT())
    any_map = MapStateDescriptor("any", Types.LONG(), Types.PICKLED_BYTE_ARRAY())

    class Plain(BroadcastProcessFunction[Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            raise ConnectionError("not to be opened")

        def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> None:
            pass

        def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
            pass

    class Keyed(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

        def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
            pass

        def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
            pass

    env = environment()
    numbers = env.from_collection([1, 2], Types.LONG())
    numbers.connect(numbers.broadcast(rules, any_map)).process(Plain()).uid("plain").print()
    numbers.key_by(lambda n: n).connect(numbers.broadcast(rules)).process(Keyed()).uid("keyed").print()
    program = states_of_program(job_of(env))
    of_rules = ProgramState("broadcast", Types.STRING(), Types.INT())
    assert program.states["plain"] == {
        "rules": of_rules,
        "any": ProgramState("broadcast", Types.LONG(), Types.PICKLED_BYTE_ARRAY()),
    }
    assert program.states["keyed"] == {"rules": of_rules, "n": ProgramState("value", None, Types.LONG())}
    assert program.unknown == {}


def test_a_file_of_types_that_cannot_be_written_fails_no_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = StateCatalog(JobDirectory(str(tmp_path)))
    (tmp_path / "states.json" / "in the way").mkdir(parents=True)
    state = DeclaredState("counter", "n", "value", "STRING", None, "BIGINT")
    catalog.add((state,))
    assert "states.json" in caplog.text
    (tmp_path / "states.json" / "in the way").rmdir()
    (tmp_path / "states.json").rmdir()
    catalog.add((state,))
    assert list(read_states(JobDirectory(str(tmp_path)))) == [state]
