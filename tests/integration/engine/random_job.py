"""A program that does something else whenever it runs: random tokens, the clock, a counter outside of the job.

    python random_job.py '{"folder": ..., "remote": "local[2]", ...}'

Each record gets a token that no other run of it gets, and the token of the record before it of the same key, out of the
state. So the rows of each key are a chain, which holds only if the output of every epoch and the state after it come
from one and the same run. ``folder`` holds the job directory, the database, the Delta table (``delta``) and ``runs``,
which has a line for each time that a record was processed. ``broken_key``: user code fails for this key in epoch 1.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from flinkish.common import Row
from flinkish.common.typeinfo import Types
from flinkish.connectors.frame_sinks import DeltaSink
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.datastream import MapFunction, RuntimeContext
from flinkish.datastream.state import ValueStateDescriptor
from tests.integration.engine.collecting import by_field, environment

RECORDS, PER_EPOCH, KEYS = 60, 10, 5
LINK = Types.ROW_NAMED(["k", "serial", "token", "before"], [Types.LONG(), Types.LONG(), Types.STRING(), Types.STRING()])

Link = tuple[int, int, str, str]


class Chained(MapFunction):
    """(key, serial) -> (key, serial, token, token of the record before)."""

    def __init__(self, runs: Path, broken_key: int | None) -> None:
        self._runs = runs
        self._broken_key = broken_key

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.STRING()))

    def map(self, value: Any) -> Row:
        key, time_ms = value
        if key == self._broken_key and time_ms >= 1000 * PER_EPOCH:
            # so late that the other subtask has long been through with the epoch
            time.sleep(4)
            raise ValueError(f"the key {key} is broken")
        with self._runs.open("a") as runs:
            runs.write(f"{time_ms}\n")
        token = f"{uuid.uuid4().hex} {time.time_ns()} {os.path.getsize(self._runs)}"
        before = self.last.value() or ""
        self.last.update(token)
        return Row(key, time_ms // 1000, token, before)


def build(folder: Path, job: str = "job", delta: bool = False, broken_key: int | None = None, **more: Any) -> Any:
    """The environment with the program; the database is made if it is not there."""
    connection = sqlite3.connect(folder / "out.db")
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS links (k INTEGER, serial INTEGER, token TEXT, before TEXT)")
    connection.close()
    env = environment(folder / job, **more)
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{folder / 'out.db'}").build()
    source = DataGeneratorSource(lambda i: (i % KEYS, i * 1000), RECORDS, records_per_epoch=PER_EPOCH, splits=2)
    numbers = env.from_source(source, by_field(1), "numbers").uid("numbers")
    chained = numbers.key_by(lambda e: e[0]).map(Chained(folder / "runs", broken_key), output_type=LINK).uid("chained")
    chained.add_sink(JdbcSink.sink("INSERT INTO links VALUES (?, ?, ?, ?)", LINK, url)).uid("database")
    if delta:
        chained.sink_to(DeltaSink(str(folder / "table"))).uid("delta")
    return env


def links(folder: Path) -> list[Link]:
    """What is in the database."""
    connection = sqlite3.connect(folder / "out.db")
    try:
        return sorted(connection.execute("SELECT k, serial, token, before FROM links").fetchall())
    finally:
        connection.close()


def assert_chained(rows: list[Link]) -> None:
    """Every record is there once, and output and state agree."""
    assert [(key, serial) for key, serial, *_ in rows] == sorted((i % KEYS, i) for i in range(RECORDS))
    for key in range(KEYS):
        following = {before: token for k, _, token, before in rows if k == key}
        token, length = "", 0
        while token in following:
            token, length = following.pop(token), length + 1
        assert not following, f"the output of key {key} goes on from a state of another run after {length} records"


def runs(folder: Path) -> int:
    """How many times a record was processed."""
    return len((folder / "runs").read_text().splitlines())


def main(options: dict[str, Any]) -> None:
    """One run of the program in a driver of its own."""
    from tests.support.spark_session import session_settings, start_session

    folder = Path(options["folder"])
    scratch = folder / f"spark-{time.time_ns()}"
    if "remote" in options:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(options["remote"])
        for key, value in session_settings(scratch).items():
            builder = builder.config(key, value)
        builder.getOrCreate()
    else:
        start_session(scratch, "local[2]")
    build(folder, delta=options.get("delta", False), **options.get("settings", {})).execute("random")
    print("finished", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
