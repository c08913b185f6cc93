"""Flink's ``DataGeneratorSource``: each record is a function of its index. Index i belongs to split ``i % splits``.

The splits are interleaved rather than contiguous, so that indices (and event times computed from them) advance at the
same pace in all splits.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from flinkish.common.arguments import check_at_least, check_takes, result_of_each
from flinkish.common.detach import all_detached, handing_over
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
    """A source that generates the record of each index from 0 on with ``function(index)``.

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
