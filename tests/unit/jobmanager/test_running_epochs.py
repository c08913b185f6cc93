"""A job whose epoch takes long says what happens in it: in its description, in the line of progress and in the log."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.jobmanager.client import RunClient
from flinkish.jobmanager.job.description import JobDescription
from flinkish.jobmanager.progress import SlowCalls
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.report import TaskPlace
from flinkish.runtime.task.progress import EpochProgress, SlowCall, TaskProgress
from tests.support.processes import wait_until
from tests.support.programs import new_environment

TIMEOUT_S = 60


def slow_calls(job: JobDescription) -> list[SlowCall]:
    found = [subtask.current.slow_call for vertex in job.vertices for subtask in vertex.subtasks]
    return [call for call in found if call is not None]


def test_a_job_in_this_process_shows_its_running_epoch_and_names_a_call_that_does_not_return(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = threading.Event()

    def slow(value: int) -> int:
        if value == 150:
            assert seen.wait(TIMEOUT_S)
        return value

    shared = {"flinkish__minicluster__share_functions": "true"}
    env = new_environment(flinkish__task__slow_call_warning="200 ms", flinkish__progress="always", **shared)
    numbers = env.from_source(DataGeneratorSource(lambda n: n, 200), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(slow).name("slow").uid("slow").print()
    client = env.execute_async("a slow job")
    assert isinstance(client, RunClient)
    wait_until(lambda: slow_calls(client.describe()), TIMEOUT_S, "a slow call")
    job = client.describe()
    (call,) = slow_calls(job)
    assert (call.operator, call.uid, call.record) == ("slow", "slow", "150")
    assert "seen.wait(TIMEOUT_S)" in call.stack
    assert job.running_epoch is not None
    assert (job.running_epoch.epoch, job.running_epoch.records_in, job.metrics["records_in"]) == (0, 150, 0)
    assert [(vertex.state, vertex.running_records_in, vertex.records_in) for vertex in job.vertices] == [
        ("RUNNING", 150, 0)
    ]
    seen.set()
    client.get_job_execution_result().result(TIMEOUT_S)
    job = client.describe()
    assert (job.running_epoch, slow_calls(job), job.metrics["records_in"]) == (None, [], 200)
    warnings = [record for record in caplog.records if record.name == "flinkish.Task"]
    assert warnings
    assert {(record.levelname, record.epoch) for record in warnings} == {("WARNING", 0)}  # type: ignore[attr-defined]
    first = warnings[0].getMessage()
    assert first.startswith("a call of operator 'slow' (uid slow), record 150 has not returned for 0.")
    assert "seen.wait(TIMEOUT_S)" in first
    assert re.search(r"^a slow job: epoch 0 at \S+ running for 0 s \| in 0 \+ 150 \|", capsys.readouterr().err, re.M)


JOB = JobDescriptor(
    "ab" * 16, "clicks", (VertexDescriptor(0, "clicks", 0, (OperatorDescriptor("clicks", "clicks", None),), 2, 2),), ()
)  # type: ignore[arg-type]
CALL = SlowCall(
    1, 1, "Map", "m", "'a'", ", key 1", 31_000, '  File "x.py", line 1\n    f()\n2026-01-01 ERROR fake\x1b[2J'
)
PLACE = TaskPlace("host", "3", 7, 1, 0, 99, 4711)


def test_a_slow_call_is_logged_once_for_each_warning_in_lines_that_cannot_be_taken_for_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs = SlowCalls(JOB)
    task = TaskProgress(0, 1, place=PLACE, slow_call=CALL)

    def tell(**changes: Any) -> None:
        changed = replace(task, slow_call=replace(CALL, **changes))
        logs.epoch_running(EpochProgress(5, 40_000, 0, 0, None, (TaskProgress(0, 0), changed)))

    with caplog.at_level(logging.WARNING):
        for changes in ({}, {"running_ms": 35_000}, {"warnings": 2, "running_ms": 62_000}, {"number": 2}):
            tell(**changes)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.split("not returned for ")[1].split(":")[0] for text in texts] == ["31.0 s", "62.0 s", "31.0 s"]
    assert texts[0] == (
        "a call of operator 'Map' (uid m), key 1, record 'a' has not returned for 31.0 s: task 'clicks (2/2)', epoch 5,"
        " executor 3 on host, stage 7, partition 1, try 0, process 4711\n"
        '      File "x.py", line 1\n        f()\n    2026-01-01 ERROR fake\\x1b[2J'
    )
