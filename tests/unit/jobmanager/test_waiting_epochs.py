"""Epochs wait for those who read the state of an earlier one, once they have been outrun."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from flinkish.checkpoint.manifest import CheckpointDirectory
from flinkish.errors import FencedError
from flinkish.jobdir.connect_server import EpochsWait
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobmanager import checkpoint_taker, giving_up, remote
from flinkish.jobmanager.checkpoint_taker import CheckpointTaker
from flinkish.jobmanager.epoch_gate import StateReaders, StopQuery
from flinkish.jobmanager.giving_up import RunningEpoch
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job.settings import CheckpointSettings
from flinkish.jobmanager.remote import ServerListener
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.task.task import RETAINED_EPOCHS
from tests.support.job_files import put
from tests.support.processes import wait_until
from tests.support.spark_groups import GroupsOfJobs

TIMEOUT_S = 30
MAY_FOLLOW = RETAINED_EPOCHS // 2


def test_the_epoch_after_those_that_may_follow_waits_for_all_who_read() -> None:
    changes: list[str | None] = []
    readers = StateReaders(lambda: changes.append(readers.described()))
    assert (readers.last_epoch, readers.described()) == (math.inf, None)
    with readers.reading("checkpoint 3", 20):
        assert readers.last_epoch == 20 + MAY_FOLLOW
        with readers.reading("a savepoint", 18):
            assert readers.last_epoch == 18 + MAY_FOLLOW
            assert readers.described() == "epochs from 24 on wait until a savepoint has read the state of epoch 18"
        assert readers.last_epoch == 20 + MAY_FOLLOW
    assert (readers.last_epoch, len(changes), changes[-1]) == (math.inf, 4, None)


def test_epochs_do_not_wait_any_longer_when_a_reader_fails() -> None:
    readers = StateReaders()
    with pytest.raises(OSError), readers.reading("a savepoint", 1):
        raise OSError
    assert readers.last_epoch == math.inf


def test_time_for_which_an_epoch_waits_is_not_time_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_up, "QueryLog", lambda path: SimpleNamespace(is_planned=lambda batch: True))
    settings: Any = SimpleNamespace(epoch_timeout_s=0.3)
    running, location = RunningEpoch("shop", settings, None), QueryLocation("/job/spark", 0)
    for last_epoch in (6.0, 6.0, math.inf):
        assert running.overdue(location, 6, last_epoch) is None
        time.sleep(0.2)
    assert "epoch 7 has not ended within 0.3 s" in str(running.overdue(location, 6, math.inf))


class Waiting:
    """An epoch in another process, which waits."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self.directory = JobDirectory(str(folder))
        self.directory.claim("shop")
        put(self.directory, "wait.json", {"token": token or self.directory.token, "last_epoch": 7})
        self.far = ServerListener(str(folder), self.directory.token, "shop")
        self.outcome: list[type[Exception] | None] = []
        self.thread = threading.Thread(target=self._begin, daemon=True)

    def _begin(self) -> None:
        try:
            self.far.before_epoch(8)
        except Exception as error:
            self.outcome.append(type(error))
        else:
            self.outcome.append(None)


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        (lambda directory: directory.delete(EpochsWait), None),
        (lambda directory: put(directory, "wait.json", {"token": directory.token, "last_epoch": 8}), None),
        (lambda directory: put(directory, "stop.json", {"stop": True}), StopQuery),
        (lambda directory: JobDirectory(directory.path).write_owner(), FencedError),
    ],
    ids=["the reader is done", "a later epoch is read", "stop", "another driver"],
)
def test_an_epoch_in_another_process_waits_for_what_the_driver_reads(
    then: Any, outcome: type[Exception] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "LOOK_S", 0.01)
    waiting = Waiting(tmp_path)
    waiting.far.before_epoch(7)
    waiting.thread.start()
    waiting.thread.join(0.2)
    assert waiting.outcome == []
    then(waiting.directory)
    wait_until(lambda: waiting.outcome == [outcome], TIMEOUT_S, "the epoch")


def test_an_epoch_does_not_wait_for_what_a_driver_before_has_read(tmp_path: Path) -> None:
    Waiting(tmp_path, token="of another driver").far.before_epoch(8)


def test_a_checkpoint_that_was_outrun_is_read_again_while_epochs_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, ended = list[tuple[int, float]](), list[CheckpointDescription]()

    def write(attempt: Any, pending: CheckpointDescription, *of: Any) -> CheckpointDescription:
        read.append((pending.epoch, readers.last_epoch))
        if len(read) == 1:
            taker.epoch_committed(7 + RETAINED_EPOCHS)
            raise Py4JError("the file of the state is not there")
        return pending

    readers, attempt = StateReaders(), SimpleNamespace(job=SimpleNamespace(name="shop"))
    writer = SimpleNamespace(write=write, clean=lambda *of: None, merge=lambda: None)
    monkeypatch.setattr(checkpoint_taker, "own_session", lambda spark: GroupsOfJobs())
    monkeypatch.setattr(checkpoint_taker, "CheckpointWriter", lambda *of: writer)
    run: Any = SimpleNamespace(
        name="shop",
        directory=JobDirectory(str(tmp_path / "job")),
        attempt=attempt,
        spark=None,
        checkpoint_ended=ended.append,
        warnings={},
    )
    run.readers = readers
    settings = CheckpointSettings(interval_ms=1_000, incremental=False)
    taker = CheckpointTaker(run, settings, CheckpointDirectory(str(tmp_path / "checkpoints")), ManualClock(1_000_000))
    taker.take(run.attempt, 7)
    newer = 7 + RETAINED_EPOCHS
    assert read == [(7, math.inf), (newer, newer + MAY_FOLLOW)]
    assert [(one.epoch, one.status) for one in ended] == [(newer, "COMPLETED")]
    assert readers.last_epoch == math.inf
