"""AsyncFunction: asynchronous calls of other systems, and the strategies by which such calls are retried.

The rules, as in Flink: the timeout is that of the whole call, with all of its attempts and the pauses between them. To
decide about another attempt, first the predicate is asked (does the outcome call for one?), then the strategy (may
there be one?).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

from flinkish.core.functions import IN, OUT, Function
from flinkish.errors import ArgumentValueError

ResultPredicate = Callable[[list[Any]], bool]
ExceptionPredicate = Callable[[Exception], bool]


class AsyncFunction(Function, Generic[IN, OUT]):
    """Called for each record, with many calls in flight at a time, all on one asyncio event loop in the worker.

    Example::

        class Prices(AsyncFunction):
            async def async_invoke(self, order):
                return [(order, await self.client.price_of(order.item))]

        priced = AsyncDataStream.ordered_wait(orders, Prices(), Time.seconds(5), capacity=100)

    ``open`` and ``close`` run outside the loop, the other methods on it. Code that blocks there (``time.sleep``, a
    client that is not asynchronous) holds up all calls.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The results for one record: any number, but never None. An exception fails the job, unless the retry strategy
        calls for another attempt."""

    def timeout(self, value: IN) -> list[OUT]:
        """The results for a record whose call has timed out and is cancelled. By default the job fails."""
        raise TimeoutError(f"Async function call has timed out for input: {value}")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Decides which outcomes of an attempt call for another one."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None:
        """A predicate of the results that call for another attempt; None if no results do."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """A predicate of the exceptions that call for another attempt; None if no exceptions do."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Decides how often, and after which time, a call is retried. One object serves all records of a subtask."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether there may be another attempt after ``current_attempts``, which counts from 1."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The time in ms to wait before the next attempt, after ``current_attempts``."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """The predicate that says which outcomes call for another attempt."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """The strategy of a single attempt."""
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy[Any]:
        """Up to ``max_attempts`` more attempts, each ``backoff_time_millis`` after the one before."""
        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy[Any]:
        """Up to ``max_attempts`` more attempts after growing times; see `ExponentialBackoffDelayRetryStrategy`."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class RetryPredicate(AsyncRetryPredicate[OUT]):
    """A retry predicate that is made of two functions."""

    def __init__(
        self, result_predicate: ResultPredicate | None, exception_predicate: ExceptionPredicate | None
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT]):
    """A strategy of a single attempt: no call is retried."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return RetryPredicate(None, None)


class FixedDelayRetryStrategy(AsyncRetryStrategy[OUT]):
    """Up to ``max_attempts`` more attempts, each ``backoff_time_millis`` after the one before."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        _above_zero(max_attempts=max_attempts, backoff_time_millis=backoff_time_millis)
        self._max_attempts = max_attempts
        self._backoff_time_millis = backoff_time_millis
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff_time_millis

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[OUT]):
    """Up to ``max_attempts`` more attempts; the time before them begins at ``initial_delay`` and grows by
    ``multiplier`` up to ``max_retry_delay``. Times are in milliseconds.

    The time follows from the number of attempts of the record alone (PyFlink's also depends on those of other records).
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        _above_zero(
            max_attempts=max_attempts,
            initial_delay=initial_delay,
            max_retry_delay=max_retry_delay,
            multiplier=multiplier,
        )
        self._max_attempts = max_attempts
        self._initial_delay = initial_delay
        self._max_retry_delay = max_retry_delay
        self._multiplier = multiplier
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        if current_attempts <= 1:
            return self._initial_delay
        try:
            delay = self._initial_delay * float(self._multiplier) ** (current_attempts - 1)
        except OverflowError:
            return self._max_retry_delay
        return int(min(delay, self._max_retry_delay))

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


NO_RETRY_STRATEGY: AsyncRetryStrategy[Any] = NoRetryStrategy()


def _above_zero(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ArgumentValueError(
                f"{name} is {number}",
                where="a retry strategy",
                expected=f"{name} greater than zero",
                hint="AsyncRetryStrategy.no_restart() tries once",
            )
