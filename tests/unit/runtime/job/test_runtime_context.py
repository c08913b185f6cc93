"""What functions learn of their task, and the metrics they register."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.core.functions import MapFunction, RuntimeContext
from flinkish.errors import ProgramError
from flinkish.runtime.job.context import TaskMetricGroup
from flinkish.runtime.operators.functions import MapFactory
from flinkish.testing import OneInputStreamOperatorTestHarness as Harness


def test_the_context_tells_where_the_function_runs() -> None:
    class Tell(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.context = runtime_context

        def map(self, value: Any) -> Any:
            context = self.context
            return (
                context.get_task_name(),
                context.get_task_name_with_subtasks(),
                context.get_index_of_this_subtask(),
                context.get_number_of_parallel_subtasks(),
                context.get_max_number_of_parallel_subtasks(),
                context.get_attempt_number(),
                context.get_job_parameter("given", "default"),
                context.get_job_parameter("absent", "default"),
            )

    with Harness(MapFactory(Tell()), job_parameters={"given": "1"}, subtask=1, parallelism=3) as harness:
        harness.process_element(0)
        assert harness.take_values() == [("Tested", "Tested (2/3)", 1, 3, 128, 0, "1", "default")]


def test_metrics_are_collected_by_scoped_name() -> None:
    class Measure(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            group = runtime_context.get_metrics_group()
            self.seen = group.counter("seen")
            self.sizes = group.add_group("shop", "4").distribution("sizes")
            self.rate = group.add_group("shop").add_group("4").meter("rate")
            group.gauge("last", lambda: self.last)

        def map(self, value: Any) -> Any:
            self.last = value
            self.seen.inc()
            self.sizes.update(value)
            self.rate.mark_event(2)
            return value

    with Harness(MapFactory(Measure())) as harness:
        harness.process_elements([3, 8])
        assert harness.metrics.snapshot() == {
            "seen": 2,
            "last": 8,
            "shop.4.sizes.count": 2,
            "shop.4.sizes.sum": 11,
            "shop.4.sizes.min": 3,
            "shop.4.sizes.max": 8,
            "shop.4.rate": 4,
        }


def test_the_rate_of_a_meter_is_that_of_the_epochs_within_its_time_span() -> None:
    group = TaskMetricGroup()
    minute, short = group.meter("minute"), group.meter("short", 10)

    def rates_after(events: int, time_ms: int) -> tuple[float, float]:
        minute.mark_event(events)
        short.mark_event(events)
        values = group.snapshot(time_ms)
        return values["minute.rate"], values["short.rate"]

    assert rates_after(120, 1_000_000) == (2.0, 12.0), "a span that has just begun counts in full, as in Flink"
    assert rates_after(30, 1_009_999) == (2.5, 15.0)
    assert rates_after(30, 1_010_000) == (3.0, 6.0), "the events of the epoch 10 s before are no longer in the span"
    assert rates_after(0, 1_010_000) == (3.0, 6.0), "another report at the same time says the same"
    assert rates_after(60, 1_200_000) == (1.0, 6.0)
    assert rates_after(0, 1_300_000) == (0.0, 0.0)
    assert minute.get_count() == group.snapshot(1_300_000)["minute"] == 240
    with pytest.raises(ProgramError, match="the time span of a meter is 0 s"):
        group.meter("none", 0)


def test_the_same_name_gives_the_same_metric_and_another_kind_is_refused() -> None:
    group = TaskMetricGroup()
    assert group.counter("n") is group.counter("n")
    with pytest.raises(ProgramError, match="metric 'n' is registered twice with different kinds"):
        group.meter("n")
    with pytest.raises(ProgramError, match="twice"):
        group.gauge("n", lambda: 1)
    assert group.distribution("empty").count == 0
    assert group.snapshot() == {"n": 0, "empty.count": 0, "empty.sum": 0}
