"""A source gives timestamps only where something in the job reads them; whatever reads them gets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from flinkish.common import Duration, Time, Types, WatermarkStrategy
from flinkish.common.serialization import Encoder, SimpleStringSchema
from flinkish.connectors.file_system.sink import FileSink
from flinkish.connectors.kafka.flink_kafka import FlinkKafkaProducer
from flinkish.connectors.results import CollectSink, PrintSink
from flinkish.core.sink import SinkWriter
from flinkish.core.source import SourceSplit, SplitRange, SplitReader, SplitRecords
from flinkish.core.window.trigger import Trigger, TriggerResult
from flinkish.datastream import (
    AsyncDataStream,
    BroadcastProcessFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OnError,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeExecutionMode,
)
from flinkish.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from flinkish.datastream.state import MapStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from flinkish.runtime.exchange.buffer import decode, decode_elements
from flinkish.runtime.task.source_task import SourceInput, SourceTask, SplitBatch, side_by_side
from flinkish.runtime.task.task import EpochStamp
from flinkish.testing import End, StreamRecord, TestingSink, TestingSource
from tests.support.functions import PassOnAsync

from .programs import environment, job_of, run

NO_WATERMARKS = WatermarkStrategy.no_watermarks()
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
DEAD = OutputTag("dead")
RECORDS = ('{"k": "a", "n": 1}', '{"k": "b", "n": 2}', '{"k": "a", "n": 3}')
TIMES = (1_000, 2_000, 61_000)


class Asked(TestingSource):
    """Notes whether its readers are asked for timestamps."""

    asked: list[bool] = []

    def create_reader(self) -> SplitReader:
        return AskedReader(super().create_reader())


class AskedReader(SplitReader):
    def __init__(self, reader: SplitReader) -> None:
        self._reader = reader

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        Asked.asked.append(self.with_timestamps)
        return self._reader.read(wanted, batch_size)


def source_in(env: Any, strategy: WatermarkStrategy = NO_WATERMARKS) -> DataStream:
    elements = map(StreamRecord, RECORDS, TIMES)
    return env.from_source(Asked(*elements, End(), type_info=Types.STRING()), strategy, "source")


def parsed(stream: DataStream) -> DataStream:
    return stream.map(json.loads).map(lambda r: (r["k"], r["n"]), Types.TUPLE([Types.STRING(), Types.INT()]))


def by_key(stream: DataStream) -> Any:
    return parsed(stream).key_by(lambda r: r[0])


class Stamp(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.timestamp()


class KeyedStamp(KeyedProcessFunction):
    process_element = Stamp.process_element


class CoStamp(CoProcessFunction):
    process_element1 = process_element2 = Stamp.process_element


class KeyedCoStamp(KeyedCoProcessFunction):
    process_element1 = process_element2 = Stamp.process_element


class BroadcastStamp(BroadcastProcessFunction[Any, Any, Any]):
    process_element = Stamp.process_element

    def process_broadcast_element(self, value: Any, ctx: Any) -> None: ...


class KeyedBroadcastStamp(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    process_element = Stamp.process_element

    def process_broadcast_element(self, value: Any, ctx: Any) -> None: ...


class Start(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield context.window().start


class AtOnce(Trigger[Any, Any]):
    """Fires with each record, and keeps the timestamps that it is given."""

    seen: list[int] = []

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        AtOnce.seen.append(timestamp)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None: ...

    def clear(self, window: Any, ctx: Any) -> None: ...


class Later:
    """A timestamp assigner that makes use of the former timestamp."""

    def __call__(self, value: Any, record_timestamp: int) -> int:
        return record_timestamp + 7


class StampingWriter(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return list(timestamps or ())


class StampingSink(TestingSink):
    """The sink of a program that says nothing of timestamps, and whose base reads none."""

    def create_writer(self) -> SinkWriter:
        return StampingWriter()


class Both(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


def other(stream: DataStream) -> DataStream:
    return stream.get_execution_environment().from_collection(["x"], Types.STRING())


def broadcast(stream: DataStream) -> Any:
    return other(stream).broadcast(RULES)


def failing(value: Any) -> Any:
    raise ValueError(value)


def dead_letters(stream: DataStream) -> DataStream:
    failed = stream.map(failing).on_error(OnError.dead_letter(DEAD, max_failures=10))
    return failed.get_side_output(DEAD).map(lambda letter: letter.timestamp)


def later(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Later())
    return stream.assign_timestamps_and_watermarks(strategy).process(Stamp())


def windows_of(stream: DataStream, strategy: WatermarkStrategy) -> DataStream:
    timed = stream.assign_timestamps_and_watermarks(strategy)
    return by_key(timed).window(TumblingEventTimeWindows.of(Time.seconds(60))).process(Start())


STAMPS = sorted(TIMES)
READING: dict[str, tuple[Callable[[DataStream], DataStream], list[Any]]] = {
    "process": (lambda s: s.process(Stamp()), STAMPS),
    "process behind a map, a filter and a flat_map": (
        lambda s: s.map(str).filter(bool).flat_map(lambda v: [v]).process(Stamp()),
        STAMPS,
    ),
    "process behind a rolling sum": (lambda s: by_key(s).sum(1).process(Stamp()), STAMPS),
    "process behind an asynchronous call": (
        lambda s: AsyncDataStream.unordered_wait(s, PassOnAsync(), Time.seconds(5)).process(Stamp()),
        STAMPS,
    ),
    "keyed process": (lambda s: by_key(s).process(KeyedStamp()), STAMPS),
    "process of two streams": (lambda s: s.connect(other(s).filter(lambda v: False)).process(CoStamp()), STAMPS),
    "keyed process of two streams": (
        lambda s: by_key(s).connect(other(s).filter(lambda v: False).key_by(lambda v: v)).process(KeyedCoStamp()),
        STAMPS,
    ),
    "process with a broadcast stream": (lambda s: s.connect(broadcast(s)).process(BroadcastStamp()), STAMPS),
    "keyed process with a broadcast stream": (
        lambda s: by_key(s).connect(broadcast(s)).process(KeyedBroadcastStamp()),
        STAMPS,
    ),
    "event-time windows": (
        lambda s: windows_of(s, WatermarkStrategy.for_monotonous_timestamps()),
        [0, 0, 60_000],
    ),
    "event-time windows of bounded disorder": (
        lambda s: windows_of(s, WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))),
        [0, 0, 60_000],
    ),
    "a timestamp assigner": (later, [time + 7 for time in STAMPS]),
    "dead letters": (dead_letters, STAMPS),
}

PASSING: dict[str, Callable[[DataStream], DataStream]] = {
    "a sink": lambda s: s,
    "map, filter and flat_map": lambda s: parsed(s).filter(bool).flat_map(lambda r: [r]),
    "reduce": lambda s: by_key(s).reduce(lambda a, b: b),
    "sum": lambda s: by_key(s).sum(1),
    "union": lambda s: s.union(other(s)),
    "map of two streams": lambda s: s.connect(other(s)).map(Both()),
    "an asynchronous call": lambda s: AsyncDataStream.unordered_wait(s, PassOnAsync(), Time.seconds(5)),
}


def asked_by(build: Callable[[DataStream], Any], sink: Any, batch: bool = False) -> tuple[list[Any], set[bool]]:
    """The records of the sink, and whether the source was asked for timestamps."""
    env = environment(1)
    if batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    build(source_in(env)).sink_to(sink)
    Asked.asked.clear()
    run(job_of(env))
    return sorted(sink.values), set(Asked.asked)


@pytest.mark.parametrize("name", READING)
def test_what_reads_timestamps_gets_them(name: str) -> None:
    build, expected = READING[name]
    assert asked_by(build, TestingSink()) == (expected, {True})


def test_a_trigger_gets_timestamps_in_windows_of_processing_time() -> None:
    AtOnce.seen.clear()
    windows = TumblingProcessingTimeWindows.of(Time.seconds(60))
    _, asked = asked_by(lambda s: by_key(s).window(windows).trigger(AtOnce()).process(Start()), TestingSink())
    assert (sorted(AtOnce.seen), asked) == (STAMPS, {True})


def test_a_sink_of_the_program_gets_timestamps_unless_it_says_that_it_reads_none() -> None:
    assert asked_by(parsed, StampingSink()) == (STAMPS, {True})


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("name", PASSING)
def test_a_source_is_not_asked_for_timestamps_that_nothing_reads(name: str, batch: bool) -> None:
    records, asked = asked_by(lambda s: PASSING[name](s).map(repr), TestingSink(), batch)
    assert records and asked == {False}


def test_one_reader_of_timestamps_among_the_branches_of_a_stream_is_enough() -> None:
    def build(stream: DataStream) -> DataStream:
        by_key(stream).sum(1).sink_to(TestingSink())
        return stream.map(str).process(Stamp())

    assert asked_by(build, TestingSink()) == (STAMPS, {True})


def kafka_sink() -> KafkaSink:
    serializer = KafkaRecordSerializationSchema.builder().set_topic("out")
    serializer = serializer.set_value_serialization_schema(SimpleStringSchema()).build()
    return KafkaSink.builder().set_bootstrap_servers("localhost:1").set_record_serializer(serializer).build()


def kafka_producer(with_timestamps: bool) -> FlinkKafkaProducer:
    producer = FlinkKafkaProducer("out", SimpleStringSchema(), {"bootstrap.servers": "localhost:1"})
    producer.set_write_timestamp_to_kafka(with_timestamps)
    return producer


@pytest.mark.parametrize(
    ("sink", "read"),
    [
        (kafka_sink, True),
        (lambda: kafka_producer(True), True),
        (lambda: kafka_producer(False), False),
        (lambda: FileSink.for_row_format("out", Encoder.simple_string_encoder()).build(), False),
        (PrintSink, False),
        (CollectSink, False),
    ],
)
def test_sinks_say_whether_they_read_timestamps(sink: Callable[[], Any], read: bool) -> None:
    env = environment(1)
    source_in(env).sink_to(sink())
    assert [vertex.with_timestamps for vertex in job_of(env).vertices] == [read]


@pytest.mark.parametrize("read", [False, True])
def test_buffers_carry_only_timestamps_that_are_read(read: bool) -> None:
    env = environment(1)
    keyed = by_key(source_in(env))
    (keyed.process(KeyedStamp()) if read else keyed.sum(1)).sink_to(TestingSink())
    job = job_of(env)
    task = SourceTask(job, job.vertex(0), 0)
    given = SourceInput([SplitBatch("0", list(RECORDS), list(TIMES))])
    rows = [row for rows in task.run(given, EpochStamp(0, 0)) for row in rows]
    buffers = [decode(row[2]) for row in rows if row[0] == 1]
    timestamps = [decode_elements(buffer.payload).timestamps for buffer in buffers if buffer.header.records]
    assert timestamps == [list(TIMES) if read else None]
    task.dispose()


class Turns(SplitReader):
    """Batches with these times, with timestamps or without."""

    def __init__(self, times: dict[str, list[int]]) -> None:
        self._times = times

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        for time in self._times[wanted.split.id]:
            yield SplitRecords([time], [time] if self.with_timestamps else None, newest_ms=time)


@pytest.mark.parametrize("with_timestamps", [True, False])
def test_splits_take_turns_by_their_times_even_if_nothing_reads_timestamps(with_timestamps: bool) -> None:
    reader = Turns({"slow": [1, 5, 9], "fast": [2, 3, 4, 8]})
    reader.with_timestamps = with_timestamps
    ranges = [SplitRange(SourceSplit(name), 0, 5) for name in ("slow", "fast")]
    read = [value for batch in side_by_side(reader, ranges, 1) for value in batch.values]
    assert read == [1, 2, 5, 3, 4, 8, 9]
