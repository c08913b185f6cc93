"""A Python worker finds out which executor it belongs to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flinkish

_ASK = """
import os
from flinkish.spark.place import executor_id
print(executor_id(os.getpid()))
os.environ["SPARK_EXECUTOR_ID"] = "4"
executor_id.cache_clear()
print(executor_id(os.getpid()))
"""
_PASS_ON = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_ASK!r}], check=True)"


@pytest.mark.parametrize(
    ("code", "arguments", "executor"),
    [(_ASK, [], "driver"), (_PASS_ON, ["--cores", "1", "--executor-id", "17", "--hostname", "h"], "17")],
    ids=["no executor", "the command line of the process above"],
)
def test_the_environment_names_the_executor_and_else_the_process_above(
    code: str, arguments: list[str], executor: str
) -> None:
    clean = {key: value for key, value in os.environ.items() if key != "SPARK_EXECUTOR_ID"}
    home = Path(flinkish.__file__).parent.parent
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=home, env=clean)
    assert done.stdout.split() == [executor, "4"]
