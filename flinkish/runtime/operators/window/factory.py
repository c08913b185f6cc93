"""Describes a window operator and makes it; the window functions of window joins and co-groups are here, too. The API
uses window operators through this module alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.detach import all_detached, detached
from flinkish.core.co_functions import CoGroupFunction, FlatJoinFunction, JoinFunction
from flinkish.core.functions import Function, RuntimeContext, WindowFunction
from flinkish.core.window.assigner import MergingWindowAssigner, WindowAssigner
from flinkish.core.window.evictor import Evictor
from flinkish.core.window.trigger import Trigger, traits_of
from flinkish.core.window.window import Window
from flinkish.errors import ProgramError, TypeMismatchError
from flinkish.runtime.job.outputs import Converter
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.event_time_operators import AlignedEventTimeOperator, SessionEventTimeOperator
from flinkish.runtime.operators.window.merging_window_operator import MergingWindowOperator
from flinkish.runtime.operators.window.window_operator import WindowOperator


class _OfBoth(WindowFunction[Any, Any, Any, Window]):
    """Base of the window functions of window joins and co-groups (Flink's ``JoinedStreams`` and ``CoGroupedStreams``),
    which are windows over the union of two streams: their elements are (0, record of the first stream) and (1, record
    of the second stream). Separates the records of both streams, and opens and closes the user's function."""

    def __init__(self, function: Function | Callable[..., Any]) -> None:
        self.function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self.function, Function):
            self.function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    @staticmethod
    def separated(elements: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        """The records of the first stream and of the second, each in the order of their arrival."""
        both: tuple[list[Any], list[Any]] = ([], [])
        for side, value in elements:
            both[side].append(value)
        return both


class CoGroupWindowFunction(_OfBoth):
    """Calls a CoGroupFunction, or a callable with the same arguments, for each window."""

    def apply(self, key: Any, window: Window, inputs: Iterable[Any]) -> Iterable[Any]:
        first, second = self.separated(inputs)
        call: Any = self.function.co_group if isinstance(self.function, CoGroupFunction) else self.function
        found: Iterable[Any] = call(all_detached(first), all_detached(second))
        return found


class JoinWindowFunction(_OfBoth):
    """Calls a JoinFunction, a FlatJoinFunction, or a callable with the arguments and result of ``JoinFunction.join``,
    for each pair of records in a window."""

    def apply(self, key: Any, window: Window, inputs: Iterable[Any]) -> Iterator[Any]:
        first, second = self.separated(inputs)
        function = self.function
        join: Any = function.join if isinstance(function, (JoinFunction, FlatJoinFunction)) else function
        flat = isinstance(function, FlatJoinFunction)
        for one in first:
            for other in second:
                # each record is in several pairs, and what is done to the result of one must not change the others
                iterable = result = join(detached(one), detached(other))
                if flat:
                    yield from iterable or ()
                elif result is None:
                    raise TypeMismatchError(
                        f"the join function returned None (key {abbreviated(key)})",
                        expected="a value",
                        hint="use a FlatJoinFunction to drop pairs",
                    )
                else:
                    yield result


@dataclass
class WindowOperatorFactory:
    """Describes the windows of one windowed stream and makes their operator. Picklable by cloudpickle. A stream without
    keys runs under a constant key.

    Raises:
        ProgramError: the allowed lateness is negative.
    """

    assigner: WindowAssigner[Any, Any]
    #: the program's trigger, or the assigner's default one
    trigger: Trigger[Any, Any]
    window_logic: WindowLogic
    allowed_lateness_ms: int = 0
    #: side output for late elements; None: they are dropped and counted in ``numLateRecordsDropped``
    late_tag_id: str | None = None
    #: converts results to the output type; None: there is nothing to convert
    converter: Converter | None = None
    #: removes elements from windows that fire; None: all elements stay
    evictor: Evictor[Any] | None = None

    keyed: bool = field(default=True, init=False)
    has_operator_state: bool = field(default=False, init=False)
    guarded: bool = field(default=False, init=False)
    takes_misfits: bool = field(default=True, init=False)
    forwards_records: bool = field(default=False, init=False)
    reads_timestamps: bool = field(default=True, init=False)
    watermark_sensitive: bool = field(init=False)
    merges_windows: bool = field(init=False)
    uses_processing_time: bool = field(init=False)
    has_timers: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.allowed_lateness_ms < 0:
            raise ProgramError(
                f"an allowed lateness of {self.allowed_lateness_ms} ms", expected="a lateness of 0 ms or more"
            )
        traits = traits_of(self.trigger)
        self.watermark_sensitive = traits.sees_watermarks
        self.merges_windows = isinstance(self.assigner, MergingWindowAssigner) and self.assigner.is_event_time()
        self.uses_processing_time = traits.uses_processing_time or self.assigner.needs_processing_time()

    def create_by_record(self) -> WindowOperator:
        """A new operator that works record by record and timer by timer. Its state has the same form as that of
        `create`."""
        return MergingWindowOperator(self) if isinstance(self.assigner, MergingWindowAssigner) else WindowOperator(self)

    def create(self) -> WindowOperator:
        """A new operator: the fastest one that can process these windows."""
        if SessionEventTimeOperator.handles(self):
            return SessionEventTimeOperator(self)
        if AlignedEventTimeOperator.handles(self):
            return AlignedEventTimeOperator(self)
        return self.create_by_record()
