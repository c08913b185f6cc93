"""The steps that an input gate tells a task to take, one after the other, and how small ones are joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from flinkish.core.time_limits import MIN_TIMESTAMP_MS


class Records(NamedTuple):
    """A step: process these records, which lie between two watermarks."""

    input_index: int
    values: list[Any]
    timestamps: list[int] | None


class LargeRecords(Records):
    """Records of `LARGE_BYTES` or more on average, alone in their step."""

    __slots__ = ()


class WatermarkStep(NamedTuple):
    """A step: the combined watermark has risen."""

    watermark_ms: int


class StatusStep(NamedTuple):
    """A step: all inputs have become idle, or one has become active."""

    idle: bool


class Stretch(NamedTuple):
    """A step: take these steps, which are records and the watermarks between them, one after the other.

    Where event time is sparse there are a dozen records between two watermarks, and a step costs as much as some
    records. An operator that is given a stretch looks up its keys and its state once."""

    steps: list[Records | WatermarkStep]


Step = Records | WatermarkStep | StatusStep | Stretch


#: The kinds of records that are never joined with others to a batch, and of those that are no part of a stretch
#: either, because they are large; and a kind that no records have.
ALONE, LARGE, _NONE = -1, -2, -3

#: Encoded bytes of a record from which on it is large.
LARGE_BYTES = 1_024


class Joined(NamedTuple):
    """The limits of joining: a joined batch has at most ``most_records`` records, and only records from buffers of at
    most ``most_buffer_bytes`` encoded bytes are joined, so that large records do not pile up. With ``stretches``,
    steps are joined to a stretch until it has so many records and watermarks."""

    most_records: int
    most_buffer_bytes: int
    stretches: bool = False


#: Limits for state in memory: a batch is processed again and again, so it should fit into the cache of a core, as a
#: buffer should.
CACHED = Joined(1_250, 16 * 1024)
#: Limits for state in files, which is looked up batch by batch: batches of this size take a third less time per key.
LOOKED_UP = Joined(5_000, 128 * 1024)


class JoinedBatches:
    """The batch that is being joined: up to `room` more records of `kind` may be appended to its lists.

    Small batches of records that follow each other with no other step in between are joined, even if they come from
    different senders. Results do not depend on it. With hundreds of senders there are only two or three records between
    two watermarks of one of them, and operators that process so few records at a time take several times as long.

    With stretches, the batch is the last step of a stretch. The batches and watermarks in it are those that would
    be handed over one by one without.
    """

    values: list[Any]
    timestamps: list[int]

    def __init__(self, joined: Joined) -> None:
        self._most_records = joined.most_records
        self._stretches = joined.stretches
        #: the steps that are not handed over yet; without stretches there is only the batch
        self._steps: list[Records | WatermarkStep] = []
        #: the number of records and watermarks in the steps before the batch
        self._size = 0
        self.kind, self.room = _NONE, 0
        self.values, self.timestamps = [], []

    def begin(self, kind: int, records: Records) -> list[Step]:
        """Begin another batch with these records; returns the steps that are complete now."""
        if kind == LARGE:
            return [*self.end(), LargeRecords(*records)]
        if kind == ALONE and not self._stretches:
            return [*self.end(), records]
        self._close()
        complete = [] if self._stretches and self._size < self._most_records else self.end()
        self._steps.append(records)
        self.kind, self.room = kind, 0 if kind == ALONE else self._most_records - len(records.values)
        self.values, self.timestamps = records.values, records.timestamps or []
        return complete

    def tell(self, steps: list[Step]) -> list[Step]:
        """Let other steps follow; returns the steps that are complete now. Without steps the batch stays open."""
        if not steps:
            return []
        watermarks = [step for step in steps if isinstance(step, WatermarkStep)] if self._stretches else []
        if len(watermarks) < len(steps):
            return [*self.end(), *steps]
        self._close()
        self._steps += watermarks
        self._size += len(watermarks)
        return [] if self._size < self._most_records else self.end()

    def end(self) -> list[Step]:
        """Complete the batch, and the stretch, and return what there is of it as one step."""
        self._close()
        steps, self._steps, self._size = self._steps, [], 0
        return [Stretch(steps)] if len(steps) > 1 else [*steps]

    def _close(self) -> None:
        """End the batch: the next records begin another one."""
        self._size += len(self.values)
        self.kind, self.room = _NONE, 0
        self.values, self.timestamps = [], []


class OriginProgress(NamedTuple):
    """The progress of one origin, as seen by the subtask that receives from it."""

    input_index: int
    watermark_ms: int = MIN_TIMESTAMP_MS
    idle: bool = False
    #: processing time of the last epoch in which the origin had records
    last_active_ms: int = 0


@dataclass
class EpochInfo:
    """What an operator can know about the running epoch. Each operator has one such object, which is updated at each
    epoch."""

    epoch: int = 0
    #: processing time of the whole epoch, in ms (docs/semantics.md)
    processing_time_ms: int = 0
    #: combined watermark of the operator's inputs
    watermark_ms: int = MIN_TIMESTAMP_MS
    end_of_input: bool = False
    #: the task continues from stored state, or the job was started from a savepoint
    restored: bool = False
    #: the epoch that the stored state is from; None if there is no stored state or it comes from a savepoint
    restored_epoch: int | None = None
    #: user code has asked that the next epoch be planned at once
    commit_requested: bool = False
