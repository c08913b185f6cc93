"""Predicates for retry strategies: which outcomes of an asynchronous call are worth another attempt."""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Whether a call gave no results: None or an empty list."""
    return result is None or len(result) == 0


def has_exception_predicate(error: Exception | None) -> bool:
    """Whether a call raised an exception."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Whether the exception is of the expected type. A retry strategy calls a predicate with the exception alone, so
    bind the type: ``functools.partial(exception_type_predicate, expected_error_type=OSError)``."""
    return isinstance(error, expected_error_type)
