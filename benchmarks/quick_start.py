"""How long a program takes from its start to its first epoch, and what it spends that time on.

    python -m benchmarks.quick_start [--rounds 3] [--checkouts PATH ...] [-- PROGRAM.py options ...]
    python -m benchmarks.quick_start --ten-lines [--rounds 3]

Each round starts the main job (or the program, which must take ``--job-dir``) once from each checkout (by default this
one), with ``./spark-submit.sh`` and a new job directory. The checkouts take turns, because the load of a shared machine
changes. The program is not instrumented: the files that it writes show its progress. The output has the elapsed seconds
and the seconds of processor time, which depend less on other users of the machine.

With ``--ten-lines``, the program of the README and the same query as a streaming query of bare PySpark, with Spark's
200 shuffle partitions and with 2, take turns, each run by ``python`` from its start to its end.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks import contract

ROOT = Path(__file__).resolve().parents[1]

#: The steps of a program's start, and the file of its job directory that shows that each was reached.
STEPS = {
    "directory claimed": "fencing/_delta_log/00000000000000000000.json",
    "prepared": "attempts.json",
    "query started": "spark/metadata",
    "first epoch planned": "spark/offsets/0",
    "first epoch prepared": "spark/prepared/0.json",
    "first epoch committed": "spark/commits/0",
}
LAST = "first epoch committed"
_POLL_S = 0.005
_TIMEOUT_S = 300
_PR_SET_CHILD_SUBREAPER = 36


def start(checkout: Path, program: list[str]) -> dict[str, float]:
    """Start once: step -> seconds since the start; processor seconds up to the last step; seconds to the end."""
    with tempfile.TemporaryDirectory(prefix="flinkish-quick-start-") as folder:
        job_dir = Path(folder, "job")
        command = [str(checkout / "spark-submit.sh"), *program, "--job-dir", str(job_dir)]
        environment = {**os.environ, "FLINKISH_PYTHON": sys.executable, "PYTHONPATH": ""}
        started = time.monotonic()
        with subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.DEVNULL) as process:
            seen: dict[str, float] = {}
            try:
                seen = _watch(job_dir, process, started)
                seen["processors, to the first epoch"] = contract.tree_cpu_s(process.pid) or 0.0
                process.wait(_TIMEOUT_S)
                seen["end"] = time.monotonic() - started
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
    return seen


def _watch(job_dir: Path, process: subprocess.Popen[bytes], started: float) -> dict[str, float]:
    seen: dict[str, float] = {}
    while LAST not in seen:
        now = time.monotonic() - started
        for step, name in STEPS.items():
            if step not in seen and (job_dir / name).exists():
                seen[step] = now
        if process.poll() is not None and not (job_dir / STEPS[LAST]).exists() or now > _TIMEOUT_S:
            raise RuntimeError(f"{process.args!r} got to {list(seen)} and no further")
        time.sleep(_POLL_S)
    return seen


TEN_LINES = """
from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
clicks = env.from_collection([("ann", True), ("bob", False), ("ann", True)])
(
    clicks.filter(lambda click: click[1])
    .map(lambda click: (click[0], 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    .key_by(lambda pair: pair[0])
    .sum(1)
    .print()
)
env.execute("clicks")
"""

BARE = """
import json, pathlib, tempfile
from pyspark.sql import SparkSession

with tempfile.TemporaryDirectory() as folder:
    rows = [{"user": "ann", "in": True}, {"user": "bob", "in": False}, {"user": "ann", "in": True}]
    pathlib.Path(folder, "clicks.json").write_text("".join(json.dumps(row) + chr(10) for row in rows))
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    clicks = spark.readStream.schema("user string, in boolean").json(folder)
    counts = clicks.where("in").groupBy("user").count()
    query = counts.writeStream.outputMode("update").format("console").trigger(availableNow=True).start()
    query.awaitTermination()
"""


def ten_lines(rounds: int) -> None:
    """Run the program of the README and its bare counterparts in turns; prints seconds and ratios of medians."""
    # the JVM outlives its Python process: this one adopts it, and so learns its processor time
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    programs = {f"bare PySpark, {n} partitions": BARE.replace("PARTITIONS", str(n)) for n in (200, 2)}
    programs["flinkish"] = TEN_LINES
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for number in range(rounds):
        for name, program in programs.items():
            with tempfile.TemporaryDirectory(prefix="flinkish-quick-start-") as folder:
                Path(folder, "program.py").write_text(program)
                before, started = os.times(), time.monotonic()
                subprocess.run([sys.executable, "program.py"], cwd=folder, capture_output=True, check=True)
                took_s = time.monotonic() - started
                with suppress(ChildProcessError):
                    while True:
                        os.wait()
                after = os.times()
            cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
            taken[name].append((took_s, cpu_s))
            print(f"round {number + 1}, {name}: {took_s:.2f} s, processors {cpu_s:.2f} s", flush=True)
    *bare, own = ([statistics.median(column) for column in zip(*rows, strict=True)] for rows in taken.values())
    for name, (took_s, cpu_s) in zip(taken, bare, strict=False):
        print(f"flinkish / {name}: {own[0] / took_s:.2f} of the time, {own[1] / cpu_s:.2f} of the processors' time")


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick_start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkouts", type=Path, nargs="+", default=[ROOT])
    parser.add_argument("--ten-lines", action="store_true")
    parser.add_argument("program", nargs="*", default=["jobs/click_count.py"])
    options = parser.parse_args()
    if options.ten_lines:
        ten_lines(options.rounds)
        return
    runs: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in options.checkouts}
    for number in range(options.rounds):
        for checkout, seen in runs.items():
            seen.append(start(checkout.resolve(), options.program))
            told = ", ".join(f"{step} {seconds:.2f}" for step, seconds in seen[-1].items())
            print(f"round {number + 1}, {checkout}: {told}", flush=True)
    for checkout, seen in runs.items():
        print(f"\n{checkout}: median of {options.rounds}, seconds since the start")
        for step in seen[0]:
            print(f"  {step:32} {statistics.median(one.get(step, float('nan')) for one in seen):6.2f}")


if __name__ == "__main__":
    main()
