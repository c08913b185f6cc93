"""The job of the fault tests, as a program of its own: sums per key and windows, into SQLite and Delta.

    python counting_job.py '{"folder": ..., "master": "local[2]", ...}'

``folder`` holds everything: job directory, database, Delta table. ``savepoint``: take one after some epochs into that
directory and end, with ``drain``; with ``go_on`` the job is not ended. ``restore``: begin with a savepoint, in another
job directory. ``executors``: a local cluster. ``session``: more settings of Spark.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flinkish.common import Row, Time
from flinkish.common.typeinfo import Types
from flinkish.connectors.frame_sinks import DeltaSink
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.jobmanager.job.description import JobDescription
from flinkish.spark.executors import FailedTasks
from tests.integration.engine.collecting import by_field, environment
from tests.support.epoch_reports import execute_observed, reports_of

RECORDS, PER_EPOCH, KEYS = 160, 20, 7
COUNT = Types.ROW_NAMED(["k", "n"], [Types.LONG(), Types.LONG()])


def expected(records: int = RECORDS) -> list[tuple[int, int]]:
    """What must be in each table, in order."""
    return sorted((index % KEYS, index // KEYS + 1) for index in range(records))


def windows_expected(records: int = RECORDS) -> list[tuple[int, int]]:
    """(first record of the window, how many)."""
    return [(start, min(30, records - start)) for start in range(0, records, 30)]


def make_tables(folder: Path) -> None:
    """The database, empty."""
    connection = sqlite3.connect(folder / "out.db")
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS counts (k INTEGER, n INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS windows (k INTEGER, n INTEGER)")
    connection.close()


def in_database(folder: Path, table: str = "counts") -> list[tuple[int, int]]:
    """What the job has written there."""
    connection = sqlite3.connect(folder / "out.db")
    try:
        return sorted(connection.execute(f"SELECT k, n FROM {table}").fetchall())
    finally:
        connection.close()


def build(
    folder: Path,
    job: str = "job",
    delta: bool = False,
    slow_s: float = 0,
    fails_once: bool = False,
    records: int = RECORDS,
    **more: Any,
) -> Any:
    """The environment with the program. ``job``: its directory, by its path in the folder or by a URI. ``fails_once``:
    one of its calls raises, the first time."""
    env = environment(job if "://" in job else folder / job, **more)
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{folder / 'out.db'}").build()
    table, failed = folder / "table" if delta else None, folder / "failed" if fails_once else None
    program(env, url, table, slow_s, failed, records)
    return env


def program(
    env: StreamExecutionEnvironment,
    url: JdbcConnectionOptions,
    table: Path | None,
    slow_s: float,
    failed: Path | None,
    records: int,
) -> None:
    """(key, count so far) and windows of 30 s."""

    def slowly(index: int) -> tuple[int, int]:
        if slow_s and index % PER_EPOCH == 0:
            time.sleep(slow_s)
        if failed is not None and index == PER_EPOCH and not failed.exists():
            failed.touch()
            raise ConnectionError("the service does not answer")
        return index % KEYS, index * 1000

    source = DataGeneratorSource(slowly, records, records_per_epoch=PER_EPOCH, splits=2)
    numbers = env.from_source(source, by_field(1), "numbers").uid("numbers")
    ones = numbers.map(lambda e: (e[0], 1))
    counts = ones.key_by(lambda e: e[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
    rows = counts.map(lambda e: Row(e[0], e[1]), COUNT)
    rows.add_sink(JdbcSink.sink("INSERT INTO counts VALUES (?, ?)", COUNT, url)).uid("database")
    if table is not None:
        rows.sink_to(DeltaSink(str(table))).uid("delta")
    windows = (
        numbers.map(lambda e: (e[1] // 1000, 1))
        .key_by(lambda e: 0)
        .window(TumblingEventTimeWindows.of(Time.seconds(30)))
        .reduce(lambda a, b: (min(a[0], b[0]), a[1] + b[1]))
        .uid("windows")
    )
    windows.map(lambda e: Row(*e), COUNT).add_sink(JdbcSink.sink("INSERT INTO windows VALUES (?, ?)", COUNT, url)).uid(
        "window database"
    )


def executors(job: JobDescription) -> dict[str, dict[str, list[Any]]]:
    """Executor -> the tasks ("vertex/subtask") that it holds, and the workers that run them."""
    found: dict[str, dict[str, list[Any]]] = {}
    for vertex in job.vertices:
        for subtask, execution in enumerate(subtask.current for subtask in vertex.subtasks):
            if execution.executor is not None:
                of_it = found.setdefault(execution.executor, {"tasks": [], "workers": []})
                of_it["tasks"].append(f"{vertex.id}/{subtask}")
                of_it["workers"].append(execution.pid)
    return found


def failures_of_a_short_job(spark: SparkSession, folder: Path) -> list[str]:
    """What is found of a task that has failed once, where nobody has looked before its job was over."""
    failed_tasks, once = FailedTasks(spark), folder / "short-job-failed"

    def fail_once(_: int) -> None:
        if not once.exists():
            once.touch()
            raise ValueError("the first try fails")

    for group in ("another", "short"):
        once.unlink(missing_ok=True)
        spark.sparkContext.setJobGroup(group, "fails once")
        spark.sparkContext.parallelize([1], 1).foreach(fail_once)
    found = [*failed_tasks.new("short"), *failed_tasks.new("short")]
    return [re.findall(r"ValueError: [a-z ]+", message)[0] for _, message in found]


def main(options: dict[str, Any]) -> None:
    """One run of the program."""
    from tests.support.local_cluster import start_cluster_session
    from tests.support.processes import wait_until
    from tests.support.spark_session import start_session

    folder = Path(options["folder"])
    scratch = folder / f"spark-{time.time_ns()}"
    if "executors" in options:
        spark = start_cluster_session(scratch, options["executors"])
        print("found of a short job:", failures_of_a_short_job(spark, folder), flush=True)
    else:
        start_session(scratch, options.get("master", "local[2]"), options.get("session"))
    more = {"execution__state_recovery__path": options["restore"]} if "restore" in options else {}
    more.update(options.get("settings", {}))
    env = build(
        folder,
        options.get("job", "job"),
        options.get("delta", False),
        options.get("slow_s", 0),
        options.get("fails_once", False),
        **more,
    )
    client = execute_observed(env, "counting")
    print("started", flush=True)
    if "savepoint" in options:
        while client.run.last_epoch is None:
            time.sleep(0.05)
        if "go_on" in options:
            wait_until(lambda: (client.run.last_epoch or 0) >= 1, 60, "a commit of Spark's")
            print("savepoint", client.trigger_savepoint(options["savepoint"]).result(), flush=True)
        else:
            stopped = client.stop_with_savepoint("drain" in options, options["savepoint"])
            print("savepoint", stopped.result(), flush=True)
            return
    while not client.get_job_execution_result().done():
        time.sleep(0.1)
        if "executors" in options and client.run.last_epoch is not None:
            print("executors", json.dumps(executors(client.describe())), flush=True)
        print(f"epochs {len(reports_of(client.run))}", flush=True)
    client.get_job_execution_result().result()
    print("finished", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
