"""What factories and callbacks of a program raise is an error of user code with the program's own line, and what they
return wrongly is named. No frame of the engine is shown, and no such error is the engine's fault."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Encoder, Types, WatermarkStrategy
from flinkish.common.accumulators import IntCounter
from flinkish.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from flinkish.core.sink import Committer, SinkWriter, WriterSink
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitReader, SplitRecords, SplitSource
from flinkish.datastream import DataStream, OutputTag, functions
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig
from flinkish.error_display import text_of
from flinkish.errors import FlinkishError, InternalError, TypeMismatchError, UserCodeError
from tests.support.programs import new_environment, results_of

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


def words() -> DataStream:
    return new_environment().from_collection([("a", 1), ("b", 2)], PAIR)


class Callbacks:
    """The callbacks of a source and a sink, of which one is replaced by the function under test."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name, self._function = name, function

    def __call__(self, name: str, usual: Any, *arguments: Any) -> Any:
        return self._function(*arguments) if name == self._name else usual


class Enumerator(SplitEnumerator):
    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def discover(self, known: Any) -> Any:
        new = [split for split in (SourceSplit("a", 0, 3),) if split.id not in known]
        return self._callbacks("discover", new, known)

    @property
    def complete(self) -> bool:
        return True

    def end_of(self, split: SourceSplit, position: int) -> Any:
        return self._callbacks("end_of", (3, True), split, position)

    def cost(self, split: SourceSplit, position: int) -> Any:
        return self._callbacks("cost", super().cost(split, position), split, position)


class Reader(SplitReader):
    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def read(self, wanted: Any, batch_size: int) -> Any:
        usual = [SplitRecords([1, 2, 3][wanted.start : wanted.stop], None)]
        return self._callbacks("read", usual, wanted, batch_size)


class Numbers(SplitSource):
    bounded = True  # type: ignore[assignment]
    produced_type = Types.INT()  # type: ignore[assignment]

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def create_enumerator(self, restored: Any) -> Any:
        return self._callbacks("create_enumerator", Enumerator(self._callbacks), restored)

    def create_reader(self) -> Any:
        return self._callbacks("create_reader", Reader(self._callbacks))


class Writer(SinkWriter):
    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def open(self, subtask: int, parallelism: int) -> None:
        self._callbacks("open", None, subtask, parallelism)

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return self._callbacks("write", values, values, timestamps)  # type: ignore[no-any-return]

    def prepare_commit(self) -> list[Any]:
        return self._callbacks("prepare_commit", [])  # type: ignore[no-any-return]


class Counting(Committer):
    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def commit(self, committables: Any, context: Any) -> Any:
        taken = sum(map(len, committables))
        return self._callbacks("commit", taken, taken, context)


class Written(WriterSink):
    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def create_writer(self) -> Any:
        return self._callbacks("create_writer", Writer(self._callbacks))

    def create_committer(self) -> Any:
        return self._callbacks("create_committer", Counting(self._callbacks))


class OwnCounter(IntCounter):
    callback: Callable[..., Any]

    def add(self, value: int) -> None:
        OwnCounter.callback(value)


class Counts(functions.MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.counter = OwnCounter()
        runtime_context.add_accumulator("n", self.counter)

    def map(self, value: Any) -> Any:
        self.counter.add(1)
        return value


class FromCallback(TimestampAssigner, WatermarkGenerator, Encoder, BucketAssigner):
    def __init__(self, function: Callable[..., Any]) -> None:
        self.__dict__["function"] = function

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self.__dict__["function"](value)  # type: ignore[no-any-return]

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        output.emit_watermark(self.__dict__["function"](event))

    def encode(self, value: Any) -> bytes:
        return self.__dict__["function"](value)  # type: ignore[no-any-return]

    def get_bucket_id(self, element: Any, context: Any) -> str:
        return self.__dict__["function"](element)  # type: ignore[no-any-return]


def source(name: str) -> Callable[[Callable[..., Any]], Any]:
    def run(function: Callable[..., Any]) -> Any:
        numbers = Numbers(Callbacks(name, function))
        return results_of(new_environment().from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers"))

    return run


def sink(name: str) -> Callable[[Callable[..., Any]], Any]:
    def run(function: Callable[..., Any]) -> Any:
        stream = words()
        stream.sink_to(Written(Callbacks(name, function)))
        return stream.get_execution_environment().execute()

    return run


def strategy(make: Callable[[Callable[..., Any]], WatermarkStrategy]) -> Callable[[Callable[..., Any]], Any]:
    return lambda function: results_of(words().assign_timestamps_and_watermarks(make(function)))


def files(make: Callable[[Callable[..., Any]], Any]) -> Callable[[Callable[..., Any]], Any]:
    def run(function: Callable[..., Any]) -> Any:
        stream = words()
        stream.sink_to(make(function).build())
        return stream.get_execution_environment().execute()

    return run


def counted(function: Callable[..., Any]) -> Any:
    OwnCounter.callback = staticmethod(function)
    return results_of(words().map(Counts()))


BOUNDED = WatermarkStrategy.for_monotonous_timestamps()
#: callback -> a program with a function of the user in its place, and what the message says of 5 as its result
CALLBACKS: dict[str, tuple[Callable[[Callable[..., Any]], Any], str]] = {
    "generator supplier": (strategy(WatermarkStrategy.for_generator), "the generator supplier returned 5"),
    "timestamp assigner": (
        strategy(lambda function: BOUNDED.with_timestamp_assigner(FromCallback(lambda value: [function(value)]))),
        "the timestamp assigner returned [5]",
    ),
    "on_event": (
        strategy(lambda function: WatermarkStrategy.for_generator(lambda: FromCallback(lambda e: str(function(e))))),
        "a watermark generator emitted '5'",
    ),
    "create_enumerator": (source("create_enumerator"), "Numbers.create_enumerator() returned 5"),
    "create_reader": (source("create_reader"), "Numbers.create_reader() returned 5"),
    "discover": (source("discover"), "Enumerator.discover() returned 5"),
    "end_of": (source("end_of"), "end_of() of Enumerator returned 5"),
    "cost": (source("cost"), "Enumerator.cost() returned 5"),
    "read": (source("read"), "Reader.read() returned 5"),
    "create_writer": (sink("create_writer"), "Written.create_writer() returned 5"),
    "open of a writer": (sink("open"), ""),
    "write": (sink("write"), "write() or prepare_commit() of Writer returned 5"),
    "prepare_commit": (sink("prepare_commit"), "write() or prepare_commit() of Writer returned 5"),
    "create_committer": (sink("create_committer"), "Written.create_committer() returned 5"),
    "commit": (sink("commit"), ""),
    "encoder": (
        files(lambda function: FileSink.for_row_format("/tmp/x", FromCallback(function))),
        "encode() returned 5",
    ),
    "bucket assigner": (
        files(
            lambda function: FileSink.for_row_format("/tmp/x", Encoder.simple_string_encoder()).with_bucket_assigner(
                FromCallback(function)
            )
        ),
        "get_bucket_id() of FromCallback returned 5",
    ),
    "key selector": (
        lambda function: results_of(words().key_by(lambda word: {function(word)}).sum(1)),
        "set cannot be",
    ),
    "partitioner": (
        lambda function: results_of(words().partition_custom(lambda key, n: function(key), lambda w: w[0]).map(str)),
        "the partitioner returned 5",
    ),
    "generator function": (
        lambda function: results_of(
            new_environment().from_source(
                DataGeneratorSource(lambda index: function(index), 3), WatermarkStrategy.no_watermarks(), "numbers"
            )
        ),
        "",
    ),
    "accumulator": (counted, ""),
    "flat_map": (lambda function: results_of(words().flat_map(lambda word: function(word))), "returned 5, an instance"),
    "connected flat_map": (
        lambda function: results_of((stream := words()).connect(stream).flat_map(Flat(function))),
        "returned 5, an instance of int",
    ),
}


class Flat(functions.CoFlatMapFunction):
    def __init__(self, function: Callable[..., Any]) -> None:
        self.flat_map1 = self.flat_map2 = function  # type: ignore[method-assign]

    def flat_map1(self, value: Any) -> Any: ...

    def flat_map2(self, value: Any) -> Any: ...


def shown(error: FlinkishError) -> str:
    return text_of(error, None)


def raises(*_: Any) -> Any:
    raise LookupError("my own")


@pytest.mark.parametrize("callback", CALLBACKS)
def test_what_a_callback_raises_is_an_error_of_user_code_with_its_own_line(callback: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        CALLBACKS[callback][0](raises)
    text = shown(caught.value)
    assert 'raise LookupError("my own")' in text and "LookupError in user code: my own" in text
    assert not isinstance(caught.value, InternalError)


@pytest.mark.parametrize("callback", [name for name, (_, named) in CALLBACKS.items() if named])
def test_what_a_callback_returns_wrongly_is_named_without_frames_of_the_engine(callback: str) -> None:
    run, named = CALLBACKS[callback]
    with pytest.raises(FlinkishError) as caught:
        run(lambda *_: 5)
    assert not isinstance(caught.value, InternalError)
    assert named in caught.value.what and caught.value.expected
    assert "/flinkish/" not in shown(caught.value).replace(str(Path(__file__)), "")


@pytest.mark.parametrize("returned", [None, "many", 2.5])
def test_a_committer_that_returns_no_number_has_committed_all_that_it_was_given(
    returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    result = sink("commit")(lambda taken, context: returned)
    assert result is not None
    warned = [record.getMessage() for record in caplog.records if record.name == "flinkish.Committer"]
    assert len(warned) == (returned is not None)
    assert all(
        f"commit() of Counting returned {returned!r}" in line and "the 2 committables" in line for line in warned
    )


class Marks(WatermarkGenerator):
    def __init__(self, context: Any = None) -> None:
        self.counter = None if context is None else context.get_metric_group().counter("marks")

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        output.emit_watermark(event_timestamp)
        if self.counter is not None:
            self.counter.inc()


@pytest.mark.parametrize(
    "supplier", [Marks, lambda: Marks(), lambda context: Marks(context), lambda *args: Marks(*args)]
)
def test_a_generator_supplier_may_take_flinks_context(supplier: Any) -> None:
    stream = words().assign_timestamps_and_watermarks(WatermarkStrategy.for_generator(supplier))
    assert results_of(stream) == [("a", 1), ("b", 2)]


# --- warnings -------------------------------------------------------------------------------------------------------


class Yielding(functions.ProcessFunction):
    def __init__(self, results: Callable[[Any], Any]) -> None:
        self._results = results

    def process_element(self, value: Any, ctx: Any) -> Any:
        return self._results(value)


LATE = OutputTag("late", Types.STRING())


@pytest.mark.parametrize(
    ("results", "output_type", "warned"),
    [
        (lambda value: (value[0], 1), None, "returned a tuple, and each of its parts is a result of its own"),
        (lambda value: value[0] * 2, None, "returned a str, and each of its parts is a result of its own"),
        (lambda value: {"word": value[0]}, None, "returned a dict, and each of its parts is a result of its own"),
        (lambda value: [(LATE, value[0])], None, "emits to the side output 'late' is dropped, since nothing reads it"),
        (lambda value: [value], None, ""),
        (lambda value: (value, value), None, ""),
        (lambda value: (value[0], "b"), Types.STRING(), ""),
    ],
    ids=range(7),
)
def test_what_is_probably_meant_otherwise_is_one_line_of_warning(
    results: Any, output_type: Any, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    env = new_environment(parallelism=2)
    stream = env.from_collection([("a", 1), ("b", 2), ("c", 3)] * 20, PAIR).rebalance()
    with caplog.at_level(logging.WARNING):
        results_of(stream.process(Yielding(results), output_type))
    lines = [record.getMessage() for record in caplog.records if record.name == "flinkish.Program"]
    assert len(lines) == bool(warned)
    assert all(warned in line and "operator 'PROCESS'" in line for line in lines)


def test_a_side_output_that_is_read_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    stream = words().process(Yielding(lambda value: [(LATE, value[0])]))
    assert results_of(stream.get_side_output(LATE)) == ["a", "b"]
    assert [record for record in caplog.records if record.name == "flinkish.Program"] == []


# --- folders of files -----------------------------------------------------------------------------------------------


class ByCountry(BucketAssigner):
    def get_bucket_id(self, element: Any, context: BucketAssigner.Context) -> str:
        assert context.current_processing_time() > 0
        return f"country={element[0]}/{context.timestamp()}"


def test_records_lie_in_the_folders_that_a_class_of_the_program_says(tmp_path: Path) -> None:
    records = [("de", 1), ("fr", 2), ("de", 1), ("de", 3)]
    config = OutputFileConfig.builder().with_part_suffix(".txt").build()
    env = new_environment(parallelism=2)
    stream = env.from_collection(records, PAIR).assign_timestamps_and_watermarks(
        BOUNDED.with_timestamp_assigner(FromCallback(lambda value: value[1]))
    )
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).with_bucket_assigner(ByCountry())
    stream.sink_to(sink.with_output_file_config(config).build())
    env.execute()
    found: dict[str, list[str]] = {}
    for file in tmp_path.rglob("*.txt"):
        found.setdefault(str(file.parent.relative_to(tmp_path)), []).extend(file.read_text().splitlines())
    assert found == {"country=de/1": ["(de,1)", "(de,1)"], "country=fr/2": ["(fr,2)"], "country=de/3": ["(de,3)"]}


def test_a_bucket_that_leaves_the_base_path_is_refused(tmp_path: Path) -> None:
    for bucket in ("/etc", "../up", "a/../../b"):
        with pytest.raises(TypeMismatchError, match="the name of a folder below the base path"):
            CALLBACKS["bucket assigner"][0](lambda element, bucket=bucket: bucket)
