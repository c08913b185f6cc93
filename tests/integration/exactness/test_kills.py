"""The big job in a driver that is killed -9 with all its processes at random points of its work."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.exactness.driving import EPOCH_S, drive, drive_to_end, wait_for_more_rows
from tests.integration.exactness.model import golden, of_each
from tests.integration.exactness.outputs import all_outputs
from tests.support.exactness import assert_exact

SEED = 20_240_229


def kill_at_work(folder: Path, dice: random.Random, **options: Any) -> None:
    """Kill a driver at some time after it has put out more than its predecessors."""
    with drive(folder, **options) as driver:
        wait_for_more_rows(driver, folder)
        time.sleep(dice.uniform(0, 2 * EPOCH_S))
        assert driver.running
        assert "finished" not in driver.output()
        driver.kill()
    assert not (folder / "job" / "ended.json").exists(), "the kill fell into running work"


def killed_at_random(folder: Path, kills: int, records: int, per_epoch: int) -> None:
    dice = random.Random(SEED)
    program = {"records": records, "per_epoch": per_epoch, "slow_s": EPOCH_S}
    for _ in range(kills):
        kill_at_work(folder, dice, program=program)
    drive_to_end(folder, program={**program, "slow_s": 0})
    assert_exact(golden(of_each(records)), all_outputs(folder))


@pytest.mark.slow
def test_killed_three_times_at_random_points_it_puts_out_the_golden_result(folder: Path) -> None:
    killed_at_random(folder, kills=3, records=720, per_epoch=40)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_killed_twenty_times_at_random_points_it_puts_out_the_golden_result(folder: Path) -> None:
    killed_at_random(folder, kills=20, records=1440, per_epoch=20)
