"""The gate against one that has only the rules: one record, one watermark, one change of status at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import (
    CACHED,
    Buffer,
    Joined,
    OriginProgress,
    Records,
    Step,
    Stretch,
    WatermarkStep,
    decode_elements,
    place,
)
from flinkish.runtime.exchange.gate import InputGate, SortedBuffers, origin_name
from flinkish.runtime.exchange.partitioners import InputDescriptor
from tests.support.profiles import examples
from tests.unit.runtime.exchange.senders import buffer

IDLE_TIMEOUT_MS = 2
#: A source whose splits hold back from where they are, united with another edge of it, and the second input of
#: ``connect``: a task that is idle after a while.
DESCRIPTORS = (
    InputDescriptor(0, 0),
    InputDescriptor(0, 0, edge=1),
    InputDescriptor(1, 1, IDLE_TIMEOUT_MS, from_source=False),
)
ORIGINS = ("0/a", "0/b", "0~1/a", "1/0", "1/1", "1/2")


@dataclass(eq=False)
class Input:
    """One (origin, part), or a group of them that is one input of what is above it."""

    name: tuple[str, int]
    watermark_ms: int
    above: Input | None = None
    idle: bool = False
    aligned: bool = True
    always_aligned: bool = False
    below: list[Input] = field(default_factory=list)
    elements: list[Any] = field(default_factory=list)
    active: bool = False

    def join(self, idle: bool, aligned: bool) -> None:
        """Become an input of what is above it; ``aligned``: as it was when it was last heard of."""
        assert self.above is not None
        self.idle = idle
        self.aligned = self.always_aligned or not idle and (aligned or self.watermark_ms >= self.above.watermark_ms)
        self.above.below.append(self)

    def rise(self, watermark_ms: int) -> None:
        """A watermark makes an input active, and aligned if it has caught up."""
        if watermark_ms > self.watermark_ms:
            self.watermark_ms, self.idle = watermark_ms, False
            if self.above is not None:
                self.aligned = self.aligned or watermark_ms >= self.above.watermark_ms
                self.above.look()

    def set_idle(self, idle: bool) -> None:
        if idle is not self.idle:
            self.idle = idle
            if self.above is not None:
                self.aligned = self.always_aligned or not idle and self.watermark_ms >= self.above.watermark_ms
        if self.above is not None:
            self.above.look()

    def of_inputs(self) -> tuple[int, bool]:
        """The watermark and the status that follow from the inputs. If all are idle, the watermark is the highest one.
        An input of ``connect`` that has ended is never idle: beside one that is idle, time is at its end."""
        going = [one for one in self.below if one.watermark_ms < MAX_WATERMARK_MS]
        active = [one for one in going if not one.idle]
        if not going:
            return MAX_WATERMARK_MS if self.below else self.watermark_ms, False
        if active:
            return min((one.watermark_ms for one in active if one.aligned), default=self.watermark_ms), False
        if self.above is None and len(going) < len(self.below):
            return MAX_WATERMARK_MS - 1, False
        return max(one.watermark_ms for one in going), True

    def look(self) -> None:
        """Flink's order: the watermark rises before an input becomes idle."""
        lowest_ms, idle = self.of_inputs()
        self.rise(lowest_ms)
        self.set_idle(idle)


class PlainGate:
    """Every element by itself, every question to all inputs."""

    def __init__(
        self,
        known: dict[str, OriginProgress],
        combined_ms: int,
        idle: bool,
        now_ms: int,
        known_groups_ms: dict[Any, int],
        unaligned: Collection[Any],
    ) -> None:
        self.unaligned_before = unaligned
        self.known, self.told_idle, self.now_ms = known, idle, now_ms
        self.told_ms = combined_ms
        self.operator = Input(("operator", 0), combined_ms)
        self.inputs: list[Input] = []
        self.groups: dict[Any, Input] = {}
        for group in (0,), (1,), (0, "0"), (0, "0~1"):
            above = self.groups[group[:-1]] if group[:-1] else self.operator
            watermark_ms = known_groups_ms.get(group, MIN_TIMESTAMP_MS)
            self.groups[group] = Input((str(group), 0), watermark_ms, above, always_aligned=len(group) == 1)
        self.told: list[Any] = []

    @property
    def combined_ms(self) -> int:
        return self.operator.watermark_ms

    @property
    def idle(self) -> bool:
        return self.operator.idle

    def run(self, buffers: list[Buffer]) -> list[Any]:
        """Records as ``(input index, value, timestamp)``, ``("wm", ms)`` and ``("idle", flag)``."""
        by_name = groupby(sorted(buffers, key=_by_input), key=lambda one: (one.header.origin, one.header.part))
        for name, content in by_name:
            self._add(name, [element for one in content for element in _elements(one)])
        present = {one.name[0] for one in self.inputs}
        for edge in ("0", "0~1", "1"):
            origins = present | set(self.known)
            if not any(origin.partition("/")[0] == edge for origin in origins):
                self.known[f"{edge}/?"] = OriginProgress(int(edge[0]), last_active_ms=self.now_ms)
            elif any(origin.partition("/")[0] == edge for origin in origins - {f"{edge}/?"}):
                self.known.pop(f"{edge}/?", None)
        for origin in sorted(set(self.known) - present):
            self._add((origin, 0), [])
        for group in sorted(self.groups, key=len, reverse=True):
            of_group = self.groups[group]
            watermark_ms, idle = of_group.of_inputs()
            of_group.watermark_ms = max(of_group.watermark_ms, watermark_ms)
            of_group.join(idle, group not in self.unaligned_before)
        self.operator.look()
        self._tell()
        while going := [one for one in self.inputs if one.elements]:
            one = min(going, key=lambda one: (one.watermark_ms, one.name))
            self._take(one, one.elements.pop(0))
        return self.told

    def _add(self, name: tuple[str, int], elements: list[Any]) -> None:
        before = self.known.get(name[0])
        watermark_ms = before.watermark_ms if before else MIN_TIMESTAMP_MS
        idle = before is not None and before.idle
        if before is not None and name[0].startswith("1/") and watermark_ms < MAX_WATERMARK_MS:
            idle = idle or self.now_ms - before.last_active_ms >= IDLE_TIMEOUT_MS
        idle = idle and all(element is True for element in elements)
        group = self.groups[(1,) if name[0].startswith("1/") else (0, name[0].partition("/")[0])]
        made = Input(name, watermark_ms, group, always_aligned=not name[0].startswith("1/"), elements=elements)
        made.join(idle, name[0] not in self.unaligned_before)
        self.inputs.append(made)

    @property
    def unaligned(self) -> set[Any]:
        """What is not aligned, and has not ended."""
        named = [*self.groups.items(), *((one.name[0], one) for one in self.inputs)]
        aligned = {name for name, one in named if one.aligned or one.watermark_ms == MAX_WATERMARK_MS}
        return {name for name, _ in named} - aligned

    def _take(self, one: Input, element: Any) -> None:
        if isinstance(element, bool):
            one.active = one.active or not element
            one.set_idle(element)
        elif isinstance(element, int):
            one.active = one.active or element > one.watermark_ms
            one.rise(element)
        else:
            one.active = True
            one.set_idle(False)
        self._tell()
        if not isinstance(element, int):
            self.told.append(element)

    def _tell(self) -> None:
        """Flink's order: who was idle is active before its watermark rises, and flushes before it becomes idle."""
        was_idle, self.told_idle = self.told_idle, self.idle
        if was_idle and not self.idle:
            self.told.append(("idle", False))
        if self.combined_ms > self.told_ms:
            self.told_ms = self.combined_ms
            self.told.append(("wm", self.told_ms))
        if self.idle and not was_idle:
            self.told.append(("idle", True))

    def progress(self) -> dict[str, OriginProgress]:
        """Of each origin, the lowest watermark over its parts."""
        result = {}
        for origin in sorted({one.name[0] for one in self.inputs}):
            parts = [one for one in self.inputs if one.name[0] == origin]
            before = self.known.get(origin)
            active = any(one.active for one in parts) or before is None
            result[origin] = OriginProgress(
                0 if origin.startswith("0") else 1,
                min(one.watermark_ms for one in parts),
                all(one.idle for one in parts),
                self.now_ms if active or before is None else before.last_active_ms,
            )
        return result


def _by_input(one: Buffer) -> tuple[str, int, int]:
    return one.header.origin, one.header.part, one.header.sequence


def _elements(one: Buffer) -> Iterator[Any]:
    values, timestamps, positions, events, _ = decode_elements(one.payload)
    for at in range(len(values) + 1):
        yield from [event for position, event in zip(positions, events, strict=True) if position == at]
        if at < len(values):
            yield one.header.input_index, values[at], None if timestamps is None else timestamps[at]


records = st.tuples(st.integers(0, 9), st.integers(0, 50))
#: mostly what a healthy job sends; watermarks may also fall, and end
plain = st.lists(st.one_of(records, records, st.integers(-5, 30)), max_size=12)
anything = st.lists(
    st.one_of(records, st.integers(-5, 30), st.booleans(), st.just(MAX_WATERMARK_MS)),
    max_size=12,
)


def scripts(contents: Any) -> Any:
    """What each (origin, part) sends in an epoch, buffer by buffer."""
    names = st.tuples(st.sampled_from(ORIGINS), st.integers(0, 1))
    return st.dictionaries(names, st.lists(contents, min_size=1, max_size=3), max_size=8)


def _sent(script: dict[tuple[str, int], list[list[Any]]]) -> list[Buffer]:
    """Buffers, in the order of their places."""
    sent = []
    for (origin, part), contents in script.items():
        sent_ms = MIN_TIMESTAMP_MS
        for sequence, content in enumerate(contents):
            tagged = [
                ((origin, part, *element), element[1]) if type(element) is tuple else element for element in content
            ]
            one = buffer(origin, sequence, *tagged, part=part, input_index=int(origin[0]))
            begins_ms = max(sent_ms, MIN_TIMESTAMP_MS + 1) if sequence else MIN_TIMESTAMP_MS
            last = sequence == len(contents) - 1
            sent.append(Buffer(one.header._replace(begins_ms=begins_ms, last=last), one.payload))
            sent_ms = max([sent_ms, *(element for element in content if type(element) is int)])
    return sorted(sent, key=lambda one: place(one.header))


#: Without stretches, and with short ones.
WAYS = (CACHED, Joined(3, 16 * 1024, stretches=True))


def _one_by_one(gate: InputGate) -> list[Any]:
    told: list[Any] = []
    for step in _unfolded(gate.steps()):
        if isinstance(step, Records):
            told += zip([step.input_index] * len(step.values), step.values, step.timestamps or [])
        elif isinstance(step, WatermarkStep):
            told.append(("wm", step.watermark_ms))
        else:
            told.append(("idle", step.idle))
    return told


def _unfolded(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, those of a stretch one by one."""
    for step in steps:
        if isinstance(step, Stretch):
            yield from step.steps
        else:
            yield step


def _check(
    epochs: list[Any],
    known: dict[str, OriginProgress] | None = None,
    watermark_ms: int = MIN_TIMESTAMP_MS,
    groups_ms: dict[Any, int] | None = None,
    unaligned: Collection[Any] = (),
) -> None:
    for joined in WAYS:
        _check_one(epochs, joined, dict(known or {}), watermark_ms, dict(groups_ms or {}), unaligned)


def _check_one(
    epochs: list[Any],
    joined: Joined,
    known: dict[str, OriginProgress],
    watermark_ms: int,
    groups_ms: dict[Any, int],
    unaligned: Collection[Any],
) -> None:
    idle = False
    for now_ms, script in enumerate(epochs):
        sent = _sent(script)
        gate = InputGate(
            DESCRIPTORS,
            known,
            watermark_ms,
            idle,
            now_ms,
            joined=joined,
            group_watermarks_ms=groups_ms,
            unaligned=unaligned,
        )
        gate.receive(SortedBuffers(sent))
        rules = PlainGate(dict(known), watermark_ms, idle, now_ms, groups_ms, unaligned)
        assert _one_by_one(gate) == rules.run(sent)
        assert (gate.valve.combined_ms, gate.idle) == (rules.combined_ms, rules.idle)
        known, watermark_ms, idle = gate.progress(), gate.valve.combined_ms, gate.idle
        assert known == rules.progress()
        groups_ms = gate.group_watermarks_ms
        assert groups_ms == {group: one.watermark_ms for group, one in rules.groups.items()}
        unaligned = gate.unaligned
        assert set(unaligned) == rules.unaligned


#: how far the origins and the combined watermark came before
origins_before = st.dictionaries(
    st.sampled_from(ORIGINS),
    st.builds(
        lambda watermark_ms, idle: OriginProgress(0, watermark_ms, idle),
        st.one_of(st.integers(-5, 30), st.just(MAX_WATERMARK_MS)),
        st.booleans(),
    ),
).map(
    lambda known: {
        origin: progress._replace(input_index=int(origin[0]), last_active_ms=-1) for origin, progress in known.items()
    }
)
combined_before = st.one_of(st.just(MIN_TIMESTAMP_MS), st.integers(-5, 30))
groups = st.sampled_from([(0,), (1,), (0, "0"), (0, "0~1")])
groups_before = st.dictionaries(groups, combined_before)
unaligned_before = st.lists(st.sampled_from(ORIGINS) | groups, unique=True)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(scripts(plain), min_size=1, max_size=4))
def test_inputs_that_all_hold_back_are_consumed_as_the_rules_say(epochs: list[Any]) -> None:
    _check(epochs)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(scripts(anything), min_size=1, max_size=4))
def test_inputs_that_become_idle_and_end_are_consumed_as_the_rules_say(epochs: list[Any]) -> None:
    _check(epochs)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(scripts(plain), min_size=1, max_size=2), origins_before, combined_before, groups_before, unaligned_before
)
def test_inputs_that_resume_behind_the_others_are_consumed_as_the_rules_say(
    epochs: list[Any],
    known: dict[str, OriginProgress],
    watermark_ms: int,
    groups_ms: dict[Any, int],
    unaligned: list[Any],
) -> None:
    _check(epochs, known, watermark_ms, groups_ms, unaligned)


@pytest.mark.parametrize(
    ("reached_ms", "groups_ms", "sent_ms"),
    [
        pytest.param(
            {"0/a": 5, "0~1/a": 25, "1/0": 30},
            {(0,): 20, (0, "0"): 5, (0, "0~1"): 25, (1,): 30},
            {"0/a": 7, "0~1/a": 26, "1/0": 31},
            id="a united source that has resumed behind its input",
        ),
        pytest.param(
            {"0/a": 25, "0~1/a": 25, "1/0": 3},
            {(0,): 25, (0, "0"): 25, (0, "0~1"): 25, (1,): 30},
            {"0/a": 40, "0~1/a": 50},
            id="an input whose only task is silent and behind it",
        ),
        pytest.param(
            {"0/a": 5, "0~1/a": 5, "1/0": MAX_WATERMARK_MS},
            {(0,): 5, (0, "0"): 5, (0, "0~1"): 5, (1,): MAX_WATERMARK_MS},
            {"0/a": 7, "0~1/a": 8, "1/1": MIN_TIMESTAMP_MS},
            id="a task that is heard of when its input has ended",
        ),
    ],
)
def test_groups_of_inputs_that_are_ahead_of_their_inputs_are_consumed_as_the_rules_say(
    reached_ms: dict[str, int], groups_ms: dict[Any, int], sent_ms: dict[str, int]
) -> None:
    known = {origin: OriginProgress(int(origin[0]), ms, last_active_ms=-1) for origin, ms in reached_ms.items()}
    script = {(origin, 0): [[(ms, ms), ms]] for origin, ms in sent_ms.items()}
    _check([script], known, MIN_TIMESTAMP_MS, groups_ms)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.lists(st.lists(records, max_size=2), min_size=3, max_size=3), min_size=2, max_size=40), st.data())
def test_many_inputs_whose_watermarks_are_the_same_are_consumed_as_the_rules_say(content: Any, data: Any) -> None:
    """As senders tell them that are equally far, with one that may lag behind."""
    late_ms = data.draw(st.integers(0, 20))
    script = {}
    for number, parts in enumerate(content):
        elements = [element for at, part in enumerate(parts) for element in (*part, 10 * (at + 1))]
        script[origin_name(1, number), 0] = [elements, [*parts[0], False]]
    script["0/a", 0], script["0~1/a", 0] = [[late_ms, (1, 1), late_ms + 10]], [[25]]
    _check([script, script])
