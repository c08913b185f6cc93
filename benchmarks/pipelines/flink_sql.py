"""Runs statements with Flink SQL and prints what they cost; it needs PyFlink and nothing of this project.

It reads one object of JSON: ``statements`` (the last one is an INSERT), ``jars``, and ``settings``. It prints another:
``cpu_s``, the processor time of this process and of Flink's JVM in it, from its start on, and ``wall_s`` of the INSERT.

Example::

    python benchmarks/pipelines/flink_sql.py < job.json
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    job: dict[str, Any] = json.load(sys.stdin)
    from pyflink.table import EnvironmentSettings, TableEnvironment

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {"pipeline.jars": ";".join(f"file://{jar}" for jar in job["jars"]), **job["settings"]}
    for key, value in settings.items():
        environment.get_config().set(key, value)
    *declarations, insert = job["statements"]
    for statement in declarations:
        environment.execute_sql(statement)
    begin = time.monotonic()
    environment.execute_sql(insert).wait()
    wall_s = time.monotonic() - begin
    print(json.dumps({"cpu_s": cpu_s(), "wall_s": wall_s}))


def cpu_s() -> float:
    """The processor time of this process and of its children, which live."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    own = os.getpid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == own:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


if __name__ == "__main__":
    main()
