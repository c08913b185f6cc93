"""The plan of an epoch, and who reads what in it, is the same in another process with another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def shares(folder: Path, what: str, hash_seed: int) -> list[str]:
    """The shares of all epochs, by a process of its own."""
    command = [sys.executable, "-m", "tests.support.planned_epochs", str(folder), what]
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def test_another_process_with_another_hash_seed_plans_and_replays_the_same_epochs(tmp_path: Path) -> None:
    """It is another query over the same files, and goes on with the first one when they are gone."""
    (tmp_path / "input").mkdir()
    # so many files that the list of them leaves the offsets
    for number in range(90):
        path = tmp_path / "input" / f"{number * 37 % 90}.txt"
        path.write_text("".join(f"line {line}\n" for line in range(number * 7 % 30 + 1)))
        os.utime(path, (1_700_000_000 + number // 4,) * 2)
    planned = shares(tmp_path, "plan", 1)
    assert len(planned) > 10
    assert list((tmp_path / "plan" / "splits").iterdir()), "the list of files has left the offsets"
    assert shares(tmp_path, "again", 2) == planned * 2
