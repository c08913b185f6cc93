"""The sources whose records are computed in the worker from their positions alone: collections, sequences,
generators.
"""

from __future__ import annotations

import copy
import pickle
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any

from flinkish.common.arguments import check_at_least, check_takes, result_of_each
from flinkish.common.detach import all_detached, handing_over
from flinkish.common.typeinfo import TypeInformation, Types
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
from flinkish.errors import ProgramError, SavepointError

#: The end position of an unbounded split; the engine's limits per epoch cut the range.
ENDLESS = 1 << 62
#: Number of records that are pickled to estimate the size of a record.
SAMPLE = 10
#: Number of positions after which the size of a record is estimated again.
_MEASURED_EVERY = 100_000


class NumberedSplitSource(SplitSource):
    """A source with a fixed number of splits whose records follow from (split number, position). Subclasses implement
    ``bounded``, ``produced_type``, `splits`, `size_of` and `values`.

    The splits have the ids ``"0"``, ``"1"``, ..., and are read side by side; a position is the index of a record within
    its split.
    """

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


class CollectionSource(NumberedSplitSource):
    """A bounded source over the values of a collection in the program: one split, in the order of the collection.

    >>> CollectionSource([1, 2, 3]).values(0, 1, 3)
    [2, 3]

    The values are pickled with the job.
    """

    #: the values are copied when they are read, and nothing else here can change
    travels_by_reference = True

    def __init__(self, values: Iterable[Any], type_info: TypeInformation | None = None) -> None:
        self._values = list(values)
        self._type_info = type_info or Types.PICKLED_BYTE_ARRAY()

    def first(self, count: int) -> CollectionSource:
        """A source of the first values only."""
        return CollectionSource(self._values[:count], self._type_info)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def produced_type(self) -> TypeInformation:
        return self._type_info

    @property
    def splits(self) -> int:
        return 1

    def size_of(self, split: int) -> int | None:
        return len(self._values)

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        # the collection itself is read again if the epoch is
        return all_detached(self._values[start:stop])

    def bytes_per_record(self, split: int, position: int) -> float:
        return pickled_size(self._values[position : position + SAMPLE])


_WHERE = "DataGeneratorSource"


class DataGeneratorSource(NumberedSplitSource):
    """A source that generates the record of each index from 0 on with ``function(index)``.

    Index i belongs to split ``i % splits``: the splits are interleaved rather than contiguous, so that indices (and
    event times computed from them) advance at the same pace in all splits.

    Args:
        function: index -> value; must give the same value for the same index, since an epoch may run again.
            With ``of_list=True`` it takes a ``range`` of indices (at most one batch) and returns as many values, which
            is far faster.
        count: number of records; None for an unbounded source.
        type_info: type of the values; None: pickled bytes.
        records_per_epoch: how many records one epoch reads over all splits, but at least one of each; None: as many
            as the engine allows.
        splits: number of splits, which are read in parallel.
        of_list: whether ``function`` takes a range of indices instead of one index.
        records_per_second: how many records become due per second, over all splits (Flink's
            ``RateLimiterStrategy``); None: no limit. An epoch reads the records that have become due since the epoch
            before, also of a source with an end. After a restart the count begins anew. Runs that read only what is
            there now (``execution.trigger: available-now``) are not limited.

    Raises:
        ProgramError: a negative ``count``, ``records_per_epoch`` or ``splits`` below 1, one of them that is no whole
            number, or a ``records_per_second`` that is not above 0 or not finite.

    >>> DataGeneratorSource(lambda i: i * i, count=5, splits=2).values(1, 0, 2)
    [1, 9]
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        count: int | None = None,
        type_info: TypeInformation | None = None,
        *,
        records_per_epoch: int | None = None,
        splits: int = 1,
        of_list: bool = False,
        records_per_second: float | None = None,
    ) -> None:
        if records_per_second is not None and not 0 < records_per_second < float("inf"):
            raise ProgramError(
                f"records_per_second={records_per_second}",
                where=_WHERE,
                expected="a finite number above 0",
                hint="leave it out for no limit",
            )
        for name, value, lowest in (
            ("count", count, 0),
            ("records_per_epoch", records_per_epoch, 1),
            ("splits", splits, 1),
        ):
            if value is not None and (not isinstance(value, Integral) or value < lowest):
                raise ProgramError(
                    f"{name}={value}",
                    where=_WHERE,
                    expected=f"a whole number, at least {lowest}",
                    hint="leave it out for the default",
                )
        check_takes(function, ("range of indices",) if of_list else ("index",), "the generator function", _WHERE)
        self._function = function
        self._count = count
        self._type_info = type_info or Types.PICKLED_BYTE_ARRAY()
        self._records_per_epoch = records_per_epoch
        self._splits = splits
        self._of_list = of_list
        self._records_per_second = records_per_second

    def with_splits(self, splits: int) -> DataGeneratorSource:
        """A source of the same records in ``splits`` splits."""
        check_at_least(splits, 1, "splits", _WHERE, "splits are read in parallel")
        same = copy.copy(self)
        same._splits = splits
        return same

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        unlimited = super().create_enumerator(restored)
        return unlimited if self._records_per_second is None else RateLimitedEnumerator(self, self._records_per_second)

    @property
    def bounded(self) -> bool:
        return self._count is not None

    @property
    def paced(self) -> bool:
        return self._records_per_second is not None

    @property
    def produced_type(self) -> TypeInformation:
        return self._type_info

    @property
    def splits(self) -> int:
        return self._splits

    def size_of(self, split: int) -> int | None:
        return None if self._count is None else self._position(self._count, split)

    def end_of_epoch(self, split: int, position: int) -> int:
        if self._records_per_epoch is None:
            return ENDLESS
        # epoch n reads the indices from n * records_per_epoch up to (n + 1) * records_per_epoch, whatever their splits
        epoch = (position * self._splits + split) // self._records_per_epoch
        return max(position + 1, self._position((epoch + 1) * self._records_per_epoch, split))

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        return self._values(range(start * self._splits + split, stop * self._splits + split, self._splits))

    def bytes_per_record(self, split: int, position: int) -> float:
        size = self.size_of(split)
        stop = position + SAMPLE if size is None else min(position + SAMPLE, size)
        try:
            return pickled_size(self.values(split, position, stop))
        except Exception:  # user code: the task that reads these records raises its error
            return 0.0

    def _position(self, index: int, split: int) -> int:
        """The number of indices below ``index`` that belong to the split."""
        return (index - split + self._splits - 1) // self._splits

    def _values(self, indices: Sequence[int]) -> list[Any]:
        if not self._of_list:
            return result_of_each(handing_over(self._function), indices, "the generator function", _WHERE)
        values = all_detached(self._function(indices)) if indices else []
        if len(values) != len(indices):
            raise ProgramError(
                f"the function gave {len(values)} values for {len(indices)} indices",
                where=_WHERE,
                expected="one value per index",
                hint="return a list as long as the range",
            )
        return values


class RateLimitedEnumerator(NumberedSplitEnumerator):
    """Ends each split's range of an epoch at the record that is due now. A split's records become due at an even rate
    from the moment at which its end is first asked for; once frozen, there is no limit.

    Args:
        records_per_second: over all splits of the source.
        clock: gives seconds and never goes back.
    """

    def __init__(
        self, source: DataGeneratorSource, records_per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(source)
        self._per_second = records_per_second / source.splits
        self._clock = clock
        #: split -> (time in seconds, position) at which its end was first asked for
        self._began: dict[str, tuple[float, int]] = {}
        self._limited = True

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        end, last = super().end_of(split, position)
        if not self._limited or end is None:
            return end, last
        now_s = self._clock()
        began_s, first = self._began.setdefault(split.id, (now_s, position))
        due = max(position, first + int((now_s - began_s) * self._per_second))
        return (end, last) if end <= due else (due, False)

    def freeze(self) -> None:
        super().freeze()
        self._limited = False


class NumberSequenceSource(NumberedSplitSource):
    """A bounded source of the longs from ``start`` to ``end`` (both inclusive) in ascending order per split. The splits
    are contiguous parts of the range whose sizes differ by at most one.

    >>> source = NumberSequenceSource(1, 5, splits=2)
    >>> source.values(0, 0, 3), source.values(1, 0, 2)
    ([1, 2, 3], [4, 5])

    Raises:
        ProgramError: ``start`` or ``end`` is no whole number, ``end`` is less than ``start``, or ``splits`` is less
            than 1.
    """

    def __init__(self, start: int, end: int, splits: int = 1) -> None:
        if not all(isinstance(number, Integral) for number in (start, end)):
            raise ProgramError(
                f"a number sequence from {start!r} to {end!r}",
                where="NumberSequenceSource",
                expected="whole numbers",
                hint="call int(...)",
            )
        if start > end:
            raise ProgramError(
                f"a number sequence from {start} to {end} is empty",
                where="NumberSequenceSource",
                expected="start <= end",
                hint="both ends are part of the sequence",
            )
        if splits < 1:
            raise ProgramError(
                f"splits={splits}",
                where="NumberSequenceSource",
                expected="at least 1 split",
                hint="splits are read in parallel",
            )
        self._start = start
        self._count = end - start + 1
        self._splits = splits

    def with_splits(self, splits: int) -> NumberSequenceSource:
        """A source of the same sequence in ``splits`` splits."""
        check_at_least(splits, 1, "splits", "NumberSequenceSource", "splits are read in parallel")
        same = copy.copy(self)
        same._splits = splits
        return same

    @property
    def bounded(self) -> bool:
        return True

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    @property
    def splits(self) -> int:
        return self._splits

    def size_of(self, split: int) -> int | None:
        share, more = divmod(self._count, self._splits)
        return share + (split < more)

    def values(self, split: int, start: int, stop: int) -> list[int]:
        share, more = divmod(self._count, self._splits)
        first = self._start + split * share + min(split, more)
        return list(range(first + start, first + stop))

    def bytes_per_record(self, split: int, position: int) -> float:
        return sys.getsizeof(self._start + self._count)
