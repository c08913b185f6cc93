"""AsyncDataStream: puts an AsyncFunction behind a stream."""

from __future__ import annotations

import inspect
from typing import Any

from flinkish.common.time import Duration, Time
from flinkish.core.async_function import NO_RETRY_STRATEGY, AsyncFunction, AsyncRetryStrategy
from flinkish.datastream.streams.data_stream import DataStream, DeclaredType
from flinkish.errors import ProgramError
from flinkish.runtime.operators.async_wait import AsyncWaitFactory

__all__ = ["AsyncDataStream"]


class AsyncDataStream:
    """Many calls at a time for the records of a stream.

    ``timeout`` bounds a call with all its attempts; 0: it may take any time. ``capacity`` is the most records of a
    subtask whose results have not gone on. In each method results keep to their side of every watermark.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Results go on as they come."""
        return _wait(data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, ordered=False)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Results go on as they come; calls are tried again as the strategy says."""
        return _wait(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, ordered=False)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Results go on in the order of the records."""
        return _wait(data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, ordered=True)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Results go on in the order of the records; calls are tried again as the strategy says."""
        return _wait(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, ordered=True)


def _wait(
    data_stream: DataStream,
    function: AsyncFunction[Any, Any],
    timeout: Time | Duration,
    strategy: AsyncRetryStrategy[Any],
    capacity: int,
    output_type: DeclaredType,
    *,
    ordered: bool,
) -> DataStream:
    if not isinstance(function, AsyncFunction):
        raise TypeError(f"the function is {function!r}; expected an AsyncFunction")
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise ProgramError(
            f"async_invoke() of {type(function).__name__} is no coroutine function",
            expected="async def async_invoke(self, value)",
        )
    if not isinstance(strategy, AsyncRetryStrategy):
        raise TypeError(f"the retry strategy is {strategy!r}; expected an AsyncRetryStrategy")
    if strategy.get_retry_predicate() is None:
        raise ProgramError(f"the retry predicate of {type(strategy).__name__} is None", expected="a RetryPredicate")
    if not isinstance(capacity, int) or capacity < 1:
        raise ProgramError(f"the capacity {capacity!r}", expected="a number of records of at least 1")
    timeout_ms = _milliseconds(timeout)
    if strategy is not NO_RETRY_STRATEGY and timeout_ms <= 0:
        raise ProgramError("a retry strategy without a timeout", expected="a timeout of more than 0 ms")
    return data_stream._transform(
        "async wait operator",
        lambda converter: AsyncWaitFactory(function, ordered, timeout_ms, capacity, strategy, converter),
        output_type,
    )


def _milliseconds(timeout: Time | Duration) -> int:
    if isinstance(timeout, Time):
        return timeout.to_milliseconds()
    if isinstance(timeout, Duration):
        return timeout.to_millis()
    raise TypeError(f"the timeout is {timeout!r}; expected a Time or a Duration")
