"""The queries of the tests on clusters, as a program of its own: a GROUP BY into SQLite and windows into files.

    python tables_job.py '{"folder": ..., "executors": 2}'

``folder`` holds the files that are read, the job directory, and what is written. ``executors``: a local cluster;
``remote``: a Spark Connect server. ``settings``: more settings of the job.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import DataTypes, StreamTableEnvironment
from flinkish.table.udf import udf

ROWS, FILES, PER_EPOCH, KEYS, WINDOW_MS = 6_000, 4, 1_000, 30, 500
TOTALS = "INSERT INTO totals SELECT COALESCE(k, '-'), COUNT(*), SUM(slowly(v)) FROM numbers GROUP BY k"
WINDOWS = (
    "INSERT INTO windows SELECT COALESCE(k, '-'), CAST(window_start AS STRING), COUNT(*) FROM TABLE(TUMBLE("
    f"TABLE numbers, DESCRIPTOR(ts), INTERVAL '0.{WINDOW_MS}' SECOND)) GROUP BY k, window_start, window_end"
)


def key_of(value: int) -> str | None:
    """NULL is a key, too."""
    return f"ü{value % KEYS}" if value % KEYS else None


def make(folder: Path) -> None:
    """The files that are read, and the database."""
    (folder / "in").mkdir()
    for part in range(FILES):
        values = range(ROWS * part // FILES, ROWS * (part + 1) // FILES)
        columns = {"k": [key_of(value) for value in values], "v": list(values)}
        pq.write_table(pa.table(columns), folder / "in" / f"{part}.parquet")
    with closing(sqlite3.connect(folder / "out.db")) as database:
        database.execute("CREATE TABLE totals (k TEXT PRIMARY KEY, n INTEGER, total INTEGER)")


def totals(folder: Path) -> dict[str, tuple[int, int]]:
    """What is in the database, by key."""
    with closing(sqlite3.connect(folder / "out.db")) as database:
        return {key: (n, total) for key, n, total in database.execute("SELECT * FROM totals")}


def windows(folder: Path) -> Counter[tuple[str, str]]:
    """What is in the files: rows by key and window, each of which must be there once."""
    rows = pyarrow.dataset.dataset(folder / "windows", format="parquet").to_table().to_pylist()
    found = Counter({(row["k"], row["w"]): row["n"] for row in rows})
    assert len(found) == len(rows), "no window twice"
    return found


def expected() -> tuple[dict[str, tuple[int, int]], Counter[tuple[str, str]]]:
    """What `totals` and `windows` must be in the end."""
    values = {key_of(key) or "-": range(key, ROWS, KEYS) for key in range(KEYS)}
    of_windows = Counter[tuple[str, str]]()
    for value in range(ROWS):
        seconds, ms = divmod(value // WINDOW_MS * WINDOW_MS, 1_000)
        of_windows[key_of(value) or "-", f"1970-01-01 00:00:{seconds:02}.{ms:03}"] += 1
    return {key: (len(of_key), sum(of_key)) for key, of_key in values.items()}, of_windows


def environment(folder: Path, settings: dict[str, str]) -> StreamTableEnvironment:
    """An environment with the tables and the function."""
    configuration = Configuration().set_string("flinkish.job.dir", str(folder / "job"))
    defaults = {
        "flinkish.epoch.max-records-per-source": str(PER_EPOCH),
        "flinkish.epoch.target-duration": "0",
        "flinkish.progress": "always",
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
    }
    for key, value in {**defaults, **settings}.items():
        configuration.set_string(key, value)
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(configuration))

    def slowly(value: int) -> int:
        if value % 500 == 0:
            time.sleep(0.2)
        return value

    t_env.create_temporary_function("slowly", udf(slowly, result_type=DataTypes.BIGINT()))
    columns = "k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(v, 3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND"
    for name, declared, path in (("numbers", columns, "in"), ("windows", "k STRING, w STRING, n BIGINT", "windows")):
        options = f"'connector' = 'filesystem', 'path' = '{folder / path}', 'format' = 'parquet'"
        t_env.execute_sql(f"CREATE TABLE {name} ({declared}) WITH ({options})")
    t_env.execute_sql(
        "CREATE TABLE totals (k STRING, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH "
        f"('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{folder / 'out.db'}', 'table-name' = 'totals')"
    )
    return t_env


def main(options: dict[str, Any]) -> None:
    """One run of the program."""
    folder = Path(options["folder"])
    if "remote" in options:
        from pyspark.sql import SparkSession

        SparkSession.builder.remote(options["remote"]).getOrCreate()
    else:
        from tests.support.local_cluster import start_cluster_session

        start_cluster_session(folder / f"spark-{time.time_ns()}", options["executors"])
    statements = environment(folder, options.get("settings", {})).create_statement_set()
    statements.add_insert_sql(TOTALS)
    statements.add_insert_sql(WINDOWS)
    result: Any = statements.execute()
    result.wait()
    for vertex in result.get_job_client().describe().vertices:
        places = sorted({subtask.current.executor for subtask in vertex.subtasks if subtask.current.executor})
        print("executors", vertex.level, *places, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
