"""Which outcomes of an asynchronous call are worth another attempt: functions for retry strategies."""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Whether there are no results."""
    return result is None or len(result) == 0


def has_exception_predicate(error: Exception | None) -> bool:
    """Whether there was any exception."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Whether the exception is of that type. A predicate has one argument: bind the type with ``functools.partial``."""
    return isinstance(error, expected_error_type)
