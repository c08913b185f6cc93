"""Functions that take part in checkpoints (Java Flink's `CheckpointedFunction` and `CheckpointListener`).

A checkpoint here is the end of an epoch: docs/semantics.md says when each method is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from flinkish.core.functions import KeyedStateStore, not_in_double

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


class CheckpointListener(ABC):  # noqa: B024 - both methods are optional
    """A mixin for functions that are to be notified which epochs are committed for good."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """Called when that epoch and all before it are committed, so that none of them is ever run again. The call may
        come late, or be left out for an epoch; it never comes for the last epoch of a job."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027
        """Called when that epoch begins again, under the same number: this instance had reached its end,
        but the epoch failed elsewhere."""
