"""Runs a query with flinkish's tables on Spark, two cores, and prints what it cost (`flink_sql`: with Flink), or the
same job in rows.

It reads one object of JSON: ``statements`` (the last one is an INSERT) or ``rows`` (the name of a program in
`table_rows` and its arguments), ``settings``, and what is measured: ``warm_up``, a number of events, all epochs behind
those; ``epochs``, so many epochs in which nothing came, behind as many others; or, without either, the whole process.
It prints the difference of both ends: ``events`` (of ``epochs``: how many there were; of a process: 1), ``wall_s``,
``cpu_s`` of all processes, and ``workers_s`` of the Python workers alone.
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


def main() -> None:
    """Run the job."""
    started = {"events": 0.0, "wall_s": time.monotonic(), "cpu_s": 0.0, "workers_s": 0.0}
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
    marks = Marks(job.get("warm_up"), job.get("epochs", 0))
    client = begun(env, job)
    client.run.observers.append(marks)
    while marks.running and not client.get_job_execution_result().done():
        time.sleep(0.05)
    if not client.get_job_execution_result().done():
        client.cancel()
    client.get_job_execution_result().result()
    if not marks.first:
        marks.first, marks.last = started, _spent(1)
    print(json.dumps({name: marks.last[name] - marks.first[name] for name in marks.first}))


def begun(env: StreamExecutionEnvironment, job: dict[str, Any]) -> Any:
    """The client of the job, which runs. Jobs in rows import nothing of tables."""
    if "rows" in job:
        from benchmarks.pipelines import table_rows

        name, arguments = job["rows"]
        getattr(table_rows, name)(env, **arguments)
        return env.execute_async()
    from flinkish.table import StreamTableEnvironment

    t_env = StreamTableEnvironment.create(env)
    *declarations, insert = job["statements"]
    for statement in declarations:
        t_env.execute_sql(statement)
    return t_env.execute_sql(insert).get_job_client()


class Marks(JobObserver):
    """Notes what was spent at both ends of what is measured, unless that is the whole process.

    Args:
        warm_up: the events of the epochs before the first end.
        epochs: how many epochs without events are measured; 0: all with events.
    """

    def __init__(self, warm_up: int | None, epochs: int) -> None:
        self._warm_up, self._epochs = warm_up, epochs
        self._seen = 0
        self.first, self.last = dict[str, float](), dict[str, float]()
        #: whether there is more to measure, as far as is known
        self.running = True

    def epoch_done(self, report: EpochReport) -> None:
        """Called after each epoch."""
        warm = self._warm_up is not None and self._seen >= self._warm_up
        if self._epochs:
            self._seen += not report.records_in
            warm = self._seen > self._epochs
            self.running = self._seen < 2 * self._epochs
        elif report.records_in:
            self._seen += report.records_in
        if self._warm_up is not None and report.records_in or self._epochs and not report.records_in:
            self.last = _spent(self._seen)
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
