"""The cost of keyed state in files, without Spark: writing, look-ups, compaction, the first look-ups of a new process.

python -m benchmarks.state_files [keys ...]      by default 1000000 5000000
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from flinkish.runtime.exchange.hashes import group_hashes
from flinkish.runtime.state.files.compaction import StateFiles
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.references import FileSet
from flinkish.runtime.state.files.rows import Rows, RowsBuilder

STATE = "count"
CHANGES, LOOKUPS, EPOCHS, LOAD = 10_000, 10_000, 60, 500_000
FRESH_PROCESS = "--fresh-process"


def encoded(keys: list[Any]) -> list[bytes]:
    """The keys, encoded as a backend encodes (namespace, key)."""
    return [pickle.dumps((None, key), 5) for key in keys]


def changed(keys: list[Any], epoch: int) -> Rows:
    """The rows of an epoch that changes these keys; the time to encode them is not measured."""
    rows = RowsBuilder()
    rows.put(STATE, group_hashes(STATE, None, keys), encoded(keys), [pickle.dumps((key, epoch), 5) for key in keys])
    return rows.build()


def median_ms(action: Callable[[], Any], times: int = 7) -> float:
    """The median of a few runs."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        taken.append((time.perf_counter() - began) * 1000)
    return sorted(taken)[times // 2]


def show(what: str, figure: str) -> None:
    """Print one line of the output."""
    print(f"{what:64s}{figure:>24s}", flush=True)


def writing() -> None:
    """Measure writing 100,000 rows with their hashes, from Python lists to a durable file."""
    for kind, keys in (("int", list(range(100_000))), ("str", [f"user-{key}" for key in range(100_000)])):
        ids, values = encoded(keys), [pickle.dumps((key, 1), 5) for key in keys]
        with tempfile.TemporaryDirectory() as folder:
            files = StateFiles(StateDirectory(folder))

            def write(files: StateFiles = files, keys: Any = keys, ids: Any = ids, values: Any = values) -> None:
                rows = RowsBuilder()
                rows.put(STATE, group_hashes(STATE, None, keys), ids, values)
                files.add(FileSet(), rows.build(), 1)

            show(f"hash, sort and write 100,000 rows, {kind} keys", f"{median_ms(write):.0f} ms")


def with_keys(count: int) -> None:
    """Measure loading, look-ups, epochs with compaction, and a new process."""
    with tempfile.TemporaryDirectory() as folder:
        files = StateFiles(StateDirectory(folder))
        held, load_s = FileSet(), 0.0
        for start in range(0, count, LOAD):
            rows = changed(list(range(start, min(start + LOAD, count))), 0)
            began = time.perf_counter()
            held = files.compact(files.add(held, rows, 0), 0)
            load_s += time.perf_counter() - began
        began = time.perf_counter()
        held = files.compact(held, 0, budget_bytes=1 << 40, sweep=True)
        load_s += time.perf_counter() - began
        show(f"{count:,} keys: load and compact", f"{load_s:.1f} s, {held.size_bytes / 1e6:.0f} MB")
        random = np.random.default_rng(1)

        def random_keys(number: int) -> list[int]:
            return [int(key) for key in random.choice(count, number, replace=False)]

        def look_up(held: FileSet, keys: list[int]) -> None:
            found = files.lookup(held, STATE, group_hashes(STATE, None, keys), encoded(keys))
            assert None not in found.values

        keys = random_keys(LOOKUPS)
        show(
            f"{count:,} keys: {LOOKUPS:,} look-ups, base alone, warm",
            f"{median_ms(lambda: look_up(held, keys)):.0f} ms",
        )
        adds, compactions, lookups, most_deltas = [], [], [], 0
        for epoch in range(1, EPOCHS + 1):
            rows, keys = changed(random_keys(CHANGES), epoch), random_keys(LOOKUPS)
            times = [time.perf_counter()]
            look_up(held, keys)
            times.append(time.perf_counter())
            before, held = held.names, files.add(held, rows, epoch)
            times.append(time.perf_counter())
            held = files.compact(held, epoch)
            times.append(time.perf_counter())
            files.directory.delete((before | held.names) - held.names)
            took = np.diff(times) * 1000
            lookups.append(took[0])
            adds.append(took[1])
            compactions.append(took[2])
            most_deltas = max(most_deltas, len(held.deltas))
        what = f"{count:,} keys, {EPOCHS} epochs of {CHANGES:,} changes"
        for name, figures in (("look-ups", lookups), ("write", adds), ("compact", compactions)):
            mean, median, most = np.mean(figures), np.median(figures), max(figures)
            show(f"{what}: {name}", f"{mean:.0f} ({median:.0f} to {most:.0f}) ms")
        show(f"{what}: most deltas, size", f"{most_deltas}, {held.size_bytes / 1e6:.0f} MB")
        path = os.path.join(folder, "reference.pickle")
        with open(path, "wb") as file:
            pickle.dump((held.encode(), random_keys(LOOKUPS)), file)
        show(f"{count:,} keys: the reference", f"{os.path.getsize(path) / 1e3 - LOOKUPS * 5 / 1e3:.0f} kB")
        subprocess.run([sys.executable, "-m", "benchmarks.state_files", FRESH_PROCESS, folder, str(count)], check=True)


def fresh_process(folder: str, count: str) -> None:
    """Measure in a new process."""
    with open(os.path.join(folder, "reference.pickle"), "rb") as file:
        data, keys = pickle.load(file)
    files, held = StateFiles(StateDirectory(folder)), FileSet.decode(data)
    for what in ("open, check digests, first look-ups", "look-ups after that"):
        began = time.perf_counter()
        files.lookup(held, STATE, group_hashes(STATE, None, keys), encoded(keys))
        show(f"{int(count):,} keys, new process: {what}", f"{(time.perf_counter() - began) * 1000:.0f} ms")


if __name__ == "__main__":
    if sys.argv[1:2] == [FRESH_PROCESS]:
        fresh_process(*sys.argv[2:])
    else:
        writing()
        for argument in sys.argv[1:] or ["1000000", "5000000"]:
            with_keys(int(argument))
