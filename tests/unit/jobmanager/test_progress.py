"""The line of progress: on a terminal, in a log, and when nobody is there to see it."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any

import pytest

from flinkish.common.job_status import JobStatus
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import NumberSequenceSource
from flinkish.errors import ConfigurationError, OperationError
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.progress import NoProgress, ProgressLine, progress_for, watermark_text
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.task.progress import EpochProgress

JOB = JobDescriptor("00" * 16, "clicks", (), ())
START_MS = 1_700_000_000_000


def epoch(
    number: int, records_in: int = 0, records_out: int = 0, watermark_ms: int | None = None, **more: Any
) -> EpochReport:
    return EpochReport(number, START_MS, records_in, records_out, watermark_ms, **{"end_of_input": False, **more})


class Screen(StringIO):
    """What is to be seen on a terminal: the last state of each line."""

    def lines(self) -> list[str]:
        seen = []
        for line in self.getvalue().split("\n"):
            cells = ""
            for drawn in line.split("\r"):
                cells = drawn + cells[len(drawn) :]
            seen.append(cells.rstrip())
        return seen


class Watch:
    """A progress line with its clock and its output."""

    def __init__(self, renewing: bool, columns: int = 200) -> None:
        self.clock = ManualClock(START_MS)
        self.screen = Screen()
        self.checkpoints: list[CheckpointDescription] = []
        self.line = ProgressLine(
            JOB,
            self.screen,
            self.clock,
            renewing,
            columns,
            lambda: "log /l, job directory /j",
            lambda: self.checkpoints,
        )

    def epoch(self, after_ms: int, report: EpochReport) -> None:
        self.clock.advance(after_ms)
        self.line.epoch_done(report)

    def running(self, after_ms: int, number: int, running_ms: int, records_in: int, records_out: int = 0) -> None:
        self.clock.advance(after_ms)
        self.line.epoch_running(EpochProgress(number, running_ms, records_in, records_out, START_MS + 1, ()))


@pytest.fixture
def log() -> Watch:
    return Watch(renewing=False)


@pytest.fixture
def terminal() -> Watch:
    return Watch(renewing=True)


@pytest.mark.parametrize(
    ("after_ms", "report", "shown"),
    [
        (
            1_000,
            epoch(0, 50_000, 1_000, START_MS + 123, duration_ms=840),
            "clicks: epoch 0 at 22:13:21Z took 0.8 s | in 50,000 | out 1,000 | 50,000/s"
            " | watermark 2023-11-14T22:13:20.123Z | lag 0.9 s",
        ),
        # with the end of all input there is no watermark to wait for
        (1_000, epoch(0, 6, 5, end_of_input=True), " | out 5 | 6/s | end of input"),
        (0, epoch(0, 5), "| out 0 | 5,000/s | watermark none"),
    ],
)
def test_a_line_says_epoch_time_duration_records_in_and_out_rate_watermark_and_lag(
    log: Watch, after_ms: int, report: EpochReport, shown: str
) -> None:
    log.epoch(after_ms, report)
    assert log.screen.lines()[0].endswith(shown)


def source_task(vertex: int, behind_ms: int | None = None, **left: Any) -> TaskReport:
    """The report of a task that has read a record ``behind_ms`` before its epoch."""
    newest_ms = None if behind_ms is None else START_MS - behind_ms
    return TaskReport(vertex, 0, processing_time_ms=START_MS, newest_ms=newest_ms, **left)


@pytest.mark.parametrize(
    ("tasks", "shown"),
    [
        ([source_task(0, backlog=1_200), source_task(1, backlog=34)], "backlog 1,234"),
        ([source_task(0, 7_200_000, backlog=1_200), source_task(1, 500, backlog=34)], "backlog 1,234 (2 h)"),
        ([source_task(2, backlog_splits=1_500)], "backlog 1,500 files"),
        ([source_task(1, 1_500, backlog=34), source_task(2, backlog_splits=3)], "backlog 34, 3 files (1.5 s)"),
        ([source_task(0, 7_200_000), source_task(1, 500, backlog=3)], "backlog 3 (0.5 s)"),
        ([source_task(0, 7_200_000)], "watermark none"),
    ],
)
def test_what_an_epoch_has_left_is_shown_as_the_backlog_with_its_age(tasks: list[TaskReport], shown: str) -> None:
    sources: list[Any] = [NumberSequenceSource(0, 9), NumberSequenceSource(0, 9), FileSource.text("/in")]
    heads = [(OperatorDescriptor(f"uid-{n}", "name", None),) for n in range(3)]  # type: ignore[arg-type]
    vertices = (VertexDescriptor(n, "name", 0, heads[n], 1, 1, source=source) for n, source in enumerate(sources))
    job = JobDescriptor("00" * 16, "clicks", tuple(vertices), ())
    line = ProgressLine(job, screen := Screen(), ManualClock(START_MS), False)
    line.epoch_done(epoch(0, tasks=tuple(tasks)))
    assert screen.lines()[0].split(" | ", 4)[-1].removeprefix("watermark none | ") == shown


def test_the_first_line_says_where_to_look_and_comes_once(log: Watch, terminal: Watch) -> None:
    for watch in (log, terminal):
        watch.line.attempt_started(0)
        watch.line.attempt_failed(OperationError("the broker is away"), 10)
        watch.line.attempt_started(1)
        watch.epoch(1_000, epoch(0))
        assert watch.screen.lines()[:2] == [
            "clicks: log /l, job directory /j",
            "clicks: epoch 0 at 22:13:21Z took 0.0 s | in 0 | out 0 | 0/s | watermark none | restarts 1",
        ]


@pytest.mark.parametrize(
    ("statuses", "shown"),
    [
        ([], []),
        (["PENDING"], ["checkpoint none"]),
        (["FAILED"], ["checkpoint none"]),
        (["COMPLETED", "FAILED", "PENDING"], ["checkpoint 1, 4 min ago"]),
        (["COMPLETED", "COMPLETED"], ["checkpoint 2, 4 min ago"]),
    ],
)
def test_the_last_completed_checkpoint_is_shown_with_its_age(log: Watch, statuses: list[str], shown: list[str]) -> None:
    log.checkpoints += [
        CheckpointDescription(number, 0, status, START_MS, 60_000) for number, status in enumerate(statuses, 1)
    ]
    log.epoch(300_000, epoch(0))
    assert log.screen.lines()[0].split(" | ")[5:] == shown


def test_a_split_that_holds_the_watermark_back_is_named() -> None:
    source = VertexDescriptor(0, "Source: clicks", 0, (OperatorDescriptor("u", "Source: clicks", None),), 1, 1)  # type: ignore[arg-type]
    line = ProgressLine(JobDescriptor("00" * 16, "clicks", (source,), ()), screen := Screen(), ManualClock(0), False)
    for silent, shown in (
        ({"0/clicks-3": 31_000}, "watermark none, held back by clicks-3 of Source: clicks"),
        ({"0/clicks-3": 31_000, "0/clicks-4": 1}, "watermark none, held back by clicks-3 of Source: clicks and 1 more"),
    ):
        line.epoch_done(epoch(0, tasks=(TaskReport(1, 0, silent_splits=silent),)))
        line.job_done(JobStatus.FINISHED)
        assert screen.lines()[-3].split(" | ")[-1] == shown


def test_an_epoch_whose_commit_was_interrupted_counts_once_and_a_restart_without_an_attempt_counts_too(
    log: Watch,
) -> None:
    log.epoch(1_000, epoch(0, 110, 7))
    log.line.attempt_failed(OperationError("the database is away"), 10)
    log.line.attempt_failed(OperationError("there is no plan for the next attempt"), 10)
    log.line.attempt_started(1)
    log.epoch(3_000, epoch(0, 110, 7))
    log.epoch(3_000, epoch(1, 10, 1))
    log.line.job_done(JobStatus.FINISHED)
    assert "restarts 2" in log.screen.lines()[2]
    assert log.screen.lines()[-2].endswith("records in 120, out 8")


def test_records_are_those_of_the_run_and_the_rate_is_that_of_the_last_ten_seconds(log: Watch) -> None:
    log.epoch(10_000, epoch(0, 10_000, 10))
    log.epoch(10_000, epoch(1, 500_000, 10))
    log.epoch(10_000, epoch(2, 200_000, 10))
    assert [line.split(" | ")[1:4] for line in log.screen.lines()[:3]] == [
        ["in 10,000", "out 10", "1,000/s"],
        ["in 510,000", "out 20", "50,000/s"],
        ["in 710,000", "out 30", "20,000/s"],
    ]


def test_a_running_epoch_is_shown_with_its_records_apart_from_those_that_are_committed_and_the_last_watermark(
    log: Watch,
) -> None:
    log.running(5_000, 0, 5_000, 2_000)
    log.epoch(5_000, epoch(0, 4_000, 100, START_MS))
    log.running(30_000, 1, 20_000, 1_000_000, 2_500)
    assert log.screen.lines()[:-1] == [
        "clicks: epoch 0 at 22:13:25Z running for 5 s | in 0 + 2,000 | out 0 + 0 | 400/s | watermark none",
        "clicks: epoch 0 at 22:13:30Z took 0.0 s | in 4,000 | out 100 | 400/s"
        " | watermark 2023-11-14T22:13:20.000Z | lag 10 s",
        "clicks: epoch 1 at 22:14:00Z running for 20 s | in 4,000 + 1,000,000 | out 100 + 2,500 | 50,000/s"
        " | watermark 2023-11-14T22:13:20.000Z | lag 40 s",
    ]


def test_lines_of_a_running_epoch_come_at_most_every_two_seconds_and_renew_themselves_on_a_terminal(
    log: Watch, terminal: Watch
) -> None:
    for second in range(10):
        log.running(1_000, 0, second * 1_000, second)
        terminal.running(1_000, 0, second * 1_000, second)
    assert [line.split(" | ")[1] for line in log.screen.lines()[:-1]] == [f"in 0 + {n}" for n in (0, 2, 4, 6, 8)]
    assert [line.split(" | ")[1] for line in terminal.screen.lines()] == ["in 0 + 9"]


def test_the_last_epoch_is_shown_once_however_young_the_line_before_it_when_the_job_ends(log: Watch) -> None:
    log.epoch(1_000, epoch(0, 1, 1))
    log.epoch(100, epoch(1, 1, 1))
    log.line.job_done(JobStatus.FINISHED)
    lines = log.screen.lines()
    assert " took 0.0 s | in 2 |" in lines[1]
    assert lines[2:] == ["clicks: finished after 2 epochs and 1.1 s, records in 2, out 2", ""]
    again = Watch(renewing=False)
    again.epoch(1_000, epoch(0, 1, 1))
    again.line.job_done(JobStatus.CANCELED)
    assert again.screen.lines()[1:] == ["clicks: canceled after 1 epoch and 1.0 s, records in 1, out 1", ""]


def test_on_a_terminal_one_line_renews_itself(terminal: Watch) -> None:
    terminal.epoch(1_000, epoch(0, 1_000_000, 1, START_MS))
    terminal.epoch(1_000, epoch(1, 1, 1))
    assert terminal.screen.lines() == [
        "clicks: epoch 1 at 22:13:22Z took 0.0 s | in 1,000,001 | out 2 | 500,000/s | watermark none"
    ]
    terminal.line.job_done(JobStatus.FINISHED)
    assert len(terminal.screen.lines()) == 3


def test_quick_epochs_are_drawn_ten_times_a_second_on_a_terminal_and_each_two_seconds_in_a_log(
    log: Watch, terminal: Watch
) -> None:
    for number in range(100):
        terminal.epoch(10, epoch(number))
    assert terminal.screen.getvalue().count("\r") == 10
    terminal.line.job_done(JobStatus.FINISHED)
    assert terminal.screen.lines()[0].startswith("clicks: epoch 99 at"), "the last one always"
    for number in range(50):
        log.epoch(100, epoch(number, 1))
    assert [line.split(" at ")[0] for line in log.screen.lines()[:-1]] == [f"clicks: epoch {n}" for n in (0, 20, 40)]


def test_a_line_never_wraps() -> None:
    narrow = Watch(renewing=True, columns=20)
    narrow.epoch(1_000, epoch(0, 1_000_000))
    assert narrow.screen.lines() == ["clicks: epoch 0 at"]


def test_a_job_without_epochs_says_how_it_ended(terminal: Watch) -> None:
    terminal.line.job_done(JobStatus.FAILED)
    assert terminal.screen.lines() == ["clicks: failed after 0 epochs and 0.0 s, records in 0, out 0", ""]


def test_a_terminal_that_has_gone_does_not_disturb_the_job() -> None:
    class Broken(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for stream in (Broken(), StringIO()):
        if not isinstance(stream, Broken):
            stream.close()
        line = ProgressLine(JOB, stream, ManualClock(), renewing=False)
        line.epoch_done(epoch(0))
        line.job_done(JobStatus.FINISHED)


def test_watermarks_out_of_the_calendar_are_shown_as_numbers() -> None:
    assert watermark_text(2**62) == f"{2**62} ms"
    assert watermark_text(-1) == "1969-12-31T23:59:59.999Z"
    assert watermark_text(None) == "none"


def test_progress_goes_to_stderr_and_is_switched_by_its_mode(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLINKISH_PROGRESS", raising=False)
    assert isinstance(progress_for("never", JOB), NoProgress)
    assert isinstance(progress_for("auto", JOB), NoProgress), "inside pytest"
    progress_for("always", JOB).job_done(JobStatus.FINISHED)
    out, err = capsys.readouterr()
    assert (out, err[:16]) == ("", "clicks: finished")
    monkeypatch.setenv("FLINKISH_PROGRESS", "always")
    assert isinstance(progress_for("auto", JOB), ProgressLine)
    monkeypatch.setenv("FLINKISH_PROGRESS", "never")
    assert isinstance(progress_for("auto", JOB), NoProgress)
    monkeypatch.setenv("FLINKISH_PROGRESS", "perhaps")
    with pytest.raises(ConfigurationError, match="FLINKISH_PROGRESS=perhaps.*always or never"):
        progress_for("auto", JOB)
    assert isinstance(progress_for("always", JOB), ProgressLine), "what the program says wins"
    monkeypatch.delenv("FLINKISH_PROGRESS")
    monkeypatch.delitem(sys.modules, "pytest")
    assert isinstance(progress_for("auto", JOB), ProgressLine), "outside of tests"


def test_a_clock_that_is_set_back_neither_silences_the_line_nor_spoils_its_rate(log: Watch) -> None:
    log.epoch(1_000, epoch(0, 10))
    log.epoch(-3_600_000, epoch(1, 10))
    log.epoch(2_000, epoch(2, 10))
    assert [line.split(" at ")[0] for line in log.screen.lines() if line] == [
        "clicks: epoch 0",
        "clicks: epoch 1",
        "clicks: epoch 2",
    ]
    assert "| 5/s |" in log.screen.lines()[2]
