"""A source of given records, with marks among them that make something happen at that position.

    TestingSource(StreamRecord("a", 10), Watermark(10), Pause(), "b", CrashOnce(), "c", End())

The marks are part of the data, so that they take effect at the same position in each run, in one process and on Spark:

* a value, or `StreamRecord`: a record, with a timestamp if one is given;
* `Watermark`: the watermark of the split from here on. It counts if the watermark strategy makes none itself
  (``WatermarkStrategy.no_watermarks()``);
* `Pause`: the epoch ends here;
* `CrashOnce`: reading fails here, the first time;
* `End`: the split ends here, and with it event time. A split without it stays open, and has no further records.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.generated import NumberedSplitSource
from flinkish.core.source import SplitRange, SplitReader, SplitRecords
from flinkish.errors import ProgramError
from flinkish.testing.crash import SimulatedCrash
from flinkish.testing.output import StreamRecord, Watermark


class Pause(NamedTuple):
    """A mark at which the epoch ends; ``epochs`` - 1 epochs without records follow."""

    epochs: int = 1


#: the marks that have crashed in this process
_crashed: set[str] = set()


class CrashOnce:
    """A mark at which reading fails with `SimulatedCrash`, the first time.

    Args:
        marker: path of a file that is created at the crash and prevents another one. Needed where the source is read in
            other processes than the test's, as on Spark: there each attempt has a copy of the source that has not
            crashed yet.
    """

    def __init__(self, marker: str | os.PathLike[str] | None = None) -> None:
        self._marker = None if marker is None else os.fspath(marker)
        #: tells the mark apart from others: each subtask has a copy of it
        self._id = uuid.uuid4().hex

    def crash(self) -> None:
        """Raise `SimulatedCrash`, unless this mark has crashed before."""
        if self._id in _crashed or self._marker is not None and os.path.exists(self._marker):
            return
        _crashed.add(self._id)
        if self._marker is not None:
            with open(self._marker, "x"):
                pass
        raise SimulatedCrash("the source has crashed, as the test wants it", hint="run the epoch again")


class End(NamedTuple):
    """A mark at which the split ends; it must be the last element."""


class TestingSource(NumberedSplitSource):
    """A source with given records, and marks among them that pause, crash or end it, or raise the watermark.

    It is bounded if its splits end with `End`. Its records are part of the program and must be picklable.

    Args:
        elements: the records and marks of the only split. For several splits see `of_splits`.
        type_info: the type of the records; None: any values.

    Raises:
        ProgramError: `End` is not the last element, watermarks go back, or a `Pause` has less than one epoch.
    """

    #: keeps pytest from taking the class for tests
    __test__ = False

    def __init__(self, *elements: Any, type_info: TypeInformation | None = None) -> None:
        self._type = type_info or Types.PICKLED_BYTE_ARRAY()
        self._splits = [_Split(elements, "")]

    @classmethod
    def of_splits(cls, *splits: Iterable[Any], type_info: TypeInformation | None = None) -> TestingSource:
        """A source with several splits, each with its own watermark, which are read side by side.

        Raises:
            ProgramError: there are no splits, some of them end and others do not, or the elements of a split are wrong.
        """
        if not splits:
            raise ProgramError(
                "a TestingSource without splits",
                where="TestingSource.of_splits()",
                expected="the elements of one or more splits",
                hint="a list of splits is unpacked: of_splits(*splits)",
            )
        source = cls(type_info=type_info)
        source._splits = [_Split(tuple(elements), f"split {number}") for number, elements in enumerate(splits)]
        if len({split.ends for split in source._splits}) != 1:
            raise ProgramError(
                "some splits of a TestingSource end and others do not",
                expected="End() as the last element of all splits, or of none",
            )
        return source

    @property
    def bounded(self) -> bool:
        return self._splits[0].ends

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    @property
    def splits(self) -> int:
        return len(self._splits)

    def size_of(self, split: int) -> int | None:
        return len(self._splits[split].positions) if self.bounded else None

    def end_of_epoch(self, split: int, position: int) -> int:
        """The position after the next pause, or the end of the split."""
        return self._splits[split].end_of_epoch(position)

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        """The elements of a split in a range of positions, including marks."""
        return self._splits[split].positions[start:stop]

    def create_reader(self) -> SplitReader:
        return _Reader(self)


class _Split:
    """The elements of a split, one per position; a pause takes one position per epoch."""

    def __init__(self, elements: tuple[Any, ...], where: str) -> None:
        self.ends = bool(elements) and isinstance(elements[-1], End)
        self.positions: list[Any] = []
        watermark_ms: int | None = None
        for element in elements[: len(elements) - self.ends]:
            if isinstance(element, End):
                raise ProgramError("End() stands before other elements of a TestingSource", where=where)
            if isinstance(element, Watermark):
                if watermark_ms is not None and element.timestamp < watermark_ms:
                    raise ProgramError(
                        f"the watermark {element.timestamp} stands behind {watermark_ms} in a TestingSource",
                        where=where,
                        expected="watermarks that do not go back",
                    )
                watermark_ms = element.timestamp
            if isinstance(element, Pause) and element.epochs < 1:
                raise ProgramError(f"{element} in a TestingSource", where=where, expected="at least one epoch")
            self.positions.extend([element] * (element.epochs if isinstance(element, Pause) else 1))

    def end_of_epoch(self, position: int) -> int:
        for place in range(position, len(self.positions)):
            if isinstance(self.positions[place], Pause):
                return place + 1
        return len(self.positions)


class _Reader(SplitReader):
    def __init__(self, source: TestingSource) -> None:
        self._source = source

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        """Read a range of a split. A batch holds consecutive records that either all have timestamps or all have
        none."""
        number = int(wanted.split.id)
        stop = self._source.end_of_epoch(number, wanted.start) if wanted.stop is None else wanted.stop
        held: list[StreamRecord] = []
        for element in self._source.values(number, wanted.start, stop):
            if isinstance(element, CrashOnce):
                if held:
                    yield _batch(held)
                held = []
                element.crash()
            elif isinstance(element, Watermark):
                yield _batch(held)._replace(watermark_ms=element.timestamp)
                held = []
            elif not isinstance(element, Pause):
                record = element if isinstance(element, StreamRecord) else StreamRecord(element)
                if held and (len(held) >= batch_size or (held[0].timestamp is None) != (record.timestamp is None)):
                    yield _batch(held)
                    held = []
                held.append(record)
        if held:
            yield _batch(held)


def _batch(records: list[StreamRecord]) -> SplitRecords:
    values = [record.value for record in records]
    timestamps = [record.timestamp for record in records if record.timestamp is not None]
    return SplitRecords(values, timestamps if timestamps else None)
