"""The cost of timers: a KeyedProcessFunction that registers an event-time timer for every record, one operator alone.

``python -m benchmarks.timers [--users 1000 200000] [--records 400000] [--barriers 5]`` prints microseconds of processor
time per record: for the function with its state and the registration, for firing, and for the barriers, at which state
that is too large for the task goes to files. Without Spark.
"""

from __future__ import annotations

import argparse
import gc
import pickle
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.data import PASS_SPAN_MS, SEED, ZIPF_EXPONENT
from flinkish.common import Types
from flinkish.datastream import KeyedProcessFunction, RuntimeContext
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.runtime.operators.keyed_process import KeyedProcessFactory
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.spark.worker import THRESHOLD
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness

GAP_MS, BATCH, JITTER_MS = 600_000, 500, 1_000


class Visits(KeyedProcessFunction):
    """Emits the number of a user's records after ten minutes without one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state: the time of the last record and the number of records."""
        self.visit = runtime_context.get_state(ValueStateDescriptor("visit", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        """Count the record and register its timer."""
        visit = self.visit.value()
        self.visit.update((ctx.timestamp(), 1 if visit is None else visit[1] + 1))
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + GAP_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """End the visit if this is the timer of the last record."""
        visit = self.visit.value()
        if visit is not None and timestamp == visit[0] + GAP_MS:
            self.visit.clear()
            yield ctx.get_current_key(), visit[1]


def measure(users: int, records: int, barriers: int) -> tuple[float, float, float]:
    """Microseconds per record: process, fire, barriers."""
    rng = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, users + 1) ** ZIPF_EXPONENT
    numbers = rng.choice(users, size=records, p=weights / weights.sum()).tolist()
    stamps = (np.arange(records) * (3 * PASS_SPAN_MS) // records).tolist()
    starts = range(0, records, BATCH)
    batches = [pickle.dumps([(f"u{number}",) for number in numbers[begin : begin + BATCH]]) for begin in starts]
    process = fire = barrier = 0.0
    with tempfile.TemporaryDirectory() as folder:
        harness = KeyedOneInputStreamOperatorTestHarness(
            KeyedProcessFactory(Visits()), _user, directory=StateDirectory(folder), recording=False
        )
        with harness:
            for number, (begin, data) in enumerate(zip(starts, batches, strict=True)):
                values, times = pickle.loads(data), stamps[begin : begin + BATCH]
                marks = [time.process_time()]
                harness.process_elements(values, times)
                marks.append(time.process_time())
                harness.process_watermark(times[-1] - JITTER_MS)
                marks.append(time.process_time())
                if (number + 1) % max(1, len(batches) // barriers) == 0:
                    harness.snapshot()
                harness.take_output()
                process, fire = process + marks[1] - marks[0], fire + marks[2] - marks[1]
                barrier += time.process_time() - marks[2]
    return process / records * 1e6, fire / records * 1e6, barrier / records * 1e6


def _user(value: tuple[str]) -> str:
    return value[0]


def main() -> None:
    """Print a line per number of users."""
    parser = argparse.ArgumentParser(description="Microseconds a record of a function with a timer for every record.")
    parser.add_argument("--users", type=int, nargs="+", default=[1_000, 200_000], metavar="N")
    parser.add_argument("--records", type=int, default=400_000, metavar="N")
    parser.add_argument("--barriers", type=int, default=5, metavar="N")
    options = parser.parse_args()
    gc.set_threshold(THRESHOLD, 20, 20)
    print(f"{'users':>8} {'process':>8} {'fire':>8} {'barrier':>8}   us a record")
    for users in options.users:
        print(
            f"{users:8,} " + " ".join(f"{figure:8.2f}" for figure in measure(users, options.records, options.barriers))
        )


if __name__ == "__main__":
    main()
