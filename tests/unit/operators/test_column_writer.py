"""Records of sinks that take DataFrames become columns in the task, before anything of their epoch is committed."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.common import Row
from flinkish.common.typeinfo import Types
from flinkish.connectors.frame_sinks import FunctionSink
from flinkish.errors import TypeMismatchError
from flinkish.runtime.operators.column_writer import MAX_RECORDS, batches_of
from flinkish.runtime.operators.sink_writer import SinkWriterFactory, SinkWriterOperator

PAIR = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])


def operator() -> tuple[SinkWriterOperator, list[Any]]:
    made, emitted = SinkWriterFactory(FunctionSink(print), PAIR).create(), list[Any]()
    made.emit = emitted.append
    return made, emitted


def test_records_of_an_epoch_arrive_as_columns_at_the_barrier() -> None:
    writer, emitted = operator()
    writer.process_batch([Row("a", 1), ("b", 2)], None)
    assert emitted == []
    writer.process_batch([Row("c", None)], None)
    writer.snapshot_state()
    writer.snapshot_state()
    (committables,) = emitted
    (batch,) = batches_of(committables)
    assert batch.to_pylist() == [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": None}]
    assert writer.take_count() == 3


def test_many_records_go_on_their_way_before_the_barrier() -> None:
    writer, emitted = operator()
    writer.process_batch([("a", 1)] * MAX_RECORDS, None)
    assert [sum(batch.num_rows for batch in batches_of(committables)) for committables in emitted] == [MAX_RECORDS]


def test_a_record_that_does_not_fit_its_type_fails_in_the_task() -> None:
    writer, emitted = operator()
    writer.process_batch([("a", "no number")], None)
    with pytest.raises(TypeMismatchError, match="field 'n'"):
        writer.snapshot_state()
    assert emitted == []
