"""What ``flinkish doctor --no-spark`` finds on this machine."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from flinkish.cli import main
from flinkish.doctor.directory import storage_clock, trial_folder, tried
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import announce_rest
from flinkish.jobdir.probe import is_abandoned


class Doctor:
    """Runs the command in this process, with a home and a configuration of its own."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys
        #: the exit code of the last run
        self.code: int | None = None

    def __call__(self, *arguments: Any) -> dict[str, tuple[str, str, str]]:
        """Name -> level, text and hint."""
        self.code = main(["doctor", "--no-spark", "--json", *map(str, arguments)])
        found = json.loads(self._capsys.readouterr().out)
        assert found["exit_code"] == self.code
        return {one["name"]: (one["level"], one["text"], one["hint"]) for one in found["findings"]}


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("FLINKISH_CONF", "FLINKISH_HOME", "FLINKISH_SETTINGS", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    return Doctor(tmp_path / "home", capsys)


def test_a_directory_is_tried_out_and_left_as_it_was(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor(tmp_path / "job")
    assert doctor.code == 0, found
    assert found["Job directory"][:2] == ("OK", "it is made by the first start")
    assert found["Directory from here"][1].startswith("write, read, list, fsync, rename, link, delete (")
    assert found["Clock of the storage"][:2] == ("OK", "as the driver's")
    assert found["Driver"][:2] == ("OK", "no driver runs a job here")
    assert not (tmp_path / "job").exists()
    (tmp_path / "job").mkdir()
    assert doctor(tmp_path / "job")["Job directory"][1] == "there"
    assert list((tmp_path / "job").iterdir()) == []


def test_a_directory_that_cannot_be_one_is_a_failure(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    level, text, hint = doctor(tmp_path / "file" / "job")["Directory from here"]
    assert (level, doctor.code) == ("FAIL", 1) and "cannot write" in text and hint


@pytest.mark.parametrize("arguments", [[], ["--", "--master", "local[1]"]])
def test_without_a_directory_none_is_looked_at(doctor: Doctor, arguments: list[str]) -> None:
    found = doctor(*arguments)
    assert "Directory from here" not in found and "Spark" not in found and found["flinkish"][0] == "OK"


def test_a_wrong_configuration_is_a_failure(doctor: Doctor) -> None:
    assert doctor("-D", "parallelism.default=many")["Configuration"][0] == "FAIL"
    assert doctor("-D", "paralelism.default=1")["Configuration"][0] == "FAIL"
    assert "jobmanager.scheduler" in doctor("-D", "jobmanager.scheduler=Adaptive")["Configuration"][1]


@pytest.mark.parametrize(("mode", "level"), [(0o600, "OK"), (0o644, "WARN")])
def test_the_modes_of_files_with_secrets_are_looked_at(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, mode: int, level: str
) -> None:
    file = doctor.home / "flinkish.yaml"
    file.write_text("s3.secret-key: hunter2\n")
    file.chmod(mode)
    monkeypatch.setenv("FLINKISH_CONF", str(file))
    found = doctor()["File with secrets"]
    assert found[0] == level and str(file) in found[1]
    file.write_text("parallelism.default: 2\n")
    assert "File with secrets" not in doctor(), "there is no secret in it"


def test_the_mode_of_a_token_is_looked_at(doctor: Doctor) -> None:
    token = doctor.home / ".flinkish" / "rest" / "host-8081.token"
    token.parent.mkdir(parents=True)
    token.write_text("x" * 30)
    token.chmod(0o640)
    assert doctor()["File with secrets"] == (
        "WARN", f"its group can read or write {token}", f"chmod 600 {token}"
    )  # fmt: skip


@pytest.fixture
def answering() -> Iterator[tuple[str, list[int]]]:
    """The URL of a server, and the codes that it answers with."""
    codes = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(codes[0])
            self.end_headers()
            self.wfile.write(b'{"errors": ["it says no"]}')

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", codes
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_rest_api_of_a_running_job_is_asked(
    doctor: Doctor, tmp_path: Path, answering: tuple[str, list[int]]
) -> None:
    (tmp_path / "job").mkdir()
    directory = JobDirectory(str(tmp_path / "job"))
    directory.write_owner()
    found = doctor(tmp_path / "job")
    assert found["Driver"][1] == f"process {os.getpid()} on {os.uname().nodename}, alive"
    assert found["REST API"][:2] == ("WARN", "the driver has none")
    url, codes = answering
    announce_rest(url)
    try:
        directory.write_owner()
        assert doctor(tmp_path / "job")["REST API"][:2] == ("OK", f"{url} answers")
        codes[0] = 401
        assert doctor(tmp_path / "job")["REST API"][:2] == (
            "WARN",
            f"the driver's token is missing or wrong at {url}",
        )
        announce_rest("http://127.0.0.1:1")
        directory.write_owner()
        assert doctor(tmp_path / "job")["REST API"][0] == "FAIL" and doctor.code == 1
    finally:
        announce_rest(None)


def test_a_trial_that_is_killed_leaves_what_a_driver_deletes() -> None:
    folder = trial_folder("/jobs/a").removeprefix("/jobs/a/")
    assert not is_abandoned(folder)
    assert is_abandoned(folder.replace(folder.split("-")[1], "1000000000"))


def test_a_trial_ends_with_what_fails_first(tmp_path: Path) -> None:
    assert [one.operation for one in tried(str(tmp_path / "probe"), exclusively=False)][-2:] == ["rename", "delete"]
    (tmp_path / "file").write_text("")
    (trial,) = tried(str(tmp_path / "file" / "probe"), exclusively=True)
    assert trial.operation == "write" and trial.error
    (other,) = tried("nosuch://bucket/x", exclusively=True)
    assert other.operation == "reach the storage"
    found = storage_clock(str(tmp_path / "clock"))
    assert found is not None and abs(found[0] - found[1]) < 2 and sorted(tmp_path.iterdir()) == [tmp_path / "file"]
