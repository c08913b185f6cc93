"""How long a program takes from its start to its first epoch, and what it spends that time on.

    python -m benchmarks.quick_start [--rounds 3] [--checkouts PATH ...] [-- PROGRAM.py options ...]

Each round starts the main job (or the program, which must take ``--job-dir``) once from each checkout (by default this
one), with ``./spark-submit.sh`` and a new job directory. The checkouts take turns, because the load of a shared machine
changes. The program is not instrumented: the files that it writes show its progress. The output has the elapsed seconds
and the seconds of processor time, which depend less on other users of the machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
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


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick_start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkouts", type=Path, nargs="+", default=[ROOT])
    parser.add_argument("program", nargs="*", default=["jobs/click_count.py"])
    options = parser.parse_args()
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
