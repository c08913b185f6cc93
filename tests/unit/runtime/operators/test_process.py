"""process without keys: time, side outputs, and no timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flinkish.core.functions import OutputTag, ProcessFunction
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import StateAccessError
from flinkish.runtime.operators.functions import ProcessFactory
from flinkish.testing import OneInputStreamOperatorTestHarness as Harness
from flinkish.testing import StreamRecord, Watermark

LATE, ODD = OutputTag("late"), OutputTag("odd")


class Process(ProcessFunction):
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return self._function(value, ctx)


def process(function: Callable[[Any, Any], Any], **options: Any) -> ProcessFactory:
    return ProcessFactory(Process(function), **options)


def test_the_context_tells_timestamp_watermark_and_processing_time() -> None:
    def tell(value: Any, ctx: Any) -> Any:
        yield ctx.timestamp(), ctx.timer_service().current_watermark(), ctx.timer_service().current_processing_time()

    with Harness(process(tell)) as harness:
        harness.process_element("before anything")
        harness.set_processing_time(1000)
        harness.process_watermark(50)
        harness.process_elements(["a", "b"], [60, 70])
        assert harness.take_output() == [
            StreamRecord((MIN_TIMESTAMP_MS, MIN_TIMESTAMP_MS, 0), None),
            Watermark(50),
            StreamRecord((60, 50, 1000), 60),
            StreamRecord((70, 50, 1000), 70),
        ]


def test_falsy_results_are_none_and_a_str_is_iterated() -> None:
    results = {1: None, 2: [], 3: "ab", 4: ["ab"]}
    with Harness(process(lambda value, ctx: results[value])) as harness:
        harness.process_elements([1, 2, 3, 4])
        assert harness.take_values() == ["a", "b", "ab"]


@pytest.mark.parametrize("timestamps", [None, [10, 20, 30]])
def test_tagged_results_go_to_their_side_output_and_the_rest_to_the_main_one(timestamps: list[int] | None) -> None:
    def split(value: int, ctx: Any) -> Any:
        yield value
        if value % 2:
            yield ODD, value
            yield OutputTag("late"), -value

    with Harness(process(split), side_outputs=("late", "odd")) as harness:
        harness.process_elements([1, 2, 3], timestamps)
        times = [None] * 3 if timestamps is None else timestamps
        assert harness.take_output() == [
            StreamRecord(value, time) for value, time in zip([1, 2, 3], times, strict=True)
        ]
        assert harness.output.sides == {
            "odd": [(1, times[0]), (3, times[2])],
            "late": [(-1, times[0]), (-3, times[2])],
        }


def test_without_a_listener_a_tagged_result_is_dropped() -> None:
    with Harness(process(lambda value, ctx: [(LATE, value), (ODD, value)]), side_outputs=("odd",)) as harness:
        harness.process_elements([1], [10])
        assert harness.take_output() == []
        assert harness.output.sides == {"odd": [(1, 10)]}


def test_only_the_main_output_is_converted() -> None:
    factory = process(lambda value, ctx: [value, (ODD, value), (), ("x",)], converter=lambda values: [str(values)])
    with Harness(factory, side_outputs=("odd",)) as harness:
        harness.process_elements([1])
        assert harness.take_values() == ["[1, (), ('x',)]"]
        assert harness.output.sides == {"odd": [(1, None)]}


@pytest.mark.parametrize("domain", ["event_time", "processing_time"])
def test_timers_need_a_keyed_stream(domain: str) -> None:
    def register(value: Any, ctx: Any) -> Any:
        getattr(ctx.timer_service(), f"register_{domain}_timer")(5)

    def delete(value: Any, ctx: Any) -> Any:
        getattr(ctx.timer_service(), f"delete_{domain}_timer")(5)

    with (
        pytest.raises(StateAccessError, match="Register timers is only supported on a keyed stream."),
        Harness(process(register)) as harness,
    ):
        harness.process_element(1)
    with (
        pytest.raises(StateAccessError, match="Deleting timers is only supported on a keyed stream."),
        Harness(process(delete)) as harness,
    ):
        harness.process_element(1)
