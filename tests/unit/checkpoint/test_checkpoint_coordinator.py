"""When checkpoints are taken and what follows from those that fail, by a clock that moves when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from flinkish.checkpoint.coordinator import MAX_DESCRIPTIONS, CheckpointCoordinator
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import CheckpointError
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job.settings import CheckpointSettings, checkpoint_settings
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
