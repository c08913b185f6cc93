"""The contracts between sinks and the engine.

A sink is one of two kinds:

* :class:`WriterSink` (Flink's two-phase sink): a :class:`SinkWriter` is chained behind the operator that feeds it,
  turns records into *committables* at the barrier, and a :class:`Committer` makes the committables of one
  (sink, subtask, epoch) visible, once. Print, collect, files, JDBC.
* :class:`DataFrameSink`: gets the epoch's records as a Spark DataFrame. Delta, Kafka, functions of the user.

A sink hears of an epoch when the epoch is prepared: all of its tasks have ended, and its content lies in files. After
a failure the epoch may be delivered again, with the very same content, also if the program is not deterministic. What
that does is the sink's guarantee, stated in its docstring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.fence import NO_FENCE, Fence


class Guarantee(Enum):
    """What a sink promises when an epoch is delivered again."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


@dataclass(frozen=True)
class CommitContext:
    """Which share of the job's output is being committed."""

    job_id: str
    job_name: str
    sink_uid: str
    sink_name: str
    epoch: int
    #: processing time of the epoch, in ms; the same when the epoch is delivered again
    epoch_time_ms: int
    subtask: int
    parallelism: int
    #: the last epoch of the job
    end_of_input: bool = False
    #: to be asked once more right before what cannot be undone; ``commit`` is called after it was asked
    fence: Fence = NO_FENCE


class StreamTransformer(ABC):
    """Puts operators before a sink."""

    @abstractmethod
    def apply(self, ds: Any) -> Any:
        """From the stream that the program gives to the sink to the one that the sink is put behind."""


class SupportsPreprocessing(ABC):
    """A sink whose records are prepared by operators of their own."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """None: nothing is to be prepared."""


class Sink(ABC):
    """What ``sink_to`` and ``add_sink`` take."""

    guarantee: Guarantee

    @property
    def default_name(self) -> str:
        """The operator's name in plans."""
        return type(self).__name__


class SinkWriter(ABC):  # noqa: B024 - all of it is optional
    """Runs in the task, chained behind the operator that feeds the sink. One instance per subtask. This one makes the
    records themselves the committables."""

    def open(self, subtask: int, parallelism: int) -> None:  # noqa: B027 - optional
        """Before the first record."""

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        """Take a batch of records, with their timestamps in ms (None: they have none). Returns the committables that
        can already go on their way (or []): data, and instances of classes that can be imported."""
        return values

    def prepare_commit(self) -> list[Any]:
        """The barrier: the committables of this epoch that `write` held back. Must not keep any afterwards."""
        return []

    def close(self) -> None:  # noqa: B027
        """After the last record."""


class Committer(ABC):
    """Makes committables visible. Runs once per (sink, subtask, epoch), and again if that epoch is delivered again."""

    #: False: runs in an executor. True: the committables are brought to the driver (printing, collecting).
    on_driver: bool = False

    @abstractmethod
    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        """Commit all batches of committables; returns how many records became visible (0: it was already done)."""


class WriterSink(Sink):
    """A sink made of a writer and a committer. Picklable; both are made in the worker."""

    #: what it promises when an epoch is delivered again; shown in plans
    guarantee = Guarantee.AT_LEAST_ONCE

    def create_writer(self) -> SinkWriter:
        """The writer of one subtask; unless overridden, the committables are the records."""
        return SinkWriter()

    @abstractmethod
    def create_committer(self) -> Committer:
        """The committer of one (subtask, epoch)."""


class DataFrameSink(Sink):
    """A sink that is fed with DataFrames."""

    @abstractmethod
    def write_frame(self, frame: Any, context: CommitContext) -> None:
        """Write one epoch's records (``context.subtask`` is 0). May be called again with the same epoch."""

    def check_type(self, input_type: TypeInformation, where: str) -> None:  # noqa: B027
        """Raise TypeMismatchError when records of that type cannot be written. Called when the plan is made."""
