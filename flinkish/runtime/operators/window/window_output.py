"""Collects the results of windows and emits them in few large batches.

Results keep their order. Results with different timestamps may share a batch, since a batch must only not contain
results from both sides of a watermark: the operator calls `flush` before it emits a watermark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkish.runtime.operator import Output
from flinkish.runtime.outputs import Converter, emit, hand_over_rule

#: A watermark may fire millions of windows; their results must not all wait in memory.
_FLUSH_SIZE = 10_000


class WindowOutput:
    """Buffers the results of windows until `flush`. It is empty between two calls of the operator.

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
