"""Under Spark Connect, stops and reports are files: what an attempt finds of those that earlier ones have left."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import CheckpointError
from flinkish.jobmanager.attempt import query_attempt
from flinkish.jobmanager.attempt.query_attempt import AttemptPlan, QueryAttempt
from flinkish.jobmanager.attempt.remote_reports import STOP_FILE, report_file
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.epoch_report import EpochReport
from flinkish.spark.plan import PlanOptions

JOB = JobDescriptor("0" * 32, "job", (), ())


class Attempt(QueryAttempt):
    """Its queries only look for the file."""

    told_to_stop = False

    def _run_queries(self) -> None:
        self.told_to_stop = self.directory.read(STOP_FILE) is not None
        if self._failure is not None:
            raise self._failure


def attempt(path: Path, stop: threading.Event, observer: Any = None) -> Attempt:
    directory = JobDirectory(str(path))
    directory.claim("job")
    nothing: Any = None
    made = Attempt(nothing, AttemptPlan(JOB, {}, PlanOptions()), nothing, directory, observer, stop)
    directory.release()
    return made


@pytest.fixture(autouse=True)
def _connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_attempt, "is_remote", lambda spark: True)


def test_an_attempt_runs_though_the_one_before_had_to_fail(tmp_path: Path) -> None:
    stop = threading.Event()
    first = attempt(tmp_path, stop)
    first.fail(CheckpointError("too many checkpoints have failed"))
    assert (tmp_path / STOP_FILE).exists()
    second = attempt(tmp_path, stop)
    second.run()
    assert not second.told_to_stop


def test_an_attempt_that_begins_after_a_stop_was_asked_for_is_told_so(tmp_path: Path) -> None:
    stop = threading.Event()
    made = attempt(tmp_path, stop)
    stop.set()
    made.run()
    assert made.told_to_stop


class Observer:
    """Remembers the epochs that it is told of."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def epoch_done(self, report: EpochReport) -> None:
        self.epochs.append(report.epoch)


def test_reports_of_committed_epochs_that_nobody_has_taken_are_taken_though_nothing_more_runs(tmp_path: Path) -> None:
    directory, observer = JobDirectory(str(tmp_path)), Observer()
    for epoch in (6, 7, 8):
        report = EpochReport(epoch, 0, 1, 1, None, end_of_input=False)
        directory.write(report_file(epoch), {"report": report.to_json(), "for_driver": []})
    (tmp_path / "spark" / "commits").mkdir(parents=True)
    attempt(tmp_path, threading.Event(), observer).run()
    assert observer.epochs == []
    (tmp_path / "spark" / "commits" / "7").write_text("v1\n{}")
    attempt(tmp_path, threading.Event(), observer).run()
    assert observer.epochs == [6, 7]
    assert directory.names("report-", ".json") == [report_file(8)]
