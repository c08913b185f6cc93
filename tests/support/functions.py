"""User functions that programs of several test modules have in common, sorted by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.core.functions import AggregateFunction
from flinkish.datastream import KeyedProcessFunction, MapFunction, ProcessFunction, ProcessWindowFunction
from flinkish.datastream.functions import AsyncFunction


class AtTimestamp(ProcessFunction):
    """Each record with its timestamp."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp()


class AtWatermark(KeyedProcessFunction):
    """Each record with the watermark of its task."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timer_service().current_watermark()


class CountOf(AggregateFunction):
    """How many values there are."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Elements(ProcessWindowFunction[Any, Any, Any, Any]):
    """The records of a window."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        return list(elements)


class ListOf(AggregateFunction):
    """All values, in an accumulator that is changed in place."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return acc_a + acc_b


class NoCoroutine(AsyncFunction[Any, Any]):
    """A function for asynchronous calls whose method is none."""

    def async_invoke(self, value: Any) -> list[Any]:  # type: ignore[override]
        return [value]


class PassOn(ProcessFunction):
    """Emits what it gets."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value


class PassOnAsync(AsyncFunction[Any, Any]):
    """Emits what it gets."""

    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


class PassOnKeyed(KeyedProcessFunction):
    """Emits what it gets."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value


class Same(MapFunction):
    """Gives what it gets."""

    def map(self, value: Any) -> Any:
        return value


class TimeOf(TimestampAssigner):
    """The event time is what a function makes of the record, in milliseconds."""

    def __init__(self, time_ms: Callable[[Any], int]) -> None:
        self._time_ms = time_ms

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self._time_ms(value)


class Aggregate(AggregateFunction):
    """Made of functions: of no arguments, (accumulator, value), (accumulator, accumulator) and (accumulator)."""

    def __init__(
        self,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] = lambda accumulator: accumulator,
    ) -> None:
        self._create, self._add, self._merge, self._result = create, add, merge, result

    def create_accumulator(self) -> Any:
        return self._create()

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._add(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        return self._result(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return self._merge(acc_a, acc_b)


def average() -> Aggregate:
    """The mean of numbers, of accumulators (sum, count)."""
    return Aggregate(lambda: (0, 0), lambda a, value: (a[0] + value, a[1] + 1), summed_pairs, lambda a: a[0] / a[1])


def summed_pairs(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """Both fields summed."""
    return a[0] + b[0], a[1] + b[1]


class Unprintable(Exception):
    """An exception that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__
