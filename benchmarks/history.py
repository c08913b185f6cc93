"""What the history of a job costs: how much is written again by compaction, and what is left, day by day.

    python -m benchmarks.history [--days 4] [--batches 90] [--rows 20] [--retention-days 30]

A driver's clock goes through the days; each batch of rows is an append to ``history/checkpoints``, as the driver makes
one a minute. Printed for each day: files and bytes that were written, how many of the bytes are rows that had been
written before, files of the newest version, and the processor time of Python and the JVM. To compare two states of
flinkish, run it with each of them as PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import contract, spark_settings
from flinkish.jobmanager.history import Rows
from flinkish.jobmanager.history_tables import DeltaTables, history_path
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.runtime.phases import ManualClock

DAY_MS = 86_400_000
ROWS = Rows("ab" * 16, "clicks", "driver-1")
HEADER = ("day", "files written", "KiB written", "of it again", "files now", "KiB now", "s of CPU")


def checkpoint(number: int, now_ms: int) -> CheckpointDescription:
    """The description of a checkpoint of a job with four vertices."""
    uids = [f"operator-{n}" for n in range(4)]
    return CheckpointDescription(
        id=number,
        epoch=number,
        status="COMPLETED",
        trigger_time_ms=now_ms,
        path=f"s3://jobs/clicks/checkpoints/chk-{number}",
        duration_ms=200 + number % 300,
        rows_written=number * 7 % 10_000,
        state_bytes=dict.fromkeys(uids, number * 31 % 1000000),
        offsets=dict.fromkeys(uids[:1], f"clicks-0={number * 1000}"),
        watermarks=dict.fromkeys(uids, now_ms - 1_000),
    )


def actions(path: str) -> list[list[dict[str, Any]]]:
    """The actions of each version of a table."""
    files = sorted(Path(path, "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def written_since(path: str, version: int) -> tuple[int, int, int, int]:
    """Files and bytes that later versions have added, the bytes of those that are no appends, and the newest version
    but for its number."""
    files = size = again = 0
    versions = actions(path)
    for commit in versions[version:]:
        added = [action["add"]["size"] for action in commit if "add" in action]
        files, size = files + len(added), size + sum(added)
        again += sum(added) if any("remove" in action for action in commit) else 0
    return files, size, again, len(versions)


def measure(spark: Any, options: argparse.Namespace, folder: str) -> None:
    """Append batches day by day, and print what that has cost."""
    clock = ManualClock(1_800_000_000_000 // DAY_MS * DAY_MS)
    tables = DeltaTables(spark, folder, options.retention_days * DAY_MS, clock)
    path, number, version = history_path(folder, "checkpoints"), 0, 0
    print("| " + " | ".join(HEADER) + " |")
    print("| " + " | ".join(["---:"] * len(HEADER)) + " |")
    for day in range(options.days):
        before_s = contract.tree_cpu_s(os.getpid()) or 0.0
        for _ in range(options.batches):
            rows = []
            for _ in range(options.rows):
                clock.advance(DAY_MS // options.batches // options.rows)
                number += 1
                rows.append(ROWS.checkpoint(checkpoint(number, clock.now_ms()), 0))
            tables.append("checkpoints", rows)
        cpu_s = (contract.tree_cpu_s(os.getpid()) or 0.0) - before_s
        files, size, again, version = written_since(path, version)
        live = [Path(path, file.rsplit("/", 1)[1]) for file in spark.read.format("delta").load(path).inputFiles()]
        now = sum(file.stat().st_size for file in live)
        figures = (day + 1, files, f"{size / 1024:,.0f}", f"{again / 1024:,.0f}", len(live), f"{now / 1024:,.0f}")
        print("| " + " | ".join(map(str, figures)) + f" | {cpu_s:.1f} |", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--batches", type=int, default=90, help="appends per day; a driver makes up to 1,440")
    parser.add_argument("--rows", type=int, default=20, help="rows of each append")
    parser.add_argument("--retention-days", type=int, default=30)
    options = parser.parse_args()
    spark = spark_settings.session("history")
    try:
        with tempfile.TemporaryDirectory() as folder:
            measure(spark, options, folder)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
