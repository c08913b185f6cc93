"""Every misuse that PyFlink answers with an exception gets one here, too, with a better message.

Messages, in ``misuses.txt``, say what happened, where, what was expected and what to do. Errors are typed by who must
act, and are what PyFlink raises (TypeError, ValueError) wherever a program might catch it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import (
    Configuration,
    Duration,
    Encoder,
    ExecutionConfig,
    JobID,
    RestartStrategies,
    Row,
    SimpleStringSchema,
    Time,
    Types,
    WatermarkStrategy,
)
from flinkish.common.serialization import RowFieldExtractorSchema
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    BroadcastProcessFunction,
    DataStream,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    MemorySize,
    OnError,
    OutputTag,
    ProcessFunction,
    SlotSharingGroup,
    StreamExecutionEnvironment,
    WindowFunction,
)
from flinkish.datastream.connectors import DeliveryGuarantee
from flinkish.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from flinkish.datastream.connectors.number_seq import NumberSequenceSource
from flinkish.datastream.formats.avro import AvroSchema
from flinkish.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema, CsvSchema
from flinkish.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from flinkish.datastream.formats.parquet import ParquetBulkWriters
from flinkish.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from flinkish.errors import (
    ProgramError,
)
from tests.support.functions import CountOf, Elements, NoCoroutine, PassOn, PassOnAsync, PassOnKeyed, Same
from tests.support.programs import new_environment, results_of

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
NAMES = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


@dataclass
class Programs:
    """What misuses begin with."""

    env: StreamExecutionEnvironment = field(default_factory=new_environment)

    @property
    def words(self) -> DataStream:
        return self.env.from_collection([("a", 1), ("b", 2)], PAIR)

    @property
    def keyed(self) -> KeyedStream:
        return self.words.key_by(lambda word: word[0])

    @property
    def numbers(self) -> DataStream:
        return self.env.from_collection([1, 2])

    @property
    def windows(self) -> Any:
        return self.keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))

    @property
    def timed(self) -> DataStream:
        class FromField(TimestampAssigner):
            def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
                return int(value[1])

        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(FromField())
        return self.words.assign_timestamps_and_watermarks(strategy)


class Opened(PassOnKeyed):
    """Uses the runtime context in ``open``."""

    def __init__(self, use: Callable[[Any], Any]) -> None:
        self._use = use

    def open(self, runtime_context: Any) -> None:
        self._use(runtime_context)


class Used(PassOnKeyed):
    """Uses a state, or the context, for each record."""

    def __init__(self, descriptor: Any, use: Callable[[Any, Any], Any], getter: str = "get_state") -> None:
        self._descriptor, self._use, self._getter = descriptor, use, getter

    def open(self, runtime_context: Any) -> None:
        self._state = getattr(runtime_context, self._getter)(self._descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._use(self._state, ctx)
        yield value


class WithoutKeys(PassOn):
    def __init__(self, use: Callable[[Any], Any]) -> None:
        self._use = use

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        self._use(ctx)
        yield value


class StateWithoutKeys(Same):
    def open(self, runtime_context: Any) -> None:
        runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))


class TakesNothing(MapFunction):
    def map(self) -> Any: ...  # type: ignore[override]


class OpenedWithout(Same):
    def open(self) -> None: ...  # type: ignore[override]


class WithoutContext(KeyedProcessFunction):
    def process_element(self, value: Any) -> None: ...  # type: ignore[override]


class Returning(KeyedProcessFunction):
    def __init__(self, result: Any) -> None:
        self.result = result

    def process_element(self, value: Any, ctx: Any) -> Any:
        return self.result


class FiringWith(Returning):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return self.result


class MadeOfSomething(AggregateFunction):
    def create_accumulator(self, something: Any) -> Any: ...  # type: ignore[override]

    def add(self, value: Any, accumulator: Any) -> Any: ...

    def get_result(self, accumulator: Any) -> Any: ...

    def merge(self, acc_a: Any, acc_b: Any) -> Any: ...


class WithoutTimers(EventTimeTrigger):
    def clear(self, window: Any) -> None: ...  # type: ignore[override]


class OwnPolicy(RollingPolicy):
    def should_roll_on_event(self, part: Any, element: Any) -> bool:
        return True


class OwnOffsets(KafkaOffsetsInitializer):
    def get_partition_offsets(self, partitions: Any, retriever: Any) -> Any: ...


class OwnRecords(KafkaRecordSerializationSchema):
    def serialize(self, value: Any, context: Any, timestamp: int) -> Any: ...


class Buckets(BucketAssigner):
    def __init__(self, bucket: Any) -> None:
        super().__init__()
        self.__dict__["bucket_id"] = bucket

    def get_bucket_id(self, element: Any, context: Any) -> Any:
        return self.__dict__["bucket_id"]


class Encoded(Encoder):
    def __init__(self, line: Any) -> None:
        self.line = line

    def encode(self, value: Any) -> Any:
        return self.line


WINDOWS = TumblingEventTimeWindows.of(Time.seconds(1))


class Two(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> None: ...

    def process_element2(self, value: Any, ctx: Any) -> None: ...


class ByRules(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> None: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> None: ...


class KeyedByRules(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> None: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> None: ...


class WritesRules(KeyedByRules):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("a", 1)


class AsksForOtherRules(KeyedByRules):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(MapStateDescriptor("others", Types.STRING(), Types.INT()))


class CallOfOne(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> Any:
        return 5


class WindowStateOfSessions(Elements):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        context.window_state().get_state(ValueStateDescriptor("n", Types.INT()))
        return []


class Applied(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return list(inputs)


class NoGap:
    def extract(self, element: Any) -> int:
        return 0


def _of_state(descriptor: Any, use: Callable[[Any, Any], Any], getter: str = "get_state") -> Callable[[Programs], Any]:
    return lambda p: results_of(p.keyed.process(Used(descriptor, use, getter)))


def _in_open(use: Callable[[Any], Any]) -> Callable[[Programs], Any]:
    return lambda p: results_of(p.keyed.process(Opened(use)))


def _without_keys(use: Callable[[Any], Any]) -> Callable[[Programs], Any]:
    return lambda p: results_of(p.words.process(WithoutKeys(use)))


def _two_states_of_one_name(context: Any) -> None:
    context.get_state(ValueStateDescriptor("n", Types.INT()))
    context.get_map_state(MapStateDescriptor("n", Types.INT(), Types.INT()))


def _async(p: Programs, *arguments: Any) -> DataStream:
    return AsyncDataStream.unordered_wait_with_retry(p.numbers, *arguments)


def _aligned(*arguments: Any) -> WatermarkStrategy:
    return WatermarkStrategy.no_watermarks().with_watermark_alignment(*arguments)


def _twice_the_uid(p: Programs) -> None:
    p.numbers.map(abs).uid("one").map(abs).uid("one").print()
    p.env.execute()


def _kafka_sink() -> Any:
    values = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())
    return KafkaSink.builder().set_bootstrap_servers("host:9092").set_record_serializer(values.set_topic("t").build())


MISUSES: dict[str, Callable[[Programs], Any]] = {
    "map takes no number": lambda p: p.words.map(5),
    "map takes no class of a function": lambda p: p.words.map(Same),
    "map takes no function of another kind": lambda p: p.words.map(PassOn()),
    "flat_map takes no number": lambda p: p.words.flat_map(5),
    "filter takes no text": lambda p: p.words.filter("a"),
    "key_by takes no position of a field": lambda p: p.words.key_by(0),
    "key_by takes no key type of Python's": lambda p: p.words.key_by(lambda w: w[0], str),
    "process takes no plain function": lambda p: p.words.process(lambda value, ctx: [value]),
    "process of a stream without keys takes no keyed function": lambda p: p.words.process(PassOnKeyed()),
    "a declared type is none of Python's": lambda p: p.words.map(len, output_type=int),
    "a list of declared types has no types of Python's": lambda p: p.words.map(list, output_type=[str, int]),
    "only tuples are projected": lambda p: p.numbers.project(0),
    "no field beyond the last is projected": lambda p: p.words.project(2),
    "a name is no empty text": lambda p: p.words.map(len).name(""),
    "a uid is no number": lambda p: p.words.map(len).uid(5),
    "a uid hash has 32 hexadecimal digits": lambda p: p.words.map(len).set_uid_hash("abc"),
    "two operators have no uid in common": lambda p: _twice_the_uid(p),
    "a parallelism is not 0": lambda p: p.words.map(len).set_parallelism(0),
    "what cannot run in parallel stays alone": lambda p: p.words.map(len).force_non_parallel().set_parallelism(2),
    "a max parallelism is not above Flink's limit": lambda p: p.words.map(len).set_max_parallelism(40_000),
    "a buffer timeout is not below -1": lambda p: p.words.map(len).set_buffer_timeout(-2),
    "a slot sharing group is no number": lambda p: p.words.map(len).slot_sharing_group(5),
    "a union is of streams": lambda p: p.words.union([p.words]),
    "a union is of one type": lambda p: p.words.union(p.numbers),
    "a union is of streams of one environment": lambda p: p.words.union(Programs().words),
    "a union is no operator that has a name": lambda p: p.words.union(p.words).name("both"),
    "connect takes no list": lambda p: p.words.connect([p.words]),
    "connect takes streams of one environment": lambda p: p.words.connect(Programs().words),
    "connected streams take no plain function in map": lambda p: p.words.connect(p.numbers).map(lambda value: value),
    "connected streams take no plain function in flat_map": lambda p: p.words.connect(p.numbers).flat_map(
        lambda value: [value]
    ),
    "connected streams take no function of one input in process": lambda p: p.words.connect(p.numbers).process(
        PassOn()
    ),
    "streams without keys take no keyed function of two inputs": lambda p: p.words.connect(p.numbers).process(Two()),
    "keys of two types never meet": lambda p: p.words.key_by(lambda w: w[0], Types.STRING()).connect(
        p.numbers.key_by(lambda n: n, Types.INT())
    ),
    "broadcast state is a map": lambda p: p.words.broadcast(ValueStateDescriptor("rule", Types.INT())),
    "two broadcast states have two names": lambda p: p.words.broadcast(RULES, RULES),
    "a keyed stream takes no broadcast function without keys": lambda p: p.keyed.connect(
        p.words.broadcast(RULES)
    ).process(ByRules()),
    "a stream without keys takes no keyed broadcast function": lambda p: p.words.connect(
        p.words.broadcast(RULES)
    ).process(KeyedByRules()),
    "broadcast streams take no function of one input": lambda p: p.words.connect(p.words.broadcast(RULES)).process(
        PassOn()
    ),
    "the other side does not write broadcast state": lambda p: results_of(
        p.keyed.connect(p.words.broadcast(RULES)).process(WritesRules())
    ),
    "a broadcast state has a descriptor in broadcast()": lambda p: results_of(
        p.keyed.connect(p.words.broadcast(RULES)).process(AsksForOtherRules())
    ),
    "a partitioner is no number": lambda p: p.words.partition_custom(5, lambda w: w[0]),
    "a partitioner needs a key selector": lambda p: p.words.partition_custom(lambda key, n: 0, "word"),
    "a partition is one of the next operator's subtasks": lambda p: results_of(
        p.words.partition_custom(lambda key, n: n, lambda w: w[0]).map(len)
    ),
    "forward joins operators of one parallelism": lambda p: results_of(
        p.words.map(len).set_parallelism(2).forward().map(abs).set_parallelism(3)
    ),
    "a sink is no number": lambda p: p.words.sink_to(5),
    "a sink is built": lambda p: p.words.sink_to(FileSink.for_row_format("/tmp/x", Encoder.simple_string_encoder())),
    "a side output has a tag": lambda p: p.words.map(len).get_side_output("late"),
    "a side output belongs to an operator": lambda p: p.words.rebalance().get_side_output(OutputTag("late")),
    "a tag has a name": lambda p: OutputTag(""),
    "a tag's type is none of Python's": lambda p: OutputTag("late", str),
    "a limit of what is collected is above 0": lambda p: p.words.execute_and_collect(limit=0),
    "timestamps need a strategy": lambda p: p.words.assign_timestamps_and_watermarks(Duration.of_seconds(1)),
    "a keyed stream has no name": lambda p: p.keyed.name("words"),
    "a keyed stream gives no name": lambda p: p.keyed.get_name(),
    "a keyed stream has no uid": lambda p: p.keyed.uid("words"),
    "a keyed stream has no parallelism": lambda p: p.keyed.set_parallelism(2),
    "a keyed stream has no chaining": lambda p: p.keyed.disable_chaining(),
    "a keyed stream is in no slot sharing group": lambda p: p.keyed.slot_sharing_group("a"),
    "a keyed stream is not cached": lambda p: p.keyed.cache(),
    "a keyed stream has no error handling": lambda p: p.keyed.on_error(OnError.skip()),
    "a keyed stream is not repartitioned": lambda p: p.keyed.rebalance(),
    "a keyed stream is not broadcast": lambda p: p.keyed.broadcast(),
    "a cached stream has no uid": lambda p: p.words.map(len).cache().uid("cached"),
    "a keyed stream takes no process function without keys": lambda p: p.keyed.process(PassOn()),
    "reduce takes no number": lambda p: p.keyed.reduce(5),
    "a position is a number or a name": lambda p: p.keyed.sum(1.5),
    "a position is one of the record's": lambda p: results_of(p.keyed.sum(7)),
    "a position of a single value is 0": lambda p: results_of(p.numbers.key_by(lambda n: n % 2).max(1)),
    "a key is not NaN": lambda p: results_of(p.words.key_by(lambda w: float("nan")).process(PassOnKeyed())),
    "a key is hashable": lambda p: results_of(p.words.key_by(lambda w: {w}).process(PassOnKeyed())),
    "None leaves a map only without a type": lambda p: results_of(p.words.map(lambda w: None, Types.STRING())),
    "flat_map gives what can be iterated": lambda p: results_of(p.words.flat_map(lambda w: 5)),
    "a result fits its declared type": lambda p: results_of(p.words.map(lambda w: "five", output_type=Types.INT())),
    "an element of a collection fits the declared type": lambda p: p.env.from_collection([("a", 1), ("b",)], PAIR),
    "a window is made by an assigner": lambda p: p.keyed.window(Time.seconds(5)),
    "a trigger is no number": lambda p: p.windows.trigger(5),
    "sessions need a trigger that merges": lambda p: p.keyed.window(
        EventTimeSessionWindows.with_gap(Time.seconds(1))
    ).trigger(NeverTrigger()),
    "an allowed lateness is no Time": lambda p: p.windows.allowed_lateness(Time.seconds(1)),
    "an allowed lateness is not negative": lambda p: p.windows.allowed_lateness(-1),
    "late data go to a tag": lambda p: p.windows.side_output_late_data("late"),
    "windows reduce by a function": lambda p: p.windows.reduce(5),
    "windows reduce with a window function": lambda p: p.windows.reduce(lambda a, b: a, Same()),
    "windows aggregate with a window function": lambda p: p.windows.aggregate(CountOf(), Same()),
    "windows aggregate by an AggregateFunction": lambda p: p.windows.aggregate(lambda a, b: a),
    "apply takes a WindowFunction": lambda p: p.windows.apply(Elements()),
    "process takes a ProcessWindowFunction": lambda p: p.windows.process(Applied()),
    "windows of all records take functions without a key": lambda p: p.words.window_all(
        TumblingEventTimeWindows.of(Time.seconds(1))
    ).process(Elements()),
    "an offset is smaller than its window": lambda p: TumblingEventTimeWindows.of(Time.seconds(1), Time.seconds(1)),
    "a window of processing time has a size": lambda p: TumblingProcessingTimeWindows.of(Time.seconds(0)),
    "an offset is smaller than the slide": lambda p: SlidingEventTimeWindows.of(
        Time.seconds(5), Time.seconds(1), Time.seconds(2)
    ),
    "a session has a gap": lambda p: EventTimeSessionWindows.with_gap(Time.seconds(0)),
    "a dynamic gap has an extractor": lambda p: ProcessingTimeSessionWindows.with_dynamic_gap(lambda element: 5),
    "a dynamic gap is above 0": lambda p: results_of(
        p.timed.key_by(lambda w: w[0]).window(EventTimeSessionWindows.with_dynamic_gap(NoGap())).process(Elements())
    ),
    "a window of a count has a size": lambda p: CountTumblingWindowAssigner.of(0),
    "event-time windows need timestamps": lambda p: results_of(p.windows.process(Elements())),
    "sessions have no state of a window": lambda p: results_of(
        p.timed.key_by(lambda w: w[0])
        .window(EventTimeSessionWindows.with_gap(Time.seconds(1)))
        .process(WindowStateOfSessions())
    ),
    "state needs a key": lambda p: results_of(p.words.map(StateWithoutKeys())),
    "timers need a key": _without_keys(lambda ctx: ctx.timer_service().register_event_time_timer(5)),
    "deleting a timer needs a key": _without_keys(lambda ctx: ctx.timer_service().delete_processing_time_timer(5)),
    "each kind of state has its descriptor": _in_open(
        lambda context: context.get_state(ListStateDescriptor("n", Types.INT()))
    ),
    "a state of one name is of one kind": _in_open(_two_states_of_one_name),
    "a value fits the type of its state": _of_state(
        ValueStateDescriptor("n", Types.INT()), lambda state, ctx: state.update("five")
    ),
    "a list state of numbers holds no None": _of_state(
        ListStateDescriptor("n", Types.INT()), lambda state, ctx: state.add(None), "get_list_state"
    ),
    "a key of a map fits the type of its state": _of_state(
        MapStateDescriptor("n", Types.STRING(), Types.INT()), lambda state, ctx: state.put(1.5, 5), "get_map_state"
    ),
    "a list state is updated by a list": _of_state(
        ListStateDescriptor("n", Types.INT()), lambda state, ctx: state.update(5), "get_list_state"
    ),
    "a timer has a whole number": _of_state(
        ValueStateDescriptor("n", Types.INT()), lambda state, ctx: ctx.timer_service().register_event_time_timer(1.5)
    ),
    "a timer has a number of 64 bits": _of_state(
        ValueStateDescriptor("n", Types.INT()), lambda state, ctx: ctx.timer_service().register_event_time_timer(2**63)
    ),
    "a reducing state has a function": lambda p: ReducingStateDescriptor("n", 5, Types.INT()),
    "an aggregating state has an AggregateFunction": lambda p: AggregatingStateDescriptor(
        "n", lambda a, b: a, Types.INT()
    ),
    "a state has a type": lambda p: ValueStateDescriptor("n", int),
    "a time to live is above 0": lambda p: StateTtlConfig.new_builder(Time.seconds(0)).build(),
    "a time to live is a Time": lambda p: StateTtlConfig.new_builder(5).build(),
    "a cached file is registered": _in_open(lambda context: context.get_distributed_cache().get_file("rules")),
    "calls are those of an AsyncFunction": lambda p: _async(
        p, Same(), Time.seconds(1), AsyncRetryStrategy.no_restart()
    ),
    "async_invoke is a coroutine": lambda p: _async(p, NoCoroutine(), Time.seconds(1), AsyncRetryStrategy.no_restart()),
    "a retry strategy is not None": lambda p: _async(p, PassOnAsync(), Time.seconds(1), None),
    "retries need a timeout": lambda p: _async(
        p, PassOnAsync(), Time.seconds(0), AsyncRetryStrategy.fixed_delay(3, 10, None, None)
    ),
    "a capacity is above 0": lambda p: _async(p, PassOnAsync(), Time.seconds(1), AsyncRetryStrategy.no_restart(), 0),
    "a timeout of calls is a Time": lambda p: _async(p, PassOnAsync(), 5, AsyncRetryStrategy.no_restart()),
    "a capacity of ordered calls is above 0": lambda p: AsyncDataStream.ordered_wait(
        p.numbers, PassOnAsync(), Time.seconds(1), 0
    ),
    "attempts are more than 0": lambda p: AsyncRetryStrategy.fixed_delay(0, 10, None, None),
    "a call gives a list": lambda p: results_of(
        _async(p, CallOfOne(), Time.seconds(1), AsyncRetryStrategy.no_restart())
    ),
    "a bound of disorder is not negative": lambda p: WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(-1)
    ),
    "a bound of disorder is no Time": lambda p: WatermarkStrategy.for_bounded_out_of_orderness(Time.seconds(1)),
    "idleness is above 0": lambda p: WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(0)),
    "idleness is a Duration": lambda p: WatermarkStrategy.no_watermarks().with_idleness(5),
    "a watermark group has a name": lambda p: _aligned(7, Duration.of_seconds(1)),
    "a drift of watermarks is a Duration": lambda p: _aligned("g", 5),
    "a drift of watermarks is not negative": lambda p: _aligned("g", Duration.of_millis(-1)),
    "an interval of alignment is above 0": lambda p: _aligned("g", Duration.of_seconds(1), Duration.of_millis(0)),
    "a timestamp assigner takes two arguments": lambda p: p.words.assign_timestamps_and_watermarks(
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda value: 0)  # type: ignore[arg-type, misc]
    ),
    "a timestamp assigner is no class": lambda p: WatermarkStrategy.no_watermarks().with_timestamp_assigner(
        TimestampAssigner
    ),
    "an element of an array has a type": lambda p: Types.LIST(int),
    "a primitive array has no texts": lambda p: Types.PRIMITIVE_ARRAY(Types.STRING()),
    "a basic array has no lists": lambda p: Types.BASIC_ARRAY(Types.LIST(Types.INT())),
    "a map has types": lambda p: Types.MAP(Types.STRING(), int),
    "a tuple has types": lambda p: Types.TUPLE([Types.STRING, Types.INT]),
    "a Row has as many names as types": lambda p: Types.ROW_NAMED(["a", "b"], [Types.INT()]),
    "a Row has each name once": lambda p: Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()]),
    "a Row is made by values or by names": lambda p: Row(1, b=2),
    "a Row without names is no dictionary": lambda p: Row(1).as_dict(),
    "a Row gives no field that it does not have": lambda p: Row(a=1)["b"],
    "a Row gives no fields that it does not have": lambda p: Row(a=1).get_fields_by_names(["b"]),
    "a Row of names takes as many values": lambda p: Row("a")(1, 2),
    "a field of a Row is counted from 0": lambda p: RowFieldExtractorSchema(-1),
    "a charset is one of Python's": lambda p: SimpleStringSchema("utf-99"),
    "a parallelism of the environment is above 0": lambda p: p.env.set_parallelism(0),
    "a max parallelism of the environment is above 0": lambda p: p.env.set_max_parallelism(0),
    "a buffer timeout of the environment is not below -1": lambda p: p.env.set_buffer_timeout(-2),
    "a runtime mode is no text": lambda p: p.env.set_runtime_mode("BATCH"),
    "a class path is a URL": lambda p: p.env.add_classpaths("/a.jar"),
    "a program has operators": lambda p: p.env.execute(),
    "a source is built": lambda p: p.env.from_source(KafkaSource.builder(), WatermarkStrategy.no_watermarks(), "kafka"),
    "a source has a watermark strategy": lambda p: p.env.from_source(NumberSequenceSource(1, 2), None, "numbers"),
    "an input format is no path": lambda p: p.env.create_input("/data/a.avro"),
    "a group is registered as an object": lambda p: p.env.register_slot_sharing_group("a"),
    "two cached files have two names": lambda p: [p.env.register_cached_file(path, "a") for path in ("/a", "/b")],
    "a key is one of the known ones": lambda p: p.env.configure(Configuration().set_string("paralelism.default", "2")),
    "a value can be read": lambda p: p.env.configure(Configuration().set_string("parallelism.default", "two")),
    "a value is a text": lambda p: Configuration().set_string("pipeline.name", 5),
    "a duration has a unit that is known": lambda p: p.env.configure(
        Configuration().set_string("execution.checkpointing.interval", "5 fortnights")
    ),
    "a checkpoint interval is at least 10 ms": lambda p: p.env.enable_checkpointing(5),
    "a checkpoint timeout is at least 10 ms": lambda p: p.env.get_checkpoint_config().set_checkpoint_timeout(1),
    "a pause between checkpoints is not negative": lambda p: (
        p.env.get_checkpoint_config().set_min_pause_between_checkpoints(-1)
    ),
    "there is one checkpoint at a time or more": lambda p: p.env.get_checkpoint_config().set_max_concurrent_checkpoints(
        0
    ),
    "a checkpointing mode is no text": lambda p: p.env.get_checkpoint_config().set_checkpointing_mode("EXACTLY_ONCE"),
    "a retention is no text": lambda p: p.env.get_checkpoint_config().set_externalized_checkpoint_retention("RETAIN"),
    "a checkpoint storage has a path": lambda p: FileSystemCheckpointStorage(None),
    "a state backend's switch is no text": lambda p: EmbeddedRocksDBStateBackend("yes"),
    "options of RocksDB are not made in Java": lambda p: EmbeddedRocksDBStateBackend().set_options(
        "org.example.Options"
    ),
    "an interval is not negative": lambda p: ExecutionConfig().set_auto_watermark_interval(-1),
    "a delay between restarts is no text": lambda p: RestartStrategies.fixed_delay_restart(3, "10 s"),
    "a job id has 32 digits": lambda p: JobID("abc"),
    "a size is not negative": lambda p: MemorySize(-1),
    "a size is compared with a size": lambda p: MemorySize(1) < 2,
    "a slot sharing group has a name": lambda p: SlotSharingGroup.builder(""),
    "a slot sharing group has more than no cores": lambda p: SlotSharingGroup.builder("a").set_cpu_cores(0),
    "resources are complete": lambda p: SlotSharingGroup.builder("a").set_managed_memory_mb(5).build(),
    "a Kafka source has servers": lambda p: KafkaSource.builder().build(),
    "a Kafka source has a deserializer": lambda p: (
        KafkaSource.builder().set_bootstrap_servers("host:9092").set_topics("t").build()
    ),
    "a Kafka source has topics": lambda p: (
        KafkaSource.builder()
        .set_bootstrap_servers("host:9092")
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    ),
    "a Kafka sink has servers": lambda p: KafkaSink.builder().build(),
    "a Kafka sink that delivers exactly once has a prefix": lambda p: (
        _kafka_sink().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()
    ),
    "a record for Kafka has a topic": lambda p: (
        KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema()).build()
    ),
    "a record for Kafka has a value": lambda p: KafkaRecordSerializationSchema.builder().set_topic("t").build(),
    "a topic selector is no text": lambda p: KafkaRecordSerializationSchema.builder().set_topic_selector("t"),
    "a database has a URL": lambda p: JdbcConnectionOptions.JdbcConnectionOptionsBuilder().build(),
    "retries are not less than none": lambda p: JdbcExecutionOptions.builder().with_max_retries(-1).build(),
    "files that are made as a whole end with their epoch": lambda p: FileSink.for_bulk_format(
        "/tmp/x", ParquetBulkWriters.for_row_type(NAMES)
    ).with_rolling_policy(RollingPolicy.default_rolling_policy()),
    "files that are made as a whole have a writer": lambda p: FileSink.for_bulk_format(
        "/tmp/x", Encoder.simple_string_encoder()
    ),
    "Parquet's rows have names": lambda p: ParquetBulkWriters.for_row_type(Types.INT()),
    "a sequence has a number": lambda p: NumberSequenceSource(5, 1),
    "a delimiter is one character": lambda p: CsvRowSerializationSchema.Builder(NAMES).set_field_delimiter(";;"),
    "CSV's records are Rows": lambda p: CsvRowDeserializationSchema.Builder(Types.INT()),
    "a CSV schema has columns": lambda p: CsvSchema.builder().build(),
    "a JSON format has a type": lambda p: JsonRowDeserializationSchema.builder().build(),
    "JSON's records are Rows": lambda p: JsonRowSerializationSchema.builder().with_type_info(Types.INT()),
    "a JSON format fails or ignores": lambda p: (
        JsonRowDeserializationSchema.builder().type_info(NAMES).fail_on_missing_field().ignore_parse_errors().build()
    ),
    "an Avro schema is JSON": lambda p: AvroSchema.parse_string("record"),
    "map calls with one record": lambda p: p.words.map(lambda: 5),
    "a method of a function takes what it is called with": lambda p: p.words.map(TakesNothing()),
    "open takes the runtime context": lambda p: p.words.map(OpenedWithout()),
    "reduce calls with two values": lambda p: p.keyed.reduce(lambda value: value),
    "a process function takes the context": lambda p: p.keyed.process(WithoutContext()),
    "a key selector takes a record": lambda p: p.words.key_by(lambda word, number: word),
    "a partitioner takes the number of subtasks": lambda p: p.words.partition_custom(
        lambda key: 0, lambda word: word[0]
    ),
    "an accumulator is made of nothing": lambda p: p.windows.aggregate(MadeOfSomething()),
    "a trigger takes the context": lambda p: p.windows.trigger(WithoutTimers()),
    "a generator supplier takes nothing or the context": lambda p: WatermarkStrategy.for_generator(lambda a, b: None),
    "the size of windows is a time": lambda p: TumblingEventTimeWindows.of(5),
    "the slide of windows is a time": lambda p: SlidingEventTimeWindows.of(Time.seconds(2), 1),
    "the gap of sessions is a time": lambda p: EventTimeSessionWindows.with_gap(5),
    "a window made by its constructor has milliseconds": lambda p: TumblingProcessingTimeWindows(Time.seconds(1)),
    "the interval of a trigger is a time": lambda p: ContinuousEventTimeTrigger.of(5),
    "the size of an evictor is a time": lambda p: TimeEvictor.of(5),
    "the bounds of an interval join are times": lambda p: p.keyed.interval_join(p.keyed).between(1, 2),
    "windows of a stream without keys are of all records": lambda p: p.words.window(WINDOWS),
    "windows of records without keys are of all records": lambda p: p.words.count_window(5),
    "a stream without keys has no sum": lambda p: p.words.sum(1),
    "a rolling policy has no methods of its own": lambda p: _row_sink().with_rolling_policy(OwnPolicy()),
    "a bucket assigner is one": lambda p: _row_sink().with_bucket_assigner("hour"),
    "an initializer of offsets has no methods of its own": lambda p: KafkaSource.builder().set_starting_offsets(
        OwnOffsets("earliest")
    ),
    "a record serializer has no methods of its own": lambda p: KafkaSink.builder().set_record_serializer(
        OwnRecords("t", None, None, SimpleStringSchema())
    ),
    "a partition is a number": lambda p: results_of(
        p.words.partition_custom(lambda key, subtasks: "a", lambda word: word[0]).map(Same())
    ),
    "a process function returns results": lambda p: results_of(p.keyed.process(Returning(5))),
    "a timer returns results": lambda p: results_of(p.timed.key_by(lambda word: word[0]).process(FiringWith(5))),
    "a bucket is a folder": lambda p: _written(_row_sink().with_bucket_assigner(Buckets(7))),
    "an encoder makes bytes": lambda p: _written(FileSink.for_row_format("/tmp/x", Encoded("text"))),
}


def _row_sink() -> Any:
    return FileSink.for_row_format("/tmp/x", Encoder.simple_string_encoder())


def _written(builder: Any) -> None:
    env = new_environment()
    env.from_collection(["a"], Types.STRING()).sink_to(builder.build())
    env.execute()


def _expected() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each line of the file: the sentence, the error's class, and parts of what, where, expected and hint."""
    for line in Path(__file__).with_name("misuses.txt").read_text().splitlines():
        sentence, kind, *parts = line.split(" | ")
        yield sentence, kind, tuple(parts)


@pytest.mark.parametrize(("sentence", "kind", "parts"), list(_expected()))
def test_a_misuse_says_what_happened_where_what_was_expected_and_what_to_do(
    sentence: str, kind: str, parts: tuple[str, ...]
) -> None:
    with pytest.raises(ProgramError) as caught:
        MISUSES[sentence](Programs())
    error = caught.value
    found = error.what, error.where, error.expected, error.hint
    assert type(error).__name__ == kind
    assert [part for part, text in zip(parts, found, strict=True) if not part or part not in text] == []
    assert all(text in str(error) for text in found)


def test_each_misuse_has_its_message() -> None:
    assert [sentence for sentence, _, _ in _expected()] == list(MISUSES)
    assert len(MISUSES) >= 180


def test_what_pyflink_raises_catches_them_too() -> None:
    with pytest.raises(TypeError):
        Programs().words.map(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tag_id cannot be None or empty"):
        OutputTag("")
