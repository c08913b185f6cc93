"""Several subtasks of one operator live in one worker without sharing anything; each hears of every split's end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from flinkish.common import Configuration, Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.data_generator import DataGeneratorSource
from flinkish.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import UnserializableFunctionError


def environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in {
        "execution.target": "minicluster",
        "flinkish.progress": "never",
        "parallelism.default": str(parallelism),
        "flinkish.epoch.max-records-per-source": "10",
    }.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


class Counting(MapFunction):
    """Counts in an attribute and in keyed state."""

    def __init__(self) -> None:
        self.seen = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: int) -> Any:
        self.seen += 1
        self._count.update((self._count.value() or 0) + 1)
        return self._subtask, value % 5, self._count.value(), self.seen


def test_each_subtask_has_a_function_of_its_own() -> None:
    env = environment()
    numbers = env.from_source(DataGeneratorSource(lambda i: i, 40), WatermarkStrategy.no_watermarks(), "numbers")
    rows = list(numbers.key_by(lambda n: n % 5).map(Counting()).execute_and_collect())
    assert sorted({key: count for _, key, count, _ in rows}.items()) == [(key, 8) for key in range(5)]
    per_subtask = {subtask: seen for subtask, _, _, seen in rows}
    assert len(per_subtask) == 2
    assert sum(per_subtask.values()) == 40


class WithLock(MapFunction):
    """Cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def map(self, value: Any) -> Any:
        return value


def test_a_function_that_cannot_be_copied_is_named() -> None:
    env = environment()
    env.from_collection([1]).map(WithLock()).uid("locked").print()
    with pytest.raises(UnserializableFunctionError, match=r"uid locked.*in open\(\)"):
        env.execute()


class _Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value) * 1000


@pytest.mark.parametrize("splits", [(1, 1), (2, 1), (5, 2)])
def test_windows_behind_a_union_fire_whatever_the_numbers_of_splits_and_subtasks_are(splits: tuple[int, int]) -> None:
    env = environment(3)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Itself())
    first, second = (
        env.from_source(DataGeneratorSource(lambda i: i, 25, splits=count), strategy, "numbers") for count in splits
    )
    counts = (
        first.union(second)
        .map(lambda n: (n // 10, 1))
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    assert sorted(counts.execute_and_collect()) == [(0, 20), (1, 20), (2, 10)]
