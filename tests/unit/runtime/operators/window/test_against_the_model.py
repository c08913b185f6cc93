"""The window operator, its fast way and the model must say the same of any input, in tumbling and sliding windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.functions import AggregateFunction, ProcessWindowFunction
from flinkish.core.time import MAX_WATERMARK_MS, TimeDomain
from flinkish.core.window.evictor import CountEvictor
from flinkish.core.window.trigger import EventTimeTrigger
from flinkish.core.window.tumbling_sliding import SlidingEventTimeWindows, TumblingEventTimeWindows
from flinkish.runtime.operators.window.contents import CONTENTS, TIMERS, WindowLogic
from flinkish.runtime.operators.window.event_time_operators import AlignedEventTimeOperator
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.operators.window.window_operator import WindowOperator
from flinkish.runtime.state.backend import KeyedStateBackend
from tests.support.changed_keys import changed_keys
from tests.support.window_model import AlignedModel, Element, Fired, Watermark
from tests.unit.runtime.operators.window.window_driver import WindowDriver

Events = list[Element | Watermark]


def concatenate(one: tuple[Any, str], other: tuple[Any, str]) -> tuple[Any, str]:
    """Not commutative: the order of the elements shows."""
    return (one[0], one[1] + other[1])


class Concatenate(AggregateFunction):
    """The accumulator is mutable and changed in place."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return "".join(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class Show(ProcessWindowFunction[Any, Any, Any, Any]):
    """All that a window function is told."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        yield Fired(key, window.start, window.end, tuple(e[1] if isinstance(e, tuple) else e for e in elements))


LOGICS = {
    "reduce": WindowLogic(concatenate),
    "aggregate": WindowLogic(Concatenate()),
    "process": WindowLogic(window_function=Show()),
    "reduce, process": WindowLogic(concatenate, Show()),
    "aggregate, process": WindowLogic(Concatenate(), Show()),
}


def expected(name: str, fired: Fired) -> tuple[Any, int]:
    """What the logic of that name emits when the model says that a window fired: (result, timestamp)."""
    text = "".join(fired.elements)
    if name == "reduce":
        return (fired.key, text), fired.end - 1
    if name == "aggregate":
        return text, fired.end - 1
    return (fired if name == "process" else fired._replace(elements=(text,))), fired.end - 1


@st.composite
def streams(draw: st.DrawFn) -> tuple[Events, dict[str, int]]:
    """Elements out of order, watermarks anywhere (also far ahead of the data), and the windows' parameters."""
    size = draw(st.integers(1, 20))
    # also slides that do not divide the size, and gaps between windows
    slide = draw(st.sampled_from([size, size, max(1, size // 2), max(1, size // 3), size + 3]))
    parameters = {
        "size": size,
        "slide": slide,
        "offset": draw(st.integers(-slide + 1, slide - 1)),
        "lateness": draw(st.sampled_from([0, 0, 1, 7, 2 * size, MAX_WATERMARK_MS])),
    }
    times = st.integers(-30, 60)
    elements = st.builds(Element, st.sampled_from("abc"), st.sampled_from("xyz"), times)
    events: Events = draw(st.lists(st.one_of(elements, elements, elements, st.builds(Watermark, times)), max_size=40))
    return events, parameters


def make_factory(name: str, parameters: dict[str, int], late_tag_id: str | None = "late") -> WindowOperatorFactory:
    size, slide, offset = parameters["size"], parameters["slide"], parameters["offset"]
    assigner: Any = TumblingEventTimeWindows(size, offset) if slide == size else None
    assigner = assigner or SlidingEventTimeWindows(size, slide, offset)
    return WindowOperatorFactory(assigner, EventTimeTrigger(), LOGICS[name], parameters["lateness"], late_tag_id)


@given(streams(), st.sampled_from(sorted(LOGICS)), st.booleans(), st.integers(0, 40))
def test_the_operator_does_what_the_model_does_also_across_a_restart(
    stream: tuple[Events, dict[str, int]], name: str, fast: bool, restart_at: int
) -> None:
    events, parameters = stream
    events = [*events, Watermark(MAX_WATERMARK_MS)]
    model = AlignedModel(**parameters)
    model.run(events)

    driver = WindowDriver(make_factory(name, parameters), AlignedEventTimeOperator if fast else WindowOperator)
    driver.run(events[:restart_at])
    driver.restart()
    driver.run(events[restart_at:])

    assert driver.results == [expected(name, fired) for fired in model.fired]
    late = [((element.key, element.value), element.timestamp) for element in model.late]
    assert driver.late == late
    assert driver.is_empty() or parameters["lateness"] == MAX_WATERMARK_MS


def contents_and_timers(backend: KeyedStateBackend, kind: str) -> tuple[Any, Any]:
    """All state, with the order of the keys within a window but not that of windows, which nobody can see."""
    table, timers = backend.table(CONTENTS, kind), backend.timers(TIMERS)
    contents = {namespace: list(values.items()) for namespace, values in table.items()}
    due: dict[Any, list[Any]] = {}
    for timestamp, namespace, keys in timers.domain(TimeDomain.EVENT_TIME).runs():
        due.setdefault((timestamp, namespace), []).extend(keys)
    return contents, due


@given(streams(), st.sampled_from(sorted(LOGICS)))
def test_the_fast_way_leaves_the_same_trace_as_the_general_one(
    stream: tuple[Events, dict[str, int]], name: str
) -> None:
    events, parameters = stream
    factory = make_factory(name, parameters, late_tag_id=None)
    kind = factory.window_logic.contents().kind
    fast, general = WindowDriver(factory, AlignedEventTimeOperator), WindowDriver(factory, WindowOperator)
    for start in range(0, len(events), 5):
        fast.run(events[start : start + 5])
        general.run(events[start : start + 5])
        assert fast.events == general.events
        assert fast.dropped == general.dropped
        one, other = fast.harness.backend, general.harness.backend
        assert one is not None and other is not None
        assert changed_keys(one, TIMERS) == changed_keys(other, TIMERS)
        assert contents_and_timers(one, kind) == contents_and_timers(other, kind)
        one.snapshot(), other.snapshot()


def test_the_factory_takes_the_fast_way_where_it_is_right_and_nowhere_else() -> None:
    class Mine(EventTimeTrigger):
        def on_event_time(self, time: int, window: Any, ctx: Any) -> Any:
            return super().on_event_time(time, window, ctx)

    class Renamed(EventTimeTrigger):
        """Overrides nothing."""

    class WithState(Concatenate):
        """May hold state handles of the current key."""

        def open(self, runtime_context: Any) -> None:
            pass

    def made(trigger: EventTimeTrigger, logic: WindowLogic, evictor: Any = None) -> type[WindowOperator]:
        factory = WindowOperatorFactory(TumblingEventTimeWindows(10), trigger, logic, evictor=evictor)
        sliding = replace(factory, assigner=SlidingEventTimeWindows(10, 3))
        assert type(sliding.create()) is type(factory.create())
        return type(factory.create())

    assert made(EventTimeTrigger(), LOGICS["reduce"]) is AlignedEventTimeOperator
    assert made(Renamed(), LOGICS["reduce"]) is AlignedEventTimeOperator
    assert made(Mine(), LOGICS["reduce"]) is WindowOperator
    assert made(EventTimeTrigger(), WindowLogic(WithState())) is WindowOperator
    assert made(EventTimeTrigger(), LOGICS["reduce"], CountEvictor.of(1)) is WindowOperator
