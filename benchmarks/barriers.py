"""The cost per epoch of a subtask that changes few of many keys, without Spark: processor time, by step.

    python -m benchmarks.barriers [--keys 5000 500000] [--changes 5000] [--epochs 150]

The operator is a running sum, a tuple per user, in the backend that operators use. Each epoch changes random keys: once
with all state in memory (`warm`), and once with none of it there, as after the subtask has moved to another worker
(`moved`). Mean and median of the epochs, including the file that each writes and its share of compaction.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Sequence

from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files.directory import StateDirectory

LOAD_KEYS = 50_000


class Subtask:
    """A subtask with a running sum per user."""

    def __init__(self, folder: str) -> None:
        self._backend = KeyedStateBackend("sums", directory=StateDirectory(folder))
        self._sums = self._backend.table("sums", "reducing")
        self._epoch = 0

    def epoch(self, users: list[str]) -> tuple[float, float, int]:
        """(seconds of processor time for state and sums, the same for the barrier, bytes stored with the task)."""
        self._epoch += 1
        self._backend.epoch = EpochInfo(epoch=self._epoch)
        began_s = time.process_time()
        self._backend.prefetch(users)
        sums = self._sums.namespace(None)
        for user in users:
            before = sums.get(user)
            sums[user] = (user, 1 if before is None else before[1] + 1)
        self._sums.mark_all(None, users)
        summed_s = time.process_time()
        body = self._backend.snapshot()
        return summed_s - began_s, time.process_time() - summed_s, len(body or b"")

    def forget(self) -> None:
        """Drop cached state, as if the subtask had just moved to this worker."""
        # state used since the last call is dropped only by the second one
        self._backend.release()
        self._backend.release()


def measure(keys: int, changes: int, epochs: int, moved: bool) -> str:
    """One line of the output."""
    users, dice = [f"user-{number}" for number in range(keys)], random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        subtask = Subtask(folder)
        for start in range(0, keys, LOAD_KEYS):
            subtask.epoch(users[start : start + LOAD_KEYS])
        gc.collect()
        gc.freeze()
        figures = []
        for _ in range(epochs):
            if moved:
                subtask.forget()
            figures.append(subtask.epoch(dice.choices(users, k=changes)))
        gc.unfreeze()
    sums_s, barriers_s, sizes = zip(*figures)
    name = f"{keys:,} keys, {'moved' if moved else 'warm'}"
    kib = statistics.mean(sizes) / 1024
    return f"{name:<28}sums {_shown(sums_s)}   barrier {_shown(barriers_s)}   with the task {kib:6.1f} KiB"


def _shown(step_s: Sequence[float]) -> str:
    """Mean and median, formatted."""
    return f"{1000 * statistics.mean(step_s):7.1f} ({1000 * statistics.median(step_s):.1f}) ms"


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.barriers", description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[5_000, 500_000])
    parser.add_argument("--changes", type=int, default=5_000)
    parser.add_argument("--epochs", type=int, default=150)
    options = parser.parse_args()
    for keys in options.keys:
        for moved in (False, True):
            print(measure(keys, options.changes, options.epochs, moved), flush=True)


if __name__ == "__main__":
    main()
