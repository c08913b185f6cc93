"""Random chains of opcodes change nothing in the process that reads them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.processes import python_path


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_random_values_find_nothing_that_reading_changes(seconds: int) -> None:
    """In a process of its own, which a wrong value may end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fuzz_stored_values", "--seconds", str(seconds)],
        env={**os.environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "0 of " in done.stdout
