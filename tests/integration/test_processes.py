"""Driver scripts and executors can be waited for, killed -9, and never outlive the test that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support.local_cluster import executor_logs, executor_pids, kill_executor
from tests.support.processes import ProcessFailed, ProcessGroup, python_path, start_driver, wait_until

SPARK_DRIVER = """
import sys, time
from pathlib import Path
from tests.support.spark_session import start_session

def stuck(_):
    print("worker busy", flush=True)
    while True:
        pass

spark = start_session(Path(sys.argv[1]), "local[1]")
print("driver up", flush=True)
spark.sparkContext.parallelize([1], 1).map(stuck).count()
"""

CLUSTER_DRIVER = """
import os, sys, time
from pathlib import Path
from tests.support.local_cluster import start_cluster_session

folder = Path(sys.argv[1])
spark = start_cluster_session(folder)

def executor(_):
    time.sleep(0.2)
    return os.getppid()  # the executor's Python daemon

seen = set()
while not (folder / "end").exists():
    seen.update(spark.sparkContext.parallelize(range(4), 4).map(executor).collect())
    print(f"executors seen: {len(seen)}", flush=True)
spark.stop()
print("driver ended", flush=True)
"""


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "driver.py"
    path.write_text(text)
    return path


def test_a_failed_driver_is_reported_with_its_output(tmp_path: Path) -> None:
    failing = script(tmp_path, "print('so far', flush=True)\nraise SystemExit(3)")
    with start_driver(failing, log_file=tmp_path / "log") as driver:
        assert driver.wait_for_line("so (.*)", timeout_s=60)[1] == "far"
        with pytest.raises(ProcessFailed, match="ended with 3 without a line that matches 'never'(.|\n)*so far"):
            driver.wait_for_line("never", timeout_s=60)
        driver.end_with(3, 60)


@pytest.mark.slow
def test_killing_a_driver_takes_its_jvm_and_its_busy_python_workers_along(tmp_path: Path) -> None:
    with start_driver(script(tmp_path, SPARK_DRIVER), str(tmp_path), log_file=tmp_path / "log") as driver:
        driver.wait_for_line("worker busy", timeout_s=120)
        family = driver.descendants()
        assert 0 < len(driver.jvms()) < len(family)
        driver.kill()
        assert not driver.running
        assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


def test_what_a_test_process_has_started_dies_with_it(tmp_path: Path) -> None:
    starter = (
        "import os, sys, pathlib\nfrom tests.support.processes import ProcessGroup\n"
        f"group = ProcessGroup(['sleep', '600'], pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "print(group.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", starter], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": python_path()}
    )
    assert ended.returncode == -signal.SIGKILL
    wait_until(lambda: _gone(int(ended.stdout)), 30, "the end of the orphan")


@pytest.mark.slow
def test_an_executor_of_a_local_cluster_can_be_killed_and_is_replaced(tmp_path: Path) -> None:
    with start_driver(script(tmp_path, CLUSTER_DRIVER), str(tmp_path), log_file=tmp_path / "log") as driver:
        try:
            driver.wait_for_line("executors seen: 2", timeout_s=120)
            before = executor_pids(driver)
            assert len(before) == 2
            kill_executor(driver, before[0])
            after = driver.wait_for(lambda: _replaced(driver, before), 120, "a new executor")
            assert before[1] in after and before[0] not in after
            driver.wait_for_line("executors seen: 3", timeout_s=120)
            (tmp_path / "end").touch()
            assert "driver ended" in driver.succeed(timeout_s=120)
        except ProcessFailed as failure:
            raise AssertionError(f"{failure}\n{executor_logs(tmp_path)}") from failure


def _replaced(driver: ProcessGroup, before: list[int]) -> list[int]:
    now = executor_pids(driver)
    return now if len(now) == 2 and now != before else []


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
