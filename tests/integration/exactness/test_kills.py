"""The big job in a driver that is killed -9 with all its processes: at random points of its work, and at each phase."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.exactness import job
from tests.integration.exactness.model import golden, of_each
from tests.integration.exactness.outputs import all_outputs, rows_so_far
from tests.support.exactness import assert_exact
from tests.support.processes import ProcessGroup, start_driver

TIMEOUT_S = 180
SEED = 20_240_229
#: An epoch takes about this long at least: a kill this long after one has begun hits any point of one.
EPOCH_S = 0.3


def drive(folder: Path, **options: Any) -> ProcessGroup:
    """A driver of its own that runs the job."""
    log = folder / f"driver-{time.time_ns()}.log"
    return start_driver(Path(job.__file__), json.dumps({"folder": str(folder), **options}), log_file=log)


def kill_at_work(folder: Path, dice: random.Random, **options: Any) -> None:
    """Kill a driver at some time after it has put out more than its predecessors."""
    before = rows_so_far(folder)
    with drive(folder, **options) as driver:
        driver.wait_for(lambda: rows_so_far(folder) > before, TIMEOUT_S, f"more than {before} rows")
        time.sleep(dice.uniform(0, 2 * EPOCH_S))
        assert driver.running
        assert "finished" not in driver.output()
        driver.kill()
    assert not (folder / "job" / "finished.json").exists(), "the kill fell into running work"


def killed_at_random(folder: Path, kills: int, records: int, per_epoch: int) -> None:
    dice = random.Random(SEED)
    program = {"records": records, "per_epoch": per_epoch, "slow_s": EPOCH_S}
    for _ in range(kills):
        kill_at_work(folder, dice, program=program)
    with drive(folder, program={**program, "slow_s": 0}) as driver:
        driver.succeed(TIMEOUT_S)
    assert_exact(golden(of_each(records)), all_outputs(folder))


def test_killed_three_times_at_random_points_it_puts_out_the_golden_result(folder: Path) -> None:
    killed_at_random(folder, kills=3, records=720, per_epoch=40)


@pytest.mark.slow
def test_killed_twenty_times_at_random_points_it_puts_out_the_golden_result(folder: Path) -> None:
    killed_at_random(folder, kills=20, records=1440, per_epoch=10)
