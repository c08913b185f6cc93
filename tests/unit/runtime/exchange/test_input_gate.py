"""The order in which a channel consumes an epoch, and what it remembers of its inputs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import Buffer, OriginProgress
from flinkish.runtime.exchange.gate import by_edge, end_of_subtask, vertex_of, whole_source
from flinkish.runtime.exchange.partitioners import InputDescriptor
from tests.support.profiles import examples
from tests.unit.runtime.exchange.senders import buffer, gate, story

MAX = ("wm", MAX_WATERMARK_MS)


def test_the_input_with_the_lowest_watermark_is_read_first() -> None:
    buffers = [
        buffer("0/a", 0, ("a1", 1), 10, ("a2", 11), 20, ("a3", 21)),
        buffer("0/b", 0, ("b1", 1), 5, ("b2", 6), 15, ("b3", 16)),
    ]
    assert story(gate(buffers=buffers)) == ["a1", "b1", ("wm", 5), "b2", ("wm", 10), "a2", ("wm", 15), "b3", "a3"]


def test_ties_go_by_the_name_of_the_origin_then_by_the_part() -> None:
    buffers = [
        buffer("0/b", 0, ("b", 1), 5),
        buffer("0/a", 0, ("a1", 1), 5, part=1),
        buffer("0/a", 0, ("a0", 1), 5),
    ]
    assert story(gate(buffers=buffers)) == ["a0", "a1", "b", ("wm", 5)]


def test_buffers_of_one_input_are_read_by_sequence() -> None:
    buffers = [buffer("0/a", 1, ("second", 2)), buffer("0/a", 0, ("first", 1), 1)]
    assert story(gate(buffers=buffers)) == ["first", ("wm", 1), "second"]


elements = st.lists(st.one_of(st.tuples(st.integers(0, 9), st.integers(0, 50)), st.integers(0, 50), st.booleans()))
inputs = st.lists(
    st.tuples(st.sampled_from(["0/a", "0/b", "1/0", "1/1", "0~1/a"]), st.integers(0, 1), elements), max_size=8
)


def _buffers(described: list[tuple[str, int, list[Any]]]) -> list[Buffer]:
    sequences: dict[tuple[str, int], int] = {}
    buffers = []
    for origin, part, content in described:
        sequence = sequences[origin, part] = sequences.get((origin, part), -1) + 1
        tagged = [((origin, part, e), e[1]) if isinstance(e, tuple) else e for e in content]
        buffers.append(buffer(origin, sequence, *tagged, part=part))
    return buffers


descriptors = (InputDescriptor(0, 0), InputDescriptor(0, 0, edge=1), InputDescriptor(1, 0, from_source=False))


@settings(max_examples=examples(75))
@given(st.lists(inputs, min_size=1, max_size=3), st.randoms())
def test_the_steps_and_what_is_remembered_do_not_depend_on_the_order_of_arrival(
    epochs: list[Any], shuffle: random.Random
) -> None:
    runs = []
    for arrive_shuffled in (False, True):
        known: dict[str, OriginProgress] = {}
        watermark_ms, idle, told = MIN_TIMESTAMP_MS, False, []
        for epoch, described in enumerate(epochs):
            buffers = _buffers(described)
            if arrive_shuffled:
                shuffle.shuffle(buffers)
            one = gate(*descriptors, known=known, watermark_ms=watermark_ms, idle=idle, now_ms=epoch, buffers=buffers)
            told.append(story(one))
            known, watermark_ms, idle = one.progress(), one.valve.combined_ms, one.idle
            told.append(sorted(known.items()))
        runs.append(told)
    assert runs[0] == runs[1]


@settings(max_examples=examples(75))
@given(st.lists(inputs, min_size=1, max_size=4))
def test_no_record_is_lost_order_is_kept_per_input_and_no_watermark_goes_back(epochs: list[Any]) -> None:
    known: dict[str, OriginProgress] = {}
    watermark_ms, idle = MIN_TIMESTAMP_MS, False
    for epoch, described in enumerate(epochs):
        buffers = _buffers(described)
        one = gate(*descriptors, known=known, watermark_ms=watermark_ms, idle=idle, now_ms=epoch, buffers=buffers)
        told = story(one)
        for name in {(origin, part) for origin, part, _ in described}:
            sent = [e for o, p, content in described if (o, p) == name for e in content if isinstance(e, tuple)]
            assert [s[2] for s in told if s[0] == name[0] and s[1] == name[1]] == sent
        for step in told:
            if step[0] == "wm":
                assert step[1] > watermark_ms
                watermark_ms = step[1]
            elif step[0] == "idle":
                assert step[1] is not idle
                idle = step[1]
        assert (watermark_ms, idle) == (one.valve.combined_ms, one.idle)
        after = one.progress()
        for origin, progress in known.items():
            if not origin.endswith("/?"):
                assert after[origin].watermark_ms >= progress.watermark_ms
        known = after


def test_an_origin_that_is_silent_in_this_epoch_still_holds_back() -> None:
    known = {"0/a": OriginProgress(0, 10), "0/b": OriginProgress(0, 5)}
    one = gate(known=known, watermark_ms=5, buffers=[buffer("0/a", 0, ("x", 12), 30)])
    assert story(one) == ["x"]
    assert one.progress()["0/a"].watermark_ms == 30
    assert one.progress()["0/b"].watermark_ms == 5


def test_a_source_that_resumes_behind_one_that_it_is_united_with_holds_nothing_back_until_it_has_caught_up() -> None:
    inputs = InputDescriptor(0, 0), InputDescriptor(1, 0)
    known = {"0/a": OriginProgress(0, 100), "1/a": OriginProgress(0, 10, idle=True)}
    buffers = [buffer("1/a", 0, ("x", 20), 19), buffer("0/a", 0, 200)]
    groups_ms: dict[Any, int] = {("0",): 100, ("1",): 10}
    one = gate(*inputs, known=known, watermark_ms=100, groups_ms=groups_ms, unaligned=[("1",)], buffers=buffers)
    assert story(one) == ["x", ("wm", 200)]
    buffers = [buffer("1/a", 0, 250), buffer("0/a", 0, 300)]
    groups_ms = one.group_watermarks_ms
    two = gate(*inputs, known=one.progress(), watermark_ms=200, groups_ms=groups_ms, buffers=buffers)
    assert story(two) == [("wm", 250)]


def test_watermarks_of_a_source_that_starts_afresh_below_what_is_known_are_nothing_new() -> None:
    one = gate(known={"0/a": OriginProgress(0, 10)}, watermark_ms=10, buffers=[buffer("0/a", 0, 4, ("x", 5), 8)])
    assert story(one) == ["x"]
    assert one.progress()["0/a"].watermark_ms == 10


def test_a_vertex_that_has_never_sent_anything_holds_back() -> None:
    inputs = (InputDescriptor(0, 0), InputDescriptor(1, 1))
    first = gate(*inputs, buffers=[buffer("0/a", 0, ("x", 1), 9)])
    assert story(first) == ["x"]
    second = gate(*inputs, known=first.progress(), buffers=[buffer("1/0", 0, 4)])
    assert story(second) == [("wm", 4)]
    assert "1/?" not in second.progress()


def test_a_declared_split_holds_back_until_it_is_heard_of() -> None:
    described = InputDescriptor(0, 0, None, ("0/a", "0/b"))
    first = gate(described, buffers=[buffer("0/a", 0, ("x", 1), 9)])
    assert story(first) == ["x"]
    second = gate(described, known=first.progress(), buffers=[buffer("0/b", 0, 20)])
    assert story(second) == [("wm", 9)]


@pytest.mark.parametrize("declared", [("0/a", "0/b"), ()])
def test_after_the_idle_timeout_an_input_that_never_sent_does_not_hold_back(declared: tuple[str, ...]) -> None:
    described = (InputDescriptor(0, 0, 100, declared), InputDescriptor(1, 1))
    first = gate(*described, now_ms=50, buffers=[buffer("1/0", 0, 9)])
    assert story(first) == []
    second = gate(*described, known=first.progress(), now_ms=149, buffers=[])
    assert story(second) == []
    third = gate(*described, known=second.progress(), now_ms=150, buffers=[])
    assert story(third) == [("wm", 9)]


def test_a_split_without_records_for_the_idle_timeout_does_not_hold_back_until_it_has_some() -> None:
    described = InputDescriptor(0, 0, 100, ())
    known = {"0/a": OriginProgress(0, 50, False, 900), "0/b": OriginProgress(0, 5, False, 900)}
    idle = gate(described, known=known, watermark_ms=5, now_ms=1000, buffers=[buffer("0/a", 0, ("x", 60), 59)])
    assert story(idle) == [("wm", 50), "x", ("wm", 59)]
    assert idle.progress()["0/b"].idle
    active = gate(
        described,
        known=idle.progress(),
        watermark_ms=59,
        now_ms=1010,
        buffers=[buffer("0/a", 0, 80), buffer("0/b", 0, ("y", 70), 69)],
    )
    assert story(active) == ["y", ("wm", 69)]
    assert not active.progress()["0/b"].idle


def test_a_split_whose_records_go_elsewhere_is_active() -> None:
    """A receiver that gets only its watermarks must not take it for idle."""
    described = InputDescriptor(0, 0, 100, ())
    known = {"0/a": OriginProgress(0, 50, False, 0), "0/b": OriginProgress(0, 5, False, 0)}
    epoch = [buffer("0/a", 0, 80), buffer("0/b", 0, 60, False)]
    one = gate(described, known=known, watermark_ms=5, now_ms=1000, buffers=epoch)
    assert story(one) == [("wm", 50), ("wm", 60)]
    assert {p.last_active_ms for p in one.progress().values()} == {1000}


def test_all_inputs_idle_is_told_after_the_flush_and_activity_before_the_next_watermark() -> None:
    known = {"0/a": OriginProgress(0, 5), "0/b": OriginProgress(0, 9)}
    one = gate(known=known, watermark_ms=5, buffers=[buffer("0/a", 0, True), buffer("0/b", 0, True)])
    assert story(one) == [("wm", 9), ("idle", True)]
    two = gate(known=one.progress(), watermark_ms=9, idle=True, buffers=[buffer("0/a", 0, 20)])
    assert story(two) == [("idle", False), ("wm", 20)]


def test_an_idle_channel_stays_idle_when_it_is_called_without_data() -> None:
    one = gate(known={"0/a": OriginProgress(0, 5, True)}, watermark_ms=5, idle=True, buffers=[buffer("0/a", 0)])
    assert story(one) == []
    assert one.idle
    assert one.progress()["0/a"].idle


def test_records_of_an_idle_input_make_the_channel_active() -> None:
    one = gate(
        InputDescriptor(0, 0, from_source=False),
        known={"0/1": OriginProgress(0, 5, True)},
        watermark_ms=5,
        idle=True,
        buffers=[buffer("0/1", 0, ("x", 7))],
    )
    assert story(one) == [("idle", False), "x"]


def test_the_end_of_a_source_is_the_end_of_all_its_splits_known_or_not() -> None:
    described = InputDescriptor(0, 0, None, ("0/a", "0/b"))
    end = [buffer(whole_source(0), 0, MAX_WATERMARK_MS)]
    one = gate(described, known={"0/a": OriginProgress(0, 5)}, watermark_ms=5, buffers=[buffer("0/a", 0, 9), *end])
    assert story(one) == [MAX]
    other = gate(described, InputDescriptor(1, 0), buffers=end)
    assert story(other) == []
    later = gate(described, InputDescriptor(1, 0), known=other.progress(), buffers=[buffer("1/0", 0, 50)])
    assert story(later) == [("wm", 50)]


ENDS = tuple(end_of_subtask(0, subtask) for subtask in range(2))


@pytest.mark.parametrize(
    ("known", "idle_timeout_ms", "declared", "steps"),
    [
        # subtask, what its origins send: the end comes with the last end, though all that is known has ended before
        ({}, None, (), [("a", []), (ENDS[0], []), ("b", []), (ENDS[1], [MAX])]),
        ({}, None, ("0/a", "0/b"), [("a", []), (ENDS[0], []), ("b", []), (ENDS[1], [MAX])]),
        ({}, None, (), [(ENDS[0], []), ("b", []), (ENDS[1], [MAX])]),
        ({"0/?": OriginProgress(0)}, None, (), [(ENDS[0], []), (ENDS[1], [MAX])]),
        # those that have been idle for so long hold back the end only
        ({}, 10, (), [("a", []), (ENDS[0], [("idle", True)]), (ENDS[1], [("idle", False), MAX])]),
        # of a version that has not told ends: all that is known has ended
        ({"0/b": OriginProgress(0, MAX_WATERMARK_MS)}, None, (), [("a", [MAX])]),
    ],
)
def test_the_end_waits_for_all_awaited_origins(
    known: dict[str, OriginProgress], idle_timeout_ms: int | None, declared: tuple[str, ...], steps: list[Any]
) -> None:
    described = InputDescriptor(0, 0, idle_timeout_ms, declared, awaited_origins=ENDS)
    watermark_ms, idle = MIN_TIMESTAMP_MS, False
    for epoch, (origin, expected) in enumerate(steps):
        sent = buffer(origin if "/" in origin else f"0/{origin}", 0, MAX_WATERMARK_MS)
        one = gate(described, known=known, watermark_ms=watermark_ms, idle=idle, now_ms=10 * epoch, buffers=[sent])
        assert story(one) == expected, origin
        known, watermark_ms, idle = one.progress(), one.valve.combined_ms, one.idle


def test_what_is_awaited_holds_no_watermark_back_once_something_is_known() -> None:
    described = InputDescriptor(0, 0, awaited_origins=ENDS), InputDescriptor(1, 0)
    first = gate(*described, buffers=[buffer("1/a", 0, 7)])
    assert story(first) == []
    second = gate(
        *described, known=first.progress(), groups_ms=first.group_watermarks_ms, buffers=[buffer("0/a", 0, 4)]
    )
    assert story(second) == [("wm", 4)]
    groups_ms = second.group_watermarks_ms
    third = gate(
        *described, known=second.progress(), watermark_ms=4, groups_ms=groups_ms, buffers=[buffer("0/a", 0, 9)]
    )
    assert story(third) == [("wm", 7)]


def test_two_edges_between_two_vertices_are_two_inputs() -> None:
    """``s.union(s.filter(f))``: their buffers are numbered each by its own, and one may lag behind the other."""
    assert by_edge("3/a~1", 0) == "3/a~1"
    assert vertex_of(by_edge("3/a~1", 12)) == 3
    assert by_edge(whole_source(3), 2) == whole_source(3)
    buffers = [
        buffer("0/a", 0, ("main", 1), 10),
        buffer(by_edge("0/a", 1), 0, ("other", 1), 4),
    ]
    one = gate(InputDescriptor(0, 0), InputDescriptor(0, 1, edge=1), buffers=buffers)
    assert story(one) == ["main", "other", ("wm", 4)]


def test_several_readers_of_a_split_leave_the_lowest_of_their_watermarks() -> None:
    one = gate(buffers=[buffer("0/a", 0, 10, part=0), buffer("0/a", 0, 30, part=3)])
    assert story(one) == [("wm", 10)]
    assert one.progress()["0/a"].watermark_ms == 10


def test_an_ended_split_never_becomes_idle_and_an_idle_one_does_not_end_the_input() -> None:
    described = InputDescriptor(0, 0, 100, ())
    known = {"0/a": OriginProgress(0, MAX_WATERMARK_MS), "0/b": OriginProgress(0, 5)}
    one = gate(described, known=known, watermark_ms=5, now_ms=10_000)
    assert story(one) == [("idle", True)]
    assert one.valve.combined_ms == 5


@pytest.mark.parametrize("name", ["*", "?"])
def test_a_split_whose_path_ends_like_a_whole_source_is_a_split(name: str) -> None:
    split = f"0//data/{name}"
    buffers = [buffer(split, 0, ("a", 1), 7), buffer("0//data/b", 0, ("b", 1), 9)]
    one = gate(buffers=buffers)
    assert story(one) == ["a", "b", ("wm", 7)]
    again = gate(known=one.progress(), watermark_ms=7, buffers=[buffer("0//data/b", 0, ("c", 11), 12)])
    assert story(again) == ["c"]
    assert again.progress()[split].watermark_ms == 7
