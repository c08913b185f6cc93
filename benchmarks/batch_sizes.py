"""How large a batch should be: one subtask's share of the running sum of 200,000 users, by records in a buffer.

``python -m benchmarks.batch_sizes [--records 20000 10000 2500 1000]`` prints microseconds per record for each step of a
receiver: decode a buffer, get the keys, reduce them into a dict of state and mark them as changed, keep the last value
of each key for the sink. Without Spark and without files.
"""

from __future__ import annotations

import argparse
import gc
import pickle
import time

import numpy as np

from benchmarks.data import SEED, ZIPF_EXPONENT
from flinkish.spark.worker import THRESHOLD

USERS, RECORDS, EPOCHS = 85_000, 1_400_000, 3


def buffers(size: int) -> list[bytes]:
    """Pickled lists of (user, 1): each user once, the others by Zipf's law. Equal strings in a list are one object."""
    rng = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, USERS + 1) ** ZIPF_EXPONENT
    drawn = rng.choice(USERS, size=RECORDS - USERS, p=weights / weights.sum())
    numbers = np.concatenate([np.arange(USERS), drawn])
    rng.shuffle(numbers)
    made = []
    for begin in range(0, RECORDS, size):
        names: dict[int, str] = {}
        part = numbers[begin : begin + size].tolist()
        made.append(pickle.dumps([(names.setdefault(number, f"u{number}"), 1) for number in part], protocol=5))
    return made


def measure(size: int) -> list[float]:
    """Microseconds per record of each step, in the last epoch."""
    data, state = buffers(size), dict[str, tuple[str, int]]()
    for _ in range(EPOCHS):
        marked, last = set[str](), dict[str, tuple[str, int]]()
        steps = [0.0] * 4
        for buffer in data:
            times = [time.process_time()]
            values = pickle.loads(buffer)
            times.append(time.process_time())
            keys = [value[0] for value in values]
            times.append(time.process_time())
            for position, (key, value) in enumerate(zip(keys, values, strict=True)):
                if key in state:
                    left = state[key]
                    values[position] = value = (left[0], left[1] + value[1])
                state[key] = value
            marked.update(keys)
            times.append(time.process_time())
            for value in values:
                last[value[0]] = value
            times.append(time.process_time())
            steps = [step + after - before for step, before, after in zip(steps, times, times[1:], strict=False)]
    return [step / RECORDS * 1e6 for step in steps]


def main() -> None:
    """Print a line per size."""
    parser = argparse.ArgumentParser(description="Microseconds a record by the records in a buffer.")
    parser.add_argument("--records", type=int, nargs="+", default=[20_000, 10_000, 2_500, 1_000], metavar="N")
    gc.set_threshold(THRESHOLD, 20, 20)
    print(f"{'records':>8} {'decode':>8} {'keys':>8} {'reduce':>8} {'upsert':>8} {'all':>8}   us a record")
    for size in parser.parse_args().records:
        steps = measure(size)
        print(f"{size:8,} " + " ".join(f"{step:8.2f}" for step in (*steps, sum(steps))))


if __name__ == "__main__":
    main()
