"""The metrics that functions register, as epochs report them."""

from __future__ import annotations

from typing import Any

from flinkish.core.functions import MapFunction, RuntimeContext
from flinkish.minicluster import MiniCluster
from flinkish.runtime.clock import ManualClock
from flinkish.testing import TestingSink
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
