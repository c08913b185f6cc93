"""The times of an epoch are written behind its commit, and only if its tasks have run in the same attempt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flinkish.runtime.epoch.commit import CommitReport
from flinkish.runtime.epoch.files import PreparedEpoch
from flinkish.runtime.epoch.planner import StoredEpochTimes
from flinkish.runtime.epoch.steps import EpochSteps
from flinkish.runtime.job.deployment import REPORT_VERTEX
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.sources.alignment import Reached
from flinkish.runtime.sources.sizer import EpochTimes
from tests.support.job_descriptors import job_of_levels


class Steps(EpochSteps):
    """Steps of an epoch whose one task has worked for 7 ms; its times are in a real file."""

    def __init__(
        self, folder: Path, target_ms: int = 2_000, prepared: bool = False, commit_fails: bool = False
    ) -> None:
        job = job_of_levels({0: ()})
        super().__init__(replace(job, settings=replace(job.settings, epoch_target_ms=target_ms)))
        self._folder = str(folder)
        self._is_prepared = prepared
        self._commit_fails = commit_fails

    def _prepared(self, epoch: int) -> PreparedEpoch | None:
        return PreparedEpoch(epoch, 0, False, (), (), ()) if self._is_prepared else None

    def _run_tasks(self, epoch: int) -> Iterable[tuple[int, bytes]]:
        yield REPORT_VERTEX, TaskReport(0, 0, records_in=3, work_ms=7.0).encode()

    def _forget_times(self) -> None:
        StoredEpochTimes.delete(self._folder)

    def _keep_times(self, times: EpochTimes) -> None:
        StoredEpochTimes(times).write(self._folder)

    def _commit_sinks(self, prepared: PreparedEpoch) -> list[CommitReport]:
        if self._commit_fails:
            raise OSError("no space left")
        return []

    def _list_changes(self, epoch: int, changes: list[bytes]) -> None: ...
    def _keep_timers(self, timers: dict[str, int | None]) -> None: ...
    def _keep_reached(self, epoch: int, reached: Reached) -> None: ...
    def _keep_prepared(self, prepared: PreparedEpoch) -> None: ...
    def _request_next(self, epoch: int) -> None: ...
    def _totals_after(self, epoch: int, added: Sequence[bytes]) -> bytes:
        return b""

    def _keep_totals(self, epoch: int, totals: bytes) -> None: ...


def test_the_times_of_an_epoch_are_there_when_it_is_committed(tmp_path: Path) -> None:
    Steps(tmp_path).run(0)
    found = StoredEpochTimes.read(str(tmp_path))
    times = None if found is None else found.times
    assert times is not None
    assert times.work_ms == {"uid-0": 7.0}
    assert times.duration_ms >= times.commit_ms >= 0


def test_an_epoch_that_an_earlier_run_has_prepared_has_no_times(tmp_path: Path) -> None:
    Steps(tmp_path).run(0)
    Steps(tmp_path, prepared=True).run(1)
    assert StoredEpochTimes.read(str(tmp_path)) is None


def test_a_commit_that_fails_leaves_no_times_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space"):
        Steps(tmp_path, commit_fails=True).run(0)
    assert StoredEpochTimes.read(str(tmp_path)) is None


def test_nothing_is_written_where_epochs_are_not_sized(tmp_path: Path) -> None:
    Steps(tmp_path, target_ms=0).run(0)
    assert not list(tmp_path.iterdir())
