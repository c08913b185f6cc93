"""KeyedStream: a stream partitioned by a key, whose operators have state and timers per key.

Where PyFlink's KeyedStream physically is a stream of ``Row(key, value)``, this one is the original stream on a way by
key; the Row is made only where a user sees it in PyFlink too (``sink_to``, ``execute_and_collect``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.types import Row
from flinkish.core.error_handling import OnError
from flinkish.core.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
)
from flinkish.core.sink import Sink
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.count_sliding import count_windows
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.data_stream import DataStream, DeclaredType, _check_function
from flinkish.datastream.streams.key_function import KeyFunction
from flinkish.graph.stream_graph import StreamNode
from flinkish.runtime.operator import OperatorFactory
from flinkish.runtime.operators.filter import FilterFactory
from flinkish.runtime.operators.flat_map import FlatMapFactory
from flinkish.runtime.operators.keyed_process import KeyedProcessFactory
from flinkish.runtime.operators.map import MapFactory
from flinkish.runtime.operators.reduce import ReduceFactory
from flinkish.runtime.operators.rolling_aggregations import (
    AccumulateType as _AccumulateType,
)
from flinkish.runtime.operators.rolling_aggregations import (
    RollingAggregation,
    RollingAggregationFactory,
)

if TYPE_CHECKING:
    from flinkish.datastream.streams.closeable_iterator import CloseableIterator
    from flinkish.datastream.streams.data_stream_sink import DataStreamSink
    from flinkish.datastream.streams.interval_join import IntervalJoin
    from flinkish.datastream.streams.windowed_stream import WindowedStream


class KeyedStream(DataStream):
    """The stream that ``key_by`` gives. It is no operator's output: settings and repartitioning raise as in PyFlink."""

    AccumulateType: TypeAlias = _AccumulateType

    def __init__(self, origin: DataStream, key_selector: KeyFunction, key_type: TypeInformation) -> None:
        taps = [replace(tap, partitioner=None, key_selector=key_selector) for tap in origin._taps]
        super().__init__(origin._env, taps, origin._type)
        self._origin = origin
        self._key_selector = key_selector
        self._key_type = key_type

    # --- operators ----------------------------------------------------------------------------------------------

    def map(self, func: MapFunction | Callable[[Any], Any], output_type: DeclaredType = None) -> DataStream:
        """One result for each record. A MapFunction can use state of the record's key."""
        _check_function(func, MapFunction)
        keyed = _can_use_state(func)
        return self._transform("Map", lambda converter: MapFactory(func, keyed, converter), output_type)

    def flat_map(self, func: FlatMapFunction | Callable[[Any], Any], output_type: DeclaredType = None) -> DataStream:
        """Any number of results for each record. A FlatMapFunction can use state of the record's key."""
        _check_function(func, FlatMapFunction)
        keyed = _can_use_state(func)
        return self._transform("Flat Map", lambda converter: FlatMapFactory(func, keyed, converter), output_type)

    def filter(self, func: FilterFunction | Callable[[Any], Any]) -> DataStream:
        """The records for which the function is true. A FilterFunction can use state of the record's key."""
        _check_function(func, FilterFunction)
        return self._add_operator("Filter", FilterFactory(func, _can_use_state(func)), self._type)

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction, output_type: DeclaredType = None
    ) -> DataStream:
        """Any number of results for each record and timer, with state, timers and side outputs."""
        if not isinstance(func, KeyedProcessFunction):
            raise TypeError("KeyedProcessFunction is required for KeyedStream.")
        return self._transform("KEYED PROCESS", lambda converter: KeyedProcessFactory(func, converter), output_type)

    def reduce(self, func: ReduceFunction | Callable[[Any, Any], Any]) -> DataStream:
        """Each record gives the value reduced so far for its key; in BATCH mode only the last one comes."""
        _check_function(func, ReduceFunction)
        return self._rolling(ReduceFactory(func, self._type.batch_converter("results of 'Reduce'")))

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The first record of the key with the sum so far at that position (or field name)."""
        return self._aggregate(_AccumulateType.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The first record of the key with the smallest value so far at that position (or field name)."""
        return self._aggregate(_AccumulateType.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The first record of the key with the greatest value so far at that position (or field name)."""
        return self._aggregate(_AccumulateType.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record with the smallest value so far at that position (or field name), the first one of several."""
        return self._aggregate(_AccumulateType.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record with the greatest value so far at that position (or field name), the first one of several."""
        return self._aggregate(_AccumulateType.MAX_BY, position_to_max_by)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Group the records of each key into windows."""
        from flinkish.datastream.streams.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Group the records of each key into windows of ``size`` records, side by side, or beginning at every
        ``slide``-th record. A window fires when it is full, and is thrown away."""
        from flinkish.datastream.streams.windowed_stream import WindowedStream

        return WindowedStream(self, count_windows(size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Join the records with those of another keyed stream whose timestamps are close to them."""
        from flinkish.datastream.streams.interval_join import IntervalJoin

        return IntervalJoin(self, other_stream)

    def key_by(self, key_selector: KeySelector | KeyFunction, key_type: TypeInformation | None = None) -> KeyedStream:
        """Partition the original stream by another key."""
        return self._origin.key_by(key_selector, key_type)

    # --- ends: PyFlink's KeyedStream is a stream of Row(key, value), and here users see it ------------------------

    def sink_to(self, sink: Sink | Callable[[Any, int], None]) -> DataStreamSink:
        """The sink gets ``Row(key, value)``, as in PyFlink; ``add_sink`` and ``print`` get the value."""
        return self._rows().sink_to(sink)

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """As on a DataStream, with the records ``Row(f0=key, f1=value)``, as in PyFlink."""
        return self._rows().execute_and_collect(job_execution_name, limit)

    # --- what belongs to operators, or would undo the partitioning: raises as in PyFlink --------------------------

    def get_name(self) -> NoReturn:
        raise Exception("Get name of KeyedStream is not supported.")

    def name(self, name: str) -> NoReturn:
        raise Exception("Set name for KeyedStream is not supported.")

    def uid(self, uid: str) -> NoReturn:
        raise Exception("Set uid for KeyedStream is not supported.")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        raise Exception("Set uid hash for KeyedStream is not supported.")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        raise Exception("Set parallelism for KeyedStream is not supported.")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        raise Exception("Set max parallelism for KeyedStream is not supported.")

    def force_non_parallel(self) -> NoReturn:
        raise Exception("Set force non-parallel for KeyedStream is not supported.")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        raise Exception("Set buffer timeout for KeyedStream is not supported.")

    def cache(self) -> NoReturn:
        raise Exception("Cache for KeyedStream is not supported.")

    def start_new_chain(self) -> NoReturn:
        raise Exception("Start new chain for KeyedStream is not supported.")

    def disable_chaining(self) -> NoReturn:
        raise Exception("Disable chaining for KeyedStream is not supported.")

    def on_error(self, on_error: OnError) -> NoReturn:
        raise Exception("Setting on_error for KeyedStream is not supported.")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> NoReturn:
        raise Exception("Setting slot sharing group for KeyedStream is not supported.")

    def _partitioned(self, partitioner: Any) -> NoReturn:
        raise Exception("Cannot override partitioning for KeyedStream.")

    # --- the inside ---------------------------------------------------------------------------------------------

    def _add_node(
        self, name: str, factory: OperatorFactory, output_type: TypeInformation, **settings: Any
    ) -> StreamNode:
        """An operator that can use state gets a state backend; others only get the records by key."""
        if factory.keyed:
            settings["key_selectors"] = (self._key_selector,)
            settings["key_type"] = self._key_type
        return super()._add_node(name, factory, output_type, **settings)

    def _aggregate(self, accumulate_type: _AccumulateType, position: int | str) -> DataStream:
        RollingAggregation(accumulate_type, position)  # to refuse a wrong position here and not in the job
        converter = self._type.batch_converter("results of 'Reduce'")
        return self._rolling(RollingAggregationFactory(accumulate_type, position, converter))

    def _rolling(self, factory: OperatorFactory) -> DataStream:
        return self._add_operator("Reduce", factory, self._type)

    def _rows(self) -> DataStream:
        """The stream of Row(key, value), still partitioned by key."""
        select = self._key_selector
        row_type = RowTypeInfo([self._key_type, self._type])
        rows = self._origin.map(lambda value: Row(select(value), value), row_type)
        rows.name("_stream_key_by_map_operator")
        taps = [replace(tap, key_selector=itemgetter(0)) for tap in rows._taps]
        return DataStream(self._env, taps, row_type)


def _can_use_state(func: Any) -> bool:
    """Only ``open`` gives access to state. Without it the function needs no state backend."""
    return isinstance(func, Function) and type(func).open is not Function.open
