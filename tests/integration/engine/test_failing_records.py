"""on_error, accumulators and functions that take part in checkpoints, on Spark: over a failure, and through a savepoint
to another parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Row, WatermarkStrategy
from flinkish.common.accumulators import Histogram
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import (
    DeadLetter,
    KeyedProcessFunction,
    OnError,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.functions import CheckpointedFunction, FlatMapFunction
from flinkish.datastream.state import ListStateDescriptor, ValueStateDescriptor
from flinkish.errors import ErrorBudgetError, FlinkishError
from flinkish.runtime.phases import Phase
from tests.integration.engine.collecting import Collected, collecting, environment
from tests.support import faults
from tests.support.processes import wait_until

TIMEOUT_S = 120
RECORDS = 120
DEAD = OutputTag("dead", DeadLetter.type_info(Types.LONG(), Types.LONG()))
UNREADABLE = OutputTag("unreadable")


class Counts(KeyedProcessFunction):
    """Counts per key. Every eleventh record fails when all is done; one record kills the whole job, once."""

    def __init__(self, mark: str) -> None:
        self._mark = Path(mark)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))
        self._sizes = Histogram()
        runtime_context.add_accumulator("remainders", self._sizes)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._sizes.add(value % 3)
        self._seen.update((self._seen.value() or 0) + 1)
        yield ctx.get_current_key(), self._seen.value()
        if value == 77 and not self._mark.exists():
            self._mark.touch()
            raise MemoryError("not the record's fault")
        if value % 11 == 0:
            raise ValueError(value)


def parsed(text: str) -> int:
    return int(text)


def generated(index: int) -> str:
    return "?" if index % 10 == 5 else str(index)


@pytest.mark.slow
def test_dead_letters_counts_and_accumulators_are_exact_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    readable = [index for index in range(RECORDS) if index % 10 != 5]
    with collecting() as collected:
        env = environment(
            tmp_path / "job", restart_strategy__type="fixed-delay", restart_strategy__fixed_delay__delay="0 s"
        )
        source = DataGeneratorSource(generated, RECORDS, records_per_epoch=30)
        texts = env.from_source(source, WatermarkStrategy.no_watermarks(), "texts").uid("texts")
        numbers = texts.map(parsed, Types.LONG()).uid("parse").on_error(OnError.dead_letter(UNREADABLE))
        numbers.get_side_output(UNREADABLE).map(lambda letter: letter.record).sink_to(collected.sink("unreadable"))
        counts = numbers.key_by(lambda v: v % 4, Types.LONG()).process(Counts(str(tmp_path / "failed"))).uid("count")
        counts.on_error(OnError.dead_letter(DEAD)).sink_to(collected.sink("counts"))
        counts.get_side_output(DEAD).sink_to(collected.sink("dead"))
        client = env.execute_async("failing")
        result = client.get_job_execution_result().result(TIMEOUT_S)
        rows = collected.rows
        described: Any = client.run.record.describe()  # type: ignore[attr-defined]
    assert (tmp_path / "failed").exists() and described.metrics["restarts"] == 1
    good = [value for value in readable if value % 11]
    per_key = Counter(value % 4 for value in good)
    assert sorted(rows["counts"]) == sorted((key, n + 1) for key in per_key for n in range(per_key[key]))
    assert rows["unreadable"] == ["?"] * 12
    dead = rows["dead"]
    assert all(isinstance(letter, Row) for letter in dead)
    assert sorted(letter.record for letter in dead) == [value for value in readable if value % 11 == 0]
    assert all((letter.key, letter.operator_uid) == (letter.record % 4, "count") for letter in dead)
    assert {letter.error_type for letter in dead} == {"ValueError"}
    assert all("raise ValueError(value)" in letter.traceback for letter in dead)
    remainders = dict(sorted(Counter(value % 3 for value in readable).items()))
    assert result.get_all_accumulator_results() == {"remainders": remainders}
    assert described.accumulators == {"remainders": repr(remainders)}
    counted = {op.uid: op.counts for vertex in described.vertices for op in vertex.operators if op.counts}
    assert counted == {
        "parse": {"numRecordsIn": 120, "numRecordsConsumed": 108, "numDeadLetters": 12, "numTimersFailed": 0},
        "count": {
            "numRecordsIn": 108,
            "numRecordsConsumed": len(good),
            "numDeadLetters": len(dead),
            "numTimersFailed": 0,
        },
    }


@pytest.mark.slow
def test_a_bug_ends_the_job_with_the_traceback_of_its_last_failure(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job", restart_strategy__type="fixed-delay")
        source = DataGeneratorSource(lambda index: "?", RECORDS, records_per_epoch=5)
        texts = env.from_source(source, WatermarkStrategy.no_watermarks(), "texts").uid("texts")
        numbers = texts.map(parsed, Types.LONG()).uid("parse").on_error(OnError.skip(max_failures=20))
        numbers.sink_to(collected.sink())
        with pytest.raises(ErrorBudgetError, match="ValueError: invalid literal") as failure:
            env.execute("a bug")
    assert "return int(text)" in str(failure.value)
    assert "uid parse" in failure.value.message


class Adds(FlatMapFunction):
    """Adds up what it sees, and gives nothing to any sink in every other epoch."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sum = runtime_context.get_long_counter("sum")

    def flat_map(self, value: int) -> Iterator[int]:
        self._sum.add(value)
        if value // 20 % 2:
            yield value


@pytest.mark.slow
@pytest.mark.parametrize("phase", [Phase.EPOCH_PREPARED, Phase.SINK_COMMITTED, Phase.METADATA_COMMITTED])
@pytest.mark.parametrize("epoch", [2, 3])
def test_an_epoch_that_is_committed_again_after_a_failure_counts_once(
    spark: SparkSession, tmp_path: Path, fault_plan: Path, phase: Phase, epoch: int
) -> None:
    faults.plan_fault(fault_plan, phase, "raise", epoch=epoch)

    def execute() -> Any:
        env = environment(tmp_path / "job", restart_strategy__type="none", parallelism__default=1)
        source = DataGeneratorSource(lambda index: index, RECORDS, records_per_epoch=20)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        numbers.flat_map(Adds()).sink_to(collected.sink())
        return env.execute("adds")

    with collecting() as collected:
        with pytest.raises(FlinkishError, match="injected"):
            execute()
        assert faults.happened(fault_plan)
        # a new driver, which knows only the job directory
        result = execute()
    assert result.get_accumulator_result("sum") == sum(range(RECORDS))


class Pairs(FlatMapFunction, CheckpointedFunction):
    """Holds one half of the records back in operator state, for ever."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._state = store.get_list_state(ListStateDescriptor("held", Types.LONG()))
        self._all = store.get_union_list_state(ListStateDescriptor("writers", Types.STRING()))
        self._held = self._state.get()
        self._restored = context.is_restored(), sorted(self._all.get())

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._told = False

    def flat_map(self, value: int) -> Iterator[Any]:
        if not self._told:
            self._told = True
            yield "opened", self._subtask, sorted(self._held), *self._restored
        if value % 2:
            self._held.append(value)
        else:
            yield "even", value

    def snapshot_state(self, context: Any) -> None:
        self._state.update(self._held)
        self._all.update([f"subtask {self._subtask}"])


def pairs(env: StreamExecutionEnvironment, collected: Collected) -> None:
    source = DataGeneratorSource(lambda index: index, 400, records_per_epoch=20)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").set_parallelism(1)
    numbers.rebalance().flat_map(Pairs()).uid("pairs").sink_to(collected.sink())


@pytest.mark.slow
def test_operator_state_goes_through_a_savepoint_to_another_parallelism(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        rows = collected.rows["out"]
        env = environment(tmp_path / "first", parallelism__default=2)
        pairs(env, collected)
        client = env.execute_async("first")
        wait_until(lambda: len(rows) >= 30, TIMEOUT_S, "results")
        path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
        first = len(rows)
        table = spark.read.format("delta").load(f"{path}/state").where("uid = 'pairs'")
        stored = {row["kind"]: row["count"] for row in table.groupBy("kind").count().collect()}
        even = sum(1 for row in rows if row[0] == "even")
        assert stored["operator_list"] == even and stored["operator_union_list"] == 2
        env = environment(tmp_path / "second", parallelism__default=3, execution__state_recovery__path=path)
        pairs(env, collected)
        env.execute("second")
        # a subtask that moves to another worker is opened there again
        opened = list({row[1]: row for row in reversed(rows[first:]) if row[0] == "opened"}.values())
    assert sorted(row[1] for row in rows if row[0] == "even") == list(range(0, 400, 2))
    assert ("opened", 0, [], False, []) in rows[:first] and ("opened", 1, [], False, []) in rows[:first]
    held = [element for row in opened for element in row[2]]
    assert sorted({row[1] for row in opened}) == [0, 1, 2]
    assert all(row[3:] == (True, ["subtask 0", "subtask 1"]) for row in opened)
    assert sorted(held) == list(range(1, 2 * even, 2)), "nothing is lost or doubled"
    assert max(len(row[2]) for row in opened) - min(len(row[2]) for row in opened) <= 2
