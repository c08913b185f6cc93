"""The life cycles of a job, an execution and a checkpoint: for each a table that says which state may follow which; the
state machine that enforces the table; and the story, a record of the transitions.

Rule: an illegal transition raises and changes nothing; a legal one is an event of the story. The state changes in no
other way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Generic, TypeVar

from flinkish.common.job_status import JobStatus
from flinkish.errors import IllegalTransitionError
from flinkish.runtime.phases import Clock, SystemClock

#: Longest cause of an event, in characters; the whole text belongs to the exceptions.
MAX_CAUSE = 300


@dataclass(frozen=True)
class Event:
    """One transition. ``before`` is empty for the first event of a subject."""

    #: milliseconds since 1970, by the clock of the driver
    time_ms: int
    subject: str
    before: str
    after: str
    cause: str = ""
    #: how many events were told before; times do not give the order, as clocks go back at times
    number: int = 0

    def __str__(self) -> str:
        change = f"{self.before} -> {self.after}" if self.before else self.after
        return f"{time_text(self.time_ms)} {self.subject}: {change}" + (f" ({self.cause})" if self.cause else "")


class Story:
    """The last events of one or several subjects, in the order in which they happened. Any thread may add or read.

    Rule: a story is bounded. When there is no room, the oldest events are forgotten, and the story says how many.

    >>> story = Story(); _ = story.add(0, "job 'a'", "CREATED", "RUNNING", "the query has started"); print(story)
    1970-01-01T00:00:00.000Z job 'a': CREATED -> RUNNING (the query has started)
    """

    MAX_EVENTS = 1000

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._events: deque[Event] = deque(maxlen=max_events)
        self._added = 0
        self._lock = threading.Lock()

    def add(self, time_ms: int, subject: str, before: str, after: str, cause: str, late: bool = False) -> Event:
        """Add an event; returns it. ``late``: it is told some time after it has happened, and stands where it has."""
        with self._lock:
            later = list[Event]()
            while late and self._events and self._events[-1].time_ms > time_ms:
                later.insert(0, self._events.pop())
            event = Event(time_ms, subject, before, after, shortened(cause), self._added)
            self._added += 1
            self._events.extend((event, *later))
            return event

    @property
    def events(self) -> tuple[Event, ...]:
        """All events that are remembered, oldest first."""
        with self._lock:
            return tuple(self._events)

    @property
    def forgotten(self) -> int:
        """How many events were forgotten for want of room."""
        with self._lock:
            return self._added - len(self._events)

    def tail(self, events: int) -> str:
        """The last events as text, one per line, with the number of those before."""
        return _text(self.events[-events:], self._added)

    def __str__(self) -> str:
        return _text(self.events, self._added)


def _text(events: tuple[Event, ...], added: int) -> str:
    missing = added - len(events)
    lines = [f"({missing} earlier event{'s'[: missing != 1]})"] if missing > 0 else []
    return "\n".join([*lines, *map(str, events)])


def shortened(cause: str) -> str:
    """A cause as one line of at most `MAX_CAUSE` characters."""
    text = " ".join(cause.split())
    return text if len(text) <= MAX_CAUSE else text[: MAX_CAUSE - 3] + "..."


def time_text(time_ms: int) -> str:
    """A time in milliseconds since 1970 as text: UTC with milliseconds, or the number if it is beyond the calendar."""
    seconds, millis = divmod(time_ms, 1000)
    try:
        time = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return f"{time.replace(tzinfo=None).isoformat(timespec='seconds')}.{millis:03d}Z"


S = TypeVar("S", bound=Enum)

#: Number of past events in the error for an illegal transition.
_TOLD = 10


@dataclass(frozen=True)
class Transitions(Generic[S]):
    """A table of transitions. States without a row of their own are terminal."""

    #: kind of the subject, for messages: job, execution, checkpoint
    kind: str
    initial: S
    edges: Mapping[S, frozenset[S]]

    def allows(self, before: S, after: S) -> bool:
        """Whether ``after`` may follow ``before``."""
        return after in self.edges.get(before, frozenset())

    def is_terminal(self, state: S) -> bool:
        """Whether no state may follow this one."""
        return not self.edges.get(state)


class StateMachine(Generic[S]):
    """The state of one subject. Any thread may change it; of two that do so at once, the second sees the state that the
    first one left.

    Args:
        transitions: the table of transitions.
        subject: names the subject in the story: ``job 'clicks'``.
        story: the story to which events are added; a story of its own by default.
        clock: gives the times of events; by default the machine's.
        listener: called with the event of each transition after it has happened, in the thread that made it; not with
            that of the initial state.
    """

    def __init__(
        self,
        transitions: Transitions[S],
        subject: str,
        story: Story | None = None,
        clock: Clock | None = None,
        listener: Callable[[Event], None] | None = None,
    ) -> None:
        self._transitions = transitions
        self._subject = subject
        self.story = story if story is not None else Story()
        self.listener = listener
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._state = transitions.initial
        #: name of a state -> when it was entered last, in milliseconds since 1970
        self._times_ms: dict[str, int] = {}
        #: the same -> time spent in it, without that since the last transition
        self._durations_ms: dict[str, int] = {}
        self._entered_ms: int | None = None
        self._left = transitions.initial.name
        self._record("", transitions.initial, "")

    @property
    def state(self) -> S:
        """The current state."""
        return self._state

    @property
    def terminal(self) -> bool:
        """Whether the current state is terminal."""
        return self._transitions.is_terminal(self._state)

    def time_ms(self, state: S) -> int | None:
        """When a state was entered last, in milliseconds since 1970; None: never."""
        return self._times_ms.get(state.name)

    @property
    def times_ms(self) -> dict[str, int]:
        """State name -> when it was entered last, in milliseconds since 1970, in the order of the first entries."""
        with self._lock:
            return dict(self._times_ms)

    @property
    def durations_ms(self) -> dict[str, int]:
        """State name -> time that was spent in it so far, in ms, for the states that are not terminal."""
        with self._lock:
            found = dict(self._durations_ms)
            if not self.terminal and self._entered_ms is not None:
                since_ms = max(self._clock.now_ms() - self._entered_ms, 0)
                found[self._left] = found.get(self._left, 0) + since_ms
            return found

    def may(self, state: S) -> bool:
        """Whether the transition to this state would be legal now."""
        return self._transitions.allows(self._state, state)

    def to(self, state: S, cause: str = "") -> Event:
        """Change to a state; returns the event.

        Raises:
            IllegalTransitionError: the state may not follow the current one. Nothing has changed.
        """
        with self._lock:
            before = self._state
            if not self._transitions.allows(before, state):
                raise self._illegal(before, state, cause)
            self._state = state
            event = self._record(before.name, state, cause)
            if self.listener is not None:
                self.listener(event)
            return event

    def try_to(self, state: S, cause: str = "") -> bool:
        """Change to a state if that is legal; returns whether it was. For callers that cannot know what other threads
        have done meanwhile."""
        with self._lock:
            if not self.may(state):
                return False
            self.to(state, cause)
            return True

    def _record(self, before: str, state: S, cause: str) -> Event:
        now_ms = self._clock.now_ms()
        if self._entered_ms is not None:
            left = self._left
            self._durations_ms[left] = self._durations_ms.get(left, 0) + max(now_ms - self._entered_ms, 0)
        self._times_ms[state.name], self._entered_ms, self._left = now_ms, now_ms, state.name
        return self.story.add(now_ms, self._subject, before, state.name, cause)

    def _illegal(self, before: S, after: S, cause: str) -> IllegalTransitionError:
        legal = sorted(state.name for state in self._transitions.edges.get(before, frozenset()))
        return IllegalTransitionError(
            f"a {self._transitions.kind} cannot go from {before.name} to {after.name}"
            + (f" ({cause})" if cause else ""),
            where=self._subject,
            expected=" or ".join(legal) if legal else f"nothing after {before.name}, which is final",
            hint="please report this",
            story=self.story.tail(_TOLD),
        )


_J = JobStatus

# The table of a job is that of Flink's schedulers (DefaultExecutionGraph, Dispatcher). Two transitions are flinkish's
# own: FAILING -> RESTARTING, because here a failure ends the query as a whole, where Flink restarts regions of a job
# that goes on RUNNING; and INITIALIZING -> SUSPENDED, for a driver that finds that another one owns the job before the
# job has begun.
JOB_TRANSITIONS: Transitions[JobStatus] = Transitions(
    "job",
    _J.INITIALIZING,
    {
        _J.INITIALIZING: frozenset({_J.CREATED, _J.CANCELLING, _J.FAILING, _J.FAILED, _J.SUSPENDED}),
        _J.CREATED: frozenset({_J.RUNNING, _J.RECONCILING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        # a driver has taken over a job that another driver had begun
        _J.RECONCILING: frozenset({_J.RUNNING, _J.FINISHED, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        _J.RUNNING: frozenset({_J.FINISHED, _J.RESTARTING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        _J.FAILING: frozenset({_J.FAILED, _J.RESTARTING, _J.CANCELLING, _J.SUSPENDED}),
        _J.RESTARTING: frozenset({_J.CREATED, _J.RUNNING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        _J.CANCELLING: frozenset({_J.CANCELED, _J.FAILING, _J.FAILED, _J.SUSPENDED}),
    },
)


class ExecutionState(Enum):
    """The states of an execution, as Flink has them."""

    CREATED = "CREATED"
    #: the job's attempt that the execution belongs to has begun
    SCHEDULED = "SCHEDULED"
    #: the query is being started
    DEPLOYING = "DEPLOYING"
    #: the first epoch of the attempt runs: functions are opened, state is restored
    INITIALIZING = "INITIALIZING"
    #: at least one epoch of the attempt is done
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"

    @property
    def is_terminal(self) -> bool:
        """Whether no state follows this one."""
        return EXECUTION_TRANSITIONS.is_terminal(self)


_E = ExecutionState

# The table of an execution, one attempt of one subtask, is Flink's (ExecutionState, Execution). FAILED can follow every
# state that is not final, except CANCELING: an execution that fails while it is cancelled is CANCELED.
EXECUTION_TRANSITIONS: Transitions[ExecutionState] = Transitions(
    "execution",
    _E.CREATED,
    {
        _E.CREATED: frozenset({_E.SCHEDULED, _E.RECONCILING, _E.CANCELED, _E.FAILED}),
        _E.SCHEDULED: frozenset({_E.DEPLOYING, _E.CANCELED, _E.FAILED}),
        _E.DEPLOYING: frozenset({_E.INITIALIZING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.INITIALIZING: frozenset({_E.RUNNING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.RUNNING: frozenset({_E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.CANCELING: frozenset({_E.CANCELED}),
        _E.RECONCILING: frozenset({_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELED, _E.FAILED}),
    },
)


#: Execution states by precedence: a vertex has the first of them that any of its executions has.
_PRECEDENCE = (
    _E.FAILED,
    _E.CANCELING,
    _E.CANCELED,
    _E.RECONCILING,
    _E.RUNNING,
    _E.INITIALIZING,
    _E.DEPLOYING,
    _E.SCHEDULED,
    _E.CREATED,
    _E.FINISHED,
)


def aggregated_state(states: Collection[str]) -> str:
    """The state of several executions together, as Flink has it for a vertex.

    >>> aggregated_state(["FINISHED", "RUNNING", "FINISHED"])
    'RUNNING'
    """
    return next((state.name for state in _PRECEDENCE if state.name in states), _E.CREATED.name)


class CheckpointState(Enum):
    """The states of a checkpoint: Flink's CheckpointStatsStatus, with PENDING for IN_PROGRESS."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


# A checkpoint or savepoint completes or fails, once. The cause of a failure is its reason.
CHECKPOINT_TRANSITIONS: Transitions[CheckpointState] = Transitions(
    "checkpoint",
    CheckpointState.PENDING,
    {CheckpointState.PENDING: frozenset({CheckpointState.COMPLETED, CheckpointState.FAILED})},
)
