"""An executor is lost: where files of state were copied ahead, the tasks that move have nothing to fetch."""

from __future__ import annotations

import json
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.integration.engine import moved_state_job
from tests.support.local_cluster import executor_pids, kill_executor
from tests.support.processes import ProcessGroup, start_driver

TIMEOUT_S = 300
VALUE_BYTES = 250_000

#: (subtask, executor, bytes that were fetched)
Told = tuple[int, str, int]


def epochs(driver: ProcessGroup) -> list[tuple[int, int, list[Told]]]:
    """Number, milliseconds since the one before, tasks."""
    lines = [line for line in driver.output().splitlines(keepends=True) if line.startswith("epoch ")]
    return [json.loads(line.split(maxsplit=1)[1]) for line in lines if line.endswith("\n")]


def names(folder: Path, subtask: int) -> set[str]:
    return {path.name for path in folder.glob(f"**/1/{subtask}/*.arrow")}


def move(folder: Path, standby: int, value_bytes: int = VALUE_BYTES) -> tuple[int, int]:
    """Bytes that a task has fetched when it moved to the executor that was left, and the time of that epoch (ms)."""
    options = {"folder": str(folder), "standby": standby, "value_bytes": value_bytes}
    driver_file = Path(moved_state_job.__file__)
    with start_driver(driver_file, json.dumps(options), log_file=folder / "driver.log") as driver:
        driver.wait_for(lambda: len(epochs(driver)) >= 4, TIMEOUT_S, "epochs")
        if standby:
            driver.wait_for(lambda: all_copied(folder), TIMEOUT_S, "copies of all files on both executors")
        before = epochs(driver)[-1]
        by_executor = {executor: subtask for subtask, executor, _ in before[2]}
        assert set(by_executor) == {"0", "1"}, before
        lost = executor_pids(driver)[0]
        command = psutil.Process(lost).cmdline()
        moved = by_executor[command[command.index("--executor-id") + 1]]
        (survivor,) = set(by_executor) - {command[command.index("--executor-id") + 1]}
        known = executor_pids(driver)
        kill_executor(driver, lost)

        def first_behind() -> tuple[int, int] | None:
            # the executor that Spark starts in place of the lost one has no copies: it does not get the task first
            for pid in set(executor_pids(driver)) - set(known):
                psutil.Process(pid).suspend()
            for number, took_ms, tasks in epochs(driver):
                if number <= before[0]:
                    continue
                for subtask, executor, fetched in tasks:
                    if subtask == moved and executor == survivor:
                        return fetched, took_ms
            return None

        found = driver.wait_for(first_behind, TIMEOUT_S, "an epoch on the executor that is left")
        driver.kill()
    return found


def all_copied(folder: Path) -> bool:
    return all(
        names(folder / "disks" / executor, subtask) >= names(folder / "job/keyed-state", subtask) != set()
        for executor in ("0", "1")
        for subtask in (0, 1)
    )


@pytest.mark.slow
def test_a_task_that_moves_to_an_executor_with_copies_fetches_nothing(tmp_path: Path) -> None:
    without, ahead = tmp_path / "without", tmp_path / "ahead"
    without.mkdir()
    ahead.mkdir()
    fetched, took_ms = move(without, 0)
    assert fetched > 1_000_000
    ahead_fetched, ahead_ms = move(ahead, 1)
    print(f"fetched {fetched} bytes, {took_ms} ms; copied ahead: {ahead_fetched} bytes, {ahead_ms} ms")
    assert ahead_fetched == 0
