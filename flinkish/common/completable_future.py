"""CompletableFuture: PyFlink's interface of a future, on top of ``concurrent.futures.Future``."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """A result that may not be there yet.

    Args:
        future: the future that completes this one; None for one that is completed through :meth:`complete`.
        py_class: applied to the result, as in PyFlink.

    >>> CompletableFuture.completed(3).result()
    3
    """

    def __init__(self, future: Future[Any] | None = None, py_class: Callable[[Any], T] | None = None) -> None:
        self._future: Future[Any] = Future() if future is None else future
        self._py_class = py_class

    @staticmethod
    def completed(value: T) -> CompletableFuture[T]:
        future: CompletableFuture[T] = CompletableFuture()
        future.complete(value)
        return future

    @staticmethod
    def failed(error: BaseException) -> CompletableFuture[Any]:
        future: CompletableFuture[Any] = CompletableFuture()
        future.complete_exceptionally(error)
        return future

    def complete(self, value: Any) -> bool:
        """Set the result; False, without a change, if there is already a result, a failure or a cancellation."""
        if self._future.done():
            return False
        self._future.set_result(value)
        return True

    def complete_exceptionally(self, error: BaseException) -> bool:
        """Set the failure; False, without a change, if the future is done already."""
        if self._future.done():
            return False
        self._future.set_exception(error)
        return True

    def cancel(self) -> bool:
        """Cancel the future unless it has begun to run; True if it is cancelled now."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def done(self) -> bool:
        """Whether there is a result, a failure or a cancellation."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it; ``timeout`` is in seconds (PyFlink's method has none).

        Raises:
            Exception: the exception of the computation.
            concurrent.futures.CancelledError: the future was cancelled.
            TimeoutError: there is no result within the timeout (``concurrent.futures.TimeoutError`` on Python 3.10).
        """
        value = self._future.result(timeout)
        return value if self._py_class is None else self._py_class(value)

    def exception(self) -> BaseException | None:
        """The failure, or None if there is none (yet); does not wait, as in PyFlink."""
        if not self._future.done():
            return None
        try:
            return self._future.exception()
        except CancelledError as error:
            return error

    def __str__(self) -> str:
        state = "Completed normally" if self.done() and self.exception() is None else "Not completed"
        if self.exception() is not None:
            state = "Completed exceptionally"
        return f"CompletableFuture[{state}]"
