"""A description as text for people: nothing that is not known looks like a figure, and nothing of a program steers the
terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timezone
from typing import Any

import pytest

from flinkish.cli.described import ended_text, job_text
from flinkish.common.configuration import Configuration
from flinkish.common.memory import areas_of
from flinkish.jobmanager.job.description import (
    CheckpointDescription,
    CheckpointsDescription,
    EpochDescription,
    ExceptionDescription,
    ExecutionDescription,
    JobDescription,
    OperatorDescription,
    RatesDescription,
    RestoreDescription,
    RunningEpochDescription,
    SlotsDescription,
    SubtaskDescription,
    VertexDescription,
)
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.runtime.job.report import LifecycleCall
from flinkish.runtime.task.progress import SlowCall
from tests.support.described_jobs import NOW_MS, beginning_job, extreme_job, wide_job
from tests.support.rest_jobs import JOB, job

NOW_TEXT = "2027-01-15 08:00:00 UTC"


def text(described: JobDescription, end: dict[str, Any] | None = None) -> str:
    # as it comes from the driver
    return job_text(json.loads(json.dumps(asdict(described), default=str)), NOW_MS, timezone.utc, end)


def line_with(found: str, beginning: str) -> list[str]:
    """The words of the line that begins so; words are what two blanks separate."""
    lines = [re.sub(r" {2,}", "  ", line.strip()) for line in found.splitlines()]
    (line,) = [line for line in lines if line.startswith(beginning)]
    return line.split("  ")


def execution(**more: Any) -> ExecutionDescription:
    return ExecutionDescription(0, "RUNNING", {}, **more)


def vertex(level: int = 0, **more: Any) -> VertexDescription:
    operators = (OperatorDescription("src", "Source: clicks"), OperatorDescription("out", "Sink: files"))
    given: dict[str, Any] = {
        "id": level,
        "uid": "src",
        "name": "Source: clicks -> Sink: files",
        "level": level,
        "parallelism": 2,
        "max_parallelism": 128,
        "keyed": False,
        "operators": operators,
        "inputs": (),
        "state": "RUNNING",
        "subtasks": (
            SubtaskDescription(
                0, "Source: clicks (1/2)", execution(rates=RatesDescription(10.0, 5.0, 0.0, 0.0, 250.0))
            ),
            SubtaskDescription(1, "Source: clicks (2/2)", execution(rates=RatesDescription(20.5, 5.0))),
        ),
        "records_in": 90_000,
        "records_out": 88_000,
        "state_bytes": 3 << 20,
    }
    return VertexDescription(**{**given, **more})


def running(**more: Any) -> JobDescription:
    """A job that has been running for five minutes."""
    begun = {"start_time_ms": NOW_MS - 301_000, "times_ms": {"RUNNING": NOW_MS - 300_000}}
    return replace(job(), **{**begun, "vertices": (vertex(),), **more})


def test_the_first_line_says_the_status_and_since_when() -> None:
    first = text(running()).splitlines()[0]
    assert first == f"clicks ({JOB}): RUNNING since 2027-01-15 07:55:00 UTC (5 min ago)"


def test_a_vertex_is_a_row_with_the_rates_of_all_its_subtasks_and_the_busiest_one() -> None:
    row = line_with(text(running()), "Source: clicks -> Sink: files")
    assert row == [
        *("Source: clicks -> Sink: files", "RUNNING", "2", "90,000", "88,000", "30", "10"),
        *("25 %", "0 %", "3.0 MiB", "none"),
    ]


@pytest.mark.parametrize(
    ("watermark_ms", "shown"),
    [
        (None, "none"),
        (-(2**63), "none"),
        (2**63 - 1, "end of input"),
        (NOW_MS - 3_000, "2027-01-15 07:59:57 UTC"),
        (2**62, "4611686018427387904 ms after 1970"),
    ],
)
def test_a_watermark_is_a_time_or_a_word(watermark_ms: int | None, shown: str) -> None:
    found = text(running(vertices=(vertex(watermark_ms=watermark_ms),)))
    assert line_with(found, "Source: clicks -> ")[-1] == shown
    assert line_with(found, "Source: clicks  ")[-1] == shown


def test_the_watermark_of_the_job_says_how_far_behind_it_is() -> None:
    assert line_with(text(running(metrics={"watermark_ms": NOW_MS - 3_000})), "watermark  ")[1:] == [
        "2027-01-15 07:59:57 UTC (3.0 s behind)"
    ]
    assert line_with(text(running(metrics={"watermark_ms": -(2**63)})), "watermark  ")[1:] == ["none"]


#: The position of a source as a checkpoint has it, and the rows of its splits.
POSITIONS: list[tuple[dict[str, Any] | str, list[list[str]]]] = [
    (
        {"complete": True, "ended": [], "known": {}, "splits": [["orders-0", 1_200, None, None], ["f", 10, 60, None]]},
        [["src", "orders-0", "1,200", "-", "-"], ["src", "f", "10", "60", "50"]],
    ),
    ({"ended": ["a", "b"], "splits": []}, [["src", "2 splits at their end"]]),
    (
        {"ended": ["a"], "ended_count": 70, "splits": [["b", 0, 5, None]], "splits_count": 4_000},
        [["src", "b", "0", "5", "5"], ["src", "... 3,999 more splits"], ["src", "70 splits at their end"]],
    ),
    ({"orders": {"0": 17, "1": 18}}, [["src", "orders-0", "17"], ["src", "orders-1", "18"]]),
    ({"reservoirVersion": 3, "isStartingVersion": False}, [["src", "reservoirVersion", "3"]]),
    ("no JSON", [["src", "no JSON"]]),
]


@pytest.mark.parametrize(("position", "rows"), POSITIONS)
def test_positions_of_sources_are_a_table_and_no_json(position: Any, rows: list[list[str]]) -> None:
    offsets = {"src": position if isinstance(position, str) else json.dumps(position)}
    taken = CheckpointDescription(6, 5, "COMPLETED", NOW_MS - 60_000, 40, path="/c/chk-6", offsets=offsets)
    found = text(running(checkpoints=CheckpointsDescription(latest_completed=taken)))
    _, _, below = found.partition("Positions of the sources at the end of epoch 5\n")
    shown = [re.split(r" {2,}", line.strip()) for line in below.partition("\n\n")[0].splitlines()[1:]]
    assert [row for row in shown if row in rows] == rows
    assert "{" not in below.partition("\n\n")[0]


@pytest.mark.parametrize(
    ("more", "lag", "waits"),
    [
        ({"backlog": 1_200, "backlog_age_ms": 2_500}, "1,200 records", "2.5 s"),
        ({"backlog_splits": 17}, "17 splits", "-"),
        ({"backlog": 0}, "0 records", "-"),
        ({}, "-", "-"),
    ],
)
def test_a_source_says_how_much_it_has_not_read(more: dict[str, Any], lag: str, waits: str) -> None:
    found = text(running(vertices=(vertex(**more),)))
    assert line_with(found, "Source: clicks  ") == ["Source: clicks", "src", lag, waits, "none"]


def test_checkpoints_and_savepoints_say_their_sizes_durations_and_paths() -> None:
    described = CheckpointsDescription(
        {"COMPLETED": 5, "FAILED": 1, "PENDING": 1, "savepoints": 1},
        latest_completed=CheckpointDescription(
            7,
            70,
            "COMPLETED",
            NOW_MS - 12_000,
            450,
            incremental=True,
            path="/c/chk-7",
            bytes_written=2_048,
            state_bytes={"a": 1 << 20, "b": 1 << 20},
        ),
        latest_savepoint=CheckpointDescription(
            6, 60, "COMPLETED", NOW_MS - 60_000, 61_000, is_savepoint=True, path="/s"
        ),
        latest_failed=CheckpointDescription(5, 50, "FAILED", NOW_MS - 90_000, 10, failure_reason="the disk is full"),
        history=(CheckpointDescription(8, 80, "PENDING", NOW_MS - 100, is_savepoint=True),),
        restored=RestoreDescription(0, NOW_MS - 300_000, "/savepoints/one", is_savepoint=True),
    )
    found = text(running(checkpoints=described))
    head = ["kind", "id", "status", "epoch", "triggered", "took", "written", "state", "path"]
    assert line_with(found, "kind") == head
    assert line_with(found, "incremental") == [
        *("incremental", "7", "COMPLETED", "70", "12.0 s ago", "450 ms", "2.0 KiB", "2.0 MiB", "/c/chk-7")
    ]
    assert line_with(found, "savepoint  6") == [
        *("savepoint", "6", "COMPLETED", "60", "1 min ago", "1 min 1 s", "0 B", "0 B", "/s")
    ]
    assert line_with(found, "checkpoint  5")[-1] == "the disk is full"
    assert line_with(found, "savepoint  8")[2] == "PENDING"
    assert "of this driver: 5 completed, 1 failed, 1 pending, savepoints among them: 1" in found
    assert "restored from /savepoints/one, 2027-01-15 07:55:00 UTC (5 min ago)" in found


def test_a_failure_has_the_users_traceback_and_what_was_done() -> None:
    failure = ExceptionDescription(
        NOW_MS - 61_000,
        2,
        "UserCodeError",
        "the author of the job",
        True,
        "ValueError in user code: no\nnumber",
        place="executor 3 on node-5",
        traceback='  File "/data/score.py", line 12\n    answer = int(x)\nValueError: \x1b[2Jno',
        restart_delay_ms=2_000,
    )
    found = text(running(exceptions=(failure, replace(failure, retried=True), replace(failure, restart_delay_ms=None))))
    assert "07:58:59 UTC (1 min 1 s ago), attempt 2: the job was restarted after 2.0 s" in found
    assert "attempt 2: a task has failed, and ran again" in found
    assert "attempt 2: the job has failed" in found
    assert r"UserCodeError: ValueError in user code: no\nnumber" in found
    assert "in executor 3 on node-5" in found
    assert '      File "/data/score.py", line 12\n          answer = int(x)' in found.replace(
        "        File", "      File"
    )
    assert r"ValueError: \x1b[2Jno" in found and "\x1b" not in found


def test_a_call_that_does_not_return_is_named_with_its_stack() -> None:
    call = SlowCall(1, 1, "score", "score", "('u3', 17)", ", key 'u3'", 61_000, '  File "/data/score.py", line 12\n')
    subtask = SubtaskDescription(0, "score (1/2)", execution(slow_call=call))
    found = text(running(vertices=(vertex(subtasks=(subtask,)),)))
    assert "score (1/2): 1 min 1 s, a call of operator 'score' (uid score), key 'u3', record ('u3', 17)" in found
    assert '        File "/data/score.py", line 12' in found


def test_the_last_calls_of_the_lifecycle_are_a_table_with_task_epoch_and_process() -> None:
    calls = [
        LifecycleCall(NOW_MS, "Map (1/2)", "Map", "m", call, 3, "host", 4711) for call in ["open"] * 50 + ["close"]
    ]
    lines = text(running(lifecycle=tuple(calls))).partition("\nLifecycle of operators\n")[2].partition("\n\n")[0]
    head, *rows = [line.split() for line in lines.splitlines()]
    assert head == ["time", "task", "operator", "call", "epoch", "process"]
    assert len(rows) == 40 and rows[-1][-6:] == ["Map", "(1/2)", "Map", "close", "3", "4711"]
    assert "Lifecycle" not in text(running()), "it is not traced"


def test_the_head_says_what_the_job_is_about() -> None:
    described = running(
        doing="restoring /savepoints/1, 3 of 12 parts",
        directory="/data/jobs/clicks",
        metrics={"epochs": 17, "records_in": 90_000, "records_out": 88_000, "restarts": 2},
        epochs=(EpochDescription(16, NOW_MS - 400, 1_800, 1_000, 1, 1, 1, 1, 1),),
        running_epoch=RunningEpochDescription(17, 40_000, 12_345, 0, None),
        warnings=("no watermark will ever come",),
        story=(Event(NOW_MS - 300_000, "job 'clicks'", "CREATED", "RUNNING", "attempt 0 runs"),),
        accumulators={"seen": 40_000},
    )
    found = text(described)
    assert line_with(found, "doing")[1] == "restoring /savepoints/1, 3 of 12 parts"
    assert line_with(found, "directory")[1] == "/data/jobs/clicks"
    assert line_with(found, "epochs")[1] == "17, the last one 16 took 1.8 s, 400 ms ago"
    assert line_with(found, "running")[1] == "epoch 17 for 40.0 s, 12,345 records in, 0 out"
    assert line_with(found, "records")[1] == "90,000 in, 88,000 out"
    assert line_with(found, "attempts")[1].startswith("2 restarts")
    assert line_with(found, "no watermark will ever come")
    assert line_with(found, "2027-01-15 07:55:00 UTC (5 min ago): job 'clicks': RUNNING (attempt 0 runs)")
    assert line_with(found, "seen") == ["seen", "40,000"]


def test_a_job_that_has_ended_says_how_and_what_starts_it_again() -> None:
    end = {"how": "stopped with the savepoint /s", "savepoint": "/s", "again": "flinkish run -s /s"}
    found = text(replace(running(), status="FINISHED", end_time_ms=NOW_MS - 2_000), end)
    assert found.splitlines()[0].endswith("FINISHED since 2027-01-15 07:59:58 UTC (2.0 s ago)")
    assert line_with(found, "savepoint")[1] == "/s"
    assert line_with(found, "to go on")[1] == "flinkish run -s /s"


def test_a_job_whose_driver_is_gone_says_how_when_and_what_starts_it_again() -> None:
    ended = {
        "id": None,
        "name": "clicks",
        "status": "SUSPENDED",
        "ended_ms": NOW_MS - 7_500_000,
        "how": "its driver has died (process 1 on host)",
        "savepoint": None,
        "last_epoch": None,
        "directory": "/data/jobs/clicks",
        "driver": "process 1 on host",
        "again": "flinkish run -D flinkish.job.dir=/data/jobs/clicks PROGRAM.py",
    }
    assert ended_text(ended, NOW_MS, timezone.utc).splitlines() == [
        "clicks (no id yet): SUSPENDED",
        "  ended        2027-01-15 05:55:00 UTC (2 h 5 min ago)",
        "  how          its driver has died (process 1 on host)",
        "  directory    /data/jobs/clicks",
        "  driver       process 1 on host",
        "  to go on     flinkish run -D flinkish.job.dir=/data/jobs/clicks PROGRAM.py",
    ]


@pytest.mark.parametrize("make", [extreme_job, beginning_job, lambda: wide_job(400), job, running])
def test_any_job_is_text_without_sentinels_json_and_control_characters(make: Callable[[], JobDescription]) -> None:
    found = text(make())
    assert not re.search(r"-?9223372036854775807|-?9223372036854775808|\bnan\b|\bNone\b", found)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028]", found)
    assert not re.search(r"\{\"", found)
    assert all(line == line.rstrip() for line in found.splitlines())


def test_slots_and_the_areas_of_memory_are_told_as_far_as_they_are_known() -> None:
    areas = areas_of(Configuration.from_dict({"taskmanager.memory.process.size": "1728m"}))
    assert areas is not None
    found = text(replace(job(), slots=SlotsDescription(4, 6, 2, 1), memory=areas.configured()))
    assert line_with(found, "slots") == ["slots", "6, of which the widest level needs 4"]
    ((_, memory),) = [line_with(found, "memory")]
    assert memory.startswith("of a task manager 1.7 GiB: framework heap 128.0 MiB, task heap 384.0 MiB, ")
    assert "python" not in memory
    assert memory.endswith("jvm overhead 192.0 MiB, flink 1.2 GiB (by taskmanager.memory.*)")


def test_what_is_not_known_of_slots_and_memory_has_no_line() -> None:
    found = text(replace(job(), slots=SlotsDescription(4)))
    assert not [line for line in found.splitlines() if line.strip().startswith(("slots", "memory"))]
    waits = text(replace(job(), slots=SlotsDescription(4, 0, note="waits for slots: needs 4, has 0")))
    assert line_with(waits, "slots") == ["slots", "waits for slots: needs 4, has 0"]
