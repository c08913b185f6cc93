"""What becomes of a checkpoint that cannot be begun, and of one that is begun when the job ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from flinkish.checkpoint.manifest import CheckpointDirectory
from flinkish.errors import FlinkishError, OperationError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager import checkpoint_taker
from flinkish.jobmanager.checkpoint_taker import CheckpointTaker
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job.settings import CheckpointSettings
from flinkish.runtime.phases import ManualClock
from tests.support.processes import wait_until
from tests.support.spark_groups import GroupsOfJobs

TIMEOUT_S = 60


class Taken:
    """The checkpoints of a run without a query and without Spark."""

    def __init__(self, folder: Path, tolerable_failures: int = 0) -> None:
        self.failures: list[FlinkishError] = []
        self.attempt: Any = SimpleNamespace(fail=self.failures.append)
        run: Any = SimpleNamespace(
            name="shop",
            directory=JobDirectory(str(folder / "job")),
            checkpoint_ended=lambda description: None,
            attempt=self.attempt,
            spark=None,
            warnings={},
        )
        settings = CheckpointSettings(interval_ms=1_000, tolerable_failures=tolerable_failures, incremental=False)
        directory = CheckpointDirectory(str(folder / "checkpoints"))
        self.taker = CheckpointTaker(run, settings, directory, ManualClock(1_000_000))

    def take(self) -> None:
        self.taker.take(self.attempt, 7)


def test_checkpoints_that_cannot_be_begun_fail_the_job_like_others(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    taken = Taken(tmp_path, tolerable_failures=1)
    taken.take()
    assert (taken.failures, taken.taker.coordinator.due_in_ms()) == ([], 1_000)
    taken.take()
    (failure,) = taken.failures
    assert "2 checkpoints in a row failed" in str(failure) and "/checkpoints" in str(failure)


def before(trigger: Callable[..., CheckpointDescription], close: Callable[[], None], *of: Any) -> CheckpointDescription:
    close()
    return trigger(*of)


def after(trigger: Callable[..., CheckpointDescription], close: Callable[[], None], *of: Any) -> CheckpointDescription:
    pending = trigger(*of)
    close()
    return pending


@pytest.mark.parametrize("end", [before, after])
def test_a_checkpoint_that_is_begun_when_the_job_ends_is_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[..., CheckpointDescription]
) -> None:
    taken = Taken(tmp_path)
    taker, trigger = taken.taker, taken.taker.coordinator.trigger
    monkeypatch.setattr(taker.coordinator, "trigger", lambda *of: end(trigger, taker.close, *of))
    taken.take()
    (failed,) = taker.describe()
    assert (failed.status, failed.failure_reason) == ("FAILED", "the job has ended")
    assert taken.failures == []


def test_the_spark_jobs_of_a_checkpoint_end_with_it_and_those_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*of: Any) -> NoReturn:
        raise OperationError("the disk is full")

    def close(*of: Any) -> NoReturn:
        taken.taker.close()
        wait_until(lambda: bool(session.cancelled), TIMEOUT_S, "the Spark jobs to be ended")
        raise OperationError("a Spark job was cancelled")

    taken, session, writer = Taken(tmp_path, tolerable_failures=1), GroupsOfJobs(), SimpleNamespace(write=refuse)
    monkeypatch.setattr(checkpoint_taker, "own_session", lambda spark: session)
    monkeypatch.setattr(checkpoint_taker, "CheckpointWriter", lambda *of: writer)
    taken.take()
    writer.write = close
    taken.take()
    before_it, its_own = session.begun
    assert before_it != its_own and set(session.cancelled) == {its_own}
    assert session.properties["spark.jobGroup.id"] is None
