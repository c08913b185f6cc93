"""WindowedStream: a keyed stream grouped into windows; its methods add the one window operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.types import declared_type
from flinkish.core.functions import AggregateFunction, ProcessWindowFunction, ReduceFunction, WindowFunction
from flinkish.core.output_tag import OutputTag
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.trigger import Trigger
from flinkish.datastream.streams.data_stream import DataStream, DeclaredType, _check_function, _kind
from flinkish.runtime.operators.window.window_operator_factory import WindowOperatorFactory
from flinkish.runtime.windowing.window_logic import WindowLogic

if TYPE_CHECKING:
    from flinkish.datastream.stream_execution_environment import StreamExecutionEnvironment
    from flinkish.datastream.streams.keyed_stream import KeyedStream

AnyWindowFunction = WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any]


class WindowedStream:
    """What ``KeyedStream.window`` gives.

    Example: count and sum per page and minute::

        ds.key_by(lambda e: e.page).window(TumblingEventTimeWindows.of(Time.minutes(1))).aggregate(CountAndSum())
    """

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(f"the window assigner is {_kind(window_assigner)}; expected a WindowAssigner")
        self._keyed_stream = keyed_stream
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._allowed_lateness_ms = 0
        self._late_tag: OutputTag | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """The type of the records in the windows."""
        return self._keyed_stream.get_type()

    def trigger(self, trigger: Trigger[Any, Any]) -> WindowedStream:
        """When windows are evaluated; without it by the assigner's own trigger."""
        if not isinstance(trigger, Trigger):
            raise TypeError(f"the trigger is {_kind(trigger)}; expected a Trigger")
        self._trigger = trigger
        return self

    def allowed_lateness(self, time_ms: int) -> WindowedStream:
        """How long after its end (ms of event time) a window still takes late records and is evaluated again."""
        self._allowed_lateness_ms = time_ms
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> WindowedStream:
        """Where records go that come too late for any window; without it they are counted and dropped."""
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"the output tag is {_kind(output_tag)}; expected an OutputTag")
        self._late_tag = output_tag
        return self

    def reduce(
        self,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: AnyWindowFunction | None = None,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Reduce the records of a window as they come. Without ``window_function`` the result has the input's type
        unless ``output_type`` says otherwise; with it the function gets the one reduced value."""
        _check_function(reduce_function, ReduceFunction)
        if window_function is None and output_type is None:
            output_type = self.get_input_type()
        logic = WindowLogic(reduce_function, _checked(window_function))
        return self._evaluate(logic, output_type, reduce_function, window_function)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: AnyWindowFunction | None = None,
        accumulator_type: DeclaredType = None,
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Aggregate the records of a window as they come. ``accumulator_type`` must be a type if it is given, and has
        no other effect: accumulators are kept as the Python objects that they are."""
        if not isinstance(aggregate_function, AggregateFunction):
            raise TypeError(f"the aggregate function is {_kind(aggregate_function)}; expected an AggregateFunction")
        declared_type(accumulator_type)
        logic = WindowLogic(aggregate_function, _checked(window_function))
        return self._evaluate(logic, output_type, aggregate_function, window_function)

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: DeclaredType = None
    ) -> DataStream:
        """Evaluate a function over all records of a window, which are kept until then."""
        if not isinstance(window_function, WindowFunction):
            raise TypeError(f"window_function should be a WindowFunction, not {_kind(window_function)}")
        return self._evaluate(WindowLogic(None, window_function), output_type, window_function)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Evaluate a function with state and time over all records of a window, which are kept until then."""
        if not isinstance(process_window_function, ProcessWindowFunction):
            raise TypeError(f"the function should be a ProcessWindowFunction, not {_kind(process_window_function)}")
        return self._evaluate(WindowLogic(None, process_window_function), output_type, process_window_function)

    def _evaluate(self, logic: WindowLogic, output_type: DeclaredType, *functions: Any) -> DataStream:
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
        )
        names = ", ".join(type(function).__name__ for function in functions if function is not None)
        description = f"Window({self._assigner}, {type(trigger).__name__}, {names})"
        return self._keyed_stream._add_operator(name, factory, declared).set_description(description)


def _checked(window_function: Any) -> Any:
    if window_function is not None and not isinstance(window_function, (WindowFunction, ProcessWindowFunction)):
        raise TypeError("window_function should be a WindowFunction or ProcessWindowFunction")
    return window_function
