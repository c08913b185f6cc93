"""The execution graph follows the reports of tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flinkish.common.accumulators import LongCounter
from flinkish.errors import OperationError
from flinkish.jobmanager.execution_graph import Execution, ExecutionGraph
from flinkish.jobmanager.job.description import (
    NO_RATES,
    EdgeDescription,
    ExecutionDescription,
    RatesDescription,
    VertexDescription,
)
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.exchange.partitioners import BroadcastPartitioner, EdgeDescriptor, InputDescriptor
from flinkish.runtime.job.accumulators import encode_accumulators
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.report import TaskPlace, TaskReport
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.task.progress import EpochProgress, SlowCall, TaskProgress

FACTORY: Any = None

SOURCE = VertexDescriptor(0, "Source: clicks", 0, (OperatorDescriptor("clicks", "clicks", FACTORY),), 2, 2)
COUNTS = VertexDescriptor(
    1,
    "count",
    1,
    (OperatorDescriptor("count", "count", FACTORY, uid_given=True),),
    2,
    4,
    (InputDescriptor(0, 0),),
    keyed=True,
)
JOB = JobDescriptor("ab" * 16, "clicks", (SOURCE, COUNTS), ())


def place(executor: str, partition: int, stage: int = 7) -> TaskPlace:
    return TaskPlace(f"host-{executor}", executor, stage, partition, 0, 100 + partition, 4000 + partition)


def source(subtask: int, records: int) -> TaskReport:
    return TaskReport(0, subtask, records, records, splits=(str(subtask),), place=place("1", subtask))


def counts(subtask: int, executor: str = "1", **more: Any) -> TaskReport:
    values = {"records_in": 3, "records_out": 3, "watermark_ms": 10 * subtask, "state_bytes": 50, **more}
    return TaskReport(1, subtask, place=place(executor, subtask), **values)


def epoch(number: int, *tasks: TaskReport, end: bool = False) -> EpochReport:
    return EpochReport(number, 0, 0, 0, None, end, tasks=tasks)


class Graph:
    """A graph with a clock, and the executions that it has told the end of."""

    def __init__(self, settings: JobSettings = JOB.settings) -> None:
        self.clock = ManualClock(1_000)
        self.ended: list[str] = []
        self.graph = ExecutionGraph(replace(JOB, settings=settings), self.clock, self._end)
        self.done, self.failed = self.graph.epoch_done, self.graph.attempt_failed

    def _end(self, execution: Execution) -> None:
        self.ended.append(f"{execution.name} {execution.attempt} {execution.machine.state.name}")

    def started(self, attempt: int = 0) -> Graph:
        self.graph.attempt_started(attempt)
        self.clock.advance(10)
        self.graph.query_started()
        self.clock.advance(10)
        return self

    def vertex(self, number: int) -> VertexDescription:
        return self.graph.describe()[number]

    def current(self, vertex: int, subtask: int) -> ExecutionDescription:
        return self.vertex(vertex).subtasks[subtask].current


@pytest.fixture
def graph() -> Graph:
    """One that has been started."""
    return Graph().started()


def states(graph: Graph) -> list[str]:
    return [subtask.current.state for vertex in graph.graph.describe() for subtask in vertex.subtasks]


def test_executions_run_from_their_first_epoch_on_and_their_times_are_known(graph: Graph) -> None:
    assert states(graph) == ["DEPLOYING"] * 4
    graph.done(epoch(0, source(0, 5), counts(0)))
    assert states(graph) == ["RUNNING"] * 4
    assert graph.current(1, 1).times_ms == {
        "CREATED": 1_000,
        "SCHEDULED": 1_000,
        "DEPLOYING": 1_010,
        "INITIALIZING": 1_020,
        "RUNNING": 1_020,
    }
    assert [vertex.state for vertex in graph.graph.describe()] == ["RUNNING", "RUNNING"]


def test_an_execution_sums_up_what_its_task_reports(graph: Graph) -> None:
    graph.done(epoch(3, source(0, 5), counts(0)))
    graph.done(
        epoch(
            4,
            counts(0, state_bytes=70, restored_files=2, restored_bytes=900, metrics={"count.hits": 2}),
            counts(1, "2"),
        )
    )
    first, vertex = graph.current(1, 0), graph.vertex(1)
    assert (first.records_in, first.records_out, first.state_bytes, first.watermark_ms) == (6, 6, 70, 0)
    assert (first.restored_files, first.restored_bytes) == (2, 900)
    assert (first.first_epoch, first.last_epoch, first.metrics) == (3, 4, {"count.hits": 2})
    assert (first.host, first.executor, first.stage, first.partition) == ("host-1", "1", 7, 0)
    assert (first.task_id, first.pid, first.task_attempt) == (100, 4000, 0)
    assert (vertex.records_in, vertex.state_bytes, vertex.watermark_ms) == (9, 120, 0)
    assert graph.current(0, 0).splits == ("0",)
    assert (vertex.inputs, vertex.operators[0].uid_given) == ((0,), True)
    graph.done(epoch(5, counts(0, state_bytes=0)))
    assert graph.current(1, 0).state_bytes == 70, "state that was not written again is as large as it was"


def test_standby_tasks_are_told_with_their_executors_and_forgotten_with_the_attempt() -> None:
    graph = Graph(JobSettings(standby_replicas=1)).started()

    def told() -> dict[int, list[tuple[str, str, int]]]:
        return {
            one.subtask: [(at.host, at.executor, at.files) for at in one.standby] for one in graph.vertex(1).subtasks
        }

    graph.done(epoch(3, counts(0, standby={(1, 1): 3}), counts(1, standby={(1, 1): 2})))
    assert told() == {0: [], 1: [("host-1", "1", 3)]}, "two processes of one executor"
    graph.done(epoch(4, counts(0, "2", standby={(1, 0): 0})))
    assert told() == {0: [("host-2", "2", 0)], 1: [("host-1", "1", 3)]}
    graph.done(epoch(5, counts(0), counts(1)))
    assert told() == {0: [("host-2", "2", 0)], 1: []}
    graph.started(1)
    assert told() == {0: [], 1: []}


def test_an_execution_has_bytes_work_and_rates_of_its_attempt_alone() -> None:
    graph = Graph().started()
    for number in range(3):
        graph.clock.advance(10_000)
        report = epoch(number, counts(0, bytes_in=100, bytes_out=50, work_ms=2_000.0))
        graph.graph.epoch_done(replace(report, duration_ms=10_000))
    first = graph.current(1, 0)
    assert (first.bytes_in, first.bytes_out, first.busy_ms) == (300, 150, 6_000)
    assert first.rates.records_in == pytest.approx(0.3, rel=0.01)
    assert (first.rates.bytes_in, first.rates.busy_ms) == (pytest.approx(10, rel=0.01), pytest.approx(200, rel=0.01))
    assert graph.current(1, 1).rates == RatesDescription(idle_ms=1_000), "it runs, and has had nothing to do"
    graph.graph.attempt_failed(OperationError("gone"))
    assert graph.current(1, 0).rates == NO_RATES
    graph.started(attempt=1)
    assert (graph.current(1, 0).bytes_in, graph.current(1, 0).busy_ms) == (0, 0)


def test_an_execution_tells_how_long_it_was_in_each_state() -> None:
    graph = Graph().started()
    graph.graph.epoch_done(epoch(0, counts(0)))
    graph.clock.advance(500)
    assert graph.current(1, 0).durations_ms == {
        "CREATED": 0,
        "SCHEDULED": 10,
        "DEPLOYING": 10,
        "INITIALIZING": 0,
        "RUNNING": 500,
    }
    graph.graph.attempt_failed(OperationError("gone"))
    graph.clock.advance(500)
    assert graph.current(1, 0).durations_ms["RUNNING"] == 500
    assert "CANCELED" not in graph.current(1, 0).durations_ms


def test_an_execution_has_what_it_has_added_to_accumulators() -> None:
    graph = Graph().started()
    for number in range(40):
        seen = LongCounter()
        seen.add(number)
        graph.graph.epoch_done(epoch(number, counts(0, accumulators=encode_accumulators({("", "seen"): seen}))))
    assert graph.current(1, 0).accumulators == {"seen": sum(range(40))}
    assert graph.current(1, 1).accumulators == {}


def test_a_vertex_has_flinks_id_and_the_edges_that_lead_to_it() -> None:
    edge = EdgeDescriptor(1, 0, BroadcastPartitioner(), 2, tag="late")
    head = replace(SOURCE.operators[0], edges=(edge,))
    graph = ExecutionGraph(replace(JOB, vertices=(replace(SOURCE, operators=(head,)), COUNTS)))
    source, behind = graph.describe()
    assert behind.job_vertex_id == behind.operators[0].operator_id == "b71731f1c0df9c3076c4a455334d0ad6"
    assert (source.edges, behind.edges) == ((), (EdgeDescription(0, "BROADCAST", "late"),))


def test_execution_names_the_splits_that_it_has_read_last() -> None:
    graph, most = Graph().started(), Execution.MAX_SPLITS
    for number in range(3 * most):
        graph.done(epoch(number, TaskReport(0, 0, splits=("always", f"file-{number:03}"))))
    files = [f"file-{number:03}" for number in range(2 * most + 1, 3 * most)]
    assert graph.current(0, 0).splits == ("always", *files)


CALL = SlowCall(1, 1, "count", "count", "3", ", key 3", 31_000, "a stack")


def running(number: int, *tasks: TaskProgress) -> EpochProgress:
    return EpochProgress(number, 40_000, 0, 0, None, tasks)


def test_executions_run_as_soon_as_tasks_of_the_first_epoch_say_that_they_do(graph: Graph) -> None:
    graph.graph.epoch_running(running(0, TaskProgress(0, 1, 700, 500, place=place("2", 1))))
    assert states(graph) == ["RUNNING"] * 4
    one, vertex = graph.current(0, 1), graph.vertex(0)
    assert (one.running_epoch, one.running_records_in, one.running_records_out) == (0, 700, 500)
    assert (one.records_in, one.last_epoch, one.executor, one.pid) == (0, None, "2", 4001)
    assert (vertex.running_records_in, vertex.running_records_out, vertex.records_in) == (700, 500, 0)
    assert graph.current(0, 0).running_epoch is None


def test_what_is_known_of_a_running_epoch_is_replaced_by_its_report(graph: Graph) -> None:
    graph.done(epoch(0, counts(1)))
    graph.graph.epoch_running(running(1, TaskProgress(1, 1, 2, 1, 0, 25, slow_call=CALL)))
    seen = graph.current(1, 1)
    assert (seen.slow_call, seen.watermark_ms, seen.records_in, seen.running_records_in) == (CALL, 25, 3, 2)
    graph.done(epoch(1, counts(1, watermark_ms=30)))
    seen = graph.current(1, 1)
    assert (seen.slow_call, seen.watermark_ms, seen.records_in, seen.running_records_in) == (None, 30, 6, 0)


def work(records: int, busy_ms: float) -> TaskProgress:
    return TaskProgress(1, 1, records, busy_ms=busy_ms, bytes_in=records)


def test_before_anything_was_told_of_an_execution_nothing_is_known_of_its_time(graph: Graph) -> None:
    graph.graph.epoch_begun()
    graph.clock.advance(600_000)
    one = graph.current(1, 1)
    assert (one.state, one.told_ms, one.rates, one.idle_ms) == ("DEPLOYING", None, None, 0)


def test_in_a_long_epoch_a_task_does_what_it_has_said_last_and_the_others_are_not_known(graph: Graph) -> None:
    for second in range(40, 640):
        graph.graph.epoch_running(replace(running(0, work(10 * second, 1_000.0 * second)), running_ms=second * 1_000))
        graph.clock.advance(1_000)
    one, other = graph.current(1, 1), graph.current(1, 0)
    assert one.rates == RatesDescription(10, 0, 10, 0, 1_000, 0, 0)
    assert (one.records_in, one.running_records_in, one.running_bytes_in, one.idle_ms) == (0, 6_390, 6_390, 0)
    assert (other.rates, other.told_ms) == (None, None)
    last = one.told_ms
    for _ in range(90):
        # its worker stands still: the driver reads the same again
        graph.graph.epoch_running(running(0, work(6_390, 639_000.0)))
        graph.clock.advance(1_000)
    one = graph.current(1, 1)
    assert (one.rates, one.told_ms, one.idle_ms) == (None, last, 0)
    graph.done(replace(epoch(0, counts(1, records_in=7_000, work_ms=700_000.0)), duration_ms=730_000))
    one, other = graph.current(1, 1), graph.current(1, 0)
    assert (one.records_in, one.running_records_in) == (7_000, 0)
    assert one.rates is not None and one.rates.busy_ms > 600
    assert other.rates == RatesDescription(idle_ms=1_000), "its epoch is done, and had nothing for it"


def test_between_epochs_executions_are_idle_and_in_one_that_says_nothing_they_are_not_known(graph: Graph) -> None:
    graph.done(replace(epoch(0, counts(1, work_ms=500.0)), duration_ms=10_000))
    graph.clock.advance(600_000)
    one = graph.current(1, 1)
    assert one.rates == RatesDescription(idle_ms=1_000)
    assert one.idle_ms == 609_500
    graph.graph.epoch_begun()
    graph.clock.advance(30_000)
    assert graph.current(1, 1).rates is not None, "what is known of the last minute"
    graph.clock.advance(31_000)
    one = graph.current(1, 1)
    assert (one.rates, one.idle_ms, one.state) == (None, 609_500, "RUNNING")


@pytest.mark.parametrize("failed", [True, False])
def test_an_execution_that_has_ended_has_no_running_epoch(graph: Graph, failed: bool) -> None:
    graph.graph.epoch_running(running(1, TaskProgress(1, 1, 2, slow_call=CALL)))
    if failed:
        graph.failed(OperationError("gone"))
    else:
        graph.graph.job_done(False, "the job is CANCELED")
    # the thread that watches the tasks may be late
    graph.graph.epoch_running(running(1, TaskProgress(1, 1, 2, slow_call=CALL)))
    seen = graph.current(1, 1)
    assert (seen.state, seen.running_epoch, seen.slow_call) == ("CANCELED", None, None)


def test_the_task_that_the_failure_names_has_failed_and_the_others_are_cancelled(graph: Graph) -> None:
    graph.done(epoch(0, source(0, 1)))
    failure = OperationError("the disk is full")
    failure.task = "count (2/2)"
    graph.failed(failure)
    assert states(graph) == ["CANCELED", "CANCELED", "CANCELED", "FAILED"]
    assert graph.current(1, 1).failure == "OperationError: the disk is full"
    assert graph.current(1, 0).failure is None
    assert graph.vertex(1).state == "FAILED"
    cancelled = ["Source: clicks (1/2)", "Source: clicks (2/2)", "count (1/2)"]
    assert sorted(graph.ended) == [*(f"{name} 0 CANCELED" for name in cancelled), "count (2/2) 0 FAILED"]


@pytest.mark.parametrize("started", [True, False])
def test_a_failure_without_a_task_cancels_all_whatever_state_they_are_in(started: bool) -> None:
    graph = Graph()
    if started:
        graph.started()
    else:
        graph.graph.attempt_started(0)
    graph.failed(OperationError("no connection"))
    graph.failed(OperationError("again, before anything was started"))
    assert states(graph) == ["CANCELED"] * 4
    assert len(graph.ended) == 4


def test_a_restart_begins_new_executions_and_keeps_the_earlier_ones(graph: Graph) -> None:
    graph.done(epoch(0, counts(0)))
    graph.failed(OperationError("gone"))
    graph.started(attempt=1)
    graph.done(epoch(1, counts(0, records_in=8)))
    subtask = graph.vertex(1).subtasks[0]
    assert (subtask.current.attempt, subtask.current.state, subtask.current.records_in) == (1, "RUNNING", 8)
    assert [(e.attempt, e.state, e.records_in) for e in subtask.earlier] == [(0, "CANCELED", 3)]


def test_of_earlier_executions_the_last_ones_are_kept() -> None:
    graph = Graph()
    for attempt in range(ExecutionGraph.MAX_EARLIER + 5):
        graph.graph.attempt_started(attempt)
        graph.failed(OperationError("gone"))
    earlier = graph.vertex(0).subtasks[0].earlier
    assert [execution.attempt for execution in earlier] == list(range(4, ExecutionGraph.MAX_EARLIER + 4))


def test_a_subtask_has_finished_when_its_task_has(graph: Graph) -> None:
    graph.done(epoch(0, counts(0, finished=True)))
    assert [graph.current(1, 0).state, graph.current(1, 1).state] == ["FINISHED", "RUNNING"]
    assert graph.vertex(1).state == "RUNNING"
    graph.done(epoch(2, end=True))
    assert [graph.current(0, subtask).state for subtask in (0, 1)] == ["FINISHED", "FINISHED"]


def test_tasks_have_finished_or_are_cancelled_as_their_job(graph: Graph) -> None:
    graph.done(epoch(0, counts(0)))
    graph.graph.job_done(False, "the job is CANCELED")
    assert states(graph) == ["CANCELED"] * 4
    assert "CANCELING" in graph.current(0, 0).times_ms
    graph.graph.job_done(False, "again")
    assert len(graph.ended) == 4
    # those that had nothing to do as well
    idle = Graph().started()
    idle.graph.job_done(True, "the job is FINISHED")
    assert states(idle) == ["FINISHED"] * 4


def test_reports_of_tasks_that_the_graph_does_not_know_are_left_alone_and_without_spark_there_is_no_place(
    graph: Graph,
) -> None:
    graph.done(epoch(0, replace(counts(0), vertex=9)))
    assert graph.current(1, 0).records_in == 0
    graph.done(epoch(0, replace(counts(0), place=None)))
    assert graph.current(1, 0).executor is None
