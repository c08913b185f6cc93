"""What window operators share: the scope (the key, window, time and state that the operator works with at the moment),
the contents of windows and the functions that compute on them, the windows as namespaces of state and timers, and when
a window is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

from flinkish.common.arguments import result_of_each
from flinkish.common.detach import all_detached, detached, handed_over
from flinkish.core.functions import AggregateFunction, Function, KeyedStateStore, ReduceFunction
from flinkish.core.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow, Window
from flinkish.errors import ProgramError
from flinkish.runtime.job.operator import OperatorContext
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.state_rows import VOID_NAMESPACE
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import MISSING
from flinkish.runtime.state.timer_queue import TimerQueue
from flinkish.runtime.state.ttl import HandleCache

#: name of the state that holds the windows' contents; no user gives a state this name by accident
CONTENTS = "__window_contents__"
#: name of the timer service
TIMERS = "window-timers"


class WindowScope:
    """The current key, window, time and state of a window operator. Valid from `enter_group` until the operator returns
    to its task. There is one object per operator, which is changed in place: the contexts that user code has got read
    it at each call."""

    table: StateTable
    timers: TimerQueue
    #: key and window of the current call of user code
    key: Any
    window: Window
    #: namespace of the trigger's state, the timers and the per-window state
    namespace: Hashable
    #: namespace of the window's contents; it is another one after a merge (`MergingWindowSet`)
    contents_namespace: Hashable

    def __init__(self, context: OperatorContext, backend: KeyedStateBackend, contents_kind: str) -> None:
        self.context = context
        self.backend = backend
        self.handles = HandleCache(backend)
        self._contents_kind = contents_kind
        self.watermark_ms = MIN_TIMESTAMP_MS
        self.processing_time_ms = 0

    def enter_group(self, watermark_ms: int, processing_time_ms: int) -> None:
        """Get the tables of state and timers, and set the time. This decodes the state if that was not done yet."""
        self.table = self.backend.table(CONTENTS, self._contents_kind)
        self.timers = self.backend.timers(TIMERS)
        self.watermark_ms = watermark_ms
        self.processing_time_ms = processing_time_ms

    def enter(self, key: Any, window: Window, namespace: Hashable) -> None:
        """Set the current key and window, before any user code is called for them."""
        self.key = key
        self.backend.loans.enter(key)
        self.window = window
        self.namespace = self.contents_namespace = namespace


class ScopedStateStore(KeyedStateStore):
    """The keyed state of window functions: returns state handles in the namespace of the scope's window
    (``per_window``) or in the void namespace, for the current key."""

    def __init__(self, scope: WindowScope, per_window: bool) -> None:
        self._scope = scope
        self._per_window = per_window

    def _state(self, descriptor: StateDescriptor) -> State:
        namespace = self._scope.namespace if self._per_window else VOID_NAMESPACE
        return self._scope.handles.state(descriptor, namespace)

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return cast("ValueState[Any]", self._state(state_descriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return cast("ListState[Any]", self._state(state_descriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return cast("MapState[Any, Any]", self._state(state_descriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return cast("ReducingState[Any]", self._state(state_descriptor))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        return cast("AggregatingState[Any, Any]", self._state(state_descriptor))


def merge_namespaces(
    table: StateTable,
    key: Any,
    target: Hashable,
    sources: Iterable[Hashable],
    merge: Callable[[Any, Any], Any],
) -> None:
    """Merge the values of a key in the source namespaces into its value in the target namespace, and remove them from
    the sources (Flink's ``InternalMergingState.mergeNamespaces``). The target is none of the sources. ``merge`` gets
    two values: first the one of the target or of the earlier source."""
    merged: Any = MISSING
    for source in sources:
        table.fetch(source, (key,))
        values = table.existing(source)
        if values and key in values:
            value = values[key]
            table.remove(source, key)
            merged = value if merged is MISSING else merge(merged, value)
    if merged is MISSING:
        return
    table.fetch(target, (key,))
    table.mark(target, key)
    into = table.namespace(target)
    into[key] = merge(into[key], merged) if key in into else merged


Stored = dict[Any, Any]


class WindowContents(ABC):
    """The contents of a window: all of its elements, or one value into which elements are folded as they arrive. Adds
    elements to the stored values of a window and reads the contents from them. It has no state itself.

    The stored values of all keys of one window are in one dictionary, key -> stored value. A key is in it if and only
    if the window has contents for that key. Contents that are read are detached from the stored value (see `detach`),
    elements too, since a window may fire again, and an element may be in several windows.
    """

    #: the kind of state under which the values are stored
    kind: str
    #: whether adding an element may change one that was added before, so that no two windows may share one
    folds = True

    @abstractmethod
    def add(self, stored: Stored, key: Any, value: Any) -> None:
        """Add one element of a key."""

    @abstractmethod
    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        """Add many elements, in order. Returns the keys that had no contents before, in order, each once.

        The effect is that of `add` for each element, but in one loop, since windows spend most of their time here.
        """

    @abstractmethod
    def read(self, stored_value: Any) -> Any:
        """The contents: a list, the reduced value or the result of the aggregation. None means nothing to emit."""

    def last(self, stored_value: Any) -> Any:
        """The result of `read` for a stored value that nobody reads again, and whose elements are in no other
        window."""
        return self.read(stored_value)

    @abstractmethod
    def merge(self, stored_value: Any, other: Any) -> Any:
        """The stored value of a window that two windows are merged into. Both stored values may be changed."""

    @abstractmethod
    def of(self, elements: list[Any]) -> Any:
        """The result of `read` for a window with these elements; the list may be empty."""

    def read_all(self, stored_values: list[Any]) -> list[Any]:
        """The result of `read` for each stored value."""
        return result_of_each(self.read, stored_values, "the result of a window")

    def as_elements(self, contents: Any) -> list[Any]:
        """The contents in the form in which a window function is given them."""
        return [contents]


class ListContents(WindowContents):
    """Keeps all elements, in the order of their arrival."""

    kind = "list"
    folds = False

    def add(self, stored: Stored, key: Any, value: Any) -> None:
        if key in stored:
            stored[key].append(value)
        else:
            stored[key] = [value]

    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        new_keys = []
        for key, value in zip(keys, values, strict=False):
            if key in stored:
                stored[key].append(value)
            else:
                stored[key] = [value]
                new_keys.append(key)
        return new_keys

    def read(self, stored_value: Any) -> Any:
        return all_detached(stored_value)

    def last(self, stored_value: Any) -> Any:
        return stored_value

    def merge(self, stored_value: Any, other: Any) -> Any:
        return [*stored_value, *other]

    def of(self, elements: list[Any]) -> Any:
        return all_detached(elements)

    def as_elements(self, contents: Any) -> list[Any]:
        return contents  # type: ignore[no-any-return]


class ReducingContents(WindowContents):
    """Keeps one element, to which ``reduce(old, new)`` reduces all."""

    kind = "reducing"

    def __init__(self, reduce: Callable[[Any, Any], Any]) -> None:
        self._reduce = reduce

    def add(self, stored: Stored, key: Any, value: Any) -> None:
        stored[key] = self._reduce(stored[key], value) if key in stored else value

    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        reduce = self._reduce
        new_keys = []
        for key, value in zip(keys, values, strict=False):
            if key in stored:
                stored[key] = reduce(stored[key], value)
            else:
                stored[key] = value
                new_keys.append(key)
        return new_keys

    def read(self, stored_value: Any) -> Any:
        return detached(stored_value)

    def merge(self, stored_value: Any, other: Any) -> Any:
        return self._reduce(stored_value, other)

    def of(self, elements: list[Any]) -> Any:
        return detached(reduce(self._reduce, all_detached(elements))) if elements else None


class AggregatingContents(WindowContents):
    """Keeps an accumulator: ``add(value, accumulator)`` returns the next one, and ``get_result`` its result."""

    kind = "aggregating"

    def __init__(self, function: AggregateFunction) -> None:
        self._create = function.create_accumulator
        self._add = function.add
        self._get_result = function.get_result
        self._merge = function.merge

    def add(self, stored: Stored, key: Any, value: Any) -> None:
        stored[key] = self._add(value, stored[key] if key in stored else detached(self._create()))

    def add_all(self, stored: Stored, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        add, create = self._add, self._create
        new_keys = []
        for key, value in zip(keys, values, strict=False):
            if key in stored:
                stored[key] = add(value, stored[key])
            else:
                stored[key] = add(value, detached(create()))
                new_keys.append(key)
        return new_keys

    def read(self, stored_value: Any) -> Any:
        accumulator = detached(stored_value)
        result = self._get_result(accumulator)
        # an accumulator that is its own copy cannot change
        return result if result is stored_value else handed_over(result)

    def last(self, stored_value: Any) -> Any:
        result = self._get_result(stored_value)
        return handed_over(result)

    def merge(self, stored_value: Any, other: Any) -> Any:
        return self._merge(stored_value, other)

    def of(self, elements: list[Any]) -> Any:
        accumulator = detached(self._create())
        for element in elements:  # the accumulator may be the first element, and be changed by the next ones
            accumulator = self._add(detached(element), accumulator)
        return self.last(accumulator)


@dataclass(frozen=True)
class WindowLogic:
    """The user's functions of one windowed stream, which can be pickled: how the elements of a key and window are
    folded, and the window function that receives the result.

    * If ``fold`` is None, the window keeps all elements, and there must be a window function.
    * If ``window_function`` is None, the folded value itself is emitted.

    Raises:
        ProgramError: neither is given.
    """

    fold: ReduceFunction | AggregateFunction | Callable[[Any, Any], Any] | None = None
    #: a window function of any kind, or None (see `WindowEvaluator`)
    window_function: Any = None

    def __post_init__(self) -> None:
        if self.fold is None and self.window_function is None:
            raise ProgramError("a window has no function", expected="reduce, aggregate, apply or process")

    def contents(self) -> WindowContents:
        """The contents that fit the functions: a list, a reduced value or an accumulator."""
        fold = self.fold
        if fold is None:
            return ListContents()
        if isinstance(fold, AggregateFunction):
            return AggregatingContents(fold)
        return ReducingContents(fold.reduce if isinstance(fold, ReduceFunction) else fold)

    def functions(self) -> list[Function]:
        """The functions that have a lifecycle, in the order in which they are opened."""
        return [function for function in (self.fold, self.window_function) if isinstance(function, Function)]


def namespace_of(window: Window) -> Hashable:
    """The form of a window as the namespace of state and timers.

    Windows of flinkish become plain tuples, told apart by their length: compact, hashed by C code, and readable in a
    savepoint without this package. A window of a user's own class is used as it is, so it must be hashable and
    picklable.

    >>> namespace_of(TimeWindow(0, 10)), namespace_of(CountWindow(3)), namespace_of(GlobalWindow.get())
    ((0, 10), (3,), ())
    """
    kind = type(window)
    if kind is TimeWindow:
        return (window.start, window.end)  # type: ignore[attr-defined]
    if kind is CountWindow:
        return (window.id,)  # type: ignore[attr-defined]
    if kind is GlobalWindow:
        return ()
    return window


def window_of(namespace: Any) -> Window:
    """The inverse of :func:`namespace_of`.

    >>> window_of((0, 10))
    TimeWindow(start=0, end=10)
    """
    if type(namespace) is not tuple:
        return namespace  # type: ignore[no-any-return]
    if len(namespace) == 2:
        return TimeWindow(*namespace)
    return CountWindow(*namespace) if namespace else GlobalWindow.get()


class WindowTime:
    """Decides when windows and elements of one operator are late, and when windows are cleaned up, as in Flink's
    ``WindowOperator``. All times are in ms.

    A window is *late* when nothing can change it any more, because the watermark has reached its clean-up time, which
    is its last timestamp plus the allowed lateness. Its state is gone by then, so an element for it must not bring it
    back.

    >>> from flinkish.core.window.window import TimeWindow
    >>> time = WindowTime(event_time=True, allowed_lateness_ms=5)
    >>> time.cleanup_ms(TimeWindow(0, 10)), time.is_window_late(TimeWindow(0, 10), watermark_ms=14)
    (14, True)
    """

    def __init__(self, event_time: bool, allowed_lateness_ms: int) -> None:
        self._event_time = event_time
        self._allowed_lateness_ms = allowed_lateness_ms

    def cleanup_ms(self, window: Window) -> int:
        """The time at which the window's state is deleted; ``MAX_WATERMARK_MS`` means never (Flink's rule for a sum
        that overflows)."""
        if not self._event_time:
            return window.max_timestamp()
        # Python's integers do not overflow: the minimum does what Flink's check for it does
        return min(window.max_timestamp() + self._allowed_lateness_ms, MAX_WATERMARK_MS)

    def is_window_late(self, window: Window, watermark_ms: int) -> bool:
        """Whether the window's state is already gone, in event time; False in processing time."""
        return self._event_time and self.cleanup_ms(window) <= watermark_ms

    def is_element_late(self, timestamp_ms: int, watermark_ms: int) -> bool:
        """Whether the element itself is behind the watermark by at least the allowed lateness, in event time."""
        return self._event_time and timestamp_ms + self._allowed_lateness_ms <= watermark_ms
