"""The lives of jobs, executions and checkpoints: what may follow what, and that nothing else happens."""

from __future__ import annotations

import pickle
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common.job_status import JobStatus
from flinkish.errors import IllegalTransitionError, InternalError
from flinkish.jobmanager.job.lifecycle import (
    CHECKPOINT_TRANSITIONS,
    EXECUTION_TRANSITIONS,
    JOB_TRANSITIONS,
    CheckpointState,
    Event,
    ExecutionState,
    StateMachine,
    Story,
    Transitions,
)
from flinkish.runtime.phases import ManualClock
from tests.support.rows import hold

TABLES: list[Transitions[Any]] = [JOB_TRANSITIONS, EXECUTION_TRANSITIONS, CHECKPOINT_TRANSITIONS]

LEGAL = [(table, a, b) for table in TABLES for a, after in table.edges.items() for b in sorted(after, key=str)]
ILLEGAL = [
    (table, a, b)
    for table in TABLES
    for a in type(table.initial)
    for b in type(table.initial)
    if not table.allows(a, b)
]


def name_of(value: Any) -> str:
    return value.kind if isinstance(value, Transitions) else value.name


def way_to(table: Transitions[Any], goal: Enum) -> list[Enum]:
    """A shortest way from the beginning."""
    ways: dict[Enum, list[Enum]] = {table.initial: []}
    for state in ways_in_order(table, ways):
        if state is goal:
            break
    return ways[goal]


def ways_in_order(table: Transitions[Any], ways: dict[Enum, list[Enum]]) -> list[Enum]:
    waiting = [table.initial]
    for state in waiting:
        for after in sorted(table.edges.get(state, ()), key=lambda s: s.name):
            if after not in ways:
                ways[after] = [*ways[state], after]
                waiting.append(after)
    return waiting


def machine_in(table: Transitions[Any], state: Enum, clock: ManualClock | None = None) -> StateMachine[Any]:
    machine: StateMachine[Any] = StateMachine(table, f"{table.kind} 'x'", clock=clock or ManualClock())
    for step in way_to(table, state):
        machine.to(step, "on the way")
    return machine


def is_an_event(table: Transitions[Any], before: Enum, after: Enum) -> None:
    clock = ManualClock(1000)
    machine = machine_in(table, before, clock)
    clock.advance(234)
    event = machine.to(after, "because")
    assert machine.state is after
    assert event == Event(1234, f"{table.kind} 'x'", before.name, after.name, "because", event.number)
    assert machine.story.events[-1] == event
    assert machine.time_ms(after) == 1234


def test_a_legal_transition_is_an_event_with_time_and_cause() -> None:
    hold(is_an_event, LEGAL)


def is_refused(table: Transitions[Any], before: Enum, after: Enum) -> None:
    clock = ManualClock(1000)
    machine = machine_in(table, before, clock)
    heard: list[Event] = []
    machine.listener = heard.append
    events, times = machine.story.events, machine.times_ms
    clock.advance(1)
    assert not machine.try_to(after, "no")
    with pytest.raises(IllegalTransitionError) as raised:
        machine.to(after, "no")
    assert machine.state is before
    assert (machine.story.events, machine.times_ms, heard) == (events, times, [])
    assert f"from {before.name} to {after.name}" in str(raised.value)
    assert str(events[-1]) in raised.value.story
    assert isinstance(raised.value, InternalError)
    assert not raised.value.retryable


def test_an_illegal_transition_raises_and_changes_nothing() -> None:
    hold(is_refused, ILLEGAL)


def test_the_final_states_are_those_of_flink() -> None:
    def final(table: Transitions[Any]) -> set[str]:
        return {state.name for state in type(table.initial) if table.is_terminal(state)}

    assert final(JOB_TRANSITIONS) == {state.name for state in JobStatus if state.is_terminal_state()}
    assert final(JOB_TRANSITIONS) == {"FAILED", "CANCELED", "FINISHED", "SUSPENDED"}
    assert final(EXECUTION_TRANSITIONS) == {"FINISHED", "CANCELED", "FAILED"}
    assert final(CHECKPOINT_TRANSITIONS) == {"COMPLETED", "FAILED"}


@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_every_state_can_be_reached_and_can_come_to_an_end(table: Transitions[Any]) -> None:
    states = list(type(table.initial))
    assert set(ways_in_order(table, {table.initial: []})) == set(states)
    for state in states:
        onward: Transitions[Any] = Transitions(table.kind, state, table.edges)
        assert any(table.is_terminal(end) for end in ways_in_order(onward, {state: []}))


@given(st.lists(st.sampled_from(list(JobStatus)), max_size=30))
def test_whatever_is_asked_for_the_story_is_a_way_through_the_table(wishes: list[JobStatus]) -> None:
    clock = ManualClock()
    machine = StateMachine(JOB_TRANSITIONS, "job 'x'", clock=clock)
    for wish in wishes:
        clock.advance(1)
        machine.try_to(wish)
    told = [JobStatus[event.after] for event in machine.story.events]
    assert told[0] is JobStatus.INITIALIZING
    assert all(JOB_TRANSITIONS.allows(a, b) for a, b in zip(told, told[1:]))
    assert told[-1] is machine.state
    assert [event.number for event in machine.story.events] == list(range(len(told)))


def test_a_job_that_restarts_tells_so() -> None:
    clock = ManualClock(1_700_000_000_000)
    machine = StateMachine(JOB_TRANSITIONS, "job 'clicks'", clock=clock)
    machine.to(JobStatus.CREATED)
    machine.to(JobStatus.RUNNING, "the query has started")
    clock.advance(1500)
    machine.to(JobStatus.FAILING, "KeyError in user code:\n  'u42'")
    machine.to(JobStatus.RESTARTING, "attempt 1 begins in 1000 ms")
    assert str(machine.story) == (
        "2023-11-14T22:13:20.000Z job 'clicks': INITIALIZING\n"
        "2023-11-14T22:13:20.000Z job 'clicks': INITIALIZING -> CREATED\n"
        "2023-11-14T22:13:20.000Z job 'clicks': CREATED -> RUNNING (the query has started)\n"
        "2023-11-14T22:13:21.500Z job 'clicks': RUNNING -> FAILING (KeyError in user code: 'u42')\n"
        "2023-11-14T22:13:21.500Z job 'clicks': FAILING -> RESTARTING (attempt 1 begins in 1000 ms)"
    )
    assert machine.story.tail(1).splitlines() == ["(4 earlier events)", str(machine.story.events[-1])]


def test_a_story_forgets_its_oldest_events_and_says_how_many() -> None:
    story = Story(max_events=3)
    for number in range(5):
        story.add(number, "a", "", f"S{number}", "x" * 1000)
    assert [event.after for event in story.events] == ["S2", "S3", "S4"]
    assert story.forgotten == 2
    assert str(story).startswith("(2 earlier events)\n")
    assert len(story.events[0].cause) == 300


def test_what_is_told_late_stands_where_it_has_happened() -> None:
    story = Story(max_events=4)
    for time_ms, after in ((10, "RUNNING"), (20, "FAILING"), (30, "RESTARTING")):
        story.add(time_ms, "job 'x'", "", after, "")
    story.add(15, "task manager '1'", "REGISTERED", "LOST", "", late=True)
    assert [(event.time_ms, event.after, event.number) for event in story.events] == [
        *((10, "RUNNING", 0), (15, "LOST", 3)),
        *((20, "FAILING", 1), (30, "RESTARTING", 2)),
    ]
    story.add(40, "task manager '2'", "", "REGISTERED", "", late=True)
    assert [event.after for event in story.events] == ["LOST", "FAILING", "RESTARTING", "REGISTERED"]


def test_a_clock_that_goes_back_changes_no_order() -> None:
    clock = ManualClock(10_000)
    machine = StateMachine(JOB_TRANSITIONS, "job 'x'", clock=clock)
    clock.set(5_000)
    machine.to(JobStatus.CREATED)
    assert [(event.number, event.time_ms) for event in machine.story.events] == [(0, 10_000), (1, 5_000)]


def test_an_illegal_transition_keeps_its_story_on_its_way_between_processes() -> None:
    machine = machine_in(CHECKPOINT_TRANSITIONS, CheckpointState.COMPLETED)
    with pytest.raises(IllegalTransitionError) as raised:
        machine.to(CheckpointState.FAILED, "too late")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (IllegalTransitionError, str(raised.value))
    assert "which is final" in str(again)


def test_an_execution_that_fails_while_it_is_cancelled_is_cancelled() -> None:
    machine = machine_in(EXECUTION_TRANSITIONS, ExecutionState.CANCELING)
    assert not machine.may(ExecutionState.FAILED)
    machine.to(ExecutionState.CANCELED)
    assert machine.terminal
    assert machine.state.is_terminal
