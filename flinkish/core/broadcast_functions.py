"""Functions over a stream and a broadcast stream, with PyFlink's names and methods.

The rules of broadcast state: each subtask has a copy of its own; only ``process_broadcast_element`` may write to it,
and it is called for the same elements in the same order in all subtasks. So the copies are equal as long as what it
writes depends only on these elements and on the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flinkish.core.functions import KEY, OUT, Function, not_in_double

if TYPE_CHECKING:
    from flinkish.core.state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor
    from flinkish.core.time_domain import TimeDomain
    from flinkish.core.timer_service import TimerService

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")


class KeyedStateFunction(ABC):
    """A function that `KeyedBroadcastProcessFunction.Context.apply_to_keyed_state` calls for each key."""

    @abstractmethod
    def process(self, key: Any, state: Any) -> None:
        """Process one key; ``state`` is the handle that reads and writes its state."""


class BaseBroadcastProcessFunction(Function):
    """Base of the functions on keyed streams and on streams without keys."""

    class BaseContext(ABC):
        """The context of the record, broadcast element or timer that is processed; only valid during the call."""

        @abstractmethod
        def timestamp(self) -> int:
            """The timestamp in ms of the record (``-9223372036854775808`` if it has none) or of the firing timer."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The current processing time in ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The current watermark in ms: the lower one of the two inputs."""

        def request_commit(self) -> None:  # noqa: B027 - optional for users
            """Ask that the next epoch begin as soon as possible; see `RuntimeContext.request_commit`."""

    class Context(BaseContext):
        """The context of ``process_broadcast_element``."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """A state that was named in ``broadcast(...)``, for reading and writing.

            Raises:
                StateAccessError: the state was not named there.
            """

    class ReadOnlyContext(BaseContext):
        """The context of the methods for the other stream, in which broadcast state can only be read."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
            """A state that was named in ``broadcast(...)``, for reading.

            Raises:
                StateAccessError: the state was not named there.
            """


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Processes the records of a stream without keys with the help of broadcast state."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of ``process_broadcast_element``."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of ``process_element``."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """The results for a record. ``yield tag, result`` with an OutputTag emits to that side output."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """The results for a broadcast element, which each subtask gets: every subtask emits its results."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Processes the records of a keyed stream with the help of broadcast state, keyed state and timers."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of ``process_broadcast_element``, where there is no current key."""

        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: KeyedStateFunction | Callable[[Any, Any], Any]
        ) -> None:
            """Call ``function(key, state)``, which may change the state, for each key of this subtask that has that
            keyed state. The order of the keys is undefined. Java Flink's ``applyToKeyedState``; PyFlink does not have
            it."""
            raise not_in_double(self, "apply_to_keyed_state")

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of ``process_element``."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Access to the current time, and to the timers of the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record or timer."""

    class OnTimerContext(ReadOnlyContext):
        """The context of ``on_timer``."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """The results for a record. ``yield tag, result`` with an OutputTag emits to that side output."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """The results for a broadcast element, which each subtask gets: every subtask emits its results."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[OUT] | None:
        """Called when a timer fires; the results are as in ``process_element``."""
        return None
