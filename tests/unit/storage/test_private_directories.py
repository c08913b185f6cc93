"""A directory that decides what runs is made for its user alone, and is refused where others can write to it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from flinkish.errors import FinalOperationError
from flinkish.jobdir.directory import JobDirectory
from flinkish.launch.home import Home
from flinkish.storage.paths import check_private, make_private


def directory_with(folder: Path, mode: int = 0o755, inside: int = 0o644) -> Path:
    """A job directory of this mode with a file of that one."""
    job = folder / "job"
    job.mkdir()
    (job / "job.json").touch()
    (job / "job.json").chmod(inside)
    job.chmod(mode)
    return job


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_the_job_directory_and_the_cache_are_made_for_their_user_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        JobDirectory(str(tmp_path / "job")).check_private()
        cache = Home({"FLINKISH_HOME": str(tmp_path)}).cache
    finally:
        os.umask(before)
    assert [(path.stat().st_mode & 0o777) for path in (tmp_path / "job", cache)] == [0o700, 0o700]


@pytest.mark.parametrize(("mode", "inside"), [(0o755, 0o644), (0o700, 0o666), (0o750, 0o640), (0o500, 0o600)])
def test_a_directory_to_which_nobody_else_can_write_will_do(tmp_path: Path, mode: int, inside: int) -> None:
    check_private(str(directory_with(tmp_path, mode, inside)), "the job directory")


@pytest.mark.parametrize(("mode", "inside"), [(0o775, 0o644), (0o777, 0o644), (0o722, 0o600), (0o755, 0o664)])
def test_a_directory_to_which_others_can_write_is_refused_with_what_to_do(
    tmp_path: Path, mode: int, inside: int
) -> None:
    job = directory_with(tmp_path, mode, inside)
    with pytest.raises(FinalOperationError, match=f"others can write to the job directory.*chmod 700 {job}"):
        JobDirectory(str(job)).check_private()


@pytest.mark.parametrize("owned", ["job", "job/job.json"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, owned: str) -> None:
    job = directory_with(tmp_path)
    os.chown(tmp_path / owned, 12345, 12345)
    with pytest.raises(FinalOperationError, match=r"somebody else \(uid 12345\) can write.*chown -R 0"):
        check_private(str(job), "the job directory")


@pytest.mark.parametrize(("mode", "refused"), [(0o1777, False), (0o777, True), (0o775, False)])
def test_a_directory_above_may_be_writable_for_all_only_with_the_sticky_bit(
    tmp_path: Path, mode: int, refused: bool
) -> None:
    above = tmp_path / "shared"
    above.mkdir()
    above.chmod(mode)
    make_private(str(above / "job"))
    said = f"everybody can replace the job directory.*chmod o-w {above}"
    with pytest.raises(FinalOperationError, match=said) if refused else nullcontext():
        check_private(str(above / "job"), "the job directory")


def test_a_cache_to_which_others_can_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache").chmod(0o777)
    with pytest.raises(FinalOperationError, match="flinkish's directory of archives and jars"):
        _ = Home({"FLINKISH_HOME": str(tmp_path)}).cache
