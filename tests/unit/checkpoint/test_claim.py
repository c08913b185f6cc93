"""A claimed savepoint is deleted when the job's own checkpoints have taken its place, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.checkpoint.claim import subsume_claimed
from flinkish.checkpoint.manifest import Manifest, TableVersion, write_manifest
from flinkish.jobdir.directory import JobDirectory
from flinkish.storage.paths import absolute
from tests.support.job_files import get, put


def job_with(tmp_path: Path, path: Path, mode: str) -> JobDirectory:
    directory = JobDirectory(str(tmp_path / "job"))
    put(directory, "restored.json", {"savepoint": str(path), "path": str(path), "claim_mode": mode})
    return directory


def written(path: Path, table: str) -> Path:
    write_manifest(str(path), Manifest("", "", 1, 0, state=TableVersion(table)))
    state = path / table
    state.mkdir(exist_ok=True)
    (state / "part.parquet").write_bytes(b"x")
    return path


def test_a_claimed_savepoint_goes_when_enough_checkpoints_are_there(tmp_path: Path) -> None:
    savepoint = written(tmp_path / "savepoint-1", "state")
    directory = job_with(tmp_path, savepoint, "CLAIM")
    assert subsume_claimed(directory, completed=1, retained=2) is None
    assert savepoint.exists()
    assert subsume_claimed(directory, completed=2, retained=2) == str(savepoint)
    assert not savepoint.exists()
    assert subsume_claimed(directory, completed=2, retained=2) is None


def test_a_savepoint_that_is_not_claimed_stays(tmp_path: Path) -> None:
    savepoint = written(tmp_path / "savepoint-1", "state")
    for mode in ("NO_CLAIM", "LEGACY"):
        assert subsume_claimed(job_with(tmp_path, savepoint, mode), completed=1, retained=1) is None
    assert savepoint.exists()
    assert subsume_claimed(JobDirectory(str(tmp_path / "other")), completed=1, retained=1) is None


@pytest.mark.parametrize("slash", [False, True], ids=["", "on storage with a scheme the slash at the end stays"])
def test_the_table_of_a_claimed_checkpoint_goes_with_the_last_one_that_uses_it(tmp_path: Path, slash: bool) -> None:
    first, second = (written(tmp_path / "old" / name, "../state") for name in ("chk-1", "chk-2"))
    (tmp_path / "old" / "changes").mkdir()
    directory = job_with(tmp_path, second, "CLAIM")
    if slash:
        put(directory, "restored.json", {**get(directory, "restored.json"), "path": f"{second}/"})
    assert subsume_claimed(directory, 1, 1) == str(second)
    assert not second.exists() and first.exists()
    assert (tmp_path / "old" / "state").exists() and (tmp_path / "old" / "changes").exists()
    assert subsume_claimed(job_with(tmp_path, first, "CLAIM"), 1, 1) == str(first)
    assert not (tmp_path / "old" / "state").exists() and not (tmp_path / "old" / "changes").exists()


def test_a_path_on_other_storage_has_no_slash_at_its_end() -> None:
    assert absolute("s3://bucket/old/chk-2/") == absolute("s3://bucket/old/chk-2") == "s3://bucket/old/chk-2"
