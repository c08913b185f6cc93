"""The ONE command for tables: the queries of `table_queries` with flinkish and with Flink SQL, over the same files in
one run, and the ratios.

    python -m benchmarks.tables [--pyflink-python PATH] [--cases WORD ...] [--files N] [--rounds N] [--data FOLDER]

Each run is a process of its own. Of flinkish those epochs count that begin behind the warm-up, two million events; of
Flink SQL, which has none, a run over so many events is subtracted from one over all of them. The table has medians.
Flink SQL needs PyFlink with its planner: name an interpreter that has it. Its Parquet format comes from Maven, once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import contract
from benchmarks.table_queries import CASES, EVENTS_PER_FILE, Case, folder_with, statements
from tests.support.ivy import Coordinate, JarSet, pyspark_jars_folder, resolve_jars

ROOT = Path(__file__).resolve().parent.parent
PARQUET = JarSet("flink-sql-parquet", (Coordinate("org.apache.flink", "flink-sql-parquet", "2.3.0"),))
"""Flink's Parquet format, which PyFlink lacks; its Hadoop classes are those of PySpark."""
FEW = 8
"""Files of the warm-up: two million events."""


class Figures(NamedTuple):
    """Microseconds per event: from begin to end, of processors, and of Python workers alone (None: there are none)."""

    wall_us: float
    cpu_us: float
    workers_us: float | None

    def __str__(self) -> str:
        workers = "-" if self.workers_us is None else f"{self.workers_us:.3f}"
        return f"{1 / self.wall_us * 1e6:>12,.0f}{self.cpu_us:>10.2f}{workers:>12}"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--pyflink-python", default=os.environ.get("BENCHMARKS_PYFLINK_PYTHON"))
    parser.add_argument("--cases", nargs="*", help="only cases whose names have one of these words in them")
    parser.add_argument("--files", type=int, default=FEW + 40, help="files, of a quarter of a million events each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "flinkish-benchmarks")
    options = parser.parse_args()
    print(f"{'query':<34}{'engine':<10}{'events/s':>12}{'CPU us':>10}{'workers us':>12}{'ratio':>8}{'at least':>10}")
    for case in CASES:
        if case.kafka or options.cases and not any(word in case.name for word in options.cases):
            continue
        found: dict[str, list[Figures]] = {}
        for _ in range(options.rounds):
            for engine, python in _engines(options.pyflink_python):
                found.setdefault(engine, []).append(measured(engine, python, case, options.files, options.data))
        for engine, figures in found.items():
            median = Figures(*(_median([one[place] for one in figures]) for place in range(3)))  # type: ignore[arg-type]
            ratio = statistics.median(other.wall_us for other in found.get("Flink SQL", figures)) / median.wall_us
            shown = f"{ratio:>8.2f}{case.at_least:>10.1f}" if engine == "flinkish" and len(found) > 1 else ""
            print(f"{f'{case.name}, {case.users:,} users':<34}{engine:<10}{median}{shown}", flush=True)


def _median(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def _engines(pyflink_python: str | None) -> Iterator[tuple[str, str]]:
    yield "flinkish", sys.executable
    if pyflink_python:
        yield "Flink SQL", pyflink_python


def measured(engine: str, python: str, case: Case, files: int, data: Path) -> Figures:
    """What an event costs an engine in a query."""
    found = _run(engine, python, case, folder_with(case.users, files, data))
    if engine != "flinkish":
        few = _run(engine, python, case, folder_with(case.users, FEW, data))
        found = {
            "events": (files - FEW) * EVENTS_PER_FILE,
            **{key: found[key] - few[key] for key in ("wall_s", "cpu_s")},
        }
    wall, cpu, workers = (found[key] / found["events"] * 1e6 if key in found else None for key in _KEYS)
    assert wall is not None and cpu is not None
    return Figures(wall, cpu, workers)


_KEYS = ("wall_s", "cpu_s", "workers_s")


def _run(engine: str, python: str, case: Case, folder: Path) -> dict[str, float]:
    settings = {"parallelism.default": "2"}
    if case.name == "GROUP BY" and engine != "flinkish":
        settings |= {
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "50000",
        }
    job: dict[str, Any] = {"statements": statements(case, folder), "jars": [], "settings": settings}
    job["warm_up"] = FEW * EVENTS_PER_FILE
    module = "benchmarks/pipelines/flink_sql.py" if engine == "Flink SQL" else "-mbenchmarks.pipelines.flinkish_sql"
    where = contract.in_checkout(ROOT)
    if engine == "Flink SQL":
        job["jars"] = list(map(str, resolve_jars(PARQUET)))
        hadoop = sorted(map(str, pyspark_jars_folder().glob("hadoop-client-*.jar")))
        where["env"] = {**where.get("env", os.environ), "HADOOP_CLASSPATH": os.pathsep.join(hadoop)}
    given = json.dumps(job)
    run = subprocess.run([python, module], input=given, stdout=subprocess.PIPE, text=True, check=True, **where)
    found: dict[str, float] = json.loads(run.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
