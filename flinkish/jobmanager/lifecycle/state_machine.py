"""State machines: a table that says which state may follow which, and a machine that enforces it.

Rule: an illegal transition raises and changes nothing; a legal one is an event of the story. The state changes in no
other way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from flinkish.errors import IllegalTransitionError
from flinkish.jobmanager.lifecycle.story import Event, Story
from flinkish.runtime.phases import Clock, SystemClock

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
        #: state -> when it was entered last, in milliseconds since 1970
        self._times_ms: dict[S, int] = {}
        self._tell("", transitions.initial, "")

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
        return self._times_ms.get(state)

    @property
    def times_ms(self) -> dict[str, int]:
        """State name -> when it was entered last, in milliseconds since 1970, in the order of the first entries."""
        with self._lock:
            return {state.name: time_ms for state, time_ms in self._times_ms.items()}

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
            event = self._tell(before.name, state, cause)
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

    def _tell(self, before: str, state: S, cause: str) -> Event:
        now_ms = self._clock.now_ms()
        self._times_ms[state] = now_ms
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
