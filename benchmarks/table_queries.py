"""The queries that `python -m benchmarks.tables` asks flinkish and Flink SQL: the same text over the same events. Some
are also jobs in rows, which are programs of `benchmarks.pipelines.table_rows`.

Rule of this file: an engine gets statements and nothing else; what differs between two runs of an engine is only how
many events there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Producer

from benchmarks.kafka_source import produce

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
        at_least: how many times as fast as Flink SQL it must be (issue "Tables"); 0: Flink SQL is not asked.
        rows: the same job in rows: a function of `table_rows` and its arguments.
        than_rows: how many times as fast as the job in rows it must be.
        kafka: whether the events come as JSON from Kafka, not from Parquet.
        sink: the connector of ``results``.
        events: so many events and no more.
        measured: what is measured, if not the epochs behind the warm-up (see `benchmarks.pipelines.flinkish_sql`).
        settings: of flinkish.
    """

    name: str
    users: int
    insert: str
    results: str
    at_least: float = 0.0
    rows: tuple[str, dict[str, Any]] | None = None
    than_rows: float = 0.0
    kafka: bool = False
    sink: str = "blackhole"
    events: int | None = None
    measured: dict[str, int] | None = None
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def monitored(self) -> bool:
        """Whether the source has no end."""
        return "epochs" in (self.measured or ())


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
    Case(
        "TUMBLE over Kafka JSON",
        1_000,
        _tumble("user_id"),
        _OF_WINDOW.format("STRING"),
        1.2,
        ("tumble", {"key": "user_id"}),
        1.5,
        kafka=True,
    ),
    Case(
        "epochs without events",
        1_000,
        _tumble("user_n"),
        _OF_WINDOW.format("BIGINT"),
        rows=("tumble", {"key": "user_n", "monitored": True}),
        than_rows=0.95,
        events=EVENTS_PER_FILE,
        measured={"epochs": 20},
        settings={"flinkish.heartbeat.interval": "0 ms", "table.exec.source.idle-timeout": "1 h"},
    ),
    Case(
        "a job of 10 rows",
        1_000,
        _tumble("user_n"),
        _OF_WINDOW.format("BIGINT"),
        rows=("tumble", {"key": "user_n", "prints": True}),
        than_rows=0.95,
        sink="print",
        events=10,
        measured={},
    ),
    Case(
        "SELECT, batches of 1,000",
        200_000,
        _SELECT,
        "k BIGINT, price DOUBLE, q INT",
        rows=("select", {}),
        than_rows=1.0,
        events=EVENTS_PER_FILE,
        measured={"warm_up": EVENTS_PER_FILE // 5},
        settings={"execution.target": "minicluster", "flinkish.epoch.max-records-per-source": "1000"},
    ),
)


def source_of(case: Case, root: Path, events: int, servers: str) -> dict[str, str]:
    """Where so many events are, as `table_rows` has it: they are made once."""
    if case.kafka:
        return {"bootstrap": servers, "topic": f"events-{case.users}-{events}"}
    return {"folder": str(folder_with(case.users, events, root))}


def statements(case: Case, source: dict[str, str]) -> list[str]:
    """What an engine runs: the declarations of both tables, and the INSERT as the last one."""
    if case.kafka:
        options = {
            "connector": "kafka",
            "topic": source["topic"],
            "properties.bootstrap.servers": source["bootstrap"],
            "properties.group.id": "benchmark",
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
            "format": "json",
        }
    else:
        options = {"connector": "filesystem", "path": source["folder"], "format": "parquet"}
        if case.monitored:
            options["source.monitor-interval"] = "1 ms"
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return [
        f"CREATE TABLE events ({COLUMNS}) WITH ({listed})",
        f"CREATE TABLE results ({case.results}) WITH ('connector' = '{case.sink}')",
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


def tables_of(users: int, count: int) -> Iterator[pa.Table]:
    """So many events, a file at a time."""
    for number, left in enumerate(range(count, 0, -EVENTS_PER_FILE)):
        yield events(users, number)[:left]


def folder_with(users: int, count: int, root: Path) -> Path:
    """A folder with so many events; it is made once."""
    folder = root / f"tables-users-{users}-events-{count}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        unfinished.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(tables_of(users, count)):
            pq.write_table(table, unfinished / f"part-{number:04}.parquet")
        unfinished.rename(folder)
    return folder


def fill(servers: str, topic: str, users: int, count: int) -> None:
    """Write so many events as JSON, in turns to both partitions of a topic."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    for table in tables_of(users, count):
        parts: list[Any] = []
        for name, column in zip(table.schema.names, table.columns, strict=True):
            quote = '"' if pa.types.is_string(column.type) else ""
            parts += [f'{", " if parts else "{"}"{name}": {quote}', column.cast(pa.string()), quote]
        for place, text in enumerate(pc.binary_join_element_wise(*parts, "}", "").to_pylist()):
            produce(producer, topic, text, place % 2)
    if producer.flush(60):
        raise RuntimeError("the broker does not take the events within 60 s")
