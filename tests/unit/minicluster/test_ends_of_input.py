"""The end of the input comes once, behind all records, to every task: whichever subtasks of a source have something to
read, and however little an epoch reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.plain_tables import positions_in
from flinkish.common import Time, Types, WatermarkStrategy
from flinkish.common.time import Duration
from flinkish.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitSource
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.datastream import (
    AsyncDataStream,
    BroadcastProcessFunction,
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from flinkish.datastream.connectors.file_system import FileSource
from flinkish.datastream.connectors.hybrid_source import HybridSource
from flinkish.datastream.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.progress import decode_position
from flinkish.testing import TestingSink
from tests.support.functions import CountOf, PassOnAsync
from tests.support.lettered_source import LetteredSource

from .programs import bounded, environment, job_of, run

KEYS = 7
Build = Callable[[StreamExecutionEnvironment, Path], DataStream]


class Undeclared(LetteredSource):
    """Nobody knows the splits before they are found."""

    def declared_splits(self) -> tuple[str, ...]:
        return ()


class Stops(LetteredSource):
    """Ends although it does not call itself bounded."""

    @property
    def bounded(self) -> bool:
        return False


class StopsUndeclared(Stops, Undeclared):
    """The same, and nobody knows the splits before they are found."""


class FoundOneByOne(Undeclared):
    """In each epoch another split is found."""

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return _OneByOne(self.sizes)


class _OneByOne(SplitEnumerator):
    def __init__(self, sizes: Any) -> None:
        self._sizes, self._found = sizes, 0

    def start(self, context: Any) -> None:
        self._found = context.state or 0

    def snapshot_state(self) -> Any:
        return self._found

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        self._found += 1
        return [SourceSplit(name, 0, size) for name, size in self._sizes.items() if name not in known][:1]

    @property
    def complete(self) -> bool:
        return self._found >= len(self._sizes)


class EmitsTheLast(WatermarkGenerator):
    """Says after each record that event time is at its end, which only the end of the input can say."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(MAX_WATERMARK_MS)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class AtTheEnd(KeyedProcessFunction):
    """Emits the number of records of the key at the end of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(MAX_WATERMARK_MS)
        self.count.update((self.count.value() or 0) + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), self.count.value()


class BothInputs(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


class Reads(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value, True)


RULES = MapStateDescriptor("rules", Types.PICKLED_BYTE_ARRAY(), Types.BOOLEAN())
SIDE = OutputTag("side", Types.PICKLED_BYTE_ARRAY())


class ToTheSide(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield SIDE, value


NONE, TIMES, IDLE = WatermarkStrategy.no_watermarks(), bounded(), bounded().with_idleness(Duration.of_millis(1))
GENERATED = WatermarkStrategy.for_generator(lambda context: EmitsTheLast())


def of(source: SplitSource, strategy: WatermarkStrategy = NONE, name: str = "s") -> Build:
    return lambda env, folder: env.from_source(source, strategy, name)


def files(*counts: int) -> Build:
    def build(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
        for number, count in enumerate(counts):
            if not (path := folder / f"{number}.txt").exists():
                path.write_text("".join(f"{number} {n}\n" for n in range(count)))
        source = FileSource.text(str(folder))
        return env.from_source(source, NONE, "files").map(lambda line: (line[0], int(line[2:])))

    return build


def late_in(source: SplitSource, split: str, first: int) -> Build:
    """Timestamps are assigned behind a filter, which drops the first records of a split."""

    def build(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
        passed = env.from_source(source, NONE, "s").filter(lambda r: r[0] != split or r[1] >= first)
        return passed.assign_timestamps_and_watermarks(TIMES)

    return build


def hybrid(*sources: SplitSource) -> SplitSource:
    builder = HybridSource.builder(sources[0])
    for source in sources[1:]:
        builder.add_source(source)
    return builder.build()


def united(*builds: Build) -> Build:
    def build(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
        first, *others = [one(env, folder) for one in builds]
        return first.union(*others)

    return build


def connected(first: Build, second: Build) -> Build:
    return lambda env, folder: first(env, folder).connect(second(env, folder)).map(BothInputs())


def with_itself(build: Build) -> Build:
    """Two edges between the same vertices."""

    def twice(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
        stream = build(env, folder)
        return stream.union(stream.filter(lambda r: r[1] % 2))

    return twice


def of_twice(build: Build) -> Build:
    """Two edges between the same vertices that are the same."""

    def twice(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
        stream = build(env, folder)
        return stream.union(stream)

    return twice


def broadcast(build: Build, rules: Build) -> Build:
    return lambda env, folder: build(env, folder).connect(rules(env, folder).broadcast(RULES)).process(Reads())


TWO = {"a": 7, "b": 11}
UNEVEN = {"a": 1, "b": 14}
THREE = {"a": 2, "b": 9, "c": 5}

#: what is read -> the number of its records
PROGRAMS: dict[str, tuple[Build, int]] = {
    "two files": (files(7, 11), 18),
    "a file of one record and one of many": (files(1, 14), 15),
    "empty files beside others": (files(0, 9, 0), 9),
    "empty files only": (files(0, 0), 0),
    "no files": (files(), 0),
    "splits one after the other": (of(LetteredSource(TWO)), 18),
    "the same with watermarks": (of(LetteredSource(TWO), TIMES), 18),
    "the same, with a generator that says MAX": (of(LetteredSource(TWO), GENERATED), 18),
    "the same, found one by one": (of(FoundOneByOne(THREE)), 16),
    "splits side by side": (of(LetteredSource(THREE, together=True)), 16),
    "the same, undeclared": (of(Undeclared(THREE, together=True)), 16),
    "the same, with watermarks": (of(Undeclared(THREE, together=True), TIMES), 16),
    "the same, with a generator that says MAX ": (of(Undeclared(THREE, together=True), GENERATED), 16),
    "the same, of one record and of many": (of(Undeclared(UNEVEN, together=True)), 15),
    "the same, found one by one ": (of(FoundOneByOne(THREE, together=True)), 16),
    "splits with names of subtasks": (of(Undeclared({"1": 1, "0": 14}, together=True)), 15),
    "no split": (of(LetteredSource({})), 0),
    "no split, side by side": (of(Undeclared({}, together=True)), 0),
    "one source after the other": (of(hybrid(LetteredSource(UNEVEN), Undeclared(THREE, together=True))), 31),
    "the other way round": (of(hybrid(Undeclared(THREE, together=True), LetteredSource(UNEVEN))), 31),
    "a union of a short and a long one": (united(of(LetteredSource({"a": 3})), of(LetteredSource(TWO))), 21),
    "a union of both kinds": (united(of(Undeclared(UNEVEN, together=True)), of(LetteredSource(TWO))), 33),
    "a union with nothing": (united(of(LetteredSource({})), of(LetteredSource(TWO))), 18),
    "a union with itself": (with_itself(of(LetteredSource(TWO))), 18 + 3 + 5),
    "a union of twice the same": (of_twice(of(LetteredSource(TWO), TIMES)), 36),
    "connected streams": (connected(of(LetteredSource({"a": 3})), of(Undeclared(THREE, together=True))), 19),
    "connected streams with watermarks": (connected(of(LetteredSource({"a": 3}), TIMES), of(LetteredSource(TWO))), 21),
    "a broadcast stream that ends early": (broadcast(of(LetteredSource(TWO)), of(LetteredSource({"x": 2}))), 18),
    "a broadcast stream that ends late": (broadcast(of(LetteredSource(TWO)), of(Undeclared({"x": 30}, True))), 18),
    "a side output": (
        lambda env, folder: of(LetteredSource(TWO))(env, folder).process(ToTheSide()).get_side_output(SIDE),
        18,
    ),
    "asynchronous calls": (
        lambda env, folder: AsyncDataStream.unordered_wait(
            of(LetteredSource(TWO))(env, folder), PassOnAsync(), Time.seconds(30), 2
        ),
        18,
    ),
    "with idleness": (of(LetteredSource(UNEVEN), IDLE), 15),
    "with idleness, side by side": (of(Undeclared(UNEVEN, together=True), IDLE), 15),
    "with idleness, in a union": (united(of(LetteredSource({"a": 1}), IDLE), of(Undeclared(THREE, True), IDLE)), 17),
    "a generator that says MAX behind another task": (
        lambda env, folder: (
            of(LetteredSource(TWO))(env, folder).rebalance().assign_timestamps_and_watermarks(GENERATED)
        ),
        18,
    ),
    "behind another task": (lambda env, folder: of(LetteredSource(TWO))(env, folder).rebalance().map(tuple), 18),
    "behind a rescale": (
        lambda env, folder: of(LetteredSource(TWO))(env, folder).rescale().map(tuple).set_parallelism(4),
        18,
    ),
}


#: the same, of sources that BATCH mode refuses
UNBOUNDED: dict[str, tuple[Build, int]] = {
    "an unbounded source that stops": (of(Stops(TWO)), 18),
    "the same, side by side": (of(Stops(THREE, together=True), TIMES), 16),
    "the same, side by side, undeclared": (of(StopsUndeclared(THREE, together=True), TIMES), 16),
    "the same, of one record and of many": (of(StopsUndeclared(UNEVEN, together=True)), 15),
    "a union of it and a bounded one": (united(of(Stops(THREE, together=True), TIMES), of(LetteredSource(TWO))), 34),
}
#: parallelism, records of an epoch, after how many epochs another process goes on, mode
RUNS = [
    (2, 5, None, RuntimeExecutionMode.STREAMING),
    (3, 1, 7, RuntimeExecutionMode.STREAMING),
    (5, 7, 1, RuntimeExecutionMode.STREAMING),
    (3, 5, None, RuntimeExecutionMode.BATCH),
]


@pytest.mark.parametrize("timers", [False, True])
@pytest.mark.parametrize(("build", "records"), [*PROGRAMS.values(), *UNBOUNDED.values()], ids=[*PROGRAMS, *UNBOUNDED])
def test_the_end_comes_once_behind_all_records(build: Build, records: int, timers: bool, tmp_path: Path) -> None:
    """A task without timers is called only in epochs that have something for it."""
    for parallelism, per_epoch, restart_every, mode in RUNS if build in dict(PROGRAMS.values()) else RUNS[:-1]:
        env, sink = environment(parallelism), TestingSink()
        env.set_runtime_mode(mode)
        keyed = build(env, tmp_path).key_by(lambda r: (r[1] * r[1]) % KEYS)
        (keyed.process(AtTheEnd()) if timers else keyed.map(lambda r: (r, 1))).sink_to(sink)
        clock = ManualClock()
        advance = partial(clock.advance, 1)
        run(job_of(env), per_epoch, clock=clock, restart_every=restart_every, on_epoch=advance)
        assert sum(count for _, count in sink.values) == records
        assert not timers or len(sink.values) == len(dict(sink.values))


#: what is read, with event time that begins anew in each split; the lowest parallelism at which that is no late data;
#: the number of its records
TIMED: dict[str, tuple[Build, int, int]] = {
    "one after the other": (of(LetteredSource(TWO), TIMES), 2, 18),
    "one after the other, behind a filter": (late_in(LetteredSource(TWO), "b", 5), 2, 13),
    "side by side": (of(LetteredSource(THREE, together=True), TIMES), 1, 16),
    "side by side, undeclared": (of(Undeclared(THREE, together=True), TIMES), 1, 16),
    "side by side, behind a filter": (late_in(LetteredSource(THREE, together=True), "b", 5), 1, 11),
    "side by side, undeclared, behind a filter": (late_in(Undeclared(THREE, together=True), "b", 5), 1, 11),
    "a stage of a hybrid source": (
        of(hybrid(LetteredSource({"a": 1}), Undeclared(THREE, together=True)), TIMES),
        1,
        17,
    ),
}


@pytest.mark.parametrize(("build", "lowest", "records"), TIMED.values(), ids=TIMED)
def test_no_record_is_late_because_epochs_are_small(build: Build, lowest: int, records: int, tmp_path: Path) -> None:
    for parallelism in range(lowest, lowest + 3):
        for per_epoch in (1, 2, 7, 1_000):
            env, sink = environment(parallelism), TestingSink()
            windows = TumblingEventTimeWindows.of(Time.milliseconds(2))
            keyed = build(env, tmp_path).key_by(lambda r: r[1] % KEYS)
            keyed.window(windows).aggregate(CountOf()).sink_to(sink)
            run(job_of(env), per_epoch)
            assert sum(sink.values) == records, (parallelism, per_epoch)


@pytest.mark.parametrize(("build", "records"), PROGRAMS.values(), ids=PROGRAMS)
def test_each_job_that_goes_on_from_the_positions_of_another_one_learns_what_has_ended(
    build: Build, records: int, tmp_path: Path
) -> None:
    """Each job has two epochs, and another parallelism than the one before."""
    texts: dict[str, str] = {}
    read = 0
    for parallelism in itertools.cycle((2, 5, 3)):
        env, sink = environment(parallelism), TestingSink()
        build(env, tmp_path).key_by(lambda r: (r[1] * r[1]) % KEYS).map(lambda r: r).sink_to(sink)
        job, store = job_of(env), StateStore()
        store.positions = {uid: decode_position(text, uid, store.segments) for uid, text in texts.items()}
        cluster = MiniCluster(job, ManualClock(), store, 4)
        cluster.run(2)
        cluster.dispose()
        read += len(sink.values)
        if store.finished:
            break
        texts = positions_in(job, store)
    assert read == records
