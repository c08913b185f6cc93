"""The contracts between sinks and the engine, and the fence that commits check.

A sink is one of two kinds:

* :class:`WriterSink` (Flink's two-phase sink): a :class:`SinkWriter` is chained behind the operator that feeds it,
  turns records into *committables* at the barrier, and a :class:`Committer` makes the committables of one
  (sink, subtask, epoch) visible, once. Print, collect, files, Kafka, JDBC.
* :class:`DataFrameSink`: is given the epoch's records as a Spark DataFrame. Delta, functions of the user.

An epoch is delivered to a sink when it is prepared: all of its tasks have ended, and its content is in files. After a
failure the epoch may be delivered again, with the very same content, also if the program is not deterministic. The
guarantee of a sink, stated in its docstring, says what that leads to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from flinkish.common.typeinfo import TypeInformation
from flinkish.errors import FinalOperationError, UnsupportedOperationError


class Fence(Protocol):
    """Checks that this driver still owns its job, immediately before any step that cannot be undone, such as a commit.
    It is picklable, since it is sent to the executors with the job.
    """

    @property
    def token(self) -> int:
        """A number that grows with each driver that takes over the job."""

    def check(self) -> None:
        """Raise FencedError if a newer driver has taken the job over. Cheap enough for each commit."""


class FenceOfEpochs:
    """Checks fences at one step of each epoch, once in this process however many tasks take the step here."""

    def __init__(self) -> None:
        #: id of a job -> (fencing token, attempt, epoch) of its last check
        self._last: dict[str, tuple[int, int, int]] = {}

    def check(self, fence: Fence, job_id: str, attempt: int, epoch: int) -> None:
        """Check the fence of a job, unless this was done for this epoch of this attempt. Raises as `Fence.check`."""
        run = (fence.token, attempt, epoch)
        if self._last.get(job_id) != run:
            fence.check()
            self._last[job_id] = run


class NoFence:
    """The fence of jobs that no other driver can know of: those in a temporary directory."""

    token = 0

    def check(self) -> None:
        """Do nothing: there is no other driver."""


NO_FENCE: Fence = NoFence()


S = TypeVar("S", bound="Sink")


class Guarantee(Enum):
    """The promise of a sink for an epoch that is delivered again."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


@dataclass(frozen=True)
class CommitContext:
    """Identifies the part of the job's output that is being committed: a sink's subtask in an epoch."""

    job_id: str
    job_name: str
    sink_uid: str
    sink_name: str
    epoch: int
    #: processing time of the epoch, in ms; the same when the epoch is delivered again
    epoch_time_ms: int
    subtask: int
    parallelism: int
    #: whether this is the last epoch of the job
    end_of_input: bool = False
    #: to be checked once more right before any step that cannot be undone; it was checked before ``commit`` is called
    fence: Fence = NO_FENCE


def ahead_of(context: CommitContext, found: int) -> FinalOperationError:
    """The error for a sink that knows the later epoch ``found`` although the job comes to the epoch of the context only
    now."""
    return FinalOperationError(
        f"the sink has epoch {found} of this job already, and the job is at epoch {context.epoch} only: its directory "
        "is older than its output, as one that was put back from a copy; the sink would take new records for old ones",
        where=f"sink '{context.sink_uid}' of job '{context.job_name}' ({context.job_id}), epoch {context.epoch}",
        expected=f"a sink that has no epoch from {context.epoch} on",
        hint="put back the newest state of the directory; or start from a savepoint or checkpoint (-s) in a new job "
        "directory, whose epochs are new to the sink, and remove first what the sink got after that savepoint",
    )


def how_to_skip(context: CommitContext, numbers: Sequence[int] = ()) -> str:
    """The hint for records that a sink refuses for good. ``numbers``: those of the records, from 1, in the order in
    which the committer was given them; none: all of the epoch."""
    which = f"--subtask {context.subtask} --skip {','.join(map(str, numbers))}" if numbers else "--skip all"
    return f"or skip what is refused: flinkish prepared JOB_DIR --sink '{context.sink_uid}' {which} --into FILE"


class StreamTransformer(ABC):
    """Adds operators in front of a sink."""

    @abstractmethod
    def apply(self, ds: Any) -> Any:
        """The stream that the sink consumes, made from the stream that the program passes to the sink."""


class SupportsPreprocessing(ABC):
    """A sink whose records are prepared by operators that it adds itself."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """The transformer that adds the operators; None if there is nothing to prepare."""


class Sink(ABC):
    """Base of all sinks: the argument of ``sink_to`` and ``add_sink``. PyFlink's ``SinkFunction`` is another name of
    it; a subclass that is neither a `WriterSink` nor a `DataFrameSink` raises UnsupportedOperationError."""

    guarantee: Guarantee
    #: whether the sink also takes records that do not fit the declared type of their stream
    takes_misfits: bool = False
    #: whether the writer reads the timestamps of records; where nothing does, sources make none
    reads_timestamps: bool = True

    def __new__(cls: type[S], *_: Any, **__: Any) -> S:
        if not issubclass(cls, (WriterSink, DataFrameSink)):
            raise UnsupportedOperationError(
                f"{cls.__name__} is a SinkFunction, which flinkish has as little in Python as PyFlink has",
                where="flinkish.datastream.connectors.base",
                expected="a subclass of WriterSink, whose SinkWriter takes the records",
                hint="write one; or write each record in a MapFunction, which is at-least-once",
            )
        return super().__new__(cls)

    @property
    def default_name(self) -> str:
        """The name of the sink operator in plans, unless the program gives one."""
        return type(self).__name__

    @property
    def is_idempotent(self) -> bool:
        """Whether it makes no difference if records are written again, in other epochs and in their order: those of a
        key take each other's place. A job all of whose sinks are may go back to a checkpoint by itself. False unless a
        sink says otherwise."""
        return False

    @property
    def _destination(self) -> str:
        """Where the sink writes to, as messages name it, without secrets. It tells apart sinks to which the program has
        given no uid."""
        return self.default_name

    def with_input_type(self, input_type: TypeInformation) -> Sink:
        """The same sink for a stream of this type: itself, unless what it writes depends on the type. Called when the
        sink is added to a stream."""
        return self


class SinkWriter(ABC):
    """Turns records into committables, in the task, chained behind the operator that feeds the sink. There is one
    instance per subtask. In this base class the committables are the records themselves."""

    #: the processing time of the epoch and the watermark of the records that are written, in ms; set by the engine
    #: before `open`
    _times: Callable[[], tuple[int, int]]

    def open(self, subtask: int, parallelism: int) -> None:  # noqa: B027 - optional
        """Called before the first record."""

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        """Write a batch of records, with their timestamps in ms (None: they have none). Returns the committables that
        are complete already (or []): data, and instances of classes that can be imported."""
        return values

    def prepare_commit(self) -> list[Any]:
        """Called at the barrier: the committables of this epoch that `write` held back. None may be kept afterwards."""
        return []

    def close(self) -> None:  # noqa: B027
        """Called after the last record."""


class Committer(ABC):
    """Makes committables visible. Runs once per (sink, subtask, epoch), and again if that epoch is delivered again."""

    #: whether the committables are brought to the driver (printing, collecting), instead of committed in an executor
    on_driver: bool = False

    @abstractmethod
    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int | None:
        """Commit all batches of committables; returns how many records became visible (0 if that was done before). None
        stands for as many as there are committables."""

    def last_committed_epoch(self, context: CommitContext) -> int | None:
        """The last epoch of the context's sink, of all subtasks, that the destination knows to be committed; None:
        there is none, or the destination keeps no record. The driver asks before a job goes on in its directory."""
        return None


class WriterSink(Sink):
    """A sink that consists of a writer and a committer. It is picklable; writer and committer are created in the
    worker."""

    #: what the sink promises when an epoch is delivered again; shown in plans
    guarantee = Guarantee.AT_LEAST_ONCE

    def __init_subclass__(cls, **arguments: Any) -> None:
        """A class with a writer of its own reads timestamps unless it says otherwise itself, whatever its base says."""
        super().__init_subclass__(**arguments)
        if "create_writer" in vars(cls) and "reads_timestamps" not in vars(cls):
            cls.reads_timestamps = True

    def create_writer(self) -> SinkWriter:
        """A writer for one subtask; unless overridden, one whose committables are the records."""
        return SinkWriter()

    @abstractmethod
    def create_committer(self) -> Committer:
        """A committer for one subtask and epoch."""


#: The column of a DataFrame that says whether a row is to be deleted (`DataFrameSink.takes_changes`).
DELETED_COLUMN = "__flinkish_deleted"


class DataFrameSink(Sink):
    """A sink that writes the records of each epoch from a Spark DataFrame."""

    #: Whether the sink can delete: its DataFrame then has the boolean column ``DELETED_COLUMN``, which is true for Rows
    #: of kind DELETE, and no rows of kind UPDATE_BEFORE. All other sinks get only Rows of kind INSERT.
    takes_changes: bool = False
    #: The columns of which such a sink keeps one row per value.
    key_columns: Sequence[str] = ()
    #: Whether ``write_frame`` is called again at once if somebody else has changed a Delta table meanwhile. Else the
    #: job fails, and the restart strategy decides.
    repeats_conflicts: bool = False
    reads_timestamps = False

    @abstractmethod
    def write_frame(self, frame: Any, context: CommitContext) -> None:
        """Write one epoch's records (``context.subtask`` is 0). May be called again with the same epoch."""

    def prepare(self, session: Any) -> None:
        """Find out with a Spark session what the tasks must know of the destination, such as where a table lies. Called
        in the driver, before the sink is sent to the tasks of an attempt."""

    def last_committed_epoch(self, session: Any, context: CommitContext) -> int | None:
        """The same as :meth:`Committer.last_committed_epoch`, asked with a Spark session."""
        return None

    def check_type(self, input_type: TypeInformation, where: str) -> None:
        """Raise TypeMismatchError if records of that type cannot be written. Called when the sink is added to a
        stream."""

    def check_columns(self, columns: Any, where: str) -> None:
        """Raise TypeMismatchError if a row of these columns (a ``pyarrow.RecordBatch`` of records that are no
        deletions) could not be written as it is. Called in the task, before the epoch is prepared, so that a mended
        program may emit other records in the epoch."""
