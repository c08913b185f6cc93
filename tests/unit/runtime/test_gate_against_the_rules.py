"""The gate against one that has only the rules: one record, one watermark, one change of status at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.buffer import Buffer, decode_elements, place
from flinkish.runtime.deployment import InputDescriptor
from flinkish.runtime.input_gate import InputGate, SortedBuffers, origin_name
from flinkish.runtime.steps import Records, WatermarkStep
from flinkish.runtime.task_header import OriginProgress

from .senders import buffer

IDLE_TIMEOUT_MS = 2
#: A source whose splits hold back from where they are, another edge of it, and a task that is idle after a while.
DESCRIPTORS = (
    InputDescriptor(0, 0),
    InputDescriptor(0, 0, edge=1),
    InputDescriptor(1, 1, IDLE_TIMEOUT_MS, from_source=False),
)
ORIGINS = ("0/a", "0/b", "0~1/a", "1/0", "1/1", "1/2")


@dataclass
class Input:
    """One (origin, part): the rules of the valve's inputs, by a list of them all."""

    name: tuple[str, int]
    watermark_ms: int
    idle: bool
    aligned: bool
    elements: list[Any] = field(default_factory=list)
    active: bool = False

    @property
    def always_aligned(self) -> bool:
        return not self.name[0].startswith("1/")


class PlainGate:
    """Every element by itself, every question to all inputs."""

    def __init__(self, known: dict[str, OriginProgress], combined_ms: int, idle: bool, now_ms: int) -> None:
        self.known, self.combined_ms, self.idle, self.now_ms = known, combined_ms, idle, now_ms
        self.inputs: list[Input] = []
        self.told: list[Any] = []

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
        self._look()
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
        made = Input(name, watermark_ms, idle, True, elements)
        made.aligned = made.always_aligned or not idle and (before is None or watermark_ms >= self.combined_ms)
        self.inputs.append(made)

    def _take(self, one: Input, element: Any) -> None:
        if isinstance(element, bool):
            one.active = one.active or not element
            self._set_idle(one, element)
        elif isinstance(element, int):
            if element > one.watermark_ms:
                one.active, one.watermark_ms = True, element
                one.aligned = one.aligned or element >= self.combined_ms
                if one.idle:
                    one.idle = False
                self._look()
        else:
            one.active = True
            self._set_idle(one, False)
            self.told.append(element)

    def _set_idle(self, one: Input, idle: bool) -> None:
        if idle is not one.idle:
            one.idle = idle
            one.aligned = one.always_aligned or not idle and one.watermark_ms >= self.combined_ms
        self._look()

    def _look(self) -> None:
        """Flink's order: who was idle is active before its watermark rises, and flushes before it becomes idle."""
        going = [one for one in self.inputs if one.watermark_ms < MAX_WATERMARK_MS]
        active = [one for one in going if not one.idle]
        idle = bool(going) and not active
        if not going:
            lowest_ms = MAX_WATERMARK_MS if self.inputs else self.combined_ms
        elif not active:
            lowest_ms = max(one.watermark_ms for one in going)
        else:
            lowest_ms = min((one.watermark_ms for one in active if one.aligned), default=self.combined_ms)
        if self.idle and not idle:
            self.told.append(("idle", False))
        if lowest_ms > self.combined_ms:
            self.combined_ms = lowest_ms
            self.told.append(("wm", lowest_ms))
        if idle and not self.idle:
            self.told.append(("idle", True))
        self.idle = idle

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
    values, timestamps, positions, events = decode_elements(one.payload)
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


def _one_by_one(gate: InputGate) -> list[Any]:
    told: list[Any] = []
    for step in gate.steps():
        if isinstance(step, Records):
            told += zip([step.input_index] * len(step.values), step.values, step.timestamps or [])
        elif isinstance(step, WatermarkStep):
            told.append(("wm", step.watermark_ms))
        else:
            told.append(("idle", step.idle))
    return told


def _check(
    epochs: list[Any], known: dict[str, OriginProgress] | None = None, watermark_ms: int = MIN_TIMESTAMP_MS
) -> None:
    known, idle = known or {}, False
    for now_ms, script in enumerate(epochs):
        sent = _sent(script)
        gate = InputGate(DESCRIPTORS, known, watermark_ms, idle, now_ms)
        gate.receive(SortedBuffers(sent))
        rules = PlainGate(dict(known), watermark_ms, idle, now_ms)
        assert _one_by_one(gate) == rules.run(sent)
        assert (gate.valve.combined_ms, gate.idle) == (rules.combined_ms, rules.idle)
        known, watermark_ms, idle = gate.progress(), gate.valve.combined_ms, gate.idle
        assert known == rules.progress()


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


@settings(max_examples=200, deadline=None)
@given(st.lists(scripts(plain), min_size=1, max_size=4))
def test_inputs_that_all_hold_back_are_consumed_as_the_rules_say(epochs: list[Any]) -> None:
    _check(epochs)


@settings(max_examples=300, deadline=None)
@given(st.lists(scripts(anything), min_size=1, max_size=4))
def test_inputs_that_become_idle_and_end_are_consumed_as_the_rules_say(epochs: list[Any]) -> None:
    _check(epochs)


@settings(max_examples=300, deadline=None)
@given(st.lists(scripts(plain), min_size=1, max_size=2), origins_before, combined_before)
def test_inputs_that_resume_behind_the_others_are_consumed_as_the_rules_say(
    epochs: list[Any], known: dict[str, OriginProgress], watermark_ms: int
) -> None:
    _check(epochs, known, watermark_ms)


@settings(max_examples=100, deadline=None)
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
