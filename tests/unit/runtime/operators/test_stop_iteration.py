"""StopIteration in user code is an error: it must not end the batch, which would lose the records behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flinkish.common import Time, WatermarkStrategy
from flinkish.common.serialization import Encoder, SimpleStringSchema
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.kafka.sink import KafkaRecordSerializationSchema
from flinkish.connectors.paged_source import Page, PagedSource
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import FlinkishError, ProgramError
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.functions import FilterFactory, FlatMapFactory, MapFactory
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.testing import OneInputStreamOperatorTestHarness as Harness
from tests.support.functions import ListOf
from tests.support.programs import new_environment, results_of


def first_of(value: list[int], *_: Any) -> Any:
    return next(iter(value))


@pytest.mark.parametrize("timestamps", [None, [1, 2, 3]])
@pytest.mark.parametrize(
    "factory",
    [
        MapFactory(first_of),
        FilterFactory(first_of),
        FlatMapFactory(lambda value: [first_of(value)]),
        TimestampsAndWatermarksFactory(first_of, 0),
    ],
    ids=lambda factory: type(factory).__name__,
)
def test_a_function_that_raises_stop_iteration_fails(factory: OperatorFactory, timestamps: list[int] | None) -> None:
    with Harness(factory) as harness, pytest.raises((ProgramError, StopIteration)):
        harness.process_elements([[1], [], [2]], timestamps)


def stops_at_one(value: Any, *_: Any) -> Any:
    return next(iter([str(value)] * (value != 1)))


class Result(ListOf):
    def get_result(self, accumulator: list[Any]) -> Any:
        return stops_at_one(accumulator[0])


class Zero(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 0


def aggregated(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Zero())
    records = env.from_collection([0, 1, 2]).assign_timestamps_and_watermarks(strategy)
    windows = records.key_by(lambda value: value).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    return windows.aggregate(Result())


class Pages(PagedSource):
    bounded = True

    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def fetch(self, cursor: Any) -> Page:
        return Page([0, 1, 2], None)

    def record(self, value: Any) -> Any:
        return stops_at_one(value)


def paged(env: StreamExecutionEnvironment) -> DataStream:
    return env.add_source(Pages())


def generated(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_source(DataGeneratorSource(stops_at_one, 3), WatermarkStrategy.no_watermarks(), "generated")


def keyed(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([0, 1, 2]).key_by(stops_at_one, Types.STRING()).reduce(max)


@pytest.mark.parametrize("program", [aggregated, paged, generated, keyed])
def test_user_code_that_raises_stop_iteration_fails_the_program(
    program: Callable[[StreamExecutionEnvironment], DataStream],
) -> None:
    with pytest.raises(FlinkishError, match="raised StopIteration for .*1"):
        results_of(program(new_environment()))


class Lines(Encoder):
    def encode(self, value: Any) -> bytes:
        return stops_at_one(value).encode()


def to_topics() -> KafkaRecordSerializationSchema:
    builder = KafkaRecordSerializationSchema.builder().set_topic_selector(stops_at_one)
    return builder.set_value_serialization_schema(SimpleStringSchema()).build()


def with_headers() -> KafkaRecordSerializationSchema:
    builder = KafkaRecordSerializationSchema.builder().set_topic("topic").set_header_provider(stops_at_one)
    return builder.set_value_serialization_schema(SimpleStringSchema()).build()


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(Lines().encode_batch, id="encoder"),
        pytest.param(to_topics().serialize_batch, id="topic selector"),
        pytest.param(with_headers().headers_batch, id="header provider"),
    ],
)
def test_user_code_of_a_sink_that_raises_stop_iteration_fails(write: Callable[[list[Any]], Any]) -> None:
    with pytest.raises(ProgramError, match="raised StopIteration for 1"):
        write([0, 1, 2])
