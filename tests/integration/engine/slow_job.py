"""A job whose first epochs are fast and whose next one takes for ever, as a program of its own.

    python slow_job.py '{"folder": ..., "slow_s": 600, "settings": {...}, "remote": "sc://..."}'

Counts per key, into SQLite, of the numbers from 0 on. ``folder`` holds the job directory, the database, and an empty
file ``working-<pid>`` for each worker process that has begun with a slow record. Numbers from `FAST` on take ``slow_s``
seconds each, until there is a file ``mended``. ``files``: the numbers come from text files that Spark reads, so many
files to an epoch; ``delta``: from the column ``n`` of a table.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from flinkish.common import Row, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.spark import DeltaSource
from tests.integration.engine.collecting import environment
from tests.integration.engine.counting_job import COUNT, KEYS, make_tables

RECORDS, FAST = 70, 14


def write_file(folder: Path, first: int, last: int) -> None:
    """A file with the numbers from ``first`` to ``last`` - 1, which Spark sees as a whole or not at all."""
    (folder / "input").mkdir(exist_ok=True)
    hidden = folder / "input" / f".{first}"
    hidden.write_text("".join(f"{number}\n" for number in range(first, last)))
    hidden.rename(folder / "input" / f"{first}.txt")


def build(
    folder: Path, slow_s: float = 0, files: int | None = None, job: str = "job", delta: str | None = None, **more: Any
) -> Any:
    """The environment with the program."""
    make_tables(folder)
    env = environment(folder / job, **more)
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{folder / 'out.db'}").build()

    def slowly(index: int) -> tuple[int, int]:
        if slow_s and index >= FAST and not (folder / "mended").exists():
            (folder / f"working-{os.getpid()}").touch()
            time.sleep(slow_s)
        return index % KEYS, 1

    if delta is not None:
        rows = DeltaSource(delta, Types.ROW_NAMED(["n"], [Types.LONG()]), bounded=True)
        lines = env.from_source(rows, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
        numbers = lines.map(lambda row: row[0])
    elif files is None:
        source = DataGeneratorSource(lambda index: index, RECORDS, splits=2)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    else:
        from pyspark.sql import SparkSession

        frame = SparkSession.active().readStream.option("maxFilesPerTrigger", files).text(str(folder / "input"))
        numbers = env.from_spark(frame, "lines").uid("lines").map(lambda row: int(row[0]))
    counts = numbers.map(slowly).key_by(lambda e: e[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
    rows = counts.map(lambda e: Row(e[0], e[1]), COUNT)
    rows.add_sink(JdbcSink.sink("INSERT INTO counts VALUES (?, ?)", COUNT, url)).uid("database")
    return env


def main(options: dict[str, Any]) -> None:
    """One run of the program."""
    from tests.support.spark_session import start_session

    folder = Path(options["folder"])
    if "remote" in options:
        from pyspark.sql import SparkSession

        SparkSession.builder.remote(options["remote"]).getOrCreate()
    else:
        start_session(folder / f"spark-{time.time_ns()}", "local[2]")
    build(folder, options.get("slow_s", 0), options.get("files"), **options.get("settings", {})).execute("slow")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
