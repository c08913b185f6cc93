"""Batches of columns on their way between tasks: everything is where it is when the same rows travel one by one."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Row
from flinkish.core.column_batch import ColumnBatch
from flinkish.errors import InvalidKeyError
from flinkish.runtime.exchange.buffer import (
    COLUMN_ROWS,
    BufferHeader,
    BufferKind,
    Records,
    WatermarkStep,
    decode,
    decode_elements,
    encode,
    encode_elements,
    is_columns,
)
from flinkish.runtime.exchange.column_keys import ColumnKeys, key_hashes, keys_of_columns
from flinkish.runtime.exchange.partitioners import (
    BroadcastPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    InputDescriptor,
    KeyGroupPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
)
from flinkish.runtime.exchange.stable_hash import stable_hash
from tests.support.profiles import examples
from tests.unit.runtime.exchange.senders import Wire, gate

#: Rows, watermarks, statuses, and names of splits.
STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from(["a", "b", "ü", None]), st.integers(-3, 3)), min_size=1, max_size=9),
        st.integers(0, 40),
        st.booleans(),
        st.sampled_from(["0/x", "0/y"]),
    ),
    max_size=12,
)
BY_TEXT = lambda row: row[0]  # noqa: E731 - the key selector of rows
BY_BOTH = lambda row: (row[0], row[1])  # noqa: E731

#: (of rows, of columns)
PARTITIONERS: dict[str, tuple[Partitioner, Partitioner]] = {
    "by text": (KeyGroupPartitioner(BY_TEXT, 16), KeyGroupPartitioner(ColumnKeys(("s",)), 16)),
    "by both": (KeyGroupPartitioner(BY_BOTH, 16), KeyGroupPartitioner(ColumnKeys(("s", "n")), 16)),
    "by none": (KeyGroupPartitioner(lambda row: (), 16), KeyGroupPartitioner(ColumnKeys(()), 16)),
    **{
        type(one).__name__: (one, one)
        for one in (
            ForwardPartitioner(),
            RebalancePartitioner(),
            RescalePartitioner(),
            GlobalPartitioner(),
            BroadcastPartitioner(),
        )
    },
}


def batch_of(rows: list[tuple[str | None, int]], kinds: bool) -> ColumnBatch:
    columns = {"s": pa.array([row[0] for row in rows], pa.string()), "n": pa.array([row[1] for row in rows])}
    return ColumnBatch(pa.record_batch(columns), np.arange(len(rows), dtype=np.int8) % 4 if kinds else None)


def rows_of(batch: ColumnBatch) -> list[Any]:
    return [(row.get_row_kind(), *row) for row in batch.rows()]


def send(wire: Wire, steps: list[Any], as_columns: bool, kinds: bool) -> None:
    wire.writer.begin_epoch(3)
    wire.writer.begin_origin("0/x")
    for step in steps:
        if isinstance(step, list):
            batch = batch_of(step, kinds)
            wire.writer.collect(batch if as_columns else [row[1:] for row in rows_of(batch)], None)
        elif isinstance(step, bool):
            wire.writer.emit_status(step)
        elif isinstance(step, int):
            wire.writer.emit_watermark(step)
        else:
            wire.writer.begin_origin(step)
    wire.writer.end_epoch()


def story(wire: Wire, target: int) -> list[Any]:
    """What the receiver is told, with the rows between two events as one list. Of watermarks without a row between
    them only the last one counts: where a buffer ends, others are sent as well."""
    told: list[Any] = []
    for step in gate(InputDescriptor(0, 0), buffers=wire.take(target)).steps():
        if isinstance(step, Records):
            values = step.values
            told += [row[1:] for row in rows_of(values)] if is_columns(values) else [tuple(row) for row in values]
        else:
            if isinstance(step, WatermarkStep) and told and isinstance(told[-1], WatermarkStep):
                told.pop()
            told.append(step)
    return [list(group) for _, group in groupby(told, lambda one: type(one) is tuple)]


@pytest.mark.parametrize("name", PARTITIONERS)
@pytest.mark.parametrize("subtasks", [1, 3])
@settings(max_examples=examples(50))
@given(STEPS, st.booleans(), st.sampled_from([1, 4, 100]))
def test_rows_in_columns_have_the_places_and_the_order_of_rows(
    name: str, subtasks: int, steps: list[Any], kinds: bool, limit: int
) -> None:
    rows, columns = (Wire(partitioner, subtasks, limit, subtask=1, parallelism=3) for partitioner in PARTITIONERS[name])
    send(rows, steps, False, kinds)
    send(columns, steps, True, kinds)
    for target in range(subtasks):
        assert story(columns, target) == story(rows, target)


def test_the_kinds_of_rows_travel_with_them() -> None:
    wire = Wire(GlobalPartitioner(), 1)
    wire.writer.begin_origin("0/x")
    batches = [batch_of([("a", 1), ("b", 2), ("c", 3)], kinds) for kinds in (True, False)]
    for batch in batches:
        wire.writer.collect(batch, None)
    wire.writer.end_epoch()
    (step,) = gate(InputDescriptor(0, 0), buffers=wire.take(0)).steps()
    assert isinstance(step, Records)
    assert rows_of(step.values) == [row for batch in batches for row in rows_of(batch)]


def test_neighbouring_small_batches_are_joined_up_to_a_limit() -> None:
    wire, size = Wire(GlobalPartitioner(), 1, max_bytes=100_000), 20_000
    wire.writer.begin_origin("0/x")
    for _ in range(5):
        wire.writer.collect(ColumnBatch(pa.record_batch({"n": np.arange(size)})), None)
    wire.writer.end_epoch()
    sent = wire.take(0)
    sizes = [len(one.values) for one in gate(buffers=sent).steps() if isinstance(one, Records)]
    assert len(sent) > 5
    assert sum(sizes) == 5 * size
    assert len(sizes) < 5
    assert max(sizes) <= COLUMN_ROWS


N = 4_500
SOME: dict[str, pa.Array] = {
    name: pa.array([random.choice([None, *values]) for _ in range(N)], kind)
    for name, kind, values in [
        ("tiny", pa.int8(), (-1, -128, 127)),
        ("int", pa.int32(), (-1, 0, 2**31 - 1)),
        ("big", pa.int64(), (-1, -(2**63), 2**63 - 1, 2**61 - 1, -(2**61), 0)),
        ("bool", pa.bool_(), (True, False)),
        ("repeated", pa.string(), ("", "a", "日本", "x" * 5_000)),
        ("double", pa.float64(), (1.5, -0.0, 0.0, 2.0)),
        ("decimal", pa.decimal128(10, 2), (Decimal("1.50"), Decimal("2.00"))),
        ("timestamp", pa.timestamp("us"), (datetime.datetime(2026, 1, 31, 1, 2, 3, 5),)),
        ("moment", pa.timestamp("us", "UTC"), (-7, 10**15)),
        ("date", pa.date32(), (datetime.date(2026, 1, 31),)),
        ("bytes", pa.binary(), (b"a", b"")),
        ("list", pa.list_(pa.int64()), ([1, 2], [])),
        ("null", pa.null(), ()),
    ]
}
SOME["distinct"] = pa.array([f"{'ü' * random.randrange(9)}{number}" for number in range(N)])
KEYS = [*((name,) for name in SOME), ("distinct", "big"), ("repeated", "double", "bool"), ("moment", "date"), ()]


@pytest.mark.parametrize("names", KEYS, ids=lambda names: "-".join(names) or "none")
def test_the_hash_of_key_columns_is_that_of_the_key_of_a_row(names: tuple[str, ...]) -> None:
    batch = pa.record_batch(SOME)
    for rows in (batch, batch.slice(17, 2_000), batch.slice(0, 0)):
        keys = keys_of_columns([rows.column(name) for name in names], rows.num_rows)
        assert key_hashes(rows, names).tolist() == [stable_hash(key) for key in keys]


def test_keys_are_the_values_of_rows() -> None:
    batch = pa.record_batch(SOME)
    rows = ColumnBatch(batch).rows()
    moments, dates = batch.column("moment"), batch.column("date")
    assert keys_of_columns([moments], len(rows)) == [row.moment for row in rows]
    assert keys_of_columns([moments, dates], len(rows)) == [(row.moment, row.date) for row in rows]
    assert isinstance(rows[0], Row)


def test_a_key_that_is_not_equal_to_itself_is_refused() -> None:
    batch = pa.record_batch({"x": [1.0, float("nan")]})
    with pytest.raises(InvalidKeyError, match="NaN"):
        key_hashes(batch, ("x",))


@given(st.text(max_size=20), st.integers(0, 40))
def test_columns_are_read_where_they_lie_in_a_buffer(origin: str, watermarks: int) -> None:
    kinds = np.array([0, 1, 2], np.int8)
    sent = ColumnBatch(pa.record_batch({"n": pa.array([7, None, 9]), "s": ["a", "b", None]}), kinds)
    header = BufferHeader(BufferKind.DATA, 1, 2, 0, origin, 0, 0, 3)
    data = encode(header, encode_elements(sent, None, [3] * watermarks, list(range(watermarks))))
    elements = decode_elements(decode(data).payload)
    columns = elements.values.columns
    assert (columns, elements.values.kinds.tolist()) == (sent.columns, kinds.tolist())
    assert elements.events == list(range(watermarks))
    begin = pa.py_buffer(data).address
    for buffer in filter(None, (buffer for column in columns.columns for buffer in column.buffers())):
        assert begin <= buffer.address < begin + len(data)
        assert buffer.address % 8 == 0
