"""The task of a source: it runs the source and the operators chained to it over its share of an epoch.

A source task keeps no state from epoch to epoch; only the function instances stay open. The receivers remember the
watermark of a split. Where functions of the chain can see it, or a generator of the program makes it, the task reports
what it knows of the splits that go on, and is given it with its share of the next epoch, of which it is a part: the
results do not depend on where epochs end, and a replay has the same ones.
"""

from __future__ import annotations

import heapq
import logging
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from flinkish.common.arguments import abbreviated, check_made, kind_of
from flinkish.core.source import SplitRange, SplitReader, SplitRecords, SplitSource
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import TypeMismatchError, message_of
from flinkish.runtime.exchange.gate import WHOLE_SOURCE, origin_name
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.job.log import enter
from flinkish.runtime.job.operator import OperatorListener, StreamOperator, Values
from flinkish.runtime.job.report import FORMAT_VERSION, LifecycleCall, Row, TaskReport
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory, TimestampsAndWatermarksOperator
from flinkish.runtime.sources.alignment import keeps_watermarks
from flinkish.runtime.sources.progress import STREAM, SourceShare
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.runtime.task.chain import SplitState
from flinkish.runtime.task.task import EpochStamp, Task

_LOG = logging.getLogger("flinkish.Task")

#: The split of records whose source has no stable splits, so that all its readers together are one origin.
UNSPLIT = "0"

#: The split under which a subtask sends what belongs to none of its splits, such as its end if it never had one.
_NO_SPLIT = ""

#: Number of splits that a report names, which are the last ones: an epoch may read thousands of small files.
MAX_REPORTED_SPLITS = 32


class SplitBatch(NamedTuple):
    """Records read from one split, followed by a watermark of the split if the source provides one. ``ended`` says that
    the split will never have more records."""

    split: str
    values: list[Any]
    timestamps: list[int] | None
    ended: bool = False
    watermark_ms: int | None = None
    #: the time of the newest of the records; None: the source does not say it
    newest_ms: int | None = None


@dataclass(frozen=True)
class SourceInput:
    """The input of a source task in one epoch.

    Args:
        batches: the records, with the ends of splits.
        part: tells apart several tasks that read the same splits in one epoch (only if Spark reads the source).
        ends: the subtask ends with this epoch; nothing will ever follow.
        ended: the subtask had ended before this epoch: there is nothing to read, and its end was sent.
        held: splits with records that are not read in this epoch; they are not idle.
        together: whether the batches come from splits that are read side by side; None means as the source always does.
        apart: the watermark of the subtask as a whole does not count any more (see `SourceShare`).
        backlog, backlog_splits, states: see `SourceShare`.
    """

    batches: Iterable[SplitBatch]
    part: int = 0
    ends: bool = False
    ended: bool = False
    held: tuple[str, ...] = ()
    together: bool | None = None
    apart: bool = False
    backlog: int = 0
    states: Mapping[str, Any] = field(default_factory=dict)
    backlog_splits: int = 0


class SourceTask(Task):
    """The task of one subtask of a source: reads its share of each epoch and runs the chain of the source vertex over
    the records."""

    def __init__(
        self,
        job: JobDescriptor,
        vertex: VertexDescriptor,
        subtask: int,
        listener: OperatorListener | None = None,
        trace: deque[LifecycleCall] | None = None,
    ) -> None:
        super().__init__(job, vertex, subtask, listener=listener, trace=trace)
        self._opened = False
        self.closed_in: int | None = None
        self._reader: SplitReader | None = None
        self._with_timestamps = vertex.with_timestamps or listener is not None
        source = vertex.source
        #: whether the splits of the subtask are one stream with one watermark, since they are read one after the other
        self._one_stream = isinstance(source, SplitSource) and not source.side_by_side
        #: whether the source has several stages: the subtask then has a watermark even while its splits have their own
        self._staged = isinstance(source, SplitSource) and source.stages > 1
        self._keeps_watermarks = keeps_watermarks(vertex)
        #: the processing time of the last epoch in which the task has read records
        self._active_ms: int | None = None
        #: whether a warning has said that a generator cannot be kept
        self._told = False
        #: the batch of records in work, for messages
        self._in_work: SplitBatch | None = None

    def open(self) -> None:
        """Open the chain, unless it is open."""
        if not self._opened:
            self._opened = True
            self.chain.open()

    def read(self, share: SourceShare) -> SourceInput:
        """The input of an epoch, given its planned share."""
        source = self.vertex.source
        assert isinstance(source, SplitSource)
        batches: Iterable[SplitBatch] = ()
        if share.ranges and not share.ended:
            if self._reader is None:
                own = self.vertex.own_source(self.job.settings.share_functions)
                assert isinstance(own, SplitSource)
                reader = own.create_reader()
                check_made(reader, SplitReader, own, "create_reader")
                self._reader = reader
                self._reader.max_record_bytes = self.job.settings.source_max_record_bytes
                self._reader.with_timestamps = self._with_timestamps
            size = self.job.settings.source_batch_size
            self._reader.open(share.ranges, size)
            together = source.side_by_side if share.together is None else share.together
            read = side_by_side if together else one_after_the_other
            batches = read(self._reader, share.ranges, size)
        return SourceInput(
            batches,
            0,
            share.ends,
            share.ended,
            share.held,
            share.together,
            share.apart,
            share.backlog,
            share.states,
            share.backlog_splits,
        )

    def run(self, given: SourceInput, stamp: EpochStamp) -> Iterator[list[Row]]:
        """Process the input of an epoch; yields rows as buffers become full, and at last those of the barrier."""
        self.records_in, self._begun_s, self._in_work = 0, time.monotonic(), None
        if given.ended:
            self._report(self._report_of((), (), True, stamp))
            yield self.take_rows()
            return
        enter(self.log)
        self.open()
        self._begun_s = time.monotonic()
        stamp.waits.restart()
        known = self._decoded(given.states) if self._keeps_watermarks else {}
        self.chain.begin(stamp.epoch, stamp.time_ms, MIN_TIMESTAMP_MS, {}, known)
        self._sink_sequence, self._part, self._origin = 0, given.part, origin_name(self.vertex.id, str(self.subtask))
        # if Spark reads the source, it decides which subtask reads what, so a single committer gets all committables
        self._committer = self.subtask if isinstance(self.vertex.source, SplitSource) else 0
        self._time_ms = stamp.time_ms
        if given.together is not None:
            self._one_stream = not given.together
        splits, ended, newest = dict[str, None](), dict[str, None](), dict[str, int]()
        current: str | None = None
        if given.apart:
            self._begin_split(_NO_SPLIT, str(self.subtask), given.part)
            self.chain.mark_idle()
        for split in given.held:
            self._begin_split(split, self._stream_of(split), given.part)
            self.chain.mark_active()
            current = split
        for batch in given.batches:
            self._check_wanted()
            if batch.split != current:
                self._begin_split(batch.split, self._stream_of(batch.split), given.part)
                current = batch.split
            splits[batch.split] = None
            if batch.newest_ms is not None and batch.newest_ms > 0:
                newest[batch.split] = batch.newest_ms
            if batch.values:
                self._in_work = batch
                self.records_in += len(batch.values)
                self.chain.mark_active()
                self.chain.process_batch(batch.values, batch.timestamps if self._with_timestamps else None)
                self._in_work = None
            if batch.watermark_ms is not None:
                # MAX is the end of the input
                self.chain.process_watermark(min(batch.watermark_ms, MAX_WATERMARK_MS - 1))
            if batch.ended:
                ended[batch.split] = None
                if self._in_sequence:
                    self.chain.split_ended()
                if self._goes_on_without_splits and batch.split != WHOLE_SOURCE:
                    # as in Flink, the split only no longer holds event time back: others may come
                    self.chain.split_ended()
                    self.chain.mark_idle()
                elif not self._one_stream or batch.split == WHOLE_SOURCE:
                    self.chain.process_watermark(MAX_WATERMARK_MS)
            if self._rows:
                yield self.take_rows()
                enter(self.log)
        self.chain.end_split()
        # before the end, which is no watermark of a split
        states = self._states(splits, ended) if self._keeps_watermarks else {}
        if given.ends:
            self._end(current)
        self.chain.end()
        report = self._report_of(tuple(splits), tuple(ended), given.ends, stamp, states)
        self._report(self._with_backlog(report, given, min(newest.values(), default=None)))
        enter(None)
        yield self.take_rows()
        if given.ends:
            self.closed_in = stamp.epoch
            self.close()

    def _with_backlog(self, report: TaskReport, given: SourceInput, newest_ms: int | None) -> TaskReport:
        """The report with what the epoch has left, and with Flink's metrics of a source reader; those of the first
        subtask count what is pending for all of them."""
        time_ms = report.processing_time_ms
        if self.records_in:
            self._active_ms = time_ms
        found: dict[str, float] = {"sourceIdleTime": 0 if self._active_ms is None else time_ms - self._active_ms}
        if newest_ms is not None:
            found["currentFetchEventTimeLag"] = time_ms - newest_ms
        if not self.subtask and not given.backlog_splits:
            found["pendingRecords"] = given.backlog
        metrics = {**report.metrics, **{f"{self.vertex.head.uid}.{name}": value for name, value in found.items()}}
        return replace(
            report,
            newest_ms=newest_ms,
            metrics=metrics,
            backlog=given.backlog,
            backlog_splits=given.backlog_splits,
        )

    def _stream_of(self, split: str) -> str:
        """The name of the stream that the records of a split belong to; each stream has its own watermark."""
        return str(self.subtask) if self._one_stream and split != WHOLE_SOURCE else split

    @property
    def _goes_on_without_splits(self) -> bool:
        """Whether all splits that are read side by side may have ended, and the source has not, as when all shards of a
        stream are split at once."""
        source = self.vertex.source
        return isinstance(source, SplitSource) and not self._one_stream and not source.bounded and source.stages == 1

    @property
    def _in_sequence(self) -> bool:
        """Whether one subtask reads all splits one after the other: the functions of its chain then see one stream.
        With several subtasks, which of them reads a split depends on epochs."""
        return self._one_stream and self.vertex.parallelism == 1

    def place_of(self, position: int | None, batches: Sequence[tuple[StreamOperator, Values]]) -> str:
        """Where a record was read that has made an operator fail, for messages; the batch in work, if it is not known
        which of its records led to that one; "" if none is in work.

        Args:
            position: the number of the record in the batch of the operator; None: it is not known.
            batches: the operators down to that one, with the batches that they were given.
        """
        batch, reader = self._in_work, self._reader
        if batch is None or reader is None or not batch.values:
            return ""
        size = len(batch.values)
        exact = position is not None and all(len(given) == size for _, given in batches)
        exact = exact and all(operator.keeps_positions for operator, _ in batches[:-1])
        first, last = (position, position) if exact else (0, size - 1)
        assert first is not None and last is not None
        with suppress(Exception):  # a reader of the program, or a file that has gone: what has failed matters
            place = reader.place_of(batch.split, first, last)
            return f"read from '{self.vertex.head.name}', {place}" if place else ""
        return ""

    def _begin_split(self, split: str, stream: str, part: int) -> None:
        self.chain.begin_split(split, self._in_sequence)
        self.chain.begin_origin(origin_name(self.vertex.id, stream), part)

    def _end(self, current: str | None) -> None:
        """End the subtask: advance event time to its end, and let the functions flush what they hold back."""
        whole, end = current == WHOLE_SOURCE, self.vertex.end_of(self.subtask)
        if current is None or self._staged and not self._one_stream:
            # a subtask that has read nothing, in this epoch or ever, must send its end, too; so must the stream that
            # the subtask had in an earlier stage, when its splits had no watermarks of their own
            self.chain.begin_split(_NO_SPLIT, self._in_sequence)
            self.chain.begin_origin(origin_name(self.vertex.id, self.subtask) if self._staged else end)
            current = None
        if self._one_stream and not whole or current is None:
            self.chain.process_watermark(MAX_WATERMARK_MS)
        self.chain.finish()
        if not whole:
            self.chain.end_origin(end)

    def close(self) -> None:
        """Close the reader and the functions. The task itself remains, to report its end in later epochs."""
        self._close_reader()
        super().close()

    def dispose(self) -> None:
        self._close_reader()
        super().dispose()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    @property
    def watermark_ms(self) -> int:
        """The watermark that the records of the split in work have reached, behind the operator that generates it."""
        return max(output.watermark_ms for output in self.chain.outputs)

    def _report_of(
        self,
        splits: tuple[str, ...],
        ended: tuple[str, ...],
        finished: bool,
        stamp: EpochStamp,
        states: dict[str, Any] | None = None,
    ) -> TaskReport:
        return TaskReport(
            **self._figures(stamp),
            finished=finished,
            splits=splits[-MAX_REPORTED_SPLITS:],
            ended_splits=ended[-MAX_REPORTED_SPLITS:],
            stream_watermarks=self._stream_watermarks(),
            split_states=states or {},
        )

    def _states(self, read: Collection[str], ended: Collection[str]) -> dict[str, Any]:
        """What is known of the splits that were read, for the plan of the next epoch; None for those that have ended.
        The watermark of the split comes first, then its state: numbers as JSON, what holds a generator of the program
        as all that is stored."""
        found: dict[str, Any] = dict.fromkeys(ended)
        makers = [one for one in self.chain.operators if isinstance(one, TimestampsAndWatermarksOperator)]
        reached = makers[-1].watermarks_of_splits() if makers else {}
        for split in read:
            if split not in found and split != WHOLE_SOURCE:
                state = self._encoded(self.chain.state_of_split(split))
                found[split] = [reached.get(split, MIN_TIMESTAMP_MS), state]
        if read and self._in_sequence:
            found[STREAM] = [MIN_TIMESTAMP_MS, self._encoded(self.chain.state_of_stream())]
        return found

    def _encoded(self, state: Mapping[str, tuple[Any, int]]) -> Any:
        if all(value is None or value.__class__ is int for value, _ in state.values()):
            return {uid: list(entry) for uid, entry in state.items()}
        try:
            data = dumps(state, FORMAT_VERSION, self.job.classes)
        except Exception as error:
            if not self._told:
                self._told = True
                _LOG.warning(
                    "%s: a watermark generator cannot be kept from epoch to epoch, so each epoch has a new one that"
                    " goes on from the last watermark; let its attributes hold plain data: %s",
                    self.name,
                    message_of(error),
                )
            kept = {uid: (_without_generator(value), seen_ms) for uid, (value, seen_ms) in state.items()}
            data = dumps(kept, FORMAT_VERSION, self.job.classes)
        return b64encode(data).decode()

    def _decoded(self, states: Mapping[str, Any]) -> dict[str, SplitState]:
        found: dict[str, SplitState] = {}
        for split, (_, state) in states.items():
            if isinstance(state, str):
                data, what = b64decode(state), "the watermark generator of a split"
                found[split] = loads(data, FORMAT_VERSION, what, f"{self.name}, split {split}", self.job.classes)
            else:
                found[split] = {uid: (value, seen_ms) for uid, (value, seen_ms) in state.items()}
        return found

    def _stream_watermarks(self) -> dict[str, int]:
        """The watermark that each stream has reached, if the source is aligned with others; else {}."""
        found: dict[str, int] = {}
        for operator, descriptor in zip(self.chain.operators, self.vertex.operators):
            factory = descriptor.factory
            if isinstance(factory, TimestampsAndWatermarksFactory) and factory.alignment is not None:
                assert isinstance(operator, TimestampsAndWatermarksOperator)
                found = {}
                for split, watermark_ms in operator.watermarks_of_splits().items():
                    stream = self._stream_of(split)
                    found[stream] = max(watermark_ms, found.get(stream, watermark_ms))
        return found


def _without_generator(value: Any) -> Any:
    return (None, *value[1:]) if isinstance(value, tuple) else value


def one_after_the_other(reader: SplitReader, ranges: Iterable[SplitRange], batch_size: int) -> Iterator[SplitBatch]:
    """Read each range as a whole, in the order of the ranges."""
    for wanted in ranges:
        for records in _reading(reader, wanted, batch_size):
            yield _split_batch(wanted, records)
        yield SplitBatch(wanted.split.id, [], None, wanted.ends)


def _reading(reader: SplitReader, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
    """The batches of a range.

    Raises:
        TypeMismatchError: the reader gave something else.
    """
    batches: Any = reader.read(wanted, batch_size)
    if not isinstance(batches, Iterable):
        check_made(batches, Iterable, reader, "read")
    return iter(batches)


def _split_batch(wanted: SplitRange, records: SplitRecords) -> SplitBatch:
    if not isinstance(records, SplitRecords) and not all(hasattr(records, name) for name in SplitRecords._fields):
        raise TypeMismatchError(
            f"read() of a SplitReader gave {abbreviated(records)}, {kind_of(records)}",
            where=f"split {wanted.split.id}",
            expected="batches: yield SplitRecords(values, timestamps or None)",
        )
    if records.timestamps is not None and len(records.timestamps) != len(records.values):
        raise TypeMismatchError(
            f"read() of a SplitReader gave {len(records.values)} records and {len(records.timestamps)} timestamps",
            where=f"split {wanted.split.id}",
            expected="a timestamp for each record, or None for all",
        )
    newest_ms = records.newest_ms
    if newest_ms is None and records.timestamps:
        newest_ms = records.timestamps[-1]
    return SplitBatch(wanted.split.id, records.values, records.timestamps, False, records.watermark_ms, newest_ms)


def side_by_side(reader: SplitReader, ranges: Sequence[SplitRange], batch_size: int) -> Iterator[SplitBatch]:
    """Read the ranges in turns: the next batch comes from the range whose newest timestamp so far is the lowest, and
    among equals, or if records have no timestamps, from the one that has given the fewest records."""
    readers = [_reading(reader, wanted, batch_size) for wanted in ranges]
    turns = [(MIN_TIMESTAMP_MS, 0, place) for place in range(len(ranges))]
    while turns:
        time_ms, given, place = heapq.heappop(turns)
        split = ranges[place].split.id
        records = next(readers[place], None)
        if records is None:
            yield SplitBatch(split, [], None, ranges[place].ends)
            continue
        yield _split_batch(ranges[place], records)
        newest_ms = records.newest_ms
        if newest_ms is None:
            newest_ms = max(records.timestamps) if records.timestamps else time_ms
        heapq.heappush(turns, (max(time_ms, newest_ms), given + len(records.values), place))


def end_of_source() -> SourceInput:
    """The input that ends a source that does not end by itself, for all its splits and subtasks at once."""
    return SourceInput((SplitBatch(WHOLE_SOURCE, [], None, True),), ends=True)
