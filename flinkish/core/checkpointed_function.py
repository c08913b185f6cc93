"""Functions that take part in checkpoints (Java Flink's `CheckpointedFunction` and `CheckpointListener`), and the
handling of records and timers for which a function raises: `OnError`, and the `DeadLetter` they may become.

A checkpoint here is the end of an epoch: docs/semantics.md says when each method is called.

Rule: exactly the failed call is lost. What it emitted, wrote to state and did to timers is undone, and the call is
counted. The number of calls that may fail is bounded, so that a bug cannot divert everything unnoticed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.functions import KeyedStateStore, OutputTag, not_in_double
from flinkish.errors import ProgramError

if TYPE_CHECKING:
    from flinkish.core.state import BroadcastState, ListState, ListStateDescriptor, MapStateDescriptor


class OperatorStateStore(ABC):
    """Gives access to operator state, which belongs to a subtask and to no key. Names are unique within an operator."""

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of the subtask. When the parallelism changes, the elements of each list are dealt out to the subtasks
        in turn, beginning with the subtask of the same number."""
        raise not_in_double(self, "get_list_state")

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of the subtask. After a restore from a savepoint or checkpoint each subtask begins with the elements
        of all lists, in the order of the subtasks that wrote them. In a job that goes on from its own directory each
        subtask begins with its own list."""
        raise not_in_double(self, "get_union_list_state")

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map of which each subtask has a copy. The function must write the same entries in all subtasks."""


class FunctionInitializationContext(ABC):
    """The context of `CheckpointedFunction.initialize_state`."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether the subtask goes on with earlier state: after a failure or a restart, or from a savepoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """The epoch whose state is restored; None if nothing is restored, or if the state comes from a savepoint."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """The store of operator state, which belongs to no key."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """The store of keyed state, on a keyed stream; elsewhere asking it for a state raises StateAccessError."""


class FunctionSnapshotContext(ABC):
    """The context of `CheckpointedFunction.snapshot_state`."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The number of the epoch that ends."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """The processing time of the epoch, in ms."""


class CheckpointedFunction(ABC):
    """A mixin for functions that keep operator state, which belongs to no key.

    Example::

        class Numbered(MapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                descriptor = ListStateDescriptor("seen", Types.LONG())
                self.state = context.get_operator_state_store().get_list_state(descriptor)
                self.seen = sum(self.state.get())

            def map(self, value):
                self.seen += 1
                return self.seen, value

            def snapshot_state(self, context):
                self.state.update([self.seen])
    """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at the end of each epoch: put what must outlive the epoch into state."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called before ``open``: get the state, and read what it holds."""


class CheckpointListener(ABC):
    """A mixin for functions that are to be notified which epochs are committed for good."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """Called when that epoch and all before it are committed, so that none of them is ever run again. The call may
        come late, or be left out for an epoch; it never comes for the last epoch of a job."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027
        """Called when that epoch begins again, under the same number: this instance had reached its end,
        but the epoch failed elsewhere."""


#: The default limits of `OnError`.
DEFAULT_MAX_FAILURES = 100
DEFAULT_MAX_RATE = 0.01

#: The highest limits that `OnError` accepts.
MAX_FAILURES_LIMIT = 1_000_000
MAX_RATE_LIMIT = 0.5


class DeadLetter(NamedTuple):
    """A record or timer for which a function raised an exception, with the reason.

    >>> DeadLetter("x", "ValueError", "bad", "Traceback ...", "parse", None, 5, 3).error_type
    'ValueError'
    """

    #: the record that the function was called with; None for a timer
    record: Any
    #: the name of the exception's class
    error_type: str
    error_message: str
    #: the traceback, of user code alone
    traceback: str
    operator_uid: str
    #: the current key; None on a stream without keys
    key: Any
    #: the timestamp of the record or timer, in ms; None if it has none
    timestamp: int | None
    epoch: int
    #: whether it is a timer that failed, not a record
    is_timer: bool = False
    #: the window whose timer failed, such as ``TimeWindow(start=0, end=60000)``; None if it was not a window's timer
    window: str | None = None

    @staticmethod
    def type_info(
        record_type: TypeInformation | None = None, key_type: TypeInformation | None = None
    ) -> TypeInformation:
        """The ROW type of dead letters, for an OutputTag; formats and sinks that need columns require it.

        Example::

            tag = OutputTag("dead", DeadLetter.type_info(Types.STRING()))
            parsed = lines.map(parse).on_error(OnError.dead_letter(tag))
            parsed.get_side_output(tag).sink_to(json_files)

        Args:
            record_type: the type of the operator's records; None for any object.
            key_type: the type of its keys; None for any object.
        """
        text = Types.STRING()
        types: dict[str, TypeInformation] = {
            "record": record_type or Types.PICKLED_BYTE_ARRAY(),
            "error_type": text,
            "error_message": text,
            "traceback": text,
            "operator_uid": text,
            "key": key_type or Types.PICKLED_BYTE_ARRAY(),
            "timestamp": Types.LONG(),
            "epoch": Types.LONG(),
            "is_timer": Types.BOOLEAN(),
            "window": text,
        }
        return Types.ROW_NAMED(list(types), list(types.values()))


@dataclass(frozen=True)
class OnError:
    """Says what an operator does when its function raises; see ``DataStream.on_error``. `fail`, `skip` and
    `dead_letter` create it.

    The budget of a subtask is ``max_failures`` at first. Each failure takes 1 from it, and each call that succeeds
    returns ``max_rate`` to it, up to ``max_failures``. A failure that finds less than 1 fails the job, with the
    failure's traceback. So at most ``max_failures`` calls fail in a row, and in the long run at most the part
    ``max_rate`` of all calls.
    """

    action: str
    tag: OutputTag | None = None
    max_failures: int = DEFAULT_MAX_FAILURES
    max_rate: float = DEFAULT_MAX_RATE

    @staticmethod
    def fail() -> OnError:
        """Fail the job, as without `OnError`."""
        return OnError("fail")

    @staticmethod
    def skip(max_failures: int = DEFAULT_MAX_FAILURES, max_rate: float = DEFAULT_MAX_RATE) -> OnError:
        """Skip the record or timer, which is counted and logged.

        Raises:
            ProgramError: the budget is out of bounds.
        """
        return OnError("skip", None, max_failures, max_rate)._checked()

    @staticmethod
    def dead_letter(
        tag: OutputTag, max_failures: int = DEFAULT_MAX_FAILURES, max_rate: float = DEFAULT_MAX_RATE
    ) -> OnError:
        """Emit the record or timer to a side output, as a `DeadLetter`.

        Args:
            tag: the side output, without a type or with ``DeadLetter.type_info(...)``.
            max_failures: the most calls of a subtask that may fail in a row, from 1 to 1,000,000.
            max_rate: the part of its calls that may fail in the long run, from 0 to 0.5.

        Raises:
            ProgramError: the budget is out of bounds, or ``tag`` is not an OutputTag.
        """
        if not isinstance(tag, OutputTag):
            raise ProgramError(f"dead_letter() got {tag!r}", expected="an OutputTag")
        return OnError("dead_letter", tag, max_failures, max_rate)._checked()

    def _checked(self) -> OnError:
        if self.max_failures.__class__ is not int or not 1 <= self.max_failures <= MAX_FAILURES_LIMIT:
            raise ProgramError(
                f"max_failures is {self.max_failures!r}", expected=f"a whole number from 1 to {MAX_FAILURES_LIMIT}"
            )
        if isinstance(self.max_rate, bool) or not isinstance(self.max_rate, (int, float)):
            raise ProgramError(f"max_rate is {self.max_rate!r}", expected=f"a number from 0 to {MAX_RATE_LIMIT}")
        if not 0 <= self.max_rate <= MAX_RATE_LIMIT:
            raise ProgramError(
                f"max_rate is {self.max_rate!r}",
                expected=f"a number from 0 to {MAX_RATE_LIMIT}",
                hint="a function that fails more often than not has a bug: catch in it what is expected",
            )
        return self
