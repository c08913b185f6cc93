"""The contracts between sources and the engine.

A source is one of two kinds:

* :class:`GeneratedSource`: the worker makes the records of (split, tick) itself, from nothing but these two numbers.
  A *tick* is the share of one epoch. Collections, sequences and generators. Runs in the minicluster as well.
* :class:`DataFrameSource`: Spark reads (``load`` gives a streaming DataFrame), a :class:`RecordDecoder` in the worker
  turns Arrow batches into lists. Files, Kafka, Delta, any streaming DataFrame.

Both are replayable: an epoch that runs again reads the same records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.typeinfo import TypeInformation

if TYPE_CHECKING:
    import pyarrow

#: Name of the column that holds the split a record belongs to (a Kafka partition), if the source has stable splits.
SPLIT_COLUMN = "__split"


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


class GeneratedBatch(NamedTuple):
    """Records of one split and tick. ``finished``: the split has no record after these."""

    values: list[Any]
    timestamps: list[int] | None
    finished: bool


class GeneratedSource(Source):
    """Records made in the worker. Small and picklable: it travels with the job."""

    @property
    @abstractmethod
    def splits(self) -> int:
        """Number of parallel splits, at least 1; fixed for the life of the job."""

    @property
    def size(self) -> int | None:
        """Number of records of all splits, if known before reading; None otherwise."""
        return None

    @abstractmethod
    def read(self, split: int, tick: int, max_records: int) -> GeneratedBatch:
        """The records of ``split`` in the ``tick``-th epoch (from 0), at most ``max_records``; always the same for the
        same arguments. A tick after the end gives no record and ``finished``."""


class RecordDecoder(ABC):
    """Turns the Arrow batches of a source's DataFrame into records, in the worker. Picklable."""

    @abstractmethod
    def decode(self, batch: pyarrow.RecordBatch) -> tuple[list[Any], list[int] | None]:
        """(values, timestamps in ms or None). Never drops a record silently: MalformedRecordError."""

    def decode_many(self, batch: pyarrow.RecordBatch) -> Iterator[tuple[list[Any], list[int] | None]]:
        """The same in parts of bounded size; what the engine calls. For decoders whose rows stand for many records
        each (paths of files that the worker reads itself), which need not be in memory together."""
        yield self.decode(batch)


class DataFrameSource(Source):
    """Records that Spark reads."""

    @abstractmethod
    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        """A streaming DataFrame of exactly the columns that ``decoder()`` needs, plus ``SPLIT_COLUMN`` (string) when
        the source has stable splits. ``start``: offsets of a savepoint (as `end_offset` gave them), or None."""

    @abstractmethod
    def decoder(self) -> RecordDecoder:
        """How the worker reads its batches."""

    def position(self, spark: Any, end_offset: str, checkpoint: str, index: int) -> str:
        """What to give to `load` as ``start`` so that a new query goes on behind ``end_offset`` (Spark's JSON).
        ``checkpoint``: of the query; ``index``: the source's place among the query's sources."""
        return end_offset

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Called before a query starts. ``position``: where it goes on (as `position` or Spark gave it), None if it
        begins; ``known``: what this method gave when the job was started before.

        Returns:
            what tells the things that are read from others of the same name (topic -> its id), to be remembered.

        Raises:
            FinalOperationError: what comes next is no longer there, or is not what was read before.
        """
        return dict(known)

    def declared_splits(self) -> tuple[str, ...]:
        """Splits known before any record was read: a silent one holds the watermark back. () when unknown."""
        return ()
