"""Windows and joins of every kind in one job on Spark: plain, over several epochs, and killed and restarted in the
midst, with state in files: one result, that of the minicluster."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Row, Time
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.datastream import DataStream, OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from flinkish.datastream.functions import AggregateFunction, ProcessAllWindowFunction, ProcessJoinFunction
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from flinkish.errors import FlinkishError
from flinkish.runtime.phases import Phase
from tests.integration.engine.collecting import by_field, environment
from tests.support import faults

RECORDS, PER_EPOCH = 400, 45
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
ROWS = Types.ROW_NAMED(["window", "result"], [Types.STRING(), Types.STRING()])
IN_FILES = {"flinkish__state__inline_size": "0 b", "taskmanager__memory__managed__size": "1 kb"}


def event(index: int) -> tuple[str, int, int]:
    """(user, number, time in ms), now and then far too late."""
    late = 4_000 if index % 41 == 40 else 0
    return f"u{index * 7 % 5}", index, max(0, index * 50 - late - index * 37 % 90 + index // 30 * 200)


class Gap(SessionWindowTimeGapExtractor):
    """Even numbers keep their session open for longer."""

    def extract(self, element: Any) -> int:
        return 400 if element[1] % 2 else 600


class Listed(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key, end, how many windows of the key have fired, the numbers)."""

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterator[Any]:
        fired = context.global_state().get_state(ValueStateDescriptor("fired", Types.INT()))
        fired.update((fired.value() or 0) + 1)
        yield key, context.window().max_timestamp(), fired.value(), sorted(number for _, number, _ in elements)


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class OfAll(ProcessAllWindowFunction[Any, Any, Any]):
    """(end, count) of a window over all users."""

    def process(self, context: ProcessAllWindowFunction.Context[Any], elements: Iterable[int]) -> Iterator[Any]:
        yield context.window().max_timestamp(), list(elements)


class Numbers(ProcessJoinFunction):
    """The numbers of both records."""

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left[1], right[1], ctx.get_timestamp()


def results(env: StreamExecutionEnvironment, per_epoch: int | None) -> dict[str, DataStream]:
    """The program: a stream per kind of windows."""
    source = DataGeneratorSource(event, RECORDS, records_per_epoch=per_epoch, splits=2)
    events = env.from_source(source, by_field(2, 100), "events").uid("events")
    keyed = events.key_by(lambda e: e[0])
    tumbling = TumblingEventTimeWindows.of(Time.seconds(2))
    sliding = keyed.window(SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(1)))
    sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(260))).side_output_late_data(LATE)
    dynamic = keyed.window(EventTimeSessionWindows.with_dynamic_gap(Gap())).allowed_lateness(2_000)
    early = keyed.window(tumbling).trigger(ContinuousEventTimeTrigger.of(Time.seconds(2)))
    last = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(5)).evictor(CountEvictor.of(3))
    listed = sessions.process(Listed()).uid("sessions")
    odd, even = events.filter(lambda e: e[1] % 2 == 1), events.filter(lambda e: e[1] % 2 == 0)
    joined = odd.join(even).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(tumbling)
    grouped = odd.co_group(even).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(tumbling)
    near = odd.key_by(lambda e: e[0]).interval_join(even.key_by(lambda e: e[0]))
    return {
        "sliding": sliding.max_by(1).uid("sliding"),
        "sessions": listed,
        "late": listed.get_side_output(LATE),
        "dynamic sessions": dynamic.aggregate(Count()).uid("dynamic sessions"),
        "early": early.process(Listed()).uid("early"),
        "counted": keyed.count_window(4, 3).sum(1).uid("counted"),
        "last": last.sum(1).uid("last"),
        "all": events.window_all(tumbling).aggregate(Count(), OfAll()).uid("all"),
        "joined": joined.apply(lambda one, other: (one[1], other[1])).uid("joined"),
        "grouped": grouped.apply(lambda ones, others: [(len(ones), len(others))]).uid("grouped"),
        "near": near.between(Time.milliseconds(-300), Time.milliseconds(200)).process(Numbers()).uid("near"),
    }


def build(folder: Path, per_epoch: int | None = None, **more: Any) -> StreamExecutionEnvironment:
    """The program with one table for all results."""
    env = environment(folder / "job", **more)
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{folder / 'out.db'}").build()
    streams = [
        stream.map(lambda value, name=name: Row(name, repr(value)), ROWS).uid(f"rows of {name}")
        for name, stream in results(env, per_epoch).items()
    ]
    streams[0].union(*streams[1:]).add_sink(JdbcSink.sink("INSERT INTO results VALUES (?, ?)", ROWS, url)).uid("table")
    return env


def make_table(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    connection = sqlite3.connect(folder / "out.db")
    with connection:
        connection.execute("CREATE TABLE results (name TEXT, result TEXT)")
    connection.close()
    return folder


def table_of(folder: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(folder / "out.db")
    try:
        return sorted(connection.execute("SELECT name, result FROM results").fetchall())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """What the minicluster makes of it, in epochs of another size; every kind of windows has results."""
    folder = make_table(tmp_path_factory.mktemp("windows") / "golden")
    build(folder, 17, execution__target="minicluster").execute("windows")
    table = table_of(folder)
    assert {name for name, _ in table} == set(results(environment(), None))
    return table


@pytest.mark.nightly
@pytest.mark.parametrize("per_epoch", [None, PER_EPOCH])
def test_in_one_epoch_or_in_several(
    spark: SparkSession, tmp_path: Path, golden: list[tuple[str, str]], per_epoch: int | None
) -> None:
    folder = make_table(tmp_path)
    build(folder, per_epoch).execute("windows")
    assert table_of(folder) == golden


@pytest.mark.slow
def test_killed_in_the_midst_and_restarted_with_state_in_files(
    spark: SparkSession, tmp_path: Path, golden: list[tuple[str, str]], fault_plan: Path
) -> None:
    folder = make_table(tmp_path)
    faults.plan_fault(fault_plan, Phase.STATE_WRITTEN, "kill", epoch=3)
    with pytest.raises(FlinkishError):
        build(folder, PER_EPOCH, **IN_FILES).execute("windows")
    assert faults.happened(fault_plan)
    faults.no_fault(fault_plan)
    assert 0 < len(table_of(folder)) < len(golden)
    build(folder, PER_EPOCH, **IN_FILES).execute("windows")
    assert table_of(folder) == golden
