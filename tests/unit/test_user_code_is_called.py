"""Methods of classes of the program are called as they are written, whatever fast path the engine has instead.

The table has a row for each public class that a program may extend. The lists below it say of every other public class
why nobody extends it, so that a new class must be put into one of them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import tempfile
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial, wraps
from typing import Any

import pytest
from confluent_kafka import Message

from flinkish.common import (
    ByteArraySchema,
    Encoder,
    Row,
    SimpleStringSchema,
    Types,
    WatermarkStrategy,
)
from flinkish.common import watermark_strategy as watermarks
from flinkish.common.accumulators import IntCounter
from flinkish.common.arguments import inherits, runs_ours, stands_for
from flinkish.common.serialization import RowFieldExtractorSchema, batch_deserializer
from flinkish.common.typeinfo.basic import BasicTypeInfo
from flinkish.connectors.kafka.settings import KafkaRecordDeserializationSchema, decoded
from flinkish.connectors.kafka.sink import KafkaRecordSerializationSchema
from flinkish.datastream import DataStream, functions, window
from flinkish.datastream.connectors import file_system, number_seq
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.kafka import KafkaSink, KafkaTopicSelector
from flinkish.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from flinkish.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from flinkish.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from tests.support.functions import Elements
from tests.support.programs import new_environment, results_of
from tests.support.sources import MODULES, nodes_of

ROW = Types.ROW_NAMED(["a"], [Types.INT()])
AVRO = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
WORDS = [("a", 1), ("b", 2), ("a", 3)]


class Calls(list[str]):
    """The methods of the program that were called, by name."""


CALLS = Calls()


def noting(kind: type, *names: str, **attributes: Any) -> Any:
    """A class of the program that overrides methods of ``kind``: they note the call and do what they did before."""

    def overriding(name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any) -> Any:
            return _noted(name, getattr(super(own, self), name)(*arguments))

        return method

    methods = {name: overriding(name) for name in names}
    own = type(f"Own{kind.__name__}", (kind,), {**methods, **attributes, "__module__": __name__})
    return own


def of_class(instance: Any, *names: str) -> Any:
    """An object that a builder of flinkish has made, as one of a class that overrides these methods."""
    instance.__class__ = noting(type(instance), *names)
    return instance


def words(parallelism: int = 1) -> DataStream:
    return new_environment(parallelism).from_collection(WORDS, Types.TUPLE([Types.STRING(), Types.INT()]))


class FromField(watermarks.TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def timed() -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(FromField())
    return words().assign_timestamps_and_watermarks(strategy)


def windows(assigner: Any, trigger: Any = None, evictor: Any = None) -> None:
    stream = timed().key_by(lambda word: word[0]).window(assigner)
    stream = stream if trigger is None else stream.trigger(trigger)
    stream = stream if evictor is None else stream.evictor(evictor)
    results_of(stream.reduce(lambda old, new: old))


def strategy(own: Any) -> None:
    results_of(words().assign_timestamps_and_watermarks(own))


def read(schema: Any, message: bytes = b'{"a": 1}') -> None:
    decoded(schema, [Message(topic="t", value=message, timestamp=(1, 5))], "t-0", True)
    batch_deserializer(schema)([message])


def written(schema: Any, value: Any) -> None:
    records = KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(schema).build()
    records.bind(Types.INT() if isinstance(value, int) else ROW).serialize_batch([value])


def file_sink(sink: Any) -> None:
    env = new_environment()
    env.from_collection([1], Types.INT()).sink_to(sink)
    env.execute()


def folder(encoder: Any = None) -> Any:
    path = tempfile.mkdtemp()
    return file_system.FileSink.for_row_format(path, encoder or Encoder.simple_string_encoder())


def file_system_sink() -> Any:
    return folder().build()


def kafka_sink() -> Any:
    records = KafkaRecordSerializationSchema.builder().set_topic("t")
    records = records.set_value_serialization_schema(SimpleStringSchema()).build()
    return KafkaSink.builder().set_bootstrap_servers("localhost:1").set_record_serializer(records).build()


def with_attribute(function: Any, name: str) -> Any:
    """An object that overrides a method by an attribute of its own."""
    setattr(function, name, partial(_noted_call, name, getattr(function, name)))
    return function


def _noted_call(name: str, before: Callable[..., Any], *arguments: Any) -> Any:
    return _noted(name, before(*arguments))


OWN_SCHEMAS: dict[str, Callable[[], Any]] = {
    "SimpleStringSchema.deserialize": lambda: read(noting(SimpleStringSchema, "deserialize")()),
    "SimpleStringSchema.serialize": lambda: written(noting(SimpleStringSchema, "serialize")(), 5),
    "ByteArraySchema.deserialize": lambda: read(noting(ByteArraySchema, "deserialize")()),
    "ByteArraySchema.serialize": lambda: written(noting(ByteArraySchema, "serialize")(), b"5"),
    "RowFieldExtractorSchema.serialize": lambda: written(noting(RowFieldExtractorSchema, "serialize")(0), Row(b"5")),
    "JsonRowDeserializationSchema.deserialize": lambda: read(
        of_class(JsonRowDeserializationSchema.builder().type_info(ROW).build(), "deserialize")
    ),
    "JsonRowSerializationSchema.serialize": lambda: written(
        of_class(JsonRowSerializationSchema.builder().with_type_info(ROW).build(), "serialize"), Row(a=1)
    ),
    "CsvRowDeserializationSchema.deserialize": lambda: read(
        of_class(CsvRowDeserializationSchema.Builder(ROW).build(), "deserialize"), b"1"
    ),
    "CsvRowSerializationSchema.serialize": lambda: written(
        of_class(CsvRowSerializationSchema.Builder(ROW).build(), "serialize"), Row(a=1)
    ),
    "AvroRowDeserializationSchema.deserialize": lambda: read(
        noting(AvroRowDeserializationSchema, "deserialize")(avro_schema_string=AVRO), b"\x02"
    ),
    "AvroRowSerializationSchema.serialize": lambda: written(
        noting(AvroRowSerializationSchema, "serialize")(avro_schema_string=AVRO), Row(a=1)
    ),
}

OWN_CLASSES: dict[str, Callable[[], Any]] = {
    **OWN_SCHEMAS,
    "WatermarkStrategy.create_timestamp_assigner": lambda: strategy(
        noting(WatermarkStrategy, "create_timestamp_assigner")(kind="bounded")
    ),
    "WatermarkStrategy.create_watermark_generator": lambda: strategy(
        noting(WatermarkStrategy, "create_watermark_generator")(kind="bounded").with_timestamp_assigner(FromField())
    ),
    "TimestampAssigner.extract_timestamp": lambda: strategy(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(noting(FromField, "extract_timestamp")())
    ),
    "TumblingEventTimeWindows.assign_windows": lambda: windows(
        noting(window.TumblingEventTimeWindows, "assign_windows")(10)
    ),
    "TumblingProcessingTimeWindows.assign_windows": lambda: windows(
        noting(window.TumblingProcessingTimeWindows, "assign_windows")(10)
    ),
    "SlidingEventTimeWindows.assign_windows": lambda: windows(
        noting(window.SlidingEventTimeWindows, "assign_windows")(10, 5)
    ),
    "SlidingProcessingTimeWindows.assign_windows": lambda: windows(
        noting(window.SlidingProcessingTimeWindows, "assign_windows")(10, 5)
    ),
    "EventTimeSessionWindows.assign_windows": lambda: windows(
        noting(window.EventTimeSessionWindows, "assign_windows")(10)
    ),
    "EventTimeSessionWindows.merge_windows": lambda: windows(
        noting(window.EventTimeSessionWindows, "merge_windows")(10)
    ),
    "ProcessingTimeSessionWindows.assign_windows": lambda: windows(
        noting(window.ProcessingTimeSessionWindows, "assign_windows")(10)
    ),
    "DynamicEventTimeSessionWindows.assign_windows": lambda: windows(
        noting(window.DynamicEventTimeSessionWindows, "assign_windows")(Gap())
    ),
    "DynamicProcessingTimeSessionWindows.assign_windows": lambda: windows(
        noting(window.DynamicProcessingTimeSessionWindows, "assign_windows")(Gap())
    ),
    "SessionWindowTimeGapExtractor.extract": lambda: windows(
        window.EventTimeSessionWindows.with_dynamic_gap(noting(Gap, "extract")())
    ),
    "GlobalWindows.assign_windows": lambda: windows(
        noting(window.GlobalWindows, "assign_windows")(), window.CountTrigger.of(1)
    ),
    "CountTumblingWindowAssigner.assign_windows": lambda: windows(
        noting(window.CountTumblingWindowAssigner, "assign_windows")(1)
    ),
    "CountSlidingWindowAssigner.assign_windows": lambda: windows(
        noting(window.CountSlidingWindowAssigner, "assign_windows")(1, 1)
    ),
    "TumblingEventTimeWindows.get_default_trigger": lambda: windows(
        noting(window.TumblingEventTimeWindows, "get_default_trigger")(10)
    ),
    "EventTimeTrigger.on_element": lambda: windows(EVENT_TIME, noting(window.EventTimeTrigger, "on_element")()),
    "EventTimeTrigger.on_event_time": lambda: windows(EVENT_TIME, noting(window.EventTimeTrigger, "on_event_time")()),
    "EventTimeTrigger.clear": lambda: windows(EVENT_TIME, noting(window.EventTimeTrigger, "clear")()),
    "EventTimeTrigger.on_merge": lambda: windows(SESSIONS, noting(window.EventTimeTrigger, "on_merge")()),
    "CountTrigger.on_element": lambda: windows(EVENT_TIME, noting(window.CountTrigger, "on_element")(1)),
    "PurgingTrigger.on_element": lambda: windows(
        EVENT_TIME, noting(window.PurgingTrigger, "on_element")(window.EventTimeTrigger())
    ),
    "ProcessingTimeTrigger.on_element": lambda: windows(
        EVENT_TIME, noting(window.ProcessingTimeTrigger, "on_element")()
    ),
    "NeverTrigger.on_element": lambda: windows(EVENT_TIME, noting(window.NeverTrigger, "on_element")()),
    "ContinuousEventTimeTrigger.on_element": lambda: windows(
        EVENT_TIME, noting(window.ContinuousEventTimeTrigger, "on_element")(5)
    ),
    "ContinuousProcessingTimeTrigger.on_element": lambda: windows(
        EVENT_TIME, noting(window.ContinuousProcessingTimeTrigger, "on_element")(5)
    ),
    "CountEvictor.evict_before": lambda: windows(EVENT_TIME, None, noting(window.CountEvictor, "evict_before")(1)),
    "TimeEvictor.evict_before": lambda: windows(EVENT_TIME, None, noting(window.TimeEvictor, "evict_before")(1)),
    "DeltaEvictor.evict_before": lambda: windows(
        EVENT_TIME, None, noting(window.DeltaEvictor, "evict_before")(1, lambda old, new: 0)
    ),
    "TypeInformation.convert": lambda: results_of(words().map(lambda word: word[0], noting(Text, "convert")())),
    "DataGeneratorSource.values": lambda: results_of(
        new_environment().from_source(
            noting(DataGeneratorSource, "values")(abs, 2).with_splits(2), WatermarkStrategy.no_watermarks(), "numbers"
        )
    ),
    "NumberSequenceSource.values": lambda: results_of(
        new_environment().from_source(
            noting(number_seq.NumberSequenceSource, "values")(1, 2), WatermarkStrategy.no_watermarks(), "numbers"
        )
    ),
    "KafkaTopicSelector.apply": lambda: (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(type("Own", (KafkaTopicSelector,), {"apply": lambda self, data: _noted("apply", "t")})())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
        .serialize_batch(["a"])
    ),
    "KafkaRecordDeserializationSchema.deserialize": lambda: decoded(
        type(
            "Own",
            (KafkaRecordDeserializationSchema,),
            {
                "deserialize": lambda self, record: _noted("deserialize", record.value),
                "get_produced_type": lambda self: Types.STRING(),
            },
        )(),
        [Message(topic="t", value=b"a", timestamp=(1, 5))],
        "t-0",
        True,
    ),
    "IntCounter.add": lambda: results_of(words().map(Counting())),
    "FileSink.create_writer": lambda: file_sink(of_class(file_system_sink(), "create_writer")),
    "FileSink.create_committer": lambda: file_sink(of_class(file_system_sink(), "create_committer")),
    "KafkaSink.create_writer": lambda: (
        of_class(kafka_sink(), "create_writer").with_input_type(Types.INT()).create_writer()
    ),
    "BucketAssigner.get_bucket_id": lambda: file_sink(
        folder().with_bucket_assigner(noting(file_system.BucketAssigner, "get_bucket_id")()).build()
    ),
    "BucketAssigner.bucket": lambda: file_sink(
        folder().with_bucket_assigner(noting(file_system.BucketAssigner, "bucket")()).build()
    ),
    "OutputFileConfig.get_part_prefix": lambda: file_sink(
        folder().with_output_file_config(noting(file_system.OutputFileConfig, "get_part_prefix")()).build()
    ),
    "Encoder.encode": lambda: file_sink(folder(of_class(Encoder.simple_string_encoder(), "encode")).build()),
    # what the engine need not call unless it is overridden
    "MapFunction.open": lambda: results_of(
        words().key_by(lambda word: word[0]).map(with_attribute(Counting(), "open"))
    ),
    "ProcessWindowFunction.clear": lambda: results_of(
        timed().key_by(lambda word: word[0]).window(EVENT_TIME).process(with_attribute(Elements(), "clear"))
    ),
    "KeyedProcessFunction.on_timer": lambda: results_of(
        timed().key_by(lambda word: word[0]).process(with_attribute(Timed(), "on_timer"))
    ),
    "SplitSource.acknowledge": lambda: results_of(
        new_environment().from_source(
            noting(number_seq.NumberSequenceSource, "acknowledge")(1, 2), WatermarkStrategy.no_watermarks(), "numbers"
        )
    ),
}


def _noted(name: str, result: Any) -> Any:
    CALLS.append(name)
    return result


class Gap(window.SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return 10


class Text(BasicTypeInfo):
    def __init__(self) -> None:
        self.__dict__.update(vars(Types.STRING()))


class OwnCounter(IntCounter):
    def add(self, value: int) -> None:
        _noted("add", super().add(value))


class Counting(functions.MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = OwnCounter()
        runtime_context.add_accumulator("n", self.count)

    def map(self, value: Any) -> Any:
        self.count.add(1)
        return value


class Timed(functions.KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)


EVENT_TIME, SESSIONS = window.TumblingEventTimeWindows(10), window.EventTimeSessionWindows(10)


@pytest.mark.parametrize("method", OWN_CLASSES)
def test_a_method_of_the_program_is_called_and_not_passed_over(method: str) -> None:
    CALLS.clear()
    OWN_CLASSES[method]()
    assert method.split(".")[1] in CALLS


def test_an_attribute_of_an_object_and_a_patch_of_our_class_override_a_method_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = SimpleStringSchema()
    assert batch_deserializer(schema)([b"a"]) == ["a"]
    schema.deserialize = lambda message: "own"  # type: ignore[method-assign, assignment, misc]
    assert batch_deserializer(schema)([b"a"]) == ["own"]
    assert batch_deserializer(pickle_round_trip(schema))([b"a"]) == ["own"]
    before = SimpleStringSchema.deserialize
    monkeypatch.setattr(SimpleStringSchema, "deserialize", wraps(before)(lambda self, message: "patched"))
    assert batch_deserializer(SimpleStringSchema())([b"a"]) == ["patched"]


def pickle_round_trip(value: Any) -> Any:
    from pyspark import cloudpickle

    return cloudpickle.loads(cloudpickle.dumps(value))


def test_whoever_overrides_both_forms_last_is_called() -> None:
    class Both(SimpleStringSchema):
        def deserialize(self, message: Any) -> Any:
            return "one"

        def deserialize_batch(self, messages: Any) -> Any:
            return ["many" for _ in messages]

    class OneAfterwards(Both):
        def deserialize(self, message: Any) -> Any:
            return "one afterwards"

    assert batch_deserializer(Both())([b"a"]) == ["many"]
    assert batch_deserializer(OneAfterwards())([b"a"]) == ["one afterwards"]


def test_a_method_that_keeps_the_base_method_is_no_override() -> None:
    class Plain(SimpleStringSchema):
        pass

    assert runs_ours(Plain(), "deserialize")
    assert not runs_ours(noting(SimpleStringSchema, "serialize")())
    assert inherits(Elements(), functions.ProcessWindowFunction, "clear")
    assert not stands_for(noting(window.EventTimeTrigger, "on_merge")(), "traits", "on_element", "on_merge")


@pytest.mark.parametrize(
    "schema",
    [
        JsonRowDeserializationSchema.builder().type_info(ROW).build(),
        JsonRowSerializationSchema.builder().with_type_info(ROW).build(),
        CsvRowDeserializationSchema.Builder(ROW).build(),
        CsvRowSerializationSchema.Builder(ROW).build(),
        AvroRowDeserializationSchema(avro_schema_string=AVRO),
        AvroRowSerializationSchema(avro_schema_string=AVRO),
    ],
    ids=lambda schema: type(schema).__name__,
)
def test_what_a_class_derived_from_a_schema_has_set_travels_to_the_worker(schema: Any) -> None:
    schema.__dict__["salt"] = 5
    assert pickle_round_trip(schema).salt == 5


# --- the table has all of them --------------------------------------------------------------------------------------

#: Classes of which a program gets or makes objects, and whose methods the engine does not call to know what to do.
VALUES_AND_SETTINGS = """
    AvroSchema BulkFormat CheckpointConfig CommitContext CompletableFuture ConfigOption ConfigOptions Configuration
    ConsumerRecord CountWindow CsvSchema CsvSchemaBuilder CustomCheckpointStorage CustomStateBackend DeadLetter Duration
    EmbeddedRocksDBStateBackend EnvironmentSettings ExecutionConfig ExternalizedCheckpointRetention
    FileSystemCheckpointStorage FsStateBackend GlobalWindow HashMapStateBackend Instant JdbcConnectionOptions
    JdbcExecutionOptions JobExecutionResult JobID JobManagerCheckpointStorage KafkaTopicPartition MemorySize
    MemoryStateBackend OnError OutputTag Page Program RocksDBStateBackend Row SlotSharingGroup SourceSplit
    SplitEnumeratorContext SplitRange SplitRecords StateBackend StateTtlConfig StreamFormat StreamGraph StreamNode Tap
    Time TimeWindow TimestampedValue UnitCost CheckpointStorage
""".split()
#: Streams and builders: what is called on them is called by the program.
CALLED_BY_THE_PROGRAM = """
    AllWindowedStream AsyncDataStream AssignerWithPeriodicWatermarksWrapper AvroBulkWriters AvroParquetReaders
    AvroParquetWriters BroadcastConnectedStream BroadcastStream CachedDataStream CloseableIterator CoGroupedStreams
    ConnectedStreams CsvBulkWriters CsvReaderFormat DataStream DataStreamSink FileSourceBuilder FileSourceSplit
    HybridSourceBuilder IntervalJoin IntervalJoined JdbcSink JoinedStreams KafkaRecordSerializationSchemaBuilder
    KafkaSinkBuilder KafkaSourceBuilder KeyedStream KinesisFirehoseSinkBuilder KinesisStreamsSinkBuilder
    OrcBulkWriters ParquetBulkWriters RestartStrategies
    StreamExecutionEnvironment Types WindowedStream
""".split()
#: Their own methods are refused, or have no effect and say so.
REFUSED = """
    DefaultRollingPolicy FileCompactStrategy FileCompactor FileEnumeratorProvider FileSplitAssignerProvider
    KafkaOffsetsInitializer KafkaRecordSerializationSchema KinesisShardAssigner OnCheckpointRollingPolicy RollingPolicy
    WatermarkTracker
""".split()
#: Asked by the engine for all that they do, without a second way: sources, sinks, descriptors, retry strategies.
WITHOUT_A_FAST_PATH = """
    AggregatingStateDescriptor AvroInputFormat AverageAccumulator BaseBroadcastProcessFunction CheckpointListener
    CountWindowSerializer DeltaSink DeltaSource DoubleCounter ExponentialBackoffDelayRetryStrategy FileSource
    FixedDelayRetryStrategy FlinkKafkaConsumer FlinkKafkaConsumerBase FlinkKafkaProducer Function FunctionSink
    FlinkKinesisConsumer GlobalWindowSerializer Histogram HybridSource JdbcSource KafkaSource KinesisFirehoseSink
    KinesisStreamsSink ListAccumulator ListStateDescriptor LongCounter PartitionKeyGenerator
    MapStateDescriptor NoRetryStrategy ParquetColumnarRowInputFormat ReducingStateDescriptor RetryPredicate SinkWriter
    OperatorFactory Sink SparkSource StreamingFileSink TimeWindowSerializer ValueStateDescriptor WatermarkContext
""".split()
#: Types: a class of the program may override `convert`, as the row of TypeInformation says.
TYPES = """
    BasicArrayTypeInfo BasicTypeInfo DateTypeInfo ExternalTypeInfo GenericRecordAvroTypeInfo InstantTypeInfo
    ListTypeInfo LocalTimeTypeInfo MapTypeInfo ObjectArrayTypeInfo PickledBytesTypeInfo PrimitiveArrayTypeInfo
    RowTypeInfo TimeTypeInfo TimestampTypeInfo TupleTypeInfo
""".split()
NOT_IN_THE_TABLE = {*VALUES_AND_SETTINGS, *CALLED_BY_THE_PROGRAM, *REFUSED, *WITHOUT_A_FAST_PATH, *TYPES}


def public_classes() -> dict[str, type]:
    """The classes that programs import, except enums, exceptions and contracts that have no behaviour of their own."""
    names = ["flinkish.common", "flinkish.common.serialization", "flinkish.common.watermark_strategy"]
    names += ["flinkish.common.accumulators", "flinkish.common.typeinfo", "flinkish.datastream"]
    api = importlib.import_module("flinkish.datastream").__path__
    names += [
        found.name for found in pkgutil.walk_packages(api, "flinkish.datastream.") if ".streams" not in found.name
    ]
    found = {}
    for module in map(importlib.import_module, names):
        for name in getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"]):
            kind = getattr(module, name)
            if isinstance(kind, type) and kind.__module__.startswith("flinkish") and not inspect.isabstract(kind):
                if not issubclass(kind, (BaseException, Enum)):
                    found[kind.__name__] = kind
    return found


def test_each_public_class_is_in_the_table_or_is_not_extended() -> None:
    in_table = {row.split(".")[0] for row in OWN_CLASSES}
    assert set(public_classes()) - in_table - NOT_IN_THE_TABLE == set()
    assert in_table & NOT_IN_THE_TABLE == set()


HELPERS = ("runs_ours", "stands_for", "inherits", "form_for_lists")


def test_each_method_that_a_fast_path_stands_for_is_in_the_table() -> None:
    in_table = {row.split(".")[1] for row in OWN_CLASSES}
    asked = {
        argument.value
        for path in MODULES
        for call in nodes_of(path)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in HELPERS
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    # the fast forms themselves, and what a row of its own would only repeat
    assert asked - in_table == {"_convert", "on_processing_time", "traits"}
    assert len(asked) > 15


def compared_types() -> Iterator[str]:
    """Where the engine's code compares the class of an object, or a method of it, with one that programs extend."""
    extended = {row.split(".")[0] for row in OWN_CLASSES} | {
        "Function",
        "ProcessWindowFunction",
        "KeyedProcessFunction",
    }
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.Compare) and ("type(" in (left := ast.unparse(node.left)) or "__class__" in left):
                names = {name.id for part in node.comparators for name in ast.walk(part) if isinstance(name, ast.Name)}
                if names & extended:
                    yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"


def test_no_fast_path_asks_for_the_class_of_an_object_instead() -> None:
    assert list(compared_types()) == []
