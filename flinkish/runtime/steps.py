"""The steps that an input gate tells a task to take, one after the other, and how small ones are joined."""

from __future__ import annotations

from typing import Any, NamedTuple


class Records(NamedTuple):
    """A step: process these records, which lie between two watermarks."""

    input_index: int
    values: list[Any]
    timestamps: list[int] | None


class WatermarkStep(NamedTuple):
    """A step: the combined watermark has risen."""

    watermark_ms: int


class StatusStep(NamedTuple):
    """A step: all inputs have become idle, or one has become active."""

    idle: bool


Step = Records | WatermarkStep | StatusStep


#: The kind of records that are never joined with others, and a kind that no records have.
ALONE, _NONE = -1, -2


class Joined(NamedTuple):
    """The limits of joining: a joined batch has at most ``most_records`` records, and only records from buffers of at
    most ``most_buffer_bytes`` encoded bytes are joined, so that large records do not pile up."""

    most_records: int
    most_buffer_bytes: int


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
    """

    values: list[Any]
    timestamps: list[int]

    def __init__(self, most_records: int) -> None:
        self._most_records = most_records
        self._batch: list[Step] = []
        self.end()

    def begin(self, kind: int, records: Records) -> list[Step]:
        """Begin another batch with these records; returns the steps that are complete now."""
        complete = self.end()
        if kind == ALONE:
            return [*complete, records]
        self._batch = [records]
        self.kind, self.room = kind, self._most_records - len(records.values)
        self.values, self.timestamps = records.values, records.timestamps or []
        return complete

    def tell(self, steps: list[Step]) -> list[Step]:
        """Let other steps follow; returns the steps that are complete now. Without steps the batch stays open."""
        return [*self.end(), *steps] if steps else []

    def end(self) -> list[Step]:
        """Complete the batch and return it, if there is one."""
        complete, self._batch = self._batch, []
        self.kind, self.room = _NONE, 0
        self.values, self.timestamps = [], []
        return complete
