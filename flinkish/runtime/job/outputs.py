"""The outputs of operators: how results of user functions are emitted, and to whom an operator of a chain emits.

Results for side outputs are emitted first, then those for the main output, each as one batch. A result that is a tuple
whose first item is an OutputTag goes to that side output. If nothing consumes that side output, the result is dropped,
as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from flinkish.common.detach import SHARED, SHARED_IF_FLAT, all_detached, flat_handed_over, handed_over
from flinkish.common.typeinfo.base import BatchConverter
from flinkish.core.functions import OutputTag
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import is_columns
from flinkish.runtime.exchange.writer import RecordWriter
from flinkish.runtime.job.log import warn_of_program
from flinkish.runtime.job.operator import OperatorListener, Output, StreamOperator

Collect = Callable[[list[Any], list[int] | None], None]

#: Converts the values of a whole batch to the declared type of the main output.
Converter = Callable[[list[Any]], list[Any]]


def hand_over_rule(converter: Converter | None, output: Output) -> tuple[set[type], Callable[..., Any]]:
    """The classes of results that are handed over as they are, and what hands over the others: with a declared type
    whose parts cannot change, tuples need no look. Results for side outputs are not converted, and what does not fit
    its type passes as it is if ``converter`` lets it (`BatchConverter.on_misfit`)."""
    if isinstance(converter, BatchConverter) and converter.type_info.is_flat and not output.has_sides:
        if converter.on_misfit is None:
            return SHARED_IF_FLAT, flat_handed_over
    return SHARED, handed_over


def emit(results: list[Any], timestamps: list[int] | None, output: Output, converter: Converter | None = None) -> None:
    """Emit results that may be tagged, with their parallel timestamps. An output without results gets no batch."""
    if OutputTag.exists:
        tagged = [i for i, result in enumerate(results) if type(result) is tuple and _is_tagged(result)]
        if tagged:
            results, timestamps = _emit_sides(results, timestamps, tagged, output)
    if results:
        output.collect(results if converter is None else converter(results), timestamps)


def _is_tagged(result: tuple[Any, ...]) -> bool:
    return len(result) > 0 and isinstance(result[0], OutputTag)


def _emit_sides(
    results: list[Any], timestamps: list[int] | None, tagged: list[int], output: Output
) -> tuple[list[Any], list[int] | None]:
    """Emit the results for side outputs; returns the results and timestamps that are left for the main output."""
    sides: dict[str, list[int]] = {}
    for index in tagged:
        tag_id = results[index][0].tag_id
        sides.setdefault(tag_id, []).append(index)
    for tag_id, indices in sides.items():
        times = None if timestamps is None else [timestamps[index] for index in indices]
        output.collect_side(tag_id, [results[index][1] for index in indices], times)
    gone = {index for indices in sides.values() for index in indices}
    if not gone:
        return results, timestamps
    main = [result for index, result in enumerate(results) if index not in gone]
    if timestamps is not None:
        timestamps = [timestamp for index, timestamp in enumerate(timestamps) if index not in gone]
    return main, timestamps


@dataclass
class Interim:
    """Whether the watermark that passes through a chain is one that its functions do not see."""

    passes: bool = False


class ChainOutput:
    """The output of one operator of a chain, which ``where`` names in warnings.

    Args:
        interim: common to all outputs of the chain.
        said: the warnings that were given already.
    """

    def __init__(self, interim: Interim | None = None, where: str = "", said: set[str] | None = None) -> None:
        self._interim = interim or Interim()
        self._where = where
        self._said = set[str]() if said is None else said
        self._children: list[StreamOperator] = []
        self._writers: list[RecordWriter] = []
        self._main: list[Collect] = []
        self._sides: dict[str, list[Collect]] = {}
        #: the last watermark, and the last one that the functions of the chain have seen
        self.watermark_ms = self.seen_ms = MIN_TIMESTAMP_MS

    def add_child(self, child: StreamOperator, tag: str | None, target: Collect) -> None:
        """Connect an operator of the chain to the main output, or to the side output of ``tag``. ``target`` receives
        its records."""
        self._children.append(child)
        (self._main if tag is None else self._sides.setdefault(tag, [])).append(target)

    def add_writer(self, writer: RecordWriter, tag: str | None) -> None:
        """Connect an edge to another vertex to the main output, or to the side output of ``tag``."""
        self._writers.append(writer)
        (self._main if tag is None else self._sides.setdefault(tag, [])).append(writer.collect)

    def convert_for(self, leaving: set[int], convert: Callable[[list[Any]], list[Any]]) -> None:
        """From now on, convert what is emitted to these consumers of the main output (writers come first, then
        operators); the others get what is emitted."""

        def converted(target: Collect, values: list[Any], timestamps: list[int] | None) -> None:
            target(convert(values), timestamps)

        for place in leaving:
            self._main[place] = partial(converted, self._main[place])

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Emit a batch to the main output."""
        if values:
            _deliver(self._main, values, timestamps)

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        """Emit a batch to a side output; it is dropped, with a warning, if nothing consumes that tag."""
        targets = self._sides.get(tag_id)
        if targets and values:
            _deliver(targets, values, timestamps)
        elif values:
            warn_of_program(
                f"what {self._where} emits to the side output {tag_id!r} is dropped, since nothing reads it; call "
                f"get_side_output(OutputTag({tag_id!r})) on its stream",
                self._said,
            )

    @property
    def has_sides(self) -> bool:
        """Whether anything consumes a side output."""
        return bool(self._sides)

    def has_side(self, tag_id: str) -> bool:
        """Whether anything consumes the side output of that tag."""
        return tag_id in self._sides

    def emit_watermark(self, watermark_ms: int) -> None:
        """Emit a watermark to all consumers, including those of side outputs."""
        self.watermark_ms = watermark_ms
        if self._interim.passes:
            for child in self._children:
                child.process_watermark(watermark_ms)
        else:
            self.seen_ms = watermark_ms
            for child in self._children:
                child.context.epoch.watermark_ms = watermark_ms
                child.process_watermark(watermark_ms)
        for writer in self._writers:
            writer.emit_watermark(watermark_ms)

    def emit_interim_watermark(self, watermark_ms: int) -> None:
        """Emit a watermark that the functions of the chain do not see."""
        self._emit_as(True, watermark_ms)

    def later_watermark(self) -> Callable[[int], None]:
        """What emits the watermark that passes now, later: functions see it if they would see it now."""
        return partial(self._emit_as, self._interim.passes)

    def _emit_as(self, interim: bool, watermark_ms: int) -> None:
        before, self._interim.passes = self._interim.passes, interim
        try:
            self.emit_watermark(watermark_ms)
        finally:
            self._interim.passes = before

    def emit_status(self, idle: bool) -> None:
        """Emit to all consumers that the stream has become idle, or active again."""
        for child in self._children:
            child.process_status(idle)
        for writer in self._writers:
            writer.emit_status(idle)


class HeardOutput(ChainOutput):
    """An output that reports all that is emitted to a listener. The listener gets its own copies of the lists."""

    def __init__(
        self, interim: Interim, where: str, said: set[str], listener: OperatorListener, uid: str, subtask: int
    ) -> None:
        super().__init__(interim, where, said)
        self._listener = listener
        self._uid = uid
        self._subtask = subtask

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        if values:
            self._listener.emitted(self._uid, self._subtask, None, heard(values), copied(timestamps))
        super().collect(values, timestamps)

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        if values and self.has_side(tag_id):
            self._listener.emitted(self._uid, self._subtask, tag_id, heard(values), copied(timestamps))
        super().collect_side(tag_id, values, timestamps)

    def emit_watermark(self, watermark_ms: int) -> None:
        self._listener.emitted_watermark(self._uid, self._subtask, watermark_ms)
        super().emit_watermark(watermark_ms)


def _deliver(targets: list[Collect], values: list[Any], timestamps: list[int] | None) -> None:
    """Pass a batch to all targets in order. All but the last get copies: an operator owns the lists it is given, and a
    function that changes its argument must not affect other operators (in Flink, a serializer copies records)."""
    for target in targets[:-1]:
        # batches of columns never change
        target(values if is_columns(values) else all_detached(values), copied(timestamps))
    if targets:
        targets[-1](values, timestamps)


def heard(values: Any) -> list[Any]:
    """What a listener gets of a batch: its own copies of the records, or Rows of a batch of columns."""
    records: list[Any] = values.rows() if is_columns(values) else all_detached(values)
    return records


def copied(timestamps: list[int] | None) -> list[int] | None:
    """A copy of the timestamps of a batch."""
    return None if timestamps is None else list(timestamps)
