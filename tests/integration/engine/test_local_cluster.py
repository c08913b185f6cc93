"""On a cluster of real executors: one of them is killed -9 in the middle, and the results are right."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.engine import counting_job
from tests.integration.engine.counting_job import expected, in_database, make_tables, windows_expected
from tests.support.local_cluster import executor_pids, kill_executor
from tests.support.processes import start_driver

TIMEOUT_S = 240


def test_an_executor_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    make_tables(tmp_path)
    options = {"folder": str(tmp_path), "executors": 2, "slow_s": 1}
    with start_driver(Path(counting_job.__file__), json.dumps(options), log_file=tmp_path / "driver.log") as driver:
        driver.wait_for_line(r"^epochs [23]$", TIMEOUT_S)
        kill_executor(driver, executor_pids(driver)[0])
        assert "finished" not in driver.output()
        driver.succeed(TIMEOUT_S)
    assert in_database(tmp_path) == expected()
    assert in_database(tmp_path, "windows") == windows_expected()
