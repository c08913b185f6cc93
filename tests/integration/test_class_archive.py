"""``flinkish prepare``: jobs start with an archive of the JVM's classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flinkish.launch.class_archive import JVM_OPTIONS, path_in
from tests.support.processes import python_path, wait_until

JOB = """
from flinkish.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).map(lambda value: value + 1).print()
env.execute()
"""


@pytest.mark.slow
def test_a_prepared_machine_maps_most_classes_from_the_archive(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", JVM_OPTIONS)}
    environment |= {"FLINKISH_HOME": str(tmp_path), "PYTHONPATH": python_path()}

    def run(*program: str, **variables: str) -> str:
        command = [sys.executable, *program]
        done = subprocess.run(
            command, env={**environment, **variables}, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    archive = path_in(tmp_path / ".cache", environment)
    (tmp_path / "conf").mkdir()
    run("-c", JOB, FLINKISH_CONF="")
    wait_until(archive.exists, 300, "an archive, made in the background of the first start")
    made = archive.stat().st_mtime_ns
    assert run("-c", "from flinkish.cli import main; main(['prepare'])").strip() == str(archive)
    assert archive.stat().st_mtime_ns == made

    loaded = tmp_path / "loaded"
    run("-c", JOB, **{JVM_OPTIONS: f"-Xlog:class+load:file={loaded}"})
    lines = loaded.read_text().splitlines()
    mapped = sum("shared objects file" in line for line in lines)
    spark = [line for line in lines if " org.apache.spark." in line and "Lambda" not in line]
    assert mapped > len(lines) // 2
    assert sum("(top)" in line for line in spark) > len(spark) // 2
