"""Selections and projections of columns, and the borders to operators on records."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flinkish.common import Row, RowKind, Types
from flinkish.common.time import Instant
from flinkish.connectors.columns import RecordReader
from flinkish.core.column_batch import MAX_ROWS, ColumnBatch
from flinkish.errors import InternalError, ProgramError, TypeMismatchError, UserCodeError
from flinkish.runtime.columns.calc import CalcFactory, ColumnNamed, LimitFactory
from flinkish.runtime.columns.rows import ColumnsToRowsFactory, RowsToColumnsFactory
from flinkish.runtime.columns.watermarks import ColumnWatermarksFactory
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.job.context import TaskMetricGroup
from flinkish.runtime.job.failure import describe_failure
from flinkish.runtime.job.operator import OperatorContext, OperatorFactory
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.table.catalog import Catalog
from flinkish.table.logical_types import BIGINT
from flinkish.table.plan import Field
from flinkish.table.planner import Planner
from flinkish.table.resolved import resolve_expression
from flinkish.table.sql import parse_expression

NOW_MS = 1_769_860_800_000


class Recorder:
    """An output that notes batches, and watermarks as ("watermark", ms)."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def collect(self, values: Any, timestamps: Any) -> None:
        assert len(values) > 0
        self.seen.append((values, timestamps))

    def emit_watermark(self, watermark_ms: int) -> None:
        self.seen.append(("watermark", watermark_ms))

    emit_interim_watermark = emit_watermark


def operator(factory: OperatorFactory) -> Any:
    made: Any = factory.create()
    epoch = EpochInfo(epoch=5, processing_time_ms=NOW_MS)
    context = OperatorContext("uid", "Calc[2]", "task", 0, 1, 128, 0, epoch, TaskMetricGroup(), None, OperatorState())
    made.setup(context, Recorder())
    made.open()
    return made


def emitted(made: Any) -> list[Any]:
    return [row for values, _ in made.output.seen for row in values.rows()]


@dataclass(frozen=True)
class Computed:
    text: str
    compute: Callable[[pa.RecordBatch], Any]

    def __call__(self, columns: pa.RecordBatch, now_ms: int) -> Any:
        assert now_ms == NOW_MS
        return self.compute(columns)


LESS = Computed("n < 3", lambda columns: pc.less(columns["n"], 3))
DOUBLE = Computed("n * 2", lambda columns: pc.multiply(columns["n"], 2))
ONE = Computed("'x'", lambda columns: pa.scalar("x"))


QUOTIENT: Any = resolve_expression(
    parse_expression("6 / n"), Planner(Catalog(lambda: "UTC", lambda: False)), {"n": Field("n", BIGINT)}
)
N_AND_X = pa.schema([("m", pa.int64()), ("x", pa.string())])
ONLY_M = pa.schema([("m", pa.int64())])


def numbers(*values: int | None, kinds: list[int] | None = None) -> ColumnBatch:
    batch = pa.record_batch({"n": pa.array(values, pa.int64()), "s": pa.array(map(str, values))})
    return ColumnBatch(batch, None if kinds is None else np.array(kinds, np.int8))


def test_rows_of_which_the_condition_is_not_true_are_dropped_before_the_others_are_computed() -> None:
    calc = operator(CalcFactory(LESS, (DOUBLE, ONE), N_AND_X, ("n",)))
    calc.process_batch(numbers(1, None, 7, 2), None)
    assert emitted(calc) == [Row(m=2, x="x"), Row(m=4, x="x")]
    divided = operator(CalcFactory(Computed("n > 0", lambda one: pc.greater(one["n"], 0)), (QUOTIENT,), ONLY_M))
    divided.process_batch(numbers(0, 3), None)
    assert [row[0] for row in emitted(divided)] == [2]


@pytest.mark.parametrize("kinds", [None, [0, 1, 2, 3]])
def test_rows_keep_their_kinds(kinds: list[int] | None) -> None:
    calc = operator(CalcFactory(LESS, (ColumnNamed("n"),), pa.schema([("n", pa.int64())]), ("n",)))
    calc.process_batch(numbers(1, 5, 2, 0, kinds=kinds), None)
    found = [row.get_row_kind() for row in emitted(calc)]
    assert found == ([RowKind.INSERT] * 3 if kinds is None else [RowKind(0), RowKind(2), RowKind(3)])


@pytest.mark.parametrize(("condition", "kept"), [(True, 3), (False, 0), (None, 0)])
def test_a_condition_may_be_one_value_for_all_rows(condition: bool | None, kept: int) -> None:
    constant = Computed("c", lambda columns: pa.scalar(condition, pa.bool_()))
    calc = operator(CalcFactory(constant, (DOUBLE, ONE), N_AND_X))
    calc.process_batch(numbers(1, 2, 3), None)
    assert len(emitted(calc)) == kept


def test_a_long_batch_is_worked_on_in_parts() -> None:
    calc = operator(CalcFactory(None, (DOUBLE, ONE), N_AND_X))
    calc.process_batch(ColumnBatch(pa.record_batch({"n": np.arange(MAX_ROWS + 10)})), None)
    assert [len(values) for values, _ in calc.output.seen] == [MAX_ROWS, 10]


def test_a_projection_to_no_column_keeps_the_number_of_rows() -> None:
    calc = operator(CalcFactory(LESS, (), pa.schema([])))
    calc.process_batch(numbers(1, 2, 9), None)
    assert [len(values) for values, _ in calc.output.seen] == [2]


def failure_of(calc: Any, batch: ColumnBatch, records: bool = True) -> Exception:
    with pytest.raises(Exception) as raised:
        calc.process_batch(batch, None)
    return describe_failure(raised.value, "Calc (1/1)", 5, records=records)


@pytest.mark.parametrize("records", [True, False])
def test_an_error_of_an_expression_names_it_with_operator_epoch_and_row(records: bool) -> None:
    failed = failure_of(operator(CalcFactory(None, (QUOTIENT,), ONLY_M)), numbers(*range(1, 900), 0, 7), records)
    assert isinstance(failed, ProgramError)
    for part in ("by zero", "6 / n, row 899 of the batch", "operator 'Calc[2]'", "epoch 5"):
        assert part in str(failed)
    assert ("Row(n=0, s='0')" in str(failed)) is records


def test_an_error_of_user_code_keeps_its_traceback() -> None:
    def broken(columns: pa.RecordBatch) -> Any:
        return pa.array([{1: 2}[value] for value in columns["n"].to_pylist()])

    failed = failure_of(operator(CalcFactory(None, (Computed("f(n)", broken),), ONLY_M)), numbers(1, 1, 8))
    assert isinstance(failed, UserCodeError)
    assert "in broken" in failed.user_traceback


def test_a_column_of_another_type_than_the_planned_one_is_an_error() -> None:
    calc = operator(CalcFactory(None, (ONE,), ONLY_M))
    with pytest.raises(InternalError, match=r"column 'm' has the type string.*expected int64"):
        calc.process_batch(numbers(1), None)


def test_limit_goes_on_where_it_was() -> None:
    first = operator(LimitFactory(3))
    first.restore(None)
    first.process_batch(numbers(1, 2), None)
    second = operator(LimitFactory(3))
    second.restore(first.save())
    second.process_batch(numbers(3, 4, 5), None)
    assert [row.n for row in [*emitted(first), *emitted(second)]] == [1, 2, 3]


# --- the borders ----------------------------------------------------------------------------------------------------

ROW = Types.ROW_NAMED(["n", "at"], [Types.LONG(), Types.INSTANT()])
SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def reader() -> Callable[[pa.RecordBatch], list[Row]]:
    return RecordReader(ROW).read


def test_rows_become_columns_and_rows_again_with_their_kinds_and_times() -> None:
    rows = [Row(n=1, at=Instant(1, 5_000)), Row.of_kind(RowKind.DELETE, n=None, at=Instant(-1, 999_999_000))]
    there = operator(RowsToColumnsFactory(ROW, SCHEMA))
    there.process_batch(list(rows), None)
    back = operator(ColumnsToRowsFactory(reader, "at"))
    back.process_batch(there.output.seen[0][0], None)
    found, times = back.output.seen[0]
    assert found == rows
    assert [row.get_row_kind() for row in found] == [RowKind.INSERT, RowKind.DELETE]
    assert times == [1_000, -1]


def test_chosen_fields_and_the_timestamps_of_records_become_columns() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    kind = Types.TUPLE([Types.STRING(), Types.INT()])
    there = operator(RowsToColumnsFactory(kind, schema, (1,), "at"))
    there.process_batch([("a", 4), ("b", 5)], [1_500, -2])
    assert emitted(there) == [Row(at=Instant(1, 500_000_000), n=4), Row(at=Instant(-1, 998_000_000), n=5)]
    with pytest.raises(ProgramError, match="Rowtime timestamp is not defined"):
        there.process_batch([("a", 4)], None)


# --- watermarks -----------------------------------------------------------------------------------------------------


def times(*ms: int | None, marks: list[int | None] | None = None) -> ColumnBatch:
    columns = {"ts": pa.array(ms, pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp("us"))}
    if marks is not None:
        columns["mark"] = pa.array(marks, pa.int64()).cast(pa.timestamp("ms"))
    return ColumnBatch(pa.record_batch(columns))


def told(made: Any) -> list[Any]:
    """Times in ms, and watermarks."""
    epoch = datetime.datetime(1970, 1, 1)
    found: list[Any] = []
    for one, other in made.output.seen:
        if isinstance(one, str):
            found.append((one, other))
        else:
            found += [(row.ts - epoch) // datetime.timedelta(milliseconds=1) for row in one.rows()]
    return found


@pytest.mark.parametrize("interval_ms", [None, 7])
@pytest.mark.parametrize("batches", [[[5, 9, 3, 9, 30], [31, 2, 40]], [[1], [], [100, 1, 99, 98, 97]], [[-5, -9, 4]]])
def test_watermarks_of_a_column_are_those_of_records(batches: list[list[int]], interval_ms: int | None) -> None:
    columns = operator(ColumnWatermarksFactory(out_of_orderness_ms=4, interval_ms=interval_ms, time="ts"))
    records = operator(TimestampsAndWatermarksFactory(lambda value, _: value, 4, interval_ms=interval_ms))
    for number, batch in enumerate(filter(None, batches)):
        for made, values in ((columns, times(*batch)), (records, list(batch))):
            made.begin_split(f"split{number % 2}", 0)
            made.process_batch(values, None)
    found: list[Any] = []
    for one, other in records.output.seen:
        found += [(one, other)] if isinstance(one, str) else one
    assert told(columns) == found
    assert columns.save_split("split0") == records.save_split("split0")
    assert columns.watermarks_of_splits() == records.watermarks_of_splits()


def test_an_expression_says_the_watermark_of_each_row_and_null_says_nothing() -> None:
    made = operator(ColumnWatermarksFactory(time="ts", watermark=ColumnNamed("mark")))
    made.process_batch(times(10, 20, 4, 5, 30, marks=[None, 5, None, 3, 6]), None)
    assert told(made) == [10, 20, ("watermark", 5), 4, 5, 30, ("watermark", 6)]


def test_an_event_time_that_is_null_is_an_error_that_quotes_the_row() -> None:
    made = operator(ColumnWatermarksFactory(out_of_orderness_ms=0, time="ts"))
    with pytest.raises(TypeMismatchError, match=r"event time of Row\(ts=None\) is None.*column 'ts'"):
        made.process_batch(times(1, None), None)


def test_without_a_strategy_as_in_batch_mode_rows_pass() -> None:
    made = operator(ColumnWatermarksFactory(out_of_orderness_ms=None, time="ts"))
    made.process_batch(times(1, None, 2), None)
    assert [len(values) for values, _ in made.output.seen] == [3]
