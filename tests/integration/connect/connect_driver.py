"""A driver of its own: the main job's pipeline in a Spark Connect session. ``connect_driver.py JOB-AS-JSON ...``: jobs
that run one after the other in one session.

A job's options: ``folder`` (Spark's files), ``remote`` (as for ``SparkSession.builder.remote``), ``job_dir``,
``database`` (SQLite), ``source`` (``generated``, ``parquet`` or ``text``), ``files``, ``sink`` (``jdbc``, ``delta``,
``merge``, ``print``, ``collect``), ``table`` (Delta), ``count``, ``per_epoch``, ``break_at`` (the index of a click
that user code fails on: the jobs behind it run nevertheless, and the driver ends with 3), ``fails_once`` (a file that
says that it has), ``users`` (so many more users, one record each), ``asks`` (user code asks for a commit with each
record), ``settings``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from flinkish.common import Configuration, Row, Types, WatermarkStrategy
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.frame_sinks import DeltaSink
from flinkish.connectors.generated import DataGeneratorSource, NumberSequenceSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from flinkish.errors import FlinkishError
from flinkish.jobmanager.client import JobManager
from tests.integration.connect import clicks

ROW = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])


def session(options: dict[str, Any]) -> Any:
    """The Connect session; with a local remote its server is a child of this process."""
    from pyspark.sql import SparkSession

    from tests.support.spark_session import session_settings

    builder = SparkSession.builder.remote(options["remote"])
    if options["remote"].startswith("local"):
        for key, value in session_settings(Path(options["folder"])).items():
            builder = builder.config(key, value)
    return builder.getOrCreate()


def source_of(options: dict[str, Any]) -> Any:
    kind = options.get("source", "generated")
    if kind == "parquet":
        types = Types.TUPLE([Types.STRING(), Types.BOOLEAN()])
        return FileSource.parquet(options["files"], type_info=types, columns=["user", "logged_in"])
    if kind == "text":
        return FileSource.text(options["files"])
    return DataGeneratorSource(clicks.click, options["count"], records_per_epoch=options["per_epoch"], splits=2)


class Asking(KeyedProcessFunction):
    """Hands records on, and asks that each be committed at once."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        ctx.request_commit()
        yield value


def counts_of(env: StreamExecutionEnvironment, options: dict[str, Any]) -> DataStream:
    """Clicks of users that are logged in, counted per user."""
    break_at, fails_once = options.get("break_at"), options.get("fails_once")

    def one(record: Any) -> Row:
        if break_at is not None and record[2] == break_at and not (fails_once and os.path.exists(fails_once)):
            if fails_once:
                Path(fails_once).touch()
            raise ValueError(f"click {break_at} cannot be counted")
        return Row(record[0], 1)

    records = env.from_source(source_of(options), WatermarkStrategy.no_watermarks(), "clicks").uid("clicks")
    if options.get("source") == "text":
        records = records.map(json.loads).uid("parsed")
    if options.get("asks"):
        records = records.key_by(lambda record: record[0]).process(Asking()).uid("asking")
    if options.get("users"):
        more = NumberSequenceSource(1, options["users"])
        others = env.from_source(more, WatermarkStrategy.no_watermarks(), "users").uid("users")
        records = records.union(others.map(lambda number: (f"other-{number}", True, None)).uid("others"))
    return (
        records.filter(lambda record: record[1])
        .uid("logged-in")
        .map(one, output_type=ROW)
        .uid("ones")
        .key_by(lambda row: row[0], key_type=Types.STRING())
        .sum(1)
        .uid("counts")
    )


def add_sink(counts: DataStream, options: dict[str, Any]) -> None:
    kind = options.get("sink", "jdbc")
    if kind == "print":
        counts.print("printed")
    elif kind == "merge":
        counts.sink_to(DeltaSink.merge(options["table"], ["user"])).uid("table")
    elif kind == "delta":
        counts.sink_to(DeltaSink(options["table"])).uid("table")
    else:
        builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:" + options["database"])
        counts.sink_to(JdbcSink.upsert("counts", ["user"], ROW, builder.build())).uid("database")


def run(options: dict[str, Any]) -> None:
    """One job to its end."""
    settings = Configuration()
    settings.set_string("flinkish.job.dir", options["job_dir"])
    settings.set_string("execution.checkpointing.interval", "0 s")
    settings.set_string("flinkish.progress", "always")
    settings.set_string("parallelism.default", "2")
    for key, value in options.get("settings", {}).items():
        settings.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    counts = counts_of(env, options)
    if options.get("sink") == "collect":
        for row in counts.execute_and_collect("connect"):
            # one write, because the log is shared with the progress: print() writes the end of the line by itself
            sys.stdout.write(f"collected> {row[0]},{row[1]}\n")
        return
    add_sink(counts, options)
    job = JobManager.get().describe_job(env.execute("connect").get_job_id())
    known = [(one.executor, one.status, one.in_driver, one.holds, len(one.workers)) for one in job.task_managers]
    print("task managers", json.dumps(known), flush=True)


def main(jobs: list[dict[str, Any]]) -> None:
    spark = session(jobs[0])
    # a server elsewhere cannot import this module
    cloudpickle.register_pickle_by_value(clicks)
    failed = False
    for options in jobs:
        try:
            run(options)
        except FlinkishError as error:
            failed = True
            print(f"BEGIN {type(error).__name__}\n{error}\nEND", flush=True)
    spark.stop()
    sys.exit(3 if failed else 0)


if __name__ == "__main__":
    main([json.loads(argument) for argument in sys.argv[1:]])
