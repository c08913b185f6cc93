"""Collects what windows emit and hands it on in few large batches.

Results are in the order in which they came; those of different timestamps may share a batch, since a batch only must
not reach over a watermark: the operator calls `flush` before it hands one on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkish.runtime.operator import Output
from flinkish.runtime.side_outputs import Converter, emit

#: A watermark may fire millions of windows; their results must not all wait in memory.
_FLUSH_SIZE = 10_000


class WindowOutput:
    """Results of windows on their way to the next operator. Empty between two calls of the operator.

    ``tagged``: results may be ``tag, value`` for side outputs; those of a mere fold are never looked into.
    """

    def __init__(self, output: Output, converter: Converter | None, tagged: bool, late_tag_id: str | None) -> None:
        self._output = output
        self._converter = converter
        self._tagged = tagged
        self._late_tag_id = late_tag_id
        self._values: list[Any] = []
        self._timestamps: list[int] = []
        #: side output -> values and their timestamps
        self._sides: dict[str, tuple[list[Any], list[int]]] = {}

    def emit(self, results: Iterable[Any] | None, timestamp_ms: int) -> None:
        """Results of one timestamp, lazy or not; None is none."""
        if not results:
            return
        values, timestamps = self._values, self._timestamps
        # not `extend`: window functions mostly return generators of few results, for which it takes twice as long
        for result in results:
            values.append(result)
            timestamps.append(timestamp_ms)
        if len(values) >= _FLUSH_SIZE:
            self._flush_results()

    def emit_side(self, tag_id: str, value: Any, timestamp_ms: int) -> None:
        """A value for a side output; nobody gets it if nobody listens to that one."""
        values, timestamps = self._sides.setdefault(tag_id, ([], []))
        values.append(value)
        timestamps.append(timestamp_ms)
        if len(values) >= _FLUSH_SIZE:
            self._output.collect_side(tag_id, *self._sides.pop(tag_id))

    def emit_late(self, value: Any, timestamp_ms: int) -> bool:
        """An element that is too late for all its windows; False if there is no side output for such."""
        if self._late_tag_id is None:
            return False
        self.emit_side(self._late_tag_id, value, timestamp_ms)
        return True

    def flush(self) -> None:
        """Hand on everything."""
        if self._values:
            self._flush_results()
        if self._sides:
            sides, self._sides = self._sides, {}
            for tag_id, (values, timestamps) in sides.items():
                self._output.collect_side(tag_id, values, timestamps)

    def take_back(self) -> None:
        """Forget what was not handed on."""
        self._values, self._timestamps, self._sides = [], [], {}

    def _flush_results(self) -> None:
        values, self._values = self._values, []
        timestamps, self._timestamps = self._timestamps, []
        if self._tagged:
            emit(values, timestamps, self._output, self._converter)
        else:
            self._output.collect(values if self._converter is None else self._converter(values), timestamps)
