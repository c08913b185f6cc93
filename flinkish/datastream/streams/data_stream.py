"""DataStream: a stream of records of one type, and the operators that can be applied to it.

Rule upheld here: the methods only describe the program. A method adds a node to the environment's program and returns
the stream of its output; nothing runs before ``execute``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from flinkish.common.arguments import check_instance, check_methods_take
from flinkish.common.typeinfo import TupleTypeInfo, TypeInformation
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.common.typeinfo.types import declared_type
from flinkish.common.types import Row
from flinkish.common.watermark_strategy import WatermarkStrategy, extractor_of, generators_of
from flinkish.core.checkpointed_function import CheckpointedFunction, CheckpointListener
from flinkish.core.functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapBatchesFunction,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
)
from flinkish.core.sink import Sink
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.counts import count_windows
from flinkish.datastream.streams.key_function import KeyFunction, check_function, key_function, partition_function
from flinkish.datastream.streams.operator_stream import OfKeyedStreams, OperatorStream
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamNode, Tap
from flinkish.runtime.exchange.partitioners import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from flinkish.runtime.exchange.partitioners import Partitioner as StreamPartitioner
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.job.outputs import Converter
from flinkish.runtime.operators.functions import FilterFactory, FlatMapFactory, MapFactory, ProcessFactory
from flinkish.runtime.operators.map_batches import ConvertFactory, MapBatchesFactory
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory, WatermarkAlignment

if TYPE_CHECKING:
    from flinkish.core.state import MapStateDescriptor
    from flinkish.datastream.streams.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
    from flinkish.datastream.streams.joins import CoGroupedStreams, JoinedStreams
    from flinkish.datastream.streams.keyed_stream import KeyedStream
    from flinkish.datastream.streams.results import CachedDataStream, CloseableIterator
    from flinkish.datastream.streams.sinks import DataStreamSink
    from flinkish.datastream.streams.windowed_stream import AllWindowedStream

#: the hint for an argument that is not an OutputTag
TAG_HINT = "pass the OutputTag that the function yields, not its name"

DeclaredType = TypeInformation | Sequence[TypeInformation] | None


class DataStream(OperatorStream):
    """A stream of records. It is made by an environment or by a method of another stream, never by its constructor.

    In all methods ``output_type`` is the type of the results: None means any Python object, a list of types means a ROW
    of them. Results are converted to it as Flink's serializers do, and one that does not fit raises TypeMismatchError
    in the job.

    Example::

        ds = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
        ds.key_by(lambda pair: pair[0]).sum(1).print()
        env.execute()
    """

    if not TYPE_CHECKING:  # they are no methods of this class
        window, count_window = OfKeyedStreams("window_all"), OfKeyedStreams("count_window_all")
        reduce, interval_join = OfKeyedStreams(), OfKeyedStreams()
        sum, min, max, min_by, max_by = (OfKeyedStreams() for _ in range(5))

    # --- operators ----------------------------------------------------------------------------------------------

    def map(self, func: MapFunction | Callable[[Any], Any], output_type: DeclaredType = None) -> DataStream:
        """Call a function for each record, which gives one result. It may be None, for the next operator to drop it."""
        check_function(func, MapFunction, self._place("map"))
        return self._transform("Map", lambda converter: MapFactory(func, converter=converter), output_type)

    def map_batches(
        self,
        func: MapBatchesFunction | Callable[[Any], Any],
        output_type: DeclaredType,
        batch_format: Literal["arrow", "pandas"] = "arrow",
    ) -> DataStream:
        """Call a function on batches of many records in columns. Only for streams of a declared type without pickled
        objects. Not in PyFlink.

        Example::

            priced = orders.map_batches(
                lambda df: df.assign(total=df.price * df.amount),
                Types.ROW_NAMED(["price", "amount", "total"], [Types.DOUBLE(), Types.INT(), Types.DOUBLE()]),
                batch_format="pandas",
            )

        Args:
            func: takes a batch, and returns one with a row for each of its rows, in the same order: a
                ``pyarrow.RecordBatch``, a ``pyarrow.Table`` or a ``pandas.DataFrame``. The engine decides how records
                are cut into batches.
            output_type: the names and types of the columns that ``func`` returns. A type other than ROW or TUPLE is one
                column, called ``value``.
            batch_format: the form of the batches that ``func`` takes: ``"arrow"`` for a ``pyarrow.RecordBatch``,
                ``"pandas"`` for a ``pandas.DataFrame``.

        Raises:
            ProgramError: ``batch_format`` is neither of these.
            TypeMismatchError: the type of the stream or ``output_type`` cannot be represented in columns.
        """
        from flinkish.connectors.columns import FrameWriter, RecordReader, columns_of_frame

        check_function(func, MapBatchesFunction, self._place("map_batches"))
        if batch_format not in ("arrow", "pandas"):
            raise ProgramError(f"the batch format {batch_format!r}", expected="'arrow' or 'pandas'")
        declared = declared_type(output_type)
        taken: Any = FrameWriter if batch_format == "pandas" else RecordWriter
        write, result = taken(self._type, "the input of map_batches()").write, "results of map_batches()"
        schema = RecordWriter(declared, result).schema
        read = RecordReader(declared, result).read
        factory = MapBatchesFactory(func, write, read, schema, columns_of_frame)
        return self._add_operator("Map Batches", factory, declared)

    def flat_map(self, func: FlatMapFunction | Callable[[Any], Any], output_type: DeclaredType = None) -> DataStream:
        """Call a function for each record, which gives any number of results: it returns an iterable of them, or
        None."""
        check_function(func, FlatMapFunction, self._place("flat_map"))
        return self._transform("FlatMap", lambda converter: FlatMapFactory(func, converter=converter), output_type)

    def filter(self, func: FilterFunction | Callable[[Any], Any]) -> DataStream:
        """Keep the records for which the function returns a true value."""
        check_function(func, FilterFunction, self._place("filter"))
        return self._add_operator("Filter", FilterFactory(func), self._type)

    def process(self, func: ProcessFunction, output_type: DeclaredType = None) -> DataStream:
        """Call a function for each record, which gives any number of results, and has access to time and to side
        outputs (``yield tag, value``)."""
        check_instance(
            func,
            ProcessFunction,
            "ProcessFunction is required for DataStream, not",
            self._place("process"),
            "a KeyedProcessFunction needs key_by() before process(); a plain function goes to map() or flat_map()",
        )
        check_methods_take(func, ProcessFunction, self._place("process"))
        return self._transform("PROCESS", lambda converter: ProcessFactory(func, converter), output_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Tuples of the fields at these positions (from 0), in this order. Only for streams of a TUPLE type.

        Raises:
            ProgramError: the type of the stream is not a TUPLE, or there is no field at a position.
        """
        if not isinstance(self._type, TupleTypeInfo):
            raise ProgramError(
                "Only Tuple DataStreams can be projected.",
                where=f"{self._place('project')}, a stream of {self._type!r}",
                expected="a stream whose declared type is Types.TUPLE([...])",
                hint="use map",
            )
        types = self._type.get_field_types()
        absent = [index for index in field_indexes if not 0 <= index < len(types)]
        if absent or not field_indexes:
            raise ProgramError(
                f"project{field_indexes} of a tuple with {len(types)} fields",
                where=self._place("project"),
                hint="positions are counted from 0",
                expected=f"one or more positions from 0 to {len(types) - 1}",
            )
        projected = TupleTypeInfo([types[index] for index in field_indexes])
        return self._add_operator("Projection", MapFactory(_projection(field_indexes)), projected)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Assign event times to the records and emit watermarks, which replace those that the stream had."""
        factory = watermarks_factory(watermark_strategy)
        # the parallelism of the operator before it, as in Flink: each of its subtasks gets a watermark generator
        parallelism = self._taps[0].node.parallelism if len(self._taps) == 1 else None
        node = self._add_node("Timestamps/Watermarks", factory, self._type, parallelism=parallelism)
        return DataStream(self._env, [Tap(node)], self._type, [node])

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Group all records of the stream into windows, regardless of keys. The window operator has one subtask."""
        from flinkish.datastream.streams.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Group all records of the stream into windows of ``size`` records, as ``KeyedStream.count_window`` does with
        the records of a key."""
        from flinkish.datastream.streams.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, count_windows(size, slide))

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Join the records with those of another stream that have the same key and are in the same window."""
        from flinkish.datastream.streams.joins import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """Group the records with those of another stream that have the same key and are in the same window."""
        from flinkish.datastream.streams.joins import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The side output with this tag of the operator that the stream leaves. If a tag is never asked for, what the
        function yields with it is dropped, with a warning.

        Raises:
            ProgramError: the tag's id was already asked for with another type.
        """
        check_instance(output_tag, OutputTag, "the output tag is", self._place("get_side_output"), TAG_HINT)
        node = self._settings_nodes("get_side_output")[-1]
        known = node.side_types.setdefault(output_tag.tag_id, output_tag.type_info)
        if known != output_tag.type_info:
            raise ProgramError(
                f"the side output {output_tag.tag_id!r} was already asked for with another type: {known!r}, and now "
                f"{output_tag.type_info!r}",
                where=self._place("get_side_output"),
                expected="one type per side output",
                hint="give each side output an id of its own; tags with the same id are the same side output",
            )
        side = DataStream(self._env, [Tap(node, tag=output_tag.tag_id)], output_tag.type_info)
        # as in PyFlink the side output is an operator, which has a name, a uid and a parallelism
        return side._transform("Map", ConvertFactory, output_tag.type_info)

    # --- partitioning, union and connect ------------------------------------------------------------------------

    def union(self, *streams: DataStream) -> DataStream:
        """A stream of all records of this stream and the others. Rows of the others take the field names of this one.

        Raises:
            ProgramError: the streams differ in their types or their environments.
        """
        for stream in streams:
            check_instance(
                stream, DataStream, "what union takes is", self._place("union"), "of a list of streams: union(*streams)"
            )
            check_environment(self, stream, self._place("union"))
            if stream._type != self._type:
                raise ProgramError(
                    f"Cannot union streams of different types: {self._type!r} and {stream._type!r}",
                    where=self._place("union"),
                    expected="streams of one type",
                    hint="declare the same output_type in the operators before",
                )
        taps = [*self._taps, *(tap for stream in streams for tap in self._renamed(stream))]
        return DataStream(self._env, taps, self._type)

    def _renamed(self, stream: DataStream) -> Sequence[Tap]:
        """The taps of a stream of an equal type, whose Rows get the field names of this stream's type."""
        # equal types may differ in names, which only their text shows
        if repr(stream._type) == repr(self._type):
            return stream._taps
        factory = MapFactory(_without_names, converter=self._type.batch_converter("results of 'union'"))
        renamed = []
        for tap in stream._taps:
            inputs, parallelism = [[replace(tap, partitioner=None)]], tap.node.parallelism
            node = self._env._add_node("Map", factory, self._type, inputs, parallelism=parallelism)
            renamed.append(Tap(node, tap.partitioner))
        return renamed

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect this stream with another one of any type, so that one function processes the records of both."""
        from flinkish.datastream.streams.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def key_by(self, key_selector: KeySelector | KeyFunction, key_type: TypeInformation | None = None) -> KeyedStream:
        """Partition the stream by the key that a function gives for each record.

        Example::

            clicks.key_by(lambda click: click.user, Types.STRING())

        Args:
            key_selector: record -> key. The key must be hashable and never NaN. It is computed once for each record;
                only a selector that reads fields and nothing else may be called again.
            key_type: the type of the keys; None: any Python object.
        """
        from flinkish.datastream.streams.keyed_stream import KeyedStream

        return KeyedStream(self, key_function(key_selector, key_type), declared_type(key_type))

    def shuffle(self) -> DataStream:
        """Distribute the records at random over the subtasks of the next operator."""
        return self._partitioned(ShufflePartitioner())

    def rescale(self) -> DataStream:
        """Distribute the records of each subtask round-robin over a subset of the next operator's subtasks."""
        return self._partitioned(RescalePartitioner())

    def rebalance(self) -> DataStream:
        """Distribute the records round-robin over all subtasks of the next operator."""
        return self._partitioned(RebalancePartitioner())

    def forward(self) -> DataStream:
        """Send each record to the next operator's subtask of the same index. If the parallelisms differ, the submission
        of the job raises ProgramError."""
        return self._partitioned(ForwardPartitioner())

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to every subtask of the next operator. With descriptors of broadcast states the result is a
        BroadcastStream, which can be connected with another stream, for a function that keeps these states."""
        from flinkish.datastream.streams.connected import BroadcastStream

        broadcast = self._partitioned(BroadcastPartitioner())
        descriptors: list[Any] = [broadcast_state_descriptor, *other_broadcast_state_descriptors]
        return broadcast if descriptors == [None] else BroadcastStream(broadcast, descriptors)

    def partition_custom(
        self, partitioner: Partitioner | Callable[[Any, int], int], key_selector: KeySelector | KeyFunction
    ) -> DataStream:
        """Distribute the records by ``partitioner(key, number of subtasks)``, which gives the index of a subtask, from
        0."""
        return self._partitioned(CustomPartitioner(partition_function(partitioner), key_function(key_selector)))

    def cache(self) -> CachedDataStream:
        """A stream of the same records that later jobs of this environment can read, too. Each job that reads it
        computes the records again, and a warning says so."""
        from flinkish.datastream.streams.results import CachedDataStream

        self._settings_nodes("cache")
        return CachedDataStream(self._env, self._taps, self._type)

    # --- sinks --------------------------------------------------------------------------------------------------

    def add_sink(self, sink_func: Sink) -> DataStreamSink:
        """Write the records to a sink, such as ``JdbcSink.sink(...)`` gives."""
        from flinkish.datastream.streams.sinks import add_sink

        return add_sink(self, sink_func, name="Unnamed")

    def sink_to(self, sink: Sink | Callable[..., None]) -> DataStreamSink:
        """Write the records to a sink, or pass the records of each epoch to a function of (Spark DataFrame, epoch) or
        (Spark DataFrame, epoch, CommitContext)."""
        from flinkish.datastream.streams.sinks import add_sink

        return add_sink(self, sink)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print the records to the driver's standard output, one per line. ``sink_identifier> `` comes before each,
        with the number of the subtask (from 1) if there are several: ``clicks:2> ``."""
        from flinkish.connectors.results import PrintSink
        from flinkish.datastream.streams.sinks import add_sink

        return add_sink(self, PrintSink(sink_identifier, self._type))

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the job and return the records of this stream: an iterator over all of them, or a list of at most
        ``limit`` records.

        The iterator must be closed, or used in a ``with`` statement: this cancels the job if it still runs.

        Raises:
            ArgumentValueError: ``limit`` is below 1.
        """
        from flinkish.datastream.streams.results import execute_and_collect

        return execute_and_collect(self, job_execution_name, limit)

    def show(self, count: int = 20) -> None:
        """Print the first records of this stream, for a look. They are those of a job of its own, which is cancelled
        then; it keeps nothing in the directory of the program's job, and the program is as before. Not in PyFlink."""
        from flinkish.datastream.streams.results import show

        show(self, count)

    # --- the inside ---------------------------------------------------------------------------------------------

    def _partitioned(self, partitioner: StreamPartitioner) -> DataStream:
        taps = [replace(tap, partitioner=partitioner, key_selector=None) for tap in self._taps]
        return DataStream(self._env, taps, self._type)

    def _transform(
        self, name: str, make: Callable[[Converter | None], OperatorFactory], output_type: DeclaredType
    ) -> DataStream:
        """Add an operator whose results are converted to a declared type."""
        declared = declared_type(output_type)
        return self._add_operator(name, make(declared.batch_converter(f"results of '{name}'")), declared)

    def _add_operator(self, name: str, factory: OperatorFactory, output_type: TypeInformation) -> DataStream:
        node = self._add_node(name, factory, output_type)
        return DataStream(self._env, [Tap(node)], output_type, [node])

    def _add_node(
        self, name: str, factory: OperatorFactory, output_type: TypeInformation, **settings: Any
    ) -> StreamNode:
        return self._env._add_node(name, factory, output_type, [self._taps], **settings)


def watermarks_factory(strategy: WatermarkStrategy, of_source: bool = False) -> TimestampsAndWatermarksFactory:
    """The factory of the operator that applies a watermark strategy. ``of_source``: as for `extractor_of`."""
    check_instance(
        strategy,
        WatermarkStrategy,
        "the watermark strategy is",
        "assign_timestamps_and_watermarks() or from_source()",
        "WatermarkStrategy.no_watermarks() is the one without event time",
    )
    return TimestampsAndWatermarksFactory(
        extractor_of(strategy, of_source),
        strategy.max_out_of_orderness_ms if strategy.kind == "bounded" else None,
        strategy.idle_timeout_ms,
        alignment=_alignment(strategy),
        make_generator=generators_of(strategy),
    )


def _alignment(strategy: WatermarkStrategy) -> WatermarkAlignment | None:
    group, max_drift_ms = strategy.alignment_group, strategy.max_allowed_watermark_drift_ms
    return None if group is None or max_drift_ms is None else WatermarkAlignment(group, max_drift_ms)


def refuse_checkpointed(*functions: Any) -> None:
    """Raises ProgramError if a function of a window is a CheckpointedFunction or a CheckpointListener."""
    for function in functions:
        for kind in (CheckpointedFunction, CheckpointListener):
            if isinstance(function, kind):
                raise ProgramError(
                    f"{type(function).__name__} is a {kind.__name__}, and a function of a window",
                    expected="a function of map, flat_map, filter, process, reduce or an interval join",
                    hint="keep what belongs to the window in the state of its context, and the rest in a process "
                    "function behind the window",
                )


def _projection(field_indexes: Sequence[int]) -> Callable[[Any], Any]:
    return lambda value: tuple(value[index] for index in field_indexes)


def _without_names(value: Any) -> Any:
    """The value with Rows that have no names, so that a type gives them its own by position."""
    if isinstance(value, Row):
        return Row.of_kind(value.get_row_kind(), *map(_without_names, value))
    if isinstance(value, dict):
        return {_without_names(key): _without_names(item) for key, item in value.items()}
    return type(value)(map(_without_names, value)) if type(value) in (list, tuple) else value


def check_environment(stream: OperatorStream, other: OperatorStream, where: str) -> None:
    """Raises ProgramError if two streams belong to different environments."""
    if other._env is not stream._env:
        raise ProgramError(
            "two streams of different environments",
            where=where,
            expected="streams of one environment",
            hint="call StreamExecutionEnvironment.get_execution_environment() once, and make all sources with it",
        )
