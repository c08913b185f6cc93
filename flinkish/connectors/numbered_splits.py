"""Base of the sources whose records are computed in the worker from their positions alone: collections, sequences,
generators.

Such a source has a fixed number of splits with the ids ``"0"``, ``"1"``, ..., which are read side by side; a position
is the index of a record within its split.
"""

from __future__ import annotations

import pickle
import sys
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from flinkish.core.source import (
    SourceSplit,
    SplitEnumerator,
    SplitRange,
    SplitReader,
    SplitRecords,
    SplitSource,
    UnitCost,
    positions_text,
)
from flinkish.errors import SavepointError

#: The end position of an unbounded split; the engine's limits per epoch cut the range.
ENDLESS = 1 << 62
#: Number of records that are pickled to estimate the size of a record.
SAMPLE = 10
#: Number of positions after which the size of a record is estimated again.
_MEASURED_EVERY = 100_000


class NumberedSplitSource(SplitSource):
    """A source with a fixed number of splits whose records follow from (split number, position). Subclasses implement
    ``bounded``, ``produced_type``, `splits`, `size_of` and `values`."""

    @property
    def side_by_side(self) -> bool:
        return True

    @property
    @abstractmethod
    def splits(self) -> int:
        """Number of splits, at least 1; fixed for the life of the job."""

    @abstractmethod
    def size_of(self, split: int) -> int | None:
        """Number of records of a split; None if the split is unbounded."""

    @abstractmethod
    def values(self, split: int, start: int, stop: int) -> list[Any]:
        """The records of a split from position ``start`` (inclusive) to ``stop`` (exclusive). The same arguments must
        always give the same records, since an epoch may run again."""

    def end_of_epoch(self, split: int, position: int) -> int:
        """The position (exclusive) at which an epoch that begins at ``position`` must end at the latest."""
        return ENDLESS

    def bytes_per_record(self, split: int, position: int) -> float:
        """The estimated size of a record near ``position``, in bytes; 0 if it is not known."""
        return 0.0

    def subtask_of(self, split_id: str, parallelism: int) -> int:
        return int(split_id) % parallelism

    def declared_splits(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.splits)))

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        if restored and {split.id for split in restored} != set(self.declared_splits()):
            raise SavepointError(
                f"the source has {self.splits} splits and had {len(restored)} when the savepoint was taken",
                where=type(self).__name__,
                expected="as many splits as before",
                hint="make the source with the old number of splits",
            )
        before = next((split for split in restored if split.start < 0), None)
        if before is not None:
            raise SavepointError(
                f"the split {before.id} is to go on at record {before.start}",
                where=type(self).__name__,
                expected="the number of a record, from 0 on",
                hint="use another savepoint",
            )
        return NumberedSplitEnumerator(self)

    def create_reader(self) -> SplitReader:
        return NumberedSplitReader(self)


class NumberedSplitEnumerator(SplitEnumerator):
    """Finds all splits in its first `discover`. The sizes are always those of the source in the program, also for
    splits that were restored from a savepoint."""

    def __init__(self, source: NumberedSplitSource) -> None:
        self._source = source
        #: split -> (position at which the size of a record was estimated, the estimate in bytes)
        self._measured: dict[str, tuple[int, float]] = {}
        #: split -> the position at which its end was first asked for after `freeze`; None: the source is not frozen
        self._frozen_at: dict[str, int] | None = None
        self._discovered = False

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        self._discovered = True
        splits = (SourceSplit(name, 0, self._source.size_of(int(name))) for name in self._source.declared_splits())
        return [split for split in splits if split.id not in known]

    @property
    def complete(self) -> bool:
        return self._discovered

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        number = int(split.id)
        size, end = self._source.size_of(number), self._source.end_of_epoch(number, position)
        if size is not None:
            return max(position, min(size, end)), end >= size
        if self._frozen_at is not None:
            # "all that is there now" of an unbounded source is what one epoch may read, in one or in more epochs
            first = self._frozen_at.setdefault(split.id, position)
            end = position if first < position and end == ENDLESS else self._source.end_of_epoch(number, first)
        return max(position, end), False

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        at, size = self._measured.get(split.id, (-_MEASURED_EVERY, 0.0))
        if not at <= position < at + _MEASURED_EVERY:
            size = self._source.bytes_per_record(int(split.id), position)
            self._measured[split.id] = (position, size)
        return UnitCost(1.0, size)

    def freeze(self) -> None:
        self._frozen_at = {}


class NumberedSplitReader(SplitReader):
    """Asks the source for the records of a range, at most a batch at a time."""

    def __init__(self, source: NumberedSplitSource) -> None:
        self._source = source
        #: split -> the position of the first record of its last batch
        self._begins: dict[str, int] = {}

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        number = int(wanted.split.id)
        stop = wanted.stop
        if stop is None:
            size = self._source.size_of(number)
            stop = ENDLESS if size is None else size
        for begin in range(wanted.start, stop, batch_size):
            self._begins[wanted.split.id] = begin
            yield SplitRecords(self._source.values(number, begin, min(begin + batch_size, stop)), None)

    def place_of(self, split: str, first: int, last: int) -> str:
        begin = self._begins[split]
        return f"split {split}, {positions_text('position', begin + first, begin + last)}"


def pickled_size(values: Sequence[Any]) -> float:
    """The estimated number of bytes per value; 0 without values."""
    try:
        # each value alone: within one pickle, an object that occurs again is written only once
        return sum(len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) for value in values) / max(1, len(values))
    except Exception:  # pickling may raise anything, and a value need not be picklable until it is sent somewhere
        return float(max(map(sys.getsizeof, values)))
