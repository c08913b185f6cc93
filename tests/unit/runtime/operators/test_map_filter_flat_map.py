"""map, filter and flat_map, with and without keys."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.core.functions import FilterFunction, FlatMapFunction, MapFunction, OutputTag, RuntimeContext
from flinkish.core.state import ValueStateDescriptor
from flinkish.errors import StateAccessError, TypeMismatchError
from flinkish.runtime.operators.functions import FilterFactory, FlatMapFactory, MapFactory
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness as KeyedHarness
from flinkish.testing import OneInputStreamOperatorTestHarness as Harness
from flinkish.testing import StreamRecord, Watermark

COUNT = ValueStateDescriptor("count", Types.INT())


class Lifecycle(MapFunction):
    """Notes what is done to it."""

    def __init__(self, fail_in: str = "") -> None:
        self.calls: list[str] = []
        self._fail_in = fail_in

    def _note(self, what: str) -> None:
        self.calls.append(what)
        if what == self._fail_in:
            raise ZeroDivisionError(what)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._note("open")

    def map(self, value: Any) -> Any:
        self._note("map")
        return value

    def close(self) -> None:
        self._note("close")


class CountingMap(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def map(self, value: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return value, count


class FirstOfKey(FilterFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(COUNT)

    def filter(self, value: Any) -> bool:
        first = self.seen.value() is None
        self.seen.update(1)
        return first


class Repeat(FlatMapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def flat_map(self, value: Any) -> Iterator[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        for _ in range(count):
            yield value


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=5,
)


@st.composite
def json_texts(draw: st.DrawFn) -> Any:
    """Texts and bytes that are JSON or nearly JSON, in the encodings that json.loads knows and others."""
    text = json.dumps(draw(JSON_VALUES), ensure_ascii=draw(st.booleans()))
    place, cut = draw(st.integers(0, len(text))), draw(st.sampled_from([0, 0, 1]))
    text = (
        text[:place]
        + draw(st.sampled_from(["", "", "", ",", '"', "{", "0", "\\", "\ud83d", "\0"]))
        + text[place + cut :]
    )
    blanks = st.sampled_from(["", "", "", " ", "\n", "\ufeff", "\x0b", "x"])
    text = draw(blanks) + text + draw(blanks)
    if draw(st.booleans()):
        return text
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"]))
    kind = draw(st.sampled_from([bytes, bytes, bytearray]))
    return kind(text.encode(encoding, "surrogatepass") + draw(st.sampled_from([b"", b"", b"\xff"])))


def outcome(call: Any) -> Any:
    try:
        return repr(call())
    except Exception as error:
        return type(error), str(error)


@given(st.lists(json_texts() | st.sampled_from([None, 5, "", b"", "nul", "[" * 100_000]), max_size=4))
@example(["1", b"1", "NaN", "-Infinity", " 1", "1 ", "9" * 4_300])
@example(["9" * 4_301])
@example([b"1\0", b'"\xed\xa0\xbd"', bytearray(b"[]")])
def test_map_of_json_loads_gives_its_results_and_errors(texts: list[Any]) -> None:
    def mapped() -> list[Any]:
        with Harness(MapFactory(json.loads)) as harness:
            harness.process_elements(texts)
            return [record.value for record in harness.take_output()]

    assert outcome(mapped) == outcome(lambda: [json.loads(text) for text in texts])


def test_map_of_json_loads_makes_no_call_in_python_for_each_text() -> None:
    calls = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code is json.loads.__code__:
            calls.append(frame)

    with Harness(MapFactory(json.loads)) as harness:
        sys.setprofile(note)
        try:
            harness.process_elements(['{"a": 1}', b'{"a": 2}', ' {"a": 3}'])
        finally:
            sys.setprofile(None)
        assert [record.value["a"] for record in harness.take_output()] == [1, 2, 3]
    assert len(calls) == 1  # for the text that begins with a blank


def test_another_function_in_the_place_of_json_loads_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda text: f"another {text}")
    with Harness(MapFactory(json.loads)) as harness:
        harness.process_elements(["1"])
        assert [record.value for record in harness.take_output()] == ["another 1"]


def test_map_keeps_timestamps_and_order() -> None:
    with Harness(MapFactory(lambda v: v * 2)) as harness:
        harness.process_elements([1, 2, 3], [10, 20, 30])
        harness.process_elements([4])
        harness.process_watermark(40)
        assert harness.take_output() == [
            StreamRecord(2, 10),
            StreamRecord(4, 20),
            StreamRecord(6, 30),
            StreamRecord(8, None),
            Watermark(40),
        ]


def test_falsy_results_of_map_are_results() -> None:
    with Harness(MapFactory(lambda v: v)) as harness:
        harness.process_elements([0, "", False, [], None])
        assert harness.take_values() == [0, "", False, [], None]


@pytest.mark.parametrize("timestamps", [None, [10, 20, 30, 40]])
def test_filter_hands_on_the_very_same_records_with_their_timestamps(timestamps: list[int] | None) -> None:
    values = [[1], [2], [3], [4]]
    with Harness(FilterFactory(lambda v: v[0] % 2)) as harness:
        harness.process_elements(values, timestamps)
        events = harness.take_output()
    assert [event.value for event in events] == [[1], [3]]
    assert events[0].value is values[0] and events[1].value is values[2]
    assert [event.timestamp for event in events] == ([None, None] if timestamps is None else [10, 30])


@pytest.mark.parametrize("timestamps", [None, [10, 20, 30, 40, 50]])
def test_flat_map_takes_any_iterable_and_gives_results_the_timestamp_of_their_record(
    timestamps: list[int] | None,
) -> None:
    results = {1: None, 2: [], 3: "ab", 4: (x for x in (7, 8)), 5: {9: 1}}
    with Harness(FlatMapFactory(results.get)) as harness:
        harness.process_elements([1, 2, 3, 4, 5], timestamps)
        expected = [("a", 30), ("b", 30), (7, 40), (8, 40), (9, 50)]
        assert harness.take_output() == [(value, None if timestamps is None else time) for value, time in expected]


@pytest.mark.parametrize("timestamps", [None, [1, 2]])
def test_a_generator_is_exhausted_before_the_next_record_is_seen(timestamps: list[int] | None) -> None:
    story = []

    def flat_map(value: Any) -> Iterator[Any]:
        story.append(f"begin {value}")
        yield value
        story.append(f"end {value}")

    with Harness(FlatMapFactory(flat_map)) as harness:
        harness.process_elements(["a", "b"], timestamps)
    assert story == ["begin a", "end a", "begin b", "end b"]


def test_an_empty_batch_emits_nothing() -> None:
    for factory in (MapFactory(str), FilterFactory(str), FlatMapFactory(str)):
        with Harness(factory) as harness:
            harness.process_elements([])
            harness.process_elements([], [])
            assert harness.take_output() == []


def test_results_pass_through_the_converter_of_the_declared_type() -> None:
    def convert(values: list[Any]) -> list[Any]:
        return [str(value) for value in values]

    for factory in (
        MapFactory(lambda v: v, converter=convert),
        FilterFactory(lambda v: True, converter=convert),
        FlatMapFactory(lambda v: [v], converter=convert),
    ):
        with Harness(factory) as harness:
            harness.process_elements([1, 2])
            assert harness.take_values() == ["1", "2"]


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (MapFactory(CountingMap(), keyed=True), [("a", 1), ("b", 1), ("a", 2), ("a", 3)]),
        (FilterFactory(FirstOfKey(), keyed=True), ["a", "b"]),
        (FlatMapFactory(Repeat(), keyed=True), ["a", "b", "a", "a", "a", "a", "a"]),
    ],
    ids=["map", "filter", "flat_map"],
)
def test_on_a_keyed_stream_functions_have_state_per_key_that_survives_a_restore(factory: Any, expected: Any) -> None:
    first, second = (pickle.loads(pickle.dumps(factory)) for _ in range(2))
    with KeyedHarness(first, lambda v: v) as harness:
        harness.process_elements(["a", "b"])
        harness.process_elements(["a"])
        values = harness.take_values()
        body = harness.snapshot()
    with KeyedHarness(second, lambda v: v, restored=body) as harness:
        harness.process_elements(["a"])
        values += harness.take_values()
    assert sorted(values[:2]) == sorted(expected[:2])
    assert values[2:] == expected[2:]


def test_state_without_keys_is_refused() -> None:
    with pytest.raises(StateAccessError, match="This state is only accessible by functions executed on a KeyedStream."):
        Harness(MapFactory(CountingMap()))


def test_a_function_is_opened_once_and_closed_once() -> None:
    function = Lifecycle()
    with Harness(MapFactory(function)) as harness:
        harness.process_elements([1, 2])
    assert function.calls == ["open", "map", "map", "close"]


def test_dispose_closes_a_function_that_failed_and_the_error_is_its_own() -> None:
    function = Lifecycle(fail_in="map")
    with pytest.raises(ZeroDivisionError), Harness(MapFactory(function)) as harness:
        harness.process_elements([1, 2])
    assert function.calls == ["open", "map", "close"]


def test_dispose_closes_a_function_whose_open_failed_and_does_not_close_twice() -> None:
    function = Lifecycle(fail_in="open")
    operator = MapFactory(function).create()
    operator.dispose()
    assert function.calls == []
    with Harness(MapFactory(lambda v: v)) as harness:
        operator.setup(harness.operator.context, harness.output)
    with pytest.raises(ZeroDivisionError):
        operator.open()
    operator.dispose()
    operator.dispose()
    assert function.calls == ["open", "close"]


def test_what_is_neither_callable_nor_a_function_of_that_kind_is_refused() -> None:
    with pytest.raises(TypeMismatchError, match=r"7 is no function"):
        MapFactory(7).create()  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match=r"Repeat has no method map\(\)"):
        MapFactory(Repeat()).create()  # type: ignore[arg-type]


def test_map_and_flat_map_emit_to_side_outputs_that_somebody_listens_to() -> None:
    tag, other = OutputTag("side"), OutputTag("nobody listens")
    with Harness(MapFactory(lambda v: (tag, v) if v > 1 else (other, v)), side_outputs=("side",)) as harness:
        harness.process_elements([1, 2, 3], [10, 20, 30])
        assert harness.take_output() == []
        assert harness.output.sides == {"side": [(2, 20), (3, 30)]}
    with Harness(FlatMapFactory(lambda v: [v, (tag, -v)]), side_outputs=("side",)) as harness:
        harness.process_elements([1, 2], [10, 20])
        assert harness.take_output() == [StreamRecord(1, 10), StreamRecord(2, 20)]
        assert harness.output.sides == {"side": [(-1, 10), (-2, 20)]}
    with Harness(MapFactory(lambda v: (tag, v)), side_outputs=()) as harness:
        harness.process_elements([1])
        assert harness.take_values() == []
