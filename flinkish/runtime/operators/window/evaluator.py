"""Calls the user's window function, by one class for each kind of window function, with its context, and collects the
results of windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from flinkish.common.arguments import inherits
from flinkish.common.detach import detached
from flinkish.core.functions import (
    AllWindowFunction,
    Function,
    KeyedStateStore,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from flinkish.core.window.window import Window
from flinkish.errors import ProgramError, StateAccessError
from flinkish.runtime.exchange.keys import thawed
from flinkish.runtime.job.operator import Output
from flinkish.runtime.job.outputs import Converter, emit, hand_over_rule
from flinkish.runtime.operators.window.contents import ScopedStateStore, WindowScope

#: A watermark may fire millions of windows; their results must not all wait in memory.
_FLUSH_SIZE = 10_000


class WindowOutput:
    """Buffers the results of windows until `flush`, to emit them in few large batches. It is empty between two calls of
    the operator.

    Results keep their order. Results with different timestamps may share a batch, since a batch must only not contain
    results from both sides of a watermark: the operator calls `flush` before it emits a watermark.

    Args:
        output: where the results go.
        converter: converts results to the output type; None: there is nothing to convert.
        tagged: the results come from a window function: they are handed over one by one, and may be ``(tag, value)``
            for side outputs. Results of a mere fold are detached already, and emitted without a look into them.
        late_tag_id: side output for late elements; None: there is none.
    """

    def __init__(self, output: Output, converter: Converter | None, tagged: bool, late_tag_id: str | None) -> None:
        self._output = output
        self._converter = converter
        self._tagged = tagged
        self._shared, self._hand_over = hand_over_rule(converter, output)
        self._late_tag_id = late_tag_id
        self._values: list[Any] = []
        self._timestamps: list[int] = []
        #: side output -> values and their timestamps
        self._sides: dict[str, tuple[list[Any], list[int]]] = {}

    def emit(self, iterable: Iterable[Any] | None, timestamp_ms: int) -> None:
        """Add the results of one window, which have one timestamp. The iterable may be lazy; None stands for no
        results."""
        if not iterable:
            return
        values, timestamps = self._values, self._timestamps
        # not `extend`: window functions mostly return generators of few results, for which it takes twice as long
        shared, hand_over, tagged = self._shared, self._hand_over, self._tagged
        for result in iterable:
            if tagged and type(result) not in shared:
                result = hand_over(result)
            values.append(result)
            timestamps.append(timestamp_ms)
        if len(values) >= _FLUSH_SIZE:
            self._flush_results()

    def emit_side(self, tag_id: str, value: Any, timestamp_ms: int) -> None:
        """Add a value for a side output; it is dropped if the job does not use that side output."""
        values, timestamps = self._sides.setdefault(tag_id, ([], []))
        values.append(value)
        timestamps.append(timestamp_ms)
        if len(values) >= _FLUSH_SIZE:
            self._output.collect_side(tag_id, *self._sides.pop(tag_id))

    def emit_late(self, value: Any, timestamp_ms: int) -> bool:
        """Add an element that is too late for all its windows to their side output. Returns False if there is no such
        side output."""
        if self._late_tag_id is None:
            return False
        self.emit_side(self._late_tag_id, value, timestamp_ms)
        return True

    def flush(self) -> None:
        """Emit all results and values of side outputs."""
        if self._values:
            self._flush_results()
        if self._sides:
            sides, self._sides = self._sides, {}
            for tag_id, (values, timestamps) in sides.items():
                self._output.collect_side(tag_id, values, timestamps)

    def take_back(self) -> None:
        """Drop all results that were not emitted yet."""
        self._values, self._timestamps, self._sides = [], [], {}

    def _flush_results(self) -> None:
        values, self._values = self._values, []
        timestamps, self._timestamps = self._timestamps, []
        if self._tagged:
            emit(values, timestamps, self._output, self._converter)
        else:
            self._output.collect(values if self._converter is None else self._converter(values), timestamps)


class ScopedProcessWindowContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """The context of a process window function: window, time and state of the scope's key and window.

    ``merging``: windows may merge, so there is no per-window state.
    """

    def __init__(self, scope: WindowScope, results: WindowOutput, merging: bool) -> None:
        self._scope = scope
        self._results = results
        self._window_state = None if merging else ScopedStateStore(scope, per_window=True)
        self._global_state = ScopedStateStore(scope, per_window=False)

    def window(self) -> Window:
        return self._scope.window

    def current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def current_watermark(self) -> int:
        return self._scope.watermark_ms

    def window_state(self) -> KeyedStateStore:
        if self._window_state is None:
            raise StateAccessError(
                "Per-window state is not allowed when using merging windows",
                where=self._scope.backend.where,
                expected="windows that do not merge",
                hint="keep what belongs to the key in global_state()",
            )
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        return self._global_state

    def output(self, output_tag: OutputTag, value: Any) -> None:
        self._results.emit_side(output_tag.tag_id, detached(value), self._scope.window.max_timestamp())


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
