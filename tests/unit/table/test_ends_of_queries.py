"""Queries over bounded tables end once, with all rows: with fewer files than subtasks, and in epochs of few rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.table import StreamTableEnvironment
from tests.support.programs import new_environment

KEYS = 5
SIZES = {"short": (3,), "long": (20, 31), "uneven": (1, 0, 25), "none": ()}
ALL = {name: [key % KEYS for size in sizes for key in range(size)] for name, sizes in SIZES.items()}
WINDOW = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(t), INTERVAL '10' SECOND))"

#: query -> the tables whose rows it counts by key, all in all
QUERIES: dict[str, tuple[str, ...]] = {
    "SELECT k, COUNT(*) FROM long GROUP BY k": ("long",),
    "SELECT k, COUNT(*) FROM uneven GROUP BY k": ("uneven",),
    "SELECT k, COUNT(*) FROM none GROUP BY k": (),
    "SELECT k, COUNT(*) FROM (SELECT * FROM short UNION ALL SELECT * FROM long) GROUP BY k": ("short", "long"),
    "SELECT k, COUNT(*) FROM (SELECT * FROM none UNION ALL SELECT * FROM uneven) GROUP BY k": ("uneven",),
    "SELECT k, 1 FROM long UNION ALL SELECT k, 1 FROM short": ("long", "short"),
    "SELECT k, 1 FROM long LIMIT 51": ("long",),
    f"SELECT k, COUNT(*) FROM {WINDOW.format('long')} GROUP BY k, window_start, window_end": ("long",),
    f"SELECT k, COUNT(*) FROM {WINDOW.format('uneven')} GROUP BY k, window_start, window_end": ("uneven",),
    "SELECT k, COUNT(*) FROM (SELECT k FROM long UNION ALL SELECT k FROM generated) GROUP BY k": ("long", "long"),
}


def declare(t_env: StreamTableEnvironment, folder: Path) -> None:
    for name, sizes in SIZES.items():
        (folder / name).mkdir(exist_ok=True)
        for number, size in enumerate(sizes):
            times = pa.array([1_000_000 * n for n in range(size)], pa.timestamp("us"))
            keys = pa.array([n % KEYS for n in range(size)], pa.int64())
            pq.write_table(pa.table({"k": keys, "t": times}), folder / name / f"{number}.parquet")
        t_env.execute_sql(
            f"CREATE TABLE {name} (k BIGINT, t TIMESTAMP(3), WATERMARK FOR t AS t) WITH ('connector' = 'filesystem', "
            f"'format' = 'parquet', 'path' = '{folder / name}')"
        )
    t_env.execute_sql("CREATE VIEW generated AS SELECT k FROM long")


@pytest.mark.parametrize(("query", "tables"), QUERIES.items(), ids=range(len(QUERIES)))
@pytest.mark.parametrize("batch", [False, True])
def test_a_query_over_bounded_tables_ends_once_with_all_rows(
    query: str, tables: tuple[str, ...], batch: bool, tmp_path: Path
) -> None:
    for parallelism, per_epoch in ((2, 3), (5, 7)):
        env = new_environment(
            parallelism,
            flinkish__epoch__max_records_per_source=str(per_epoch),
            execution__runtime_mode="BATCH" if batch else "STREAMING",
        )
        t_env = StreamTableEnvironment.create(env)
        declare(t_env, tmp_path)
        counts: Counter[int] = Counter()
        with t_env.execute_sql(query).collect() as rows:
            for row in rows:
                counts[row[0]] += row[1] if row.get_row_kind().name in ("INSERT", "UPDATE_AFTER") else -row[1]
        assert counts == Counter(key for name in tables for key in ALL[name])
