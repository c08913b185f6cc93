"""Functions over two connected streams and over a stream and a broadcast stream, with PyFlink's names and methods; and
the functions of joins, with Java Flink's, since PyFlink has no joins of streams.

The rules: one instance per parallel subtask sees the records of both inputs, so they share its attributes; on keyed
streams they share keyed state, which the records of either input find under their key. The records of one input arrive
in their order; the watermarks of the streams decide how those of the two inputs follow each other.

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
    from flinkish.core.functions import OutputTag
    from flinkish.core.state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor
    from flinkish.core.time import TimeDomain, TimerService


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


class CoMapFunction(Function):
    """Maps each record of either stream to at most one result."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """The result for a record of the first stream; None for no result."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """The result for a record of the second stream; None for no result."""


class CoFlatMapFunction(Function):
    """Maps each record of either stream to any number of results."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """The results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """The results for a record of the second stream."""


class _Context(ABC):
    """The context of the record or timer that a function over two streams is called for; only valid during the call."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Access to the current time, and on keyed streams to the timers of the current key."""

    @abstractmethod
    def timestamp(self) -> int:
        """The timestamp in ms of the record (``-9223372036854775808`` if it has none) or of the firing timer."""

    def request_commit(self) -> None:  # noqa: B027 - optional for users
        """Ask that the next epoch begin as soon as possible; see `RuntimeContext.request_commit`."""


class CoProcessFunction(Function):
    """Processes the records of two streams, with access to time; on keyed streams also with state and timers."""

    class Context(_Context):
        """The context of ``process_element1`` and ``process_element2``."""

    class OnTimerContext(Context):
        """The context of ``on_timer``."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record of the first stream. ``yield tag, result`` emits to that side output."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record of the second stream. ``yield tag, result`` emits to that side output."""

    def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """Called when a timer fires, on keyed streams only; the results are as in ``process_element1``."""
        return None


class KeyedCoProcessFunction(Function):
    """Processes the records of two streams that are keyed alike, with state that both share, time and timers."""

    class Context(_Context):
        """The context of ``process_element1`` and ``process_element2``."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record or timer."""

    class OnTimerContext(Context):
        """The context of ``on_timer``."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record of the first stream. ``yield tag, result`` emits to that side output."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record of the second stream. ``yield tag, result`` emits to that side output."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """Called when a timer fires; the results are as in ``process_element1``."""
        return None


class JoinFunction(Function):
    """Joins each pair of records of the same key and window to one result."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """The result for a pair of records; never None."""


class FlatJoinFunction(Function):
    """Joins each pair of records of the same key and window to any number of results."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        """The results for a pair of records."""


class CoGroupFunction(Function):
    """Evaluated over the records of both streams for one key and window; one of the streams may have none."""

    @abstractmethod
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        """The results for the records of the first and of the second stream."""


class ProcessJoinFunction(Function):
    """Evaluated over each pair of records that an interval join finds."""

    class Context(ABC):
        """The timestamps of the pair, and side outputs; only valid during the call."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The timestamp of the left record in ms."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The timestamp of the right record in ms."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """The timestamp of the results in ms: the greater one of both."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit to a side output, as Java's ``Context.output`` does; ``yield tag, value`` does the same."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any] | None:
        """The results for a pair of records."""
