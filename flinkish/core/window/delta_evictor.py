"""An evictor that keeps the elements of a window that are close to the last one. Semantics: Flink's
``DeltaEvictor``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.core.window.evictor import OneSidedEvictor, TimestampedValue
from flinkish.core.window.window import Window
from flinkish.errors import ArgumentTypeError


class DeltaEvictor(OneSidedEvictor[Window]):
    """Keeps elements for which ``delta_function(element, last element)`` is less than the threshold.

    Raises:
        TypeError: the function cannot be called.
    """

    def __init__(
        self, threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        if not callable(delta_function):
            raise ArgumentTypeError(
                f"the delta function is {delta_function!r}",
                where="DeltaEvictor.of()",
                expected="a function of two elements",
                hint="write lambda first, last: ...",
            )
        self._threshold = threshold
        self._delta_function = delta_function

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False) -> DeltaEvictor:
        """The evictor with that threshold; with ``do_evict_after`` the window function sees all elements."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        if not elements:
            return
        delta, last = self._delta_function, elements[-1].value
        elements[:] = [element for element in elements if delta(element.value, last) < self._threshold]

    def __repr__(self) -> str:
        return f"DeltaEvictor({self._threshold})"
