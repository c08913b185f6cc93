"""A Python worker finds out which executor it belongs to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import flinkish

_ASK = "import os; from flinkish.spark.place import executor_id; print(executor_id(os.getpid()))"
_PASS_ON = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_ASK!r}], check=True)"


def answer(code: str, *arguments: str, **environment: str) -> str:
    """What a process says that is started so."""
    clean = {key: value for key, value in os.environ.items() if key != "SPARK_EXECUTOR_ID"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(flinkish.__file__).parent.parent,
        env={**clean, **environment},
    )
    return done.stdout.strip()


def test_the_executor_is_named_by_the_command_line_of_the_process_above() -> None:
    assert answer(_PASS_ON, "--cores", "1", "--executor-id", "17", "--hostname", "h") == "17"


def test_the_environment_comes_first() -> None:
    assert answer(_ASK, SPARK_EXECUTOR_ID="4") == "4"


def test_without_an_executor_it_is_the_driver() -> None:
    assert answer(_ASK) == "driver"
