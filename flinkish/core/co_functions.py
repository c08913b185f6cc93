"""Functions over two connected streams; PyFlink's names and methods.

The rules: one instance per parallel subtask sees the records of both inputs, so what it keeps in attributes is shared
by them; on keyed streams so is keyed state, which the records of either input find under their key. The records of one
input come in their order; how those of the two inputs follow each other is for the streams' watermarks to say.
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
    """At most one result for each record of either stream."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """The result for a record of the first stream; None stands for none."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """The result for a record of the second stream; None stands for none."""


class CoFlatMapFunction(Function):
    """Any number of results for each record of either stream."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """The results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """The results for a record of the second stream."""


class _Context(ABC):
    """What functions over two streams may know of the record or timer. Only valid during the call."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Time, and on keyed streams timers of the current key."""

    @abstractmethod
    def timestamp(self) -> int:
        """Timestamp in ms of the record (``-9223372036854775808`` if it has none) or of the firing timer."""

    @abstractmethod
    def request_commit(self) -> None:
        """As `RuntimeContext.request_commit`."""


class CoProcessFunction(Function):
    """Processes the records of two streams, with access to time; on keyed streams also with state and timers."""

    class Context(_Context):
        """What ``process_element1`` and ``process_element2`` may know of the record."""

    class OnTimerContext(Context):
        """What ``on_timer`` may know of the timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record of the first stream. ``yield tag, result`` goes to that side output."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record of the second stream. ``yield tag, result`` goes to that side output."""

    def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """A timer fires, which only keyed streams have; results as in ``process_element1``."""
        return None


class KeyedCoProcessFunction(Function):
    """Processes the records of two streams that are keyed alike, with state that both share, time and timers."""

    class Context(_Context):
        """What ``process_element1`` and ``process_element2`` may know of the record."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record or timer."""

    class OnTimerContext(Context):
        """What ``on_timer`` may know of the timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record of the first stream. ``yield tag, result`` goes to that side output."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record of the second stream. ``yield tag, result`` goes to that side output."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """A timer fires; results as in ``process_element1``."""
        return None
