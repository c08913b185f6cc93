"""The functions of the big job. Each output is (lane, id, number, life, content); see tests.support.exactness.

Numbers come from state that is never cleared; all else that a life or a window has learned is cleared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flinkish.common.typeinfo import Types
from flinkish.datastream import KeyedProcessFunction, ProcessWindowFunction, RuntimeContext
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tests.integration.exactness.events import GAP_MS, ON_TIME, Event
from tests.integration.exactness.mishaps import Mishaps
from tests.integration.exactness.model import digest, text

OutputRow = tuple[str, str, int, str, str]


class Sessions(KeyedProcessFunction):
    """Counts per key and source while the key lives; a key that is silent for GAP_MS is summed up and forgotten."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._mishaps = mishaps

    def open(self, runtime_context: RuntimeContext) -> None:
        get = runtime_context.get_state
        self._life = get(ValueStateDescriptor("life", Types.STRING()))
        self._total = get(ValueStateDescriptor("total", Types.LONG()))
        self._last_ms = get(ValueStateDescriptor("last", Types.LONG()))
        self._counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.STRING(), Types.LONG()))
        self._ids = runtime_context.get_list_state(ListStateDescriptor("ids", Types.STRING()))
        self._made = runtime_context.get_map_state(MapStateDescriptor("made", Types.STRING(), Types.LONG()))

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[OutputRow]:
        self._mishaps.pass_by("sessions", value.id)
        if self._life.value() is None:
            self._life.update(value.burst)
        count = (self._counts.get(value.source) or 0) + 1
        self._counts.put(value.source, count)
        self._total.update((self._total.value() or 0) + value.amount)
        self._ids.add(value.id)
        if value.kind == ON_TIME:
            self._live_until(value.time_ms, ctx)
        yield self._output(f"{value.source}/{value.key}", value.id, text(count, value.kind))

    def _live_until(self, time_ms: int, ctx: KeyedProcessFunction.Context) -> None:
        last_ms = self._last_ms.value()
        if last_ms is None or time_ms > last_ms:
            if last_ms is not None:
                ctx.timer_service().delete_event_time_timer(last_ms + GAP_MS)
            self._last_ms.update(time_ms)
            ctx.timer_service().register_event_time_timer(time_ms + GAP_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[OutputRow]:
        key, life = ctx.get_current_key(), self._life.value()
        self._mishaps.pass_by("timer", f"{key}/{life}")
        counts = [list(count) for count in sorted(self._counts.items())]
        content = text(self._total.value(), counts, digest(self._ids.get()))
        yield self._output(f"closed/{key}", f"closed/{key}/{life}", content)
        for state in (self._life, self._total, self._last_ms, self._counts, self._ids):
            state.clear()

    def _output(self, lane: str, identity: str, content: str) -> OutputRow:
        number = (self._made.get(lane) or 0) + 1
        self._made.put(lane, number)
        return lane, identity, number, str(self._life.value()), content


class Firings(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key, start, which firing of this window, records, sum, which records, and their sum once more)."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._mishaps = mishaps

    def process(self, key: int, context: ProcessWindowFunction.Context[Any], elements: Iterable[Event]) -> Any:
        start = context.window().start
        fired = context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        number = (fired.value() or 0) + 1
        fired.update(number)
        members = list(elements)
        self._mishaps.pass_by("windows", f"{key}@{start}#{number}")
        amount = sum(e.amount for e in members)
        yield key, start, number, len(members), amount, digest(e.id for e in members), 1, amount

    def clear(self, context: ProcessWindowFunction.Context[Any]) -> None:
        context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG())).clear()


def total(before: Any, firing: Any) -> Any:
    """The firing, with how many there have been and the sum of them all."""
    return (*firing[:6], before[6] + firing[6], before[7] + firing[7])


def firing_output(firing: Any) -> OutputRow:
    """A firing with totals as an output."""
    key, start, number, count, amount, which, made, running = firing
    return f"window/{key}", f"{key}@{start}#{number}", made, str(start), text(count, amount, which, running)


class Numbered(KeyedProcessFunction):
    """Records that came too late, numbered per source and key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._made = runtime_context.get_map_state(MapStateDescriptor("made", Types.STRING(), Types.LONG()))

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[OutputRow]:
        number = (self._made.get(value.source) or 0) + 1
        self._made.put(value.source, number)
        yield f"late/{value.source}/{value.key}", f"late/{value.id}", number, "all", text(value.kind, value.time_ms)
