"""User functions that programs of several test modules have in common, sorted by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import ProcessFunction


class PassOn(ProcessFunction):
    """Emits what it gets."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value


class TimeOf(TimestampAssigner):
    """The event time is what a function makes of the record, in milliseconds."""

    def __init__(self, time_ms: Callable[[Any], int]) -> None:
        self._time_ms = time_ms

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self._time_ms(value)
