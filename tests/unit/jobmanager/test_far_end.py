"""Why a query ended in another process is told through the job directory, whatever becomes of the message."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.errors import FencedError, ProgramError
from flinkish.jobmanager.attempt.epoch_listeners import StopQuery
from flinkish.jobmanager.attempt.remote_reports import END_FILE, STOP_FILE, FarSide, Inbox
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.runtime.deployment import JobDescriptor

JOB = JobDescriptor("0" * 32, "job", (), ())


def owned(path: Path) -> JobDirectory:
    directory = JobDirectory(str(path))
    directory.claim("job")
    return directory


def far_side(path: Path, token: str) -> FarSide:
    return FarSide(str(path), token, "job")


def test_a_query_that_was_asked_to_end_says_so(tmp_path: Path) -> None:
    directory = owned(tmp_path)
    far = far_side(tmp_path, directory.token)
    far.before_epoch(4)
    assert Inbox(directory, JOB).end() is False
    directory.write(STOP_FILE, {"stop": True})
    with pytest.raises(StopQuery):
        far.before_epoch(5)
    assert Inbox(directory, JOB).end() is True


def test_the_error_that_ended_a_query_comes_back_whole(tmp_path: Path) -> None:
    directory = owned(tmp_path)
    far_side(tmp_path, directory.token).failed(ProgramError("wrong " * 1000, where="here"))
    end = Inbox(directory, JOB).end()
    assert isinstance(end, ProgramError)
    assert (end.what, end.where) == ("wrong " * 1000, "here")


def test_the_end_of_another_drivers_query_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    directory = owned(tmp_path)
    directory.write(END_FILE, {"token": "another"})
    assert Inbox(directory, JOB).end() is False


def test_a_driver_that_lost_the_directory_leaves_nothing_in_it(tmp_path: Path) -> None:
    directory = owned(tmp_path)
    far_side(tmp_path, "old").failed(FencedError("taken over"))
    assert directory.read(END_FILE) is None
