"""A source and the operators chained behind it, reading one share of an epoch.

A source task starts afresh in each epoch; only the function instances stay open. Everything that must be remembered of
a split (its watermark) is remembered by the receivers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from flinkish.core.source import GeneratedSource
from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import InternalError
from flinkish.runtime.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.input_gate import WHOLE_SOURCE, origin_name
from flinkish.runtime.operators.sink_writer import SinkWriterOperator
from flinkish.runtime.report import TaskReport
from flinkish.runtime.stable_hash import stable_hash
from flinkish.runtime.task import WORKER, EpochStamp, Row, Task

#: The split of records whose source has no stable splits: all its readers together are one origin.
UNSPLIT = "0"


class SplitBatch(NamedTuple):
    """Records read from one split. ``ended``: there will never be more from it."""

    split: str
    values: list[Any]
    timestamps: list[int] | None
    ended: bool = False


class SourceTask(Task):
    """Runs the chain of a source vertex over batches."""

    def __init__(self, job: JobDescriptor, vertex: VertexDescriptor, subtask: int) -> None:
        super().__init__(job, vertex, subtask)
        self._opened = False
        self.closed_in: int | None = None
        #: split -> the epoch in which it ended; that epoch may be run again
        self._ended: dict[str, int] = {}

    def open(self) -> None:
        """Open the chain, once."""
        if not self._opened:
            self._opened = True
            self.chain.open()

    def run(self, batches: Iterable[SplitBatch], part: int, stamp: EpochStamp) -> Iterator[list[Row]]:
        """Read all batches; yields rows as they become full buffers, then the barrier's."""
        if self.closed:
            yield from self._report_again(batches, stamp)
            return
        self.open()
        self.chain.begin(stamp.epoch, self.subtask, stamp.time_ms, MIN_TIMESTAMP_MS, {})
        self._sink_sequence, self._part, self._origin = 0, part, ""
        self._time_ms = stamp.time_ms
        records, splits, ended = 0, dict[str, None](), dict[str, None]()
        current: str | None = None
        for batch in batches:
            if batch.split != current and not self.is_over(batch.split, stamp):
                self._begin_split(batch.split, part)
                current = batch.split
            splits[batch.split] = None
            if batch.values:
                records += len(batch.values)
                self.chain.mark_active()
                self.chain.head.process_batch(batch.values, batch.timestamps)
            if batch.ended:
                ended[batch.split] = None
                self._end_split(batch.split, stamp)
            if self._rows:
                yield self.take_rows()
        self.chain.end()
        self._report(self._report_of(records, tuple(splits), tuple(ended), stamp))
        yield self.take_rows()
        if self._is_last_split():
            self.closed_in = stamp.epoch
            self.close()

    def is_over(self, split: str, stamp: EpochStamp) -> bool:
        """Whether the split has ended in an earlier epoch: everybody was told, it is only reported again."""
        return self._ended.get(split, stamp.epoch) < stamp.epoch

    def _report_again(self, batches: Iterable[SplitBatch], stamp: EpochStamp) -> Iterator[list[Row]]:
        splits = dict.fromkeys(batch.split for batch in batches)
        self._report(self._report_of(0, tuple(splits), tuple(splits), stamp))
        yield self.take_rows()

    def _begin_split(self, split: str, part: int) -> None:
        if self._origin:
            # what sinks hold belongs to the split before, and to its committer
            for operator in self.chain.operators:
                if isinstance(operator, SinkWriterOperator):
                    operator.snapshot_state()
        self.chain.begin_split(split)
        self._origin = origin_name(self.vertex.id, split)
        self.chain.begin_origin(self._origin, part)
        self._sink_channel = self._sink_subtask(split)

    def _sink_subtask(self, split: str) -> int:
        """Which committer gets the records of a split: the same one when the epoch is read again by other tasks."""
        return 0 if split == UNSPLIT else stable_hash(split) % self.vertex.parallelism

    def _end_split(self, split: str, stamp: EpochStamp) -> None:
        if not self.is_over(split, stamp):
            self._ended[split] = stamp.epoch
            self.chain.process_watermark(MAX_WATERMARK_MS)
            self.chain.finish()

    def _is_last_split(self) -> bool:
        """Whether all splits that this subtask reads have ended, as far as this worker has seen it."""
        source = self.vertex.source
        if WHOLE_SOURCE in self._ended or not isinstance(source, GeneratedSource):
            return WHOLE_SOURCE in self._ended
        mine = range(self.subtask, source.splits, self.vertex.parallelism)
        return all(str(split) in self._ended for split in mine)

    @property
    def closed(self) -> bool:
        """Whether there is nothing more to read; the task stays, to report that in later epochs."""
        return self.closed_in is not None

    def _report_of(
        self, records: int, splits: tuple[str, ...], ended: tuple[str, ...], stamp: EpochStamp
    ) -> TaskReport:
        return TaskReport(
            vertex=self.vertex.id,
            channel=self.subtask,
            subtask=self.subtask,
            records_in=records,
            records_out=self.chain.records_out(),
            splits=splits,
            ended_splits=ended,
            metrics=self._metrics(),
            worker=WORKER,
            place=stamp.place,
            processing_time_ms=stamp.time_ms,
        )


def read_generated(
    source: GeneratedSource, splits: Iterable[int], tick: int, max_records: int, batch_size: int
) -> Iterator[SplitBatch]:
    """What a generated source gives in one tick, in batches."""
    for split in splits:
        values, timestamps, finished = source.read(split, tick, max_records)
        if len(values) > max_records:
            raise InternalError(
                f"{type(source).__name__} gave {len(values)} records", expected=f"at most {max_records}"
            )
        name = str(split)
        for start in range(0, len(values), batch_size):
            end = start + batch_size
            yield SplitBatch(name, values[start:end], None if timestamps is None else timestamps[start:end])
        yield SplitBatch(name, [], None, finished)


def end_of_source() -> Iterator[SplitBatch]:
    """The end of a source that does not end by itself: of all its splits at once."""
    yield SplitBatch(WHOLE_SOURCE, [], None, True)
