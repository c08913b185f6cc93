"""A record of the transitions of one or several subjects, in the order in which they happened.

Rule: a story is bounded. When there is no room, the oldest events are forgotten, and the story says how many.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timezone

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
    #: position in the story, from 0 on; times do not give the order, as clocks go back at times
    number: int = 0

    def __str__(self) -> str:
        change = f"{self.before} -> {self.after}" if self.before else self.after
        return f"{time_text(self.time_ms)} {self.subject}: {change}" + (f" ({self.cause})" if self.cause else "")


class Story:
    """The last events of one or several subjects. Any thread may add or read.

    >>> story = Story(); _ = story.add(0, "job 'a'", "CREATED", "RUNNING", "the query has started"); print(story)
    1970-01-01T00:00:00.000Z job 'a': CREATED -> RUNNING (the query has started)
    """

    MAX_EVENTS = 1000

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._events: deque[Event] = deque(maxlen=max_events)
        self._added = 0
        self._lock = threading.Lock()

    def add(self, time_ms: int, subject: str, before: str, after: str, cause: str) -> Event:
        """Add an event; returns it."""
        with self._lock:
            event = Event(time_ms, subject, before, after, shortened(cause), self._added)
            self._added += 1
            self._events.append(event)
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
