"""Runs statements with flinkish's tables on Spark, two cores, and prints what they cost (`flink_sql`: with Flink).

It reads one object of JSON: ``statements`` (the last one is an INSERT), ``settings``, and ``warm_up``: a number of
events. It prints what was spent from the first epoch on that ends behind so many events until the last one ends:
``events``, ``wall_s``, ``cpu_s`` of all processes, and ``workers_s`` of the Python workers alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import contract
from benchmarks.spark_settings import EPOCHS_OF_A_SIZE, OF_A_JOB
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.table import StreamTableEnvironment


def main() -> None:
    """Run the job."""
    job: dict[str, Any] = json.load(sys.stdin)
    configuration = Configuration()
    given = {
        "flinkish.job.dir": tempfile.mkdtemp(prefix="flinkish-benchmark-"),
        "flinkish.epoch.max-records-per-source": "2000000",
        "flinkish.epoch.max-bytes-per-source": "4gb",
        **OF_A_JOB,
        **EPOCHS_OF_A_SIZE,
        **job["settings"],
    }
    for key, value in given.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    t_env = StreamTableEnvironment.create(env)
    *declarations, insert = job["statements"]
    for statement in declarations:
        t_env.execute_sql(statement)
    marks = Marks(job["warm_up"])
    result = t_env.execute_sql(insert)
    client: Any = result.get_job_client()
    client.run.observers.append(marks)
    result.wait()
    print(json.dumps({name: marks.last[name] - marks.first[name] for name in marks.first}))


class Marks(JobObserver):
    """Notes what was spent at the end of the warm-up, and at the end of the last epoch."""

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up
        self._events = 0
        self.first = self.last = _spent(0)

    def epoch_done(self, report: EpochReport) -> None:
        """Called after each epoch."""
        warm = self._events >= self._warm_up
        self._events += report.records_in
        if report.records_in:
            self.last = _spent(self._events)
            self.first = self.first if warm else self.last


def _spent(events: int) -> dict[str, float]:
    cpu_s = contract.tree_cpu_s(os.getpid()) or 0.0
    return {"events": events, "wall_s": time.monotonic(), "cpu_s": cpu_s, "workers_s": workers_s()}


def workers_s() -> float:
    """The processor time of the Python processes below this one, and of their ended children."""
    ticks = 0
    for pid in contract.process_tree(os.getpid())[1:]:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        fields = contract.stat_fields(Path(f"/proc/{pid}/stat"))
        if b"java" not in command and fields:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
