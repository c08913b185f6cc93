"""One job on clusters of 1, 2 and 4 executors of one core each: checks that the results are equal, and takes the times.

    python -m benchmarks.executors [--executors 1 2 4] [--records 20000]

Keyed state, timers and windows with parallelism 8 (`benchmarks.pipelines.executors_job`), on Spark's ``local-cluster``:
the executors are separate processes that share this machine's cores. The time is from the start of the job to its end,
including the start of its Python processes. Ends with an error if the results differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.local_cluster import spark_home

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 1_800


def measure(executors: int, records: int) -> dict[str, Any]:
    """The output of one run of the job, in a separate process, since a process has one Spark session."""
    with tempfile.TemporaryDirectory(prefix="flinkish-executors-") as name:
        folder = Path(name)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": str(spark_home(folder))}
        command = [sys.executable, "-m", "benchmarks.pipelines.executors_job", name, str(executors), str(records)]
        log_file = folder / "log"
        with log_file.open("w") as log:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, timeout=TIMEOUT_S
            )
        if done.returncode:
            raise RuntimeError(f"the job failed on {executors} executors:\n{log_file.read_text()[-4_000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a line for each number of executors."""
    parser = argparse.ArgumentParser(description="One job on several numbers of executors.")
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--records", type=int, default=20_000)
    options = parser.parse_args()
    digests = set()
    print(f"{'executors':>9} | {'used':>4} | {'s':>6} | {'epochs':>6} | {'digest':<16} | results", flush=True)
    for executors in options.executors:
        one = measure(executors, options.records)
        digests.add(one["digest"])
        results = ", ".join(f"{number:,} {name}" for name, number in one["results"].items())
        figures = f"{one['used']:>4} | {one['seconds']:>6.1f} | {one['epochs']:>6} | {one['digest']}"
        print(f"{executors:>9} | {figures} | {results}", flush=True)
    if len(digests) > 1:
        sys.exit("the results differ")
    print("the results are the same")


if __name__ == "__main__":
    main()
