"""What a job directory keeps: one owner, one program, whole files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import FencedError, OperationError
from flinkish.jobdir import fencing
from flinkish.jobdir.checks import check_nothing_missing
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Liveness
from flinkish.jobdir.layout import Attempts, SavingNote
from tests.support.job_files import get, put


def owner(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "owner.json").read_text()))


def set_owner(folder: Path, **changes: Any) -> None:
    (folder / "owner.new").write_text(json.dumps({**owner(folder), **changes, "version": 1, "digest": None}))
    (folder / "owner.new").rename(folder / "owner.json")


def claimed(folder: Path, job: str = "shop", **changes: Any) -> JobDirectory:
    """A directory that a driver owns, whose file is changed afterwards."""
    directory = JobDirectory(str(folder))
    directory.claim(job)
    if changes:
        set_owner(folder, **changes)
    return directory


@pytest.fixture(autouse=True)
def _watches_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "POLL_S", 0.02)


def test_a_directory_whose_owner_lives_is_refused_and_the_owner_is_named(tmp_path: Path) -> None:
    claimed(tmp_path / "a" / "b")
    found = owner(tmp_path / "a" / "b")
    assert (found["pid"], found["host"]) == (os.getpid(), socket.gethostname())
    with pytest.raises(FencedError) as caught:
        claimed(tmp_path / "a" / "b", "other")
    assert str(caught.value) == (
        f"another driver (process {os.getpid()} on {socket.gethostname()}) runs a job in this directory "
        f"[job 'other', directory {tmp_path}/a/b]; expected one driver per job directory; "
        "stop the other driver, or give this job a directory of its own (flinkish.job.dir)"
    )


@pytest.mark.parametrize("how", ["it was released", "its owner is dead", "a process only has the same number"])
def test_a_directory_can_be_claimed_if_nobody_owns_it(tmp_path: Path, how: str) -> None:
    first = claimed(tmp_path)
    if how == "it was released":
        first.release()
    elif how == "its owner is dead":
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        set_owner(tmp_path, pid=ended.pid)
    else:
        set_owner(tmp_path, started="1")
    assert owner(tmp_path)["token"] == first.token
    heir = claimed(tmp_path)
    assert owner(tmp_path)["token"] == heir.token


def test_an_owner_on_another_host_is_alive_as_long_as_it_renews_its_claim(tmp_path: Path) -> None:
    # its clock is an hour behind: that says nothing
    claimed(tmp_path, host="elsewhere", renewed_s=time.time() - 3600)
    threading.Timer(0.1, set_owner, (tmp_path,), {"renewals": 2}).start()
    with pytest.raises(FencedError, match="on elsewhere"):
        JobDirectory(str(tmp_path)).claim("shop", silence_s=30)


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"machine": "another boot/pid:[1]"}])
def test_an_owner_on_another_machine_that_is_silent_while_watched_is_dead(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    # its clock is an hour ahead: that says nothing
    claimed(tmp_path, **changes, renewed_s=time.time() + 3600)
    heir = JobDirectory(str(tmp_path))
    assert heir.refuse_if_owned("shop", silence_s=0.1) is Liveness.SILENT
    heir.claim("shop", silence_s=0.1)
    assert owner(tmp_path)["token"] == heir.token


def test_an_owner_on_another_machine_that_gives_the_directory_back_while_watched_is_gone(tmp_path: Path) -> None:
    claimed(tmp_path, host="elsewhere")
    threading.Timer(0.1, set_owner, (tmp_path,), {"released": True}).start()
    assert JobDirectory(str(tmp_path)).refuse_if_owned("shop", silence_s=30) is Liveness.GONE


def test_a_driver_that_was_taken_over_learns_it_and_does_not_take_the_directory_back(tmp_path: Path) -> None:
    first = claimed(tmp_path, released=True)
    second = claimed(tmp_path)
    with pytest.raises(FencedError) as caught:
        first.check_owner("shop")
    assert f"the driver {os.getpid()} on {socket.gethostname()} has taken over this job directory" in str(caught.value)
    with pytest.raises(FencedError):
        first.renew("shop")
    first.release()
    second.check_owner("shop")
    assert not owner(tmp_path).get("released")


def test_another_process_can_work_on_behalf_of_the_owner(tmp_path: Path) -> None:
    first = claimed(tmp_path)
    JobDirectory(str(tmp_path), first.token).check_owner("shop")
    with pytest.raises(FencedError):
        JobDirectory(str(tmp_path), "somebody").check_owner("shop")


def test_files_are_whole_have_a_version_belong_to_one_user_and_are_found_by_their_names_in_order(
    tmp_path: Path,
) -> None:
    directory = JobDirectory(str(tmp_path))
    assert directory.read(Attempts) is None
    directory.write(Attempts(2))
    assert get(directory, "attempts.json") == {"version": 2, "attempts": 2}
    assert [(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [("attempts.json", 0o600)]
    directory.write(Attempts(3))
    assert directory.read(Attempts) == Attempts(3)
    for _ in range(2):
        directory.delete(Attempts)
    assert directory.read(Attempts) is None
    for name in ("b", "a"):
        directory.write(SavingNote("/sp"), name)
    (tmp_path / ".saving-c.json.token").write_text("half")
    (tmp_path / "saving-d.json").mkdir()
    assert directory.kept(SavingNote) == [("a",), ("b",)]
    assert directory.read(SavingNote, "a") == SavingNote("/sp")


def test_a_file_that_is_broken_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"job_id": ')
    with pytest.raises(OperationError) as caught:
        JobDirectory(str(tmp_path)).job_id()
    message = str(caught.value)
    assert message.startswith("the file job.json is damaged: ") and not caught.value.retryable
    assert f"[{tmp_path / 'job.json'}]" in message and "start the job in a new directory from a checkpoint" in message


def test_a_file_of_which_a_byte_has_changed_is_named(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path))
    put(directory, "query-location.json", {"name": "spark-4", "first_epoch": 4})
    assert directory.query_location().first_epoch == 4
    file = tmp_path / "query-location.json"
    file.write_text(file.read_text().replace('"first_epoch": 4', '"first_epoch": 0'))
    with pytest.raises(OperationError, match=r"query-location.json is damaged: its content does not fit its digest"):
        directory.query_location()


@pytest.mark.parametrize("text", ["", "[]", "5", "null", '"job"'])
def test_a_file_that_holds_something_else_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "owner.json").write_text(text)
    with pytest.raises(OperationError, match=r"owner.json is damaged: it is .*; if no driver runs this job"):
        JobDirectory(str(tmp_path)).claim("shop")


def test_files_that_must_have_been_there_are_missed_once_there_were_epochs(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path))
    check_nothing_missing(directory.path)
    for name in ("spark/offsets/0", "spark-4-owner-1/offsets/0"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    for name in ("job.json", "query.json", "query-location.json", "restored-4.json"):
        with pytest.raises(OperationError, match=f"the file {name} is missing"):
            check_nothing_missing(directory.path)
        put(directory, name, {"name": "spark-4", "first_epoch": 4})
    check_nothing_missing(directory.path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationError) as caught:
        JobDirectory(str(tmp_path / "file" / "job"))
    assert str(caught.value).startswith(f"cannot create the job directory {tmp_path / 'file' / 'job'}: ")
