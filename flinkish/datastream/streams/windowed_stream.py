"""WindowedStream and AllWindowedStream: streams grouped into windows, whose methods add the window operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from flinkish.common.arguments import check_at_least, check_instance, check_methods_take, kind_of
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.types import declared_type
from flinkish.core.functions import (
    AggregateFunction,
    AllWindowFunction,
    Function,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from flinkish.core.window.assigner import MergingWindowAssigner, WindowAssigner
from flinkish.core.window.evictor import Evictor
from flinkish.core.window.trigger import Trigger
from flinkish.datastream.streams.data_stream import (
    TAG_HINT,
    DataStream,
    DeclaredType,
    refuse_checkpointed,
)
from flinkish.datastream.streams.key_function import check_function
from flinkish.errors import ProgramError
from flinkish.runtime.operators.reduce import AccumulateType, RollingAggregation
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory

if TYPE_CHECKING:
    from flinkish.datastream.stream_execution_environment import StreamExecutionEnvironment
    from flinkish.datastream.streams.keyed_stream import KeyedStream

S = TypeVar("S", bound="_Windowed")


class _Windowed:
    """Base class of both streams, with the settings of the windows and the ways to evaluate them."""

    #: the classes of the functions that `apply` and `process` take
    _function: ClassVar[type[Function]]
    _process_function: ClassVar[type[Function]]

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        check_instance(
            window_assigner,
            WindowAssigner,
            "the window assigner is",
            "window() or window_all()",
            "such as TumblingEventTimeWindows.of(Time.minutes(5))",
        )
        check_methods_take(window_assigner, WindowAssigner, "window() or window_all()")
        self._keyed_stream = keyed_stream
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any] | None = None
        self._allowed_lateness_ms = 0
        self._late_tag: OutputTag | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """The type of the records in the windows."""
        return self._keyed_stream._type

    # --- settings -----------------------------------------------------------------------------------------------

    def trigger(self: S, trigger: Trigger[Any, Any]) -> S:
        """Set when windows are evaluated; the default is the assigner's own trigger.

        Raises:
            ProgramError: the assigner merges windows, and the trigger does not support merging.
        """
        check_instance(trigger, Trigger, "the trigger is", self._place("trigger"), "such as CountTrigger.of(10)")
        check_methods_take(trigger, Trigger, self._place("trigger"))
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise ProgramError(
                "A merging window assigner cannot be used with a trigger that does not support merging",
                where=f"{self._assigner} with {kind_of(trigger)}",
                expected="a trigger whose can_merge() returns True",
                hint="implement can_merge() and on_merge(), or use windows that do not merge",
            )
        self._trigger = trigger
        return self

    def evictor(self: S, evictor: Evictor[Any]) -> S:
        """Set an evictor, which removes elements from a window before or after it is evaluated. All elements of a
        window are kept until then."""
        check_instance(evictor, Evictor, "the evictor is", self._place("evictor"), "such as CountEvictor.of(10)")
        check_methods_take(evictor, Evictor, self._place("evictor"))
        self._evictor = evictor
        return self

    def allowed_lateness(self: S, time_ms: int) -> S:
        """Set how long after its end, in ms of event time, a window still takes late records and is evaluated again.
        Raises ArgumentValueError below 0."""
        check_at_least(
            time_ms, 0, "the allowed lateness", self._place("allowed_lateness"), "it is a number of milliseconds", "ms"
        )
        self._allowed_lateness_ms = time_ms
        return self

    def side_output_late_data(self: S, output_tag: OutputTag) -> S:
        """Send records that come too late for any window to a side output; without it they are counted and dropped."""
        check_instance(output_tag, OutputTag, "the output tag is", self._place("side_output_late_data"), TAG_HINT)
        self._late_tag = output_tag
        return self

    # --- aggregations of one field ------------------------------------------------------------------------------

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Emit the first record of each window with the sum at this position (or field name)."""
        return self._aggregate(RollingAggregation(AccumulateType.SUM, position_to_sum))

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Emit the first record of each window with the smallest value at this position (or field name)."""
        return self._aggregate(RollingAggregation(AccumulateType.MIN, position_to_min))

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Emit the first record of each window with the greatest value at this position (or field name)."""
        return self._aggregate(RollingAggregation(AccumulateType.MAX, position_to_max))

    def min_by(self, position_to_min_by: int | str = 0, first: bool = True) -> DataStream:
        """Emit the record of each window with the smallest value at this position (or field name). ``first`` chooses
        the first or the last of several such records."""
        return self._aggregate(RollingAggregation(AccumulateType.MIN_BY, position_to_min_by, first))

    def max_by(self, position_to_max_by: int | str = 0, first: bool = True) -> DataStream:
        """Emit the record of each window with the greatest value at this position (or field name). ``first`` chooses
        the first or the last of several such records."""
        return self._aggregate(RollingAggregation(AccumulateType.MAX_BY, position_to_max_by, first))

    # --- the inside ---------------------------------------------------------------------------------------------

    def _aggregate(self, function: RollingAggregation) -> DataStream:
        return self._evaluate(WindowLogic(function), self.get_input_type(), function)

    def _reduce(self, reduce_function: Any, window_function: Any, output_type: DeclaredType) -> DataStream:
        check_function(reduce_function, ReduceFunction, self._place("reduce"))
        if window_function is None and output_type is None:
            output_type = self.get_input_type()
        logic = WindowLogic(reduce_function, self._checked(window_function, "reduce"))
        return self._evaluate(logic, output_type, reduce_function, window_function)

    def _accumulate(
        self, aggregate_function: Any, window_function: Any, accumulator_type: DeclaredType, output_type: DeclaredType
    ) -> DataStream:
        check_instance(
            aggregate_function,
            AggregateFunction,
            "the aggregate function is",
            self._place("aggregate"),
            "derive it from AggregateFunction; plain functions go to reduce()",
        )
        check_methods_take(aggregate_function, AggregateFunction, self._place("aggregate"))
        declared_type(accumulator_type)
        logic = WindowLogic(aggregate_function, self._checked(window_function, "aggregate"))
        return self._evaluate(logic, output_type, aggregate_function, window_function)

    def _apply(self, window_function: Any, output_type: DeclaredType) -> DataStream:
        self._check_window_function(window_function, "apply", self._function)
        return self._evaluate(WindowLogic(None, window_function), output_type, window_function)

    def _process(self, function: Any, output_type: DeclaredType) -> DataStream:
        self._check_window_function(function, "process", self._process_function)
        return self._evaluate(WindowLogic(None, function), output_type, function)

    def _checked(self, window_function: Any, method: str) -> Any:
        if window_function is not None:
            self._check_window_function(window_function, method, self._function, self._process_function)
        return window_function

    def _check_window_function(self, function: Any, method: str, *kinds: type[Function]) -> None:
        names = " or ".join(kind.__name__ for kind in kinds)
        check_instance(
            function,
            kinds,
            f"window_function should be a {names}, not",
            self._place(method),
            f"keyed windows take a {WindowFunction.__name__} or a {ProcessWindowFunction.__name__}, windows of all "
            f"records an {AllWindowFunction.__name__} or a {ProcessAllWindowFunction.__name__}",
        )
        for kind in kinds:
            if isinstance(function, kind):
                check_methods_take(function, kind, self._place(method))

    def _place(self, method: str) -> str:
        """The place of a call in the program, for error messages."""
        return f"{type(self).__name__}.{method}() with {self._assigner}"

    def _evaluate(self, logic: WindowLogic, output_type: DeclaredType, *functions: Any) -> DataStream:
        refuse_checkpointed(*functions)
        trigger = self._trigger or self._assigner.get_default_trigger(self.get_execution_environment())
        name = type(self._assigner).__name__
        declared = declared_type(output_type)
        factory = WindowOperatorFactory(
            self._assigner,
            trigger,
            logic,
            self._allowed_lateness_ms,
            None if self._late_tag is None else self._late_tag.tag_id,
            declared.batch_converter(f"results of '{name}'"),
            self._evictor,
        )
        parts = [str(self._assigner), type(trigger).__name__]
        parts += [type(part).__name__ for part in (self._evictor, *functions) if part is not None]
        description = f"Window({', '.join(parts)})"
        return self._keyed_stream._add_operator(name, factory, declared).set_description(description)


class WindowedStream(_Windowed):
    """A keyed stream grouped into windows, as ``KeyedStream.window`` and ``KeyedStream.count_window`` give it.

    Example: count and sum per page and minute::

        ds.key_by(lambda e: e.page).window(TumblingEventTimeWindows.of(Time.minutes(1))).aggregate(CountAndSum())
    """

    _function = WindowFunction
    _process_function = ProcessWindowFunction

    def reduce(
        self,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any] | None = None,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Reduce the records of each window incrementally, as they come.

        Args:
            reduce_function: (value so far, record) -> new value.
            window_function: a function that gets the one reduced value of the window; None: this value is the result.
            output_type: the type of the results; None: the type of the input, or with a ``window_function`` any Python
                object.
        """
        return self._reduce(reduce_function, window_function, output_type)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any] | None = None,
        accumulator_type: DeclaredType = None,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Aggregate the records of each window incrementally, as they come.

        Args:
            aggregate_function: makes an accumulator, adds records to it, and gives its result.
            window_function: a function that gets the one result of the window; None: this result is emitted.
            accumulator_type: a type, which has no effect: accumulators are kept as Python objects.
            output_type: the type of the emitted results; None: any Python object.
        """
        return self._accumulate(aggregate_function, window_function, accumulator_type, output_type)

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: DeclaredType = None
    ) -> DataStream:
        """Call a function with all records of each window, which are kept until then."""
        return self._apply(window_function, output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Call a function with all records of each window, which are kept until then. The function has access to state
        and time."""
        return self._process(process_window_function, output_type)


class AllWindowedStream(_Windowed):
    """A stream grouped into windows over all records, regardless of keys, as ``DataStream.window_all`` and
    ``DataStream.count_window_all`` give it. The window operator has one subtask.

    Example: the number of records per minute::

        ds.window_all(TumblingEventTimeWindows.of(Time.minutes(1))).aggregate(Count())
    """

    _function = AllWindowFunction
    _process_function = ProcessAllWindowFunction

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(data_stream.key_by(_one_key, Types.INT()), window_assigner)

    def reduce(
        self,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any] | None = None,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Reduce the records of each window incrementally, as `WindowedStream.reduce` does."""
        return self._reduce(reduce_function, window_function, output_type)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any] | None = None,
        accumulator_type: DeclaredType = None,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Aggregate the records of each window incrementally, as `WindowedStream.aggregate` does."""
        return self._accumulate(aggregate_function, window_function, accumulator_type, output_type)

    def apply(self, window_function: AllWindowFunction[Any, Any, Any], output_type: DeclaredType = None) -> DataStream:
        """Call a function with all records of each window, which are kept until then."""
        return self._apply(window_function, output_type)

    def process(
        self, process_window_function: ProcessAllWindowFunction[Any, Any, Any], output_type: DeclaredType = None
    ) -> DataStream:
        """Call a function with all records of each window, which are kept until then. The function has access to
        state."""
        return self._process(process_window_function, output_type)

    def _evaluate(self, logic: WindowLogic, output_type: DeclaredType, *functions: Any) -> DataStream:
        return super()._evaluate(logic, output_type, *functions).force_non_parallel()


def _one_key(value: Any) -> int:
    return 0
