"""What an attempt finds of what earlier ones have left: in the sinks, and under Spark Connect as files of stops and
reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.common import Configuration
from flinkish.common.job_status import JobStatus
from flinkish.core.sink import CommitContext, Committer
from flinkish.errors import CheckpointError, FinalOperationError
from flinkish.jobdir.connect_server import ServerReport
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.query import Traces, read_traces
from flinkish.jobmanager import attempt as query_attempt
from flinkish.jobmanager.attempt import AttemptPlan, QueryAttempt
from flinkish.jobmanager.epoch_gate import StateReaders
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.query_inputs import QueryRun, check_committed
from flinkish.jobmanager.wishes import Wishes
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor, SinkDescriptor
from flinkish.spark.plan import PlanOptions
from flinkish.testing import TestingSink
from tests.support.job_files import get, names

JOB = JobDescriptor("0" * 32, "job", (), ())


class Ended:
    """A query that has ended."""

    isActive = False

    def awaitTermination(self, timeout_s: float | None = None) -> bool:
        return True


class Attempt(QueryAttempt):
    """Its query only looks for the file, and ends."""

    told_to_stop = False

    def _runs(self) -> list[QueryRun]:
        return [QueryRun(PlanOptions(), False, 0)]

    def _start(self, run: Any, deployment: Any) -> Any:
        self.told_to_stop = bool(get(self.directory, "stop.json"))
        if self._failure is not None:
            raise self._failure
        return Ended()


class Observer(JobObserver):
    """Remembers the epochs that it is told of."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def epoch_done(self, report: EpochReport) -> None:
        self.epochs.append(report.epoch)


def attempt(path: Path, wishes: Wishes, observer: JobObserver | None = None) -> Attempt:
    directory = JobDirectory(str(path))
    directory.claim("job")
    nothing: Any = None
    plan, settings = AttemptPlan(JOB, {}, PlanOptions()), driver_settings(Configuration())
    made = Attempt(nothing, plan, settings, directory, observer or Observer(), wishes, StateReaders())
    directory.release()
    return made


def run(attempt: QueryAttempt) -> None:
    """Run all queries of an attempt."""
    attempt.begin()
    while attempt.has_more_queries:
        attempt.run_query()
    attempt.close()


@pytest.fixture(autouse=True)
def _connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_attempt, "is_remote", lambda spark: True)
    monkeypatch.setattr(query_attempt, "deploy", lambda *_: SimpleNamespace(secret="", version="0-00000000"))
    monkeypatch.setattr(query_attempt, "check_end", lambda *_: None)
    monkeypatch.setattr(query_attempt, "check_query", lambda *_: Traces((), ()))
    for name in ("epochs_that_do_not_run", "numbers_announced"):
        monkeypatch.setattr(query_attempt, name, lambda *_: nullcontext())


def test_an_attempt_runs_though_the_one_before_had_to_fail(tmp_path: Path) -> None:
    wishes = Wishes()
    first = attempt(tmp_path, wishes)
    first.fail(CheckpointError("too many checkpoints have failed"))
    assert (tmp_path / "stop.json").exists()
    second = attempt(tmp_path, wishes)
    run(second)
    assert not second.told_to_stop


def test_an_attempt_that_begins_after_a_stop_was_asked_for_is_told_so(tmp_path: Path) -> None:
    wishes = Wishes()
    made = attempt(tmp_path, wishes)
    wishes.ask(JobStatus.FINISHED)
    run(made)
    assert made.told_to_stop


def test_reports_of_committed_epochs_that_nobody_has_taken_are_taken_though_nothing_more_runs(tmp_path: Path) -> None:
    directory, observer = JobDirectory(str(tmp_path)), Observer()
    for epoch in (6, 7, 8):
        report = EpochReport(epoch, 0, 1, 1, None, end_of_input=False)
        directory.write(ServerReport(report.stored(), []), epoch)
    (tmp_path / "spark" / "commits").mkdir(parents=True)
    run(attempt(tmp_path, Wishes(), observer))
    assert observer.epochs == []
    (tmp_path / "spark" / "commits" / "7").write_text("v1\n{}")
    run(attempt(tmp_path, Wishes(), observer))
    assert observer.epochs == [6, 7]
    assert names(directory, "report-") == [f"report-{8:010d}.json"]


class Remembering(TestingSink):
    """A sink whose destination has an epoch; it counts how often it was asked."""

    asked = 0

    def create_committer(self) -> Committer:
        return _Remembering(self)


class _Remembering(Committer):
    def __init__(self, sink: Remembering) -> None:
        self._sink = sink

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        raise NotImplementedError

    def last_committed_epoch(self, context: CommitContext) -> int | None:
        self._sink.asked += 1
        return 7


@pytest.mark.parametrize(
    ("left", "first_epoch", "refused_at"),
    [
        ([], 0, 0),
        (["commits/6", "offsets/6"], 0, 7),
        (["commits/5", "offsets/5", "offsets/6"], 0, 6),
        (["commits/7", "offsets/7"], 0, None),
        (["commits/6", "offsets/6", "offsets/7", "prepared/7.json"], 0, None),
        (["commits/2", "offsets/2"], 4, 7),
        (["commits/3", "offsets/3"], 4, None),
        ([], 8, None),
    ],
    ids=[
        "nothing was planned",
        "committed up to 6",
        "6 is planned only",
        "committed up to 7",
        "7 is prepared",
        "a later query",
        "a later query that knows 7",
        "a query that begins behind 7",
    ],
)
def test_a_directory_that_does_not_know_the_last_epoch_of_a_sink_is_refused_before_a_query_starts(
    tmp_path: Path, left: list[str], first_epoch: int, refused_at: int | None
) -> None:
    directory, sink = JobDirectory(str(tmp_path)), Remembering()
    directory.move_query("spark", first_epoch)
    for name in left:
        (tmp_path / "spark" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "spark" / name).touch()
    job = replace(JOB, sinks=(SinkDescriptor(0, "out", "out", sink, 1),))
    delivered = read_traces(directory.query_location()).last_delivered
    check_committed(None, job, directory, delivered)
    assert sink.asked == 0, "the job is started for the first time"
    job = replace(job, attempt=1)
    for _ in range(2):
        if refused_at is None:
            check_committed(None, job, directory, delivered)
        else:
            with pytest.raises(
                FinalOperationError, match=f"has epoch 7 of this job already, and the job is at epoch {refused_at} only"
            ):
                check_committed(None, job, directory, delivered)
    assert sink.asked == (1 if refused_at is None else 2), "a driver that was answered does not ask again"
