"""Epochs without data happen only for functions that may have processing-time timers."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.core.functions import KeyedProcessFunction
from flinkish.runtime.operators.keyed_process import KeyedProcessFactory


class NoTimers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class EventTimers(NoTimers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


class ProcessingTimers(EventTimers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value)
        ctx.timer_service().register_processing_time_timer(value)
        yield value


def remind(service: Any, at: int) -> None:
    service.register_processing_time_timer(at)


class ThroughAHelper(EventTimers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value)
        remind(ctx.timer_service(), value)
        yield value


class Unknown(NoTimers):
    def process_element(self, value: Any, ctx: Any) -> Any:
        value(ctx)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (NoTimers(), False),
        (EventTimers(), False),
        (ProcessingTimers(), True),
        (ThroughAHelper(), True),
        (Unknown(), True),
    ],
)
def test_a_function_needs_heartbeats_unless_its_code_shows_that_it_does_not(
    function: KeyedProcessFunction, expected: bool
) -> None:
    assert KeyedProcessFactory(function).uses_processing_time is expected
