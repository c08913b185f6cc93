"""The window functions of window joins and co-groups, which are windows over the union of two streams: their elements
are (0, record of the first stream) and (1, record of the second stream).

Semantics: Flink's ``CoGroupedStreams`` and ``JoinedStreams``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.detach import all_detached, detached
from flinkish.core.functions import Function, RuntimeContext, WindowFunction
from flinkish.core.join_functions import CoGroupFunction, FlatJoinFunction, JoinFunction
from flinkish.core.window.window import Window
from flinkish.errors import TypeMismatchError


class _OfBoth(WindowFunction[Any, Any, Any, Window]):
    """Base of window functions over two streams: separates the records of both streams, and opens and closes the user's
    function."""

    def __init__(self, function: Function | Callable[..., Any]) -> None:
        self.function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self.function, Function):
            self.function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    @staticmethod
    def separated(elements: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        """The records of the first stream and of the second, each in the order of their arrival."""
        both: tuple[list[Any], list[Any]] = ([], [])
        for side, value in elements:
            both[side].append(value)
        return both


class CoGroupWindowFunction(_OfBoth):
    """Calls a CoGroupFunction, or a callable with the same arguments, for each window."""

    def apply(self, key: Any, window: Window, inputs: Iterable[Any]) -> Iterable[Any]:
        first, second = self.separated(inputs)
        call: Any = self.function.co_group if isinstance(self.function, CoGroupFunction) else self.function
        found: Iterable[Any] = call(all_detached(first), all_detached(second))
        return found


class JoinWindowFunction(_OfBoth):
    """Calls a JoinFunction, a FlatJoinFunction, or a callable with the arguments and result of ``JoinFunction.join``,
    for each pair of records in a window."""

    def apply(self, key: Any, window: Window, inputs: Iterable[Any]) -> Iterator[Any]:
        first, second = self.separated(inputs)
        function = self.function
        join: Any = function.join if isinstance(function, (JoinFunction, FlatJoinFunction)) else function
        flat = isinstance(function, FlatJoinFunction)
        for one in first:
            for other in second:
                # each record is in several pairs, and what is done to the result of one must not change the others
                iterable = result = join(detached(one), detached(other))
                if flat:
                    yield from iterable or ()
                elif result is None:
                    raise TypeMismatchError(
                        f"the join function returned None (key {abbreviated(key)})",
                        expected="a value",
                        hint="use a FlatJoinFunction to drop pairs",
                    )
                else:
                    yield result
