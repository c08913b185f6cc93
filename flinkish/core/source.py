"""The contracts between sources and the engine.

A source is one of two kinds:

* :class:`SplitSource` (Flink's FLIP-27 source): a :class:`SplitEnumerator` finds *splits* (files, Kafka partitions,
  ranges of numbers), a :class:`SplitReader` in the worker reads a range of one. The engine assigns splits to subtasks
  and decides for each epoch which range of each split is read, before anything is read. Collections, sequences,
  generators, files and Kafka. Runs in the minicluster as well.
* :class:`DataFrameSource`: Spark reads (``load`` gives a streaming DataFrame), a :class:`RecordDecoder` in the worker
  turns Arrow batches into lists. Delta, any streaming DataFrame.

Both are replayable: an epoch that runs again reads the same records.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.typeinfo import TypeInformation

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class SourceLimits:
    """How much one epoch may take in from one source."""

    max_records: int = 4_000_000
    max_bytes: int = 256 * 1024 * 1024
    batch_size: int = 10_000


class Source(ABC):
    """What ``from_source`` takes."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source has an end."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """The type of its records."""

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Called in the driver before a query starts, to find out whether the source can go on.

        Args:
            position: where it goes on, as a savepoint has it; None if it begins.
            known: what this method returned when the job was started before.

        Returns:
            What tells the things that are read from others of the same name (topic -> its id), to be remembered.

        Raises:
            FinalOperationError: what comes next is no longer there, or is not what was read before.
        """
        return dict(known)


# ---------------------------------------------------------------------------------------------------- splits


@dataclass(frozen=True)
class SourceSplit:
    """A part of a source that is read by one subtask at a time, from ``start`` to ``end``.

    A position is a whole number that only the source understands and that never goes back: bytes of a text file, rows
    of a Parquet file, offsets of a Kafka partition, indices of a generator.

    Args:
        id: its name, stable and unique within the source: the path of a file, ``topic-3``.
        start: position of the first record.
        end: the position behind the last record; None while it is not known (a Kafka partition without a bound) or
            where only the reader finds it (a file that cannot be cut).
        info: what else the reader must know, made of JSON's types.
    """

    id: str
    start: int = 0
    end: int | None = None
    info: Any = None


@dataclass(frozen=True)
class SplitRange:
    """What one epoch reads of a split: positions from ``start`` up to, and without, ``stop``.

    Args:
        stop: None: to the split's end, wherever that is.
        ends: the split has no record behind this range and never will have one.
    """

    split: SourceSplit
    start: int
    stop: int | None
    ends: bool = False

    @property
    def whole(self) -> bool:
        """Whether nothing of the split was read before and nothing will be read later."""
        return self.ends and self.start == 0


class SplitRecords(NamedTuple):
    """A batch of records of one split, with their timestamps in ms (None: the source has none).

    ``watermark_ms``: the split's watermark behind these records, from a source that knows it better than a watermark
    strategy. It never goes back; a strategy with a generator of its own replaces it, as in Flink.
    """

    values: list[Any]
    timestamps: list[int] | None
    watermark_ms: int | None = None


class UnitCost(NamedTuple):
    """What a position of a split stands for: estimated records and bytes (in memory, as read) per unit of position."""

    records: float
    bytes: float


@dataclass(frozen=True)
class SplitEnumeratorContext:
    """What an enumerator is told when it starts.

    Args:
        directory: path or URI of a directory in the job directory that belongs to this source alone. It is there only
            once something was written to it. In a job that begins with a savepoint it is another one than before.
        state: what `SplitEnumerator.snapshot_state` gave for the last epoch; None when there was none.
    """

    directory: str
    state: Any = None


class SplitEnumerator(ABC):
    """Finds the splits of a source and how far each can be read. One instance per query; it runs beside the driver, in
    a process of its own, without a Spark session, and is asked by one thread.

    Which splits are known, open or finished, and the position in each, is kept by the engine, which writes it into the
    query's log before the epoch runs, with what `snapshot_state` gives. So an epoch that runs again asks nobody.
    """

    def start(self, context: SplitEnumeratorContext) -> None:  # noqa: B027 - optional
        """Called once, before anything else."""

    def snapshot_state(self) -> Any:
        """What the next enumerator must know besides splits and positions, made of JSON's types: where in a list of
        splits to go on. Asked for each epoch when it was planned; kept with the positions, in savepoints too."""
        return None

    def splits_ended(self, count: int, epoch: int) -> None:  # noqa: B027 - optional
        """The first ``count`` splits, in the order in which they were found, had been read to their ends when the epoch
        before ``epoch`` was planned. Called before each `discover`."""

    @abstractmethod
    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        """New splits, in the order in which they are to be read. Asked before each epoch: a source for which looking is
        dear looks at intervals of its own, and gives () in between. Must find the same splits in the same order for the
        same input, and never one whose id is in ``known``."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether `discover` will never find another split."""

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        """How far the split can be read now, at least ``position``, and whether that is its end. Asked before each
        epoch for each open split. ``(None, True)``: only as a whole, to an end that the reader finds.

        Raises:
            ConnectionFailedError: nobody answers.
            FinalOperationError: what is to be read at ``position`` is gone.
        """
        return split.end, True

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        """What its positions behind ``position`` cost, measured or estimated; of a split that is read only as a whole,
        what the whole costs."""
        return UnitCost(1.0, 0.0)

    def cut(self, split: SourceSplit, start: int, stop: int) -> int:
        """A better place to stop than ``stop``, between ``start`` (exclusive) and ``stop`` (inclusive)."""
        return stop

    def freeze(self) -> None:  # noqa: B027 - optional
        """From now on behave as if nothing new came in: the query ends when all that is there now has been read."""

    def close(self) -> None:  # noqa: B027 - optional
        """The query has ended. May not be called when the process is killed."""


class SplitReader(ABC):
    """Reads ranges of splits in a worker. One instance per subtask and worker, kept from epoch to epoch; a subtask may
    be read by another worker in each epoch, so nothing may rely on what an earlier epoch did here."""

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:  # noqa: B027 - optional
        """The ranges that `read` will be asked for next, in this epoch. What an earlier epoch has left half-read,
        because it failed, is forgotten."""

    @abstractmethod
    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        """The records of a range, in batches of at most ``batch_size``; always the same ones in the same order. The
        iterators of several ranges may be advanced in turns when the source is read side by side.

        Raises:
            MalformedRecordError: names file and line, or partition and offset.
            CorruptStateError, ConnectionFailedError: the records cannot be read (any more).
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Give back what is held."""


class SplitSource(Source):
    """A source whose splits the engine assigns. Small and picklable: it travels with the job."""

    @property
    def side_by_side(self) -> bool:
        """True: a subtask has all of its splits open at a time, as for Kafka: each has a watermark of its own, which
        counts from the moment the split is known. False: one after the other, as for files: the next one is assigned,
        to whichever subtask is free, when one ends."""
        return False

    @property
    def stages(self) -> int:
        """Number of the stages in which the source is read: the splits of a stage are found when those of the one
        before have ended, and each stage may be read side by side or one after the other."""
        return 1

    def stage_of(self, split_id: str) -> tuple[int, bool]:
        """The stage that a split belongs to, and whether the splits of that stage are read side by side."""
        return 0, self.side_by_side

    @abstractmethod
    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        """The enumerator of a query. ``restored``: the splits that are known already, from a savepoint or from the
        query's log, in their order, each with the position that it has reached; one that has ended has only its id."""

    @abstractmethod
    def create_reader(self) -> SplitReader:
        """The reader of one subtask."""

    def subtask_of(self, split_id: str, parallelism: int) -> int:
        """The subtask that reads a split, if they are read side by side; never another one at another time."""
        return zlib.crc32(split_id.encode()) % parallelism

    def declared_splits(self) -> tuple[str, ...]:
        """Splits that are known before any record was read: a silent one holds the watermark back. () when unknown.
        Asked in the driver, of sources that are read side by side."""
        return ()

    def acknowledge(self, positions: Mapping[str, int]) -> None:  # noqa: B027 - optional
        """An epoch is committed that ended with these positions (split -> position) of the open splits. Called in the
        driver, beside the epochs; a failure is logged and does no harm (Flink's notifyCheckpointComplete)."""


# ---------------------------------------------------------------------------------------------------- Spark reads


class RecordDecoder(ABC):
    """Turns the Arrow batches of a source's DataFrame into records, in the worker. Picklable."""

    @abstractmethod
    def decode(self, batch: pyarrow.RecordBatch) -> tuple[list[Any], list[int] | None]:
        """(values, timestamps in ms or None). Never drops a record silently: MalformedRecordError."""


class DataFrameSource(Source):
    """Records that Spark reads."""

    @abstractmethod
    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        """A streaming DataFrame of exactly the columns that ``decoder()`` needs. ``start``: offsets of a savepoint (as
        Spark gave them), or None."""

    @abstractmethod
    def decoder(self) -> RecordDecoder:
        """How the worker reads its batches."""
