"""Records and watermarks on their way into buffers, and out of them again through a gate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import CorruptStateError
from flinkish.runtime.exchange.buffer import (
    Buffer,
    BufferHeader,
    BufferKind,
    Elements,
    decode,
    decode_elements,
    encode,
    encode_elements,
    place,
)
from flinkish.runtime.exchange.partitioners import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    InputDescriptor,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from tests.support.profiles import examples
from tests.unit.runtime.exchange.senders import Wire, gate, story


def contents(buffers: list[Buffer]) -> list[Any]:
    """Values, ("wm", ms) and ("idle", flag) in their order."""
    result: list[Any] = []
    for one in buffers:
        values, _, positions, events, _ = decode_elements(one.payload)
        rest = list(zip(positions, events, strict=True))
        for position in range(len(values) + 1):
            result += [("idle" if isinstance(event, bool) else "wm", event) for at, event in rest if at == position]
            result += values[position : position + 1]
    return result


def times_and_records(buffers: list[Buffer]) -> list[Any]:
    """The contents without what says that the sender is active."""
    return [step for step in contents(buffers) if step != ("idle", False)]


def by_first(partitions: int) -> CustomPartitioner:
    return CustomPartitioner(lambda key, count: key % count, lambda value: value[0])


headers = st.builds(
    BufferHeader,
    st.sampled_from(BufferKind),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**16 - 1),
    st.text(st.sampled_from("\0\1a/é\uffff\U0001f600"), max_size=4) | st.text(max_size=40),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(-3, 3) | st.integers(MIN_TIMESTAMP_MS, MAX_WATERMARK_MS),
    st.booleans(),
)


@settings(max_examples=examples(50))
@given(headers, st.lists(st.one_of(st.integers(), st.text(), st.none()), max_size=5))
def test_what_is_encoded_is_decoded(header: BufferHeader, values: list[Any]) -> None:
    elements = Elements(values, [1] * len(values), [0, 0], [5, True], values[:1])
    decoded = decode(encode(header, encode_elements(*elements)))
    assert decoded.header == header
    assert decode_elements(decoded.payload) == elements


@settings(max_examples=examples(50))
@given(st.lists(headers, max_size=8))
def test_encoded_buffers_that_are_sorted_as_bytes_stand_in_the_order_of_their_places(several: list[Any]) -> None:
    as_bytes = [decode(data).header for data in sorted(encode(header, b"") for header in several)]
    assert list(map(place, as_bytes)) == sorted(map(place, several))


def test_a_buffer_of_another_version_is_refused() -> None:
    data = encode(BufferHeader(BufferKind.DATA, 1, 2, 0, "0/a", 0, 0, 0), b"")
    with pytest.raises(CorruptStateError, match="wire version 9.*version 4"):
        decode(b"\x09" + data[1:])


script = st.lists(
    st.one_of(
        st.lists(st.integers(0, 99), max_size=5).map(lambda values: ("records", values)),
        st.integers(0, 200).map(lambda ms: ("watermark", ms)),
        st.booleans().map(lambda idle: ("status", idle)),
        st.sampled_from(["a", "b"]).map(lambda name: ("origin", name)),
    ),
    max_size=30,
)


@settings(max_examples=examples(100))
@given(script, st.integers(1, 7), st.booleans())
def test_each_subtask_sees_its_records_and_all_watermarks_in_the_order_in_which_they_were_sent(
    events: list[tuple[str, Any]], max_records: int, timestamped: bool
) -> None:
    wire = Wire(by_first(3), 3, max_records)
    wire.writer.begin_origin("a")
    expected: dict[tuple[int, str], list[Any]] = {}
    highest: dict[str, int] = {}
    origin, serial = "a", 0
    for kind, value in events:
        if kind == "origin":
            origin = value
            wire.writer.begin_origin(origin)
        elif kind == "records":
            records = []
            for number in value:
                serial += 1
                records.append((number, serial))
                expected.setdefault((number % 3, origin), []).append((number, serial))
            wire.writer.collect(records, [number for number, _ in records] if timestamped else None)
        elif kind == "watermark":
            wire.writer.emit_watermark(value)
            if value > highest.get(origin, -1):
                highest[origin] = value
                for subtask in range(3):
                    expected.setdefault((subtask, origin), []).append(("wm", value))
        else:
            wire.writer.emit_status(value)
    wire.writer.end_epoch()
    for subtask in range(3):
        buffers = wire.take(subtask)
        for name in "ab":
            mine = [one for one in buffers if one.header.origin == name]
            sequences = [one.header.sequence for one in mine]
            assert sequences == sorted(set(sequences))
            told = [step for step in contents(mine) if step[0] != "idle"]
            assert _rising(told) == _last_of_runs(expected.get((subtask, name), []))
            if told and name in highest:
                assert [step for step in told if step[0] == "wm"][-1] == ("wm", highest[name])


def _rising(steps: list[Any]) -> list[Any]:
    """Without watermarks that say nothing new, and only the last of several in a row."""
    highest, result = -1, []
    for step in steps:
        if step[0] == "wm":
            if step[1] <= highest:
                continue
            highest = step[1]
        result.append(step)
    return _last_of_runs(result)


def _last_of_runs(steps: list[Any]) -> list[Any]:
    return [s for s, after in zip(steps, [*steps[1:], ("end",)]) if not (s[0] == "wm" and after[0] == "wm")]


def test_watermarks_stand_between_the_records_of_every_subtask() -> None:
    wire = Wire(by_first(2))
    wire.writer.begin_origin("0/a")
    wire.writer.collect([(0, "x"), (1, "y")], None)
    wire.writer.emit_watermark(5)
    wire.writer.collect([(0, "z")], None)
    wire.writer.end_epoch()
    assert times_and_records(wire.take(0)) == [(0, "x"), ("wm", 5), (0, "z"), ("wm", 5)]
    assert times_and_records(wire.take(1)) == [(1, "y"), ("wm", 5)]


def test_a_subtask_without_records_is_called_by_the_final_watermark() -> None:
    wire = Wire(GlobalPartitioner(), 3)
    wire.writer.begin_origin("0/a")
    wire.writer.collect(["x"], [1])
    wire.writer.emit_watermark(1)
    wire.writer.end_epoch()
    assert [times_and_records(wire.take(subtask)) for subtask in (1, 2)] == [[("wm", 1)]] * 2


@pytest.mark.parametrize(("always", "called"), [(True, 3), (False, 0)])
def test_without_any_watermark_subtasks_are_called_only_if_they_must_be(always: bool, called: int) -> None:
    wire = Wire(RebalancePartitioner(), 3, always_call=always)
    wire.writer.begin_origin("0/a")
    wire.writer.end_epoch()
    assert len(wire.sent) == called


def test_each_origin_has_watermarks_of_its_own() -> None:
    wire = Wire(GlobalPartitioner(), 1)
    for origin, watermark in (("0/a", 9), ("0/b", 4), ("0/a", 12)):
        wire.writer.begin_origin(origin)
        wire.writer.collect([origin], None)
        wire.writer.emit_watermark(watermark)
    wire.writer.end_epoch()
    one = gate(buffers=wire.take(0))
    assert sorted(step for step in story(one) if isinstance(step, str)) == ["0/a", "0/a", "0/b"]
    assert {name: p.watermark_ms for name, p in one.progress().items()} == {"0/a": 12, "0/b": 4}


def test_a_pointwise_edge_sends_nothing_at_all_to_other_subtasks() -> None:
    wire = Wire(ForwardPartitioner(), 3, subtask=1, parallelism=3)
    wire.writer.begin_origin("0/1")
    wire.writer.collect(["x"], None)
    wire.writer.emit_watermark(3)
    wire.writer.end_epoch()
    assert set(wire.sent) == {1}


def test_activity_is_told_after_an_epoch_that_ended_idle() -> None:
    """The writer does not know that its last word, in the epoch before, was "idle"."""
    wire = Wire(GlobalPartitioner(), 2)
    for idle in (True, False):
        wire.writer.begin_origin("0/a")
        wire.writer.emit_status(idle)
        wire.writer.end_epoch()
        assert contents(wire.take(1))[-1] == ("idle", idle)


def test_a_split_whose_records_go_elsewhere_is_told_to_be_active() -> None:
    wire = Wire(GlobalPartitioner(), 2, always_call=True)
    wire.writer.begin_origin("0/a")
    wire.writer.collect(["x"], None)
    wire.writer.end_epoch()
    assert contents(wire.take(1)) == [("idle", False)]
    wire.writer.begin_origin("0/a")
    wire.writer.mark_active()  # every record was filtered out
    wire.writer.end_epoch()
    assert contents(wire.take(1)) == [("idle", False)]


def test_a_watermark_makes_an_idle_stream_active() -> None:
    wire = Wire(GlobalPartitioner(), 1)
    wire.writer.begin_origin("0/a")
    wire.writer.emit_watermark(5)
    wire.writer.emit_status(True)
    wire.writer.emit_watermark(6)
    wire.writer.end_epoch()
    one = gate(buffers=wire.take(0))
    story(one)
    assert (one.valve.combined_ms, one.idle) == (6, False)


def test_records_without_and_with_timestamps_of_one_epoch_keep_what_they_have() -> None:
    wire = Wire(GlobalPartitioner(), 1)
    wire.writer.begin_origin("0/a")
    wire.writer.collect(["x"], None)
    wire.writer.collect(["y"], [5])
    wire.writer.collect(["z"], None)
    wire.writer.end_epoch()
    stamps = [decode_elements(one.payload)[:2] for one in wire.take(0)]
    assert stamps == [(["x"], None), (["y", "z"], [5, MIN_TIMESTAMP_MS])]


def test_an_epoch_is_not_written_differently_because_of_the_one_before() -> None:
    wire = Wire(GlobalPartitioner(), 1)
    sent = []
    for timestamps in ([5], None, None):
        wire.writer.begin_origin("0/a")
        wire.writer.collect(["x"], timestamps)
        wire.writer.end_epoch()
        sent.append([(one.header, one.payload) for one in wire.take(0)])
    assert sent[1] == sent[2]
    assert sent[0] != sent[1]


def test_what_a_failed_attempt_has_written_is_not_sent() -> None:
    wire = Wire(BroadcastPartitioner(), 2)
    wire.writer.begin_origin("0/a")
    wire.writer.collect(["x"], None)
    wire.writer.emit_watermark(9)
    wire.writer.discard()
    wire.writer.begin_origin("0/a")
    wire.writer.collect(["y"], None)
    wire.writer.end_epoch()
    assert contents(wire.take(0)) == ["y"]


def test_the_second_edge_between_two_vertices_names_its_origins() -> None:
    wire = Wire(GlobalPartitioner(), 1, edge=1)
    wire.writer.begin_origin("0/a")
    wire.writer.emit_watermark(5)
    wire.writer.end_epoch()
    one = gate(InputDescriptor(0, 0, edge=1), buffers=wire.take(0))
    assert story(one) == [("wm", 5)]
    assert set(one.progress()) == {"0~1/a"}


def test_records_are_counted_once_even_if_broadcast() -> None:
    wire = Wire(BroadcastPartitioner(), 3)
    wire.writer.begin_origin("0/a")
    wire.writer.collect(["x", "y"], None)
    assert wire.writer.take_count() == 2
    assert wire.writer.take_count() == 0


@pytest.mark.parametrize("partitioner", [RebalancePartitioner(), RescalePartitioner(), ShufflePartitioner()])
def test_an_epoch_that_is_run_again_sends_every_record_to_the_same_place(partitioner: Any) -> None:
    """Here, after other epochs, or in a worker that has seen none of them; and splits read in another order."""
    old = Wire(partitioner, 3)
    runs = []
    for wire, epoch, splits in ((old, 1, "ab"), (old, 2, "ab"), (old, 2, "ba"), (Wire(partitioner, 3), 2, "ba")):
        wire.writer.begin_epoch(epoch)
        for split in splits:
            wire.writer.begin_origin(f"0/{split}")
            wire.writer.collect([f"{split}{i}" for i in range(4)], None)
        wire.writer.end_epoch()
        runs.append([sorted(v for one in wire.take(c) for v in contents([one])) for c in range(3)])
    assert runs[1] == runs[2] == runs[3]
    assert runs[0] != runs[1], "the next epoch goes on with other subtasks"


@pytest.mark.parametrize("batch", [1, 7, 40])
def test_large_records_are_sent_before_as_many_wait_as_small_ones_may(batch: int) -> None:
    wire = Wire(by_first(2), max_records=100, max_bytes=10_000)
    values = [(n % 2, n, f"{n:04}" * 250) for n in range(40)]
    for _ in range(2):
        wire.writer.begin_origin("s")
        for begin in range(0, len(values), batch):
            wire.writer.collect(values[begin : begin + batch], None)
        wire.writer.end_epoch()
        sent = [wire.take(subtask) for subtask in range(2)]
        assert [times_and_records(buffers) for buffers in sent] == [values[0::2], values[1::2]]
        assert max(len(one.payload) for buffers in sent for one in buffers) < 10_000
        assert sum(map(len, sent)) < 20, "and not each of them alone"


def test_an_epoch_that_is_run_again_is_cut_into_the_same_buffers() -> None:
    def cut(wire: Wire, sizes: list[int]) -> list[int]:
        wire.writer.begin_origin("s")
        for size in sizes:
            wire.writer.collect([(0, "x" * size)] * 5, None)
        wire.writer.end_epoch()
        return [one.header.records for one in wire.take(0)]

    used, fresh = (Wire(by_first(1), subtasks=1, max_records=100, max_bytes=5_000) for _ in range(2))
    cut(used, [1, 1, 3_000])
    assert cut(used, [10, 900, 20]) == cut(fresh, [10, 900, 20])
