"""Queries of `benchmarks.table_queries` as DataStream programs, as a user of rows would write them: each function adds
one to an environment. ``source``: the arguments of the functions below that make sources."""

from __future__ import annotations

from typing import Any

from flinkish.common import Duration, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.results import BlackholeSink
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.file_system import FileSource
from flinkish.datastream.functions import AggregateFunction, ProcessWindowFunction
from flinkish.datastream.window import TumblingEventTimeWindows

TYPES = {
    "user_n": Types.LONG(),
    "user_id": Types.STRING(),
    "amount": Types.DOUBLE(),
    "qty": Types.INT(),
    "page": Types.STRING(),
    "ms": Types.LONG(),
}
BOUND = Duration.of_seconds(5)


def files(columns: list[str], folder: str, monitored: bool = False) -> FileSource:
    """These columns of Parquet files, as tuples."""
    source = FileSource.parquet(folder, type_info=Types.TUPLE([TYPES[name] for name in columns]), columns=columns)
    return source.monitor(Duration.of_millis(1)) if monitored else source


def messages(bootstrap: str, topic: str) -> Any:
    """The Rows of all fields of the messages of a topic: JSON's schema for Rows has the fields that messages have."""
    from flinkish.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
    from flinkish.datastream.formats.json import JsonRowDeserializationSchema

    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(list(TYPES), list(TYPES.values())))
    builder = KafkaSource.builder().set_bootstrap_servers(bootstrap).set_topics(topic)
    builder = builder.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    builder = builder.set_bounded(KafkaOffsetsInitializer.latest())
    return builder.set_value_only_deserializer(schema.build()).build()


def select(env: StreamExecutionEnvironment, **source: Any) -> None:
    """SELECT, WHERE with arithmetic."""
    events = env.from_source(files(["user_n", "amount", "qty"], **source), WatermarkStrategy.no_watermarks(), "events")
    wanted = events.filter(lambda event: event[1] > 20 and event[2] < 90)
    wanted.map(lambda event: (event[0], event[1] * 1.19 + event[2], event[2] * 2)).sink_to(BlackholeSink())


class EventTime(TimestampAssigner):
    """The column ms of a tuple."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Milliseconds."""
        ms: int = value[2]
        return ms


class EventTimeOfRow(TimestampAssigner):
    """The field ms of a Row."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Milliseconds."""
        ms: int = value.ms
        return ms


class CountAndSum(AggregateFunction):
    """COUNT(*), SUM(amount)."""

    def create_accumulator(self) -> tuple[int, float]:
        """Zero."""
        return (0, 0.0)

    def add(self, value: Any, accumulator: tuple[int, float]) -> tuple[int, float]:
        """Add an event."""
        return (accumulator[0] + 1, accumulator[1] + value[1])

    def get_result(self, accumulator: tuple[int, float]) -> tuple[int, float]:
        """The accumulator itself."""
        return accumulator

    def merge(self, acc_a: tuple[int, float], acc_b: tuple[int, float]) -> tuple[int, float]:
        """Add two accumulators."""
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


class CountAndSumOfRows(CountAndSum):
    """The same of Rows."""

    def add(self, value: Any, accumulator: tuple[int, float]) -> tuple[int, float]:
        """Add an event."""
        return (accumulator[0] + 1, accumulator[1] + value.amount)


class WithWindow(ProcessWindowFunction):  # type: ignore[type-arg]
    """(key, window_start, count, sum)."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        """One result per window."""
        for count, total in elements:
            yield (key, context.window().start, count, total)


def tumble(env: StreamExecutionEnvironment, key: str, prints: bool = False, **source: Any) -> None:
    """COUNT and SUM per key and minute, from files, or from Kafka if there is a topic."""
    from_kafka = "topic" in source
    made = messages(**source) if from_kafka else files([key, "amount", "ms"], **source)
    time: TimestampAssigner = EventTimeOfRow() if from_kafka else EventTime()
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(BOUND).with_timestamp_assigner(time)
    if source.get("monitored"):
        # a source that may be idle is looked at in epochs without events
        watermarks = watermarks.with_idleness(Duration.of_minutes(60))
    events = env.from_source(made, watermarks, "events")
    keyed = events.key_by((lambda event: event[key]) if from_kafka else (lambda event: event[0]))
    windows = keyed.window(TumblingEventTimeWindows.of(Time.minutes(1)))
    results = windows.aggregate(CountAndSumOfRows() if from_kafka else CountAndSum(), WithWindow())
    if prints:
        results.print()
        return
    results.sink_to(BlackholeSink())
