"""Buffers that arrive sorted are worked on as they come, with the same steps as if all of them were held."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import InternalError
from flinkish.runtime.exchange.buffer import (
    Buffer,
    BufferHeader,
    BufferKind,
    OriginProgress,
    Step,
    decode,
    encode,
    place,
)
from flinkish.runtime.exchange.gate import InputGate, SortedBuffers, origin_name, whole_source
from flinkish.runtime.exchange.partitioners import EdgeDescriptor, InputDescriptor, Sender
from flinkish.runtime.exchange.writer import RecordWriter
from flinkish.runtime.job.report import TaskHeader
from flinkish.runtime.state.saved.restore import encode_columns
from flinkish.runtime.state.state_rows import StateColumns
from flinkish.runtime.stored.pickles import dumps
from flinkish.runtime.task.task import EpochStamp
from flinkish.runtime.task.task_manager import StoredTask
from flinkish.spark.plan import arriving
from flinkish.spark.state import FORMAT_VERSION, moved_in
from tests.support.chains import STORY, Worker, take_story, vertex
from tests.support.profiles import examples
from tests.unit.runtime.exchange.senders import buffer
from tests.unit.runtime.exchange.test_record_writer import by_first

RECEIVERS = 2
DESCRIPTORS = (
    InputDescriptor(0, 0, 2, ("0/a",)),
    InputDescriptor(0, 0, 2, (), edge=1),
    InputDescriptor(1, 1, from_source=False),
)

#: (receiver, encoded buffer)
Sent = list[tuple[int, bytes]]
#: what one sender does in an epoch
Script = list[tuple[str, Any]]

actions = st.one_of(
    st.lists(st.integers(0, 30), min_size=1, max_size=6).map(lambda times: ("records", times)),
    st.integers(0, 30).map(lambda ms: ("watermark", ms)),
    st.booleans().map(lambda idle: ("status", idle)),
    st.sampled_from("abc").map(lambda split: ("split", split)),
    st.just(("end", None)),
)
#: (vertex, edge, subtask) -> its script
programs = st.dictionaries(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2)), st.lists(actions, max_size=25), max_size=5
)


def _send(senders: dict[tuple[int, int, int], Script]) -> Sent:
    """What the senders of an epoch put out, by real writers with small buffers."""
    sent: Sent = []
    for (upstream, edge, subtask), script in senders.items():
        if upstream and edge:
            continue
        described = EdgeDescriptor(7, upstream, by_first(RECEIVERS), RECEIVERS, edge=edge, always_call=bool(subtask))
        writer = RecordWriter(
            described,
            Sender(subtask, 3, RECEIVERS, "the sender"),
            lambda _, receiver, data: sent.append((receiver, data)),
            3,
            1_000_000,
            upstream == 0,
        )
        writer.begin_origin(origin_name(upstream, "a" if upstream == 0 else subtask), subtask)
        for number, (action, detail) in enumerate(script):
            if action == "records":
                values = [((time + number) % 7 % RECEIVERS, upstream, subtask, number, time) for time in detail]
                writer.collect(values, detail)
            elif action == "watermark":
                writer.emit_watermark(detail)
            elif action == "status":
                writer.emit_status(detail)
            elif upstream == 0 and action == "split":
                writer.begin_origin(origin_name(0, detail), subtask)
            elif upstream == 0 and action == "end" and subtask == 0:
                writer.begin_origin(whole_source(0))
                writer.emit_watermark(MAX_WATERMARK_MS)
                break
        writer.end_epoch()
    return sent


def _sorted_as_bytes(sent: Sent, receiver: int) -> list[Buffer]:
    """As Spark sorts them."""
    return [decode(data) for data in sorted(data for to, data in sent if to == receiver)]


def _held(sent: Sent, receiver: int) -> list[Buffer]:
    """As buffers that may all be the first of their input: a gate reads every one of them before it begins."""
    every = [decode(data) for to, data in sent if to == receiver]
    every = [Buffer(one.header._replace(begins_ms=MIN_TIMESTAMP_MS), one.payload) for one in every]
    return sorted(every, key=lambda one: place(one.header))


def _run(epochs: list[list[Buffer]], receiver: int) -> list[Any]:
    """The steps of each epoch, and what is remembered from one to the next."""
    known: dict[str, OriginProgress] = {}
    watermark_ms, idle, told = MIN_TIMESTAMP_MS, False, []
    for epoch, buffers in enumerate(epochs):
        gate = InputGate(DESCRIPTORS, known, watermark_ms, idle, epoch, receiver)
        gate.receive(SortedBuffers(buffers))
        told.append(list[Any](gate.steps()))
        known, watermark_ms, idle = gate.progress(), gate.valve.combined_ms, gate.idle
        told.append((known, watermark_ms, idle))
    return told


@settings(max_examples=examples(75), deadline=None)
@given(st.lists(programs, min_size=1, max_size=3), st.integers(0, RECEIVERS - 1))
def test_steps_over_sorted_buffers_are_those_over_buffers_that_are_all_held(epochs: list[Any], receiver: int) -> None:
    sent = list(map(_send, epochs))
    streamed = _run([_sorted_as_bytes(one, receiver) for one in sent], receiver)
    assert streamed == _run([_held(one, receiver) for one in sent], receiver)


@settings(max_examples=examples(50), deadline=None)
@given(programs, st.integers(0, RECEIVERS - 1), st.randoms())
def test_another_order_of_arrival_gives_no_other_step_but_an_error(
    senders: Any, receiver: int, shuffle: random.Random
) -> None:
    sent = _sorted_as_bytes(_send(senders), receiver)
    in_order = list[Step](_gate(sent).steps())
    shuffled = shuffle.sample(sent, len(sent))
    told: list[Step] = []
    try:
        told.extend(_gate(shuffled).steps())
    except InternalError as error:
        assert "do not arrive in their order" in str(error)
        assert shuffled != sent
    else:
        assert told == in_order


def test_a_spark_task_that_is_tried_again_sorts_for_itself() -> None:
    rows = [encode(BufferHeader(BufferKind.DATA, 1, 0, 0, "0/a", 0, sequence, 0), b"") for sequence in (3, 1, 2)]
    arrived = [[one.header.sequence for one in arriving(iter([_frame(rows)]), attempt)] for attempt in (0, 1)]
    assert arrived == [[3, 1, 2], [1, 2, 3]]


def _frame(rows: list[bytes]) -> pd.DataFrame:
    return pd.DataFrame({"buffer": pd.Series([None, *rows], dtype=object)})


def _gate(buffers: Iterable[Buffer]) -> InputGate:
    gate = InputGate(DESCRIPTORS, {}, MIN_TIMESTAMP_MS, False, 0)
    gate.receive(SortedBuffers(buffers))
    return gate


def _in_flight(inputs: int, watermarks: bool) -> int:
    """The most buffers that had been read and were not yet worked on, of inputs with a hundred each."""
    read = worked_on = most = 0

    def counted() -> Iterator[Buffer]:
        nonlocal read
        for one in sorted(buffers, key=lambda one: place(one.header)):
            read += 1
            yield one

    buffers = []
    for number in range(inputs):
        for sequence in range(100):
            told = [sequence + 1] if watermarks else []
            # large, so that the gate does not join records of several buffers
            one = buffer(f"0/{number}", sequence, ("x" * 20_000, sequence), *told)
            begins_ms = MIN_TIMESTAMP_MS + 1 if sequence and not watermarks else sequence or MIN_TIMESTAMP_MS
            buffers.append(Buffer(one.header._replace(begins_ms=begins_ms), one.payload))
    gate = _gate(counted())
    for step in gate.steps():
        worked_on += hasattr(step, "values")
        most = max(most, read - worked_on)
    assert worked_on == inputs * 100
    return most


@pytest.mark.parametrize("watermarks", [True, False])
@pytest.mark.parametrize("inputs", [1, 4, 20])
def test_a_gate_holds_few_buffers_of_each_input(inputs: int, watermarks: bool) -> None:
    assert _in_flight(inputs, watermarks) <= 2 * inputs + 1


kinds = st.lists(st.sampled_from([BufferKind.HEARTBEAT, BufferKind.STATE, BufferKind.TASK]), max_size=4, unique=True)


@settings(max_examples=examples(60), deadline=None)
@given(programs, kinds, st.randoms())
def test_a_task_works_alike_on_a_stream_that_is_sorted_and_on_a_heap_that_is_not(
    senders: Any, others: list[BufferKind], shuffle: random.Random
) -> None:
    """Also with calls without data, rows of a savepoint and a moved task among the buffers."""
    moved = TaskHeader("uid-a", 1, 0, watermark_ms=4, origins={"0/a": OriginProgress(0, 4)}).encode()
    payloads = {
        BufferKind.HEARTBEAT: b"",
        BufferKind.STATE: encode_columns("u", StateColumns("s", "value", [], [], [])),
        BufferKind.TASK: dumps((moved, None), FORMAT_VERSION),
    }
    sent = [data for to, data in _send(senders) if to == 0]
    sent += [encode(BufferHeader(kind, 1, 0, 0, "", 0, 0, 0), payloads[kind]) for kind in others]
    shuffle.shuffle(sent)
    runs = []
    for streamed in (True, False):
        STORY.clear()
        worker = Worker(vertex("a", inputs=DESCRIPTORS))
        header, body, rest = moved_in(map(decode, sorted(sent)))
        held = [one for one in map(decode, sent) if one.header.kind is not BufferKind.TASK]
        stored = StoredTask(header, lambda body=body: body)
        result, rows = worker.manager.run_task(1, 0, stored, rest if streamed else held, EpochStamp(0, 3))
        assert result is not None
        assert (result.header.origins.get("0/a", OriginProgress(0)).watermark_ms >= 4) or BufferKind.TASK not in others
        runs.append((take_story(), result.header.with_changes(token=b""), [row for row in rows if row[0] >= 0]))
    assert runs[0] == runs[1]
