"""A directory of a job that has begun with a savepoint: which savepoint it names, and whose rows are where."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.checkpoint import fallback
from flinkish.checkpoint.claim import read_restored, with_restored_times
from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest, TableVersion
from flinkish.checkpoint.restore import RestoredProgram, prepare_restore
from flinkish.common import Configuration
from flinkish.errors import CorruptStateError, FinalOperationError, SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import EventTimes, Restored
from flinkish.jobmanager.job.settings import DriverSettings, Fallback, driver_settings
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from tests.support.fences import FallingFence
from tests.support.job_files import put

#: no operator is made here
PASS_ON: Any = None

PROGRAM = RestoredProgram(JobDescriptor("ab" * 16, "clicks", (), ()), {})


def began_with(folder: Path, savepoint: str, path: str) -> JobDirectory:
    directory = JobDirectory(str(folder / "job"))
    content = {"savepoint": savepoint, "path": path, "rows": "restore-1", "claim_mode": "NO_CLAIM"}
    put(directory, "restored.json", {**content, "sources": {}, "watermarks": {}})
    return directory


def settings(savepoint: str | None = None) -> DriverSettings:
    return replace(driver_settings(Configuration()), savepoint=savepoint)


def again(directory: JobDirectory, savepoint: str) -> str | None:
    """Start the job once more with a savepoint; the rows that its query has begun with."""
    return prepare_restore(None, PROGRAM, settings(savepoint), directory, first_run=False).restore_rows


def test_a_savepoint_is_the_same_however_its_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    savepoint = str(tmp_path / "savepoint-1")
    directory = began_with(tmp_path, savepoint, savepoint)
    monkeypatch.chdir(tmp_path)
    for written in (savepoint, savepoint + "/", "file://" + savepoint, "savepoint-1", "./savepoint-1/"):
        assert again(directory, written) == os.path.join(directory.path, "restore-1"), written
    with pytest.raises(SavepointError, match="cannot be started from .*/savepoint-2"):
        again(directory, str(tmp_path / "savepoint-2"))
    # on other storage, too
    directory = began_with(tmp_path, "s3://bucket/savepoint-1/", "s3://bucket/savepoint-1/")
    assert again(directory, "s3://bucket/savepoint-1") is not None
    with pytest.raises(SavepointError, match="cannot be started from s3://other/savepoint-1"):
        again(directory, "s3://other/savepoint-1")


def test_the_subtasks_of_each_vertex_begin_with_the_watermark_of_its_first_operator() -> None:
    vertices = tuple(
        VertexDescriptor(number, uid, 0, tuple(OperatorDescriptor(one, one, PASS_ON) for one in (uid, "behind")), 1, 1)
        for number, uid in enumerate(("clicks", "sums", "new"))
    )
    job = replace(PROGRAM.job, vertices=vertices)
    remembered = Restored(watermarks={"clicks": 7, "sums": 5, "behind": 3, "gone": 1})
    assert with_restored_times(job, remembered).restored_watermarks == {0: 7, 1: 5}
    assert with_restored_times(job, None) is job


def test_a_fallback_leaves_the_rows_alone_that_the_job_has_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = JobDirectory(str(tmp_path / "job"))
    directory.fence = FallingFence(passes=100)
    directory.fence.token = 8
    rows = Path(directory.restore_rows)
    rows.mkdir()
    (rows / "part-0.parquet").touch()
    # with a checkpoint of epoch 7 and no traces of later ones, the first epoch after the fallback is 8 as well
    checkpoints = CheckpointDirectory(str(tmp_path / "job" / "checkpoints"))
    checkpoints.write(3, Manifest("ab" * 16, "clicks", 7, 0, state=TableVersion("../state", 3)))
    report: Any = SimpleNamespace(compatible=False, problems=["operator 'sums' is gone"], hints=[])
    monkeypatch.setattr(fallback, "take_over", lambda *arguments: (report, {}))
    recovery = fallback.QueryFallback(None, replace(settings(), fallback=Fallback.REPLAY), directory, checkpoints)
    with pytest.raises(FinalOperationError, match="operator 'sums' is gone"):
        recovery.recover(PROGRAM, CorruptStateError("a file is damaged"))
    assert (rows / "part-0.parquet").exists()


def test_a_fallback_begins_with_the_event_times_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = JobDirectory(str(tmp_path / "job"))
    directory.fence = FallingFence(passes=100)
    directory.fence.token = 8
    checkpoints = CheckpointDirectory(str(tmp_path / "job" / "checkpoints"))
    # the description leaves out subtasks that have no watermark yet, which hold the others back
    described = Manifest(
        "ab" * 16, "clicks", 7, 0, state=TableVersion("../state", 3), watermarks={"sums": 9, "counts": 7}
    )
    checkpoints.write(3, described)
    report: Any = SimpleNamespace(compatible=True)
    monkeypatch.setattr(fallback, "take_over", lambda *arguments: (report, EventTimes({"sums": 5})))
    recovery = fallback.QueryFallback(None, replace(settings(), fallback=Fallback.REPLAY), directory, checkpoints)
    recovery.recover(PROGRAM, CorruptStateError("a file is damaged"))
    remembered = read_restored(directory)
    assert remembered is not None and remembered.watermarks == {"sums": 5}
