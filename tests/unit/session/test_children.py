"""What the session process remembers of the drivers that it has started. That they run is looked at in another
place."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import FinalOperationError, OperationError
from flinkish.runtime.phases import ManualClock
from flinkish.session import children as session_children
from flinkish.session.children import MOST_ENDED, Child, Children, RestartPolicy, StartedDrivers
from tests.support.processes import wait_until

TIMEOUT_S = 60.0


def child(name: str = "job", **fields: Any) -> Child:
    return Child(name, "/nowhere/program.py", [], {}, "upload", 0, **fields)


def remember(folder: Path, *children: Child) -> None:
    StartedDrivers(list(children)).write(str(folder / ".flinkish"))


class Clocks:
    """The clock of the machine, which may be set, and one that never goes back."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self.machine, self.now_s = ManualClock(now_ms), 0.0

    def advance(self, seconds: float) -> None:
        self.machine.advance(int(seconds * 1_000))
        self.now_s += seconds


def children(
    folder: Path, clocks: Clocks | None = None, policy: RestartPolicy = RestartPolicy(attempts=1), **environment: str
) -> Children:
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
    path.write_text(path.read_text().replace("/nowhere/", "/elsewhere/"))
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


def _pid_of(program: Path) -> int:
    import psutil

    found = [
        one.pid
        for one in psutil.process_iter(["cmdline", "name"])
        if str(program) in (one.info["cmdline"] or []) and one.info["name"] != "sh"
    ]
    (pid,) = found
    return int(pid)
