"""What stands in the sinks of the big job: a table of SQLite, and files."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.integration.exactness.events import SOURCES
from tests.support.exactness import Output

_FILE = re.compile(r"(?P<kind>windows|late)-[0-9a-f-]{36}-(?P<subtask>\d+)-(?P<epoch>\d+)")


def make_table(folder: Path) -> None:
    """The database, empty."""
    with sqlite3.connect(folder / "out.db") as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS outputs (lane TEXT, id TEXT, number INTEGER, life TEXT, content TEXT)"
        )
    connection.close()


def _rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / "out.db", timeout=30)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def in_database(folder: Path) -> list[Output]:
    """The rows in the order in which they were written."""
    rows = _rows(folder, "SELECT lane, id, number, life, content FROM outputs ORDER BY rowid")
    return [Output(*row) for row in rows]  # type: ignore[arg-type]


def rows_so_far(folder: Path) -> int:
    """How many rows there are."""
    ((count,),) = _rows(folder, "SELECT COUNT(*) FROM outputs")
    return int(str(count))


def consumed(folder: Path) -> dict[str, int]:
    """Source -> how many of its records have left a row; they must be the first ones."""
    ids = [output.id for output in in_database(folder) if output.lane[0] in SOURCES and output.lane[1] == "/"]
    counts = Counter(identity[0] for identity in ids)
    for source in SOURCES:
        assert {int(i[1:]) for i in ids if i[0] == source} == set(range(counts[source])), f"gaps in source {source}"
    return {source: counts[source] for source in SOURCES}


def in_files(folder: Path, runs: tuple[str, ...]) -> Iterator[Output]:
    """The lines of the files of all runs, run by run, epoch by epoch."""
    for run in runs:
        parts = [(match, path) for path in (folder / "files" / run).glob("*") if (match := _FILE.fullmatch(path.name))]
        for _, path in sorted(parts, key=lambda part: (int(part[0]["epoch"]), part[0]["kind"], part[0]["subtask"])):
            for line in path.read_text().splitlines():
                yield Output(*json.loads(line))


def all_outputs(folder: Path, *runs: str) -> list[Output]:
    """Everything that the job has put out."""
    return [*in_database(folder), *in_files(folder, runs or ("job",))]
