"""The ends of chains: the head operator of a source's chain (Flink's StreamSource), and the operator that writes to a
sink, chained behind the operator that feeds it (Flink's SinkWriterOperator).

The committables that a sink writer has handed over by the barrier go to the sink's committer, addressed to (sink,
subtask).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flinkish.common.arguments import abbreviated, check_made
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import DataFrameSink, Sink, SinkWriter, WriterSink
from flinkish.errors import TypeMismatchError
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads

#: Called with a batch of committables and the number of records that were written since the last call.
SinkEmit = Callable[[list[Any], int], None]

#: A buffer has at most so many committables. Pickle remembers all objects that it has written, so in a pickle of a
#: hundred times as many, each takes five times as long.
MAX_BATCH = 5_000

#: Version of the stored form of committables, which may wait in files until the sink commits them in another process.
FORMAT_VERSION = 2


class SinkWriterOperator(StreamOperator):
    """Passes records to a `SinkWriter` and sends its committables on, at most ``max_batch`` in a buffer: when there are
    so many of them, and at the barrier."""

    def __init__(self, writer: SinkWriter, max_batch: int = MAX_BATCH) -> None:
        self._writer: SinkWriter | None = writer
        self._max_batch = max_batch
        #: number of records written so far
        self.records = self._taken = self._sent = 0
        self._held: list[Any] = []
        #: set by the task before `open`
        self.emit: SinkEmit | None = None

    def open(self) -> None:
        """Open the writer."""
        if self._writer is not None:
            epoch = self.context.epoch
            if isinstance(self._writer, SinkWriter):
                self._writer._times = lambda: (epoch.processing_time_ms, epoch.watermark_ms)
            self._writer.open(self.context.subtask, self.context.parallelism)

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Write a batch of records."""
        self.records += len(values)
        assert self._writer is not None
        self._send(self._writer.write(values, timestamps))

    def snapshot_state(self) -> None:
        """At the barrier, send all committables of the epoch."""
        if self._writer is not None:
            self._send(self._writer.prepare_commit())
        self._flush()

    def _send(self, committables: list[Any]) -> None:
        if not committables:
            return
        if not isinstance(committables, Iterable):
            raise TypeMismatchError(
                f"write() or prepare_commit() of {type(self._writer).__name__} returned {abbreviated(committables)}",
                where=self.context.name,
                expected="a list of committables; [] if there are none",
            )
        self._held.extend(committables)
        if len(self._held) >= self._max_batch:
            self._flush()

    def _flush(self) -> None:
        assert self.emit is not None
        held, self._held = self._held, []
        for begin in range(0, len(held), self._max_batch):
            written, self._sent = self.records - self._sent, self.records
            self.emit(held[begin : begin + self._max_batch], written)

    def take_count(self) -> int:
        """The number of records written since the last call."""
        count, self._taken = self.records - self._taken, self.records
        return count

    def close(self) -> None:
        """Close the writer."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def dispose(self) -> None:
        """Close the writer if `close` did not."""
        self.close()


@dataclass(frozen=True)
class SinkWriterFactory(OperatorFactoryBase):
    """Makes the operator that writes to a sink in one subtask.

    Args:
        sink: the sink.
        input_type: type of the records; needed for sinks that take DataFrames.
        where: names the sink in errors.
    """

    sink: Sink
    input_type: TypeInformation | None = None
    where: str = ""

    @property
    def takes_misfits(self) -> bool:  # type: ignore[override]
        """What the sink says."""
        return self.sink.takes_misfits

    @property
    def reads_timestamps(self) -> bool:  # type: ignore[override]
        """What the sink says."""
        return self.sink.reads_timestamps

    def create(self) -> SinkWriterOperator:
        """A fresh operator."""
        if isinstance(self.sink, WriterSink):
            writer = self.sink.create_writer()
            check_made(writer, SinkWriter, self.sink, "create_writer")
            return SinkWriterOperator(writer)
        assert isinstance(self.sink, DataFrameSink) and self.input_type is not None
        # programs are written without pyarrow
        from flinkish.runtime.operators.columns import ColumnWriter

        return SinkWriterOperator(ColumnWriter(self.sink, self.input_type, self.where), max_batch=1)


def encode_committables(time_ms: int, committables: list[Any], classes: ProgramClasses = NO_CLASSES) -> bytes:
    """The payload of a COMMITTABLES buffer: the committables, and the epoch's processing time for the committer."""
    return dumps((time_ms, committables), FORMAT_VERSION, classes)


def decode_committables(payload: bytes, classes: ProgramClasses = NO_CLASSES) -> tuple[int, list[Any]]:
    """The inverse of `encode_committables`: (processing time of the epoch in ms, committables)."""
    time_ms, committables = loads(payload, FORMAT_VERSION, "the output of a sink", "", classes)
    return time_ms, committables


class SourceOperator(StreamOperator):
    """Emits each batch as it was read, at the head of a source's chain."""

    keeps_positions = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Emit a batch."""
        self.output.collect(values, timestamps)


@dataclass(frozen=True)
class SourceOperatorFactory(OperatorFactoryBase):
    """Makes the head operator of a source task."""

    reads_timestamps: bool = False

    def create(self) -> SourceOperator:
        """A fresh operator."""
        return SourceOperator()
