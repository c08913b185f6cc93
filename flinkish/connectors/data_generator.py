"""Flink's ``DataGeneratorSource``: a function of the record's index. Index i belongs to split ``i % splits``.

Interleaved and not contiguous splits, so that indices (and times computed from them) advance in all splits together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.numbered_splits import (
    ENDLESS,
    SAMPLE,
    NumberedSplitEnumerator,
    NumberedSplitSource,
    pickled_size,
)
from flinkish.core.source import SourceSplit, SplitEnumerator
from flinkish.errors import ProgramError

_WHERE = "DataGeneratorSource"


class DataGeneratorSource(NumberedSplitSource):
    """Records made by ``function(index)``, index from 0.

    Args:
        function: index -> value; must give the same value for the same index, since an epoch may run again.
            With ``of_list=True`` it takes a ``range`` of indices (a batch at most) and returns as many values: far
            faster.
        count: number of records; None for an unbounded source.
        type_info: type of the values.
        records_per_epoch: how many records one epoch takes in over all splits, but at least one of each; None: as many
            as the engine allows.
        splits: parallel splits.
        records_per_second: how many records there are in a second, over all splits (Flink's ``RateLimiterStrategy``);
            None: as many as can be read. What an epoch takes in is what has become due since the last one. After a
            restart it begins anew. It does not bound runs that read what is there now (``available-now``).

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
        if records_per_second is not None and not records_per_second > 0:
            raise ProgramError(f"records_per_second={records_per_second}", where=_WHERE, expected="more than 0")
        for name, value, lowest in (
            ("count", count, 0),
            ("records_per_epoch", records_per_epoch, 1),
            ("splits", splits, 1),
        ):
            if value is not None and value < lowest:
                raise ProgramError(
                    f"{name}={value}", where=_WHERE, expected=f"at least {lowest}", hint="leave it out for the default"
                )
        self._function = function
        self._count = count
        self._type_info = type_info or Types.PICKLED_BYTE_ARRAY()
        self._records_per_epoch = records_per_epoch
        self._splits = splits
        self._of_list = of_list
        self._records_per_second = records_per_second

    def with_splits(self, splits: int) -> DataGeneratorSource:
        """The same records in ``splits`` parallel parts."""
        return DataGeneratorSource(
            self._function,
            self._count,
            self._type_info,
            records_per_epoch=self._records_per_epoch,
            splits=splits,
            of_list=self._of_list,
            records_per_second=self._records_per_second,
        )

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        unlimited = super().create_enumerator(restored)
        return unlimited if self._records_per_second is None else RateLimitedEnumerator(self, self._records_per_second)

    @property
    def bounded(self) -> bool:
        return self._count is not None

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
        # epoch n takes the indices from n times to n + 1 times the number, whichever splits they belong to
        epoch = (position * self._splits + split) // self._records_per_epoch
        return max(position + 1, self._position((epoch + 1) * self._records_per_epoch, split))

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        return self._values(range(start * self._splits + split, stop * self._splits + split, self._splits))

    def bytes_per_record(self, split: int, position: int) -> float:
        size = self.size_of(split)
        stop = position + SAMPLE if size is None else min(position + SAMPLE, size)
        try:
            return pickled_size(self.values(split, position, stop))
        except Exception:  # user code: its error belongs to the task that reads these records
            return 0.0

    def _position(self, index: int, split: int) -> int:
        """How many indices below ``index`` a split has."""
        return (index - split + self._splits - 1) // self._splits

    def _values(self, indices: Sequence[int]) -> list[Any]:
        if not self._of_list:
            return list(map(self._function, indices))
        values = list(self._function(indices)) if indices else []
        if len(values) != len(indices):
            raise ProgramError(
                f"the function gave {len(values)} values for {len(indices)} indices",
                where=_WHERE,
                expected="one value per index",
                hint="return a list as long as the range",
            )
        return values


class RateLimitedEnumerator(NumberedSplitEnumerator):
    """Lets each split have the records that have become due since it was first asked for."""

    def __init__(
        self, source: DataGeneratorSource, records_per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(source)
        self._per_second = records_per_second / source.splits
        self._clock = clock
        #: split -> when and at which position it was first asked for
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
