"""The ONE command for tables: the queries of `table_queries` with flinkish, with Flink SQL and as jobs in rows, over
the same events in one run, and the ratios; then programs in rows beside an earlier flinkish.

    python -m benchmarks.tables [--pyflink-python PATH] [--before CHECKOUT] [--cases WORD ...] [--files N] [--rounds N]

Each run is a process of its own, and engines take turns. Of flinkish those epochs count that begin behind the warm-up,
two million events; of Flink SQL, which has none, a run over so many events is subtracted from one over all of them.
The table has medians, and two ratios: of events/s, which counts beside Flink SQL, and of processor time, which depends
less on other users of the machine and counts beside rows and beside an earlier flinkish. Flink SQL needs PyFlink with
its planner: name an interpreter that has it. Its Parquet format and its Kafka connector come from Maven, once.
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
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import contract
from benchmarks.table_queries import CASES, EVENTS_PER_FILE, Case, fill, source_of, statements
from benchmarks.tables_and_rows import compare
from tests.support.ivy import Coordinate, JarSet, pyspark_jars_folder, resolve_jars
from tests.support.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parent.parent
JARS = (
    JarSet("flink-sql-parquet", (Coordinate("org.apache.flink", "flink-sql-parquet", "2.3.0"),)),
    JarSet("flink-sql-connector-kafka", (Coordinate("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2"),)),
)
"""What PyFlink lacks. The Hadoop classes of Flink's Parquet format are those of PySpark."""
WARM_UP = 8 * EVENTS_PER_FILE


class Figures(NamedTuple):
    """Microseconds per event: from begin to end, of processors, and of Python workers alone (None: there are none)."""

    wall_us: float
    cpu_us: float
    workers_us: float | None

    def __str__(self) -> str:
        workers = "-" if self.workers_us is None else f"{self.workers_us:,.3f}"
        return f"{1 / self.wall_us * 1e6:>14,.1f}{self.cpu_us:>14,.3f}{workers:>12}"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--pyflink-python", default=os.environ.get("BENCHMARKS_PYFLINK_PYTHON"))
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="an earlier flinkish, for programs in rows")
    parser.add_argument("--cases", nargs="*", help="only cases whose names have one of these words in them")
    parser.add_argument("--files", type=int, default=48, help="files, of a quarter of a million events each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "flinkish-benchmarks")
    options = parser.parse_args()
    titles = f"{'events/s':>14}{'CPU us':>14}{'workers us':>12}{'ratio':>8}{'of CPU':>8}{'at least':>10}"
    print(f"{'query':<42}{'engine':<12}{titles}")
    for case in CASES:
        if options.cases is None or any(word in case.name for word in options.cases):
            with KafkaBroker() if case.kafka else nullcontext() as broker:
                show(case, options, broker)
    if options.before:
        compare(options)


def show(case: Case, options: argparse.Namespace, broker: KafkaBroker | None) -> None:
    """Measure a case, and print its rows."""
    events = case.events or options.files * EVENTS_PER_FILE
    all_sizes = (WARM_UP, events) if case.at_least and options.pyflink_python else (events,)
    servers = broker.bootstrap_servers if broker else ""
    sources = {size: source_of(case, options.data, size, servers) for size in all_sizes}
    for size, source in sources.items():
        if broker is None:
            break
        broker.create_topic(source["topic"], 2)
        fill(servers, source["topic"], case.users, size)
    found: dict[str, list[Figures]] = {}
    for _ in range(options.rounds):
        for engine, python in _engines(case, options.pyflink_python):
            found.setdefault(engine, []).append(measured(engine, python, case, sources))
            print(f"... {case.name}, {case.users:,} users, {engine}:{found[engine][-1]}", file=sys.stderr, flush=True)
    own = found["flinkish"]
    own_wall, own_cpu = statistics.median(one.wall_us for one in own), statistics.median(one.cpu_us for one in own)
    for engine, figures in found.items():
        median = Figures(*(_median([one[place] for one in figures]) for place in range(3)))  # type: ignore[arg-type]
        bound = {"Flink SQL": case.at_least, "rows": case.than_rows}.get(engine)
        ratios = f"{median.wall_us / own_wall:>8.2f}{median.cpu_us / own_cpu:>8.2f}"
        shown = f"{ratios}{bound:>10.2f}" if bound else ""
        print(f"{f'{case.name}, {case.users:,} users':<42}{engine:<12}{median}{shown}", flush=True)


def _median(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def _engines(case: Case, pyflink_python: str | None) -> Iterator[tuple[str, str]]:
    yield "flinkish", sys.executable
    if case.at_least and pyflink_python:
        yield "Flink SQL", pyflink_python
    if case.rows:
        yield "rows", sys.executable


def measured(engine: str, python: str, case: Case, sources: dict[int, dict[str, str]]) -> Figures:
    """What an event costs an engine in a query."""
    events = max(sources)
    found = _run(engine, python, case, sources[events])
    if engine == "Flink SQL":
        few = _run(engine, python, case, sources[WARM_UP])
        found = {"events": events - WARM_UP, **{key: found[key] - few[key] for key in ("wall_s", "cpu_s")}}
    wall, cpu, workers = (found[key] / found["events"] * 1e6 if key in found else None for key in _KEYS)
    assert wall is not None and cpu is not None
    return Figures(wall, cpu, workers)


_KEYS = ("wall_s", "cpu_s", "workers_s")


def _run(engine: str, python: str, case: Case, source: dict[str, str]) -> dict[str, float]:
    settings = {"parallelism.default": "2"}
    if engine != "Flink SQL":
        settings |= case.settings
    elif case.name == "GROUP BY":
        settings |= {
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "50000",
        }
    job: dict[str, Any] = {"statements": statements(case, source), "jars": [], "settings": settings}
    job |= {"warm_up": WARM_UP} if case.measured is None else case.measured
    if engine == "rows" and case.rows:
        job["rows"] = (case.rows[0], {**case.rows[1], **source})
    module = "benchmarks/pipelines/flink_sql.py" if engine == "Flink SQL" else "-mbenchmarks.pipelines.flinkish_sql"
    where = contract.in_checkout(ROOT)
    if engine == "Flink SQL":
        job["jars"] = [str(jar) for jars in JARS for jar in resolve_jars(jars)]
        hadoop = sorted(map(str, pyspark_jars_folder().glob("hadoop-client-*.jar")))
        where["env"] = {**where.get("env", os.environ), "HADOOP_CLASSPATH": os.pathsep.join(hadoop)}
    given = json.dumps(job)
    run = subprocess.run([python, module], input=given, stdout=subprocess.PIPE, text=True, check=True, **where)
    found: dict[str, float] = json.loads(run.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
