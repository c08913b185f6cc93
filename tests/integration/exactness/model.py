"""What the big job must put out, said without watermarks, timers, state or epochs.

Rule: nothing here knows how the job works. A life is what the key's records of one burst are; a window is what the
records of one stretch of time are, fired once for all that came in time and once more for each that came late.
The input may have been consumed in part; then all that was open is closed at its end (that is what a drain does).
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.integration.exactness.events import (
    LATE,
    ON_TIME,
    RECORDS,
    SOURCES,
    TOO_LATE,
    WINDOW_MS,
    Event,
    event,
    window_start,
)
from tests.support.exactness import Output

ALL = dict.fromkeys(SOURCES, RECORDS)


@dataclass(frozen=True)
class Edit:
    """State of the sessions that was edited between two runs, when this much had been consumed."""

    consumed: Mapping[str, int]
    #: key -> added to the total of its life
    added: Mapping[int, int] = field(default_factory=dict)
    #: keys whose life was deleted
    forgotten: frozenset[int] = frozenset()
    #: key without a life -> (name, total) of one that it was given
    given: Mapping[int, tuple[str, int]] = field(default_factory=dict)


def text(*content: object) -> str:
    """The content of an output, as it stands in the sinks."""
    return json.dumps(content)


def digest(ids: Iterable[str]) -> int:
    """Which records, whatever their order."""
    return zlib.crc32(" ".join(sorted(ids)).encode())


def events_of(consumed: Mapping[str, int]) -> list[Event]:
    """The records that were consumed, in the order of their coming."""
    events = [event(source, index) for source, count in consumed.items() for index in range(count)]
    return sorted(events, key=lambda e: e.at_ms)


def of_each(records: int) -> dict[str, int]:
    """So many records of each source."""
    return dict.fromkeys(SOURCES, records)


def living_on(consumed: Mapping[str, int], until: Mapping[str, int] = ALL) -> list[int]:
    """Keys of which records of one life have been consumed and others, in time, have not."""
    before = {(e.key, e.burst) for e in events_of(consumed)}
    rest = [e for e in events_of(until) if e.position >= consumed[e.source]]
    return sorted({e.key for e in rest if e.kind == ON_TIME and (e.key, e.burst) in before})


def golden(consumed: Mapping[str, int] = ALL, edit: Edit | None = None) -> list[Output]:
    """All outputs of the job. ``consumed``: source -> how many of its records."""
    events = events_of(consumed)
    return [*_sessions(events, edit), *_windows(events), *_too_late(events)]


class _Numbers:
    """Outputs of a lane are numbered from 1 on."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def output(self, lane: str, identity: str, life: str, content: str) -> Output:
        self._counts[lane] += 1
        return Output(lane, identity, self._counts[lane], life, content)


def _sessions(events: list[Event], edit: Edit | None) -> list[Output]:
    numbers = _Numbers()
    lives: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for each in events:
        lives[each.key, each.burst].append(each)
    outputs: list[Output] = []
    for (key, burst), members in sorted(lives.items(), key=lambda item: (item[0][0], int(item[0][1]))):
        outputs.extend(_life(numbers, key, burst, members, edit))
    return outputs


def _life(numbers: _Numbers, key: int, burst: str, members: list[Event], edit: Edit | None) -> list[Output]:
    before = [e for e in members if edit is not None and e.position < edit.consumed[e.source]]
    after = members[len(before) :]
    open_at_edit = bool(before and after)
    if edit is not None and open_at_edit and key in edit.forgotten:
        return [*_counts(numbers, key, burst, before), *_whole_life(numbers, key, burst, after, 0)]
    if edit is not None and not before and key in edit.given and _is_next(key, burst, edit):
        return _whole_life(numbers, key, *_given(edit, key, after))
    added = edit.added.get(key, 0) if edit is not None and open_at_edit else 0
    return _whole_life(numbers, key, burst, members, added)


def _given(edit: Edit, key: int, after: list[Event]) -> tuple[str, list[Event], int]:
    name, total = edit.given[key]
    return name, after, total


def _is_next(key: int, burst: str, edit: Edit) -> bool:
    """Whether this is the key's first life that begins after the edit."""
    begun = [e.burst for e in events_of(edit.consumed) if e.key == key]
    return int(burst) == max(map(int, begun)) + 1


def _whole_life(numbers: _Numbers, key: int, life: str, members: list[Event], added: int) -> list[Output]:
    return [*_counts(numbers, key, life, members), *_close(numbers, key, life, members, added)]


def _counts(numbers: _Numbers, key: int, life: str, members: list[Event]) -> list[Output]:
    count: Counter[str] = Counter()
    outputs = []
    for each in members:
        count[each.source] += 1
        content = text(count[each.source], each.kind)
        outputs.append(numbers.output(f"{each.source}/{key}", each.id, life, content))
    return outputs


def _close(numbers: _Numbers, key: int, life: str, members: list[Event], added: int) -> list[Output]:
    if not any(e.kind == ON_TIME for e in members):
        return []
    counts = sorted(Counter(e.source for e in members).items())
    content = text(sum(e.amount for e in members) + added, [list(c) for c in counts], digest(e.id for e in members))
    return [numbers.output(f"closed/{key}", f"closed/{key}/{life}", life, content)]


@dataclass(frozen=True)
class _Firing:
    when_ms: int
    start: int
    number: int
    members: tuple[Event, ...]


def _windows(events: list[Event]) -> list[Output]:
    windows: dict[int, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for each in events:
        if each.kind != TOO_LATE:
            windows[each.key][window_start(each.time_ms)].append(each)
    outputs = []
    numbers = _Numbers()
    for key, of_key in sorted(windows.items()):
        firings = [firing for start, members in of_key.items() for firing in _firings(start, members)]
        running = 0
        for firing in sorted(firings, key=lambda f: f.when_ms):
            amount = sum(e.amount for e in firing.members)
            running += amount
            content = text(len(firing.members), amount, digest(e.id for e in firing.members), running)
            identity = f"{key}@{firing.start}#{firing.number}"
            outputs.append(numbers.output(f"window/{key}", identity, str(firing.start), content))
    return outputs


def _firings(start: int, members: list[Event]) -> list[_Firing]:
    """The records that came in time, then each late one with all before it."""
    in_time = [e for e in members if e.kind == ON_TIME]
    late = [e for e in members if e.kind == LATE]
    assert in_time, f"window {start} has late records only"
    firings = [_Firing(start + WINDOW_MS, start, 1, tuple(in_time))]
    for count, each in enumerate(late, 1):
        firings.append(_Firing(each.at_ms, start, count + 1, (*in_time, *late[:count])))
    return firings


def _too_late(events: list[Event]) -> list[Output]:
    numbers = _Numbers()
    return [
        numbers.output(f"late/{e.source}/{e.key}", f"late/{e.id}", "all", text(e.kind, e.time_ms))
        for e in events
        if e.kind == TOO_LATE
    ]
