"""The contracts between sources and the engine.

A source is one of two kinds:

* :class:`SplitSource` (Flink's FLIP-27 source): a :class:`SplitEnumerator` finds *splits* (files, Kafka partitions,
  ranges of numbers), a :class:`SplitReader` in the worker reads ranges of them. The engine assigns splits to subtasks
  and decides for each epoch which range of each split is read, before anything is read. Collections, sequences,
  generators, files and Kafka. These sources run in the minicluster as well.
* :class:`DataFrameSource`: Spark reads (``load`` gives a streaming DataFrame), a :class:`RecordDecoder` in the worker
  turns Arrow batches into lists. Delta, any streaming DataFrame.

Both are replayable: an epoch that runs again reads the same records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar

from flinkish.common.typeinfo import TypeInformation
from flinkish.errors import SavepointError, UnsupportedOperationError
from flinkish.storage.sealed import Bits, json_as

if TYPE_CHECKING:
    import pyarrow

S = TypeVar("S", bound="Source")

#: A position within a split; sequence numbers of Kinesis have 186 bits.
_Position: TypeAlias = Annotated[int, Bits(256)]


@dataclass(frozen=True)
class SourceLimits:
    """The most records and bytes that an epoch may read from one source, and the records of a batch."""

    max_records: int = 4_000_000
    max_bytes: int = 256 * 1024 * 1024
    batch_size: int = 1_000


class Source(ABC):
    """Base of all sources: the argument of ``from_source``. PyFlink's ``SourceFunction`` is another name of it; a
    subclass that is neither a `SplitSource` nor a `DataFrameSource` raises UnsupportedOperationError."""

    def __new__(cls: type[S], *_: Any, **__: Any) -> S:
        if not issubclass(cls, (SplitSource, DataFrameSource)):
            raise UnsupportedOperationError(
                f"{cls.__name__} is a SourceFunction, which flinkish has as little in Python as PyFlink has",
                where="flinkish.datastream.connectors.base",
                expected="a subclass of PagedSource or SplitSource, which can be read again from a position",
                hint="write one; or see DataGeneratorSource, which calls a function of an index",
            )
        return super().__new__(cls)

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source has an end."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """The type of the source's records."""

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Check whether the source can go on. Called in the driver before a query starts.

        Args:
            position: where the source goes on, as a savepoint holds it; None if it begins.
            known: the result of this method when the job was started before.

        Returns:
            Identities to be remembered, which tell what is read from others of the same name (such as topic -> its id).

        Raises:
            FinalOperationError: the next records no longer exist, or the input is not the one that was read before.
        """
        return dict(known)


# ---------------------------------------------------------------------------------------------------- splits


@dataclass(frozen=True)
class SourceSplit:
    """A part of a source that is read by one subtask at a time, from ``start`` to ``end``.

    A position is a whole number that only the source understands and that never goes back: bytes of a text file, rows
    of a Parquet file, offsets of a Kafka partition, indices of a generator.

    Args:
        id: the name of the split, stable and unique within the source: the path of a file, ``topic-3``.
        start: the position of the first record.
        end: the position behind the last record; None while it is not known (a Kafka partition without a bound) or
            where only the reader finds it (a file that cannot be cut).
        info: anything else that the reader must know, made of JSON's types.
    """

    id: str
    start: int = 0
    end: int | None = None
    info: Any = None


@dataclass(frozen=True)
class SourcePosition:
    """The position of a source that is read split by split, as a savepoint holds it: the JSON of these fields.

    Args:
        complete: whether no other split will be found.
        ended: the ids of the splits that have been read to their ends.
        splits: those that are still to be read: (id, position, end, info).
        known: what distinguishes that which was read from other things of the same name (`Source.check_continuation`).
        state: the result of `SplitEnumerator.snapshot_state`.
    """

    complete: bool
    ended: list[str]
    splits: list[tuple[str, _Position, _Position | None, Any]]
    known: dict[str, str] = field(default_factory=dict)
    state: Any = None

    @staticmethod
    def decode(text: str, where: str) -> SourcePosition:
        """Read a position, which somebody else may have written.

        Raises:
            SavepointError: the text is no position. ``where``: the source.
        """
        try:
            return json_as(SourcePosition, text)
        except ValueError as error:
            raise SourcePosition.refusal(text, where, error) from error

    @staticmethod
    def refusal(text: object, where: str, why: object) -> SavepointError:
        """The error for a position, or a part of one, that no source of this kind has written."""
        return SavepointError(
            f"the position {str(text)[:200]!r} of a source cannot be read: {why}",
            where=where,
            expected='{"complete": ..., "ended": [...], "splits": [[id, position, end, info], ...]}',
            hint="use another savepoint",
        )


@dataclass(frozen=True)
class SplitRange:
    """The range of a split that one epoch reads: positions from ``start`` (inclusive) to ``stop`` (exclusive).

    Args:
        stop: None for a range up to the split's end, wherever that is.
        ends: whether the split has no record behind this range and never will have one.
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
    ``newest_ms``: how far the split has come in time, by which splits that are read side by side take turns; None: the
    greatest of the timestamps. In sources of tables, ``values`` may be a batch of columns, without timestamps.
    """

    values: Any
    timestamps: list[int] | None
    watermark_ms: int | None = None
    newest_ms: int | None = None


class UnitCost(NamedTuple):
    """The estimated records and bytes (in memory, as read) that one unit of a split's positions stands for."""

    records: float
    bytes: float


@dataclass(frozen=True)
class SplitEnumeratorContext:
    """The context of an enumerator, passed to it when it starts.

    Args:
        directory: path or URI of a directory in the job directory that belongs to this source alone. It does not exist
            until something is written to it. A job that begins with a savepoint has another one than before.
        state: the result of `SplitEnumerator.snapshot_state` for the last epoch; None if there was none.
    """

    directory: str
    state: Any = None


class SplitEnumerator(ABC):
    """Finds the splits of a source and how far each can be read. There is one instance per query, in a process of its
    own beside the driver, without a Spark session; a single thread calls it.

    The engine keeps which splits are known, open or finished, and the position in each. It writes them into the query's
    log before the epoch runs, with the result of `snapshot_state`, so an epoch that runs again needs no enumerator.
    """

    def start(self, context: SplitEnumeratorContext) -> None:  # noqa: B027 - optional
        """Called once, before anything else."""

    def snapshot_state(self) -> Any:
        """The state that the next enumerator needs besides splits and positions, made of JSON's types, such as where to
        go on in a list of splits. Called for each epoch once it is planned; kept with the positions, in savepoints
        too."""
        return None

    def splits_ended(self, count: int, epoch: int) -> None:  # noqa: B027 - optional
        """Called before each `discover`: the first ``count`` splits, in the order in which they were found, had been
        read to their ends when the epoch before ``epoch`` was planned."""

    @abstractmethod
    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        """New splits, in the order in which they are to be read. Called before each epoch: a source for which discovery
        is expensive does it at intervals of its own, and returns () in between. The same input must give the same
        splits in the same order, and never one whose id is in ``known``."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether `discover` will never find another split."""

    def expect(self, splits: Sequence[SourceSplit]) -> None:  # noqa: B027 - optional
        """Called with splits that `end_of` and `cost` will soon be called with, in this order, if the epoch is large
        enough for all of them. If each answer is a request, make the requests at the same time."""

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        """How far the split can be read now, at least ``position``, and whether that is its end. Called before each
        epoch for each open split. ``(None, True)`` means: only as a whole, to an end that the reader finds.

        Raises:
            ConnectionFailedError: the external system does not answer.
            FinalOperationError: the records at ``position`` no longer exist.
        """
        return split.end, True

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        """The measured or estimated cost of the split's positions from ``position`` on; for a split that can only be
        read as a whole, the cost of the whole."""
        return UnitCost(1.0, 0.0)

    def cut(self, split: SourceSplit, start: int, stop: int) -> int:
        """A better place to stop than ``stop``, between ``start`` (exclusive) and ``stop`` (inclusive)."""
        return stop

    def freeze(self) -> None:  # noqa: B027 - optional
        """From now on ignore new input: the query ends when all input that exists now has been read."""

    def close(self) -> None:  # noqa: B027 - optional
        """Called when the query has ended; not necessarily when the process is killed."""


class SplitReader(ABC):
    """Reads ranges of splits in a worker. There is one instance per subtask and worker, kept from epoch to epoch; a
    subtask may be on another worker in each epoch, so a reader may not rely on what it did in an earlier epoch."""

    #: the most bytes of one record (``flinkish.source.max-record-bytes``), which the engine sets before it calls
    #: `open`. A reader of formats in which one record may have any size raises MalformedRecordError for a larger one,
    #: before it is in memory.
    max_record_bytes: int = 64 * 1024 * 1024
    #: whether anything in the job reads the timestamps of the records. The engine sets it before it calls `open`, and
    #: drops timestamps that nothing reads, so a reader need not make them.
    with_timestamps: bool = True

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:  # noqa: B027 - optional
        """Called with the ranges that `read` will be called with in this epoch. Forget what an earlier epoch, which
        failed, has left half-read."""

    @abstractmethod
    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        """The records of a range, in batches of at most ``batch_size``; always the same ones in the same order. The
        iterators of several ranges may be advanced in turns when the source is read side by side.

        Raises:
            MalformedRecordError: names file and line, or partition and offset.
            CorruptStateError, ConnectionFailedError: the records cannot be read (any more).
        """

    def place_of(self, split: str, first: int, last: int) -> str:
        """Where records stand, for messages: those of the numbers from ``first`` to ``last``, counted from 0, of the
        batch that `read` has yielded last of a split. Only called when one of them has made the job fail. The text
        begins with the split: ``split orders-3, offset 17``."""
        return f"split {split}"

    def close(self) -> None:  # noqa: B027 - optional
        """Release all resources."""


def positions_text(name: str, first: int, last: int) -> str:
    """The positions of records as messages name them.

    >>> positions_text("offset", 3, 3), positions_text("offset", 3, 5)
    ('offset 3', 'offsets 3 to 5')
    """
    return f"{name} {first}" if first == last else f"{name}s {first} to {last}"


class SplitSource(Source):
    """A source whose splits the engine assigns to subtasks. It must be small and picklable, since it is sent with the
    job."""

    @property
    def paced(self) -> bool:
        """Whether records become due as time goes by, so that a job waits for them even if the source has an end."""
        return False

    #: what the splits are, in a message
    splits_are = "splits"

    @property
    def side_by_side(self) -> bool:
        """Whether a subtask has all of its splits open at a time, as for Kafka: each split has a watermark of its own,
        which counts from the moment the split is known. If False, splits are read one after the other, as for files:
        when one ends, the next is assigned to whichever subtask is free."""
        return False

    @property
    def stages(self) -> int:
        """The number of stages in which the source is read. The splits of a stage are found when those of the stage
        before have ended; the splits of each stage are read either side by side or one after the other."""
        return 1

    def stage_of(self, split_id: str) -> tuple[int, bool]:
        """The stage that a split belongs to, and whether the splits of that stage are read side by side."""
        return 0, self.side_by_side

    @abstractmethod
    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        """A new enumerator for a query. ``restored`` are the splits that are known already, from a savepoint or from
        the query's log, in their order, each with the position that it has reached; one that has ended has only its
        id."""

    @abstractmethod
    def create_reader(self) -> SplitReader:
        """A new reader for one subtask."""

    def subtask_of(self, split_id: str, parallelism: int) -> int | None:
        """The subtask that reads a split, for splits that are read side by side; None: the subtasks take turns, in the
        order in which the splits are found. Called once, when the split is found; the split stays with its subtask."""
        return None

    def declared_splits(self) -> tuple[str, ...]:
        """The ids of splits that are known before any record is read, so that one without records holds the watermark
        back; () if unknown. Called in the driver, for sources that are read side by side."""
        return ()

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Called in the driver, beside the epochs, when epochs are committed; ``positions`` are those of the splits
        (split -> position) that have moved since the last successful call, also of splits that have ended. A failure
        is only logged (Flink's notifyCheckpointComplete)."""


# ---------------------------------------------------------------------------------------------------- Spark reads


class RecordDecoder(ABC):
    """Turns the Arrow batches of a source's DataFrame into records, in the worker. It must be picklable."""

    @abstractmethod
    def decode(self, batch: pyarrow.RecordBatch) -> tuple[list[Any], list[int] | None]:
        """The records of a batch, and their timestamps in ms or None. Raises MalformedRecordError rather than drop a
        record."""


class DataFrameSource(Source):
    """A source whose records Spark reads."""

    @abstractmethod
    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        """A streaming DataFrame of exactly the columns that ``decoder()`` needs. ``start`` are the offsets of a
        savepoint, as Spark gave them, or None."""

    #: what `left_behind` counts, in a message
    splits_are = "versions"

    def left_behind(self, position: str) -> int | None:
        """How many parts of the source, such as versions of a table, are there that a query which has come to this
        position has not read; None if that is not known. Called in the driver between epochs."""
        return None

    @property
    def begins_anew(self) -> bool:
        """Whether nothing is left out when a job that has committed no epoch yet begins with this source once more. If
        not, the first epoch can be planned anew only if Spark keeps where the source has begun, as it does for files
        and Kafka."""
        return False

    @abstractmethod
    def decoder(self) -> RecordDecoder:
        """The decoder that the worker reads the batches with."""
