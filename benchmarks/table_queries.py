"""The queries that `python -m benchmarks.tables` asks flinkish and Flink SQL: the same text over the same files.

Rule of this file: an engine gets statements and nothing else; what differs between two runs of an engine is only how
many files lie in the folder of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EVENTS_PER_FILE = 250_000
SPAN_MS = 4 * 60_000
"""Event time that a file covers: four windows of a minute."""
FIRST_MS = 1_700_000_040_000
SEED = 55

COLUMNS = """user_n BIGINT, user_id STRING, amount DOUBLE, qty INT, page STRING, ms BIGINT,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"""


@dataclass(frozen=True)
class Case:
    """A query to measure.

    Args:
        name: of the row in the table.
        users: how many users there are; each has a number and a text.
        insert: the statement; it reads ``events`` and writes ``results``.
        results: the columns of ``results``.
        at_least: how many times as fast as Flink SQL it must be (issue "Tables").
        kafka: whether the events come as JSON from Kafka, not from Parquet.
    """

    name: str
    users: int
    insert: str
    results: str
    at_least: float
    kafka: bool = False


def _tumble(key: str) -> str:
    return f"""INSERT INTO results SELECT {key}, window_start, COUNT(*), SUM(amount)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY {key}, window_start, window_end"""


_SELECT = "INSERT INTO results SELECT user_n, amount * 1.19 + qty, qty * 2 FROM events WHERE amount > 20 AND qty < 90"
_GROUPS = "INSERT INTO results SELECT user_n, COUNT(*), SUM(amount) FROM events GROUP BY user_n"
_OF_WINDOW = "k {}, w TIMESTAMP(3), n BIGINT, total DOUBLE"

CASES = (
    Case("SELECT with arithmetic", 200_000, _SELECT, "k BIGINT, price DOUBLE, q INT", 3.0),
    *(
        Case(f"TUMBLE, {kind} keys", users, _tumble(key), _OF_WINDOW.format(kind), at_least)
        for key, kind, at_least in (("user_n", "BIGINT", 3.0), ("user_id", "STRING", 2.0))
        for users in (1_000, 200_000)
    ),
    Case("GROUP BY", 200_000, _GROUPS, "k BIGINT, n BIGINT, total DOUBLE", 2.0),
    Case("TUMBLE over Kafka JSON", 1_000, _tumble("user_id"), _OF_WINDOW.format("STRING"), 1.2, kafka=True),
)


def statements(case: Case, folder: Path, bootstrap: str = "", topic: str = "") -> list[str]:
    """What an engine runs: the declarations of both tables, and the INSERT as the last one."""
    source = {"connector": "filesystem", "path": str(folder), "format": "parquet"}
    if case.kafka:
        source = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": bootstrap,
            "properties.group.id": "benchmark",
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
            "format": "json",
        }
    options = ", ".join(f"'{key}' = '{value}'" for key, value in source.items())
    return [
        f"CREATE TABLE events ({COLUMNS}) WITH ({options})",
        f"CREATE TABLE results ({case.results}) WITH ('connector' = 'blackhole')",
        case.insert,
    ]


def events(users: int, number: int) -> pa.Table:
    """The events of one file: each holds the same numbers of users, its times go on from those of the file before."""
    rng = np.random.default_rng(SEED + users)
    user = (rng.zipf(1.2, EVENTS_PER_FILE) if users <= 1_000 else rng.integers(0, users, EVENTS_PER_FILE)) % users
    times = np.sort(rng.integers(0, SPAN_MS, EVENTS_PER_FILE)) - rng.integers(0, 1_000, EVENTS_PER_FILE)
    names = pa.array([f"user-{one}" for one in range(users)])
    pages = pa.array([f"/page/{one}" for one in range(100)])
    return pa.table(
        {
            "user_n": pa.array(user.astype(np.int64)),
            "user_id": names.take(pa.array(user.astype(np.int64))),
            "amount": pa.array(np.round(rng.exponential(50.0, EVENTS_PER_FILE), 2)),
            "qty": pa.array(rng.integers(1, 100, EVENTS_PER_FILE).astype(np.int32)),
            "page": pages.take(pa.array(rng.integers(0, 100, EVENTS_PER_FILE))),
            "ms": pa.array(times + FIRST_MS + 1_000 + number * SPAN_MS),
        }
    )


def folder_with(users: int, files: int, root: Path) -> Path:
    """A folder with that many files of events; it is made once."""
    folder = root / f"tables-users-{users}-files-{files}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        unfinished.mkdir(parents=True, exist_ok=True)
        for number in range(files):
            pq.write_table(events(users, number), unfinished / f"part-{number:04}.parquet")
        unfinished.rename(folder)
    return folder
