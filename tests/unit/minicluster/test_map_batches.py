"""``map_batches``: functions of columns between operators that work on records."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Instant, Row, Types, WatermarkStrategy
from flinkish.common.time import Time
from flinkish.common.typeinfo import TypeInformation
from flinkish.datastream import OnError
from flinkish.datastream.functions import MapBatchesFunction, RuntimeContext
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import FlinkishError, ProgramError, TypeMismatchError
from flinkish.table import DataTypes
from flinkish.testing import TestingSink
from tests.support.profiles import examples

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
@settings(max_examples=examples(25), deadline=None)
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


UTC, NAN, BIG = datetime.timezone.utc, float("nan"), 2**53 + 1
#: A type, values of it, and the pandas type of their column.
OF_PANDAS: list[tuple[TypeInformation, list[Any], str]] = [
    (Types.BYTE(), [-128, 127], "Int8"),
    (Types.SHORT(), [2**15 - 1], "Int16"),
    (Types.INT(), [2**31 - 1], "Int32"),
    (Types.LONG(), [BIG, 2**63 - 1, -(2**63)], "Int64"),
    (Types.BOOLEAN(), [True, False], "boolean"),
    (Types.FLOAT(), [1.5, NAN, float("inf")], "Float32"),
    (Types.DOUBLE(), [0.1, NAN, -0.0], "Float64"),
    (Types.STRING(), ["", "a"], "object"),
    (Types.BIG_INT(), [10**37, BIG], "object"),
    (Types.BIG_DEC(), [Decimal("0.1"), Decimal(10**19)], "object"),
    (DataTypes.DECIMAL(38, 0), [Decimal(10**37)], "object"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"", b"a\x00"], "object"),
    (Types.SQL_DATE(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], "object"),
    (Types.SQL_TIME(), [datetime.time(23, 59, 59, 999_999)], "object"),
    (Types.SQL_TIMESTAMP(), [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 1, 2, 3)], "datetime64[us]"),
    (Types.INSTANT(), [Instant(-10**10, 1_000), Instant(10**11, 0)], "datetime64[us, UTC]"),
    (Types.LIST(Types.LONG()), [[BIG, None], [], [1]], "object"),
    (Types.LIST(Types.DOUBLE()), [[NAN, None, 1.5]], "object"),
    (Types.MAP(Types.STRING(), Types.LONG()), [{"a": BIG, "b": None}, {}], "object"),
    (Types.MAP(Types.LONG(), Types.BIG_INT()), [{BIG: 10**30}], "object"),
    (Types.ROW_NAMED(["x", "b"], [Types.LONG(), Types.BOOLEAN()]), [Row(x=BIG, b=None), Row(x=None, b=True)], "object"),
    (Types.TUPLE([Types.LONG(), Types.LIST(Types.BIG_DEC())]), [(BIG, [Decimal("1.5"), None])], "object"),
    (Types.LIST(Types.MAP(Types.STRING(), Types.TUPLE([Types.LONG()]))), [[{"a": (BIG,), "b": None}, None]], "object"),
]  # fmt: skip


def through_pandas(kind: TypeInformation, values: list[Any], *functions: Callable[[Any], Any]) -> list[list[Any]]:
    """What becomes of the values in a column ``v``, as one batch, by each of the functions."""
    rows, sinks = Types.ROW_NAMED(["v"], [kind]), [TestingSink() for _ in functions]
    env = environment(1)
    stream = env.from_source(
        list_source([Row(v=value) for value in values]), WatermarkStrategy.no_watermarks(), "s", rows
    )
    for function, sink in zip(functions, sinks):
        stream.map_batches(function, rows, batch_format="pandas").sink_to(sink)
    # the functions of these tests leave in a list what they have seen
    run(job_of(env, share_functions=True), 100)
    return [[row.v for row in sink.values] for sink in sinks]


@pytest.mark.parametrize(("kind", "values", "dtype"), OF_PANDAS, ids=[repr(kind) for kind, *_ in OF_PANDAS])
def test_a_value_is_the_same_before_and_after_pandas_whatever_is_beside_it(
    kind: TypeInformation, values: list[Any], dtype: str
) -> None:
    import pandas as pd

    def objects(frame: Any) -> Any:
        # the values of the column, without its type
        return pd.DataFrame({"v": pd.Series([None if x is pd.NA else x for x in frame["v"].tolist()], dtype=object)})

    def renumbered(frame: Any) -> Any:
        return frame[::1].set_index(frame.index + 7)

    for batch in (values, [*values, None], [None]):
        found: list[str] = []

        def changing(change: Callable[[Any], Any], found: list[str] = found) -> Callable[[Any], Any]:
            def changed(frame: Any) -> Any:
                found.append(str(frame["v"].dtype))
                return change(frame)

            return changed

        for result in through_pandas(kind, batch, *map(changing, (lambda frame: frame, renumbered, objects))):
            # NaN equals nothing
            assert list(map(repr, result)) == list(map(repr, batch)) or "Big" in repr(kind) and result == batch
        assert found == [dtype] * 3


RESULTS: dict[str, tuple[TypeInformation, Callable[[Any], Any], list[Any]]] = {
    "numpy's integers": (Types.LONG(), lambda pd, np: np.array([BIG, 2]), [BIG, 2]),
    "floats for integers": (Types.LONG(), lambda pd, np: np.array([1.0, NAN]), [1, None]),
    "nothing but NaN": (Types.STRING(), lambda pd, np: np.array([NAN, NAN]), [None, None]),
    "a column of Arrow": (Types.LONG(), lambda pd, np: pd.array([BIG, None], "int64[pyarrow]"), [BIG, None]),
    "texts of a category": (Types.STRING(), lambda pd, np: pd.Categorical(["a", None]), ["a", None]),
    "texts": (Types.STRING(), lambda pd, np: pd.array(["a", None], "string"), ["a", None]),
    "missing texts": (Types.STRING(), lambda pd, np: pd.Series(["a", NAN], dtype=object), ["a", None]),
    "a float that is missing": (Types.DOUBLE(), lambda pd, np: pd.array([1.5, None], "Float64"), [1.5, None]),
    "objects of numpy": (Types.LONG(), lambda pd, np: pd.Series([np.int64(BIG), pd.NA], dtype=object), [BIG, None]),
    "truth values of numpy": (Types.BOOLEAN(), lambda pd, np: pd.Series([np.True_, None], dtype=object), [True, None]),
    "nanoseconds that are zero": (
        Types.SQL_TIMESTAMP(),
        lambda pd, np: np.array(["2024-01-01", "NaT"], "datetime64[ns]"),
        [datetime.datetime(2024, 1, 1), None],
    ),
    "arrays": (Types.LIST(Types.LONG()), lambda pd, np: pd.Series([np.array([BIG, 1]), None]), [[BIG, 1], None]),
    "pairs": (
        Types.MAP(Types.STRING(), Types.LONG()), lambda pd, np: pd.Series([[("a", BIG)], {}]), [{"a": BIG}, {}]
    ),
    "tuples": (Types.TUPLE([Types.LONG()]), lambda pd, np: pd.Series([(BIG,), {"f0": np.int8(1)}]), [(BIG,), (1,)]),
    "wide decimals": (Types.BIG_DEC(), lambda pd, np: pd.Series([Decimal(10**40), None]), [Decimal(10**40), None]),
    "a scale that fits": (
        DataTypes.DECIMAL(10, 2), lambda pd, np: pd.Series([Decimal("1.990"), 2]), [Decimal("1.99"), Decimal(2)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_columns_of_pandas_are_read_as_the_declared_type(name: str) -> None:
    import numpy as np
    import pandas as pd

    kind, make, wanted = RESULTS[name]
    [result] = through_pandas(kind, [None, None], lambda frame: pd.DataFrame({"v": make(pd, np)}))
    assert list(map(repr, result)) == list(map(repr, wanted)) or "Decimal" in repr(result) and result == wanted


REFUSED: dict[str, tuple[TypeInformation, Callable[[Any], Any]]] = {
    "a fraction under LONG": (Types.LONG(), lambda pd, np: np.array([1.5])),
    "a float that has lost digits": (Types.LONG(), lambda pd, np: np.array([2.0**53 + 2])),
    "a number under STRING": (Types.STRING(), lambda pd, np: np.array([1])),
    "a number under BOOLEAN": (Types.BOOLEAN(), lambda pd, np: np.array([2])),
    "milliseconds under INSTANT": (Types.INSTANT(), lambda pd, np: np.array([1_700_000_000_000])),
    "nanoseconds": (Types.SQL_TIMESTAMP(), lambda pd, np: np.array([1], "datetime64[ns]")),
    "nanoseconds in an object": (Types.SQL_TIMESTAMP(), lambda pd, np: pd.Series([pd.Timestamp(1)], dtype=object)),
    "a moment under DATE": (Types.SQL_DATE(), lambda pd, np: np.array(["2024-01-01"], "datetime64[s]")),
    "a time span": (Types.LONG(), lambda pd, np: np.array([1], "timedelta64[s]")),
    "a float under BIG_DEC": (Types.BIG_DEC(), lambda pd, np: np.array([0.1])),
    "more digits than DECIMAL has": (DataTypes.DECIMAL(10, 2), lambda pd, np: pd.Series([Decimal("1.999")])),
    "a number beyond INT": (Types.INT(), lambda pd, np: np.array([2**31])),
    "a key twice": (Types.MAP(Types.STRING(), Types.LONG()), lambda pd, np: pd.Series([[("a", 1), ("a", 2)]])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_columns_of_pandas_that_would_change_are_refused(name: str) -> None:
    import numpy as np
    import pandas as pd

    kind, make = REFUSED[name]
    with pytest.raises(TypeMismatchError, match="column 'v'"):
        through_pandas(kind, [None], lambda frame: pd.DataFrame({"v": make(pd, np)}))


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
