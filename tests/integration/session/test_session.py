"""A session process shows drivers, starts them, starts them again, and may itself be killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.integration.rest.test_flinks_command_line import CommandLine, path_in
from tests.support.processes import wait_until
from tests.support.rest_drivers import TIMEOUT_S, Driver
from tests.support.session_processes import PROGRAM, SessionUnderTest

#: Begins a session process with these settings.
Begin = Callable[..., SessionUnderTest]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Begin]:
    begun: list[SessionUnderTest] = []

    def begin(*settings: str) -> SessionUnderTest:
        begun.append(SessionUnderTest(tmp_path, *settings))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


SUBMIT = "web.submit.enable=true"


def test_flinks_command_line_works_through_the_session_process(session: Begin, tmp_path: Path) -> None:
    one = session(SUBMIT)
    upload = one.uploaded()
    job_id = one.asked(f"/jars/{upload}/run", "POST", {"programArgs": "a 'b c'"})[1]["jobid"]
    stopped_id = one.asked(f"/jars/{upload}/run", "POST", {})[1]["jobid"]
    for each in (job_id, stopped_id):
        one.wait_for(each, "RUNNING")
    (log,) = [text for path in one.jobs.glob("*/driver.log") if "['a'" in (text := path.read_text())]
    assert "arguments: ['a', 'b c']" in log
    with CommandLine("2.3.0", one.url, one.token, tmp_path) as flink:
        listed = flink("list")[0]
        assert all(re.search(rf"{each} : uploaded \(RUNNING\)", listed) for each in (job_id, stopped_id))
        saved = path_in(flink("savepoint", job_id, str(tmp_path / "sp"))[0])
        assert saved.is_dir()
        assert "disposed" in flink("savepoint", "-dispose", str(saved))[0] and not saved.exists()
        assert path_in(flink("stop", "-p", str(tmp_path / "sp"), stopped_id)[0]).is_dir()
        assert f"Cancelled job {job_id}." in flink("cancel", job_id)[0]
        one.wait_for(job_id, "CANCELED")
        one.wait_for(stopped_id, "FINISHED")
        # the drivers have gone, and somebody can be asked
        wait_until(lambda: not one.drivers(), TIMEOUT_S, "the end of the drivers")
        listed = flink("list", "-a")[0]
        assert f"{job_id} : uploaded (CANCELED)" in listed and f"{stopped_id} : uploaded (FINISHED)" in listed
        assert f"Job {job_id} has no driver: it is CANCELED." in flink("cancel", job_id)[0]
    assert one.asked(f"/jobs/{job_id}")[1]["state"] == "CANCELED"
    result = one.asked(f"/jobs/{stopped_id}/execution-result")[1]["job-execution-result"]
    assert result["application-status"] == "SUCCEEDED"
    assert one.asked(f"/applications/{job_id}")[1]["jobs"][0]["jid"] == job_id


def test_a_session_process_that_is_killed_finds_its_drivers_and_goes_on_restarting_them(session: Begin) -> None:
    one = session(SUBMIT, "flinkish.jobmanager.restart.initial-backoff=100 ms")
    job_id = one.asked(f"/jars/{one.uploaded()}/run", "POST", {})[1]["jobid"]
    one.wait_for(job_id, "RUNNING")
    (first,) = one.drivers()
    one.process.kill()
    one.process.wait()
    assert first.is_running()
    one.start()
    assert one.asked("/jobs")[1]["jobs"] == [{"id": job_id, "status": "RUNNING"}]
    second = subprocess.run(one.command(), capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert second.returncode == 2 and f"another session process (process {one.process.pid}" in second.stderr
    first.kill()
    wait_until(lambda: one.drivers() not in ([], [first]), TIMEOUT_S, "another driver")
    one.wait_for(job_id, "RUNNING")
    (again,) = one.drivers()
    # its driver ends while nobody looks: the exit code is found
    one.process.kill()
    one.process.wait()
    again.send_signal(signal.SIGTERM)
    psutil.wait_procs([again], TIMEOUT_S)
    one.start()
    assert one.asked("/jobs")[1]["jobs"] == [{"id": job_id, "status": "SUSPENDED"}]
    (child,) = json.loads((one.jobs / ".flinkish/session.json").read_text())["children"]
    assert (child["status"], child["code"], one.drivers()) == ("ENDED", 143, [])


@pytest.mark.parametrize(
    ("code", "starts"),
    [
        pytest.param(0, 1, id="the program has ended"),
        pytest.param(1, 1, id="it would fail again"),
        pytest.param(75, 3, id="it may get further"),
        pytest.param(77, 1, id="another driver has the job"),
        pytest.param(143, 1, id="it was stopped"),
    ],
)
def test_a_driver_is_started_again_by_its_exit_code(session: Begin, code: int, starts: int) -> None:
    backoff = "flinkish.jobmanager.restart.initial-backoff=10 ms"
    one = session(SUBMIT, "flinkish.jobmanager.restart.attempts=2", backoff)
    upload = one.uploaded(f"import sys\nprint('started with a password=secret', flush=True)\nsys.exit({code})")
    answer = one.asked(f"/jars/{upload}/run", "POST", {})
    assert answer[0] == 400
    assert f"The program has ended (exit code {code}) without a job." in answer[1]["errors"][0]
    assert "started with a password=******" in answer[1]["errors"][0]
    (log,) = one.jobs.glob("*/driver.log")
    assert log.read_text().count("started") == starts
    # the token of the session is nothing that a driver needs
    assert one.token not in log.read_text()


def test_two_drivers_of_a_host_are_two_and_a_killed_one_comes_again_whatever_it_leaves(session: Begin) -> None:
    one = session(SUBMIT, "flinkish.jobmanager.restart.initial-backoff=100 ms")
    forks = "import os, time\nif not os.fork():\n    time.sleep(600)\n" + PROGRAM
    # what the session forces is no matter of a request
    asked = {"flinkConfiguration": {"rest.bind-address": "0.0.0.0"}}
    ids = [one.asked(f"/jars/{one.uploaded(text)}/run", "POST", asked)[1]["jobid"] for text in (forks, PROGRAM)]
    urls = [json.loads(owner.read_text())["rest"] for owner in one.jobs.glob("*/owner.json")]
    assert len(urls) == 2 and all(url.startswith("http://127.0.0.1:") for url in urls)

    def managers() -> set[str]:
        return {manager["id"] for manager in one.asked("/taskmanagers")[1]["taskmanagers"]}

    for job_id in ids:
        one.wait_for(job_id, "RUNNING")
    wait_until(lambda: len(managers()) == 2, TIMEOUT_S, "a TaskManager of each")
    assert all(one.asked(f"/taskmanagers/{manager}/metrics?get=numTasks")[1] for manager in managers())
    first = min(one.drivers(), key=lambda driver: driver.create_time())
    left = first.children()
    try:
        first.kill()
        wait_until(lambda: first not in one.drivers() and len(one.drivers()) == 2, TIMEOUT_S, "another driver")
        one.wait_for(ids[0], "RUNNING")
        assert left and all(child.is_running() for child in left)
    finally:
        for child in left + [child for driver in one.drivers() for child in driver.children()]:
            child.kill()


def test_a_process_that_a_driver_forks_and_that_exits_ends_nothing_of_the_driver(session: Begin) -> None:
    one = session(SUBMIT)
    forks = PROGRAM.replace('env.execute("uploaded")', 'client = env.execute_async("uploaded")') + (
        "import os\nif not os.fork():\n    sys.exit(0)\nprint('it has exited', os.wait(), flush=True)\n"
        "client.get_job_execution_result().result()\n"
    )
    job_id = one.asked(f"/jars/{one.uploaded(forks)}/run", "POST", {})[1]["jobid"]
    (log,) = one.jobs.glob("*/driver.log")
    wait_until(lambda: "it has exited" in log.read_text(), TIMEOUT_S, "the other process")
    one.wait_for(job_id, "RUNNING")
    (owner,) = one.jobs.glob("*/owner.json")
    assert "released" not in json.loads(owner.read_text())
    assert one.asked(f"/jobs/{job_id}/metrics")[0] == 200, "the token of the driver is there"


def test_a_driver_that_hangs_holds_nobody_else_up(session: Begin, tmp_path: Path) -> None:
    one = session()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    drivers = [Driver(tmp_path / name, home=one.home, directory=one.jobs / name) for name in ("first", "second")]
    try:
        ids = [wait_until(driver.running, TIMEOUT_S, "its job")[0] for driver in drivers]
        wait_until(lambda: {*ids} == {job["id"] for job in one.asked("/jobs")[1]["jobs"]}, TIMEOUT_S, "both jobs")
        drivers[0].process.send_signal(signal.SIGSTOP)
        one.wait_for(ids[0], "RECONCILING")
        code, answer = one.asked(f"/jobs/{ids[0]}")
        assert code == 504 and "does not answer in time" in answer["errors"][0]
        assert one.asked(f"/jobs/{ids[1]}")[1]["state"] == one.status(ids[1]) == "RUNNING"
        drivers[0].process.send_signal(signal.SIGCONT)
        one.wait_for(ids[0], "RUNNING")
        # what is not the session's own ends as any other driver, and is not started again
        drivers[0].process.kill()
        one.wait_for(ids[0], "SUSPENDED")
        one.process.terminate()
        assert one.process.wait(TIMEOUT_S) == 143
        assert drivers[1].asked("/jobs")[1]["jobs"] == [{"id": ids[1], "status": "RUNNING"}]
        assert not one.token_file.exists()
    finally:
        for driver in drivers:
            driver.process.kill()
            driver.process.wait()
