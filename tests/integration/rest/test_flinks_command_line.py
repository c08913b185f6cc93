"""Flink's own command lines, of 2.3 and of 1.20, work on a running job."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.flink_jars import FLINK, FLINK_1
from tests.support.ivy import JarsNotResolved, java_executable, resolve_jars
from tests.support.processes import wait_until
from tests.support.rest_drivers import TIMEOUT_S, Driver

CLIENTS = {"2.3.0": FLINK, "1.20.3": FLINK_1}
ALL = pytest.mark.parametrize("flink", ["2.3.0", pytest.param("1.20.3", marks=pytest.mark.nightly)], indirect=True)

#: Runs ``flink`` with these words; returns what it prints and its exit code.
Flink = Callable[..., tuple[str, int]]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    started = Driver(tmp_path, "rest.linger=3 s")
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture
def flink(driver: Driver, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Flink]:
    with CommandLine(request.param, driver.url, driver.token, tmp_path) as run:
        yield run


class CommandLine:
    """Flink's command line, one process for all commands."""

    def __init__(self, version: str, url: str, token: str | None, folder: Path) -> None:
        try:
            class_path = os.pathsep.join(map(str, resolve_jars(CLIENTS[version])))
        except JarsNotResolved as error:
            pytest.skip(f"Flink's command line cannot be had: {error}")
        host, _, port = url.removeprefix("http://").partition(":")
        conf = folder / f"conf-{len(list(folder.glob('conf-*')))}"
        conf.mkdir()
        (conf / "config.yaml").write_text(f"rest:\n  address: {host}\n  port: {port}\n")
        known = {} if token is None else {"FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {token}"}
        opened = ("--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED")
        program = str(Path(__file__).with_name("FlinkCommands.java"))
        command = [java_executable(), *opened, "-XX:TieredStopAtLevel=1", "-cp", class_path, program, str(conf)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "FLINK_CONF_DIR": str(conf), **known},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Flink:
        return self._run

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _run(self, *words: str) -> tuple[str, int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith("\0"):
                return "".join(lines), int(line[1:])
            lines.append(line)
        raise AssertionError("the command line has ended:\n" + "".join(lines))


def of_one_job(driver: Driver) -> str:
    (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
    return job_id


def path_in(text: str) -> Path:
    found = re.search(r"Savepoint completed. Path: (\S+)", text)
    assert found is not None, text
    return Path(found[1].removeprefix("file:"))


@ALL
def test_a_job_is_listed_saved_and_stopped(driver: Driver, flink: Flink, tmp_path: Path) -> None:
    job_id = of_one_job(driver)
    for options, shown in ((("-a",), True), (("-r",), True), (("-s",), False), ((), True)):
        text, code = flink("list", *options)
        assert (code, bool(re.search(rf"{job_id} : clicks 0 \(RUNNING\)", text))) == (0, shown), text
    saved = path_in(flink("savepoint", job_id, str(tmp_path / "sp"))[0])
    assert saved.is_dir()
    refused, code = flink("savepoint", job_id, "/proc/nothing")
    assert "Caused by: flinkish.errors.SavepointError: cannot write a savepoint to /proc/nothing" in refused
    assert code == 1
    text, code = flink("savepoint", "-d", str(saved))
    assert ("disposed." in text, code, saved.exists()) == (True, 0, False), text
    text, code = flink("stop", "-d", "-p", str(tmp_path / "sp"), job_id)
    assert ("OperationError: the minicluster cannot drain a job" in text, code) == (True, 1), text
    # the driver lives until the client has its answer
    assert path_in(flink("stop", "-p", str(tmp_path / "sp"), job_id)[0]).is_dir()
    assert driver.process.wait(TIMEOUT_S) in (0, 143)


@ALL
def test_a_checkpoint_is_taken_by_hand_and_the_job_is_cancelled(driver: Driver, flink: Flink) -> None:
    job_id = of_one_job(driver)
    for options in ((), ("-full",)):
        text, code = flink("checkpoint", *options, job_id)
        assert code == 0 and re.search(rf"Checkpoint(\(FULL\))? \d+ for job {job_id} completed", text), text
    text, code = flink("cancel", job_id)
    assert (f"Cancelled job {job_id}." in text, code) == (True, 0), text
    assert driver.process.wait(TIMEOUT_S) in (0, 143)


@pytest.mark.parametrize("flink", ["2.3.0"], indirect=True)
def test_a_savepoint_is_asked_for_and_left_to_itself_and_a_cancel_takes_one(
    driver: Driver, flink: Flink, tmp_path: Path
) -> None:
    job_id = of_one_job(driver)
    text, code = flink("savepoint", "-detached", job_id, str(tmp_path / "sp"))
    assert code == 0 and "Successfully trigger" in text, text
    wait_until(lambda: list((tmp_path / "sp").glob("savepoint-*")), TIMEOUT_S, "the savepoint")
    text, code = flink("cancel", "-s", str(tmp_path / "other"), job_id)
    assert code == 0 and "Savepoint stored in" in text, text
    assert driver.process.wait(TIMEOUT_S) in (0, 143)


def test_who_does_not_know_the_token_is_told_so(driver: Driver, tmp_path: Path) -> None:
    with CommandLine("2.3.0", driver.url, None, tmp_path) as flink:
        text, code = flink("list")
    assert ("The driver's token is missing or wrong" in text, code) == (True, 1), text
