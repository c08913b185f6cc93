"""Window assigners, which say which windows an element belongs to: their contract, that of assigners whose windows may
merge, and the one global window for all elements of a key.

Semantics: Flink's ``WindowAssigner``, ``MergingWindowAssigner`` and ``GlobalWindows``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from flinkish.common.arguments import check_instance
from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.core.window.trigger import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from flinkish.core.window.window import (
    GlobalWindow,
    GlobalWindowSerializer,
    PickledWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    W,
    Window,
)
from flinkish.errors import ArgumentValueError, ProgramError

if TYPE_CHECKING:
    from flinkish.common.serializer import TypeSerializer
    from flinkish.core.functions import RuntimeContext
    from flinkish.core.window.trigger import Trigger


T = TypeVar("T")


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns zero or more windows to each element.

    Example: a user's own assigner, of windows of ten seconds that begin at the element::

        class TenSecondsFromHere(WindowAssigner):
            def assign_windows(self, element, timestamp, context):
                return [TimeWindow(timestamp, timestamp + 10_000)]
            def get_default_trigger(self, env):
                return EventTimeTrigger.create()
            def is_event_time(self):
                return True
    """

    class WindowAssignerContext(ABC):
        """The context that an assigner is called with."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The processing time of the epoch, in ms."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """The context of the running subtask."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """The windows of ``element``. ``timestamp`` is in ms; -9223372036854775808 if the element has none."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """The trigger of windows for which the program sets none."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by the watermark (True) or by processing time (False)."""

    def get_window_serializer(self) -> TypeSerializer[Any]:
        """The serializer of this assigner's windows. The engine does not use it, so any will do."""
        return PickledWindowSerializer()

    def needs_processing_time(self) -> bool:
        """Tell the engine whether windows end also while no data arrives; assigners of count windows override it."""
        return not self.is_event_time()


class TimeWindowAssigner(WindowAssigner[Any, TimeWindow]):
    """Base of Flink's own assigners of windows of time, by timestamp or by the epoch's processing time."""

    _by_timestamp: ClassVar[bool]

    def _time_of(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        """The time in ms that decides on the windows of an element. Raises ProgramError if it has none."""
        if not self._by_timestamp:
            return context.get_current_processing_time()
        if timestamp <= MIN_TIMESTAMP_MS:
            raise missing_timestamp(self)
        return timestamp

    def get_default_trigger(self, env: Any) -> EventTimeTrigger | ProcessingTimeTrigger:
        return EventTimeTrigger.create() if self._by_timestamp else ProcessingTimeTrigger.create()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return self._by_timestamp


def missing_timestamp(assigner: object) -> ProgramError:
    """The error that event-time assigners raise for an element without a timestamp."""
    return ProgramError(
        f"a record has no timestamp (Long.MIN_VALUE, the marker for 'no timestamp'), and {assigner} needs one",
        where=f"{assigner}",
        expected="records with event-time timestamps in front of an event-time window",
        hint="did you forget to call assign_timestamps_and_watermarks(...) with a timestamp assigner?",
    )


def in_milliseconds(where: str, **times: Time | Duration) -> list[int]:
    """The named times that the program has given, in milliseconds. Raises ArgumentTypeError for what is no time."""
    return [milliseconds_of(time, f"the {name}", where) for name, time in times.items()]


def check_milliseconds(name: str, *lengths_ms: Any) -> None:
    """Raise ArgumentTypeError unless the arguments of the constructor of ``name`` are whole numbers, as in Flink."""
    for length_ms in lengths_ms:
        hint = f"{name}.of(...) or with_gap(...) takes a Time or a Duration"
        check_instance(length_ms, int, "a length of time is", f"{name}(...)", hint, "milliseconds, as an int")


def check_tumbling(name: str, size_ms: int, offset_ms: int) -> None:
    """Raise unless ``abs(offset) < size``, the rule of Flink's tumbling windows."""
    check_milliseconds(name, size_ms, offset_ms)
    if size_ms <= 0 or abs(offset_ms) >= size_ms:
        raise ArgumentValueError(
            f"{name} with a size of {size_ms} ms and an offset of {offset_ms} ms",
            where=f"{name}.of()",
            expected="size > 0 and abs(offset) < size",
            hint="an offset shifts where windows begin, such as Time.hours(-8) for days in China",
        )


def check_sliding(name: str, size_ms: int, slide_ms: int, offset_ms: int) -> None:
    """Raise unless ``abs(offset) < slide`` and ``size > 0``, the rule of Flink's sliding windows."""
    check_milliseconds(name, size_ms, slide_ms, offset_ms)
    if size_ms <= 0 or abs(offset_ms) >= slide_ms:
        raise ArgumentValueError(
            f"{name} with a size of {size_ms} ms, a slide of {slide_ms} ms and an offset of {offset_ms} ms",
            where=f"{name}.of()",
            expected="size > 0 and abs(offset) < slide",
            hint="the arguments are size, slide, offset",
        )


def checked_count(what: str, count: int) -> int:
    """Return the number of elements. Raises ProgramError unless it is a whole number of more than 0."""
    if not isinstance(count, int) or count <= 0:
        raise ArgumentValueError(
            f"{what} is {count!r}",
            where="a window, trigger or evictor that counts",
            expected="a whole number of more than 0",
            hint="it is a number of elements",
        )
    return count


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """Assigns all elements of a key to one window, which has no end and never fires by itself.

    It needs a trigger, which should purge it now and then.

    Example: the sum of each hundred elements::

        ds.key_by(lambda v: v[0]).window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(100))).sum(1)
    """

    @staticmethod
    def create() -> GlobalWindows:
        """The assigner of the global window."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> NeverTrigger:
        return NeverTrigger()

    def get_window_serializer(self) -> GlobalWindowSerializer:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def needs_processing_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


W2 = TypeVar("W2", bound=Window)


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Assigns windows, mostly one of its own to each element, and says which windows of a key merge into one.

    The trigger of such windows must be able to merge (``can_merge``).
    """

    class MergeCallback(ABC, Generic[W2]):
        """Receives the decisions of `merge_windows`."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Merge these windows into ``merge_result``, which may be one of them."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Call ``callback.merge`` for each set of windows that merge into one; no window may be in two sets.
        ``windows`` are the open windows of a key, followed by the window of a new element."""
