"""Functions over a stream and a broadcast stream; PyFlink's names and methods.

The rules of broadcast state: each subtask has a copy of its own; only ``process_broadcast_element`` may write to it,
and it is called for the same elements in the same order in all subtasks. So the copies are the same as long as what it
writes depends on nothing but these elements and the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flinkish.core.functions import KEY, OUT, Function

if TYPE_CHECKING:
    from flinkish.core.state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor
    from flinkish.core.time_domain import TimeDomain
    from flinkish.core.timer_service import TimerService

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")


class KeyedStateFunction(ABC):
    """What `KeyedBroadcastProcessFunction.Context.apply_to_keyed_state` calls for each key."""

    @abstractmethod
    def process(self, key: Any, state: Any) -> None:
        """``state`` reads and writes the state of the key."""


class BaseBroadcastProcessFunction(Function):
    """What the functions on keyed and on other streams have in common."""

    class BaseContext(ABC):
        """What all methods may know of the record, element or timer. Only valid during the call."""

        @abstractmethod
        def timestamp(self) -> int:
            """Timestamp in ms of the record (``-9223372036854775808`` if it has none) or of the firing timer."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Processing time in ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The watermark in ms: the lower one of the two inputs."""

        @abstractmethod
        def request_commit(self) -> None:
            """As `RuntimeContext.request_commit`."""

    class Context(BaseContext):
        """What ``process_broadcast_element`` may know."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """A state that was named in ``broadcast(...)``, for reading and writing. StateAccessError: it was not."""

    class ReadOnlyContext(BaseContext):
        """What the methods of the other stream may know."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
            """A state that was named in ``broadcast(...)``, for reading. StateAccessError: it was not."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Processes the records of a stream without keys with the help of broadcast state."""

    class Context(BaseBroadcastProcessFunction.Context):
        """What ``process_broadcast_element`` may know."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What ``process_element`` may know."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """The results for a record. ``yield tag, result`` with an OutputTag goes to that side output."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """A broadcast element, which each subtask gets; results as in ``process_element``, from each subtask."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Processes the records of a keyed stream with the help of broadcast state, keyed state and timers."""

    class Context(BaseBroadcastProcessFunction.Context):
        """What ``process_broadcast_element`` may know. There is no current key."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: KeyedStateFunction | Callable[[Any, Any], Any]
        ) -> None:
            """Call ``function(key, state)`` for each key of this subtask that has that keyed state; it may change it.
            Not in PyFlink; Java's ``applyToKeyedState``. The order of the keys says nothing."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What ``process_element`` may know."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Time, and timers of the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record or timer."""

    class OnTimerContext(ReadOnlyContext):
        """What ``on_timer`` may know of the timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """The results for a record. ``yield tag, result`` with an OutputTag goes to that side output."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """A broadcast element, which each subtask gets; results as in ``process_element``, from each subtask."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[OUT] | None:
        """A timer fires; results as in ``process_element``."""
        return None
