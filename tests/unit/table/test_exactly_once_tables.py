"""Queries with memory write each result once, wherever in an epoch the job fails and goes on."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.runtime.phases import Phase
from flinkish.table import Schema, StreamTableEnvironment
from flinkish.testing import End, Pause, ProgramTestHarness, SimulatedCrash, TestingSource
from flinkish.testing.program import PHASES
from tests.support.programs import new_environment

ROW = Types.ROW_NAMED(["k", "v", "ts"], [Types.STRING(), Types.LONG(), Types.SQL_TIMESTAMP()])
SCHEMA = (
    Schema.new_builder()
    .from_fields(["k", "v", "ts"], ["STRING", "BIGINT", "TIMESTAMP(3)"])
    .watermark("ts", "ts - INTERVAL '1' SECOND")
    .build()
)
NOON = datetime(2024, 1, 1, 12)
#: (key, value), one a second; the group "c" loses what it has, and comes again
VALUES = [("a", 1), ("b", 2), ("c", 9), ("a", 3), ("c", -9), ("b", 4), ("d", 5), ("a", -4), ("c", 7), ("b", 6)]
#: Behind these records an epoch ends.
ENDS = (2, 5, 8)
GROUPS = "SELECT k, SUM(v) AS total, COUNT(*) AS n FROM t GROUP BY k HAVING SUM(v) > 0"
WINDOWS = """SELECT k, window_start, SUM(v) AS total FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND))
    GROUP BY k, window_start, window_end"""


def source() -> TestingSource:
    elements: list[object] = []
    for number, (key, value) in enumerate(VALUES, 1):
        elements.append(Row(k=key, v=value, ts=NOON + timedelta(seconds=number)))
        if number in ENDS:
            elements.append(Pause())
    return TestingSource(*elements, End(), type_info=ROW)


def run_with_crashes(harness: ProgramTestHarness, phase: Phase) -> None:
    """Run a program to its end, with a crash at this phase of each epoch."""
    for epoch in range(len(ENDS) + 1):
        harness.crash_at(phase, epoch=epoch)
    crashes = 0
    while not harness.finished:
        try:
            harness.run_epoch()
        except SimulatedCrash:
            crashes += 1
    harness.close()
    assert crashes > 0


def program(folder: Path, declaration: str, query: str) -> StreamExecutionEnvironment:
    env = new_environment(2)
    t_env = StreamTableEnvironment.create(env)
    stream = env.from_source(source(), WatermarkStrategy.no_watermarks(), "t")
    t_env.create_temporary_view("t", t_env.from_data_stream(stream, SCHEMA))
    t_env.execute_sql(declaration.format(folder=folder))
    statements = t_env.create_statement_set()
    statements.add_insert_sql(f"INSERT INTO results {query}")
    statements.attach_as_datastream()
    return env


JDBC = """CREATE TABLE results (k STRING, total BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH (
    'connector' = 'jdbc', 'url' = 'jdbc:sqlite:{folder}/db', 'table-name' = 'results')"""
FILES = """CREATE TABLE results (k STRING, w TIMESTAMP(3), total BIGINT) WITH (
    'connector' = 'filesystem', 'path' = '{folder}/out', 'format' = 'json')"""


def in_database(folder: Path) -> Counter[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "db")) as database:
        return Counter(tuple(row) for row in database.execute("SELECT k, total, n FROM results"))


def in_files(folder: Path) -> Counter[tuple[object, ...]]:
    lines = [line for file in (folder / "out").rglob("part-*") for line in file.read_text().splitlines()]
    return Counter((row["k"], row["w"], row["total"]) for row in map(json.loads, lines))


def groups() -> Counter[tuple[object, ...]]:
    totals: Counter[str] = Counter()
    for key, value in VALUES:
        totals[key] += value
    counts = Counter(key for key, _ in VALUES)
    return Counter((key, total, counts[key]) for key, total in totals.items() if total > 0)


def windows() -> Counter[tuple[object, ...]]:
    totals: Counter[tuple[str, int]] = Counter()
    for number, (key, value) in enumerate(VALUES, 1):
        totals[key, number - number % 3] += value
    return Counter((key, str(NOON + timedelta(seconds=start)), total) for (key, start), total in totals.items())


CASES = {
    "GROUP BY into JDBC": (JDBC, GROUPS, in_database, groups),
    "a window into files": (FILES, WINDOWS, in_files, windows),
}


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
@pytest.mark.parametrize("case", CASES)
def test_a_result_is_written_once_although_every_epoch_fails_at_a_phase(
    case: str, phase: Phase, tmp_path: Path
) -> None:
    declaration, query, found, wanted = CASES[case]
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.execute("CREATE TABLE results (k TEXT PRIMARY KEY, total INTEGER, n INTEGER)")
    run_with_crashes(ProgramTestHarness(program(tmp_path, declaration, query)), phase)
    assert found(tmp_path) == wanted()
