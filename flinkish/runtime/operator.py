"""The contract of an operator: it works on whole batches (parallel lists), never on single records.

``values`` is a list, ``timestamps`` a parallel list of milliseconds or None when no record of the batch has one.
A batch stands between two watermarks: no watermark rises inside it. An operator owns the lists it is given and may
keep or change them; it hands on new ones (or the same) and never touches a list after handing it on.

Lifecycle, as in Flink: ``setup`` and ``initialize_state`` from the last operator of the chain to the first, ``open``
from the last to the first, then batches, watermarks and timers; ``snapshot_state`` at each barrier, from the first to
the last; at the end of the input ``finish`` and ``close`` from the first to the last. ``dispose`` comes always, and
alone when the task failed or was cancelled.

What must outlive an epoch is in ``context.keyed_state`` or ``context.operator_state``, or is what ``save`` gives: the
next epoch may run in another process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from flinkish.core.checkpointed_function import CheckpointedFunction
from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.runtime.accumulated import ExactCounter, OperatorAccumulators

if TYPE_CHECKING:
    from flinkish.core.metrics import MetricGroup
    from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
    from flinkish.runtime.state.operator_state import OperatorState


class Output(Protocol):
    """Where an operator sends its results: the next operators of the chain, the vertex' out-edges, or both."""

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Hand on a batch. An empty batch may be skipped by the caller."""

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        """Hand on a batch to a side output; dropped when nobody listens to that tag."""

    @property
    def has_sides(self) -> bool:
        """Whether anybody listens to any side output."""

    def has_side(self, tag_id: str) -> bool:
        """Whether anybody listens to that tag."""

    def emit_watermark(self, watermark_ms: int) -> None:
        """Hand on a watermark."""

    def emit_status(self, idle: bool) -> None:
        """Hand on that this stream became idle (or active again)."""


@dataclass
class EpochInfo:
    """What every operator may know of the running epoch. One object per task, updated at each epoch."""

    epoch: int = 0
    #: processing time of the whole epoch, in ms (docs/semantics.md)
    processing_time_ms: int = 0
    #: combined watermark of the operator's inputs
    watermark_ms: int = MIN_TIMESTAMP_MS
    end_of_input: bool = False
    #: the task goes on with stored state, or the job began with a savepoint
    restored: bool = False
    #: the epoch that this state is of; None: there is none, or it comes from a savepoint
    restored_epoch: int | None = None
    #: user code has asked that the next epoch be planned at once
    commit_requested: bool = False


@dataclass
class OperatorContext:
    """Everything an operator gets from its task, at ``setup``."""

    uid: str
    name: str
    task_name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    epoch: EpochInfo
    metrics: MetricGroup
    #: Some only in the head operator of a keyed vertex
    keyed_state: KeyedStateBackend | None
    operator_state: OperatorState
    #: one key selector per input of a keyed vertex, else ()
    key_selectors: tuple[Callable[[Any], Any], ...] = ()
    job_parameters: dict[str, str] = field(default_factory=dict)
    #: name of each cached file -> where it lies on this node
    cached_files: dict[str, str] = field(default_factory=dict)
    #: what user code adds up over the whole job
    accumulators: OperatorAccumulators = field(default_factory=lambda: OperatorAccumulators(""))
    #: the JSON-able configuration of the job
    configuration: dict[str, str] = field(default_factory=dict)

    def exact_counter(self, name: str) -> ExactCounter:
        """A metric of the operator that is counted exactly, over failures and restarts."""
        return ExactCounter(self.metrics.counter(name), name, self.accumulators, self.uid)


class StreamOperator(ABC):
    """Base of all operators. Subclasses implement ``process_batch`` and override what they need."""

    context: OperatorContext
    output: Output
    #: the number of its inputs; errors of an operator with several name the one that the record came from
    inputs: int = 1

    def setup(self, context: OperatorContext, output: Output) -> None:
        """First call: learn the surroundings. No user code yet."""
        self.context = context
        self.output = output

    def initialize_state(self) -> None:  # noqa: B027 - an optional step of the lifecycle
        """Register states. Keyed state of single keys is not accessible yet."""

    def open(self) -> None:  # noqa: B027
        """Open user functions."""

    def begin_epoch(self) -> None:  # noqa: B027
        """The next batches belong to ``context.epoch.epoch``."""

    def save(self) -> Any:
        """A small value that must outlive the epoch (a watermark generator's); kept in the task's header."""
        return None

    def restore(self, saved: Any) -> None:  # noqa: B027
        """What `save` gave in the last epoch, or None."""

    def end_split(self) -> None:  # noqa: B027
        """Source tasks only: what comes next was read from another split. Hand on what is held back."""

    def begin_split(self, split: str) -> None:  # noqa: B027
        """Source tasks only: the next batches come from this split."""

    @abstractmethod
    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Process records between two watermarks."""

    def process_watermark(self, watermark_ms: int) -> None:
        """The watermark rose: fire what is due, then hand it on."""
        self.output.emit_watermark(watermark_ms)

    def process_status(self, idle: bool) -> None:
        """All inputs are idle, or one is active again."""
        self.output.emit_status(idle)

    def advance_processing_time(self, time_ms: int) -> None:  # noqa: B027
        """Fire the processing-time timers that are due at ``time_ms``."""

    def snapshot_state(self) -> None:  # noqa: B027
        """The barrier: no more records in this epoch. May emit (sink writers hand over here)."""

    def finish(self) -> None:  # noqa: B027
        """End of the input, after the MAX watermark: flush what is buffered."""

    def close(self) -> None:  # noqa: B027
        """Normal end of the task: close user functions."""

    def dispose(self) -> None:  # noqa: B027
        """Release everything; called once in any case. Closes user functions that ``close`` did not reach."""


class OperatorFactory(Protocol):
    """Makes one operator instance per subtask, in the worker. Picklable by cloudpickle; small."""

    @property
    def keyed(self) -> bool:
        """True when the operator needs `context.keyed_state`."""

    @property
    def has_operator_state(self) -> bool:
        """True when the operator keeps what belongs to no key in `context.operator_state`."""

    @property
    def guarded(self) -> bool:
        """True when what a call of user code does to state and timers must be kept so that it can be undone."""

    @property
    def watermark_sensitive(self) -> bool:
        """True when user code can see single watermarks or register event-time timers: sources then stamp finely."""

    @property
    def merges_windows(self) -> bool:
        """True when a record right ahead of the watermark is treated otherwise once the watermark has come: a window
        that touches another one merges with it as long as that one is open. Sources then stamp before such records."""

    @property
    def uses_processing_time(self) -> bool:
        """True when processing time must go on without data (processing-time timers)."""

    def create(self) -> StreamOperator:
        """A fresh operator."""


class OperatorFactoryBase:
    """Defaults for factories."""

    keyed: bool = False
    guarded: bool = False
    watermark_sensitive: bool = False
    merges_windows: bool = False
    uses_processing_time: bool = False

    @property
    def has_operator_state(self) -> bool:
        """A function that takes part in checkpoints has state of its own."""
        return isinstance(getattr(self, "function", None), CheckpointedFunction)
