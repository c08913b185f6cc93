"""A source for tests of the engine: splits of numbered records, of which tests choose the sizes and the costs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.source import (
    SourceSplit,
    SplitEnumerator,
    SplitRange,
    SplitReader,
    SplitRecords,
    SplitSource,
    UnitCost,
)


class LetteredSource(SplitSource):
    """Split ``a`` of 3 records holds ``("a", 0)``, ``("a", 1)`` and ``("a", 2)``.

    Args:
        sizes: split -> number of its records, in the order in which they are found.
        together: the splits are read side by side.
        unbounded: more splits may come; splits that are read side by side do not end then.
        record_bytes: what a record costs.
    """

    def __init__(
        self, sizes: Mapping[str, int], together: bool = False, unbounded: bool = False, record_bytes: float = 0.0
    ) -> None:
        self.sizes = dict(sizes)
        self._together = together
        self._unbounded = unbounded
        self._record_bytes = record_bytes

    @property
    def bounded(self) -> bool:
        return not self._unbounded

    @property
    def produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()

    @property
    def side_by_side(self) -> bool:
        return self._together

    def declared_splits(self) -> tuple[str, ...]:
        return tuple(self.sizes)

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return _Enumerator(self.sizes, self._unbounded, self._unbounded and self._together, self._record_bytes)

    def create_reader(self) -> SplitReader:
        return _Reader()


class _Enumerator(SplitEnumerator):
    def __init__(self, sizes: Mapping[str, int], unbounded: bool, endless_splits: bool, record_bytes: float) -> None:
        self._sizes = sizes
        self._unbounded = unbounded
        self._endless_splits = endless_splits
        self._record_bytes = record_bytes

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        return [SourceSplit(name, 0, size) for name, size in self._sizes.items() if name not in known]

    @property
    def complete(self) -> bool:
        return not self._unbounded

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        return self._sizes[split.id], not self._endless_splits

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        return UnitCost(1.0, self._record_bytes)


class _Reader(SplitReader):
    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        stop = wanted.split.end if wanted.stop is None else wanted.stop
        assert stop is not None
        for start in range(wanted.start, stop, batch_size):
            yield SplitRecords([(wanted.split.id, n) for n in range(start, min(start + batch_size, stop))], None)
