"""Calls the user's window function; there is one class for each kind of window function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from flinkish.common.arguments import inherits
from flinkish.core.functions import (
    AllWindowFunction,
    Function,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from flinkish.core.window.window import Window
from flinkish.errors import ProgramError
from flinkish.runtime.exchange.keys import thawed
from flinkish.runtime.operators.window.process_window_context import ScopedProcessWindowContext


class WindowEvaluator(ABC):
    """Calls the window function of one operator, for the scope's key and window. Subclasses take the context of that
    scope, which some window functions get."""

    #: whether `clear` does anything
    clears = False

    @abstractmethod
    def evaluate(self, key: Any, window: Window, elements: list[Any]) -> Iterable[Any] | None:
        """The results of the window function for the elements of a window; the iterable may be lazy, None stands for
        no results."""

    def clear(self) -> None:  # noqa: B027 - most functions have nothing to clear
        """Call the function's ``clear``, when the window of the scope's key is cleaned up."""


class ApplyEvaluator(WindowEvaluator):
    """Calls a WindowFunction."""

    def __init__(self, function: WindowFunction[Any, Any, Any, Any], context: ScopedProcessWindowContext) -> None:
        self._apply = function.apply

    def evaluate(self, key: Any, window: Window, elements: list[Any]) -> Iterable[Any] | None:
        return self._apply(thawed(key), window, elements)


class ApplyAllEvaluator(WindowEvaluator):
    """Calls an AllWindowFunction."""

    def __init__(self, function: AllWindowFunction[Any, Any, Any], context: ScopedProcessWindowContext) -> None:
        self._apply = function.apply

    def evaluate(self, key: Any, window: Window, elements: list[Any]) -> Iterable[Any] | None:
        return self._apply(window, elements)


class ProcessEvaluator(WindowEvaluator):
    """Calls a ProcessWindowFunction."""

    def __init__(
        self, function: ProcessWindowFunction[Any, Any, Any, Any], context: ScopedProcessWindowContext
    ) -> None:
        self._process = function.process
        self._clear = function.clear
        self._context = context
        self.clears = not inherits(function, ProcessWindowFunction, "clear")

    def evaluate(self, key: Any, window: Window, elements: list[Any]) -> Iterable[Any] | None:
        return self._process(thawed(key), self._context, elements)

    def clear(self) -> None:
        self._clear(self._context)


class ProcessAllEvaluator(WindowEvaluator):
    """Calls a ProcessAllWindowFunction."""

    def __init__(self, function: ProcessAllWindowFunction[Any, Any, Any], context: ScopedProcessWindowContext) -> None:
        self._process = function.process
        self._clear = function.clear
        self._context = context
        self.clears = not inherits(function, ProcessAllWindowFunction, "clear")

    def evaluate(self, key: Any, window: Window, elements: list[Any]) -> Iterable[Any] | None:
        return self._process(self._context, elements)

    def clear(self) -> None:
        self._clear(self._context)


_EVALUATORS: tuple[tuple[type[Function], type[Any]], ...] = (
    (WindowFunction, ApplyEvaluator),
    (AllWindowFunction, ApplyAllEvaluator),
    (ProcessWindowFunction, ProcessEvaluator),
    (ProcessAllWindowFunction, ProcessAllEvaluator),
)


def make_evaluator(function: Any, context: ScopedProcessWindowContext) -> WindowEvaluator | None:
    """The evaluator for a window function; None if there is no window function.

    Raises:
        ProgramError: ``function`` is of none of the kinds of window functions.
    """
    if function is None:
        return None
    for kind, evaluator in _EVALUATORS:
        if isinstance(function, kind):
            return evaluator(function, context)  # type: ignore[no-any-return]
    raise ProgramError(f"{function!r} is no window function", expected="a WindowFunction or a ProcessWindowFunction")
