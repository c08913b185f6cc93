"""A day on call: a session process, ten drivers, and whatever happens to them. After each incident the lists of the
session are compared with what is true."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support.processes import wait_until
from tests.support.rest_drivers import TIMEOUT_S
from tests.support.session_processes import PROGRAM, SessionUnderTest

#: A job that does little, of the name that it is given.
QUIET = PROGRAM.replace("sleep(0.01)", "sleep(0.1)").replace('execute("uploaded")', "execute(sys.argv[1])")
#: Leaves a process behind, as a pool of workers does.
FORKS = "import os, time\nif not os.fork():\n    time.sleep(600)\n    os._exit(0)\n" + QUIET
#: Hangs before its job, from its second start on.
HANGS_LATER = (
    """
import os, time
if os.path.exists("started"):
    print("hangs", flush=True)
    time.sleep(600)
open("started", "w").close()
"""
    + QUIET
)
HANGS = "import time\nprint('hangs', flush=True)\ntime.sleep(600)"
#: Stands still while a file says so, and ends by the code in another one.
STANDS = QUIET.replace(
    "def slowly(number):",
    """import os
from pathlib import Path
home, name = Path(os.environ["HOME"]), sys.argv[1]

def slowly(number):
    while (home / "stands").exists():
        (home / f"{name}.stands").touch()
        if (home / f"{name}.code").exists():
            os._exit(int((home / f"{name}.code").read_text()))
        time.sleep(0.05)""",
)

#: Runs the command line with a clock that may be set, by a number of seconds in a file.
WITH_CLOCK = """
import sys, time
from pathlib import Path
file, now_ns = Path(sys.argv.pop(1)), time.time_ns
def set_ns():
    return now_ns() + int(file.read_text()) * 10**9
time.time_ns, time.time = set_ns, lambda: set_ns() / 1e9
from flinkish.cli import main
sys.exit(main(sys.argv[1:]))"""


class Day(SessionUnderTest):
    """A session process on a small disk of its own, whose clock may be set; and what is true of its jobs."""

    def __init__(self, folder: Path) -> None:
        self.clock = folder / "clock"
        self.clock.write_text("0")
        #: name of a job -> its state
        self.truth: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.by_hand: list[subprocess.Popen[bytes]] = []
        super().__init__(folder, "web.submit.enable=true", "flinkish.jobmanager.restart.initial-backoff=1 s")

    def command(self) -> list[str]:
        _, _, _, *words = super().command()
        return [sys.executable, "-c", WITH_CLOCK, str(self.clock), *words]

    def submitted(self, name: str, program: str = QUIET, **body: object) -> None:
        upload = self.uploaded(program, f"{name}.py")
        code, answer = self.asked(f"/jars/{upload}/run", "POST", {"programArgsList": [name], **body})
        assert code == 200, answer
        self.ids[name], self.truth[name] = answer["jobid"], "RUNNING"

    def started_by_hand(self, name: str, directory: Path) -> None:
        program = self.home / "by_hand.py"
        program.write_text(QUIET)
        settings = (
            "execution.target=minicluster",
            "flinkish.progress=never",
            "flinkish.rest.enabled=true",
            "rest.bind-port=0",
        )
        words = [word for text in (*settings, f"flinkish.job.dir={directory}") for word in ("-D", text)]
        with (self.home / f"{name}.log").open("w") as log:
            self.by_hand.append(
                subprocess.Popen(
                    [sys.executable, "-m", "flinkish.cli", "run", *words, str(program), name],
                    env={**os.environ, "HOME": str(self.home)},
                    stdout=log,
                    stderr=log,
                )
            )
        self.truth[name] = "RUNNING"

    def directory(self, name: str) -> Path:
        (found,) = self.jobs.glob(f"{name}-*")
        return found

    def pid(self, name: str) -> int:
        return int(json.loads((self.directory(name) / "owner.json").read_text())["pid"])

    def listed(self) -> dict[str, str]:
        """The name of each job, without the end of that of its directory -> its state."""
        lines = self.asked("/jobs/overview")[1]["jobs"]
        found = {re.sub("-[0-9a-f]{8}$", "", line["name"]): line["state"] for line in lines}
        assert len(found) == len(lines), lines
        return found

    def check(self) -> None:
        """Every view says what is true, and goes on saying it."""
        with suppress(TimeoutError):
            wait_until(lambda: self.listed() == self.truth, TIMEOUT_S, "the truth")
        assert self.listed() == self.truth
        running = {name for name, state in self.truth.items() if state == "RUNNING"}
        with suppress(TimeoutError):
            wait_until(lambda: len(self.managers()) == len(running), TIMEOUT_S, "their TaskManagers")
        managers = self.managers()
        assert len(managers) == len(running)
        assert len(set(managers)) == len(managers)
        assert all(self.asked(f"/taskmanagers/{one}/metrics")[0] == 200 for one in managers)
        text = self.scrape()
        assert "numRunningJobs{" in text and re.search(rf"numRunningJobs\{{.*\}} {len(running)}\.0", text), text[:200]
        assert set(re.findall(r'flink_jobmanager_job_uptime\{.*job_name="(\w+)"', text)) == running
        time.sleep(1.5)
        assert self.listed() == self.truth

    def managers(self) -> list[str]:
        return [one["id"] for one in self.asked("/taskmanagers")[1]["taskmanagers"]]

    def scrape(self) -> str:
        import urllib.request

        asked = urllib.request.Request(f"{self.url}/metrics", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())

    def killed(self, name: str) -> int:
        """Kill the driver of a job, and return which it was."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def another(self, name: str, than: int) -> None:
        wait_until(lambda: self.pid(name) != than, TIMEOUT_S, "another driver")

    def close(self) -> None:
        """End everything that was started below its home."""
        super().close()
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.environ().get("HOME") == str(self.home):
                    one.kill()
        for driver in self.by_hand:
            driver.wait()


@pytest.fixture
def day(tmp_path: Path) -> Iterator[Day]:
    disk = tmp_path / "jobs"
    disk.mkdir(mode=0o700)
    mounts = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", str(disk)], capture_output=True, check=False
        ).returncode
    )
    one = Day(tmp_path)
    yield one
    one.close()
    if mounts:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def kill_all(day: Day) -> None:
    pids = {name: day.killed(name) for name in ("plain", "forks")}
    # while they wait for their restarts
    wait_until(lambda: day.listed()["plain"] == "RESTARTING", TIMEOUT_S, "its restart")
    day.clock.write_text("-3600")
    for name, pid in pids.items():
        day.another(name, pid)


def kill_what_the_session_has_not_started(day: Day) -> None:
    day.by_hand[0].kill()
    day.truth["hand"] = "SUSPENDED"


def use_a_deleted_directory_again(day: Day) -> None:
    shutil.rmtree(day.jobs / "hand")
    del day.truth["hand"]
    day.started_by_hand("again", day.jobs / "hand")


def delete_the_directory_of_a_driver(day: Day) -> None:
    gone = day.home / "gone"
    subprocess.run(["mv", str(day.directory("deleted")), str(gone)], check=True)
    shutil.rmtree(gone, ignore_errors=True)
    day.truth["deleted"] = "FAILED"


def cancel_while_the_next_driver_starts(day: Day) -> None:
    log = day.directory("later") / "driver.log"
    day.killed("later")
    wait_until(lambda: "hangs" in log.read_text(), TIMEOUT_S, "the next driver")
    assert day.asked(f"/jobs/{day.ids['later']}?mode=cancel", "PATCH")[0] == 202
    day.truth["later"] = "CANCELED"


def cancel_what_hangs_before_it_has_a_job(day: Day) -> None:
    upload = day.uploaded(HANGS, "hangs.py")
    with ThreadPoolExecutor(1) as pool:
        asker = pool.submit(day.asked, f"/jars/{upload}/run", "POST", {})
        wait_until(lambda: day.listed().get("hangs") == "INITIALIZING", TIMEOUT_S, "the program in the list")
        ids = {line["state"]: line["jid"] for line in day.asked("/jobs/overview")[1]["jobs"]}
        assert day.asked(f"/jobs/{ids['INITIALIZING']}?mode=cancel", "PATCH")[0] == 202
        assert asker.result()[0] == 400, "there is no job"
    day.truth["hangs"] = "CANCELED"


def fail_and_cancel_on_a_full_disk(day: Day) -> None:
    if os.statvfs(day.jobs).f_blocks * os.statvfs(day.jobs).f_frsize > 1 << 27:
        pytest.skip("no small file system")
    (day.home / "stands").touch()
    for name in ("fails", "full"):
        wait_until((day.home / f"{name}.stands").exists, TIMEOUT_S, "the job to stand still")
    with (day.jobs / "rest").open("wb", buffering=0) as rest, suppress(OSError):
        while rest.write(bytes(4_096)):
            pass
    starts = {name: day.child(name)["started_ms"] for name in ("fails", "full")}
    assert day.asked(f"/jobs/{day.ids['full']}?mode=cancel", "PATCH")[0] == 202
    (day.home / "fails.code").write_text("1")
    wait_until(lambda: day.listed()["fails"] == "FAILED", TIMEOUT_S, "the failure")
    (day.home / "stands").unlink()
    wait_until(lambda: day.listed()["full"] == "CANCELED", TIMEOUT_S, "the cancellation")
    time.sleep(5)
    assert (day.listed()["fails"], day.listed()["full"]) == ("FAILED", "CANCELED")
    (day.jobs / "rest").unlink()
    day.truth |= {"fails": "FAILED", "full": "CANCELED"}
    wait_until(lambda: day.child("full")["status"] == "CANCELED", TIMEOUT_S, "what is known to be written")
    assert {name: day.child(name)["started_ms"] for name in starts} == starts, "neither is started again"


def kill_the_session(day: Day) -> None:
    day.process.kill()
    day.process.wait()
    first = day.killed("plain")
    day.clock.write_text("-7200")
    day.start()
    day.another("plain", first)


#: What happens, in this order.
INCIDENTS = (
    kill_all,
    kill_what_the_session_has_not_started,
    use_a_deleted_directory_again,
    delete_the_directory_of_a_driver,
    cancel_while_the_next_driver_starts,
    cancel_what_hangs_before_it_has_a_job,
    fail_and_cancel_on_a_full_disk,
    kill_the_session,
)


@pytest.mark.nightly
def test_after_each_incident_of_a_day_the_lists_say_what_is_true(day: Day) -> None:
    programs = {"plain": QUIET, "forks": FORKS, "deleted": QUIET, "later": HANGS_LATER, "fails": STANDS, "full": STANDS}
    for name, program in programs.items():
        asked = {"rest.bind-address": "0.0.0.0", "rest.bind-port": "8081"}
        day.submitted(name, program, flinkConfiguration=asked)
        assert "//127.0.0.1:" in json.loads((day.directory(name) / "owner.json").read_text())["rest"]
    for name in ("hand", "second", "third", "fourth"):
        day.started_by_hand(name, day.jobs / name)
    day.check()
    for incident in INCIDENTS:
        incident(day)
        day.check()
