"""The operator that writes to a sink: in which pieces committables reach the committer."""

from __future__ import annotations

from typing import Any

from flinkish.core.sink import SinkWriter
from flinkish.runtime.operators.source_and_sink import MAX_BATCH, SinkWriterOperator
from flinkish.testing import TestingSink


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
