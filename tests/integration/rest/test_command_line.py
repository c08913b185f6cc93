"""The command ``flinkish`` as a process, on a driver in another one: once by REST, once by files in the directory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import wait_until
from tests.support.rest_drivers import TIMEOUT_S, Driver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    started = Driver(tmp_path)
    yield started
    started.process.kill()
    started.process.wait()


def flinkish(driver: Driver, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flinkish.cli", *arguments],
        env={**os.environ, "HOME": str(driver.home)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def done(driver: Driver, *arguments: str, code: int = 0) -> str:
    told = flinkish(driver, *arguments)
    assert (told.returncode, told.stderr if code == 0 else "") == (code, ""), told.stderr
    return told.stdout.strip()


def test_a_job_is_looked_at_and_steered_by_rest_by_files_and_after_its_end(driver: Driver, tmp_path: Path) -> None:
    (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
    job_dir, savepoints = str(driver.directory), str(tmp_path / "savepoints")
    assert f"{job_id} : clicks 0 (RUNNING)  {job_dir}" in done(driver, "list")
    assert done(driver, "describe", job_dir).startswith(f"clicks 0 ({job_id}): RUNNING since 20")
    for named in (job_id[:6], "clicks 0"):
        assert Path(done(driver, "savepoint", named, savepoints), "manifest.json").exists()
    operation = done(driver, "savepoint", job_dir, savepoints, "--detached", code=3)
    wait_until(lambda: flinkish(driver, "savepoint", "status", operation).returncode == 0, TIMEOUT_S, "the savepoint")
    # who does not know the token asks by files
    driver.token_file.rename(driver.token_file.with_suffix(".hidden"))
    assert done(driver, "describe", job_dir).startswith(f"clicks 0 ({job_id}): RUNNING since 20")
    saved = done(driver, "savepoint", job_dir, savepoints)
    assert done(driver, "savepoint", "status", operation, job_dir).startswith(savepoints)
    assert done(driver, "savepoint", "dispose", saved) == f"Savepoint '{saved}' disposed."
    assert not Path(saved).exists()
    driver.process.send_signal(signal.SIGTERM)
    driver.process.wait(TIMEOUT_S)
    ended = done(driver, "describe", job_dir)
    assert ended.startswith(f"clicks 0 ({job_id}): SUSPENDED\n")
    assert re.search(r"^  how +it was suspended", ended, re.MULTILINE)
    assert f"flinkish run -D flinkish.job.dir={job_dir} PROGRAM.py" in ended
    assert "no driver runs a job in this directory" in flinkish(driver, "stop", job_dir).stderr
