"""What tables cost those who do not use them: programs in rows, and what a worker imports, beside an earlier flinkish
in another checkout. `benchmarks.tables` with ``--before`` prints it.

The programs run in the minicluster, in one process: what they cost there is what they cost in workers, and Spark, which
tables do not change, adds no noise of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import contract, data

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = ("sum", "user_window", "visits")
FILES = 10
IMPORTS = 15
PROGRAM = """
import sys, time
from pathlib import Path
from benchmarks.pipelines.flinkish_job import build, in_a_folder
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
configuration = Configuration().set_string("execution.target", "minicluster")
configuration.set_string("flinkish.epoch.max-records-per-source", "250000")
configuration.set_string("flinkish.epoch.target-duration", "0 ms")
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
build(env, sys.argv[1], in_a_folder([Path(path) for path in sys.argv[2:]]))
begin = time.process_time()
env.execute()
"""
WORKER = """
import sys, time
begin = 0.0
import flinkish.spark.worker, flinkish.runtime.task.stateful_task, flinkish.runtime.task.source_task
"""
TOLD = """
import json
found = {"cpu_s": time.process_time() - begin, "modules": len(sys.modules)}
print(json.dumps({**found, **{name: name in sys.modules for name in ("numpy", "pyarrow", "pandas")}}))
"""


def compare(options: argparse.Namespace) -> None:
    """Measure in turns, and print microseconds of processor time per event, and the ratio of now to before."""
    checkouts = (options.before.absolute(), ROOT)
    print(f"\n{'in rows':<42}{'before, CPU us':>16}{'now, CPU us':>16}{'now / before':>14}{'at most':>10}")
    for pipeline in PIPELINES:
        for users in data.USERS:
            files = data.ensure(users, 1, options.data)
            arguments = [pipeline, *map(str, list(files.paths)[:FILES])]
            events = FILES * data.EVENTS_PER_FILE
            runs = [[_run(where, PROGRAM, arguments) for where in checkouts] for _ in range(options.rounds)]
            _show(f"{pipeline}, {users:,} users", runs, events)
    runs = [[_run(where, WORKER, []) for where in checkouts] for _ in range(IMPORTS)]
    _show("import of a worker", runs, 1)
    for where, found in zip(checkouts, runs[0], strict=True):
        print(f"modules of a worker, {where}: { ({name: one for name, one in found.items() if name != 'cpu_s'}) }")


def _run(checkout: Path, program: str, arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-c", program + TOLD, *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **contract.in_checkout(checkout))
    found: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return found


def _show(name: str, runs: list[list[dict[str, Any]]], events: int) -> None:
    earlier, later = (
        statistics.median(one["cpu_s"] for one in turns) / events * 1e6 for turns in zip(*runs, strict=True)
    )
    print(f"{name:<42}{earlier:>16,.3f}{later:>16,.3f}{later / earlier:>14.3f}{1.03:>10}", flush=True)
