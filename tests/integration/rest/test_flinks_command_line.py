"""Flink 2.3's own command line works on a running job."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.ivy import Coordinate, JarSet, JarsNotResolved, java_executable, resolve_jars
from tests.support.processes import wait_until
from tests.support.rest_drivers import TIMEOUT_S, Driver

#: What the command line needs is without these.
_NOT_NEEDED = (
    *("flink-rpc-akka-loader", "flink-rpc-akka", "flink-hadoop-fs", "flink-java", "flink-table-api-java"),
    *("flink-queryable-state-client-java", "snappy-java", "lz4-java", "async-profiler"),
)
CLIENTS = JarSet("flink-clients", (Coordinate("org.apache.flink", "flink-clients", "2.3.0"),), _NOT_NEEDED)

#: Runs ``flink`` with these words; returns what it prints.
Flink = Callable[..., str]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    started = Driver(tmp_path)
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture
def flink(driver: Driver, tmp_path: Path) -> Flink:
    try:
        class_path = os.pathsep.join(map(str, resolve_jars(CLIENTS)))
    except JarsNotResolved as error:
        pytest.skip(f"Flink's command line cannot be had: {error}")
    host, _, port = driver.url.removeprefix("http://").partition(":")
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "config.yaml").write_text(f"rest:\n  address: {host}\n  port: {port}\n")
    opened = "--add-opens=java.base/java.util=ALL-UNNAMED"
    command = [java_executable(), opened, "-XX:TieredStopAtLevel=1", "-cp", class_path]

    def run(*words: str, token: str | None = driver.token) -> str:
        known = {} if token is None else {"FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {token}"}
        return subprocess.run(
            [*command, "org.apache.flink.client.cli.CliFrontend", *words],
            env={**os.environ, "FLINK_CONF_DIR": str(conf), **known},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S * 2,
            check=False,
        ).stdout

    return run


def test_a_job_is_listed_saved_and_stopped(driver: Driver, flink: Flink, tmp_path: Path) -> None:
    (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
    assert re.search(rf"{job_id} : clicks 0 \(RUNNING\)", flink("list", "-a"))
    assert "The driver's token is missing or wrong" in flink("list", token=None)
    saved = re.search(r"Savepoint completed. Path: (\S+)", flink("savepoint", job_id, str(tmp_path / "sp")))
    assert saved is not None and Path(saved[1]).is_dir()
    refused = flink("savepoint", job_id, "/proc/nothing")
    assert "Caused by: flinkish.errors.SavepointError: cannot write a savepoint to /proc/nothing" in refused
    # the driver lives until the client has its answer
    stopped = re.search(r"Savepoint completed. Path: (\S+)", flink("stop", "-p", str(tmp_path / "sp"), job_id))
    assert stopped is not None and Path(stopped[1]).is_dir()
    assert driver.process.wait(TIMEOUT_S) in (0, 143)


def test_a_job_is_cancelled(driver: Driver, flink: Flink) -> None:
    (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
    assert f"Cancelled job {job_id}." in flink("cancel", job_id)
    assert driver.process.wait(TIMEOUT_S) in (0, 143)
