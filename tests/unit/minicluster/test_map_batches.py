"""``map_batches``: functions of columns between operators that work on records."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.common.time import Time
from flinkish.datastream import OnError
from flinkish.datastream.functions import MapBatchesFunction, RuntimeContext
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import FlinkishError, ProgramError, TypeMismatchError
from flinkish.testing import TestingSink

from .programs import bounded, environment, job_of, list_source, run

ORDERS = Types.ROW_NAMED(["item", "price", "time"], [Types.STRING(), Types.LONG(), Types.LONG()])
DOUBLED = Types.ROW_NAMED(["time", "double", "item"], [Types.LONG(), Types.LONG(), Types.STRING()])


def orders(env: Any, values: list[Any]) -> Any:
    rows = [Row(item=item, price=price, time=time) for item, price, time in values]
    return env.from_source(list_source(rows), bounded(), "source", ORDERS)


class Doubles(MapBatchesFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.factor = 2

    def map_batches(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert isinstance(batch, pa.RecordBatch)
        # the columns are found by name, whatever their order
        double = pc.multiply(batch.column("price"), self.factor)
        return pa.RecordBatch.from_arrays(
            [batch.column("item"), double, batch.column("time")], names=["item", "double", "time"]
        )


def doubled_table(batch: pa.RecordBatch) -> pa.Table:
    halves = [double_of(batch.slice(0, 1)), double_of(batch.slice(1))]
    return pa.Table.from_batches(halves)


def double_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    double = pc.multiply(batch.column("price"), 2)
    columns = [batch.column("time"), double, batch.column("item")]
    return pa.RecordBatch.from_arrays(columns, names=DOUBLED.get_field_names())


def doubled_pandas(frame: Any) -> Any:
    assert type(frame).__name__ == "DataFrame"
    return frame.assign(double=frame["price"] * 2).drop(columns="price")


FUNCTIONS: dict[str, tuple[Any, str]] = {
    "a function object": (Doubles(), "arrow"),
    "a table": (doubled_table, "arrow"),
    "pandas": (doubled_pandas, "pandas"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-5, 5), st.integers(0, 30)), max_size=20),
    per_epoch=st.integers(1, 25),
    keyed=st.booleans(),
)
def test_it_gives_what_a_map_gives_and_records_keep_their_time(
    name: str, values: list[Any], per_epoch: int, keyed: bool
) -> None:
    function, batch_format = FUNCTIONS[name]

    def results(change: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
        env, main, summed = environment(2), TestingSink(), TestingSink()
        stream = orders(env, values)
        changed = change(stream.key_by(lambda row: row.item) if keyed else stream)
        changed.sink_to(main)
        windows = changed.key_by(lambda row: row.item).window(TumblingEventTimeWindows.of(Time.milliseconds(5)))
        windows.reduce(lambda a, b: Row(time=a.time, double=a.double + b.double, item=a.item)).sink_to(summed)
        run(job_of(env), per_epoch)
        return sorted(main.values, key=repr), sorted(summed.values, key=repr)

    by_batch = results(lambda stream: stream.map_batches(function, DOUBLED, batch_format=batch_format))
    by_record = results(
        lambda stream: stream.map(lambda row: Row(time=row.time, double=row.price * 2, item=row.item), DOUBLED)
    )
    assert by_batch == by_record


def test_single_values_tuples_and_nested_types_are_columns_too() -> None:
    env, sink = environment(1), TestingSink()
    nested = Types.TUPLE([Types.LIST(Types.LONG()), Types.MAP(Types.STRING(), Types.BIG_DEC())])
    stream = env.from_source(list_source([1, 0, 3]), WatermarkStrategy.no_watermarks(), "source", Types.LONG())

    def both(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["value"]
        numbers = batch.column("value").to_pylist()
        return pa.RecordBatch.from_pydict(
            {
                "f0": [[n, n] if n else None for n in numbers],
                "f1": pa.array(
                    [[("a", Decimal(n or 0))] for n in numbers], pa.map_(pa.string(), pa.decimal128(38, 18))
                ),
            }
        )

    stream.map_batches(both, nested).sink_to(sink)
    run(job_of(env))
    assert sink.values == [([1, 1], {"a": 1}), (None, {"a": 0}), ([3, 3], {"a": 3})]


WRONG: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "too few rows": (lambda b: double_of(b).slice(1), "arrow", "gave 1 rows for 2 records.*filter"),
    "other columns": (lambda b: b, "arrow", "gave the columns item, price, time.*time, double, item"),
    "something else": (lambda b: [1], "arrow", "gave a list.*pyarrow.RecordBatch"),
    "nothing": (lambda b: None, "pandas", "gave a NoneType"),
    "other types": (
        lambda b: double_of(b).set_column(1, "double", pa.array(["x", "y"])),
        "arrow",
        "'double' of type string cannot be read as int64",
    ),
    "pandas of other types": (lambda f: doubled_pandas(f).assign(double="x"), "pandas", "DataFrame that does not fit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_results_that_do_not_fit_are_refused_in_words(name: str) -> None:
    function, batch_format, problem = WRONG[name]
    env = environment(1)
    stream = orders(env, [("a", 1, 1), ("b", 2, 2)]).map_batches(function, DOUBLED, batch_format=batch_format)
    stream.sink_to(TestingSink())
    with pytest.raises(TypeMismatchError, match=problem):
        run(job_of(env))


def test_what_has_no_columns_is_refused_when_the_program_is_built() -> None:
    env = environment(1)
    anything = env.from_source(list_source([1]), WatermarkStrategy.no_watermarks(), "source")
    with pytest.raises(TypeMismatchError, match=r"the input of map_batches\(\)"):
        anything.map_batches(lambda b: b, Types.LONG())
    numbers = anything.map(lambda v: v, Types.LONG())
    with pytest.raises(TypeMismatchError, match=r"results of map_batches\(\)"):
        numbers.map_batches(lambda b: b, Types.PICKLED_BYTE_ARRAY())
    with pytest.raises(ProgramError, match="the batch format 'polars'.*'arrow' or 'pandas'"):
        numbers.map_batches(lambda b: b, Types.LONG(), batch_format="polars")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="MapBatchesFunction"):
        numbers.map_batches(3, Types.LONG())  # type: ignore[arg-type]
    with pytest.raises(FlinkishError, match="many records at once"):
        numbers.map_batches(lambda b: b, Types.LONG()).on_error(OnError.skip())
