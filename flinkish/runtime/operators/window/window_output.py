"""Collects what windows emit and hands it on in few large batches.

Results are in the order in which they came; those of different timestamps may share a batch, since a batch only must
not reach over a watermark: the operator calls `flush` before it hands one on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from flinkish.common.typeinfo.base import ListConverter
from flinkish.core.output_tag import OutputTag
from flinkish.runtime.operator import Output

#: A watermark may fire millions of windows; their results must not all wait in memory.
_FLUSH_SIZE = 10_000


class WindowOutput:
    """Results of windows on their way to the next operator. Empty between two calls of the operator."""

    def __init__(self, output: Output, converter: ListConverter | None) -> None:
        self._output = output
        self._converter = converter
        self._values: list[Any] = []
        self._timestamps: list[int] = []
        self._sides: dict[str, tuple[list[Any], list[int]]] = {}

    def emit(self, values: list[Any], timestamp_ms: int) -> None:
        """Results of one timestamp for the main output."""
        self._values += values
        self._timestamps += repeat(timestamp_ms, len(values))
        if len(self._values) >= _FLUSH_SIZE:
            self._flush_main()

    def emit_results(self, results: Iterable[Any] | None, timestamp_ms: int) -> None:
        """What a window function returned: an iterable of results, ``tag, value`` for side outputs, or None."""
        if not results:
            return
        main = []
        for result in results:
            if type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                self.emit_side(result[0].tag_id, result[1], timestamp_ms)
            else:
                main.append(result)
        self.emit(main, timestamp_ms)

    def emit_side(self, tag_id: str, value: Any, timestamp_ms: int) -> None:
        """One record for a side output."""
        side = self._sides.get(tag_id)
        if side is None:
            side = self._sides[tag_id] = ([], [])
        side[0].append(value)
        side[1].append(timestamp_ms)

    def flush(self) -> None:
        """Hand on everything."""
        if self._values:
            self._flush_main()
        if self._sides:
            sides, self._sides = self._sides, {}
            for tag_id, (values, timestamps) in sides.items():
                self._output.collect_side(tag_id, values, timestamps)

    def _flush_main(self) -> None:
        values, self._values = self._values, []
        timestamps, self._timestamps = self._timestamps, []
        self._output.collect(values if self._converter is None else self._converter(values), timestamps)
