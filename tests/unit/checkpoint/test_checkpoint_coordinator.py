"""When checkpoints are taken and what follows from those that fail, by a clock that moves when it is told to; and
savepoints, which stand among them, described and told to the history of the job, whatever becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.checkpoint.coordinator import (
    MAX_DESCRIPTIONS,
    MAX_DETAILED,
    Barriers,
    CheckpointCoordinator,
    SavepointLog,
)
from flinkish.common import Configuration
from flinkish.common.job_id import JobID
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import CheckpointError, OperationError
from flinkish.jobdir.layout import TotalsDescription
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job.settings import CheckpointSettings, checkpoint_settings
from flinkish.jobmanager.job_record import describe_checkpoints
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.savepoint import take_savepoint
from flinkish.runtime.epoch.steps import sum_up
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.phases import ManualClock


class Coordinated:
    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(1_000_000)
        self.ended: list[CheckpointDescription] = []
        numbers: Iterator[int] = count(7)
        self.coordinator = CheckpointCoordinator(
            CheckpointSettings(**{"interval_ms": 1_000, **settings}),
            "job 'a'",
            lambda: next(numbers),
            self.clock,
            self.ended.append,
        )

    def take(self, epoch: int = 0, takes_ms: int = 10) -> None:
        self.coordinator.trigger(epoch)
        self.clock.advance(takes_ms)

    def fail(self, reason: str = "no", counts: bool = True) -> CheckpointError | None:
        self.take()
        return self.coordinator.fail(reason, counts)


def test_a_checkpoint_is_due_an_interval_after_the_last_trigger() -> None:
    assert Coordinated(interval_ms=None).coordinator.due_in_ms() is None
    c = Coordinated()
    assert c.coordinator.due_in_ms() == 1_000
    c.clock.advance(1_500)
    assert c.coordinator.due_in_ms() == 0
    c.take(takes_ms=300)
    assert c.coordinator.due_in_ms() is None
    c.coordinator.complete()
    assert c.coordinator.due_in_ms() == 700


def test_the_pause_counts_from_the_end_of_the_last_one_whatever_became_of_it() -> None:
    c = Coordinated(min_pause_ms=2_000, tolerable_failures=1)
    c.take(takes_ms=900)
    c.coordinator.fail("no")
    assert c.coordinator.due_in_ms() == 2_000


def test_a_clock_that_is_put_back_does_not_put_checkpoints_off() -> None:
    c = Coordinated()
    c.take()
    c.coordinator.complete()
    c.clock.advance(-3_600_000)
    assert c.coordinator.due_in_ms() == 0
    c.take(takes_ms=-50)
    assert c.coordinator.complete().duration_ms == 0


def test_the_job_fails_with_one_failure_in_a_row_more_than_it_tolerates() -> None:
    c = Coordinated(tolerable_failures=2)
    assert c.fail() is None and c.fail() is None
    c.take()
    c.coordinator.complete()
    assert c.fail() is None and c.fail() is None
    error = c.fail("the disk is full")
    assert error is not None and error.retryable
    assert "3 checkpoints in a row failed, the last one with: the disk is full [job 'a']" in str(error)
    # the job is restarted, and counting begins anew
    assert c.fail() is None
    # what is given up because the job ends does not count
    strict = Coordinated()
    assert strict.fail("the job has ended", counts=False) is None
    assert strict.ended[-1].status == "FAILED"


def test_a_checkpoint_that_could_not_be_triggered_counts_and_the_next_is_due_an_interval_later() -> None:
    c = Coordinated(tolerable_failures=1)
    c.clock.advance(1_500)
    assert c.coordinator.fail("the storage is away") is None
    assert c.coordinator.due_in_ms() == 1_000
    error = c.coordinator.fail("the storage is away")
    assert error is not None and "2 checkpoints in a row failed" in str(error)
    assert c.coordinator.describe() == (), "it has got no number"


def test_each_checkpoint_is_told_once_with_its_number_times_and_reason() -> None:
    c = Coordinated(tolerable_failures=1)
    c.coordinator.trigger(3, lambda number: f"/checkpoints/chk-{number}")
    assert [d.status for d in c.coordinator.describe()] == ["PENDING"]
    c.clock.advance(25)
    c.coordinator.complete()
    c.fail("no space")
    first, second = c.ended
    assert (first.id, first.epoch, first.status, first.trigger_time_ms, first.duration_ms, first.path) == (
        7, 3, "COMPLETED", 1_000_000, 25, "/checkpoints/chk-7",
    )  # fmt: skip
    assert (second.id, second.status, second.failure_reason, second.path) == (8, "FAILED", "no space", None)
    assert c.coordinator.describe() == (first, second)


def test_the_last_hundred_are_remembered() -> None:
    c = Coordinated()
    for epoch in range(MAX_DESCRIPTIONS + 5):
        c.take(epoch)
        c.coordinator.complete()
    assert [d.epoch for d in c.coordinator.describe()] == list(range(5, MAX_DESCRIPTIONS + 5))


def test_every_setting_of_checkpoints_is_read() -> None:
    values = {
        "interval": "10 s",
        "timeout": "1 min",
        "min-pause": "2 s",
        "max-concurrent-checkpoints": "3",
        "tolerable-failed-checkpoints": "4",
        "num-retained": "5",
        "dir": "/checkpoints",
        "incremental": "false",
        "externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    found = checkpoint_settings(
        Configuration.from_dict({f"execution.checkpointing.{key}": value for key, value in values.items()})
    )
    assert found == CheckpointSettings(10_000, 60_000, 2_000, 3, 4, 5, "/checkpoints", False, True)
    assert not found.changelog


@pytest.mark.parametrize(
    ("settings", "interval_ms"),
    [
        ({}, None),
        ({"flinkish.job.dir": "/data/job"}, 60_000),
        ({"flinkish.job.dir": "/data/job", "execution.checkpointing.interval": "5 s"}, 5_000),
        ({"flinkish.job.dir": "/data/job", "execution.checkpointing.interval": "0"}, None),
        ({"execution.checkpointing.interval": "5 s"}, 5_000),
    ],
)
def test_a_job_with_a_directory_has_a_checkpoint_each_minute_unless_it_is_told_otherwise(
    settings: dict[str, str], interval_ms: int | None
) -> None:
    configuration = Configuration.from_dict(settings)
    found = checkpoint_settings(configuration)
    assert (found.interval_ms, found.changelog) == (interval_ms, interval_ms is not None), "incremental by itself"
    config = StreamExecutionEnvironment.get_execution_environment(configuration).get_checkpoint_config()
    assert config.get_checkpoint_interval() == (interval_ms or -1)
    assert config.is_checkpointing_enabled() == (interval_ms is not None)


def test_the_sizes_of_subtasks_are_known_of_the_last_ten_alone() -> None:
    ended = list[CheckpointDescription]()
    numbers = count(1)
    coordinator = CheckpointCoordinator(CheckpointSettings(), "job", numbers.__next__, ManualClock(), ended.append)
    log = SavepointLog(ended.append, ManualClock(), numbers.__next__)
    for epoch in range(MAX_DETAILED + 3):
        pending = coordinator.trigger(epoch)
        coordinator.update(replace(pending, subtask_state_bytes={"sums": (epoch, 1)}))
        coordinator.complete()
        with log.taking(epoch, "/savepoint") as learned:
            learned(subtask_state_bytes={"sums": (epoch, 1)})
    for known in (coordinator.describe(), log.describe()):
        assert [one.subtask_state_bytes for one in known[:3]] == [{}] * 3
        assert [one.subtask_state_bytes["sums"][0] for one in known[3:]] == list(range(3, MAX_DETAILED + 3))


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
    described = describe_checkpoints((), log.log.describe(), TotalsDescription())
    assert (described.latest_savepoint, described.latest_completed) == (done, None)


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


def test_a_barrier_has_the_lowest_watermark_and_the_whole_state_of_each_vertex() -> None:
    no_factory: Any = None
    head = OperatorDescriptor("counts", "count", no_factory)
    job = JobDescriptor("ab" * 16, "clicks", (VertexDescriptor(0, "count", 1, (head,), 3, 128),), ())
    barriers = Barriers()
    tasks = [TaskReport(0, 0, watermark_ms=5, state_bytes=10), TaskReport(0, 1, watermark_ms=7, state_bytes=20)]
    barriers.add(job, sum_up(job, 1, 0, tasks, []))
    assert (barriers.of(1).watermarks, barriers.of(1).state_bytes) == ({"counts": 5}, {"counts": 30})
    # a task that has nothing to do in an epoch does not report
    barriers.add(job, sum_up(job, 2, 0, [TaskReport(0, 0, watermark_ms=9)], []))
    assert (barriers.of(2).watermarks, barriers.of(2).state_bytes) == ({"counts": 7}, {"counts": 30})
    assert barriers.of(1).watermarks == {"counts": 5}
