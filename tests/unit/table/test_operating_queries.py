"""Queries as operators meet them: they end by Ctrl-C; their state goes to functions, and expires."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.common import JobStatus, Types
from flinkish.core.state import ValueStateDescriptor
from flinkish.datastream import KeyedProcessFunction
from flinkish.errors import FlinkishError
from flinkish.table import DataTypes, StreamTableEnvironment
from flinkish.table.udf import udf
from tests.support.programs import new_environment

TIMEOUT_S = 60


@pytest.fixture
def t_env(tmp_path: Path) -> StreamTableEnvironment:
    """Three rows of two keys, in a folder that is watched."""
    (tmp_path / "in").mkdir()
    write(tmp_path, 0, {"k": ["a", "b", "a"], "v": [1, 2, 3]})
    return declared(tmp_path, StreamTableEnvironment.create(new_environment()))


def write(folder: Path, number: int, columns: dict[str, list[Any]]) -> None:
    pq.write_table(pa.table(columns), folder / "hidden")
    os.rename(folder / "hidden", folder / "in" / f"{number}.parquet")


def declared(folder: Path, t_env: StreamTableEnvironment) -> StreamTableEnvironment:
    t_env.execute_sql(
        "CREATE TABLE numbers (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
        f"'path' = '{folder / 'in'}', 'source.monitor-interval' = '50 ms')"
    )
    t_env.execute_sql("CREATE TABLE totals (k STRING, n BIGINT, total BIGINT) WITH ('connector' = 'print')")
    return t_env


class InterruptedBy:
    """A function of a query that sends its process a signal with the last row."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, value: int) -> int:
        if value == 3:
            os.kill(os.getpid(), self.number)
        return value


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_query_that_is_printed_after_the_running_epoch(
    number: int, t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    t_env.create_temporary_function("interrupted", udf(InterruptedBy(number), result_type=DataTypes.BIGINT()))
    with pytest.raises(SystemExit) as ended:
        t_env.execute_sql("SELECT k, interrupted(v) AS v FROM numbers").print()
    assert ended.value.code == 143
    said = capsys.readouterr().out
    assert re.findall(r"\| \+I \| +(\w) \| +(\d) \|", said) == [("a", "1"), ("b", "2"), ("a", "3")]
    assert said.endswith("3 rows in set\n")


def raises(value: int) -> int:
    if value == 2:
        raise ValueError("two")
    return value


def returns_a_text(value: int) -> Any:
    return "two" if value == 2 else value


@pytest.mark.parametrize("function", [raises, returns_a_text])
@pytest.mark.parametrize(("where", "rows"), [("", "row 1"), ("WHERE v > 1", "rows 0 to 2")])
def test_a_function_that_fails_is_told_with_its_arguments_and_the_row_of_the_file_or_those_among_which_it_is(
    function: Any, where: str, rows: str, t_env: StreamTableEnvironment
) -> None:
    t_env.create_temporary_function("failing", udf(function, result_type=DataTypes.BIGINT()))
    with pytest.raises(FlinkishError, match=rf"record \(2,\), read from .*/0.parquet, {rows}, epoch 0"):
        t_env.execute_sql(f"SELECT k, failing(v) FROM numbers {where}").print()


def test_an_insert_that_has_no_end_goes_on_after_a_wait(t_env: StreamTableEnvironment) -> None:
    result: Any = t_env.execute_sql("INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM numbers GROUP BY k")
    with pytest.raises(TimeoutError, match="the job of the INSERT has not ended in 10 ms: it goes on"):
        result.wait(10)
    client = result.get_job_client()
    client.cancel().result(TIMEOUT_S)
    assert client.get_job_status().result(TIMEOUT_S) is JobStatus.CANCELED


class Totals(KeyedProcessFunction):
    """Tells what a GROUP BY has kept of a key."""

    def open(self, runtime_context: Any) -> None:
        long = Types.LONG()
        kept = Types.ROW_NAMED(["COUNT(*)", "SUM(v)"], [long, long])
        self.kept = runtime_context.get_state(ValueStateDescriptor("aggregates", kept))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Any:
        row = self.kept.value()
        yield value, row["COUNT(*)"], row["SUM(v)"]


def test_a_function_takes_over_the_state_of_a_group_by(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    with t_env.execute_sql("SELECT k, COUNT(*), SUM(v) FROM numbers GROUP BY k").collect() as rows:
        found = {row[0]: tuple(row) for row in (next(rows), next(rows))}
    query = "INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM numbers GROUP BY k"
    client: Any = t_env.execute_sql(query).get_job_client()
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    settings = {"execution__state_recovery__path": path, "execution__state_recovery__ignore_unclaimed_state": "true"}
    env = new_environment(**settings)
    keys = env.from_collection(["b", "a"], Types.STRING()).uid("keys").key_by(lambda key: key, Types.STRING())
    totals = keys.process(Totals()).uid("table/totals/1-aggregate(k)")
    with totals.execute_and_collect() as told:
        assert {row[0]: row for row in told} == found == {"a": ("a", 2, 4), "b": ("b", 1, 2)}


def test_groups_that_have_not_changed_for_the_time_to_live_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path, 0, {"k": ["a", "b"], "v": [1, 2]})
    t_env = declared(tmp_path, StreamTableEnvironment.create(new_environment()))
    t_env.get_config().set("table.exec.state.ttl", "1 ms")
    with t_env.execute_sql("SELECT k, SUM(v) FROM numbers GROUP BY k").collect() as rows:
        found = [next(rows), next(rows)]
        write(tmp_path, 1, {"k": ["a"], "v": [10]})
        found.append(next(rows))
    assert [f"{row.get_row_kind()}{row}" for row in found] == [
        "+I<Row('a', 1)>",
        "+I<Row('b', 2)>",
        "+I<Row('a', 10)>",
    ]
