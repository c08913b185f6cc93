"""A job of three keyed operators in a row, a union, side outputs and several sinks: on Spark as in the minicluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Time
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, MapFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.jobdir.query import QueryLog
from flinkish.runtime.job.report import TaskHeader
from flinkish.runtime.state.files.references import epoch_of
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.saved.columns import TaskBody
from flinkish.runtime.task.task import CLEAN_UP_EPOCHS, RETAINED_EPOCHS
from flinkish.spark.state import stored_tasks
from tests.integration.engine.collecting import Collected, by_field, collecting, environment

LARGE = OutputTag("large", Types.PICKLED_BYTE_ARRAY())
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
RECORDS = 900


def event(index: int) -> tuple[str, str, int, int]:
    """(user, page, amount, time in ms), now and then far too late."""
    late = 40_000 if index % 97 == 96 else 0
    return f"u{index * 7 % 23}", f"p{index % 5}", index % 11, max(0, index * 100 - late - index * 37 % 500)


class Visits(KeyedProcessFunction):
    """Per page: how often each user came; the last three amounts; large sums go to a side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._users = runtime_context.get_map_state(MapStateDescriptor("users", Types.STRING(), Types.INT()))
        self._last = runtime_context.get_list_state(ListStateDescriptor("last", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        user, page, total, time_ms = value
        self._users.put(user, (self._users.get(user) or 0) + 1)
        self._last.update([*self._last.get(), total][-3:])
        if sum(self._last.get()) > 400:
            yield LARGE, (page, user, sum(self._last.get()))
        yield page, self._users.get(user), total, time_ms
        ctx.timer_service().register_event_time_timer(time_ms // 10_000 * 10_000 + 10_000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), 0, len(list(self._users.keys())), timestamp - 1


def build(env: StreamExecutionEnvironment, collected: Collected) -> None:
    """The program."""
    strategy = by_field(3, 500)
    first = env.from_source(DataGeneratorSource(event, RECORDS, splits=2), strategy, "first")
    second = env.from_source(DataGeneratorSource(lambda i: event(i + 13), RECORDS // 2), strategy, "second")
    both = first.union(second).filter(lambda e: e[2] != 4)
    sums = both.key_by(lambda e: e[0]).reduce(lambda a, b: (b[0], b[1], a[2] + b[2], b[3])).uid("sums")
    visits = sums.key_by(lambda e: e[1]).process(Visits()).uid("visits")
    windows = (
        visits.key_by(lambda e: e[1] % 3)
        .window(TumblingEventTimeWindows.of(Time.seconds(5)))
        .side_output_late_data(LATE)
        .reduce(lambda a, b: (min(a[0], b[0]), a[1] + b[1], a[2] + b[2], max(a[3], b[3])))
        .uid("windows")
    )
    visits.get_side_output(LARGE).sink_to(collected.sink("large"))
    windows.get_side_output(LATE).sink_to(collected.sink("late"))
    windows.sink_to(collected.sink("windows"))
    visits.map(lambda e: e[:3]).sink_to(collected.sink("visits"))


def run(look: Callable[[Any], None] = lambda client: None, **more: Any) -> dict[str, list[Any]]:
    """What the sinks got. ``look`` is given the client of the job when it has finished."""
    with collecting() as collected:
        env = environment(**{"flinkish__epoch__max_records_per_source": 225, **more})
        build(env, collected)
        client = env.execute_async("many")
        client.get_job_execution_result().result()
        look(client)
        return collected.sorted()


def each_level_has_one_exchange_and_one_sort(client: Any) -> None:
    """Of addresses, and of buffers behind them: those that Spark would add for the grouping are not needed any more."""
    plan = client.run.attempt._query.of_spark._jsq.explainInternal(False)
    levels = plan.count("FlatMapGroupsInPandasWithState")
    assert levels >= 3
    found = re.findall(r"Sort \[address#\d+ ASC NULLS FIRST, buffer#\d+ ASC NULLS FIRST\], false", plan)
    assert [plan.count("Exchange"), plan.count("Sort ["), len(found)] == [levels] * 3


@pytest.mark.parametrize(
    "parallelism", [pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.nightly)]
)
def test_three_keyed_operators_a_union_side_outputs_and_four_sinks_give_what_the_minicluster_gives(
    spark: SparkSession, parallelism: int
) -> None:
    shape: dict[str, Any] = {"parallelism__default": parallelism, "pipeline__max_parallelism": 6}
    on_spark = run(each_level_has_one_exchange_and_one_sort, **shape)
    assert {name: len(rows) > 0 for name, rows in on_spark.items()} == dict.fromkeys(
        ["large", "late", "windows", "visits"], True
    )
    assert on_spark == run(execution__target="minicluster", **shape)


@pytest.mark.parametrize("partitions", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_fewer_spark_partitions_than_subtasks_change_nothing(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    shape: dict[str, Any] = {"parallelism__default": 3, "pipeline__max_parallelism": 6}
    job: dict[str, Any] = {"flinkish__spark__partitions": partitions, "flinkish__job__dir": tmp_path / "job"}
    on_spark = run(each_level_has_one_exchange_and_one_sort, **shape, **job)
    assert on_spark == run(execution__target="minicluster", **shape)
    levels = [path for path in (tmp_path / "job/spark/state").iterdir() if path.name.isdigit()]
    states = [sorted(path.name for path in level.iterdir() if path.name.isdigit()) for level in levels]
    assert states == [[str(number) for number in range(partitions)]] * len(levels) != []


@pytest.mark.slow
def test_state_in_files_changes_nothing_and_files_that_no_retained_epoch_needs_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    shape: dict[str, Any] = {"parallelism__default": 2, "flinkish__epoch__max_records_per_source": 40}
    files: dict[str, Any] = {"flinkish__state__inline_size": "0 b", "taskmanager__memory__managed__size": "1 kb"}
    job_dir = tmp_path / "job"
    on_spark = run(**shape, **files, flinkish__job__dir=str(job_dir))
    assert on_spark == run(execution__target="minicluster", **shape)
    query = str(job_dir / "spark")
    last = QueryLog(query).committed()[-1]
    referenced = set()
    for level in range(3):
        for header, body in stored_tasks(spark, query, last, level).collect():
            task = TaskHeader.decode(bytes(header))
            keyed = KeyedBody.decode(TaskBody.decode(bytes(body) if body is not None else None).keyed)
            names = keyed.files.names | (keyed.timer_files.names if keyed.timer_files is not None else set())
            referenced |= {f"{task.vertex}/{task.subtask}/{name}" for name in names}
    state = job_dir / "keyed-state"
    there = {str(path.relative_to(state)) for path in state.rglob("*.arrow")}
    assert referenced and referenced <= there
    assert last > 20
    others = [epoch_of(name.rpartition("/")[2]) for name in there - referenced]
    assert all(epoch is not None and epoch >= last - RETAINED_EPOCHS - CLEAN_UP_EPOCHS for epoch in others)


def test_several_sinks_are_fed_by_one_run_of_their_operator(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "calls.log"

    def logged(value: int) -> int:
        with log.open("a") as file:
            file.write(f"{value}\n")
        return value * 10

    with collecting() as collected:
        env = environment(flinkish__epoch__max_records_per_source=10)
        numbers = env.from_source(DataGeneratorSource(lambda i: i, 30), by_nothing(), "numbers")
        mapped = numbers.key_by(lambda n: n % 4).map(logged)
        mapped.sink_to(collected.sink("a"))
        mapped.filter(lambda n: n > 100).sink_to(collected.sink("b"))
        mapped.sink_to(collected.sink("c"))
        env.execute("one run")
    assert sorted(map(int, log.read_text().split())) == list(range(30))
    assert sorted(collected.rows["a"]) == sorted(collected.rows["c"]) == [10 * n for n in range(30)]
    assert sorted(collected.rows["b"]) == [10 * n for n in range(11, 30)]


def by_nothing() -> Any:
    from flinkish.common import WatermarkStrategy

    return WatermarkStrategy.no_watermarks()


def test_several_hundred_operators_run_in_one_chain_of_a_worker(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job")
        stream = env.from_collection(list(range(9))).key_by(lambda n: n % 2).map(lambda n: n)
        for _ in range(400):
            stream = stream.map(lambda n: n)
        stream.sink_to(collected.sink())
        env.execute("a long chain")
    assert sorted(collected.rows["out"]) == list(range(9))


class HoldsModule(MapFunction):
    """Holds what only a pickler of functions can copy."""

    def __init__(self) -> None:
        self.json, self.names, self.keys = json, MappingProxyType({7: "seven"}), {7: "seven"}.keys()

    def map(self, value: int) -> Any:
        return self.json.dumps([self.names[value], value in self.keys])


def first_time() -> Callable[[Any], bool]:
    seen: set[Any] = set()
    return lambda value: value not in seen and not seen.add(value)  # type: ignore[func-returns-value]


def test_operators_and_subtasks_of_one_worker_that_are_given_one_function_share_no_memory(spark: SparkSession) -> None:
    check = first_time()
    # both subtasks run in one Spark task
    env = environment(flinkish__spark__partitions=1)
    numbers = env.from_collection([7, 7]).rebalance()
    with collecting() as collected:
        numbers.filter(check).map(HoldsModule()).sink_to(collected.sink("chained"))
        numbers.filter(check).sink_to(collected.sink("beside"))
        numbers.filter(lambda number: number == 7 and check(number)).sink_to(collected.sink("in another closure"))
        env.execute()
    assert collected.rows == {
        "chained": ['["seven", true]'] * 2,
        "beside": [7, 7],
        "in another closure": [7, 7],
    }
