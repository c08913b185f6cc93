"""Jobs started with spark-submit.sh, as users start them, on two cores and against the tests' servers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from flinkish.runtime.phases import FAULT_VARIABLE
from tests.support.processes import REPOSITORY, ProcessGroup

#: What spark-submit.sh must work out for itself.
INHERITED = (
    "PYTHONPATH",
    "SPARK_HOME",
    "SPARK_REMOTE",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",
    "FLINKISH_CONF",
    FAULT_VARIABLE,
)
_SPARK = ("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2")


def submit(
    job: str, *arguments: str, log_file: Path, settings: Mapping[str, str] | None = None, spark: tuple[str, ...] = ()
) -> ProcessGroup:
    """Starts ``jobs/<job>.py`` with job options; ``settings`` are above those of conf/flinkish.yaml.

    The settings lie beside the log file, whose folder must be the test's own.
    """
    configuration = log_file.with_suffix(".yaml")
    configuration.write_text(json.dumps({"parallelism.default": "2", "flinkish.prepare": "off", **(settings or {})}))
    env = {
        "FLINKISH_PYTHON": sys.executable,
        "FLINKISH_CONF": str(configuration),
        "FLINKISH_PROGRESS": "always",
    }
    # `env -u`: what the test process has and a user's shell has not
    without = [part for name in INHERITED if name in os.environ and name not in env for part in ("-u", name)]
    script = [str(REPOSITORY / "spark-submit.sh"), str(REPOSITORY / "jobs" / f"{job}.py")]
    return ProcessGroup(["env", *without, *script, *arguments, "--", *_SPARK, *spark], log_file, env)
