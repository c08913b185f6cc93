"""Whether the memory of a job stays constant: each Python worker, and the JVM, over an hour of epochs.

    python -m benchmarks.memory_over_time [--minutes 60] [--keys 1000000] [--interval 1s]

It runs the job of `benchmarks.keyed_state` with parallelism 2 and epochs of 10,000 records on random keys, and measures
every process at intervals. It prints the largest size (proportional set size, in MiB) of each process in each part of
the time. Workers that run the same subtasks in turn are also counted together. Only Linux (/proc).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks import contract, runner
from benchmarks.process_memory import sizes_mib

PARTS = 6
SAMPLE_EVERY_S = 10.0


def measure(options: argparse.Namespace, folder: Path) -> tuple[dict[str, list[float]], list[int]]:
    """The largest size of each process in each part of the time, 0 where it did not exist; epochs done by then."""
    command = [sys.executable, "-m", "benchmarks.pipelines.keyed_state_job", str(folder), "--keys", str(options.keys)]
    command += ["--phases", "10000:100000000", "--set", f"flinkish.epoch.interval={options.interval}"]
    peaks: dict[str, list[float]] = defaultdict(lambda: [0.0] * PARTS)
    epochs: list[int] = []
    with (folder / "log").open("wb") as log:
        job = subprocess.Popen(command, cwd=runner.ROOT, stdout=log, stderr=log)
        try:
            _wait_for_keys(job, folder)
            began = time.monotonic()
            while (part := int((time.monotonic() - began) / (60 * options.minutes) * PARTS)) < PARTS:
                time.sleep(min(SAMPLE_EVERY_S, 60 * options.minutes / PARTS / 2))
                if job.poll() is not None:
                    print(f"the job has ended:\n{(folder / 'log').read_text()[-4000:]}", file=sys.stderr)
                    break
                for name, size in sizes_mib(job.pid).items():
                    peaks[name][part] = max(peaks[name][part], size)
                del epochs[part:]
                epochs.append(_epochs_done(folder))
        finally:
            for pid in reversed(contract.process_tree(job.pid)):
                subprocess.run(["kill", "-9", str(pid)], stderr=subprocess.DEVNULL, check=False)
            job.wait()
    return peaks, epochs


def _wait_for_keys(job: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until each key was added, and for some further epochs."""
    while _epochs_done(folder) < 20:
        if job.poll() is not None:
            raise RuntimeError(f"the job has ended:\n{(folder / 'log').read_text()[-4000:]}")
        time.sleep(1.0)


def _epochs_done(folder: Path) -> int:
    names = (path.name for path in folder.glob("job/**/commits/*"))
    return max((int(name) for name in names if name.isdigit()), default=0)


def main() -> None:
    """Print a line per process."""
    parser = argparse.ArgumentParser(description="The memory of each worker over an hour of epochs.")
    parser.add_argument("--minutes", type=float, default=60.0, help="less than two hours")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--interval", default="1s", help="flinkish.epoch.interval of the job")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flinkish-memory-", ignore_cleanup_errors=True) as folder:
        peaks, epochs = measure(options, Path(folder))
    length = options.minutes / PARTS
    print(f"largest MiB in each {length:g} minutes")
    print(f"{'epochs done':<20}" + "".join(f"{number:>10,}" for number in epochs))
    for name, sizes in sorted(peaks.items()):
        print(f"{name:<20}" + "".join(f"{size:>10,.0f}" if size else f"{'':>10}" for size in sizes))


if __name__ == "__main__":
    main()
