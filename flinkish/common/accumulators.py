"""Accumulators, as in Java Flink: values that all subtasks of a job add up; `JobExecutionResult` gives the totals.

The rule: a subtask adds to an accumulator of its own; at the end of an epoch the engine merges what was added into the
job's total. An epoch that fails and runs again counts once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

V = TypeVar("V")
R = TypeVar("R")


class Accumulator(ABC, Generic[V, R]):
    """Base of all accumulators. V is the type of the values that are added, R that of the result.

    Subclasses keep plain data in their attributes, and have a constructor without arguments.
    """

    @abstractmethod
    def add(self, value: V) -> None:
        """Add a value."""

    @abstractmethod
    def get_local_value(self) -> R:
        """The total: in a function that of its subtask since the running epoch began, in a result that of all
        subtasks."""

    @abstractmethod
    def reset_local(self) -> None:
        """Reset the accumulator to empty."""

    @abstractmethod
    def merge(self, other: Accumulator[V, R]) -> None:
        """Add what another accumulator of the same class holds. The order of merging must not matter."""

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.get_local_value()!r}"


class SimpleAccumulator(Accumulator[V, V]):
    """An accumulator whose result has the type of the values that are added."""


class _Sum(SimpleAccumulator[V]):
    """A sum that begins with ``_zero``."""

    _zero: Any = 0

    def __init__(self) -> None:
        self._sum: Any = self._zero

    def add(self, value: V) -> None:
        self._sum += value

    def get_local_value(self) -> V:
        result: V = self._sum
        return result

    def reset_local(self) -> None:
        self._sum = self._zero

    def merge(self, other: Accumulator[V, V]) -> None:
        self._sum += other.get_local_value()


class IntCounter(_Sum[int]):
    """A sum of whole numbers. It has no bounds (Java's has 32 bits).

    >>> c = IntCounter(); c.add(2); c.add(3); c.get_local_value()
    5
    """


class LongCounter(_Sum[int]):
    """A sum of whole numbers. It has no bounds (Java's has 64 bits)."""


class DoubleCounter(_Sum[float]):
    """A sum of floats."""

    _zero = 0.0


class AverageAccumulator(SimpleAccumulator[float]):
    """The average of the values; 0.0 if there are none.

    >>> a = AverageAccumulator(); a.add(1); a.add(2); a.get_local_value()
    1.5
    """

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value

    def get_local_value(self) -> float:
        return self._sum / self._count if self._count else 0.0

    def reset_local(self) -> None:
        self._count, self._sum = 0, 0.0

    def merge(self, other: Accumulator[float, float]) -> None:
        assert isinstance(other, AverageAccumulator)
        self._count += other._count
        self._sum += other._sum


class Histogram(Accumulator[int, dict[int, int]]):
    """How often each whole number was added, in the order of the numbers.

    >>> h = Histogram(); h.add(7); h.add(3); h.add(7); h.get_local_value()
    {3: 1, 7: 2}
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, value: int) -> None:
        self._counts[value] = self._counts.get(value, 0) + 1

    def get_local_value(self) -> dict[int, int]:
        return dict(sorted(self._counts.items()))

    def reset_local(self) -> None:
        self._counts = {}

    def merge(self, other: Accumulator[int, dict[int, int]]) -> None:
        for value, count in other.get_local_value().items():
            self._counts[value] = self._counts.get(value, 0) + count


class ListAccumulator(Accumulator[Any, list[Any]]):
    """A list of all values, by epoch and, within an epoch, by subtask. The driver holds it in memory as a whole."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        self._values.append(value)

    def get_local_value(self) -> list[Any]:
        return list(self._values)

    def reset_local(self) -> None:
        self._values = []

    def merge(self, other: Accumulator[Any, list[Any]]) -> None:
        self._values.extend(other.get_local_value())
