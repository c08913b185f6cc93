"""The valve against a transcription of what Flink's StatusWatermarkValve is specified to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.valve import WatermarkValve, WatermarkValves
from tests.support.profiles import examples


@dataclass
class FlinksValve:
    """Flink's rules over a fixed number of inputs, with one difference: the state alone decides, where Flink looks for
    a new minimum only at the next watermark after an input became active: here an epoch begins with states, not events.
    """

    inputs: int
    output: int = MIN_TIMESTAMP_MS
    watermarks: list[int] = field(default_factory=list)
    idle: list[bool] = field(default_factory=list)
    aligned: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watermarks = [MIN_TIMESTAMP_MS] * self.inputs
        self.idle = [False] * self.inputs
        self.aligned = [True] * self.inputs

    def watermark(self, which: int, watermark: int) -> None:
        self.status(which, False)  # a sender announces that it is active before it sends a watermark
        if watermark > self.watermarks[which]:
            self.watermarks[which] = watermark
            self.aligned[which] = self.aligned[which] or watermark >= self.output
            self._raise_to_lowest_aligned()

    def status(self, which: int, idle: bool) -> None:
        if idle == self.idle[which]:
            return
        self.idle[which] = idle
        if not idle:
            self.aligned[which] = self.watermarks[which] >= self.output
            self._raise_to_lowest_aligned()
            return
        self.aligned[which] = False
        if all(self.idle):
            self.output = max(self.output, *self.watermarks)
        else:
            self._raise_to_lowest_aligned()

    def _raise_to_lowest_aligned(self) -> None:
        candidates = [w for w, aligned in zip(self.watermarks, self.aligned) if aligned]
        if candidates:
            self.output = max(self.output, min(candidates))


events = st.lists(st.tuples(st.integers(0, 2), st.one_of(st.integers(0, 30), st.booleans())), max_size=40)


@settings(max_examples=examples(150))
@given(events)
def test_the_valve_does_what_flinks_does(script: list[tuple[int, int | bool]]) -> None:
    valve, model = WatermarkValve(), FlinksValve(3)
    for which in range(3):
        valve.add(which)
    for which, event in script:
        before = valve.combined_ms
        if isinstance(event, bool):
            rose = valve.set_idle(which, event)
            model.status(which, event)
        else:
            rose = valve.advance(which, event)
            model.watermark(which, event)
        assert valve.combined_ms == model.output
        assert rose is (valve.combined_ms > before)
        assert valve.idle is all(model.idle)


@dataclass
class FlinksCombination:
    """What Flink 2.3 does with the watermarks and statuses of the inputs of ``connect``
    (IndexedCombinedWatermarkStatus): the lowest watermark of those that are not idle; if all are, the highest of all.
    An input that has ended is one whose watermark is MAX."""

    output: int = MIN_TIMESTAMP_MS
    watermarks: list[int] = field(default_factory=lambda: [MIN_TIMESTAMP_MS] * 2)
    idle: list[bool] = field(default_factory=lambda: [False] * 2)

    def event(self, which: int, event: int | bool) -> None:
        if isinstance(event, bool):
            self.idle[which] = event
        else:
            self.idle[which] = False
            self.watermarks[which] = max(event, self.watermarks[which])
        active = [watermark for watermark, idle in zip(self.watermarks, self.idle) if not idle]
        self.output = max(self.output, min(active) if active else max(self.watermarks))

    @property
    def seen(self) -> int:
        """The combined watermark. MAX is said when both inputs have ended, since nothing may follow it."""
        return self.output if min(self.watermarks) == MAX_WATERMARK_MS else min(self.output, MAX_WATERMARK_MS - 1)


def connected_valves() -> WatermarkValves:
    valves = WatermarkValves(MIN_TIMESTAMP_MS, lambda name: (name,), connected=True)
    for which in (0, 1):
        valves.add(which)
    valves.refresh()
    return valves


ENDS = MAX_WATERMARK_MS


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30) | st.booleans() | st.just(ENDS)), max_size=30))
def test_the_inputs_of_connect_are_combined_as_flink_does(script: list[tuple[int, int | bool]]) -> None:
    valves, model = connected_valves(), FlinksCombination()
    for which, event in script:
        if model.watermarks[which] == ENDS:
            continue  # nothing comes from an input that has ended
        before = valves.combined_ms
        rose = valves.set_idle(which, event) if isinstance(event, bool) else valves.advance(which, event)
        model.event(which, event)
        assert valves.combined_ms == model.seen
        assert rose is (valves.combined_ms > before)
        if min(model.watermarks) != ENDS:
            assert valves.idle is all(model.idle)


IDLE, ACTIVE = True, False
#: the state of the first input and of the second one, as events that lead to it -> an event of the first one -> the
#: combined watermark
TABLE = [
    ([49], [99], 60, 60),
    ([49], [99], IDLE, 99),
    ([49], [99], ENDS, 99),
    ([49], [99, IDLE], 60, 60),
    ([49], [99, IDLE], IDLE, 99),
    ([49], [99, IDLE], ENDS, ENDS - 1),
    ([49], [99, ENDS], 60, 60),
    ([49], [99, ENDS], IDLE, ENDS - 1),
    ([49], [99, ENDS], ENDS, ENDS),
    ([49, IDLE], [99], 60, 99),
    ([49, IDLE], [99], ACTIVE, 99),
    ([49, IDLE], [99], ENDS, 99),
    ([49, IDLE], [30, IDLE], 60, 60),
    ([49, IDLE], [30, IDLE], ACTIVE, 49),
    ([49, IDLE], [30, IDLE], ENDS, ENDS - 1),
    ([49, IDLE], [99, ENDS], 60, ENDS - 1),
    ([49, IDLE], [99, ENDS], ACTIVE, ENDS - 1),
    ([49, IDLE], [99, ENDS], ENDS, ENDS),
]


@pytest.mark.parametrize(("first", "second", "event", "combined"), TABLE)
def test_each_state_of_two_connected_inputs_and_each_event(
    first: list[int | bool], second: list[int | bool], event: int | bool, combined: int
) -> None:
    valves = connected_valves()
    for which, one in [*((0, one) for one in first), *((1, one) for one in second), (0, event)]:
        if isinstance(one, bool):
            valves.set_idle(which, one)
        else:
            valves.advance(which, one)
    assert valves.combined_ms == combined


class ScanningValve(WatermarkValve):
    """Looks at each input each time: slow, and plainly right."""

    @property
    def idle(self) -> bool:
        going = [entry for entry in self._inputs.values() if not entry.ended]
        return bool(going) and all(entry.idle for entry in going)

    def _lowest(self) -> int:
        going = [entry for entry in self._inputs.values() if not entry.ended]
        if not going:
            return MAX_WATERMARK_MS if self._inputs else self.combined_ms
        active = [entry for entry in going if not entry.idle]
        if not active:
            return max(entry.watermark_ms for entry in going)
        return min((entry.watermark_ms for entry in active if entry.aligned), default=self.combined_ms)


watermarks = st.integers(0, 20) | st.just(MAX_WATERMARK_MS)
calls = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), watermarks, st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("advance"), st.integers(0, 5), watermarks),
    st.tuples(st.just("set_idle"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("refresh")),
)


@settings(max_examples=examples(150))
@given(st.lists(calls, max_size=60), st.integers(0, 10))
def test_the_heap_finds_what_looking_at_each_input_finds(script: list[tuple[Any, ...]], combined_ms: int) -> None:
    valves = WatermarkValve(combined_ms), ScanningValve(combined_ms)
    for call, *arguments in script:
        answers = []
        for valve in valves:
            if call == "add":
                name, watermark_ms, idle, aligned, always = arguments
                valve.add(name, watermark_ms, idle, aligned=aligned, always_aligned=always)
                answers.append((valve.idle, valve.combined_ms))
            elif call == "refresh" or arguments[0] in valve:
                answers.append((getattr(valve, call)(*arguments), valve.idle, valve.combined_ms))
        assert answers[:1] == answers[1:]


@settings(max_examples=examples(75))
@given(events)
def test_splits_hold_back_from_where_they_are_and_the_watermark_never_goes_back(
    script: list[tuple[int, int | bool]],
) -> None:
    valve = WatermarkValve()
    for which in range(3):
        valve.add(which, always_aligned=True)
    for which, event in script:
        before = valve.combined_ms
        if isinstance(event, bool):
            valve.set_idle(which, event)
        else:
            valve.advance(which, event)
        assert valve.combined_ms >= before
        active = [valve.watermark_of(w) for w in range(3) if not valve.idle_of(w)]
        if active:
            assert valve.combined_ms == max(before, min(active))


def test_the_watermark_is_the_minimum_over_the_inputs() -> None:
    valve = WatermarkValve()
    valve.add("a")
    valve.add("b")
    assert not valve.advance("a", 10)
    assert valve.advance("b", 7)
    assert valve.combined_ms == 7
    assert valve.advance("b", 20)
    assert valve.combined_ms == 10


def test_an_input_that_resumes_behind_does_not_hold_back_until_it_has_caught_up() -> None:
    valve = WatermarkValve()
    valve.add("a")
    valve.add("b")
    valve.advance("a", 10)
    assert valve.set_idle("b", True)
    valve.advance("b", 5)
    assert valve.advance("a", 20)
    assert not valve.advance("b", 20)
    assert not valve.advance("a", 30)
    assert valve.combined_ms == 20


def test_a_split_that_resumes_behind_holds_back() -> None:
    valve = WatermarkValve()
    valve.add("a", always_aligned=True)
    valve.add("b", always_aligned=True)
    valve.advance("a", 10)
    valve.set_idle("b", True)
    valve.advance("b", 5)
    assert not valve.advance("a", 20)
    assert valve.advance("b", 12)
    assert valve.combined_ms == 12


@pytest.mark.parametrize("ended_first", [True, False])
def test_one_ended_and_one_idle_input_are_not_the_end_of_the_input(ended_first: bool) -> None:
    valve = WatermarkValve()
    valve.add("ended")
    valve.add("idle")
    valve.advance("idle", 5)
    if ended_first:
        valve.advance("ended", MAX_WATERMARK_MS)
        valve.set_idle("idle", True)
    else:
        valve.set_idle("idle", True)
        valve.advance("ended", MAX_WATERMARK_MS)
    assert valve.combined_ms == 5
    assert valve.idle
    assert valve.advance("idle", MAX_WATERMARK_MS)
    assert valve.combined_ms == MAX_WATERMARK_MS
    assert not valve.idle


def test_an_ended_input_does_not_flush_the_others() -> None:
    valve = WatermarkValve()
    for name in "abc":
        valve.add(name)
    valve.advance("a", MAX_WATERMARK_MS)
    valve.advance("b", 9)
    valve.set_idle("c", True)
    assert valve.combined_ms == 9


def test_an_input_that_is_added_late_holds_back_but_never_turns_back() -> None:
    valve = WatermarkValve(50)
    valve.add("a", 60)
    assert valve.refresh()
    valve.add("b")
    assert not valve.advance("a", 70)
    assert valve.combined_ms == 60


def test_a_valve_without_inputs_stays_where_it_is() -> None:
    valve = WatermarkValve(5)
    assert not valve.refresh()
    assert (valve.combined_ms, valve.idle) == (5, False)
