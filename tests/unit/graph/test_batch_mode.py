"""What BATCH mode changes."""

from __future__ import annotations

import pytest

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from flinkish.errors import ProgramError
from tests.support.programs import new_environment, results_of

PAIRS = [("a", 1), ("b", 5), ("a", 3), ("b", 2)]


def pairs(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection(PAIRS, Types.TUPLE([Types.STRING(), Types.INT()]))


def test_rolling_results_are_final_ones_only() -> None:
    env = new_environment(parallelism=2)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    keyed = pairs(env).key_by(lambda pair: pair[0])
    assert sorted(results_of(keyed.sum(1))) == [("a", 4), ("b", 7)]
    assert sorted(results_of(keyed.min_by(1))) == [("a", 1), ("b", 2)]
    assert sorted(results_of(keyed.reduce(lambda x, y: (x[0], x[1] * y[1])))) == [("a", 3), ("b", 10)]
    rows = env.from_collection(PAIRS, Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()]))
    assert sorted(results_of(rows.key_by(lambda row: row.k).sum("v")), key=str) == [Row(k="a", v=4), Row(k="b", v=7)]
    every_step = results_of(pairs(new_environment()).key_by(lambda pair: pair[0]).sum(1))
    assert sorted(every_step) == [("a", 1), ("a", 4), ("b", 5), ("b", 7)], "in streaming mode"


def test_automatic_is_batch_when_all_sources_end() -> None:
    env = new_environment(execution__runtime_mode="AUTOMATIC")
    assert sorted(results_of(pairs(env).key_by(lambda pair: pair[0]).max(1))) == [("a", 3), ("b", 5)]
    endless = env.add_source(DataGeneratorSource(lambda i: i))
    endless.key_by(lambda n: n).sum().print()
    assert "Sum" in env.get_execution_plan()


def test_an_endless_source_is_refused_in_batch_mode() -> None:
    env = new_environment(execution__runtime_mode="BATCH")
    source = env.from_source(DataGeneratorSource(lambda i: i), WatermarkStrategy.no_watermarks(), "endless")
    source.print()
    with pytest.raises(ProgramError, match=r"Detected an UNBOUNDED source .*'Source: endless'.*STREAMING or AUTOMATIC"):
        env.execute()
