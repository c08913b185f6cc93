"""What many subtasks make of little data: its structure, on the simulation that `benchmarks.wide_jobs` measures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.wide_jobs import Simulation
from flinkish.runtime.exchange.buffer import (
    CACHED,
    LARGE,
    LARGE_BYTES,
    LOOKED_UP,
    Joined,
    JoinedBatches,
    LargeRecords,
    Records,
    StatusStep,
    Stretch,
    WatermarkStep,
)
from flinkish.runtime.exchange.partitioners import InputDescriptor
from tests.unit.runtime.exchange.senders import buffer, gate


@pytest.mark.parametrize("subtasks", [4, 40])
def test_a_subtask_sends_a_buffer_to_each_receiver_however_many_watermarks_there_were(
    subtasks: int, tmp_path: Path
) -> None:
    simulation = Simulation(subtasks, 4 * subtasks, str(tmp_path), records=400)
    simulation.run_epoch()
    epoch = simulation.run_epoch()
    simulation.close()
    assert epoch.buffers_per_sender == subtasks
    assert epoch.buffers_sent_on == subtasks


def test_the_header_of_a_subtask_grows_by_some_bytes_for_each_sender(tmp_path: Path) -> None:
    sizes = {}
    for subtasks in (10, 40):
        simulation = Simulation(subtasks, 4 * subtasks, str(tmp_path / str(subtasks)), records=100)
        simulation.run_epoch()
        sizes[subtasks] = simulation.run_epoch().header_bytes
        simulation.close()
    assert sizes[40] - sizes[10] < 30 * 40


def test_records_between_two_rises_of_the_combined_watermark_are_one_batch_whichever_inputs_they_come_from() -> None:
    buffers = [buffer(f"0/{number}", 0, ("a", 1), 10, ("b", 11), 20, ("c", 21)) for number in range(50)]
    batches = [step.values for step in gate(buffers=buffers).steps() if isinstance(step, Records)]
    assert batches == [["a"] * 50, ["b"] * 50, ["c"] * 50]


def test_large_records_are_not_joined() -> None:
    large = "x" * 20_000
    buffers = [buffer(f"0/{number}", 0, (large, 1)) for number in range(5)]
    batches = [step.values for step in gate(buffers=buffers).steps() if isinstance(step, Records)]
    assert batches == [[large]] * 5


def test_batches_for_which_state_is_looked_up_are_larger() -> None:
    numbers = [(number, 1) for number in range(2_500)]
    buffers = [buffer(f"0/{sender}", 0, *numbers) for sender in range(4)]
    for joined, sizes in ((CACHED, [2_500] * 4), (LOOKED_UP, [5_000, 5_000])):
        steps = list(gate(buffers=buffers, joined=joined).steps())
        assert [len(step.values) for step in steps if isinstance(step, Records)] == sizes


def test_records_of_two_inputs_of_an_operator_are_not_joined() -> None:
    buffers = [buffer("0/a", 0, ("a", 1)), buffer("1/a", 0, ("b", 1), input_index=1)]
    batches = [step.values for step in gate(buffers=buffers).steps() if isinstance(step, Records)]
    assert batches == [["a"], ["b"]]


def _parts(steps: Iterable[Any]) -> list[Any]:
    """Stretches as lists; values of records, watermarks, and statuses as "idle" and "active"."""
    parts: list[Any] = []
    for step in steps:
        if isinstance(step, Stretch):
            parts.append(_parts(step.steps))
        elif isinstance(step, Records):
            parts.append("".join(step.values))
        elif isinstance(step, WatermarkStep):
            parts.append(step.watermark_ms)
        else:
            parts.append("idle" if isinstance(step, StatusStep) and step.idle else "active")
    return parts


def test_a_stretch_has_watermarks_inside_and_ends_when_it_is_full_or_a_status_changes() -> None:
    sent = [("a", 1), 10, ("b", 11), ("c", 12), 20, 30, ("d", 31), 40, True, ("e", 41), ("f", 42), 50]
    steps = _parts(gate(buffers=[buffer("0/a", 0, *sent)]).steps())
    assert steps == ["a", 10, "bc", 20, 30, "d", 40, "idle", "active", "ef", 50]
    for most, expected in (
        (100, [["a", 10, "bc", 20, 30, "d", 40], "idle", "active", ["ef", 50]]),
        (4, [["a", 10, "bc", 20], [30, "d", 40], "idle", "active", ["ef", 50]]),
        (1, [["a", 10], ["bc", 20], 30, ["d", 40], "idle", "active", ["ef", 50]]),
    ):
        joined = Joined(most, 16 * 1024, stretches=True)
        assert _parts(gate(buffers=[buffer("0/a", 0, *sent)], joined=joined).steps()) == expected


def test_a_stretch_has_the_records_of_both_inputs_of_an_operator_but_no_large_ones() -> None:
    large = "x" * 20_000
    buffers = [
        buffer("0/a", 0, ("a", 1), 10, ("b", 11), 30),
        buffer("0/a", 1, (large, 31), 40),
        buffer("1/a", 0, ("A", 1), 20, ("B", 21), 30, ("C", 31), 40, input_index=1),
    ]
    inputs = InputDescriptor(0, 0), InputDescriptor(1, 1)
    joined = CACHED._replace(stretches=True)
    assert _parts(gate(*inputs, buffers=buffers, joined=joined).steps()) == [
        ["a", "A", 10, "b", 20, "B", 30],
        large,
        ["C", 40],
    ]


@pytest.mark.parametrize("stretches", [False, True])
def test_large_records_are_a_step_of_their_own_that_says_so(stretches: bool) -> None:
    joining = JoinedBatches(Joined(1_000, 16 * 1024, stretches))
    small, large = Records(0, ["s"], [1]), Records(0, ["l" * 2 * LARGE_BYTES], [2])
    assert joining.begin(1, small) == []
    before, step = joining.begin(LARGE, large)
    assert (before, step) == (small, large)
    assert isinstance(step, LargeRecords) and not isinstance(before, LargeRecords)
