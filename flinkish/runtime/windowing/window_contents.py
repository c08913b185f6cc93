"""The contents of a window: all of its elements, or one value into which elements are folded as they arrive.

The stored values of all keys of one window are in one dictionary, key -> stored value. A key is in it if and only if
the window has contents for that key. Contents that are read are detached from the stored value (see `detach`), elements
too, since a window may fire again, and an element may be in several windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from flinkish.common.arguments import result_of_each
from flinkish.common.detach import all_detached, detached, handed_over
from flinkish.core.functions import AggregateFunction

Stored = dict[Any, Any]


class WindowContents(ABC):
    """Adds elements to the stored values of a window and reads the contents from them. It has no state itself."""

    #: the kind of state under which the values are stored
    kind: str
    #: whether adding an element may change one that was added before, so that no two windows may share one
    folds = True

    @abstractmethod
    def add(self, stored: Stored, key: Any, value: Any) -> None:
        """Add one element of a key."""

    @abstractmethod
    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        """Add many elements, in order. Returns the keys that had no contents before, in order, each once.

        The effect is that of `add` for each element, but in one loop, since windows spend most of their time here.
        """

    @abstractmethod
    def read(self, stored_value: Any) -> Any:
        """The contents: a list, the reduced value or the result of the aggregation. None means nothing to emit."""

    def last(self, stored_value: Any) -> Any:
        """The result of `read` for a stored value that nobody reads again, and whose elements are in no other
        window."""
        return self.read(stored_value)

    @abstractmethod
    def merge(self, stored_value: Any, other: Any) -> Any:
        """The stored value of a window that two windows are merged into. Both stored values may be changed."""

    @abstractmethod
    def of(self, elements: list[Any]) -> Any:
        """The result of `read` for a window with these elements; the list may be empty."""

    def read_all(self, stored_values: list[Any]) -> list[Any]:
        """The result of `read` for each stored value."""
        return result_of_each(self.read, stored_values, "the result of a window")

    def as_elements(self, contents: Any) -> list[Any]:
        """The contents in the form in which a window function is given them."""
        return [contents]


class ListContents(WindowContents):
    """Keeps all elements, in the order of their arrival."""

    kind = "list"
    folds = False

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
        return all_detached(stored_value)

    def last(self, stored_value: Any) -> Any:
        return stored_value

    def merge(self, stored_value: Any, other: Any) -> Any:
        return [*stored_value, *other]

    def of(self, elements: list[Any]) -> Any:
        return all_detached(elements)

    def as_elements(self, contents: Any) -> list[Any]:
        return contents  # type: ignore[no-any-return]


class ReducingContents(WindowContents):
    """Keeps one element, to which ``reduce(old, new)`` reduces all."""

    kind = "reducing"

    def __init__(self, reduce: Callable[[Any, Any], Any]) -> None:
        self._reduce = reduce

    def add(self, stored: Stored, key: Any, value: Any) -> None:
        stored[key] = self._reduce(stored[key], value) if key in stored else value

    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        reduce = self._reduce
        new_keys = []
        for key, value in zip(keys, values, strict=False):
            if key in stored:
                stored[key] = reduce(stored[key], value)
            else:
                stored[key] = value
                new_keys.append(key)
        return new_keys

    def read(self, stored_value: Any) -> Any:
        return detached(stored_value)

    def merge(self, stored_value: Any, other: Any) -> Any:
        return self._reduce(stored_value, other)

    def of(self, elements: list[Any]) -> Any:
        return detached(reduce(self._reduce, all_detached(elements))) if elements else None


class AggregatingContents(WindowContents):
    """Keeps an accumulator: ``add(value, accumulator)`` returns the next one, and ``get_result`` its result."""

    kind = "aggregating"

    def __init__(self, function: AggregateFunction) -> None:
        self._create = function.create_accumulator
        self._add = function.add
        self._get_result = function.get_result
        self._merge = function.merge

    def add(self, stored: Stored, key: Any, value: Any) -> None:
        stored[key] = self._add(value, stored[key] if key in stored else detached(self._create()))

    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        add, create = self._add, self._create
        new_keys = []
        for key, value in zip(keys, values, strict=False):
            if key in stored:
                stored[key] = add(value, stored[key])
            else:
                stored[key] = add(value, detached(create()))
                new_keys.append(key)
        return new_keys

    def read(self, stored_value: Any) -> Any:
        accumulator = detached(stored_value)
        result = self._get_result(accumulator)
        # an accumulator that is its own copy cannot change
        return result if result is stored_value else handed_over(result)

    def last(self, stored_value: Any) -> Any:
        result = self._get_result(stored_value)
        return handed_over(result)

    def merge(self, stored_value: Any, other: Any) -> Any:
        return self._merge(stored_value, other)

    def of(self, elements: list[Any]) -> Any:
        accumulator = detached(self._create())
        for element in elements:  # the accumulator may be the first element, and be changed by the next ones
            accumulator = self._add(detached(element), accumulator)
        return self.last(accumulator)
