"""On a cluster of real executors: one of them is killed -9 in the middle, and the results are right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from psutil import Process  # type: ignore[import-untyped]

from tests.integration.engine import counting_job, tables_job
from tests.integration.engine.counting_job import expected, in_database, make_tables, windows_expected
from tests.support.local_cluster import executor_pids, kill_executor
from tests.support.processes import start_driver

TIMEOUT_S = 600


def test_an_executor_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    make_tables(tmp_path)
    # now and then Spark cannot repair the running epoch
    restarts = {"restart_strategy__type": "fixed-delay"}
    options = {"folder": str(tmp_path), "executors": 2, "slow_s": 0.5, "fails_once": True, "settings": restarts}
    with start_driver(Path(counting_job.__file__), json.dumps(options), log_file=tmp_path / "driver.log") as driver:
        line = driver.wait_for_line(r'^executors .*"[01]".*"[01]".*$', TIMEOUT_S)
        check_executors(json.loads(line.group().split(maxsplit=1)[1]), executor_pids(driver))
        driver.wait_for_line(r"^epochs ([2-9]|\d\d)$", TIMEOUT_S)
        kill_executor(driver, executor_pids(driver)[0])
        assert "finished" not in driver.output()
        said = driver.succeed(TIMEOUT_S)
    assert re.search(r"job 'counting': executor [01] on \S+ was lost at [\d-]+ [\d:]+ UTC \(", said), said
    events = json.loads(re.findall(r"^task managers (.*)$", said, re.MULTILINE)[0])
    assert len([event for event in events if re.search(r"task manager '\S+-[01]-\S+': REGISTERED \(", event)]) == 2
    (lost,) = [event for event in events if ": REGISTERED -> LOST (" in event]
    assert "Command exited with code 137" in lost
    retried = "a task has failed; Spark runs it again: UserCodeError: ConnectionError in user code: the service does"
    assert said.count(retried) == 1
    assert "found of a short job: ['ValueError: the first try fails']" in said
    assert in_database(tmp_path) == expected()
    assert in_database(tmp_path, "windows") == windows_expected()


@pytest.mark.nightly
def test_an_executor_that_is_killed_changes_nothing_of_the_results_of_queries(tmp_path: Path) -> None:
    tables_job.make(tmp_path)
    options = {"folder": str(tmp_path), "executors": 2, "settings": {"restart-strategy.type": "fixed-delay"}}
    script, log_file = Path(tables_job.__file__), tmp_path / "driver.log"
    # texts have other hashes in each process, were they Python's
    with start_driver(script, json.dumps(options), log_file=log_file, env={"PYTHONHASHSEED": "random"}) as driver:
        driver.wait_for_line(r": epoch [1-3] at ", TIMEOUT_S)
        kill_executor(driver, executor_pids(driver)[0])
        assert "executors" not in driver.output()
        said = driver.succeed(TIMEOUT_S)
    assert "was lost at" in said
    assert re.search(r"^executors [01] [01] 2$", said, re.MULTILINE), "the rows of a level come from two executors"
    assert (tables_job.totals(tmp_path), tables_job.windows(tmp_path)) == tables_job.expected()


def check_executors(told: dict[str, dict[str, list[Any]]], jvms: list[int]) -> None:
    """What the job says of its tasks is so: the executors are Spark's, and the workers theirs."""
    ids = {process.cmdline()[process.cmdline().index("--executor-id") + 1]: process for process in map(Process, jvms)}
    assert set(told) == set(ids) == {"0", "1"}
    first, second = (set(told[executor]["tasks"]) for executor in ("0", "1"))
    assert first
    assert second
    assert not first & second
    for executor, jvm in ids.items():
        assert set(told[executor]["workers"]) <= {process.pid for process in jvm.children(recursive=True)}
