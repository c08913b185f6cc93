"""What a window keeps of its elements: all of them, or one value that is folded as they come.

The contents of all keys of one window are one dictionary, key -> stored value. A key is in it if and only if the
window has contents for that key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from flinkish.core.functions import AggregateFunction, ReduceFunction


class WindowContents(ABC):
    """Adds elements to the stored value and reads the contents from it. Keeps nothing itself."""

    #: the kind of the state table
    kind: str

    @abstractmethod
    def add(self, stored: dict[Any, Any], key: Any, value: Any) -> None:
        """Add one element."""

    @abstractmethod
    def add_all(self, stored: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        """Add many elements, in order. Returns the keys that had no contents before, in order, each once."""

    @abstractmethod
    def elements(self, stored_value: Any) -> list[Any]:
        """What a window function is given."""

    @abstractmethod
    def results(self, stored_values: list[Any]) -> list[Any]:
        """What is emitted for each of these stored values when there is no window function."""


class ListContents(WindowContents):
    """Keeps the elements, in the order of their arrival."""

    kind = "list"

    def add(self, stored: dict[Any, Any], key: Any, value: Any) -> None:
        if key in stored:
            stored[key].append(value)
        else:
            stored[key] = [value]

    def add_all(self, stored: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        new_keys = []
        for key, value in zip(keys, values):
            if key in stored:
                stored[key].append(value)
            else:
                stored[key] = [value]
                new_keys.append(key)
        return new_keys

    def elements(self, stored_value: Any) -> list[Any]:
        # a copy: the window may fire again, and what the user does to the list must not show then
        return list(stored_value)

    def results(self, stored_values: list[Any]) -> list[Any]:
        return [list(value) for value in stored_values]


class ReducingContents(WindowContents):
    """Keeps the elements reduced to one."""

    kind = "reducing"

    def __init__(self, function: ReduceFunction) -> None:
        self._reduce: Callable[[Any, Any], Any] = function.reduce

    def add(self, stored: dict[Any, Any], key: Any, value: Any) -> None:
        stored[key] = self._reduce(stored[key], value) if key in stored else value

    def add_all(self, stored: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        reduce = self._reduce
        new_keys = []
        for key, value in zip(keys, values):
            if key in stored:
                stored[key] = reduce(stored[key], value)
            else:
                stored[key] = value
                new_keys.append(key)
        return new_keys

    def elements(self, stored_value: Any) -> list[Any]:
        return [stored_value]

    def results(self, stored_values: list[Any]) -> list[Any]:
        return stored_values


class AggregatingContents(WindowContents):
    """Keeps an accumulator."""

    kind = "aggregating"

    def __init__(self, function: AggregateFunction) -> None:
        self._create = function.create_accumulator
        self._add = function.add
        self._get_result = function.get_result

    def add(self, stored: dict[Any, Any], key: Any, value: Any) -> None:
        stored[key] = self._add(value, stored[key] if key in stored else self._create())

    def add_all(self, stored: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        add, create = self._add, self._create
        new_keys = []
        for key, value in zip(keys, values):
            if key in stored:
                stored[key] = add(value, stored[key])
            else:
                stored[key] = add(value, create())
                new_keys.append(key)
        return new_keys

    def elements(self, stored_value: Any) -> list[Any]:
        return [self._get_result(stored_value)]

    def results(self, stored_values: list[Any]) -> list[Any]:
        return list(map(self._get_result, stored_values))
