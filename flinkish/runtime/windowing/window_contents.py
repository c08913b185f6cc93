"""What a window keeps of its elements: all of them, or one value that is folded as they come.

The stored values of all keys of one window are one dictionary, key -> stored value. A key is in it if and only if the
window has contents for that key. What is read is detached from what is stored (see `detach`): it may fire again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from flinkish.core.functions import AggregateFunction
from flinkish.runtime.state.detach import detached

Stored = dict[Any, Any]


class WindowContents(ABC):
    """Adds elements to the stored value and reads the contents from it. Keeps nothing itself."""

    #: the kind of the state table
    kind: str

    @abstractmethod
    def add(self, stored: Stored, key: Any, value: Any) -> None:
        """Add one element."""

    @abstractmethod
    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        """Add many elements, in order. Returns the keys that had no contents before, in order, each once.

        The same as `add` for each, in one loop: this is where windows spend their time.
        """

    @abstractmethod
    def read(self, stored_value: Any) -> Any:
        """The contents: a list, the reduced value or the result of the aggregation. None: nothing to emit."""

    @abstractmethod
    def merge(self, stored_value: Any, other: Any) -> Any:
        """The stored value of two windows that become one. Both may be changed."""

    @abstractmethod
    def of(self, elements: list[Any]) -> Any:
        """What `read` would give of a window with these elements, which may be none."""

    def read_all(self, stored_values: list[Any]) -> list[Any]:
        """`read` for each."""
        return list(map(self.read, stored_values))

    def as_elements(self, contents: Any) -> list[Any]:
        """The contents as a window function is given them."""
        return [contents]


class ListContents(WindowContents):
    """Keeps the elements, in the order of their arrival."""

    kind = "list"

    def add(self, stored: Stored, key: Any, value: Any) -> None:
        if key in stored:
            stored[key].append(value)
        else:
            stored[key] = [value]

    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        new_keys = []
        for key, value in zip(keys, values, strict=False):
            if key in stored:
                stored[key].append(value)
            else:
                stored[key] = [value]
                new_keys.append(key)
        return new_keys

    def read(self, stored_value: Any) -> Any:
        return list(stored_value)

    def merge(self, stored_value: Any, other: Any) -> Any:
        return [*stored_value, *other]

    def of(self, elements: list[Any]) -> Any:
        return elements

    def as_elements(self, contents: Any) -> list[Any]:
        return contents  # type: ignore[no-any-return]


class ReducingContents(WindowContents):
    """Keeps the elements reduced to one by ``reduce(old, new)``."""

    kind = "reducing"

    def __init__(self, reduce: Callable[[Any, Any], Any]) -> None:
        self._reduce = reduce

    def add(self, stored: Stored, key: Any, value: Any) -> None:
        stored[key] = self._reduce(stored[key], value) if key in stored else detached(value)

    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        reduce = self._reduce
        new_keys = []
        for key, value in zip(keys, values, strict=False):
            if key in stored:
                stored[key] = reduce(stored[key], value)
            else:
                stored[key] = detached(value)
                new_keys.append(key)
        return new_keys

    def read(self, stored_value: Any) -> Any:
        return detached(stored_value)

    def merge(self, stored_value: Any, other: Any) -> Any:
        return self._reduce(stored_value, other)

    def of(self, elements: list[Any]) -> Any:
        return detached(reduce(self._reduce, elements[1:], detached(elements[0]))) if elements else None


class AggregatingContents(WindowContents):
    """Keeps an accumulator: ``add(value, accumulator)`` gives the next one, ``get_result`` what it stands for."""

    kind = "aggregating"

    def __init__(self, function: AggregateFunction) -> None:
        self._create = function.create_accumulator
        self._add = function.add
        self._get_result = function.get_result
        self._merge = function.merge

    def add(self, stored: Stored, key: Any, value: Any) -> None:
        stored[key] = self._add(value, stored[key] if key in stored else self._create())

    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        add, create = self._add, self._create
        new_keys = []
        for key, value in zip(keys, values, strict=False):
            if key in stored:
                stored[key] = add(value, stored[key])
            else:
                stored[key] = add(value, create())
                new_keys.append(key)
        return new_keys

    def read(self, stored_value: Any) -> Any:
        return detached(self._get_result(stored_value))

    def merge(self, stored_value: Any, other: Any) -> Any:
        return self._merge(stored_value, other)

    def of(self, elements: list[Any]) -> Any:
        accumulator = self._create()
        for element in elements:
            accumulator = self._add(element, accumulator)
        return self._get_result(accumulator)
