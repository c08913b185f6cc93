"""The click events that every engine reads: the same files, generated from a fixed seed and cached between runs.

Rule of this file: the generated data depends only on the options, never on the machine or the time.

A data set has `passes` of EVENTS events each, every pass in files of EVENTS_PER_FILE. All passes hold the same events,
with the timestamps shifted by one pass each time, so that event time advances in long runs (warm-up, memory over time).
Each of the `users` users occurs at least once in a pass; all other events are drawn by Zipf's law.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

EVENTS = 2_000_000
EVENTS_PER_FILE = 100_000
PAGES = 100
USERS = (1_000, 200_000)
PASS_SPAN_MS = 30 * 60_000
"""One pass covers half an hour of event time: 30 tumbling windows of a minute."""
JITTER_MS = 1_000
"""An event is at most this much later in the files than an event with a higher timestamp: the bound for watermarks."""
FIRST_MS = 1_700_000_040_000  # a full minute, so that window 0 is complete
ZIPF_EXPONENT = 1.1
SEED = 20_240_229
LAYOUT_VERSION = 1


@dataclass(frozen=True)
class Dataset:
    """The files of one data set. `paths` are in event-time order, pass after pass."""

    users: int
    directory: Path
    paths: tuple[Path, ...]

    @property
    def events(self) -> int:
        """The number of events in all files."""
        return len(self.paths) * EVENTS_PER_FILE


def default_directory() -> Path:
    """The cache under the system's temporary directory."""
    return Path(tempfile.gettempdir()) / "flinkish-benchmarks"


def ensure(users: int, passes: int = 1, directory: Path | None = None) -> Dataset:
    """The data set, generated if it is not there yet.

    Example: `ensure(1_000).events == 2_000_000`.
    """
    root = (directory or default_directory()) / f"clicks-v{LAYOUT_VERSION}-users-{users}"
    root.mkdir(parents=True, exist_ok=True)
    table: pa.Table | None = None
    for number in range(passes):
        if not _pass_directory(root, number).exists():
            table = table if table is not None else generate(users)
            _write_pass(table, root, number)
    paths = [path for number in range(passes) for path in sorted(_pass_directory(root, number).glob("*.parquet"))]
    return Dataset(users, root, tuple(paths))


def generate(users: int) -> pa.Table:
    """All events of the first pass: user_id string, logged_in bool, amount double, ts int64 (epoch ms), page string."""
    rng = np.random.default_rng(SEED + users)
    user_names = pa.array([f"u{number}" for number in range(users)])
    page_names = pa.array([f"/page/{number}" for number in range(PAGES)])
    steps = np.arange(EVENTS, dtype=np.int64) * (PASS_SPAN_MS - JITTER_MS) // EVENTS
    return pa.table(
        {
            "user_id": user_names.take(pa.array(_user_numbers(rng, users))),
            "logged_in": pa.array(rng.random(EVENTS) < 0.7),
            # Quarters are exact in binary, so sums are equal in whatever order an engine adds them.
            "amount": pa.array(rng.integers(1, 400, EVENTS) / 4.0),
            "ts": pa.array(FIRST_MS + steps + rng.integers(0, JITTER_MS, EVENTS)),
            "page": page_names.take(pa.array(_zipf(rng, PAGES, EVENTS))),
        }
    )


def _user_numbers(rng: np.random.Generator, users: int) -> npt.NDArray[np.int64]:
    drawn = np.concatenate([np.arange(users, dtype=np.int64), _zipf(rng, users, EVENTS - users)])
    rng.shuffle(drawn)
    return drawn


def _zipf(rng: np.random.Generator, values: int, size: int) -> npt.NDArray[np.int64]:
    """`size` draws from 0..values-1 where value number k has the weight 1 / (k + 1) ** ZIPF_EXPONENT."""
    cumulative = np.cumsum(1.0 / np.arange(1, values + 1) ** ZIPF_EXPONENT)
    drawn: npt.NDArray[np.int64] = np.searchsorted(cumulative, rng.random(size) * cumulative[-1])
    return drawn


def _pass_directory(root: Path, number: int) -> Path:
    return root / f"pass-{number:02d}"


def _write_pass(table: pa.Table, root: Path, number: int) -> None:
    """Write into a temporary directory and rename it, so that an interrupted run leaves no partial pass."""
    column = table.schema.get_field_index("ts")
    moved = pa.array(table.column("ts").to_numpy() + number * PASS_SPAN_MS)
    table = table.set_column(column, "ts", moved)
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=root))
    for part in range(EVENTS // EVENTS_PER_FILE):
        path = unfinished / f"pass-{number:02d}-part-{part:02d}.parquet"
        pq.write_table(table.slice(part * EVENTS_PER_FILE, EVENTS_PER_FILE), path)
        # File sources read in order of modification time, so give the files the order of their events.
        os.utime(path, (FIRST_MS // 1000 + number * 1000 + part,) * 2)
    try:
        unfinished.rename(_pass_directory(root, number))
    except OSError:  # a concurrent run was faster; its files are the same
        shutil.rmtree(unfinished)


def main() -> None:
    """Generate the data sets and print where they are."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, default=default_directory())
    parser.add_argument("--passes", type=int, default=1)
    options = parser.parse_args()
    for users in USERS:
        dataset = ensure(users, options.passes, options.data)
        print(f"{users} users: {len(dataset.paths)} files, {dataset.events} events in {dataset.directory}")


if __name__ == "__main__":
    main()
