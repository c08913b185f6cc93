"""An error of user code names the record that the function was called with, and where the record was read; with
`flinkish.errors.records: off` it does not."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.core.sink import SinkWriter, WriterSink
from flinkish.datastream import AsyncDataStream, AsyncFunction, DataStream, StreamExecutionEnvironment
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.file_system import FileSource, StreamFormat
from flinkish.datastream.connectors.number_seq import NumberSequenceSource
from flinkish.datastream.functions import (
    CoMapFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import FlinkishError, TypeMismatchError, UserCodeError
from tests.support.programs import new_environment, results_of

#: The record at which functions raise; there are enough before it for more than one batch.
BAD = 1_711


def checked(value: Any) -> Any:
    if value == BAD:
        raise ValueError("bad")
    return value


class Flattened(FlatMapFunction):
    def flat_map(self, value: Any) -> Iterable[Any]:
        yield checked(value)


class Processed(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield checked(value)


class KeyedProcessed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield checked(value)


class Timed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        checked(timestamp)


class Stateful(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def map(self, value: Any) -> Any:
        return checked(value)


class Both(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return checked(value)


class InWindow(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterable[Any]:
        return [checked(element) for element in elements]


class Awaited(AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [checked(value)]


class TimeOf(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(checked(value))


class Writer(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return [checked(value) for value in values]


class Written(WriterSink):
    def create_writer(self) -> SinkWriter:
        return Writer()

    def create_committer(self) -> Any:
        raise AssertionError("nothing is committed")


def key_of(value: Any) -> int:
    return int(value) % 3


def numbers(env: StreamExecutionEnvironment, most: int = 2_000) -> DataStream:
    source = NumberSequenceSource(0, most)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").set_parallelism(1)


def timed(s: DataStream) -> DataStream:
    class Own(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value)

    return s.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Own())
    )


def failure_of(stream: DataStream) -> FlinkishError:
    with pytest.raises(FlinkishError) as raised:
        results_of(stream)
    return raised.value


READ = f", read from 'Source: numbers', split 0, position {BAD}, epoch 0"
#: Which of the records of the batch the operator was called with is not known, or is that of several.
READ_ROUGHLY = ", read from 'Source: numbers', split 0, positions 1000 to 1999, epoch 0"
MILLISECOND = Time.milliseconds(1)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        pytest.param(lambda s: s.map(checked), f"record {BAD}{READ}", id="map"),
        pytest.param(lambda s: s.map(lambda v: v).map(checked), f"record {BAD}{READ}", id="second of a chain"),
        pytest.param(lambda s: s.map(lambda v: {1: v}[1]).map(checked), f"record {BAD}{READ}", id="keeps nothing"),
        pytest.param(
            lambda s: s.filter(lambda v: v % 2).map(checked), f"record {BAD}{READ_ROUGHLY}", id="behind a filter"
        ),
        pytest.param(lambda s: s.filter(checked), f"record {BAD}{READ}", id="filter"),
        pytest.param(lambda s: s.flat_map(Flattened()), f"record {BAD}{READ}", id="flat map"),
        pytest.param(
            lambda s: s.flat_map(lambda v: [v]).map(checked), f"record {BAD}{READ_ROUGHLY}", id="behind a flat map"
        ),
        pytest.param(lambda s: s.process(Processed()), f"record {BAD}{READ}", id="process"),
        pytest.param(lambda s: s.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf())
        ), f"record {BAD}{READ}", id="timestamp assigner"),
        pytest.param(lambda s: s.key_by(checked).map(lambda v: v), f"record {BAD}{READ}", id="key selector"),
        pytest.param(lambda s: s.key_by(key_of).map(Stateful()), f"key 1, record {BAD}, epoch 0", id="map with state"),
        pytest.param(
            lambda s: s.key_by(key_of).process(KeyedProcessed()), f"key 1, record {BAD}, epoch 0", id="keyed process"
        ),
        pytest.param(lambda s: timed(s).key_by(key_of).process(Timed()), f"key 1, timer {BAD}, epoch 0", id="timer"),
        pytest.param(
            lambda s: s.key_by(key_of).reduce(lambda a, b: checked(b)), f"key 1, record {BAD}, epoch 0", id="reduce"
        ),
        pytest.param(
            lambda s: timed(s).key_by(key_of).window(TumblingEventTimeWindows.of(MILLISECOND)).process(InWindow()),
            "key 1, timer 1711, epoch 0",
            id="window function",
        ),
        pytest.param(
            lambda s: s.connect(s.map(lambda v: v)).map(Both()), f"input 2, record {BAD}, epoch 0", id="second input"
        ),
        pytest.param(
            lambda s: AsyncDataStream.unordered_wait(s, Awaited(), Time.seconds(5)),
            f"record {BAD}, epoch 0",
            id="asynchronous",
        ),
    ],
)  # fmt: skip
def test_an_error_of_user_code_names_the_record_and_where_it_was_read(
    program: Callable[[DataStream], DataStream], told: str
) -> None:
    error = failure_of(program(numbers(new_environment())))
    assert isinstance(error, UserCodeError)
    assert told in error.where


def test_an_error_in_a_sink_says_which_records_were_to_be_written() -> None:
    env = new_environment()
    numbers(env).sink_to(Written())
    with pytest.raises(UserCodeError) as raised:
        env.execute()
    assert READ_ROUGHLY in raised.value.where


def test_a_result_of_another_type_names_the_record_that_it_was_made_of() -> None:
    pair = Types.TUPLE([Types.INT(), Types.INT()])
    error = failure_of(numbers(new_environment()).map(lambda v: (v, "x" if v == BAD else 1), pair))
    assert isinstance(error, TypeMismatchError)
    assert f"results of 'Map', record ({BAD}, 'x'), field 1; " in error.where
    assert f", record {BAD}{READ}" in error.where


@pytest.mark.parametrize("kind", ["raises", "misfit"])
def test_no_record_and_no_key_is_named_if_the_configuration_says_so(kind: str) -> None:
    env = new_environment(flinkish__errors__records="off")
    call = checked if kind == "raises" else lambda v: "x-ray" if v == BAD else v
    message = failure_of(numbers(env).key_by(key_of).map(call, Types.LONG())).message
    assert "record" not in message and "key 1" not in message and "x-ray" not in message


def test_a_long_record_is_shortened_and_its_control_characters_and_passwords_are_not_shown() -> None:
    record = "postgresql://me:s3cret@db/\n\x1b[2J" + "x" * 5_000
    stream = new_environment().from_collection([record], Types.STRING()).map(lambda v: 1 // 0)
    where = failure_of(stream).where
    assert len(where) < 600
    assert "s3cret" not in where and "\n" not in where and "\x1b" not in where


def lines(folder: Path, content: bytes, name: str = "in.csv") -> FileSource:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path)).build()


CONTENT = b"".join(b"%d\n" % number for number in range(2_000))


@pytest.mark.parametrize(
    ("content", "name", "place"),
    [
        (CONTENT, "in.txt", "line 1712 (byte 7445)"),
        (CONTENT, "in.txt.gz", "line 1712 (byte 7445)"),
        (CONTENT.replace(b"\n", b"\r\n"), "in.txt", "line 1712 (byte 9156)"),
    ],
)
def test_a_record_of_a_file_of_lines_is_named_with_its_line(
    content: bytes, name: str, place: str, tmp_path: Path
) -> None:
    env = new_environment()
    source = env.from_source(lines(tmp_path, content, name), WatermarkStrategy.no_watermarks(), "lines")
    where = failure_of(source.map(lambda line: checked(int(line)))).where
    assert f"record '{BAD}', read from 'Source: lines', file {tmp_path / name}, {place}, epoch" in where


def test_the_record_that_a_generator_fails_for_is_its_index() -> None:
    env = new_environment()
    source = DataGeneratorSource(checked, count=2_000, type_info=Types.LONG())
    assert f"record {BAD}, epoch 0" in failure_of(env.from_source(source, WatermarkStrategy.no_watermarks(), "g")).where


def test_a_place_is_named_once() -> None:
    env = new_environment()

    def stops(value: Any) -> Any:
        raise StopIteration

    where = failure_of(numbers(env).map(stops)).where
    assert where.count("operator 'Map'") == 1
