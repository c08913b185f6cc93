"""Flink's ``NumberSequenceSource``: the longs from ``start`` to ``end``, both inclusive, in contiguous splits."""

from __future__ import annotations

import copy
import sys
from numbers import Integral

from flinkish.common.arguments import check_at_least
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.numbered_splits import NumberedSplitSource
from flinkish.errors import ProgramError


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
