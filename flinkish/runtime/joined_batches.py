"""Small batches of records that follow each other, with no other step in between, become one batch, whichever inputs
they come from. Results do not depend on it.

With hundreds of inputs there are two or three records between two watermarks of one of them: operators that are given
so few at a time take several times as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flinkish.runtime.steps import Records, Step

#: The kind of records that are not joined with others, and what none is of.
ALONE, _NONE = -1, -2


class Joined(NamedTuple):
    """Which batches of records become one batch: up to how many records it has, and only what comes from buffers of at
    most so many encoded bytes, so that large records do not pile up."""

    most_records: int
    most_buffer_bytes: int


#: What is worked on again and again should fit into the cache of a core, as in a buffer.
CACHED = Joined(1_250, 16 * 1024)
#: Where state is looked up in files, batch by batch, a look-up takes a third less time a key in batches of this size.
LOOKED_UP = Joined(5_000, 128 * 1024)


class JoinedBatches:
    """The batch that is joined now: records of `kind`, at most `room` of them, may be added to its lists."""

    values: list[Any]
    timestamps: list[int]

    def __init__(self, most_records: int) -> None:
        self._most_records = most_records
        self._batch: list[Step] = []
        self.end()

    def begin(self, kind: int, records: Records) -> list[Step]:
        """Another batch; returns what is complete now."""
        complete = self.end()
        if kind == ALONE:
            return [*complete, records]
        self._batch = [records]
        self.kind, self.room = kind, self._most_records - len(records.values)
        self.values, self.timestamps = records.values, records.timestamps or []
        return complete

    def tell(self, steps: list[Step]) -> list[Step]:
        """Other steps, if there are any; returns what is complete now."""
        return [*self.end(), *steps] if steps else []

    def end(self) -> list[Step]:
        """The batch is complete."""
        complete, self._batch = self._batch, []
        self.kind, self.room = _NONE, 0
        self.values, self.timestamps = [], []
        return complete
