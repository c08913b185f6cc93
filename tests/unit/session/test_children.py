"""What the session process remembers of the drivers that it has started. That they run is looked at in another
place."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import FinalOperationError, OperationError
from flinkish.runtime.phases import ManualClock
from flinkish.session import children as session_children
from flinkish.session.children import KILL_S, MOST_ENDED, Child, Children, RestartPolicy, StartedDrivers
from tests.support.processes import wait_until
from tests.unit.session.folders import job_directory

TIMEOUT_S = 60.0
ONCE = RestartPolicy(attempts=1)


def child(name: str = "job", program: str = "program.py", **fields: Any) -> Child:
    return Child(name, program, [], {}, "upload", 0, **fields)


def remember(folder: Path, *children: Child) -> None:
    there = [replace(one, program=str(folder / one.program)) for one in children]
    StartedDrivers(there).write(str(folder / ".flinkish"))


class Clocks:
    """The clock of the machine, which may be set, and one that never goes back."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self.machine, self.now_s = ManualClock(now_ms), 0.0

    def advance(self, seconds: float) -> None:
        self.machine.advance(int(seconds * 1_000))
        self.now_s += seconds


def children(folder: Path, clocks: Clocks | None = None, policy: RestartPolicy = ONCE, **environment: str) -> Children:
    (folder / ".flinkish").mkdir(exist_ok=True)
    settings, times = {"execution.target": "minicluster"}, clocks or Clocks()
    given = {"clock": times.machine, "clock_s": lambda: times.now_s} if clocks else {}
    forced = {"rest.bind-address": "127.0.0.1"}
    return Children(folder, settings, policy, {**os.environ, **environment}, forced=forced, **given)  # type: ignore[arg-type]


def exit_with(folder: Path, code: str) -> None:
    (folder / ".flinkish/job.exit").write_text(code)


#: What the last driver has left -> status of the driver, and what the list of jobs says.
ENDS: list[tuple[str, str | None, str, str | None]] = [
    ("it may get further", "75\n", "WAITING", "RESTARTING"),
    ("nobody knows how it has ended", None, "WAITING", "RESTARTING"),
    ("a code that cannot be read", "x", "WAITING", "RESTARTING"),
    ("it has failed", "1\n", "ENDED", "FAILED"),
    ("it was stopped", "143\n", "ENDED", None),
    ("another driver has its job", "77\n", "ENDED", None),
]


@pytest.mark.parametrize(("code", "status", "told"), [case[1:] for case in ENDS], ids=[case[0] for case in ENDS])
def test_a_driver_that_has_ended_while_nobody_looked_is_decided_on(
    code: str | None, status: str, told: str | None, tmp_path: Path
) -> None:
    remember(tmp_path, child())
    (tmp_path / "job").mkdir()
    if code is not None:
        exit_with(tmp_path, code)
    known = children(tmp_path, Clocks())
    known.look()
    assert [one.status for one in known.all()] == [status]
    assert known.status(str(tmp_path / "job")) == told
    # the next session process knows it, too
    assert [one.status for one in children(tmp_path).all()] == [status]


def test_a_copy_of_a_folder_starts_nothing_that_was_submitted_in_the_original(tmp_path: Path) -> None:
    original, copy = tmp_path / "jobs", tmp_path / "copy"
    remember(original, child(status="WAITING", restart_ms=0))
    (original / "job").mkdir()
    shutil.copytree(original, copy)
    assert [one.name for one in children(original, Clocks()).all()] == ["job"]
    known = children(copy, Clocks())
    known.look()
    assert not known.all() and not (copy / ".flinkish/job.lock").exists()


def test_of_other_directories_nothing_is_known(tmp_path: Path) -> None:
    remember(tmp_path, child())
    known = children(tmp_path)
    assert known.status(str(tmp_path / "other")) is None
    assert known.status(str(tmp_path / "deeper" / "job")) is None
    assert not known.cancel(str(tmp_path / "other")), "it is not there"


def test_a_restart_that_is_given_up_does_not_come(tmp_path: Path) -> None:
    remember(tmp_path, child(status="WAITING", restart_ms=2_000))
    clocks = Clocks()
    known = children(tmp_path, clocks)
    assert known.cancel(str(tmp_path / "job")) and not known.cancel(str(tmp_path / "job"))
    clocks.advance(10)
    known.look()
    assert [one.status for one in known.all()] == [known.status(str(tmp_path / "job"))] == ["CANCELED"]
    assert not (tmp_path / ".flinkish/job.lock").exists()


def test_what_was_started_cannot_be_guessed_from_a_damaged_file(tmp_path: Path) -> None:
    remember(tmp_path, child())
    path = tmp_path / ".flinkish/session.json"
    path.write_text(path.read_text().replace("program.py", "another.py"))
    with pytest.raises(FinalOperationError, match=r"session\.json"):
        children(tmp_path)


def test_a_driver_that_cannot_be_started_is_not_remembered(tmp_path: Path) -> None:
    known = children(tmp_path)
    with pytest.raises(OperationError, match="cannot be started"):
        known.submit(child("without-a-directory"))
    assert known.all() == ()


def test_of_drivers_that_have_ended_the_oldest_are_forgotten(tmp_path: Path) -> None:
    remember(tmp_path, *(child(f"job-{number}", status="ENDED") for number in range(MOST_ENDED + 5)))
    (tmp_path / "job").mkdir()
    for number in (4, 5):
        (tmp_path / f".flinkish/job-{number}.exit").write_text("0")
    known = children(tmp_path)
    known.submit(child())
    names = [one.name for one in known.all()]
    assert len(names) == MOST_ENDED + 1 and names[0] == "job-5" and names[-1] == "job"
    assert not (tmp_path / ".flinkish/job-4.exit").exists() and (tmp_path / ".flinkish/job-5.exit").exists()
    wait_until(lambda: (tmp_path / ".flinkish/job.exit").exists(), TIMEOUT_S, "its end")


def test_the_log_of_a_driver_is_bounded_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_children, "LOG_BYTES_MAX", 1_000)
    remember(tmp_path, child(status="WAITING", restart_ms=5_000), child("no-log", status="WAITING", restart_ms=5_000))
    (tmp_path / "job").mkdir()
    log = tmp_path / "job/driver.log"
    known = children(tmp_path, Clocks())
    with log.open("a") as printed:
        for line in range(1_000):
            print(line, file=printed, flush=True)
            known.look()
    assert max(path.stat().st_size for path in log.parent.iterdir()) <= 1_010
    assert sorted(path.name for path in log.parent.iterdir()) == ["driver.log", "driver.log.1"]
    assert (log.with_name("driver.log.1").read_text() + log.read_text()).endswith("\n998\n999\n")


def test_a_driver_gets_its_settings_and_no_secret_of_the_session(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import json, os, sys, time\nprint(json.dumps(dict(os.environ)), flush=True)\ntime.sleep(600)")
    (tmp_path / "job").mkdir()
    token = {"FLINK_REST_CLIENT_HEADERS": "Authorization:Bearer of-the-session", "OWN": "1"}
    known = children(tmp_path, FLINKISH_SETTINGS='{"parallelism.default": "7", "a.b": "c"}', **token)
    asked = {"parallelism.default": "2", "rest.bind-address": "0.0.0.0", "flinkish.job.dir": "/elsewhere"}
    known.submit(Child("job", str(program), [], asked, "upload", 0))
    log = tmp_path / "job/driver.log"
    environment = json.loads(wait_until(log.read_text, TIMEOUT_S, "its environment"))
    assert environment["OWN"] == "1" and environment["PATH"] == os.environ["PATH"]
    assert "of-the-session" not in log.read_text()
    assert json.loads(environment["FLINKISH_SETTINGS"]) == {
        "execution.target": "minicluster",
        "flinkish.job.dir": str(tmp_path / "job"),
        "parallelism.default": "2",
        "rest.bind-address": "127.0.0.1",
        "a.b": "c",
    }
    assert log.stat().st_mode & 0o777 == 0o600
    assert known.close() == 1, "it goes on without the session process"
    # it lives as long as its lock is held, whoever looks
    again = children(tmp_path)
    again.look()
    assert [one.status for one in again.all()] == ["RUNNING"]
    os.kill(_pid_of(program), signal.SIGKILL)
    wait_until(lambda: again.look() or again.all()[0].status == "WAITING", TIMEOUT_S, "the end to be seen")
    assert again.all()[0].code == 137 and again.cancel(str(tmp_path / "job"))


# ------------------------------------------------------------------ facts that outlive what is written down


class Program:
    """A program that was submitted, with clocks of its own."""

    def __init__(self, folder: Path, text: str, policy: RestartPolicy = ONCE) -> None:
        self.folder, self.directory = folder, folder / "job"
        self.directory.mkdir()
        self.program = self.directory / "program.py"
        self.program.write_text(text)
        self.clocks, self._policy = Clocks(), policy
        self.known = children(folder, self.clocks, policy)
        self.known.submit(Child("job", str(self.program), [], {}, "upload", 0, job_id="a" * 32))

    def another_session(self) -> None:
        self.known.close()
        self.known = children(self.folder, self.clocks, self._policy)

    @property
    def child(self) -> Child:
        self.known.look()
        found = self.known.get("job")
        assert found is not None
        return found

    def wait_for(self, status: str) -> None:
        wait_until(lambda: self.child.status == status, TIMEOUT_S, f"the program to be {status}")

    def listed(self) -> list[str]:
        return [status for _, status in self.known.without_job(())]

    def printed(self, text: str) -> None:
        log = self.directory / "driver.log"
        wait_until(lambda: text in log.read_text(), TIMEOUT_S, f"{text} in the log")


def test_an_exit_code_is_known_that_cannot_be_written_down(tmp_path: Path) -> None:
    file = tmp_path / ".flinkish/job.exit"
    program = Program(tmp_path, f"import os, sys\nos.remove({str(file)!r})\nos.mkdir({str(file)!r})\nsys.exit(1)")
    program.wait_for("ENDED")
    assert program.child.code == 1 and program.listed() == ["FAILED"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_on_a_full_disk_the_next_session_process_knows_how_a_driver_has_ended(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no file systems can be mounted here")
    try:
        program = Program(
            disk, f"import os, sys, time\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.05)\nsys.exit(1)"
        )
        with (disk / "rest").open("wb", buffering=0) as rest, suppress(OSError):
            while rest.write(bytes(4_096)):
                pass
        refused = Child("other", str(program.program), [], {}, "upload", 0)
        (disk / "other").mkdir()
        with pytest.raises(OperationError, match="cannot be started"):
            program.known.submit(refused)
        assert [one.name for one in program.known.all()] == ["job"], "what was refused is not started later"
        program.another_session()
        (tmp_path / "go").touch()
        program.wait_for("ENDED")
        assert program.child.code == 1
        program.clocks.advance(3_600)
        assert program.child.status == "ENDED"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_process_that_a_driver_leaves_behind_is_no_driver(tmp_path: Path) -> None:
    text = "import os, time\nif os.fork(): print(os.getpid(), flush=True)\ntime.sleep(600)"
    program = Program(tmp_path, text)
    program.printed("\n")
    assert program.child.status == "RUNNING"
    left = _pids_of(program.program)
    os.kill(int((program.directory / "driver.log").read_text()), signal.SIGKILL)
    try:
        program.wait_for("WAITING")
        assert program.child.code == 137 and len(_pids_of(program.program)) == 1, "its child lives"
    finally:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_driver_whose_shell_was_killed_lives_on(tmp_path: Path) -> None:
    remember(tmp_path, child())
    directory = job_directory(tmp_path / "job")
    known = children(tmp_path)
    known.look()
    assert [one.status for one in known.all()] == ["RUNNING"]
    job_directory(directory, pid=1 << 22)
    known.look()
    assert [one.status for one in known.all()] == ["WAITING"]


@pytest.mark.parametrize("restarted", [False, True], ids=["while it waits", "and the session process began anew"])
@pytest.mark.parametrize("set_by_ms", [-3_600_000, 3_600_000], ids=["set back", "set forward"])
def test_a_restart_comes_in_time_whatever_the_clock_is_set_to(set_by_ms: int, restarted: bool, tmp_path: Path) -> None:
    delay = RestartPolicy(initial_ms=5_000, max_ms=8_000)
    program = Program(tmp_path, "import sys; sys.exit(75)", delay)
    program.wait_for("WAITING")
    program.clocks.machine.advance(set_by_ms)
    if restarted:
        program.another_session()
        program.clocks.advance(8)
    else:
        program.clocks.advance(4.9)
        assert program.child.status == "WAITING"
        program.clocks.advance(0.2)
    program.wait_for("WAITING")
    assert program.child.restarts in (1, 2)
    wait_until(lambda: program.child.restarts == 2, TIMEOUT_S, "its second restart to wait")


@pytest.mark.parametrize("obeys", [True, False])
def test_a_program_that_hangs_before_its_job_is_listed_and_can_be_cancelled(obeys: bool, tmp_path: Path) -> None:
    ignores = "" if obeys else "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    program = Program(tmp_path, f"import signal, time\n{ignores}print('hangs', flush=True)\ntime.sleep(600)")
    program.printed("hangs")
    assert program.child.status == "RUNNING" and program.listed() == ["INITIALIZING"]
    assert program.known.without_job([str(program.directory)]) == [], "the driver tells of it then"
    assert program.known.cancel(str(program.directory))
    assert program.listed() == ["CANCELLING"] and program.known.status(str(program.directory)) == "CANCELLING"
    if not obeys:
        program.another_session()
        assert program.child.status == "RUNNING"
        program.clocks.advance(KILL_S)
    program.wait_for("CANCELED")
    assert program.listed() == ["CANCELED"] and _pids_of(program.program) == []
    program.clocks.advance(3_600)
    assert program.child.status == "CANCELED" and not program.known.cancel(str(program.directory))


def test_what_its_driver_has_accepted_to_cancel_is_not_started_again(tmp_path: Path) -> None:
    program = Program(tmp_path, "import time; print('runs', flush=True); time.sleep(600)")
    program.printed("runs")
    assert program.known.cancel(str(program.directory), asked=True)
    program.clocks.advance(3_600)
    assert program.child.status == "RUNNING", "it ends by itself"
    os.kill(_pid_of(program.program), signal.SIGKILL)
    program.wait_for("CANCELED")


def test_a_program_whose_directory_was_deleted_is_not_started_again_and_is_listed(tmp_path: Path) -> None:
    program = Program(tmp_path, "import time; print('runs', flush=True); time.sleep(600)")
    program.printed("runs")
    shutil.rmtree(program.directory)
    assert program.listed() == ["INITIALIZING"]
    os.kill(_pid_of(program.program), signal.SIGKILL)
    program.wait_for("DELETED")
    assert program.listed() == ["FAILED"]


def test_of_a_program_that_has_ended_nothing_is_listed_once_its_directory_is_deleted(tmp_path: Path) -> None:
    program = Program(tmp_path, "raise SystemExit(1)")
    program.wait_for("ENDED")
    assert program.listed() == ["FAILED"]
    shutil.rmtree(program.directory)
    assert program.listed() == []


def _pids_of(program: Path) -> list[int]:
    import psutil

    found = []
    for one in psutil.process_iter(["cmdline", "name", "status"]):
        if str(program) in (one.info["cmdline"] or []) and one.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(one.pid)
    return found


def _pid_of(program: Path) -> int:
    import psutil

    found = [
        one.pid
        for one in psutil.process_iter(["cmdline", "name"])
        if str(program) in (one.info["cmdline"] or []) and one.info["name"] != "sh"
    ]
    (pid,) = found
    return int(pid)
