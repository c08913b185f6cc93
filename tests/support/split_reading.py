"""Reads a SplitSource as the engine does, epoch by epoch, with a planner of thirty lines, without engine and Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from flinkish.core.source import (
    SourceLimits,
    SourceSplit,
    SplitEnumerator,
    SplitRange,
    SplitReader,
    SplitSource,
)


class SplitReading:
    """One query over a source: what is known, open and read.

    Args:
        source: pickled and unpickled first, as on its way to the workers.
        limits: of each epoch; of each split if they are read side by side.
        restored: splits that a savepoint named, with ``positions``; open ones among them go on.
    """

    def __init__(
        self,
        source: SplitSource,
        limits: SourceLimits | None = None,
        *,
        restored: Sequence[SourceSplit] = (),
        positions: Mapping[str, int] | None = None,
        enumerator: SplitEnumerator | None = None,
        max_record_bytes: int | None = None,
    ) -> None:
        self.source = pickle.loads(pickle.dumps(source))
        self.limits = limits or SourceLimits()
        self._max_record_bytes = max_record_bytes
        self.enumerator = enumerator or self.source.create_enumerator(list(restored))
        self.positions: dict[str, int] = dict(positions or {})
        self.known: dict[str, SourceSplit] = {split.id: split for split in restored}
        self.open: list[SourceSplit] = [split for split in restored if split.id in self.positions]
        self._discovered = False
        self.ranges: list[list[SplitRange]] = []
        self.epochs: list[list[Any]] = []
        self.timestamps: list[int] = []
        self.by_split: dict[str, list[Any]] = {}

    @property
    def records(self) -> list[Any]:
        """All that was read, in the order in which it was."""
        return [record for epoch in self.epochs for record in epoch]

    @property
    def ended(self) -> bool:
        """Whether all has been read that there will ever be."""
        return self._discovered and self.enumerator.complete and not self.open

    def run(self, epochs_max: int = 10_000) -> SplitReading:
        """Epochs until all has been read, or until one finds nothing to read."""
        while not self.ended:
            assert len(self.epochs) < epochs_max, "the source does not end"
            if not self.run_epoch():
                break
        return self

    def run_epoch(self) -> list[SplitRange]:
        """Plans and reads one epoch with a new reader; returns what it read."""
        ranges = self.plan()
        if ranges:
            self.ranges.append(ranges)
            self.epochs.append(self.read(ranges))
        return ranges

    def plan(self) -> list[SplitRange]:
        """The ranges of the next epoch; moves the positions."""
        self._discovered = True
        for found in self.enumerator.discover(set(self.known)):
            assert found.id not in self.known, "a split was found twice"
            split = SourceSplit(**json.loads(json.dumps(asdict(found))))
            self.known[split.id] = split
            self.positions[split.id] = split.start
            self.open.append(split)
        ranges: list[SplitRange] = []
        records, size = float(self.limits.max_records), float(self.limits.max_bytes)
        for split in list(self.open):
            if self.source.side_by_side:
                records, size = float(self.limits.max_records), float(self.limits.max_bytes)
            if records <= 0 or size <= 0:
                break
            start = self.positions[split.id]
            end, ends = self.enumerator.end_of(split, start)
            cost = self.enumerator.cost(split, start)
            assert end is None or end >= start
            stop = end
            if end is not None:
                most = min(records / cost.records if cost.records else end, size / cost.bytes if cost.bytes else end)
                stop = min(end, start + max(1, int(most)))
                if stop < end:
                    stop = self.enumerator.cut(split, start, stop)
                    assert start < stop
            over = ends and stop == end
            units = 1 if stop is None else stop - start
            records, size = records - units * cost.records, size - units * cost.bytes
            if units or over:
                ranges.append(SplitRange(split, start, stop, over))
            if stop is not None:
                self.positions[split.id] = stop
            if over:
                self.open.remove(split)
                del self.positions[split.id]
        return ranges

    def read(self, ranges: Sequence[SplitRange], reader: SplitReader | None = None) -> list[Any]:
        """What a reader gives for these ranges, one after the other."""
        reader = reader or self.source.create_reader()
        if self._max_record_bytes is not None:
            reader.max_record_bytes = self._max_record_bytes
        size = self.limits.batch_size
        reader.open(ranges, size)
        found: list[Any] = []
        for wanted in ranges:
            for batch in reader.read(wanted, size):
                assert len(batch.values) <= size
                assert batch.timestamps is None or len(batch.timestamps) == len(batch.values)
                found += batch.values
                self.by_split.setdefault(wanted.split.id, []).extend(batch.values)
                self.timestamps += batch.timestamps or []
        reader.close()
        return found


def read_all(source: SplitSource, limits: SourceLimits | None = None, max_record_bytes: int | None = None) -> list[Any]:
    """All records of a source that ends."""
    reading = SplitReading(source, limits, max_record_bytes=max_record_bytes).run()
    assert reading.ended
    return reading.records


def read_cut(source: SplitSource, cuts: Sequence[int], batch_size: int = 10_000) -> list[Any]:
    """The records of a source of one split, cut at these positions, each range with a reader of its own."""
    reading = SplitReading(source, SourceLimits(batch_size=batch_size))
    (split,) = reading.enumerator.discover(())
    end, ends = reading.enumerator.end_of(split, 0)
    assert ends and end is not None
    borders = sorted({0, end, *(cut for cut in cuts if cut < end)})
    records: list[Any] = []
    for start, stop in zip(borders, borders[1:]):
        records += reading.read([SplitRange(split, start, stop, stop == end)])
    return records
