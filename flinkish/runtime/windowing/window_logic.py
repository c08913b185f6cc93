"""The computation per key and window: how elements are folded, and the window function that receives the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.core.functions import AggregateFunction, Function, ReduceFunction
from flinkish.errors import ProgramError
from flinkish.runtime.windowing.window_contents import (
    AggregatingContents,
    ListContents,
    ReducingContents,
    WindowContents,
)


@dataclass(frozen=True)
class WindowLogic:
    """The user's functions of one windowed stream, which can be pickled.

    * If ``fold`` is None, the window keeps all elements, and there must be a window function.
    * If ``window_function`` is None, the folded value itself is emitted.

    Raises:
        ProgramError: neither is given.
    """

    fold: ReduceFunction | AggregateFunction | Callable[[Any, Any], Any] | None = None
    #: a window function of any kind, or None (see `window_evaluator`)
    window_function: Any = None

    def __post_init__(self) -> None:
        if self.fold is None and self.window_function is None:
            raise ProgramError("a window has no function", expected="reduce, aggregate, apply or process")

    def contents(self) -> WindowContents:
        """The contents that fit the functions: a list, a reduced value or an accumulator."""
        fold = self.fold
        if fold is None:
            return ListContents()
        if isinstance(fold, AggregateFunction):
            return AggregatingContents(fold)
        return ReducingContents(fold.reduce if isinstance(fold, ReduceFunction) else fold)

    def functions(self) -> list[Function]:
        """The functions that have a lifecycle, in the order in which they are opened."""
        return [function for function in (self.fold, self.window_function) if isinstance(function, Function)]
