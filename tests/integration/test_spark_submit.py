"""spark-submit.sh with the real Spark: packages are resolved, flinkish is shipped, and the console stays the job's.

In the ordinary run, tests/integration/jobs/test_click_count.py starts a job in this way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.class_archive import SHORT_LIVED

CHECKOUT = Path(__file__).resolve().parents[2]

JOB = """
import sys
from pyspark.sql import SparkSession

def on_worker(frames):
    import flinkish  # from the archive
    for frame in frames:
        frame["text"] = flinkish.__file__
        yield frame[["text"]]

spark = SparkSession.builder.getOrCreate()
files = {row.text for row in spark.range(10).mapInPandas(on_worker, "text string").collect()}
spark.range(3).write.format("delta").save(sys.argv[1])
print(spark.read.format("delta").load(sys.argv[1]).count(), spark.sparkContext.master, len(files))
spark.stop()
sys.exit(4)
"""

# the JVM itself says it, before any of Spark's settings can be read
UNAVOIDABLE = "WARNING: Using incubator modules: jdk.incubator.vector"


def submit(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FLINKISH_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": SHORT_LIVED}
    for name in (
        "JDK_JAVA_OPTIONS",
        "PYTHONPATH",
        "SPARK_HOME",
        "SPARK_REMOTE",
        "PYSPARK_SUBMIT_ARGS",
        "PYSPARK_GATEWAY_PORT",
    ):
        environment.pop(name, None)
    command = [str(CHECKOUT / "spark-submit.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", timeout=500)


@pytest.mark.slow
def test_a_job_has_delta_and_flinkish_and_the_console_for_itself(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    # Delta reads a table's log in fifty partitions by default
    few = ("--conf", "spark.databricks.delta.snapshotPartitions=2")
    result = submit(str(job), str(tmp_path / "table"), "--", "--master", "local[2]", *few)
    assert result.returncode == 4, result.stderr
    assert result.stdout == "3 local[2] 1\n"
    said = [line for line in result.stderr.splitlines() if line != UNAVOIDABLE and not line.startswith("flinkish: ")]
    assert said == [], result.stderr


@pytest.mark.nightly
def test_a_package_that_cannot_be_resolved_is_named_and_the_job_is_not_started(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("print('started')")
    result = submit(str(job), "--", "--packages", "io.nowhere:nothing:1.0")
    assert result.returncode == 2
    assert "Spark could not resolve" in result.stderr
    assert "io.nowhere#nothing;1.0: not found" in result.stderr
    assert "--repositories" in result.stderr
    assert result.stdout == ""


@pytest.mark.slow
def test_a_directory_whose_sockets_have_paths_that_are_too_long_is_named(tmp_path: Path) -> None:
    job, key = tmp_path / "job.py", "spark.python.unix.domain.socket.dir"
    job.write_text(
        "from flinkish.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute('prints')\n"
    )
    result = submit(str(job), "--", "--master", "local[1]", "--conf", f"{key}={tmp_path}/{'x' * 90}")
    assert result.returncode == 1
    assert "too long for this machine, which takes 107 bytes" in result.stderr and key in result.stderr
