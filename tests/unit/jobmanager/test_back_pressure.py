"""How long subtasks were held back in an epoch, and what the execution graph makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.connectors.generated import DataGeneratorSource
from flinkish.core.source import SplitSource
from flinkish.jobmanager.back_pressure import backpressured_ms, sources_before
from flinkish.jobmanager.execution_graph import ExecutionGraph
from flinkish.jobmanager.job.description import RatesDescription
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.exchange.partitioners import InputDescriptor
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.phases import ManualClock

FACTORY: Any = None
ENDLESS: SplitSource = DataGeneratorSource(lambda number: number)


def vertex(number: int, level: int, *inputs: int, source: SplitSource | None = None) -> VertexDescriptor:
    operators = (OperatorDescriptor(f"uid-{number}", f"operator {number}", FACTORY),)
    return VertexDescriptor(
        number, f"v{number}", level, operators, 1, 8, tuple(InputDescriptor(one, 0) for one in inputs), source=source
    )


#: two sources, one of which goes through two levels; the other one ends in the second of them
SOURCE, SMALL, MIDDLE, SINK = (
    vertex(0, 0, source=ENDLESS),
    vertex(1, 0, source=ENDLESS),
    vertex(2, 1, 0),
    vertex(3, 2, 2, 1),
)
JOB = JobDescriptor("ab" * 16, "job", (SOURCE, SMALL, MIDDLE, SINK), ())
BOTH = frozenset({0, 2})


def task(number: int, work_ms: float, worker: str = "a", **more: Any) -> TaskReport:
    return TaskReport(number, 0, records_in=1, work_ms=work_ms, worker=worker, **more)


def epoch(*tasks: TaskReport, ms: int = 1_000) -> EpochReport:
    return EpochReport(1, 0, 0, 0, None, False, duration_ms=ms, tasks=tasks)


def test_a_vertex_is_held_back_by_those_behind_it_and_has_the_sources_before_it() -> None:
    uids = {number: sorted(found) for number, found in sources_before(JOB).items()}
    assert uids == {0: ["uid-0"], 1: ["uid-1"], 2: ["uid-0"]}, "nothing is behind the last vertex"


TASKS = (task(0, 100), task(2, 200), task(3, 400))


@pytest.mark.parametrize(
    ("report", "held", "gap_ms", "held_before", "expected"),
    [
        # what remains after its share, of the epoch and before it
        (epoch(*TASKS), BOTH, 0, set(), {0: 900, 2: 700, 3: 0}),
        (epoch(*TASKS), BOTH, 500, set(), {0: 900, 2: 700, 3: 0}),
        (epoch(*TASKS), BOTH, 500, BOTH, {0: 1_400, 2: 1_200, 3: 0}),
        (epoch(*TASKS), set(), 500, BOTH, {0: 500, 2: 500, 3: 0}),
        # nothing is left: the rest is idleness
        (epoch(*TASKS), set(), 500, set(), {0: 0, 2: 0, 3: 0}),
        # the JVM has not taken the output, and has not brought the input: work is what remains
        (epoch(task(0, 100, output_wait_ms=60)), set(), 0, set(), {0: 60}),
        (epoch(task(2, 100, input_wait_ms=60)), set(), 0, set(), {2: 0}),
        # the tasks of a worker run one after the other, those of two workers side by side
        (epoch(task(0, 100), task(1, 300)), {0, 1}, 0, set(), {0: 600, 1: 600}),
        (epoch(task(0, 100), task(1, 300, "b"), task(2, 50)), {0, 1, 2}, 0, set(), {0: 900, 1: 700, 2: 650}),
        # a commit belongs to the subtask whose sink it is
        (epoch(task(0, 100, commit_ms=300)), {0}, 0, set(), {0: 600}),
        # work that takes longer than its epoch, since an earlier run has done it
        (epoch(task(0, 100), ms=0), {0}, 0, set(), {0: 0}),
        (epoch(task(9, 100)), {0}, 0, set(), {}),
    ],
)
def test_a_subtask_is_held_back_for_what_remains_after_its_share_while_records_are_left(
    report: EpochReport, held: set[int], gap_ms: float, held_before: set[int], expected: dict[int, float]
) -> None:
    found = backpressured_ms(JOB, report, held, gap_ms, held_before)
    assert found == {(number, 0): ms for number, ms in expected.items()}


def test_the_time_of_executions_is_work_back_pressure_and_idleness() -> None:
    clock = ManualClock(0)
    graph = ExecutionGraph(JOB, clock)
    graph.attempt_started(0)
    graph.query_started()
    for _ in range(10):
        clock.advance(1_200)
        graph.epoch_done(epoch(task(0, 300, backlog=1_000), task(2, 200), task(3, 400, commit_ms=50)))
    rates = {one.id: one.subtasks[0].current.rates for one in graph.describe()}
    # the 200 ms before the first epoch do not count: nothing was told of them
    assert rates[0].busy_ms == pytest.approx(3_000 / 11.8) and rates[0].backpressured_ms == pytest.approx(8_800 / 11.8)
    assert rates[2].busy_ms == pytest.approx(2_000 / 11.8) and rates[2].backpressured_ms == pytest.approx(6_800 / 11.8)
    assert rates[3].busy_ms == pytest.approx(4_500 / 11.8) and rates[3].backpressured_ms == 0
    assert rates[1] == RatesDescription(idle_ms=1_000)
    for each in rates.values():
        assert each.busy_ms + each.backpressured_ms + each.idle_ms == pytest.approx(1_000)
    clock.advance(120_000)
    assert {one.subtasks[0].current.rates.idle_ms for one in graph.describe()} == {1_000}
