"""AsyncDataStream: applies an AsyncFunction to the records of a stream."""

from __future__ import annotations

import inspect
from typing import Any

from flinkish.common.arguments import check_at_least, check_instance, check_methods_take
from flinkish.common.no_effect import supply_names
from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.core.async_function import NO_RETRY_STRATEGY, AsyncFunction, AsyncRetryStrategy
from flinkish.datastream.streams.data_stream import DataStream, DeclaredType
from flinkish.errors import ArgumentValueError, ProgramError
from flinkish.runtime.operators.async_wait import AsyncWaitFactory

__all__ = ["AsyncDataStream"]

supply_names(__name__, "common")


class AsyncDataStream:
    """Applies an AsyncFunction to the records of a stream, with many calls in progress at a time.

    In all methods ``timeout`` bounds a call with all its attempts; 0 means that it may take any time. ``capacity`` is
    the most records of a subtask whose results have not been emitted yet. No result overtakes a watermark or is
    overtaken by one. ``output_type`` is the type of the results; None means any Python object.

    Example::

        priced = AsyncDataStream.unordered_wait(orders, Prices(), Time.seconds(5), capacity=100)

    Raises:
        ArgumentTypeError: an argument is of the wrong type.
        ArgumentValueError: the capacity is below 1, or a retry strategy is given without a timeout.
        ProgramError: ``async_invoke`` is not a coroutine function, or the strategy has no retry predicate.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Emit the results in the order in which the calls end."""
        return _wait("unordered_wait", data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Emit the results in the order in which the calls end; calls are retried as the strategy says."""
        return _wait(
            "unordered_wait_with_retry",
            data_stream,
            async_function,
            timeout,
            async_retry_strategy,
            capacity,
            output_type,
        )

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Emit the results in the order of the records."""
        return _wait("ordered_wait", data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Emit the results in the order of the records; calls are retried as the strategy says."""
        return _wait(
            "ordered_wait_with_retry", data_stream, async_function, timeout, async_retry_strategy, capacity, output_type
        )


def _wait(
    method: str,
    data_stream: DataStream,
    function: AsyncFunction[Any, Any],
    timeout: Time | Duration,
    strategy: AsyncRetryStrategy[Any],
    capacity: int,
    output_type: DeclaredType,
) -> DataStream:
    ordered, where = method.startswith("ordered"), f"AsyncDataStream.{method}()"
    check_instance(data_stream, DataStream, "the stream is", where, "the stream is the first argument")
    check_instance(
        function, AsyncFunction, "the function is", where, "derive it from AsyncFunction, with async def async_invoke"
    )
    check_methods_take(function, AsyncFunction, where)
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise ProgramError(
            f"async_invoke() of {type(function).__name__} is no coroutine function",
            where=where,
            expected="async def async_invoke(self, value)",
            hint="a call that blocks would hold up all others: await it, or use asyncio.to_thread",
        )
    check_instance(
        strategy, AsyncRetryStrategy, "the retry strategy is", where, "AsyncRetryStrategy.fixed_delay(...) makes one"
    )
    check_methods_take(strategy, AsyncRetryStrategy, where)
    if strategy.get_retry_predicate() is None:
        raise ProgramError(
            f"the retry predicate of {type(strategy).__name__} is None",
            where=where,
            expected="an AsyncRetryPredicate",
            hint="get_retry_predicate() says which results and exceptions are worth another call",
        )
    check_at_least(capacity, 1, "the capacity", where, "it is the number of calls that run at the same time", "records")
    timeout_ms = milliseconds_of(timeout, "the timeout", where)
    if strategy is not NO_RETRY_STRATEGY and timeout_ms <= 0:
        raise ArgumentValueError(
            "a retry strategy without a timeout",
            where=where,
            expected="a timeout of more than 0 ms",
            hint="it bounds all attempts of a record together",
        )
    return data_stream._transform(
        "async wait operator",
        lambda converter: AsyncWaitFactory(function, ordered, timeout_ms, capacity, strategy, converter),
        output_type,
    )
