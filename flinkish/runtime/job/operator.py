"""The contract of an operator: it processes whole batches (parallel lists), never single records.

``values`` is a list, ``timestamps`` a parallel list of milliseconds, or None if no record of the batch has a timestamp.
A batch lies between two watermarks: no watermark rises inside it (``process_stretch`` takes several batches, with the
watermarks between them). An operator owns the lists it is given and may keep or change them; it emits new lists (or the
same ones) and never touches a list after emitting it.

The lifecycle is that of Flink: ``setup``, ``initialize_state`` and ``open`` are called from the last operator of the
chain to the first. Batches, watermarks and timers follow, with ``snapshot_state`` at each barrier from the first
operator to the last; at the end of the input ``finish`` and ``close`` are called from the first to the last.
``dispose`` is always called, and without ``close`` if the task has failed or was cancelled.

What must outlive an epoch belongs into ``context.keyed_state``, ``context.operator_state`` or the value that ``save``
returns, because the next epoch may run in another process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import ReferenceType

from flinkish.core.checkpointed_function import CheckpointedFunction
from flinkish.runtime.exchange.buffer import EpochInfo, Records, WatermarkStep
from flinkish.runtime.job.accumulators import ExactCounter, OperatorAccumulators

if TYPE_CHECKING:
    from flinkish.core.metrics import MetricGroup
    from flinkish.runtime.state.backend import KeyedStateBackend
    from flinkish.runtime.state.operator_state import OperatorState


#: The records of a batch: a list, or in jobs of tables a `flinkish.core.column_batch.ColumnBatch`, whose timestamps
#: are None. Which of them an operator emits is known when the program is translated.
Values: TypeAlias = Any


class Output(Protocol):
    """The output of an operator, to the next operators of the chain, to the out-edges of the vertex, or to both."""

    def collect(self, values: Values, timestamps: list[int] | None) -> None:
        """Emit a batch. The caller may skip an empty batch."""

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        """Emit a batch to a side output; it is dropped if nothing consumes that tag."""

    @property
    def has_sides(self) -> bool:
        """Whether anything consumes a side output."""

    def has_side(self, tag_id: str) -> bool:
        """Whether anything consumes the side output of that tag."""

    def emit_watermark(self, watermark_ms: int) -> None:
        """Emit a watermark."""

    def emit_interim_watermark(self, watermark_ms: int) -> None:
        """Emit a watermark at a place that depends on how records are cut into batches and epochs. The functions of the
        chain do not see it, so that what they see depends on the records alone."""

    def later_watermark(self) -> Callable[[int], None]:
        """What emits the watermark that an operator processes now, and holds back for a while."""

    def emit_status(self, idle: bool) -> None:
        """Emit that this stream has become idle, or active again."""


@dataclass
class OperatorContext:
    """Everything that an operator gets from its task in ``setup``."""

    uid: str
    name: str
    task_name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    epoch: EpochInfo
    metrics: MetricGroup
    #: keyed state of the head operator of a keyed vertex; None in any other operator
    keyed_state: KeyedStateBackend | None
    operator_state: OperatorState
    #: one key selector for each input if this is the head operator of a keyed vertex, else ()
    key_selectors: tuple[Callable[[Any], Any], ...] = ()
    job_parameters: dict[str, str] = field(default_factory=dict, repr=False)
    #: name of each cached file -> its path on this node
    cached_files: dict[str, str] = field(default_factory=dict)
    #: the accumulators of the operator, which are totalled over the whole job
    accumulators: OperatorAccumulators = field(default_factory=lambda: OperatorAccumulators(""))
    #: the JSON-able configuration of the job
    configuration: dict[str, str] = field(default_factory=dict, repr=False)
    #: the line of the program that has added the operator, as a traceback shows it; "" if it is not known
    added_at: str = ""
    #: the warnings that were given of the operator in this process
    warnings: set[str] = field(default_factory=set)
    #: the contexts from which user code may get keyed state, as long as it keeps them
    state_stores: list[ReferenceType[Any]] = field(default_factory=list)

    def may_have_keyed_state(self) -> bool:
        """Whether user code has got a handle of keyed state, or keeps a context from which it can get one."""
        return self.keyed_state is not None and (
            any(descriptor is not None for _, descriptor in self.keyed_state.declared.values())
            or any(store() is not None for store in self.state_stores)
        )

    def exact_counter(self, name: str) -> ExactCounter:
        """A counter metric of the operator whose total stays exact across failures and restarts."""
        return ExactCounter(self.metrics.counter(name), name, self.accumulators, self.uid)


#: The signature of `StreamOperator.process_stretch`.
ProcessStretch = Callable[[Sequence[Records | WatermarkStep], Iterator[Records | WatermarkStep]], None]


class StreamOperator(ABC):
    """The base class of all operators. Subclasses implement ``process_batch`` and override what else they need."""

    context: OperatorContext
    output: Output
    #: the number of inputs; if there are several, errors name the one that the record came from
    inputs: int = 1
    #: whether each record leaves the operator as one result at most, in the same order, and nothing else does
    keeps_positions: bool = False
    #: processes the batches of a stretch and the watermarks between them, with the same effects, state and output, in
    #: the same order, as if they came one by one. It is given them as a list, and as an iterator that it asks for each
    #: when it has processed the one before. None: the operator is given batches
    process_stretch: ProcessStretch | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Receive the context and the output. This is the first call, and no user code runs yet."""
        self.context = context
        self.output = output

    def initialize_state(self) -> None:  # noqa: B027 - an optional step of the lifecycle
        """Register states. The values of single keys are not accessible yet."""

    def open(self) -> None:  # noqa: B027
        """Open user functions."""

    def begin_epoch(self) -> None:  # noqa: B027
        """Begin the epoch ``context.epoch.epoch``, to which the next batches belong."""

    def save(self) -> Any:
        """A small value that must outlive the epoch, such as that of a watermark generator, or None; it is stored in
        the task's header."""
        return None

    def restore(self, saved: Any) -> None:  # noqa: B027
        """Restore the value that `save` has returned in the last epoch, or None."""

    def save_split(self, split: str) -> Any:
        """In source tasks only: what `save` says, of the generator of this split."""
        return None

    def restore_split(self, split: str, saved: Any, seen_ms: int) -> None:  # noqa: B027
        """In source tasks only: restore what `save_split` has returned for this split in the last epoch that has read
        it, after which the operator's consumers had seen the watermark ``seen_ms``."""

    def end_split(self) -> None:  # noqa: B027
        """In source tasks only: the next batches come from another split, so emit what is held back."""

    def split_ended(self) -> None:  # noqa: B027
        """In source tasks only: the split has ended, and another one may continue the same stream."""

    def begin_split(self, split: str, seen_ms: int) -> None:  # noqa: B027
        """In source tasks only: the next batches come from this split. The operator's consumers have seen the watermark
        ``seen_ms``, if the split continues the same stream."""

    @abstractmethod
    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Process a batch of records, which lies between two watermarks."""

    def process_watermark(self, watermark_ms: int) -> None:
        """Fire the timers that are due at the risen watermark, then emit the watermark."""
        self.output.emit_watermark(watermark_ms)

    def process_status(self, idle: bool) -> None:
        """Handle that all inputs have become idle, or that one is active again; the status is emitted."""
        self.output.emit_status(idle)

    def advance_processing_time(self, time_ms: int) -> None:  # noqa: B027
        """Fire the processing-time timers that are due at ``time_ms``."""

    def snapshot_state(self) -> None:  # noqa: B027
        """Handle the barrier: no more records follow in this epoch. May emit, as sink writers do with committables."""

    def finish(self) -> None:  # noqa: B027
        """Flush what is buffered at the end of the input, after the MAX watermark."""

    def close(self) -> None:  # noqa: B027
        """Close the user functions at the normal end of the task."""

    def dispose(self) -> None:  # noqa: B027
        """Release all resources, and close user functions that ``close`` did not reach. Always called once."""


#: Marks what an operator with ``on_error`` saves.
ERROR_BUDGET = "error budget of on_error"


class OperatorFactory(Protocol):
    """Creates one operator instance per subtask, in the worker. It is small, and cloudpickle can pickle it."""

    @property
    def keyed(self) -> bool:
        """Whether the operator needs `context.keyed_state`."""

    @property
    def has_operator_state(self) -> bool:
        """Whether the operator keeps operator state in `context.operator_state`."""

    @property
    def guarded(self) -> bool:
        """Whether the effects of calls of user code on state and timers must be recorded so that they can be undone."""

    @property
    def watermark_sensitive(self) -> bool:
        """Whether user code can see single watermarks or register event-time timers; sources then emit watermarks at
        short intervals."""

    @property
    def merges_windows(self) -> bool:
        """Whether the watermark before a record can change how the record is processed: a window that touches another
        one merges with it only as long as that one is open. Sources then emit a watermark before such records."""

    @property
    def uses_processing_time(self) -> bool:
        """Whether processing time must advance even without data, whether or not there are timers: epochs are planned
        at regular intervals."""

    @property
    def has_timers(self) -> bool:
        """Whether user code may register processing-time timers: epochs without data are planned when one is due."""

    @property
    def takes_misfits(self) -> bool:
        """Whether records may be of another type than the declared one, as between chained functions; sinks and
        columns need what is declared."""

    @property
    def forwards_records(self) -> bool:
        """Whether the operator emits records that it has received, as they are."""

    @property
    def reads_timestamps(self) -> bool:
        """Whether the operator, or user code in it, may see the timestamps of its records, rather than pass them on.
        Sources make no timestamps that nothing reads."""

    def create(self) -> StreamOperator:
        """Create an operator."""


class OperatorFactoryBase:
    """The defaults of operator factories."""

    keyed: bool = False
    guarded: bool = False
    watermark_sensitive: bool = False
    merges_windows: bool = False
    uses_processing_time: bool = False
    has_timers: bool = False
    takes_misfits: bool = True
    forwards_records: bool = False
    reads_timestamps: bool = True

    @property
    def has_operator_state(self) -> bool:
        """Whether the operator's function is a `CheckpointedFunction`, which has operator state."""
        return isinstance(getattr(self, "function", None), CheckpointedFunction)


class OperatorListener(Protocol):
    """A listener to what each operator of a job receives and emits, for tests of programs and for replays of epochs.

    It is called for each batch, in the order in which the batches pass. The lists are the listener's own copies; so are
    the mutable records in them, as far as these can be copied."""

    def received(
        self, uid: str, subtask: int, input_index: int, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Called before an operator processes records of one of its inputs."""

    def emitted(
        self, uid: str, subtask: int, tag_id: str | None, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Called when an operator emits records to its main output (``tag_id`` None) or to a side output that has a
        consumer."""

    def emitted_watermark(self, uid: str, subtask: int, watermark_ms: int) -> None:
        """Called when an operator emits a watermark."""
