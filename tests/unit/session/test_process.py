"""A session process that cannot be started says why in one line."""

from __future__ import annotations

import fcntl
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkish.cli import main


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FLINKISH_CONF", raising=False)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        opened.listen()
        yield int(opened.getsockname()[1])


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says, which is refused."""
    assert main(["jobmanager", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("flinkish: ") and told.count("\n") == 1
    return told


def test_settings_that_are_none_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = ("--port", "0", "--jobs", str(tmp_path / "jobs"))
    assert "web.submit.enabel" in refused(capsys, *folder, "-D", "web.submit.enabel=true")
    assert "is not of its form" in refused(capsys, *folder, "-D", "web.submit.enable")
    assert "web.submit.enable" in refused(capsys, *folder, "-D", "web.submit.enable=perhaps")
    assert not (tmp_path / "jobs").exists()


def test_programs_are_started_with_a_folder_on_this_machine_only(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "--port", "0", "--jobs", "s3://bucket/jobs", "-D", "web.submit.enable=true")
    assert "which is not on this machine" in told


def test_a_folder_in_which_others_write_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs").chmod(0o777)
    assert "others can write to the folder of job directories" in refused(capsys, "--jobs", str(tmp_path / "jobs"))


def test_a_folder_that_cannot_be_made_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in refused(capsys, "--jobs", str(tmp_path / "file/jobs"))


def test_a_port_that_is_taken_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, taken: int) -> None:
    told = refused(capsys, "--port", str(taken), "--jobs", str(tmp_path / "jobs"))
    assert f"port {taken} of 127.0.0.1 is free" in told


def test_a_second_process_for_a_folder_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "jobs/.flinkish").mkdir(parents=True, mode=0o700)
    with (tmp_path / "jobs/.flinkish/session.lock").open("w") as held:
        held.write("process 7 on here\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another session process (process 7 on here)" in refused(capsys, "--jobs", str(tmp_path / "jobs"))
