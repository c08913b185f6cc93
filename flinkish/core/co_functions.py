"""Functions over two connected streams, with PyFlink's names and methods.

The rules: one instance per parallel subtask sees the records of both inputs, so they share its attributes; on keyed
streams they share keyed state, which the records of either input find under their key. The records of one input arrive
in their order; the watermarks of the streams decide how those of the two inputs follow each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flinkish.core.functions import Function

if TYPE_CHECKING:
    from flinkish.core.time_domain import TimeDomain
    from flinkish.core.timer_service import TimerService


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
