"""The driver's side of a job takes no more memory, threads, open files and files on disk after years than after a day:
what grows with epochs, restarts, checkpoints, savepoints, requests and starts of drivers is bounded."""

from __future__ import annotations

import gc
import json
import os
import re
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale import DriverEpochs, SyntheticKafka, job_of, reports_of
from flinkish.checkpoint.compatibility import StateCatalog
from flinkish.checkpoint.coordinator import Barriers, CheckpointCoordinator
from flinkish.checkpoint.manifest import CheckpointDirectory, TableVersion, manifest_of
from flinkish.checkpoint.writer import ChangelogLedger
from flinkish.common.accumulators import LongCounter
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.core.sink import NO_FENCE
from flinkish.errors import OperationError
from flinkish.jobdir.connect_server import EpochsWait
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import SavingNote, StoredRequest
from flinkish.jobdir.ownership import REFUSE, take_ownership
from flinkish.jobmanager import requests
from flinkish.jobmanager.client import RunClient
from flinkish.jobmanager.history import HistoryWriter, Row, Rows
from flinkish.jobmanager.job.settings import CheckpointSettings
from flinkish.jobmanager.job_record import JobRecord, this_driver
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.job_totals import JobTotals
from flinkish.jobmanager.progress import SlowCalls, TaskLogs, progress_for
from flinkish.jobmanager.requests import RequestHandler, ask
from flinkish.jobmanager.savepoint import sweep_savepoints
from flinkish.runtime.epoch.changelog_files import write_parts
from flinkish.runtime.epoch.files import PreparedEpochs
from flinkish.runtime.epoch.steps import Acknowledgements, end_epoch
from flinkish.runtime.job.accumulators import encode_accumulators
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.task.progress import EpochProgress, TaskProgress


class Store:
    """Counts the rows of the history that are written."""

    def __init__(self) -> None:
        self.rows = Counter[str]()

    def append(self, table: str, rows: list[Row]) -> None:
        self.rows[table] += len(rows)

    def make_missing(self) -> None:
        pass


class Driver:
    """A driver of a job, with the planner, the steps of the epochs and the observers that a submission attaches; the
    query is faked, and no task runs. Each epoch reads other splits and changes state; each tenth adds to an
    accumulator, and so is prepared."""

    def __init__(self, job: JobDescriptor, folder: Path, offset: dict[str, Any], store: Store) -> None:
        self.offset, self._job = offset, job
        self._directory = directory = JobDirectory(str(folder))
        take_ownership(None, directory, job.name, REFUSE)
        sweep_savepoints(directory)
        segments = SegmentFiles(str(folder))
        self._enumerator = JobEnumerator(job, segments, ManualClock())
        self._epochs = DriverEpochs(job, str(folder))
        self._prepared = PreparedEpochs(self._epochs.files.prepared)
        self._acknowledgements = Acknowledgements(job, segments)
        counter = LongCounter()
        counter.add(1)
        self._added = encode_accumulators({("", "clicks"): counter})
        self._barriers, self._ledger = Barriers(), ChangelogLedger(directory)
        self._checkpoints = CheckpointDirectory(str(folder / "checkpoints"))
        self.run = run = JobRun(JobID(), job.name)
        self._coordinator = CheckpointCoordinator(
            CheckpointSettings(interval_ms=1), "", self._checkpoints.next_id, ended=run.checkpoint_ended
        )
        self._history = run.history = HistoryWriter(Rows(job.job_id, job.name, directory.token), store, 3_600.0)
        totals, handler = JobTotals(job, directory), RequestHandler(RunClient(run), directory)
        run.record = JobRecord(run, job, {}, str(folder), this_driver(), totals=totals.describe)
        run.observers += [run.record, TaskLogs(job), SlowCalls(job), progress_for("never", job)]
        run.observers += [StateCatalog(directory), totals, handler]
        handler.open()
        self._begin(0)

    def _begin(self, attempt: int) -> None:
        for observer in self.run.observers:
            observer.attempt_started(attempt)
        self.run.query_started()

    def run_epoch(self, epoch: int) -> None:
        """Plan an epoch and run it to its end."""
        run, directory = self.run, self._directory
        self.offset = self._enumerator.next_offset(self.offset)
        run.epoch_running(EpochProgress(epoch, 1, 1, 0, None, (TaskProgress(0, 0, 5, 5),)))
        write_parts(self._ledger.path, epoch, (), (b"changed",))
        report = self._epochs.run(epoch, reports_of(self._job, epoch, b"" if epoch % 10 else self._added))
        run.epoch_done(report)
        self._barriers.add(self._job, report)
        self._ledger.epoch_written(epoch, f"{directory.path}/spark")
        end_epoch(
            epoch,
            lambda: self._prepared.delete_up_to(epoch - 2, NO_FENCE),
            self._acknowledgements,
            lambda: json.dumps(self.offset),
        )
        run.epoch_committed(epoch)
        directory.renew(self._job.name)

    def take_checkpoint(self, epoch: int) -> None:
        """Take one: all but the tables. Each tenth one fails."""
        pending = self._coordinator.trigger(epoch, self._checkpoints.checkpoint)
        if pending.id % 10 == 0:
            self._coordinator.fail("the storage is away", counts=False)
            return
        table = TableVersion("../state", pending.id)
        self._checkpoints.write(pending.id, manifest_of(self._job, epoch, {}, state=table))
        self._coordinator.complete()
        self._checkpoints.drop_but(1, lambda: None)
        self._ledger.forget(epoch)

    def take_savepoint(self, epoch: int) -> None:
        """A savepoint that fails, as far as the driver remembers it; and a request for a description."""
        with pytest.raises(OperationError), self.run.savepoints.waiting(epoch):
            raise OperationError("the storage is away")
        assert ask(self._directory.path, "describe", 60.0)["name"] == self._job.name

    def restart(self, attempt: int) -> None:
        """Fail the attempt, and begin another one."""
        run, failure = self.run, OperationError("the storage is away")
        failure.task = "Source: clicks (1/2)"
        run.task_failed(failure)
        for observer in run.observers:
            observer.attempt_failed(failure, 1)
        run.machine.to(JobStatus.FAILING, "the storage is away")
        run.machine.to(JobStatus.RESTARTING, "in 1 ms")
        self._begin(attempt)

    def flush(self) -> None:
        """Write the history, as every minute."""
        self._history.flush()

    def close(self, killed: bool = False) -> None:
        """End what runs beside the epochs. ``killed``: leave behind what a driver leaves that was killed."""
        for observer in self.run.observers:
            observer.job_done(JobStatus.SUSPENDED)
        self._history.close()
        self._acknowledgements.close()
        self._enumerator.close()
        if killed:
            self._directory.write(EpochsWait(self._directory.token, 0))
            part = f"{self._directory.path}/savepoints/savepoint-abcdef-{'0' * 12}"
            token = self._directory.token
            self._directory.write(SavingNote(part), token)
            self._directory.write(StoredRequest(action="describe", expires_ms=1), token, 1)
            (Path(self._directory.path) / f".job.json.{self._directory.token}").touch()
        self._directory.release()


@dataclass(frozen=True)
class Taken:
    """What a job takes: memory, threads and open files of its driver; and for each kind of file how many there are, and
    how many bytes they have."""

    memory: int
    threads: int
    open_files: int
    files: dict[str, int]
    bytes: dict[str, int]

    @classmethod
    def now(cls, folder: Path) -> Taken:
        gc.collect()
        files, sizes = Counter[str](), Counter[str]()
        for path in folder.rglob("*"):
            if path.is_file():
                kind = re.sub(r"[0-9a-f]{4,}(-[0-9a-f]{4,})*|\d+", "N", str(path.relative_to(folder)))
                files[kind] += 1
                sizes[kind] += path.stat().st_size
        memory = tracemalloc.get_traced_memory()[0]
        # a thread may just be listing the directory
        open_files = min(len(os.listdir("/proc/self/fd")) for _ in range(20) if time.sleep(0.002) is None)
        return cls(memory, threading.active_count(), open_files, dict(files), dict(sizes))


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # the files need not survive this machine, and waiting for disks would be nine tenths of the test
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(requests, "POLL_S", 0.02)
    monkeypatch.setattr(requests, "ANSWER_KEPT_S", 5.0)
    tracemalloc.start()
    yield
    tracemalloc.stop()


#: Restarts with which a driver has as much to remember as it ever has.
ENOUGH = 260
EPOCHS_OF_A_CHECKPOINT, EPOCHS_OF_A_RESTART = 10, 40


@pytest.mark.parametrize("epochs", [240, pytest.param(20_000, marks=[pytest.mark.nightly, pytest.mark.timeout(3_600)])])
@pytest.mark.usefixtures("traced")
def test_nothing_grows_between_the_first_and_the_last_quarter(epochs: int, tmp_path: Path) -> None:
    job, store = job_of(SyntheticKafka(4), 2), Store()
    driver, starts, restarts, quarter = Driver(job, tmp_path, {}, store), 1, 0, epochs // 4
    taken = []
    for epoch in range(epochs):
        driver.run_epoch(epoch)
        if epoch % EPOCHS_OF_A_CHECKPOINT == 0:
            driver.take_checkpoint(epoch)
        if epoch % EPOCHS_OF_A_RESTART == 0:
            restarts += 1
            driver.restart(restarts)
            driver.flush()
            driver.take_savepoint(epoch)
        if epoch in (quarter // 2, 2 * quarter + quarter // 2):
            driver.close(killed=True)
            driver = Driver(job, tmp_path, driver.offset, store)
            starts += 1
            for _ in range(ENOUGH):
                restarts += 1
                driver.restart(restarts)
        if epoch % quarter == quarter - 1:
            taken.append(Taken.now(tmp_path))
    driver.close()
    first, last = taken[0], taken[-1]
    assert driver.run.last_epoch == epochs - 1
    assert driver.run.accumulator_results() == {"clicks": epochs // 10}
    assert last.threads <= first.threads
    assert last.open_files <= first.open_files
    # what killed drivers have left is gone
    assert [kind for kind in last.files if kind.startswith((".", "wait", "saving", "request"))] == []
    # the claims of drivers, one for each start
    claims = {kind for kind in last.files if kind.startswith("fencing/")}
    assert {last.files[kind] for kind in claims} == {starts}
    assert {kind: count for kind, count in last.files.items() if kind not in claims and count > first.files[kind]} == {}
    # digits of numbers
    grown = {kind: (first.bytes[kind], size) for kind, size in last.bytes.items() if kind not in claims}
    assert {kind: sizes for kind, sizes in grown.items() if sizes[1] > 1.2 * sizes[0] + 100} == {}
    # the report of an epoch alone has several KB
    assert max(one.memory for one in taken) - first.memory < 200_000
    assert store.rows["exceptions"] == 2 * restarts
