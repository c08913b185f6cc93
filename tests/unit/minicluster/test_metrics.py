"""The metrics that functions register, and those of sources, as epochs report them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.connectors.file_system.source import FileSource
from flinkish.core.functions import MapFunction, RuntimeContext
from flinkish.jobmanager.execution_graph import ExecutionGraph
from flinkish.minicluster import MiniCluster
from flinkish.runtime.epoch.steps import Backlog
from flinkish.runtime.phases import ManualClock
from flinkish.testing import End, StreamRecord, TestingSink, TestingSource
from tests.unit.minicluster.programs import bounded, environment, job_of, list_source


class Metered(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_metrics_group().meter("seen", 20)

    def map(self, value: Any) -> Any:
        self.seen.mark_event(10)
        return value


def test_epochs_report_the_count_of_a_meter_and_its_rate_by_their_processing_time() -> None:
    env, clock = environment(1), ManualClock(1_000_000)
    source = list_source([("a", number, number) for number in range(4)])
    mapped = env.from_source(source, bounded(), "s").map(Metered()).uid("first")
    mapped.key_by(lambda value: value[0]).map(Metered()).uid("second").sink_to(TestingSink())
    cluster = MiniCluster(job_of(env), clock, max_records_per_epoch=1)
    reports = cluster.run(4, on_epoch=lambda report: clock.advance(10_000))
    for uid in ("first", "second"):
        values = [task.metrics for report in reports for task in report.tasks if f"{uid}.seen" in task.metrics]
        assert [value[f"{uid}.seen"] for value in values] == [10, 20, 30, 40]
        assert [value[f"{uid}.seen.rate"] for value in values] == [0.5, 1.0, 1.0, 1.0]


def first_backlogs(source: Any, per_epoch: int, epochs: int) -> tuple[list[Any], dict[str, float], Any]:
    """For each epoch what it has left of the source; the metrics of the source as of the last one; and the source as it
    is described then. Ten seconds lie between epochs."""
    env, clock = environment(1), ManualClock(1_000_000)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "s").uid("s").sink_to(TestingSink())
    job = job_of(env)
    graph = ExecutionGraph(job, clock)
    graph.attempt_started(0)
    cluster = MiniCluster(job, clock, max_records_per_epoch=per_epoch)
    reports = cluster.run(epochs, on_epoch=lambda report: clock.advance(10_000))
    cluster.dispose()
    for report in reports:
        graph.epoch_done(report)
    (task,) = reports[-1].tasks
    return [report.backlogs(job).get("s") for report in reports], task.metrics, graph.describe()[0]


def test_records_that_are_left_are_counted_with_the_age_of_the_newest_that_was_read() -> None:
    source = TestingSource(*(StreamRecord(n, 999_000 + n) for n in range(7)), End())
    left, metrics, described = first_backlogs(source, 3, 2)
    assert left == [Backlog(4, 0, "splits", 998), Backlog(1, 0, "splits", 10_995)]
    assert metrics == {"s.sourceIdleTime": 0, "s.currentFetchEventTimeLag": 10_995, "s.pendingRecords": 1}
    assert (described.backlog, described.backlog_splits, described.backlog_age_ms) == (1, 0, 10_995)


def test_files_that_are_left_are_counted(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("1\n2\n3\n")
    left, metrics, described = first_backlogs(FileSource.text(str(tmp_path)), 2, 4)
    assert [None if one is None else str(one) for one in left] == ["3 files", "2 files", "1 file", "1 file"]
    assert metrics == {"s.sourceIdleTime": 0}
    assert (described.backlog, described.backlog_splits, described.backlog_age_ms) == (0, 1, None)


def test_a_source_that_is_read_to_its_end_has_no_backlog_and_its_idle_time_grows() -> None:
    left, metrics, described = first_backlogs(TestingSource(1, 2), 9, 3)
    assert left == [None] * 3
    assert metrics == {"s.sourceIdleTime": 20_000, "s.pendingRecords": 0}
    assert (described.backlog, described.backlog_splits, described.backlog_age_ms) == (0, 0, None)
