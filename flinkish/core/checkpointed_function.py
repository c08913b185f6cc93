"""Functions that take part in checkpoints (Java Flink's `CheckpointedFunction` and `CheckpointListener`).

A checkpoint here is the end of an epoch: docs/semantics.md says when each method is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from flinkish.core.functions import KeyedStateStore

if TYPE_CHECKING:
    from flinkish.core.state import BroadcastState, ListState, ListStateDescriptor, MapStateDescriptor


class OperatorStateStore(ABC):
    """State that belongs to a subtask and to no key. Names are unique within an operator."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of the subtask. When the parallelism changes, the elements of all lists are dealt out evenly."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of the subtask. After a restore from a savepoint or checkpoint each subtask begins with the elements
        of all lists, in the order of the subtasks that wrote them."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map of which each subtask has a copy. The function must write the same in all subtasks."""


class FunctionInitializationContext(ABC):
    """What `CheckpointedFunction.initialize_state` is given."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether the subtask goes on with state of before: after a failure, a restart, or a savepoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """The epoch whose state it is; None: nothing is restored, or it comes from a savepoint."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """State that belongs to no key."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """State by key, on a keyed stream; elsewhere asking it for a state raises StateAccessError."""


class FunctionSnapshotContext(ABC):
    """What `CheckpointedFunction.snapshot_state` is given."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The number of the epoch that ends."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """Processing time of the epoch, in ms."""


class CheckpointedFunction(ABC):
    """To be mixed into a function that keeps state which belongs to no key.

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
        """The epoch ends: put into state what must outlive it."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Before ``open``: ask for state, and take from it what was put there."""


class CheckpointListener(ABC):  # noqa: B024 - both methods are optional
    """To be mixed into a function that wants to hear which epochs are committed for good."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """That epoch, and all before it, are committed: neither is ever run again. May come late, or not at all for an
        epoch before it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027
        """That epoch was begun by an earlier run and has failed; it runs again under the same number."""
