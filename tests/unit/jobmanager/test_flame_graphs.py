"""Stacks of a job's tasks are sampled when somebody asks for a flame graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.jobmanager.client import JobManager, RunClient
from flinkish.jobmanager.flame_graphs import NO_SAMPLES, FlameGraphs
from flinkish.runtime.task.stack_samples import (
    SampleBoard,
    SampledStack,
    SampleFiles,
    SampleRequest,
    StackSamples,
)
from tests.support.processes import wait_until
from tests.support.programs import new_environment


def spin(number: int) -> int:
    until_s = time.monotonic() + 0.02
    while time.monotonic() < until_s:
        pass
    return number


def doze(number: int) -> int:
    time.sleep(0.02)
    return number


def started(function: Callable[[int], int], enabled: bool = True) -> RunClient:
    env = new_environment(
        1,
        rest__flamegraph__enabled=str(enabled).lower(),
        rest__flamegraph__num_samples="20",
        rest__flamegraph__delay_between_samples="10 ms",
        rest__flamegraph__refresh_interval="2 s",
    )
    source = DataGeneratorSource(lambda number: number, 10**6, records_per_epoch=20)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(function, Types.LONG()).name("slow").print()
    client = env.execute_async("sampled")
    assert isinstance(client, RunClient)
    return client


@pytest.mark.parametrize(("function", "on_cpu"), [(spin, True), (doze, False)], ids=["on-cpu", "off-cpu"])
def test_stacks_name_the_function_that_takes_the_time(function: Callable[[int], int], on_cpu: bool) -> None:
    client, name = started(function), f"{function.__module__}.{function.__qualname__}:"

    def seen() -> bool:
        """Whether most of the stacks are in the function, and were on the CPU or not. On a busy machine it may take
        several samplings, since a thread has to wait for the CPU, too."""
        stacks = (client.stack_samples() or NO_SAMPLES).stacks
        inside = [one for one in stacks if any(frame.startswith(name) for frame in one.frames)]
        as_expected = sum(one.count for one in inside if one.on_cpu is on_cpu)
        return 2 * as_expected > sum(one.count for one in stacks) >= 10

    try:
        assert client.stack_samples() == NO_SAMPLES, "it takes a moment"
        wait_until(seen, 60, f"stacks of {name}")
        assert {one.vertex for one in (client.stack_samples() or NO_SAMPLES).stacks} == {0}
    finally:
        client.cancel().result(60)


def test_without_the_option_nothing_is_sampled() -> None:
    client = started(doze, enabled=False)
    try:
        assert client.stack_samples() is None
    finally:
        client.cancel().result(60)
    assert JobManager.get().stack_samples(client.get_job_id()) is None, "it has ended"


def samples(request: str, subtask: int = 0) -> StackSamples:
    return StackSamples(request, 5, (SampledStack(1, subtask, True, 3, ("a:1", "b:2")),))


def test_stacks_are_asked_for_once_in_an_interval_and_shown_until_there_are_newer_ones() -> None:
    now_s = [0.0]
    board = SampleBoard()
    graphs = FlameGraphs(Configuration(), lambda: now_s[0])
    assert graphs.look(board) == NO_SAMPLES
    first = board.request()
    assert first is not None and (first.samples, first.delay_ms, first.depth) == (100, 50, 100)
    board.publish(samples("of another request"))
    assert graphs.look(board) == NO_SAMPLES
    board.publish(samples(first.id))
    now_s[0] = 59.0
    assert graphs.look(board).stacks == samples("").stacks and board.request() is first
    now_s[0] = 61.0
    graphs.look(board)
    second = board.request()
    assert second is not None and second.id != first.id
    assert graphs.look(board).stacks == samples("").stacks


def test_files_carry_request_and_samples_between_processes_while_the_attempt_lasts(tmp_path: Path) -> None:
    def board() -> SampleFiles:
        return SampleFiles(str(tmp_path))

    request = SampleRequest("ab" * 16, 10, 20, 1_000, 30)
    driver, workers = board(), [board(), board()]
    driver.ask(request)
    workers[0].publish(samples("x"))
    assert list(tmp_path.iterdir()) == [], "the attempt has ended, or not begun"
    (tmp_path / "progress").mkdir()
    assert workers[0].request() is None
    driver.ask(request)
    assert [worker.request() for worker in workers] == [request, request]
    for number, worker in enumerate(workers):
        worker.publish(samples(request.id, 7))
        worker.publish(samples(request.id, number))
    (tmp_path / "progress" / f"{'0' * 32}.stacks.json").write_text("no samples")
    assert sorted(one.stacks[0].subtask for one in driver.samples()) == [0, 1]
    graphs = FlameGraphs(Configuration(), lambda: 0.0)
    found: list[Any] = [graphs.look(driver)]
    asked = driver.request()
    assert asked is not None
    for number, worker in enumerate(workers):
        worker.publish(samples(asked.id, number))
    found.append(graphs.look(driver))
    assert [sorted(stack.subtask for stack in one.stacks) for one in found] == [[], [0, 1]]
