"""How long tasks have worked on an epoch, by which the next one is sized."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.runtime.task import source_task, task
from tests.support.epoch_reports import execute_observed, reports_of


def test_a_subtask_of_a_source_that_has_ended_has_not_worked_since_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))
    for module in (source_task, task):
        monkeypatch.setattr(module, "time", clock)
    configuration = Configuration()
    configuration.set_string("execution.target", "minicluster")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = DataGeneratorSource(lambda n: n, count=20, type_info=Types.LONG(), records_per_epoch=2)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "one split").map(lambda n: n, Types.LONG()).print()
    client = execute_observed(env, "work")
    client.get_job_execution_result().result(60)
    # one second of this clock passes between two looks at it
    worked = [one.work_ms for report in reports_of(client.run) for one in report.tasks if one.subtask == 1]
    assert len(worked) >= 10 and set(worked[1:]) == {1000.0}
