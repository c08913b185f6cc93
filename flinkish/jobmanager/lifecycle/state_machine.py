"""One kind of life: which state may follow which, as data, and a machine that upholds it.

Rule: an illegal transition raises and changes nothing; a legal one is an event of the story. There is no other way from
state to state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from flinkish.errors import IllegalTransitionError
from flinkish.jobmanager.lifecycle.story import Event, Story
from flinkish.runtime.clock import Clock, SystemClock

S = TypeVar("S", bound=Enum)

#: Events that an illegal transition's error tells.
_TOLD = 10


@dataclass(frozen=True)
class Transitions(Generic[S]):
    """A table of transitions. States without a row of their own cannot be left."""

    #: what lives so: job, execution, checkpoint
    kind: str
    initial: S
    edges: Mapping[S, frozenset[S]]

    def allows(self, before: S, after: S) -> bool:
        """Whether one may follow the other."""
        return after in self.edges.get(before, frozenset())

    def is_terminal(self, state: S) -> bool:
        """Whether nothing follows."""
        return not self.edges.get(state)


class StateMachine(Generic[S]):
    """One life. Any thread may move it; of two that move it at once, the second sees the state that the first left.

    Args:
        transitions: the table.
        subject: whose life, for the story: ``job 'clicks'``.
        story: where events are told; a story of its own by default.
        clock: of the events.
        listener: hears of each event, after it has happened, in the thread that moved the machine.
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
        #: state -> when it was entered last
        self._times_ms: dict[S, int] = {}
        self._tell("", transitions.initial, "")

    @property
    def state(self) -> S:
        """The state as of now."""
        return self._state

    @property
    def terminal(self) -> bool:
        """Whether this is the end."""
        return self._transitions.is_terminal(self._state)

    def time_ms(self, state: S) -> int | None:
        """When a state was entered last; None: never."""
        return self._times_ms.get(state)

    @property
    def times_ms(self) -> dict[str, int]:
        """State -> when it was entered last, in the order of the first entries."""
        with self._lock:
            return {state.name: time_ms for state, time_ms in self._times_ms.items()}

    def may(self, state: S) -> bool:
        """Whether the transition would be legal now."""
        return self._transitions.allows(self._state, state)

    def to(self, state: S, cause: str = "") -> Event:
        """Go to a state.

        Raises:
            IllegalTransitionError: the state may not follow the present one. Nothing has changed.
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
        """Go to a state if that is legal; whether it was. For who cannot know what others have done meanwhile."""
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
