"""``flinkish doctor`` as a user runs it, with Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_the_doctor_looks_at_spark_its_executors_and_the_directory_as_they_see_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flinkish.cli", "doctor", "--json", "-D", "parallelism.default=3"]
    command += [str(tmp_path / "job"), "--", "--master", "local[2]"]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    found = {one["name"]: (one["level"], one["text"]) for one in json.loads(ended.stdout)["findings"]}
    assert ended.returncode == 0, found
    assert found["Spark"][1].endswith(", classic, master local[2]")
    assert found["Slots"] == ("WARN", "2, parallelism.default: 3")
    there = ("Jars", "Delta Lake of Spark", "Executors", "flinkish of executors", "Directory from Spark's JVM")
    assert {name: found[name][0] for name in there} == dict.fromkeys(there, "OK")
    assert found["One directory"][0] == "OK" and not (tmp_path / "job").exists()
