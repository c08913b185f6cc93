"""The driver's side of a job takes no more memory, threads and files after many epochs than after some."""

from __future__ import annotations

import gc
import json
import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.scale import DriverEpochs, SyntheticKafka, job_of, reports_of
from flinkish.checkpoint.compatibility import StateCatalog
from flinkish.common.accumulators import LongCounter
from flinkish.common.job_id import JobID
from flinkish.core.sink import NO_FENCE
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.job_record import JobRecord, this_driver
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.progress import SlowCalls, TaskLogs, progress_for
from flinkish.runtime.epoch.files import PreparedEpochs
from flinkish.runtime.epoch.steps import Acknowledgements, end_epoch
from flinkish.runtime.job.accumulators import encode_accumulators
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.task.progress import EpochProgress, TaskProgress


class Driver:
    """The planner, the steps of the epochs and the observers of a job, as the driver attaches them; no task runs. Each
    epoch reads other splits; each tenth adds to an accumulator, and so is prepared."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._job = job = job_of(SyntheticKafka(4), 2)
        store = SegmentFiles(str(folder))
        self._enumerator, self._offset = JobEnumerator(job, store, ManualClock()), dict[str, object]()
        self._epochs = DriverEpochs(job, str(folder))
        self._prepared = PreparedEpochs(self._epochs.files.prepared)
        self._acknowledgements = Acknowledgements(job, store)
        counter = LongCounter()
        counter.add(1)
        self._added = encode_accumulators({("", "clicks"): counter})
        self.run = run = JobRun(JobID(), job.name)
        run.record = JobRecord(run, job, {}, str(folder), this_driver())
        run.observers += [run.record, TaskLogs(job), SlowCalls(job), progress_for("never", job)]
        run.observers.append(StateCatalog(JobDirectory(str(folder))))
        run.record.attempt_started(0)
        run.query_started()

    def run_epoch(self, epoch: int) -> None:
        """Plan an epoch and run it to its end."""
        self._offset = self._enumerator.next_offset(self._offset)
        self.run.epoch_running(EpochProgress(epoch, 1, 1, 0, None, (TaskProgress(0, 0, 5, 5),)))
        report = self._epochs.run(epoch, reports_of(self._job, epoch, b"" if epoch % 10 else self._added))
        self.run.epoch_done(report)
        end_epoch(
            epoch,
            lambda: self._prepared.delete_up_to(epoch - 2, NO_FENCE),
            self._acknowledgements,
            lambda: json.dumps(self._offset),
        )
        self.run.epoch_committed(epoch)

    def close(self) -> None:
        """End what runs beside the epochs."""
        self._acknowledgements.close()
        self._enumerator.close()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # the files need not survive this machine, and waiting for disks would be nine tenths of the test
    monkeypatch.setattr(os, "fsync", lambda file: None)
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("epochs", [200, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])])
@pytest.mark.usefixtures("traced")
def test_memory_threads_and_files_stay_flat(epochs: int, tmp_path: Path) -> None:
    driver = Driver(tmp_path)

    def taken(first: int, end: int) -> tuple[int, int, int]:
        for epoch in range(first, end):
            driver.run_epoch(epoch)
        gc.collect()
        files = sum(path.is_file() for path in tmp_path.rglob("*"))
        return tracemalloc.get_traced_memory()[0], threading.active_count(), files

    memory, threads, files = taken(0, 80)
    memory_later, threads_later, files_later = taken(80, epochs)
    driver.close()
    assert driver.run.last_epoch == epochs - 1
    assert driver.run.accumulator_results() == {"clicks": epochs // 10}
    assert threads_later <= threads
    assert files_later == files
    # the report of an epoch alone has several KB
    assert memory_later - memory < 100_000
