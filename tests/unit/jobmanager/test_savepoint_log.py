"""Savepoints among the checkpoints of a job: they are described and told to its history, whatever becomes of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.checkpoint.coordinator import MAX_DESCRIPTIONS, SavepointLog
from flinkish.common.job_id import JobID
from flinkish.errors import OperationError
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job_record import describe_checkpoints
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.savepoint import take_savepoint
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ManualClock


class Log:
    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.told: list[CheckpointDescription] = []
        self.log = SavepointLog(self.told.append, self.clock)


def test_a_savepoint_is_pending_and_then_completed_with_what_is_known_of_it() -> None:
    log = Log()
    with log.log.taking(7, "/savepoints/savepoint-1") as learned:
        assert [(one.status, one.path, one.duration_ms) for one in log.log.describe()] == [
            ("PENDING", "/savepoints/savepoint-1", None)
        ]
        assert log.told == []
        log.clock.advance(250)
        learned(rows_written=3, offsets={"numbers": "10"})
    (done,) = log.told
    assert log.log.describe() == (done,)
    assert done == CheckpointDescription(
        *(1, 7, "COMPLETED", 1_000_000, 250, True),
        path="/savepoints/savepoint-1",
        rows_written=3,
        offsets={"numbers": "10"},
    )
    described = describe_checkpoints((), log.log.describe())
    assert (described.latest_savepoint, described.latest_completed) == (done, None)
    assert described.counts == {"COMPLETED": 1, "savepoints": 1}


def test_two_savepoints_at_a_time_are_two() -> None:
    log = Log()
    with log.log.taking(7, "/first"):
        with pytest.raises(OSError), log.log.taking(8, "/second"):
            raise OSError("no space")
        assert [one.status for one in log.log.describe()] == ["PENDING", "FAILED"]
    assert [(one.id, one.path) for one in log.told] == [(2, None), (1, "/first")]


def test_the_last_hundred_savepoints_are_remembered() -> None:
    log = Log()
    for epoch in range(MAX_DESCRIPTIONS + 5):
        with log.log.taking(epoch, "/savepoint"):
            pass
    assert [one.epoch for one in log.log.describe()] == list(range(5, MAX_DESCRIPTIONS + 5))
    assert len(log.told) == MAX_DESCRIPTIONS + 5


def test_a_savepoint_that_cannot_be_written_is_told_with_its_epoch_and_its_reason(tmp_path: Path) -> None:
    def write(epoch: int, path: str) -> Any:
        raise OperationError(f"the log of epoch {epoch} is gone")

    told: list[CheckpointDescription] = []
    run: Any = JobRun(JobID(), "clicks")
    run.history = SimpleNamespace(checkpoint=told.append)
    run.job, run.committed_epoch, run.write_savepoint = JobDescriptor("ab" * 16, "clicks", (), ()), lambda: 7, write
    with pytest.raises(OperationError, match="the log of epoch 7 is gone"):
        take_savepoint(run, str(tmp_path))
    (failed,) = told
    assert run.savepoints.describe() == (failed,)
    assert (failed.epoch, failed.status, failed.is_savepoint, failed.path) == (7, "FAILED", True, None)
    assert failed.failure_reason is not None and "the log of epoch 7 is gone" in failed.failure_reason
    assert list(tmp_path.iterdir()) == []
