"""Records of sinks that take DataFrames become columns in the task, before anything of their epoch is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Row
from flinkish.common.typeinfo import Types
from flinkish.connectors.frame_sinks import DeltaSink, FunctionSink
from flinkish.core.sink import Sink, SinkWriter
from flinkish.delta.actions import new_table
from flinkish.delta.log import DeltaLog
from flinkish.errors import TypeMismatchError
from flinkish.runtime.operators.columns import MAX_RECORDS, batches_of
from flinkish.runtime.operators.source_and_sink import MAX_BATCH, SinkWriterFactory, SinkWriterOperator
from flinkish.testing import TestingSink

PAIR = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])


def operator(sink: Sink | None = None) -> tuple[SinkWriterOperator, list[Any]]:
    made, emitted = SinkWriterFactory(sink or FunctionSink(print), PAIR, "sink 's'").create(), list[Any]()
    made.emit = lambda committables, records: emitted.append(committables)
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


def test_what_a_sink_gets_says_of_how_many_records_it_was_made() -> None:
    (writer, _), counts = operator(), list[int]()
    writer.emit = lambda committables, records: counts.append(records)
    writer.process_batch([("a", 1)] * MAX_RECORDS, None)
    writer.process_batch([("b", 1)] * 3, None)
    writer.snapshot_state()
    writer.snapshot_state()
    assert counts == [MAX_RECORDS, 3]


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


def delta_table(folder: Path, partition_by: list[str], required: list[str], commits: int = 1) -> str:
    """The log of a Delta table of pairs, described by the last of its commits."""
    (folder / "_delta_log").mkdir()
    for version in range(commits):
        actions = new_table({"K": "string", "n": "long"}, 0, {})
        described = next(action["metaData"] for action in actions if "metaData" in action)
        if version == commits - 1:
            schema = json.loads(described["schemaString"])
            for field in schema["fields"]:
                field["nullable"] = field["name"] not in required
            described |= {"schemaString": json.dumps(schema), "partitionColumns": partition_by}
        DeltaLog(str(folder)).publish(version, actions)
    return str(folder)


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__"])
@pytest.mark.parametrize("declared", [True, False], ids=["declared by the sink", "that the table has"])
@pytest.mark.parametrize("merge", [True, False])
def test_a_text_that_a_partition_column_of_delta_turns_into_null_is_refused(
    tmp_path: Path, text: str, declared: bool, merge: bool
) -> None:
    path = str(tmp_path) if declared else delta_table(tmp_path, ["K"], [], commits=3)
    columns = ["k"] if declared else []
    sink = DeltaSink.merge(path, ["n"], partition_by=columns) if merge else DeltaSink(path, partition_by=columns)
    writer, emitted = operator(sink)
    writer.process_batch([("a", 1), (None, 2), ("null", 3)], None)
    writer.snapshot_state()
    assert len(emitted) == 1
    writer.process_batch([("b", 1), (text, 2)], None)
    with pytest.raises(TypeMismatchError, match=f"'k': '{text}', 'n': 2.*null.*sink 's'.*no partition"):
        writer.snapshot_state()


def test_a_text_that_is_no_partition_may_be_empty(tmp_path: Path) -> None:
    writer, emitted = operator(DeltaSink(delta_table(tmp_path, ["n"], [])))
    writer.process_batch([("", 1)], None)
    writer.snapshot_state()
    assert len(emitted) == 1


def test_a_null_in_a_column_that_the_delta_table_says_is_not_null_is_refused(tmp_path: Path) -> None:
    writer, emitted = operator(DeltaSink(delta_table(tmp_path, [], ["K"])))
    writer.process_batch([("a", None)], None)
    writer.snapshot_state()
    assert len(emitted) == 1
    writer.process_batch([("a", 1), (None, 2)], None)
    with pytest.raises(TypeMismatchError, match="'k': None, 'n': 2.*column 'k' is NOT NULL.*sink 's'"):
        writer.snapshot_state()


def test_a_delta_table_that_was_altered_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    writer, emitted = operator(DeltaSink(delta_table(tmp_path, [], ["K"])))
    writer.process_batch([("a", 1)], None)
    writer.snapshot_state()
    DeltaLog(str(tmp_path)).publish(1, new_table({"k": "string", "n": "long"}, 0, {}))
    writer.process_batch([(None, 1)], None)
    writer.snapshot_state()
    assert len(emitted) == 2


# --- The operator that writes to a sink: in which pieces committables reach the committer ---------------------------


class Passing(SinkWriter):
    """Hands each record over at once."""

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return values


def sent(writer: SinkWriter, batches: list[list[Any]], max_batch: int = MAX_BATCH) -> tuple[list[Any], list[Any]]:
    """What is sent before the barrier, and at it."""
    operator, buffers = SinkWriterOperator(writer, max_batch), list[Any]()
    operator.emit = lambda committables, records: buffers.append(committables)
    for batch in batches:
        operator.process_batch(batch, None)
    before = len(buffers)
    operator.snapshot_state()
    return buffers[:before], buffers[before:]


def test_committables_are_sent_when_there_are_many_of_them_and_at_the_barrier() -> None:
    assert sent(Passing(), [[1, 2], [3, 4, 5], [6]], max_batch=4) == ([[1, 2, 3, 4], [5]], [[6]])
    assert sent(Passing(), [[]]) == ([], [])


def test_no_buffer_has_all_committables_of_a_large_epoch() -> None:
    records = list(range(3 * MAX_BATCH + 1))
    # its writer hands all records over at the barrier
    before, at_barrier = sent(TestingSink().create_writer(), [records])
    assert before == []
    assert [len(buffer) for buffer in at_barrier] == [MAX_BATCH, MAX_BATCH, MAX_BATCH, 1]
    assert [one for buffer in at_barrier for one in buffer] == records
