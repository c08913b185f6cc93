"""KeyedStream: a stream partitioned by key, whose operators have keyed state and timers.

PyFlink's KeyedStream physically is a stream of ``Row(key, value)``. This one consists of the original records,
partitioned by key; the Row is made only where a user sees it in PyFlink, too (``sink_to``, ``execute_and_collect``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from flinkish.common.arguments import check_instance, check_methods_take
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.types import Row
from flinkish.core.checkpointed_function import CheckpointedFunction, OnError
from flinkish.core.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
    opens,
)
from flinkish.core.sink import Sink
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.counts import count_windows
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.data_stream import DataStream, DeclaredType
from flinkish.datastream.streams.key_function import KeyFunction, check_function
from flinkish.datastream.streams.operator_stream import unsupported
from flinkish.errors import UnsupportedOperationError
from flinkish.graph.stream_graph import StreamNode, Tap
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.functions import FilterFactory, FlatMapFactory, MapFactory
from flinkish.runtime.operators.keyed_process import KeyedProcessFactory
from flinkish.runtime.operators.reduce import AccumulateType as _AccumulateType
from flinkish.runtime.operators.reduce import ReduceFactory, RollingAggregation, RollingAggregationFactory

if TYPE_CHECKING:
    from flinkish.datastream.streams.joins import IntervalJoin
    from flinkish.datastream.streams.results import CloseableIterator
    from flinkish.datastream.streams.sinks import DataStreamSink
    from flinkish.datastream.streams.windowed_stream import WindowedStream

#: PyFlink's name of all rolling aggregations, and those that plans and tasks have here.
_REDUCE = "Reduce"
_NAMES = {kind: kind.name.title().replace("_", " ") for kind in _AccumulateType}


class KeyedStream(DataStream):
    """A stream partitioned by key, as ``key_by`` gives it. Since it is not the output of an operator, setting an
    operator's name, uid or parallelism on it raises UnsupportedOperationError, as in PyFlink; so does repartitioning.

    Example::

        env.from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(lambda pair: pair[0]).sum(1).print()
    """

    AccumulateType: TypeAlias = _AccumulateType

    def __init__(self, origin: DataStream, key_selector: KeyFunction, key_type: TypeInformation) -> None:
        taps = [replace(tap, partitioner=None, key_selector=key_selector) for tap in origin._taps]
        super().__init__(origin._env, taps, origin._type)
        self._origin = origin
        self._key_selector = key_selector
        self._key_type = key_type

    def get_type(self) -> TypeInformation:
        """The type of ``Row(key, value)``, the form in which users see the records, as in PyFlink."""
        return RowTypeInfo([self._key_type, self._type])

    # --- operators ----------------------------------------------------------------------------------------------

    def map(self, func: MapFunction | Callable[[Any], Any], output_type: DeclaredType = None) -> DataStream:
        """Call a function for each record, which gives one result. A MapFunction can use keyed state."""
        check_function(func, MapFunction, self._place("map"))
        keyed = _can_use_state(func)
        return self._transform("Map", lambda converter: MapFactory(func, keyed, converter), output_type)

    def flat_map(self, func: FlatMapFunction | Callable[[Any], Any], output_type: DeclaredType = None) -> DataStream:
        """Call a function for each record, which gives any number of results. A FlatMapFunction can use keyed state."""
        check_function(func, FlatMapFunction, self._place("flat_map"))
        keyed = _can_use_state(func)
        return self._transform("FlatMap", lambda converter: FlatMapFactory(func, keyed, converter), output_type)

    def filter(self, func: FilterFunction | Callable[[Any], Any]) -> DataStream:
        """Keep the records for which the function returns a true value. A FilterFunction can use keyed state."""
        check_function(func, FilterFunction, self._place("filter"))
        return self._add_operator("Filter", FilterFactory(func, _can_use_state(func)), self._type)

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction, output_type: DeclaredType = None
    ) -> DataStream:
        """Call a function for each record and each timer, which gives any number of results, and has access to keyed
        state, timers and side outputs.

        Example::

            class Count(KeyedProcessFunction):
                def open(self, runtime_context):
                    self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

                def process_element(self, value, ctx):
                    count = (self.count.value() or 0) + 1
                    self.count.update(count)
                    yield ctx.get_current_key(), count

            ds.key_by(lambda e: e.user).process(Count())
        """
        check_instance(
            func,
            KeyedProcessFunction,
            "KeyedProcessFunction is required for KeyedStream, not",
            self._place("process"),
            "derive it from KeyedProcessFunction, which also has timers and the key",
        )
        check_methods_take(func, KeyedProcessFunction, self._place("process"))
        return self._transform("KEYED PROCESS", lambda converter: KeyedProcessFactory(func, converter), output_type)

    def reduce(self, func: ReduceFunction | Callable[[Any, Any], Any]) -> DataStream:
        """Combine each record with the value reduced so far for its key, and emit the new value. In BATCH mode only the
        last value of each key is emitted. Example: ``ds.key_by(key).reduce(lambda old, new: max(old, new))``."""
        check_function(func, ReduceFunction, self._place("reduce"))
        return self._rolling(_REDUCE, ReduceFactory(func, self._type.batch_converter(f"results of '{_REDUCE}'")))

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """For each record, emit the first record of its key with the sum so far at this position (or field name)."""
        return self._aggregate(_AccumulateType.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """For each record, emit the first record of its key with the smallest value so far at this position (or field
        name)."""
        return self._aggregate(_AccumulateType.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """For each record, emit the first record of its key with the greatest value so far at this position (or field
        name)."""
        return self._aggregate(_AccumulateType.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """For each record, emit the record of its key with the smallest value so far at this position (or field name);
        of several such records the first one."""
        return self._aggregate(_AccumulateType.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """For each record, emit the record of its key with the greatest value so far at this position (or field name);
        of several such records the first one."""
        return self._aggregate(_AccumulateType.MAX_BY, position_to_max_by)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Group the records of each key into windows, such as ``TumblingEventTimeWindows.of(Time.minutes(1))``."""
        from flinkish.datastream.streams.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Group the records of each key into windows of ``size`` records. With the slide 0 each window begins where the
        one before ends, else at every ``slide``-th record. A window fires when it is full, and is then purged."""
        from flinkish.datastream.streams.windowed_stream import WindowedStream

        return WindowedStream(self, count_windows(size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Join the records with those of another keyed stream that have the same key and a timestamp within bounds
        around their own."""
        from flinkish.datastream.streams.joins import IntervalJoin

        return IntervalJoin(self, other_stream)

    def key_by(self, key_selector: KeySelector | KeyFunction, key_type: TypeInformation | None = None) -> KeyedStream:
        """Partition the original stream by another key instead."""
        return self._origin.key_by(key_selector, key_type)

    # --- sinks: PyFlink's KeyedStream is a stream of Row(key, value), and here users see it -----------------------

    def sink_to(self, sink: Sink | Callable[..., None]) -> DataStreamSink:
        """Write the records to a sink as ``Row(key, value)``, as in PyFlink; ``add_sink`` and ``print`` write the value
        alone."""
        return self._rows().sink_to(sink)

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the job and return the records, as on a DataStream. They have the form ``Row(f0=key, f1=value)``, as in
        PyFlink."""
        return self._rows().execute_and_collect(job_execution_name, limit)

    # --- settings of operators, and repartitioning, which would undo key_by: they raise as in PyFlink -------------

    def get_name(self) -> NoReturn:
        self._refuse("Get name of KeyedStream", "get_name")

    def name(self, name: str) -> NoReturn:
        self._refuse("Set name for KeyedStream", "name")

    def uid(self, uid: str) -> NoReturn:
        self._refuse("Set uid for KeyedStream", "uid")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        self._refuse("Set uid hash for KeyedStream", "set_uid_hash")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        self._refuse("Set parallelism for KeyedStream", "set_parallelism")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        self._refuse("Set max parallelism for KeyedStream", "set_max_parallelism")

    def force_non_parallel(self) -> NoReturn:
        self._refuse("Set force non-parallel for KeyedStream", "force_non_parallel")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        self._refuse("Set buffer timeout for KeyedStream", "set_buffer_timeout")

    def cache(self) -> NoReturn:
        self._refuse("Cache for KeyedStream", "cache")

    def start_new_chain(self) -> NoReturn:
        self._refuse("Start new chain for KeyedStream", "start_new_chain")

    def disable_chaining(self) -> NoReturn:
        self._refuse("Disable chaining for KeyedStream", "disable_chaining")

    def on_error(self, on_error: OnError) -> NoReturn:
        self._refuse("Setting on_error for KeyedStream", "on_error")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> NoReturn:
        self._refuse("Setting slot sharing group for KeyedStream", "slot_sharing_group")

    def _partitioned(self, partitioner: Any) -> NoReturn:
        raise UnsupportedOperationError(
            "Cannot override partitioning for KeyedStream.",
            where=self._place("key_by"),
            expected="an operator behind key_by(), which sends each key to one subtask",
            hint="repartition before key_by(), or behind the next operator",
        )

    def _refuse(self, what: str, method: str) -> NoReturn:
        raise unsupported(self, what, method, "call it on the operator before key_by(), or on the one behind it")

    # --- the inside ---------------------------------------------------------------------------------------------

    def _add_node(
        self, name: str, factory: OperatorFactory, output_type: TypeInformation, **settings: Any
    ) -> StreamNode:
        """Add an operator. If it can use keyed state, it gets a state backend; any other operator only gets the records
        partitioned by key."""
        if factory.keyed:
            settings["key_selectors"] = (self._key_selector,)
            settings["key_type"] = self._key_type
        return super()._add_node(name, factory, output_type, **settings)

    def _aggregate(self, accumulate_type: _AccumulateType, position: int | str) -> DataStream:
        RollingAggregation(accumulate_type, position)  # refuses a wrong position now, and not only in the job
        name = _NAMES[accumulate_type]
        converter = self._type.batch_converter(f"results of '{name}'")
        return self._rolling(name, RollingAggregationFactory(accumulate_type, position, converter))

    def _rolling(self, name: str, factory: OperatorFactory) -> DataStream:
        node = self._add_node(name, factory, self._type, pyflink_name=None if name == _REDUCE else _REDUCE)
        return DataStream(self._env, [Tap(node)], self._type, [node])

    def _rows(self) -> DataStream:
        """The stream of ``Row(key, value)``, still partitioned by key."""
        select = self._key_selector
        row_type = RowTypeInfo([self._key_type, self._type])
        rows = self._origin.map(lambda value: Row(select(value), value), row_type)
        rows.name("_stream_key_by_map_operator")
        taps = [replace(tap, key_selector=itemgetter(0)) for tap in rows._taps]
        return DataStream(self._env, taps, row_type)


def _can_use_state(func: Any) -> bool:
    """Whether a function can use state. Only ``open`` and ``initialize_state`` give access to it, so a function with
    neither needs no state backend."""
    return opens(func) or isinstance(func, Function) and isinstance(func, CheckpointedFunction)
