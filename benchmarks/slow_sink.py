"""Whether a slow sink slows the source and lets nothing grow, and whether a burst of records does no harm.

    python -m benchmarks.slow_sink [--minutes 10] [--source 200000] [--sink 1000] [--slow writer|commit]
    python -m benchmarks.slow_sink --burst 10000000

The first command runs a source of 200,000 records per second in front of a sink of 1,000; epochs are to take a second.
The second one puts a burst of 10 million records into such a job, whose sink takes what comes. For each part of the
time it prints the records per second that the sink has committed, the median, 99th percentile and maximum of the
epochs' durations (from its first task to the end of its commit: the time that a record is in the job), the largest
memory (proportional set size) of all Python workers, of the process that plans epochs, and of the JVM, and the files
and bytes of the job directory; at the end what each vertex was. Only Linux (/proc).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import contract, runner
from benchmarks.process_memory import sizes_mib

PARTS = 10
SAMPLE_EVERY_S = 3.0


@dataclass
class Part:
    """What was seen in a part of the time."""

    seconds: float = 0.0
    epochs: list[dict[str, Any]] = field(default_factory=list)
    #: kind of process -> its largest memory
    mib: dict[str, float] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    #: folder of the job directory -> its number of files
    folders: Counter[str] = field(default_factory=Counter)

    def see(self, pid: int, folder: Path) -> None:
        """Look at the processes and the files as of now."""
        for name, size in sizes_mib(pid).items():
            kind = name.split(" ")[0] if not name.startswith("all") else name
            self.mib[kind] = max(self.mib.get(kind, 0.0), size)
        sizes, folders = [], Counter[str]()
        for path in folder.rglob("*"):
            try:
                if not path.is_file():
                    continue
                sizes.append(path.stat().st_size)
            except OSError:
                continue  # deleted meanwhile
            folders["/".join(path.relative_to(folder).parts[:-1][:2]) or "."] += 1
        self.files, self.bytes, self.folders = len(sizes), sum(sizes), folders

    def line(self, number: int) -> str:
        """The line of the table."""
        durations = sorted(epoch["duration_ms"] for epoch in self.epochs) or [0]
        records = sum(epoch["records_out"] for epoch in self.epochs)
        cells = (
            f"{len(self.epochs):,}",
            f"{records / max(self.seconds, 0.1):,.0f}",
            f"{durations[len(durations) // 2]:,}",
            f"{durations[int(len(durations) * 0.99)]:,}",
            f"{durations[-1]:,}",
            *(f"{self.mib.get(kind, 0.0):,.0f}" for kind in ("all workers", "planner", "jvm")),
            f"{self.files:,}",
            f"{self.bytes / 2**20:,.1f}",
        )
        return f"{number:>4}" + "".join(f"{cell:>12}" for cell in cells)


HEADS = (
    "epochs",
    "records/s",
    "median ms",
    "p99 ms",
    "max ms",
    "workers MiB",
    "planner MiB",
    "JVM MiB",
    "files",
    "MiB",
)


def watch(command: list[str], folder: Path, seconds: float) -> list[Part]:
    """Run the job, and see what it does in each part of the time; a job that ends before has fewer parts."""
    parts: list[Part] = [Part()]
    errors = (folder / "log").open("w")
    job = runner.start(sys.executable, "benchmarks.pipelines.slow_sink_job", command, errors=errors)
    first_epoch, last = threading.Event(), threading.Event()

    def read() -> None:
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith("{"):
                parts[-1].epochs.append(json.loads(line))
                first_epoch.set()
        first_epoch.set()
        last.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        first_epoch.wait()
        began_s = part_s = time.monotonic()
        while not last.wait(SAMPLE_EVERY_S):
            now_s = time.monotonic()
            parts[-1].see(job.pid, folder / "job")
            parts[-1].seconds = now_s - part_s
            if (now_s - began_s) * PARTS / seconds >= len(parts) < PARTS:
                parts.append(Part())
                part_s = now_s
        if job.wait():
            raise RuntimeError(f"the job has ended with {job.returncode}:\n{(folder / 'log').read_text()[-4000:]}")
    finally:
        for pid in reversed(contract.process_tree(job.pid)):
            subprocess.run(["kill", "-9", str(pid)], stderr=subprocess.DEVNULL, check=False)
        job.wait()
        errors.close()
    return parts


def main() -> None:
    """Print a line per part of the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--source", type=float, default=200_000, help="records per second of the source")
    parser.add_argument("--sink", type=float, default=1_000, help="records per second of the sink")
    parser.add_argument("--slow", choices=["writer", "commit"], default="writer", help="what is slow of the sink")
    parser.add_argument("--burst", type=int, default=0, help="this many records at once, and a sink that is not slow")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flinkish-slow-sink-", ignore_cleanup_errors=True) as folder:
        command = [folder, "--seconds", str(options.minutes * 60)]
        if options.burst:
            command += ["--count", str(options.burst)]
        else:
            command += ["--source", str(options.source), "--sink", str(options.sink), "--slow", options.slow]
        parts = [part for part in watch(command, Path(folder), options.minutes * 60) if part.epochs]
    print("    " + "".join(f"{head:>12}" for head in HEADS))
    for number, part in enumerate(parts):
        print(part.line(number))
    middle, last = parts[len(parts) // 2], parts[-1]
    more = {name: count for name, count in (last.folders - middle.folders).items() if count}
    print(f"files that are more at the end than after half of the time: {more or 'none'}")
    epochs = [epoch for part in parts for epoch in part.epochs]
    total = {name: sum(epoch[name] for epoch in epochs) for name in ("records_in", "records_out")}
    print(f"records in {total['records_in']:,}, out {total['records_out']:,}")
    print(f"at the end: {json.dumps(epochs[-1]['vertices'])}, backlog {epochs[-1]['backlog']}")


if __name__ == "__main__":
    main()
