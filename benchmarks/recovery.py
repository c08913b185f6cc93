"""The time from a failure to the first committed epoch after it: failure of a task, of an executor, of the driver.

Rule: the time is measured from outside, by wall clock, from the fault (a raise, a kill -9) to the commit of the first
epoch after it, in a job that commits epochs without pause; the duration of an epoch is printed with it.

    python -m benchmarks.recovery [--trials 5]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
#: Epochs before a fault, so that start-up is over.
QUIET_EPOCHS = 5
TIMEOUT_S = 180.0


class Job:
    """A running recovery job and what it has committed."""

    def __init__(self, folder: Path, master: str) -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FLINKISH_PROGRESS": "never"}
        command = [sys.executable, "-m", "benchmarks.pipelines.recovery_job", str(folder), master]
        self.started_s = time.time()
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def commits(self) -> list[tuple[int, float]]:
        """(epoch, time) of all commits so far, also those of earlier drivers."""
        path = self.folder / "commits"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(epoch), float(time_s)) for epoch, time_s in (line.split() for line in lines)]

    def first_commit_after(self, fault_s: float) -> float:
        """Seconds from a moment to the first commit after it."""
        return self._wait(lambda: next((t for _, t in self.commits() if t > fault_s), None)) - fault_s

    def wait_for_quiet(self) -> None:
        """Wait for some further epochs."""
        goal = len(self.commits()) + QUIET_EPOCHS
        self._wait(lambda: len(self.commits()) >= goal)

    def executors(self) -> list[int]:
        """Process ids of the executors."""
        found = []
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child.pid)
        return found

    def kill(self) -> None:
        """kill -9 the driver and all processes that it started."""
        if self._process.poll() is not None:
            return
        rest = psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        for process in rest:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def _wait(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while not (value := condition()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the job did not go on:\n{(self.folder / 'log').read_text()[-4000:]}")
            time.sleep(0.01)
        return value


def after_task_failure(job: Job) -> float:
    """Make a function raise once."""
    (job.folder / "raised").unlink(missing_ok=True)
    (job.folder / "raise").touch()
    job._wait((job.folder / "raised").exists)
    return job.first_commit_after(float((job.folder / "raised").read_text()))


def after_executor_loss(job: Job) -> float:
    """Kill one of two executors."""
    os.kill(job.executors()[0], signal.SIGKILL)
    return job.first_commit_after(time.time())


def trials_of(fault: Callable[[Job], float], master: str, trials: int) -> list[float]:
    """Seconds per trial, all in one driver."""
    with tempfile.TemporaryDirectory(prefix="flinkish-recovery-") as folder:
        job = Job(Path(folder), master)
        try:
            seconds = []
            for _ in range(trials):
                job.wait_for_quiet()
                seconds.append(fault(job))
            return seconds
        finally:
            job.kill()


def driver_trials(trials: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds from the start of a new driver to its first commit: of the very first driver, and of those after a kill;
    and the durations of epochs."""
    with tempfile.TemporaryDirectory(prefix="flinkish-recovery-") as folder:
        first, later = [], []
        for trial in range(trials + 1):
            job = Job(Path(folder), LOCAL)
            try:
                (later if trial else first).append(job.first_commit_after(job.started_s))
                job.wait_for_quiet()
            finally:
                job.kill()
        times = [t for _, t in job.commits()]
        return first, later, [b - a for a, b in zip(times[-QUIET_EPOCHS:], times[-QUIET_EPOCHS + 1 :])]


def main() -> None:
    """Print one line of JSON: medians and longest, in seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    trials = parser.parse_args().trials
    first, driver, epochs = driver_trials(trials)
    measured = {
        "epoch": epochs,
        "first start": first,
        "task, restart by the JobManager (local)": trials_of(after_task_failure, LOCAL, trials),
        "task, retry by Spark (cluster)": trials_of(after_task_failure, CLUSTER, trials),
        "executor (cluster)": trials_of(after_executor_loss, CLUSTER, trials),
        "driver": driver,
    }
    print(
        json.dumps(
            {
                name: {"median_s": round(statistics.median(seconds), 2), "longest_s": round(max(seconds), 2)}
                for name, seconds in measured.items()
            }
        )
    )


if __name__ == "__main__":
    main()
