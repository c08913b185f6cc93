"""A Spark cluster of real executor processes on this machine, so that a test can kill one of them.

A process holds one Spark session, and the tests' own is a `local[2]`: a cluster is therefore the session of a driver
script (`start_driver`), which calls `start_cluster_session`; the test looks at it from outside, by process ids.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyspark
from pyspark.sql import SparkSession

from tests.support.processes import ProcessGroup
from tests.support.spark_session import start_session

_EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"


def start_cluster_session(
    folder: Path, executors: int = 2, cores: int = 1, memory_mb: int = 1024, extra: dict[str, str] | None = None
) -> SparkSession:
    """Starts this process's Spark session on a cluster of its own; executor logs lie under `folder/spark-home/work`."""
    os.environ["SPARK_HOME"] = str(spark_home(folder))
    sizes = {"spark.executor.memory": f"{memory_mb}m", "spark.executor.cores": str(cores)}
    return start_session(folder, f"local-cluster[{executors},{cores},{memory_mb}]", {**sizes, **(extra or {})})


def executor_pids(driver: ProcessGroup) -> list[int]:
    """Returns the process ids of the executors that run under a driver now."""
    return sorted(process.pid for process in driver.descendants() if _is_executor(process))


def kill_executor(driver: ProcessGroup, pid: int) -> None:
    """Kills -9 one executor of a driver, as a lost machine does; Spark starts another in its place."""
    if pid not in executor_pids(driver):
        raise ValueError(f"process {pid} is no executor of the driver {driver.pid}: those are {executor_pids(driver)}")
    os.kill(pid, signal.SIGKILL)


def executor_logs(folder: Path) -> str:
    """Returns what the executors of the session in `folder` have printed, for the message of a failed test."""
    logs = sorted((folder / "spark-home" / "work").glob("*/*/stderr"))
    return "\n".join(f"== {log.parent.name}\n{log.read_text(errors='replace')[-4_000:]}" for log in logs)


def _is_executor(process: psutil.Process) -> bool:
    try:
        return process.name() == "java" and any(_EXECUTOR_CLASS in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def spark_home(folder: Path) -> Path:
    """Links to the installed PySpark without its zip (`home_of_sessions`). Executors log to `$SPARK_HOME/work`, which
    is not the tests' to fill."""
    home = folder / "spark-home"
    home.mkdir(parents=True, exist_ok=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name in {"bin", "jars", "sbin", "data", "RELEASE"} and not (home / part.name).exists():
            (home / part.name).symlink_to(part)
    return home
